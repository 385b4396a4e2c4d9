"""Run directories: each file is written atomically, and scores.json comes last, so a run with it is finished."""

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

from danseo.config.base import changed_settings, to_toml
from danseo.config.run import RunConfig, read_config
from danseo.data.prediction_file import write_predictions
from danseo.errors import DanseoError, DataError, WorkFailed
from danseo.files import check_links, parse_json, read_json_lines, read_text, suggest_remedy, write_atomically
from danseo.language import _
from danseo.records import Prediction
from danseo.runs.naming import make_folder_name
from danseo.runs.schemas import clean_log_line
from danseo.tasks import get_task
from danseo.tasks.custom import load_stored_task
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding import pack_npz

CHECKPOINT, BEST = "checkpoint", "best.safetensors"
SEAL = "sha256.txt"  # the hash of both files of a checkpoint, which finds a flipped bit
FAILED, PRUNED = "error.txt", "pruned.txt"  # why a run ended without scores
PROGRESS = "progress.json"  # the progress of a running training
OWN_TASK = "task.toml"  # the description of a custom task, with its labels
WEIGHTS = "weights"  # the folder of last, best_raw, best_swa and final_swa

Status = Literal["done", "pruned", "failed", "unfinished"]


def compute_fingerprint(config: RunConfig, identity: Mapping[str, str]) -> str:
    """Return eight hex digits of a hash of the settings, the model and the data files."""
    settings = {**changed_settings(config), **identity, "model": identity.get("model", config.model)}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]


def make_run_name(config: RunConfig, identity: Mapping[str, str]) -> str:
    """Return the name of a run directory, such as ner--klue-roberta-base--s42--9f31c0de."""
    parts = get_task_name(config.task), make_folder_name(config.model), f"s{config.seed}"
    return "--".join([*parts, compute_fingerprint(config, identity)])


def get_task_name(task: str) -> str:
    """Return the name of a task; that of a custom task is the stem of its file."""
    return Path(task).stem if task.endswith(".toml") else task


def find_run_path(runs: Path, config: RunConfig, identity: Mapping[str, str]) -> Path:
    """Return the path of a run; the fingerprint finds it also if the model folder had another name."""
    named = runs / make_run_name(config, identity)
    pattern = f"{get_task_name(config.task)}--*--s{config.seed}--{compute_fingerprint(config, identity)}"
    return (
        named if named.exists() else min((path.parent for path in runs.glob(f"{pattern}/config.toml")), default=named)
    )


