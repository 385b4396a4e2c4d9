"""Ways to corrupt a file, for tests and for bench/attack.py; the same seed gives the same result."""

import gzip
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from .mutations import change_json, change_parquet, change_table, change_toml

Damage = Callable[[bytes, random.Random], bytes]


def cut_off(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def flip_bytes(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def insert_bytes(content: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(content) + 1)
    return content[:position] + rng.randbytes(rng.randint(1, 3)) + content[position:]


def delete_bytes(content: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(content))
    return content[:position] + content[position + rng.randint(1, 3) :]


def insert_nul(content: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(content) + 1)
    return content[:position] + b"\0" + content[position:]


def change_lines(content: bytes, rng: random.Random) -> bytes:
    """Delete, repeat or swap lines."""
    lines = content.split(b"\n")
    a, b, how = rng.randrange(len(lines)), rng.randrange(len(lines)), rng.randrange(3)
    if how == 0:
        del lines[a]
    elif how == 1:
        lines.insert(a, lines[a])
    else:
        lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def change_number(content: bytes, rng: random.Random) -> bytes:
    """Change a head, an offset, a word number, a share or the end of a guid."""
    numbers = list(re.finditer(rb"\d+", content))
    if not numbers:
        return content
    chosen = rng.choice(numbers)
    other = rng.choice((b"0", b"1", b"-1", b"3", b"01", b"99", b"1" * 30, b"\xd9\xa3", b"1.0", b""))
    return content[: chosen.start()] + other + content[chosen.end() :]


def crlf(content: bytes, rng: random.Random) -> bytes:
    return content.replace(b"\n", b"\r\n")


def mark_byte_order(content: bytes, rng: random.Random) -> bytes:
    return b"\xef\xbb\xbf" * rng.randint(1, 2) + content


def as_cp949(content: bytes, rng: random.Random) -> bytes:
    return content.decode(errors="replace").encode("cp949", errors="replace")


def as_utf16(content: bytes, rng: random.Random) -> bytes:
    return content.decode(errors="replace").encode("utf-16")


def pack(content: bytes, rng: random.Random) -> bytes:
    return gzip.compress(content, mtime=0)


def damage_packed(content: bytes, rng: random.Random) -> bytes:
    return rng.choice((cut_off, flip_bytes, insert_bytes, delete_bytes))(pack(content, rng), rng)


def remove_tabs(content: bytes, rng: random.Random) -> bytes:
    tabs = [match.start() for match in re.finditer(b"\t", content)]
    gone = set(rng.sample(tabs, min(len(tabs), rng.randint(1, 3))))
    return bytes(byte for position, byte in enumerate(content) if position not in gone)


ODD_FIELDS = (b"", b" ", b"#", b"##", "가나".encode(), b"B-XX", b"I-PS", b"-", b"\r", "\u2028".encode(), "👍".encode())


def change_field(content: bytes, rng: random.Random) -> bytes:
    """Delete or replace a field of a TSV file."""
    lines = content.split(b"\n")
    position = rng.choice([k for k, line in enumerate(lines) if b"\t" in line] or [0])
    fields = lines[position].split(b"\t")
    number = rng.randrange(len(fields))
    fields[number : number + 1] = [rng.choice(ODD_FIELDS)] if rng.random() < 0.5 else []
    lines[position] = b"\t".join(fields)
    return b"\n".join(lines)


def typed(change: Callable[[bytes, random.Random], tuple[bytes, str]]) -> Damage:
    """Return a typed change of one value as a damage; content that cannot be read is unchanged."""

    def damage(content: bytes, rng: random.Random) -> bytes:
        try:
            return change(content, rng)[0]
        except Exception:  # the libraries that read it raise many kinds
            return content

    damage.__name__ = change.__name__
    return damage


BYTE_DAMAGES: tuple[Damage, ...] = (
    *(cut_off, flip_bytes, insert_bytes, delete_bytes, insert_nul, *[change_lines] * 3, change_number),
    *(crlf, mark_byte_order, as_cp949, as_utf16, pack, damage_packed),
)
TSV_DAMAGES: tuple[Damage, ...] = (*BYTE_DAMAGES, remove_tabs, *[change_field] * 2, *[typed(change_table)] * 4)
JSON_DAMAGES: tuple[Damage, ...] = (*BYTE_DAMAGES, *[typed(change_json)] * 10)
TOML_DAMAGES: tuple[Damage, ...] = (*BYTE_DAMAGES, *[typed(change_toml)] * 10)
HUB_DAMAGES: tuple[Damage, ...] = (cut_off, flip_bytes, insert_bytes, delete_bytes, pack, *[typed(change_parquet)] * 5)


def damaged(content: bytes, damages: tuple[Damage, ...], seed: str, number: int) -> tuple[bytes, str]:
    """Return the number-th corrupted version of a file: every damage in turn, one file in four with a second one."""
    rng = random.Random(f"{seed} {number}")
    chosen = [damages[number % len(damages)], *([rng.choice(damages)] if rng.random() < 0.25 else [])]
    for damage in chosen:
        content = damage(content, rng) if content else content
    return content, f"{seed} {number} ({', '.join(damage.__name__ for damage in chosen)})"


# Odd things in the place of a file


def as_pipe(path):
    os.mkfifo(path)


def as_folder(path):
    path.mkdir()


def as_device(path):
    path.symlink_to("/dev/zero")


def as_dangling_link(path):
    path.symlink_to("nowhere")


def as_loop(path):
    path.symlink_to(path.name)


def as_nothing(path):
    """Leave the place empty."""


ODD_FILES = (as_pipe, as_folder, as_dangling_link, as_device, as_loop, as_nothing)


def put_in_place(path: Path, odd: Callable[[Path], None]) -> None:
    remove(path)
    odd(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
