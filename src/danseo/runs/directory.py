"""A run directory: written piece by piece, readable at any time, and whole once scores.json is there."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

from danseo.config import Kind, RunConfig, read_config
from danseo.errors import DanseoError, WorkFailed
from danseo.files import parse_json, read_text, remedy, write_atomically
from danseo.predictions.file import write_predictions
from danseo.records import Prediction
from danseo.runs.naming import folder_name
from danseo.settings.declaring import identifying
from danseo.settings.written import to_toml
from danseo.tasks import get_task
from danseo.tasks.own import stored_task
from danseo.tasks.task import Task

CHECKPOINT, BEST = "checkpoint", "best.safetensors"
SEAL = "sha256.txt"  # of a checkpoint's two files, as a flipped bit shows nowhere else
FAILED, PRUNED = "error.txt", "pruned.txt"  # why a run ended without scores
STANDING = "standing.json"  # how far a training is, while it goes on
OWN_TASK = "task.toml"  # the description of a user's own task, with its labels
KEPT = "weights"  # where averaging keeps last, best_raw, best_swa and final_swa


Status = Literal["done", "pruned", "failed", "unfinished"]


def fingerprint(config: RunConfig, identity: Mapping[str, str]) -> str:
    """Eight hex digits of the settings and of what the model and the data files hold."""
    settings = {**identifying(config), **identity, "model": identity.get("model", config.model)}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]


def run_name(config: RunConfig, identity: Mapping[str, str]) -> str:
    """ner--klue-roberta-base--s42--9f31c0de."""
    return f"{task_name(config.task)}--{folder_name(config.model)}--s{config.seed}--{fingerprint(config, identity)}"


def task_name(task: str) -> str:
    """The name of a task as settings call it, which for a user's own is a file."""
    return Path(task).stem if task.endswith(".toml") else task


def run_path(runs: Path, config: RunConfig, identity: Mapping[str, str]) -> Path:
    """Where a run is, or will be: the fingerprint finds it also under the name that its model's folder had before."""
    named = runs / run_name(config, identity)
    pattern = f"{task_name(config.task)}--*--s{config.seed}--{fingerprint(config, identity)}"
    return (
        named if named.exists() else min((path.parent for path in runs.glob(f"{pattern}/config.toml")), default=named)
    )


def as_started(runs: Path, config: RunConfig, identity: Mapping[str, str]) -> RunConfig:
    """The config, or that of an earlier run of it which parted dev by the older rule and keeps to it."""
    older = replace(config, train=replace(config.train, halves=1))
    is_known = run_path(runs, older, identity).exists() and not run_path(runs, config, identity).exists()
    return older if is_known else config


