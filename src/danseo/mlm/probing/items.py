"""Probe items: one gap each, frozen as JSON lines, so that every checkpoint gets the same ones."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from danseo.errors import DataError
from danseo.files import parse_json, quote, read_text, write_atomically
from danseo.rows import Row, as_row

ProbeKind = Literal["repeated", "lambada"]
Span = tuple[int, int]
PROBE_KINDS: tuple[ProbeKind, ...] = ("repeated", "lambada")
SPLITS = ("dev", "test")
BASELINES = ("nearest", "frequent", "unigram")


@dataclass(frozen=True)
class ProbeItem:
    """A text, the span of one word to predict, and guesses without a model.

    `distance` counts the characters from the end of the antecedent (an earlier mention) to the gap. `candidates` are
    nouns of the text, nearest to the gap first, the target among them; `given` are wrong answers that a dataset
    brings; `baselines` holds up to five guesses of each baseline.
    """

    id: str
    source: str
    document: str
    kind: ProbeKind
    text: str
    span: Span
    target: str
    antecedent: Span | None
    distance: int | None
    analyser: str
    builder: str
    candidates: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    baselines: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def left(self) -> str:
        return self.text[: self.span[0]]

    @property
    def right(self) -> str:
        return self.text[self.span[1] :]

    def to_json_line(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)


def hash_items(items: Iterable[ProbeItem]) -> str:
    """Return 16 hex digits of a set: the same items in the same order."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(item.to_json_line().encode() + b"\n")
    return digest.hexdigest()[:16]


def write_items(path: Path, items: Sequence[ProbeItem]) -> None:
    """Write a set as JSON lines."""
    write_atomically(path, "".join(item.to_json_line() + "\n" for item in items))


def read_items(path: Path, split: str = "dev") -> list[ProbeItem]:
    """Read the items of a file, or of a split in a folder that `danseo data probes` wrote."""
    if path.is_dir():
        path = path / f"{split}.jsonl"
        if not path.is_file():
            raise DataError(f"{path} is missing; make it with `danseo data probes --text FILES --out {path.parent}`")
    return _parse_items(read_text(path), path)


def read_bundled_items(split: str = "dev") -> list[ProbeItem]:
    """Read the small set that is bundled with danseo."""
    if split not in SPLITS:
        raise DataError(f"no split {quote(split)} of the bundled probes; choose {' or '.join(SPLITS)}")
    name = f"{split}.jsonl"
    return _parse_items((files("danseo.mlm.probing") / "sample" / name).read_text(encoding="utf-8"), Path(name))


def _parse_items(text: str, path: Path) -> list[ProbeItem]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    items = [
        _parse_item(as_row(parse_json(line, path, number), f"{path}, line {number}", "build the set again"))
        for number, line in lines
    ]
    if not items:
        raise DataError(f"{path} holds no probe items; make some with `danseo data probes`")
    if len({item.id for item in items}) < len(items):
        raise DataError(f"{path}: an item id occurs more than once; build the set again")
    return items


def _parse_item(row: Row) -> ProbeItem:
    text, target, kind = row.text("text"), row.text("target"), row.one_of(row.text("kind"), PROBE_KINDS, "field 'kind'")
    span = _read_span(row, "span", len(text))
    if span is None or text[span[0] : span[1]] != target:
        raise row.error(f"the span does not hold the target {quote(target)}; build the set again")
    baselines = row.child("baselines") if row.values.get("baselines") else None
    return ProbeItem(
        id=row.text("id"),
        source=row.text("source"),
        document=row.text("document"),
        kind=kind,  # type: ignore[arg-type]
        text=text,
        span=span,
        target=target,
        antecedent=_read_span(row, "antecedent", len(text)),
        distance=None if row.values.get("distance") is None else row.integer("distance"),
        analyser=row.text("analyser"),
        builder=row.text("builder"),
        candidates=row.texts("candidates") if row.values.get("candidates") else (),
        given=row.texts("given") if row.values.get("given") else (),
        baselines={name: baselines.texts(name) for name in baselines.values} if baselines else {},
    )


def _read_span(row: Row, key: str, length: int) -> Span | None:
    value: Any = row.values.get(key)
    if value is None:
        return None
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(end, int) for end in value)):
        raise row.error(f"field {key!r} should be two character positions, not {quote(value)}")
    start, end = value
    if not 0 <= start < end <= length:
        raise row.error(f"field {key!r}: {value} is not inside the text of {length} characters")
    return start, end