def hash_folder(folder: Path) -> str:
    """Return a hash of the model files of a checkpoint folder."""
    digest = hashlib.sha256()
    if (folder / "config.cfg").is_file():  # a spaCy pipeline, whose components have folders
        paths = [path for path in folder.rglob("*") if path.is_file()]
    else:
        paths = [path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".txt", ".model")]
    for path in sorted(path for path in paths if path.is_file()):  # reading a pipe would block
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
        check_links(self.path)
        return read_config(self.path / "config.toml")

    @property
    def status(self) -> Status:
        """The status of the run by its files."""
        if self.is_finished:
            return "done"
        if (self.path / PRUNED).is_file():
            return "pruned"
        return "failed" if (self.path / FAILED).is_file() else "unfinished"

    @property
    def reason(self) -> str:
        """The reason why the run ended without scores."""
        return "" if self.is_finished else self._reason(PRUNED) or self._reason(FAILED)

    def _reason(self, name: str) -> str:
        return read_text(self.path / name).strip() if (self.path / name).is_file() else ""

    @property
    def task(self) -> Task:
        """The task of the run, with the same sample and split of dev."""
        config, own = self.config, self.path / OWN_TASK
        task = load_stored_task(own) if own.is_file() else get_task(config.task)
        return replace(task, dev_sample=config.dev_sample)

    def start(self, config: Any, task: Task | None = None) -> None:
        """Create the directory and write the settings and a custom task."""
        check_links(self.path)
        if task and task.custom:
            self._write(OWN_TASK, task.custom.as_toml())
            config = config.model_copy(update={"task": task.name})
        self._write("config.toml", to_toml(config))
        self.clear_end()

    def clear_end(self) -> None:
        """Remove the reason why an earlier start ended."""
        for name in (FAILED, PRUNED):
            (self.path / name).unlink(missing_ok=True)

    def _write(self, name: str, content: str | bytes) -> None:
        """Write a file atomically; a full disk ends the run with one line."""
        with _report_write_failure():
            write_atomically(self.path / name, content)

    def write_json(self, name: str, document: Any) -> None:
        self._write(name, json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")

    def write_bytes(self, name: str, content: bytes) -> None:
        self._write(name, content)

    def read_json(self, name: str) -> Any:
        """Return the document of a file of the run; refuse half a surrogate pair, which no file can contain."""
        check_links(self.path)
        document = parse_json(text := read_text(self.path / name), self.path / name)
        try:
            json.dumps(document if "\\u" in text else None, ensure_ascii=False).encode()
        except (UnicodeEncodeError, RecursionError):
            raise DataError(f"{self.path / name} holds half a surrogate pair; restore the file") from None
        return document

    def write_predictions(
        self, split: str, predictions: Sequence[Prediction], arrays: Mapping[str, Any] | None = None
    ) -> None:
        """Write predictions, and before them the arrays that ensembles need."""
        if arrays is not None:
            self.write_bytes(f"predictions/{split}.npz", pack_npz(arrays))
        with _report_write_failure():
            write_predictions(self.predictions_path(split), predictions)

    def predictions_path(self, split: str) -> Path:
        return self.path / "predictions" / f"{split}.jsonl"

    def fail(self, message: str) -> None:
        """Write the reason of a failure, if the run directory exists; ignore a full disk."""
        self._end(FAILED, message)

    def prune(self, message: str) -> None:
        """Write why a search stopped the run."""
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
                f"{self.path / 'log.jsonl'} cannot be written: {error.strerror}; {suggest_remedy(error)}"
            ) from None

    def read_log(self) -> list[dict[str, Any]]:
        """Return the lines of log.jsonl without values that danseo does not write."""
        check_links(self.path)
        return [clean_log_line(line) for line in read_json_lines(self.path / "log.jsonl")]

    def truncate_log(self, lines: int) -> None:
        """Remove the lines of the log after the checkpoint from which a run resumes."""
        path = self.path / "log.jsonl"
        if path.exists():
            complete = path.read_bytes().split(b"\n")[:-1]
            self._write("log.jsonl", b"".join(line + b"\n" for line in complete[:lines]))

    # The checkpoint: tensors and a small JSON state, replaced together by renaming the folder

    def save_checkpoint(self, tensors: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        from safetensors.torch import save

        with self._guard_checkpoint():
            content = save(dict(tensors))
            _write_synced(self.begin_checkpoint() / "state.safetensors", content)
            self._seal_checkpoint(state, [hashlib.sha256(content)])

    def begin_checkpoint(self) -> Path:
        """Return an empty folder for the tensors of a checkpoint; seal_checkpoint makes it the latest one."""
        fresh, kept, old = (self.path / name for name in (f"{CHECKPOINT}.new", CHECKPOINT, f"{CHECKPOINT}.old"))
        with self._guard_checkpoint():
            shutil.rmtree(fresh, ignore_errors=True)
            if kept.exists():  # else the old one is the only complete one, and stays until the new one is in place
                shutil.rmtree(old, ignore_errors=True)  # now, as there is to be room for two at most
            fresh.mkdir(parents=True)
        return fresh

    def seal_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Complete the checkpoint whose tensors are in the folder of begin_checkpoint."""
        with self._guard_checkpoint():
            self._seal_checkpoint(state, _hash_tensors(self.path / f"{CHECKPOINT}.new"))

    def _seal_checkpoint(self, state: Mapping[str, Any], digests: Sequence[Any]) -> None:
        fresh, kept = self.path / f"{CHECKPOINT}.new", self.path / CHECKPOINT
        text = json.dumps(state, allow_nan=False)
        _write_synced(fresh / "state.json", text.encode())
        _write_synced(fresh / SEAL, _hash_checkpoint(text, digests).encode())
        if kept.exists():
            kept.rename(self.path / f"{CHECKPOINT}.old")
        fresh.rename(kept)

    @contextmanager
    def _guard_checkpoint(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            shutil.rmtree(self.path / f"{CHECKPOINT}.new", ignore_errors=True)
            raise WorkFailed(
                f"the checkpoint in {self.path} cannot be written: {error.strerror}; {suggest_remedy(error)}"
                + " (the previous checkpoint is complete)" * self.has_checkpoint
            ) from None

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return any((self.path / name / "state.json").is_file() for name in (CHECKPOINT, f"{CHECKPOINT}.old"))

    def load_checkpoint(
        self, on_note: Callable[[str], None] = lambda line: None, *, with_tensors: bool = True
    ) -> tuple[Any, dict[str, Any]] | None:
        """Return the latest complete checkpoint; report a corrupted one and use the previous one.

        It has tensors by name and a state; without tensors, the folder that has them and the state. So has one that
        several processes wrote.
        """
        corrupted = 0
        for folder in (self.path / CHECKPOINT, self.path / f"{CHECKPOINT}.old"):
            if not os.path.lexists(folder):
                continue
            try:
                found = _read_checkpoint(folder, with_tensors)
            except DanseoError as error:
                on_note(f"note: {error}".partition("; ")[0] + ", so the checkpoint there is left out")
                corrupted += 1
                continue
            if corrupted:
                on_note("note: resuming from the checkpoint before it")
            return found
        if corrupted:
            on_note("note: no complete checkpoint is left; starting from the beginning")
        return None

    def save_weights(self, name: str, tensors: Mapping[str, Any]) -> None:
        from safetensors.torch import save

        self._write(name, save(dict(tensors)))

    def load_weights(self, name: str) -> dict[str, Any]:
        return read_tensors(self.path / name)

    def list_weights(self) -> list[str]:
        """Return the names of the weights in weights/."""
        return [path.stem for path in sorted((self.path / WEIGHTS).glob("*.safetensors"))]

    def remove(self) -> None:
        """Delete the run; refuse a link."""
        if self.path.is_symlink():
            raise DanseoError(f"{self.path} is a link to {self.path.resolve()}; remove it, or name that folder")
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path.exists():
            raise WorkFailed(f"{self.path} cannot be removed; check its permissions")

    def find_partial_files(self) -> list[Path]:
        """Return the files that a kill left: incomplete files, and checkpoints of a finished run."""
        drafts = [path for folder in ("", "predictions", WEIGHTS) for path in (self.path / folder).glob(".*.part")]
        return drafts + (self._find_checkpoints() if self.is_finished else [])

    def remove_partial_files(self) -> None:
        """Remove the files that a kill left; only the owner of the lock may call it."""
        _remove_paths(self.find_partial_files())

    def remove_checkpoints(self) -> None:
        """Remove the files that only an unfinished run needs."""
        _remove_paths(self._find_checkpoints())

    def _find_checkpoints(self) -> list[Path]:
        names = (CHECKPOINT, f"{CHECKPOINT}.old", f"{CHECKPOINT}.new", BEST, PROGRESS)
        return [path for name in names if (path := self.path / name).exists()]


def _remove_paths(paths: Sequence[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _read_checkpoint(folder: Path, with_tensors: bool) -> tuple[Any, dict[str, Any]]:
    """Return the tensors (or their folder) and the state of a checkpoint; refuse a corrupted one."""
    text, weights = read_text(folder / "state.json"), folder / "state.safetensors"
    state = parse_json(text, folder / "state.json")
    if not isinstance(state, dict):
        raise DanseoError(f"{folder / 'state.json'} is corrupted: not an object")
    has_parts = any(folder.glob("shard-*.safetensors"))
    tensors = read_tensors(weights) if with_tensors and not has_parts else folder
    sha256 = _hash_checkpoint(text, _hash_tensors(folder))
    if read_text(folder / SEAL) != sha256:
        raise DanseoError(f"{folder} is corrupted: its hash differs")
    return tensors, state


def _hash_tensors(folder: Path) -> list[Any]:
    digests = []
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256"))
    return digests


def _hash_checkpoint(state: str, digests: Sequence[Any]) -> str:
    return hashlib.sha256(state.encode() + b"".join(each.digest() for each in digests)).hexdigest() + "\n"


def read_tensors(path: Path) -> dict[str, Any]:
    """Return the tensors of a safetensors file; refuse a corrupted one."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.exists() and not path.is_file():  # reading a pipe would block
        raise DanseoError(f"{path} is corrupted: not a file; run the command that made it again")
    try:
        tensors: dict[str, Any] = load_file(path)
    except FileNotFoundError:
        raise DanseoError(_("{path} is missing; run the command that made it again").format(path=path)) from None
    except (OSError, SafetensorError) as error:
        reason = shorten(" ".join(str(error).split()), 200, placeholder=" …")
        raise DanseoError(
            _("{path} is corrupted: {reason}; run the command that made it again").format(path=path, reason=reason)
        ) from None
    return tensors


@contextmanager
def _report_write_failure() -> Iterator[None]:
    """Raise errors of the block as failures of the work, not as bad input."""
    try:
        yield
    except DanseoError as error:
        raise WorkFailed(f"{error} (files saved before are complete)") from None


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
