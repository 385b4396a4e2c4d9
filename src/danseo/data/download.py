"""Get the KLUE files from a folder or from the Hub; each is written atomically."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo import hub
from danseo.data.find import (
    SAMPLE,
    find_file,
    find_named,
    hub_split,
    read_companion,
    read_hashes,
    record_files,
    require_file,
)
from danseo.errors import DataError, NetworkError
from danseo.files import content_sha256, read_bytes, write_atomically
from danseo.language import _
from danseo.rows import is_parquet
from danseo.tasktypes.base import Task

HUB_REPOSITORY = "klue/klue"

Progress = Callable[[str], None]
"""Called after each file with a line such as 3/16 nli/train-00000-of-00001.parquet: fetched."""


def get_files(tasks: Sequence[Task], source: str, root: Path, on_progress: Progress) -> list[Path]:
    """Get the files of the tasks from "hub" or from a folder; return those that were written."""
    custom = [path for task in tasks if task.custom for path in _get_custom(task, root, on_progress)]
    klue = [task for task in tasks if not task.custom]
    if klue and root == SAMPLE:
        raise DataError("the bundled sample is read-only: --data sample; name another folder with --data")
    if not klue:
        return custom
    if source == "hub":
        return [*custom, *_fetch_from_hub(klue, root, on_progress)]
    return [*custom, *_copy_from_folder(klue, Path(source), root, on_progress)]


def _get_custom(task: Task, root: Path, on_progress: Progress) -> Iterator[Path]:
    """Yield the files of a custom task; those of the Hub are fetched if they are not cached."""
    for split in ("train",) if task.custom and task.custom.share else ("train", "dev"):
        path = require_file(task, split, root)
        on_progress(f"{task.name}, {split}: {path}")
        yield path


# From a folder


@dataclass(frozen=True)
class _Copy:
    """A source file that was read, and its target."""

    source: Path
    target: Path
    rows: int
    sha256: str
    is_present: bool

    @property
    def entry(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "rows": self.rows, "source": str(self.source.absolute())}


def _copy_from_folder(tasks: Sequence[Task], folder: Path, root: Path, on_progress: Progress) -> list[Path]:
    if not folder.is_dir():
        raise DataError(_("{folder} is no folder; name the one with the KLUE files, or `hub`").format(folder=folder))
    copies = [copy for task in tasks for copy in _plan_copies(task, folder, root)]  # reads all before any is written
    for done, copy in enumerate(copies, 1):
        if not copy.is_present:
            write_atomically(copy.target, read_bytes(copy.source))
        record_files(root, {copy.target: copy.entry})
        name, status = copy.target.relative_to(root).as_posix(), "already there" if copy.is_present else "copied"
        on_progress(f"{done}/{len(copies)} {name}: {status}, {copy.rows} rows")
    return [copy.target for copy in copies if not copy.is_present]


def _plan_copies(task: Task, folder: Path, root: Path) -> Iterator[_Copy]:
    """Yield a copy per file of a task in the folder; each file is read completely."""
    paths = {split: find_file(task, split, folder) for split in task.official_rows}
    if not any(paths.values()):
        names = " or ".join(task.file(split) for split in paths)
        raise DataError(
            _(
                "{folder} has nothing for {task}: looked for {names}, plain or .gz, there and in {name}/,"
                " and for {task}/*.parquet"
            ).format(folder=folder, task=task.name, names=names, name=task.folder)
        )
    for split, path in paths.items():
        if path:
            rows = task.rows(task.read(path))
            target = root / task.name / path.name if is_parquet(path) else root / task.folder / task.file(split)
            yield _make_copy(path, target, rows, find_file(task, split, root), root)
    for name in task.companions:
        if path := find_named(task, name, folder):
            rows = read_companion(task, path)
            yield _make_copy(path, root / task.folder / name, rows, find_named(task, name, root), root)


def _make_copy(source: Path, target: Path, rows: int, present: Path | None, root: Path) -> _Copy:
    """Return the copy to make; never replace a file that danseo did not write."""
    sha256 = content_sha256(source)
    if present and _try_hash(present) == sha256:
        return _Copy(source, present, rows, sha256, is_present=True)
    if present:
        _check_replaceable(present, target, root)
    return _Copy(source, target, rows, sha256, is_present=False)


def _try_hash(path: Path) -> str | None:
    try:
        return content_sha256(path)
    except DataError:
        return None


def _check_replaceable(present: Path, target: Path, root: Path) -> None:
    """Refuse to replace a user's file, and to write a file that would never be read."""
    is_ours = present.relative_to(root).as_posix() in read_hashes(root)
    if not is_ours or (is_parquet(target) and not is_parquet(present)):
        raise DataError(f"{present} is already there with other content; move it away, or choose another --data folder")


# From the Hub


def _fetch_from_hub(tasks: Sequence[Task], root: Path, on_progress: Progress) -> list[Path]:
    _check_online()
    wanted = {
        root / task.name / f"{hub_split(split)}-00000-of-00001.parquet": (task, split)
        for task in tasks
        for split in task.official_rows
    }
    missing = [target for target, (task, split) in wanted.items() if not _is_fetched(target, task, split, root)]
    if missing:
        try:
            hub.request_headers(_url(missing[0].relative_to(root).as_posix()))
        except NetworkError as error:
            raise NetworkError(f"{error}; check the network, or get the files from a folder with --from") from None
    for done, (target, (task, _split)) in enumerate(wanted.items(), 1):
        if target in missing:
            content = hub.fetch_file(_url(f"{task.name}/{target.name}"), hint="get the files from a folder with --from")
            rows = _count_rows(task, target.name, content)
            write_atomically(target, content)
            entry = {"sha256": hashlib.sha256(content).hexdigest(), "rows": rows, "source": f"hub:{HUB_REPOSITORY}"}
            record_files(root, {target: entry})
        status = "fetched" if target in missing else "already there"
        on_progress(f"{done}/{len(wanted)} {target.relative_to(root).as_posix()}: {status}")
    return missing


def _check_online() -> None:
    if switch := hub.find_offline_switch():
        raise NetworkError(
            _("{switch} is set, so nothing is fetched; unset it, or copy the files with --from FOLDER").format(
                switch=switch
            )
        )


def _is_fetched(target: Path, task: Task, split: str, root: Path) -> bool:
    """Return whether the file exists with the content that was fetched."""
    present = find_file(task, split, root)
    if present is None:
        return False
    if present == target and _try_hash(present) == read_hashes(root).get(target.relative_to(root).as_posix()):
        return True
    _check_replaceable(present, target, root)
    return False


def _url(name: str) -> str:
    import huggingface_hub

    url: str = huggingface_hub.hf_hub_url(HUB_REPOSITORY, name, repo_type="dataset", endpoint=hub.get_endpoint())
    return url


def _count_rows(task: Task, name: str, content: bytes) -> int:
    """Return the number of rows of fetched content; raise DataError if the task cannot read it."""
    with tempfile.TemporaryDirectory(prefix="danseo-") as folder:
        path = Path(folder, name)
        write_atomically(path, content)
        try:
            return task.rows(task.read(path))
        except DataError as error:
            raise DataError(str(error).replace(str(path), f"{HUB_REPOSITORY}/{task.name}/{name} on the Hub")) from None
