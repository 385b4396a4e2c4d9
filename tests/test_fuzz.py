"""Damaged files: whatever happens to a data or prediction file, nothing but a DanseoError ever comes out."""

import gzip
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from danseo.errors import DanseoError
from danseo.predictions.file import read_predictions, write_predictions
from danseo.scoring.baselines import baseline
from danseo.scoring.score import score
from danseo.tasks import TASKS
from danseo.tasks.ner import HUB_LABELS
from danseo.tasks.task import Task

DATA_FILES = 320  # per task, so 2,560 in all
HUB_FILES = 120
PREDICTION_FILES = 300
EXAMPLES = 4

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
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.randbytes(rng.randint(1, 3)) + content[place:]


def delete_bytes(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + content[place + rng.randint(1, 3) :]


def insert_nul(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + b"\0" + content[place:]


def delete_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def double_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    return b"\n".join([*lines[:place], lines[place], *lines[place:]])


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
    return bytes(byte for place, byte in enumerate(content) if place not in gone)


def delete_field(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    place = rng.choice([k for k, line in enumerate(lines) if b"\t" in line] or [0])
    fields = lines[place].split(b"\t")
    del fields[rng.randrange(len(fields))]
    lines[place] = b"\t".join(fields)
    return b"\n".join(lines)


def replace_field(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    place = rng.choice([k for k, line in enumerate(lines) if b"\t" in line] or [0])
    fields = lines[place].split(b"\t")
    odd = (b"", b" ", b"#", b"##", "가나".encode(), b"B-XX", b"I-PS", b"-", b"\r", "\u2028".encode(), "👍".encode())
    fields[rng.randrange(len(fields))] = rng.choice(odd)
    lines[place] = b"\t".join(fields)
    return b"\n".join(lines)


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON document with each of its keys or positions."""
    keys = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    return [pair for key in keys for pair in [(document, key), *places(document[key])]]


def in_json(change: Callable[[Any, Any, random.Random], str | None]) -> Damage:
    """A change at one place of a JSON document, or of one line of a JSON-lines file."""

    def damage(content: bytes, rng: random.Random) -> bytes:
        lines = [content] if content[:1] in b"[{" and content[:9] != b'{"guid": ' else content.split(b"\n")
        place = rng.choice([k for k, line in enumerate(lines) if line])
        try:
            document = json.loads(lines[place])
            raw = change(*rng.choice(places(document)), rng)
            text = json.dumps(document, ensure_ascii=False, indent=None if len(lines) > 1 else 1)
        except (ValueError, LookupError, RecursionError):  # an earlier damage has broken it already
            return content
        lines[place] = text.replace('"@"', raw or '"@"').encode(errors="surrogatepass")
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


def shortened(task: Task, path: Path) -> bytes:
    """The first few examples of a file."""
    text = path.read_text()
    if task.extension == ".tsv":
        return "".join(re.findall(r"## \S+\t.*\n(?:[^#\n].*\n|#\t.*\n)+\n?", text)[:EXAMPLES]).encode()
    document = json.loads(text)
    if isinstance(document, dict):
        document["data"] = document["data"][:EXAMPLES]
    else:
        document = document[: EXAMPLES // 2 if task.name == "wos" else EXAMPLES]
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def outcome(path: Path, what: str, read: Callable[[], Any]) -> Any:
    """What was read, or None for a proper refusal; anything else fails the test."""
    try:
        return read()
    except DanseoError as error:
        message = str(error)
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {str(error)[:300]}")
    assert str(path) in message, f"{what}: the message does not name the file: {message}"
    assert len(message.splitlines()) == 1, f"{what}: not one line: {message}"
    assert len(message) < 1500, f"{what}: too long: {message}"
    assert message.encode()
    return None


def use(task: Task, examples: list[Any], path: Path, what: str) -> None:
    """What everything else relies on: examples can be written, and their gold answers read back and score."""
    try:
        json.dumps([asdict(example) for example in examples], ensure_ascii=False, allow_nan=False).encode()
        predictions = baseline("oracle", task, examples)
        write_predictions(path, predictions)
        assert read_predictions(path, task, examples) == predictions
        values = [s.value for s in score(task, examples, predictions, rounds=0)]
        assert all(math.isnan(value) or value == pytest.approx(100) for value in values)
    except Exception as error:
        pytest.fail(f"{what}: read, but not usable: {type(error).__name__}: {str(error)[:300]}")


def fuzz(task: Task, path: Path, content: bytes, damages: tuple[Damage, ...], files: int, seed: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number in range(files):
        broken, what = damaged(content, damages, seed, number)
        path.write_bytes(broken)
        examples = outcome(path, what, partial(task.read, path))
        if examples is not None:
            use(task, examples, path.with_name("oracle.jsonl"), what)
        counts["refused" if examples is None else "read"] += 1
    return counts


@pytest.mark.parametrize("name", TASKS)
def test_damaged_data_is_read_or_refused(name: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    content = shortened(task, sample / task.folder / task.file("dev"))
    path = tmp_path / task.file("dev")
    path.write_bytes(content)
    assert len(task.read(path)) >= EXAMPLES
    damages = TSV_DAMAGES if task.extension == ".tsv" else JSON_DAMAGES
    counts = fuzz(task, path, content, damages, DATA_FILES, f"data {name}")
    assert min(counts["read"], counts["refused"]) > DATA_FILES / 8  # else the damages would prove little


def hub_table(name: str, examples: list[Any]) -> pa.Table:
    """The examples in the Hub's columns."""
    makers: dict[str, Callable[[Any], dict[str, Any]]] = {
        "ynat": lambda e: {"guid": e.guid, "title": e.text, "label": 0, "url": "", "date": ""},
        "ner": lambda e: {
            "sentence": "",
            "tokens": list(e.text),
            "ner_tags": [HUB_LABELS.index(tag) for tag in e.gold],
        },
        "dp": lambda e: {
            "sentence": e.text,
            "index": list(range(1, len(e.words) + 1)),
            "word_form": e.words,
            "lemma": e.lemmas,
            "pos": e.pos,
            "head": [head for head, _ in e.gold],
            "deprel": [relation for _, relation in e.gold],
        },
        "mrc": lambda e: {
            "guid": e.guid,
            "title": e.title,
            "context": e.text,
            "question": e.question,
            "is_impossible": not e.gold,
            "question_type": e.question_type,
            "answers": {"answer_start": e.starts, "text": e.gold},
        },
    }
    return pa.Table.from_pylist([makers[name](example) for example in examples])


@pytest.mark.parametrize("name", ["ynat", "ner", "dp", "mrc"])
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_damaged_hub_files_are_read_or_refused(name: str, compression: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    path = tmp_path / "validation-00000-of-00001.parquet"
    examples = task.read(sample / task.folder / task.file("dev"))[:EXAMPLES]
    pq.write_table(hub_table(name, examples), path, compression=compression)
    assert len(task.read(path)) == EXAMPLES
    counts = fuzz(task, path, path.read_bytes(), HUB_DAMAGES, HUB_FILES, f"hub {name} {compression}")
    assert counts["refused"] > HUB_FILES / 4


@pytest.mark.parametrize("name", TASKS)
def test_damaged_predictions_are_read_or_refused(name: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    examples = task.read(sample / task.folder / task.file("dev"))[:EXAMPLES]
    path = tmp_path / "predictions.jsonl"
    write_predictions(path, baseline("oracle", task, examples))
    content, counts = path.read_bytes(), Counter[str]()
    for number in range(PREDICTION_FILES):
        broken, what = damaged(content, JSON_DAMAGES, f"predictions {name}", number)
        path.write_bytes(broken)
        read = partial(read_predictions, path, task, examples, partial=number % 2 == 0)
        predictions = outcome(path, what, read)
        counts["refused" if predictions is None else "read"] += 1
        if predictions:
            write_predictions(path, predictions)
            answered = [example for example in examples if example.guid in {p.guid for p in predictions}]
            score(task, answered, predictions, rounds=0)
    assert min(counts["read"], counts["refused"]) > PREDICTION_FILES / 8
