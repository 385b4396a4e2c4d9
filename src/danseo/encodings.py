"""Detect the encoding of a text from its bytes: UTF-8, UTF-16 or CP949."""

import codecs
from typing import BinaryIO

_CHUNK = 1 << 16  # bytes
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def has_utf16_mark(start: bytes) -> bool:
    """Return whether the first bytes of a text are the byte-order mark of UTF-16."""
    return start.startswith(_UTF16_MARKS)


def can_decode(content: bytes, encoding: str) -> bool:
    """Return whether the bytes are text in the encoding."""
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def is_known_encoding(encoding: str) -> bool:
    """Return whether the name is that of a text encoding."""
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        return False
    return True


def detect_encoding(stream: BinaryIO, preferred: str = "", max_bytes: int | None = None) -> str | None:
    """Return the encoding of a whole stream, or None; only `max_bytes` of it are checked.

    UTF-16 is recognised by its byte-order mark. UTF-8 comes before the preferred encoding (that of a task
    file): text in another encoding is hardly ever valid UTF-8.
    """
    stream.seek(0)
    if has_utf16_mark(stream.read(2)):
        return "utf-16" if find_undecodable_line(stream, "utf-16", max_bytes) is None else None
    for encoding in filter(None, ("utf-8", preferred)):
        if find_undecodable_line(stream, encoding, max_bytes) is None:
            return encoding
    return None if _is_mostly_utf8(stream, max_bytes) or find_undecodable_line(stream, "cp949", max_bytes) else "cp949"


def find_undecodable_line(stream: BinaryIO, encoding: str, max_bytes: int | None = None) -> int | None:
    """Return the number of the first line that is not in the encoding, or None."""
    stream.seek(0)
    decoder, line, read = codecs.getincrementaldecoder(encoding)(), 1, 0
    while max_bytes is None or read < max_bytes:
        chunk = stream.read(_CHUNK)
        read += len(chunk)
        try:
            line += decoder.decode(chunk, final=not chunk).count("\n")
        except UnicodeDecodeError as error:
            return line + error.object[: error.start].count(b"\n")
        if not chunk:
            break
    return None


def _is_mostly_utf8(stream: BinaryIO, max_bytes: int | None) -> bool:
    """Return whether at least half of the lines beyond ASCII are UTF-8."""
    stream.seek(0)
    balance = read = 0
    for line in stream:
        read += len(line)
        if not line.isascii():
            balance += 1 if can_decode(line, "utf-8") else -1
        if max_bytes is not None and read >= max_bytes:
            break
    return balance >= 0


def get_codec(encoding: str) -> str:
    """Return the codec that decodes a text without its byte-order mark."""
    return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
