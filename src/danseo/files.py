"""Reading files (plain or gzipped, text in any usual encoding, JSON, hashes) and writing them atomically.

A DataError names the file, the line and what to do.
"""

import errno
import gzip
import hashlib
import io
import json
import math
import os
import stat
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from danseo.encodings import detect_encoding, find_undecodable_line, get_codec
from danseo.errors import DanseoError, DataError, WorkFailed
from danseo.language import _

GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = 1 << 30
"""The largest size of a file in bytes, unpacked; the largest file of KLUE has a thirtieth of it."""


def quote(value: object, limit: int = 60) -> str:
    """Return the repr of a value on one line, truncated to a readable length."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or a number with thousands of digits
        text = f"a {'number' if isinstance(value, int) else type(value).__name__} too large to show"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def to_finite(number: float | None) -> float | None:
    """Return the number for JSON, or None if it is NaN or infinite."""
    return float(number) if number is not None and math.isfinite(number) else None


def read_bytes(path: Path, max_bytes: int | None = None) -> bytes:
    """Return the bytes of a file, unpacked if its content is gzipped.

    Larger files than `max_bytes` are refused before they fill the memory.
    """
    max_bytes = max_bytes or MAX_BYTES
    try:
        content = _read_limited(path, max_bytes)
    except FileNotFoundError:
        raise DataError(_("{path} is missing; check the path").format(path=path)) from None
    except IsADirectoryError:
        raise DataError(_("{path} is a folder; name the file inside it").format(path=path)) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            _("{path} cannot be read: {reason}; check the path and its permissions").format(path=path, reason=reason)
        ) from None
    if content.startswith(GZIP_MAGIC):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                content = packed.read(max_bytes + 1)
        except (OSError, EOFError, zlib.error):
            raise DataError(f"{path} is a corrupted gzip file; fetch it again") from None
        _check_size(path, len(content), max_bytes)
    if not content.strip():
        raise DataError(_("{path} is empty; write or fetch it again").format(path=path))
    return content


def _read_limited(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file or pipe; a pipe without a writer is empty."""
    status = path.stat()
    if stat.S_ISFIFO(status.st_mode):
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(pipe, True)
        with os.fdopen(pipe, "rb") as file:
            content = file.read(max_bytes + 1)
    elif stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        _check_size(path, status.st_size, max_bytes)
        content = path.read_bytes()
    else:
        raise DataError(f"{path} is a device, not a file; name a file")
    _check_size(path, len(content), max_bytes)
    return content


def _check_size(path: Path, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise DataError(f"{path} has more than {max_bytes / 2**30:.3g} GiB, the limit; is it the right file?")


def content_sha256(path: Path) -> str:
    """Return the SHA-256 of the unpacked content, which a file and its .gz share, or of all files of a folder."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        hashes = {file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        return hashlib.sha256("\n".join(f"{name} {sha256}" for name, sha256 in hashes.items()).encode()).hexdigest()
    return hashlib.sha256(read_bytes(path)).hexdigest()


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8 or UTF-16, with or without a byte-order mark, or in CP949."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        stream = io.BytesIO(content)
        if encoding := detect_encoding(stream):
            return content.decode(encoding)
        raise make_encoding_error(path, stream) from None


def make_encoding_error(path: Path, stream: BinaryIO, encoding: str = "utf-8") -> DataError:
    """Return the error for a file in no known encoding, with the first wrong line."""
    line = find_undecodable_line(stream, encoding) or 1
    return DataError(f"{path}, line {line}: not {encoding.upper()}; correct the line, or convert the file to UTF-8")


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, plain or gzipped."""
    with path.open("rb") as raw:
        packed = raw.peek(2).startswith(GZIP_MAGIC)
        yield io.BufferedReader(gzip.GzipFile(fileobj=raw)) if packed else raw


@contextmanager
def open_text(path: Path, preferred: str = "", max_bytes: int | None = None) -> Iterator[io.TextIOWrapper]:
    """Open a user's file as text with unchanged line ends; `max_bytes` of it decide its encoding."""
    try:
        with open_unpacked(path) as stream:
            encoding = detect_encoding(stream, preferred, max_bytes)
            if encoding is None:
                raise make_encoding_error(path, stream, preferred or "utf-8")
            stream.seek(0)
            yield io.TextIOWrapper(stream, encoding=get_codec(encoding), newline="")
    except FileNotFoundError:
        raise DataError(_("{path} is missing; check the path").format(path=path)) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not all of it is {error.encoding.upper()}; convert it to UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(_("{path} is a corrupted gzip file; pack or fetch it again").format(path=path)) from None
    except OSError as error:
        raise DataError(
            _("{path} cannot be read: {reason}; check the path and its permissions").format(
                path=path, reason=error.strerror
            )
        ) from None


def parse_json(text: str, path: Path | None, line: int | None = None, remedy: str = _("is the file cut off?")) -> Any:
    """Parse a JSON document; a DataError names the line."""
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except json.JSONDecodeError as error:
        location = format_location(path, line or error.lineno)
        raise DataError(
            _("{location}: not valid JSON ({msg}, column {colno}); {remedy}").format(
                location=location, msg=error.msg, colno=error.colno, remedy=remedy
            )
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{format_location(path, line)}: not readable JSON ({quote(str(error))}); correct it") from None


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; refuse one with the same key twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)} occurs twice in one object")
    return values