def folder_identity(folder: Path) -> str:
    """A hash of the files of a checkpoint folder that make the model."""
    digest = hashlib.sha256()
    if (folder / "config.cfg").is_file():  # a pipeline of spaCy, whose parts have folders of their own
        paths = [path for path in folder.rglob("*") if path.is_file()]
    else:
        paths = [path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".txt", ".model")]
    for path in sorted(paths):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Run:
    """One run directory."""

    path: Path

    @property
    def is_finished(self) -> bool:
        return (self.path / "scores.json").is_file()

    @property
    def config(self) -> RunConfig:
        return read_config(self.path / "config.toml")

    @property
    def kind(self) -> Kind:
        """How the run was made: by training, of other runs, by prompting."""
        return self.config.kind

    @property
    def status(self) -> Status:
        """How the run stands, by the files that are there."""
        if self.is_finished:
            return "done"
        if (self.path / PRUNED).is_file() or self._reason(FAILED).startswith("pruned at step "):  # as 0.1.0 left it
            return "pruned"
        return "failed" if (self.path / FAILED).is_file() else "unfinished"

    @property
    def reason(self) -> str:
        """Why the run ended without scores, where it did."""
        return "" if self.is_finished else self._reason(PRUNED) or self._reason(FAILED)

    def _reason(self, name: str) -> str:
        return read_text(self.path / name).strip() if (self.path / name).is_file() else ""

    @property
    def task(self) -> Task:
        """The run's task, with dev parted as it was."""
        config, own = self.config, self.path / OWN_TASK
        return replace(stored_task(own) if own.is_file() else get_task(config.task), halves=config.train.halves)

    def start(self, config: Any, task: Task | None = None) -> None:
        """Make the directory and write the settings, unless an earlier start did; a user's own task is kept, too."""
        if task and task.own:
            self._write(OWN_TASK, task.own.as_toml())
            config = replace(config, task=task.name)
        self._write("config.toml", to_toml(config))
        self.forget_end()

    def forget_end(self) -> None:
        """Remove the reason why an earlier start ended."""
        for name in (FAILED, PRUNED):
            (self.path / name).unlink(missing_ok=True)

    def _write(self, name: str, content: str | bytes) -> None:
        """A file, whole or not at all; a full disk ends the run with one line and harms nothing."""
        with _harmless():
            write_atomically(self.path / name, content)

    def write_json(self, name: str, document: Any) -> None:
        self._write(name, json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")

    def write_bytes(self, name: str, content: bytes) -> None:
        self._write(name, content)

    def read_json(self, name: str) -> Any:
        return parse_json(read_text(self.path / name), self.path / name)

    def write_predictions(self, split: str, predictions: Sequence[Prediction]) -> None:
        with _harmless():
            write_predictions(self.predictions_path(split), predictions)

    def predictions_path(self, split: str) -> Path:
        return self.path / "predictions" / f"{split}.jsonl"

    def fail(self, message: str) -> None:
        """Leave the reason of a failure behind; a disk that takes no word more is not a second failure.

        What failed before it started, as with a mistyped model, leaves nothing behind.
        """
        self._end(FAILED, message)

    def prune(self, message: str) -> None:
        """Leave behind why a search gave the run up."""
        self._end(PRUNED, message)

    def _end(self, name: str, message: str) -> None:
        if self.path.is_dir():
            with suppress(DanseoError):
                self._write(name, message + "\n")

    # The log

    def log(self, record: Mapping[str, Any]) -> None:
        """Add a line to log.jsonl."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise WorkFailed(
                f"{self.path / 'log.jsonl'} cannot be written: {error.strerror}; {remedy(error)}"
            ) from None

    def read_log(self) -> list[dict[str, Any]]:
        path = self.path / "log.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def cut_log(self, lines: int) -> None:
        """Forget what was logged after the checkpoint that a resumed run goes on from."""
        path = self.path / "log.jsonl"
        if path.exists():
            kept = path.read_bytes().split(b"\n")[:-1][:lines]  # whole lines only
            self._write("log.jsonl", b"".join(line + b"\n" for line in kept))

    # The checkpoint: tensors and a small JSON state, replaced together by renaming the folder

    def save_checkpoint(self, tensors: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        from safetensors.torch import save

        fresh, kept, old = (self.path / name for name in (f"{CHECKPOINT}.new", CHECKPOINT, f"{CHECKPOINT}.old"))
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            if kept.exists():  # else the old one is the only whole one, and stays until the new one is in place
                shutil.rmtree(old, ignore_errors=True)  # now, as there is to be room for two at most
            fresh.mkdir(parents=True)
            content, told = save(dict(tensors)), json.dumps(state, allow_nan=False)
            _write_synced(fresh / "state.safetensors", content)
            _write_synced(fresh / "state.json", told.encode())
            _write_synced(fresh / SEAL, _seal(told, hashlib.sha256(content)).encode())
            if kept.exists():
                kept.rename(old)
            fresh.rename(kept)
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            raise WorkFailed(
                f"the checkpoint in {self.path} cannot be written: {error.strerror}; {remedy(error)}"
                + " (the previous checkpoint is whole)" * self.has_checkpoint
            ) from None

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to go on from."""
        return any((self.path / name / "state.json").is_file() for name in (CHECKPOINT, f"{CHECKPOINT}.old"))

    def load_checkpoint(
        self, on_note: Callable[[str], None] = lambda line: None
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The latest whole checkpoint; a damaged one is named, and the one before it counts."""
        damaged = 0
        for folder in (self.path / CHECKPOINT, self.path / f"{CHECKPOINT}.old"):
            if not os.path.lexists(folder):
                continue
            try:
                found = _read_checkpoint(folder)
            except DanseoError as error:
                on_note(f"note: {error}".partition("; ")[0] + ", so the checkpoint there is left out")
                damaged += 1
                continue
            if damaged:
                on_note("note: going on from the checkpoint before it")
            return found
        if damaged:
            on_note("note: no whole checkpoint is left; starting from the beginning")
        return None

    def save_weights(self, name: str, tensors: Mapping[str, Any]) -> None:
        from safetensors.torch import save

        self._write(name, save(dict(tensors)))

    def load_weights(self, name: str) -> dict[str, Any]:
        return read_tensors(self.path / name)

    def kept_weights(self) -> list[str]:
        """The names of the weights that averaging kept."""
        return [path.stem for path in sorted((self.path / KEPT).glob("*.safetensors"))]

    def remove(self) -> None:
        """Delete the whole run; what lies behind a link is not this run's to delete."""
        if self.path.is_symlink():
            raise DanseoError(f"{self.path} is a link to {self.path.resolve()}; remove it, or name that folder")
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path.exists():
            raise WorkFailed(f"{self.path} cannot be removed; check its permissions")

    def leftovers(self) -> list[Path]:
        """What a kill left behind: files that were being written and, once all is whole, what only the work needed."""
        drafts = [path for folder in ("", "predictions", KEPT) for path in (self.path / folder).glob(".*.part")]
        names = (CHECKPOINT, f"{CHECKPOINT}.old", f"{CHECKPOINT}.new", BEST, STANDING) if self.is_finished else ()
        return drafts + [path for name in names if (path := self.path / name).exists()]

    def sweep_out(self) -> None:
        """Remove what a kill left behind; only for who owns the run."""
        for path in self.leftovers():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what only an unfinished run needs."""
        for name in (CHECKPOINT, f"{CHECKPOINT}.old", f"{CHECKPOINT}.new"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in (BEST, STANDING):
            (self.path / name).unlink(missing_ok=True)


def _read_checkpoint(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors and the state of a checkpoint that is as it was written; those of older versions have no seal."""
    told, weights = read_text(folder / "state.json"), folder / "state.safetensors"
    state = parse_json(told, folder / "state.json")
    if not isinstance(state, dict):
        raise DanseoError(f"{folder / 'state.json'} is damaged: not an object")
    tensors = read_tensors(weights)
    if os.path.lexists(folder / SEAL):
        with weights.open("rb") as file:
            found = _seal(told, hashlib.file_digest(file, "sha256"))
        if read_text(folder / SEAL) != found:
            raise DanseoError(f"{folder} is damaged: it is not what was written")
    return tensors, state


def _seal(state: str, weights: Any) -> str:
    return hashlib.sha256(state.encode() + weights.digest()).hexdigest() + "\n"


def read_tensors(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file, however large; a damaged one is named."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise DanseoError(f"{path} is damaged: not a file; run the command that made it again")
    try:
        tensors: dict[str, Any] = load_file(path)
    except FileNotFoundError:
        raise DanseoError(f"{path} is missing; run the command that made it again") from None
    except (OSError, SafetensorError) as error:
        reason = shorten(" ".join(str(error).split()), 200, placeholder=" …")
        raise DanseoError(f"{path} is damaged: {reason}; run the command that made it again") from None
    return tensors


@contextmanager
def _harmless() -> Iterator[None]:
    """Whatever cannot be written inside the block is the disk's failure, not the input's."""
    try:
        yield
    except DanseoError as error:
        raise WorkFailed(f"{error} (what was saved before is still whole)") from None


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
