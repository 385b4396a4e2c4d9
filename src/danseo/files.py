"""Files, whole or not at all: bytes plain or gzipped, text, JSON, hashes.

Whatever is wrong with a file comes out as one DataError that names the file, the place and the remedy.
"""

import errno
import gzip
import hashlib
import io
import json
import os
import stat
import tomllib
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from danseo.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"


MOST = 1 << 30
"""Bytes of a file, unpacked; the largest of KLUE has a thirtieth of it."""


def quote(value: object, limit: int = 60) -> str:
    """The value as it would be typed, cut to a readable length and kept on one line."""
    try:
        shown = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or a number with thousands of digits
        shown = f"a {'number' if isinstance(value, int) else type(value).__name__} too large to show"
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The bytes of a file, unpacked when it is gzipped (told by its content, not its name).

    Larger ones than most, by default MOST, are refused before they fill the memory.
    """
    most = most or MOST
    try:
        content = _bounded(path, most)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; name the file inside it") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}; check the path and its permissions") from None
    if content.startswith(GZIP_MAGIC):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                content = packed.read(most + 1)
        except (OSError, EOFError, zlib.error):
            raise DataError(f"{path} is a damaged gzip file; fetch it again") from None
        _check_size(path, len(content), most)
    if not content.strip():
        raise DataError(f"{path} is empty; write or fetch it again")
    return content


def _bounded(path: Path, most: int) -> bytes:
    """The content of a file or pipe; a pipe into which nobody writes is empty, not a reason to wait."""
    found = path.stat()
    if stat.S_ISFIFO(found.st_mode):
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(pipe, True)
        with os.fdopen(pipe, "rb") as file:
            content = file.read(most + 1)
    elif stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        _check_size(path, found.st_size, most)
        content = path.read_bytes()
    else:
        raise DataError(f"{path} is a device, not a file; name a file")
    _check_size(path, len(content), most)
    return content


def _check_size(path: Path, size: int, most: int) -> None:
    if size > most:
        raise DataError(
            f"{path} holds more than {most / 2**30:.3g} GiB, which danseo does not read; is it the right file?"
        )


def content_sha256(path: Path) -> str:
    """The SHA-256 of the unpacked content, so a file and its .gz have the same."""
    return hashlib.sha256(read_bytes(path)).hexdigest()


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: not UTF-8 (byte {error.start}); convert it: iconv -f CP949 -t UTF-8"
        ) from None


def parse_json(text: str, path: Path | None, line: int | None = None, remedy: str = "is the file cut off?") -> Any:
    """A JSON document, or a DataError that says where it breaks off; line is that of a one-line document."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        location = location_of(path, line or error.lineno)
        raise DataError(f"{location}: not valid JSON ({error.msg}, column {error.colno}); {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location_of(path, line)}: not readable JSON ({quote(str(error))}); mend it") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a key that stands in it twice, one value would be lost in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in found if keys.count(key) > 1)} stands twice in one object")
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML document, or a DataError that says why it is none."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # syntax, numbers with thousands of digits, and nesting without end
        raise DataError(f"{path}: not valid TOML ({quote(str(error), 120)}); mend it") from None


def location_of(path: Path | None, line: int | None = None) -> str:
    """A file and a line of it in words, as far as they are known."""
    return ", ".join((*([str(path)] if path else []), *([f"line {line}"] if line else [])))


def split_of(path: Path) -> str:
    """train or dev, by the file's name; the Hub says validation for dev."""
    return "train" if "train" in path.name else "dev"


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be made or written, before long work whose results would go there."""
    folders = (folder.absolute(), *folder.absolute().parents)
    there = next(location for location in folders if os.path.exists(location))  # noqa: PTH110 (Path.exists may raise)
    if not there.is_dir() or not os.access(there, os.W_OK):
        reason = "may not be written" if there.is_dir() else "is no folder"
        raise DataError(f"{folder} cannot be written: {there} {reason}; choose another place")


def remedy(error: OSError) -> str:
    """What helps where something cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space and run the same command again"
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return "its folder was removed or moved meanwhile; run the same command again"
    if error.errno == errno.EIO:
        return "check the disk"
    return "choose another place"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all: to a neighbour first, then rename."""
    neighbour = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        neighbour.write_bytes(content.encode() if isinstance(content, str) else content)
        neighbour.replace(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}; {remedy(error)}") from None
    finally:
        with suppress(OSError):
            neighbour.unlink(missing_ok=True)


def cache_root() -> Path:
    """$DANSEO_CACHE, else danseo's part of the user's cache folder."""
    if own := os.environ.get("DANSEO_CACHE"):
        return home_folder(own)
    return home_folder(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "danseo"


def home_folder(text: str) -> Path:
    """A path whose ~ is the home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise DataError(f"{text}: no home folder is known for it; write the path in full") from None