def read_json(path: Path) -> Any:
    """Return the document of a JSON file."""
    return parse_json(read_text(path), path)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the document of a TOML file."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # syntax, numbers with thousands of digits, and nesting without end
        raise DataError(
            _("{path}: not valid TOML ({error}); correct it").format(path=path, error=quote(str(error), 120))
        ) from None


def format_location(path: Path | None, line: int | None = None) -> str:
    """Return the file and the line as text, if they are known."""
    return ", ".join((*([str(path)] if path else []), *([f"line {line}"] if line else [])))


def infer_split(path: Path) -> str:
    """Return train or dev by the name of the file; the Hub calls dev validation."""
    return "train" if "train" in path.name else "dev"


_LONGEST_NAME, _LONGEST_PATH = 255, 4095  # bytes


def find_path_fault(text: str) -> str:
    """Return why no file can have this path; "" if one can."""
    if "\0" in text:
        return "contains a NUL character"
    parts = [len(part.encode("utf-8", "replace")) for part in text.split("/")]
    return "is too long" if max(parts) > _LONGEST_NAME or sum(parts) + len(parts) > _LONGEST_PATH else ""


def check_links(folder: Path) -> None:
    """Refuse a folder that contains a link to a place outside of it; the folder itself may be a link."""
    root = os.path.realpath(folder)
    inside, folders = root + os.sep, [root]
    while folders:
        try:
            with os.scandir(folders.pop()) as scan:
                entries = list(scan)
        except OSError:
            continue  # the reader of the file reports it
        for entry in entries:
            if entry.is_symlink() and not (os.path.realpath(entry.path) + os.sep).startswith(inside):
                place = folder / entry.path.removeprefix(inside)
                raise DataError(f"{place} is a link that leads out of {folder.name}; replace it by the file itself")
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)


def has_own_files(folder: Path) -> bool:
    """Return whether no link in a folder leads out of it."""
    try:
        check_links(folder)
    except DataError:
        return False
    return True


def find_own_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a folder by name, without links that lead out of it."""
    inside = os.path.realpath(folder) + os.sep
    paths = sorted(folder.glob(pattern))
    return [path for path in paths if os.path.realpath(path).startswith(inside) and path.is_file()]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file with one per line; incomplete lines are skipped."""
    try:
        lines = read_bytes(path).decode("utf-8", "replace").split("\n")
    except DataError:
        return []  # missing, empty, or no file
    records = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            records += [record] if isinstance(record, dict) else []
    return records


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written, before long work starts."""
    folders = (folder.absolute(), *folder.absolute().parents)
    existing = next(path for path in folders if os.path.exists(path))  # noqa: PTH110 (Path.exists may raise)
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        reason = "is not writable" if existing.is_dir() else "is no folder"
        raise DataError(f"{folder} cannot be written: {existing} {reason}; choose another place")


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_WORDS = ("No space left on device", "database or disk is full")  # libraries raise other errors than OSError


def is_disk_failure(error: BaseException) -> bool:
    """Return whether an error, or the one that it was raised for, is that of a full or broken disk."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (*_FULL, errno.EIO):
            return True
        if not isinstance(cause, DanseoError) and any(words in str(cause) for words in _FULL_WORDS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def make_write_error(target: object, error: OSError) -> DanseoError:
    """Return the error for a failed write: a full disk is a failure of the work, anything else is bad input."""
    error_class = WorkFailed if is_disk_failure(error) else DataError
    return error_class(f"{target} cannot be written: {error.strerror or error}; {suggest_remedy(error)}")


def suggest_remedy(error: OSError) -> str:
    """Return what a user can do about a failed write."""
    if error.errno in _FULL:
        return "free some space and run the same command again"
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return "its folder was removed or moved meanwhile; run the same command again"
    if error.errno == errno.EIO:
        return "check the disk"
    return "choose another place"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically: write a temporary file next to it, then rename that."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except OSError as error:
        raise make_write_error(path, error) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def cache_root() -> Path:
    """Return $DANSEO_CACHE, or danseo's part of the user's cache folder."""
    if folder := os.environ.get("DANSEO_CACHE"):
        return home_folder(folder)
    return home_folder(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "danseo"


def home_folder(text: str) -> Path:
    """Return the path with the home folder for ~."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise DataError(f"{text}: the home folder is unknown; write the path in full") from None
