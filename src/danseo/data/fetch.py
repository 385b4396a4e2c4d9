"""Getting the KLUE files, from a folder or from the Hub, each whole or not at all."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo import hub
from danseo.data.find import find_file, find_named, hub_split, read_companion, record, recorded, require_file
from danseo.errors import DataError, NetworkError
from danseo.files import content_sha256, read_bytes, write_atomically
from danseo.rows import is_parquet
from danseo.tasks.task import Task

HUB_REPOSITORY = "klue/klue"

Progress = Callable[[str], None]
"""Called after each file with a line on it: 3/16 nli/train-00000-of-00001.parquet: fetched."""


def get(tasks: Sequence[Task], source: str, root: Path, on_progress: Progress) -> list[Path]:
    """Bring the files of the tasks to the root, from "hub" or from a folder; returns those it had to write."""
    own = [path for task in tasks if task.own for path in _own_files(task, root, on_progress)]
    klue = [task for task in tasks if not task.own]
    if source == "hub":
        return [*own, *(_from_hub(klue, root, on_progress) if klue else ())]
    return [*own, *(_from_folder(klue, Path(source), root, on_progress) if klue else ())]


def _own_files(task: Task, root: Path, on_progress: Progress) -> Iterator[Path]:
    """The files of a user's own task: those of the Hub are fetched once, wherever they are needed first."""
    for split in ("train",) if task.own.share else ("train", "dev"):
        path = require_file(task, split, root)
        on_progress(f"{task.name}, {split}: {path}")
        yield path


# From a folder


@dataclass(frozen=True)
class _Copy:
    """A file that was found and read, and where it belongs."""

    source: Path
    target: Path
    rows: int
    sha256: str
    is_there: bool

    @property
    def entry(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "rows": self.rows, "source": str(self.source.absolute())}


def _from_folder(tasks: Sequence[Task], folder: Path, root: Path, on_progress: Progress) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; name the one that holds the KLUE files, or `hub`")
    copies = [copy for task in tasks for copy in _plan(task, folder, root)]  # all read before anything is written
    for done, copy in enumerate(copies, 1):
        if not copy.is_there:
            write_atomically(copy.target, read_bytes(copy.source))
        record(root, {copy.target: copy.entry})
        name, what = copy.target.relative_to(root).as_posix(), "already there" if copy.is_there else "copied"
        on_progress(f"{done}/{len(copies)} {name}: {what}, {copy.rows} rows")
    return [copy.target for copy in copies if not copy.is_there]


def _plan(task: Task, folder: Path, root: Path) -> Iterator[_Copy]:
    """The files of a task that the folder holds, each read to its end."""
    found = {split: find_file(task, split, folder) for split in task.official_rows}
    if not any(found.values()):
        names = " or ".join(task.file(split) for split in found)
        raise DataError(
            f"{folder} has nothing for {task.name}: looked for {names}, plain or .gz, there and in {task.folder}/, "
            f"and for {task.name}/*.parquet"
        )
    for split, path in found.items():
        if path:
            rows = task.rows(task.read(path))
            target = root / task.name / path.name if is_parquet(path) else root / task.folder / task.file(split)
            yield _copy(path, target, rows, find_file(task, split, root), root)
    for name in task.companions:
        if path := find_named(task, name, folder):
            rows = read_companion(task, path)
            yield _copy(path, root / task.folder / name, rows, find_named(task, name, root), root)


def _copy(source: Path, target: Path, rows: int, present: Path | None, root: Path) -> _Copy:
    """The copy to make; a file that danseo did not write itself is never replaced by another one."""
    sha256 = content_sha256(source)
    if present is None:
        return _Copy(source, target, rows, sha256, is_there=False)
    if _sha256_or_none(present) == sha256:
        return _Copy(source, present, rows, sha256, is_there=True)
    _check_replaceable(present, target, root)
    return _Copy(source, target, rows, sha256, is_there=False)


def _sha256_or_none(path: Path) -> str | None:
    try:
        return content_sha256(path)
    except DataError:
        return None


def _check_replaceable(present: Path, target: Path, root: Path) -> None:
    """Refuse to lose a file of the user's, and to write one that would never be read."""
    is_own = present.relative_to(root).as_posix() in recorded(root)
    if not is_own or (is_parquet(target) and not is_parquet(present)):
        raise DataError(f"{present} is already there with other content; move it away, or choose another --data folder")


# From the Hub


def _from_hub(tasks: Sequence[Task], root: Path, on_progress: Progress) -> list[Path]:
    _check_online()
    wanted = {
        root / task.name / f"{hub_split(split)}-00000-of-00001.parquet": (task, split)
        for task in tasks
        for split in task.official_rows
    }
    missing = [target for target, (task, split) in wanted.items() if not _is_fetched(target, task, split, root)]
    if missing:
        _check_reached(_url(missing[0].relative_to(root).as_posix()))
    for done, (target, (task, _)) in enumerate(wanted.items(), 1):
        what = "already there"
        if target in missing:
            what, content = (
                "fetched",
                hub.fetched(_url(f"{task.name}/{target.name}"), hint="get the files from a folder with --from"),
            )
            rows = _rows_of(task, target.name, content)
            write_atomically(target, content)
            entry = {"sha256": hashlib.sha256(content).hexdigest(), "rows": rows, "source": f"hub:{HUB_REPOSITORY}"}
            record(root, {target: entry})
        on_progress(f"{done}/{len(wanted)} {target.relative_to(root).as_posix()}: {what}")
    return missing


def _check_online() -> None:
    if switch := hub.offline_switch():
        raise NetworkError(
            f"{switch} is set, so nothing is fetched; unset it, or get the files from a folder with --from"
        )


def _check_reached(url: str) -> None:
    """Whatever keeps the Hub away shows in seconds."""
    try:
        hub.reach(url)
    except NetworkError as error:
        raise NetworkError(f"{error}; check the network, or get the files from a folder with --from") from None


def _is_fetched(target: Path, task: Task, split: str, root: Path) -> bool:
    """Whether the file is there just as it was fetched."""
    present = find_file(task, split, root)
    if present is None:
        return False
    if present == target and _sha256_or_none(present) == recorded(root).get(target.relative_to(root).as_posix()):
        return True
    _check_replaceable(present, target, root)
    return False


def _url(name: str) -> str:
    import huggingface_hub

    made: str = huggingface_hub.hf_hub_url(HUB_REPOSITORY, name, repo_type="dataset", endpoint=hub.endpoint())
    return made


def _rows_of(task: Task, name: str, content: bytes) -> int:
    """How many rows the fetched file holds, read as it will be from its place."""
    with tempfile.TemporaryDirectory(prefix="danseo-") as folder:
        path = Path(folder, name)
        write_atomically(path, content)
        try:
            return task.rows(task.read(path))
        except DataError as error:
            raise DataError(str(error).replace(str(path), f"{HUB_REPOSITORY}/{task.name}/{name} on the Hub")) from None
