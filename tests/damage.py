"""Ways to damage a file, for tests and for bench/attack.py: the same seed damages in the same way."""

import gzip
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[bytes, random.Random], bytes]

ODD_JSON = (
    *("null", "true", "0", "-1", "7", "1.5", "-0.0", "1e999", "-1e999", "NaN", "1e308"),
    *("9" * 400, "9" * 4300, "9" * 5000, "[" * 99999 + "]" * 99999),
    *('""', '" "', '"가"', '"O"', r'"\ud800"', r'"\udc00가"', r'"\u0000"', r'"\n"', '"' + "긴" * 9999 + '"'),
    *("[]", "{}", "[[1]]", "[null]", '["가", 1]', '{"guid": null}', '{"text": 1, "answer_start": 0}'),
)


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


def delete_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def double_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    position = rng.randrange(len(lines))
    return b"\n".join([*lines[:position], lines[position], *lines[position:]])


def swap_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def change_number(content: bytes, rng: random.Random) -> bytes:
    """A head, an offset, a word number, a share or the end of a guid."""
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


def delete_field(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    position = rng.choice([k for k, line in enumerate(lines) if b"\t" in line] or [0])
    fields = lines[position].split(b"\t")
    del fields[rng.randrange(len(fields))]
    lines[position] = b"\t".join(fields)
    return b"\n".join(lines)


def replace_field(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    position = rng.choice([k for k, line in enumerate(lines) if b"\t" in line] or [0])
    fields = lines[position].split(b"\t")
    odd = (b"", b" ", b"#", b"##", "가나".encode(), b"B-XX", b"I-PS", b"-", b"\r", "\u2028".encode(), "👍".encode())
    fields[rng.randrange(len(fields))] = rng.choice(odd)
    lines[position] = b"\t".join(fields)
    return b"\n".join(lines)


def positions(document: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON document with each of its keys or positions."""
    keys = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    return [pair for key in keys for pair in [(document, key), *positions(document[key])]]


def in_json(change: Callable[[Any, Any, random.Random], str | None]) -> Damage:
    """A change at one place of a JSON document, or of one line of a JSON-lines file."""

    def damage(content: bytes, rng: random.Random) -> bytes:
        lines = [content] if content[:1] in b"[{" and content[:9] != b'{"guid": ' else content.split(b"\n")
        position = rng.choice([k for k, line in enumerate(lines) if line])
        try:
            document = json.loads(lines[position])
            raw = change(*rng.choice(positions(document)), rng)
            text = json.dumps(document, ensure_ascii=False, indent=None if len(lines) > 1 else 1)
        except (ValueError, LookupError, RecursionError):  # an earlier damage has broken it already
            return content
        lines[position] = text.replace('"@"', raw or '"@"').encode(errors="surrogatepass")
        return b"\n".join(lines)

    damage.__name__ = change.__name__
    return damage


def replace_value(container: Any, key: Any, rng: random.Random) -> str:
    container[key] = "@"
    depth = rng.randrange(600, 1000)  # the parser may still manage what the printer cannot
    return rng.choice((*ODD_JSON, "[" * depth + "]" * depth))


def delete_value(container: Any, key: Any, rng: random.Random) -> None:
    del container[key]


def rename_key(container: Any, key: Any, rng: random.Random) -> None:
    if isinstance(container, dict):
        container[rng.choice((key.upper(), f"{key} ", "", "guid", "label", "answer"))] = container.pop(key)


def repeat_value(container: Any, key: Any, rng: random.Random) -> None:
    if isinstance(container, list):
        container.insert(key, container[key])


def exchange_values(container: Any, key: Any, rng: random.Random) -> None:
    other = rng.choice(list(container) if isinstance(container, dict) else range(len(container)))
    container[key], container[other] = container[other], container[key]


BYTE_DAMAGES: tuple[Damage, ...] = (
    *(cut_off, flip_bytes, insert_bytes, delete_bytes, insert_nul, delete_line, double_line, swap_lines, change_number),
    *(crlf, mark_byte_order, as_cp949, as_utf16, pack, damage_packed),
)
TSV_DAMAGES: tuple[Damage, ...] = (*BYTE_DAMAGES, remove_tabs, delete_field, replace_field, replace_field)
JSON_DAMAGES: tuple[Damage, ...] = (
    *BYTE_DAMAGES,
    *map(in_json, (delete_value, rename_key, repeat_value, exchange_values)),
    *[in_json(replace_value)] * 6,
)
HUB_DAMAGES: tuple[Damage, ...] = (cut_off, flip_bytes, insert_bytes, delete_bytes, insert_nul, pack)


def damaged(content: bytes, damages: tuple[Damage, ...], seed: str, number: int) -> tuple[bytes, str]:
    """The number-th damaged form of a file: every kind of damage in turn, one file in four with a second one."""
    rng = random.Random(f"{seed} {number}")
    chosen = [damages[number % len(damages)], *([rng.choice(damages)] if rng.random() < 0.25 else [])]
    for damage in chosen:
        content = damage(content, rng) if content else content
    return content, f"{seed} {number} ({', '.join(damage.__name__ for damage in chosen)})"


# Odd things in the place of a file


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_folder(path: Path) -> None:
    path.mkdir()


def as_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def as_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def as_loop(path: Path) -> None:
    path.symlink_to(path.name)


def as_nothing(path: Path) -> None:
    """Not there at all."""


ODD_FILES: tuple[Callable[[Path], None], ...] = (
    as_pipe,
    as_folder,
    as_dangling_link,
    as_device,
    as_loop,
    as_nothing,
)


def put_in_place(path: Path, odd: Callable[[Path], None]) -> None:
    """Something odd where a file was."""
    remove(path)
    odd(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
