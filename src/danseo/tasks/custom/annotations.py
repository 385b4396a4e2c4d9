"""Read exports of annotation tools as rows with a text, its spans and its labels; annotators are merged."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from danseo.errors import DataError
from danseo.files import open_text, quote
from danseo.rows import Row, as_row
from danseo.tasktypes.inputs import check_offsets, convert_utf16, place_span

FORMATS = ("label-studio", "doccano", "prodigy", "brat")
OFFSETS = ("characters", "utf-16")
_MIN_META = ("annotator", "annotation_id", "created_at", "updated_at", "lead_time")
_DOCCANO_FIELDS = ("label", "labels", "entities", "annotations")


class Span(NamedTuple):
    """A marked part of a text, the end exclusive."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Annotation:
    """What one annotator marked in one text."""

    row: Row
    key: str
    """The same for all annotations of one text."""
    annotator: str
    spans: tuple[Span, ...]
    labels: tuple[str, ...]


@dataclass
class AnnotationStats:
    """Counts of merged and skipped annotations of a file."""

    texts: int = 0
    several: int = 0
    """Texts with several annotators."""
    differing: int = 0
    """Texts whose annotators differ."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> how many annotations were left out."""


@dataclass(frozen=True)
class Layout:
    """How an export is read: which tool wrote it, the text's field, and what its offsets count."""

    format: str
    text: str = ""
    offsets: str = ""
    keep_rejected: bool = False
    """Prodigy with one label: the answers accept and reject are the labels."""

    def text_of(self, row: Row) -> tuple[str, str]:
        """Return the name and the content of the text field: the one that is named, else text, else the longest."""
        if self.text:
            return self.text, row.text(self.text)
        texts = {name: value for name, value in row.values.items() if isinstance(value, str)}
        usual = [name for name in ("text", "data") if name in texts]
        name = usual[0] if usual else max(texts, key=lambda each: len(texts[each]), default="text")
        return name, row.text(name)


def recognise_format(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the tool that wrote these rows, or an empty text."""
    first = rows[0]
    if isinstance(first.get("data"), dict) and ("annotations" in first or "completions" in first):
        return "label-studio"
    if {"annotator", "annotation_id"} <= first.keys():
        return "label-studio"
    answers = {str(row.get("answer")) for row in rows}
    if {"_input_hash", "_task_hash"} & first.keys() or answers <= {"accept", "reject", "ignore"}:
        return "prodigy"
    items = [item for row in rows for name in _DOCCANO_FIELDS for item in _as_list(row.get(name))]
    return "doccano" if "Comments" in first or any(_is_doccano_span(item) for item in items) else ""


def is_binary(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether rows of Prodigy accept and reject one label: then the answers are the labels."""
    labels = {row.get("label") if isinstance(row.get("label"), str) else None for row in rows}
    return len(labels) == 1 and None not in labels and any(row.get("answer") == "reject" for row in rows)


def _is_doccano_span(item: Any) -> bool:
    if isinstance(item, dict):
        return "start_offset" in item
    return isinstance(item, list) and len(item) == 3 and all(isinstance(each, int) for each in item[:2])


def doccano_offsets(row: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield start and end of every span of a doccano row, as they are written."""
    for item in (item for name in _DOCCANO_FIELDS for item in _as_list(row.get(name)) if _is_doccano_span(item)):
        places = item[:2] if isinstance(item, list) else (item.get("start_offset"), item.get("end_offset"))
        if all(isinstance(place, int) for place in places):
            yield places[0], places[1]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def merge_annotations(rows: Iterable[Row], layout: Layout, stats: AnnotationStats | None = None) -> Iterator[Row]:
    """Yield a row per text with `spans` and `label`; of several annotators, what more than half of them marked.

    Where exactly half of them marked something, the first annotator decides. Two spans that are kept share an
    annotator, so they overlap only where one annotator marked both.
    """
    stats = stats if stats is not None else AnnotationStats()
    convert = _CONVERTERS[layout.format]
    groups: dict[str, dict[str, list[Annotation]]] = {}
    for row in rows:
        for annotation in convert(row, layout, stats):
            groups.setdefault(annotation.key, {}).setdefault(annotation.annotator, []).append(annotation)
    for annotators in groups.values():
        spans = [_unite(each.spans for each in annotations) for annotations in annotators.values()]
        labels = [_unite(each.labels for each in annotations) for annotations in annotators.values()]
        stats.texts += 1
        stats.several += len(annotators) > 1
        stats.differing += any(set(vote) != set(votes[0]) for votes in (spans, labels) for vote in votes)
        row = next(iter(annotators.values()))[0].row
        majority = [span._asdict() for span in sorted(_select_majority(spans))]
        name = "answer" if layout.keep_rejected else "label"
        values = {**row.values, "spans": majority, name: _merge_labels(labels)}
        yield Row(values, row.where, row.remedy)


def _unite(parts: Iterable[Sequence[Any]]) -> list[Any]:
    return list(dict.fromkeys(item for part in parts for item in part))


def _select_majority(votes: Sequence[Sequence[Any]]) -> list[Any]:
    """Return what more than half of the voters have; where half of them have it, the first one decides."""
    counts = Counter(item for vote in votes for item in vote)
    return [item for item, n in counts.items() if 2 * n > len(votes) or (2 * n == len(votes) and item in votes[0])]


def _merge_labels(votes: Sequence[Sequence[str]]) -> list[str]:
    """Return the labels of a text; where each annotator gave one at most, the most frequent, the first of equals."""
    if all(len(vote) <= 1 for vote in votes):
        return [label for label, _ in Counter(label for vote in votes for label in vote).most_common(1)]
    return _select_majority(votes)


# Offsets


def count_clean_readings(text: str, start: int, end: int) -> tuple[int, int]:
    """Return whether a span looks like words if its offsets count characters, and if they count UTF-16 units."""
    readings = (check_offsets(start, end, text), convert_utf16(start, end, text))
    characters, units = (int(span is not None and _is_clean(text, *span)) for span in readings)
    return characters, units


def _is_clean(text: str, start: int, end: int) -> bool:
    """Return whether a span has no blank at its ends and starts where a word starts."""
    marked = text[start:end]
    return marked == marked.strip() and not (start and text[start - 1].isalnum() and marked[0].isalnum())


# Tools


def _from_label_studio(row: Row, layout: Layout, stats: AnnotationStats) -> Iterator[Annotation]:
    if not isinstance(row.values.get("data"), dict):
        yield from _from_label_studio_min(row, layout)
        return
    key = "annotations" if "annotations" in row.values else "completions"
    source = Row({"id": row.values.get("id"), **row.child("data").values}, row.where, row.remedy)
    annotations = row.children(key)
    if not annotations:
        stats.skipped["not annotated"] += 1
    for number, annotation in enumerate(annotations, 1):
        if annotation.values.get("was_cancelled"):
            stats.skipped["skipped by the annotator"] += 1
            continue
        items = [item for item in annotation.children("result") if "value" in item.values]  # relations have none
        results = [Row(item.child("value").values, item.where) for item in items]
        annotator = str(annotation.values.get("completed_by", number))
        yield _make_label_studio_annotation(source, annotator, row.where, results, layout)


def _from_label_studio_min(row: Row, layout: Layout) -> Iterator[Annotation]:
    """Yield the annotation of a JSON-MIN or CSV row: data fields, the id, the marks, then the annotator."""
    names = [str(name) for name in row.values]
    first = names.index("id") + 1 if "id" in names else 0
    last = next((names.index(name) for name in _MIN_META if name in names), len(names))
    marks: list[Row] = []
    for name in names[first:last]:
        value = row.values[name]
        if isinstance(value, str) and value.startswith(("[", "{")):
            with suppress(ValueError, RecursionError):  # a label may start with a bracket
                value = json.loads(value)
        for number, item in enumerate(value if isinstance(value, list) else [value] * (value is not None), 1):
            mark = item if isinstance(item, dict) else {"choices": [item]}
            marks.append(Row(mark, f"{row.where}, {name} {number}"))
    values = {name: value for name, value in row.values.items() if name not in names[first:last] + list(_MIN_META)}
    source = Row(values, row.where, row.remedy)
    key = str(row.values.get("id", row.where))
    yield _make_label_studio_annotation(source, str(row.values.get("annotator")), key, marks, layout)


def _make_label_studio_annotation(
    source: Row, annotator: str, key: str, results: Sequence[Row], layout: Layout
) -> Annotation:
    spans, labels = [], []
    text = layout.text_of(source)[1] if any("labels" in each.values for each in results) else ""
    for each in results:
        if "choices" in each.values:
            labels += [str(label) for label in _as_list(each.values["choices"]) or [each.values["choices"]]]
        elif "labels" in each.values and "start" in each.values:
            names = each.texts("labels")
            if len(names) != 1:
                raise each.error(f"{len(names)} labels on one span; keep one")
            start, end = place_span(
                each, each.integer("start"), each.integer("end"), each.values.get("text"), text, layout.offsets
            )
            spans.append(Span(start, end, names[0]))
    return Annotation(source, key, annotator, tuple(spans), tuple(labels))


def _from_doccano(row: Row, layout: Layout, stats: AnnotationStats) -> Iterator[Annotation]:
    name, text = layout.text_of(row)
    marked: dict[str, tuple[list[Span], list[str]]] = {}
    for field_name in _DOCCANO_FIELDS:
        value = row.values.get(field_name)
        for number, item in enumerate(_as_list(value) or [value] * (value is not None and value != []), 1):
            where = Row(item if isinstance(item, dict) else {}, f"{row.where}, {field_name} {number}")
            spans, labels = marked.setdefault(str(where.values.get("user", "")), ([], []))
            if _is_doccano_span(item):
                if isinstance(item, list):
                    where = Row(dict(zip(("start_offset", "end_offset", "label"), item, strict=True)), where.where)
                start, end = where.integer("start_offset"), where.integer("end_offset")
                spans.append(
                    Span(*place_span(where, start, end, None, text, layout.offsets), _number_or_text(where, "label"))
                )
            else:
                labels.append(str(item["label"] if isinstance(item, dict) and "label" in item else item))
    fields = {key: value for key, value in row.values.items() if key not in (*_DOCCANO_FIELDS, "relations", "Comments")}
    source = Row({**fields, name: text}, row.where, row.remedy)
    key = str(row.values.get("id", row.where))
    for user, (spans, labels) in (marked or {"": ([], [])}).items():
        yield Annotation(source, key, f"{row.where} {user}", tuple(spans), tuple(labels))


def _number_or_text(row: Row, key: str) -> str:
    """Return a label; old versions of doccano write its number."""
    return str(row.integer(key)) if isinstance(row.values.get(key), int) else row.text(key)


def _from_prodigy(row: Row, layout: Layout, stats: AnnotationStats) -> Iterator[Annotation]:
    answer = row.values.get("answer", "accept")
    if answer != "accept" and not (layout.keep_rejected and answer == "reject"):
        stats.skipped[f"answer: {answer}"] += 1
        return
    name, text = layout.text_of(row)
    tokens = _as_list(row.values.get("tokens"))
    spans = (
        [_read_prodigy_span(each, tokens, text, layout) for each in row.children("spans")]
        if "spans" in row.values
        else []
    )
    labels = [str(label) for label in _as_list(row.values.get("accept"))]
    labels += [row.text("label")] if isinstance(row.values.get("label"), str) and "accept" not in row.values else []
    if layout.keep_rejected:
        labels = [str(answer)]
    annotator = str(row.values.get("_annotator_id", row.values.get("_session_id", "")))
    source = Row({name: text}, row.where, row.remedy)
    yield Annotation(source, str(row.values.get("_input_hash", text)), annotator, tuple(spans), tuple(labels))


def _read_prodigy_span(span: Row, tokens: Sequence[Any], text: str, layout: Layout) -> Span:
    start, end = span.integer("start"), span.integer("end")
    first, last = span.values.get("token_start"), span.values.get("token_end")
    if tokens and isinstance(first, int) and isinstance(last, int):
        if not 0 <= first <= last < len(tokens):
            raise span.error(f"tokens {first}..{last} of {len(tokens)} do not exist; correct the span")
        a, b = as_row(tokens[first], span.where).integer("start"), as_row(tokens[last], span.where).integer("end")
        if (a, b) != (start, end):
            raise span.error(f"{start}..{end}, but tokens {first} to {last} are at {a}..{b}; correct one")
    return Span(*place_span(span, start, end, span.values.get("text"), text, layout.offsets), span.text("label"))


_CONVERTERS: Mapping[str, Callable[[Row, Layout, AnnotationStats], Iterator[Annotation]]] = {
    "label-studio": _from_label_studio,
    "doccano": _from_doccano,
    "prodigy": _from_prodigy,
}


# brat


def is_brat(path: Path) -> bool:
    """Return whether the path is a folder with annotations of brat."""
    return path.is_dir() and next(path.rglob("*.ann"), None) is not None


def read_brat(folder: Path, layout: Layout) -> Iterator[Row]:
    """Yield a row per line of every text that has an .ann file next to it."""
    for file in sorted(folder.rglob("*.ann")):
        source = next((each for each in (file.with_suffix(".txt"), file.with_suffix("")) if each.is_file()), None)
        if source is None:
            raise DataError(f"{file}: there is no {file.with_suffix('.txt').name} next to it; add the text")
        with open_text(source) as opened:
            text = opened.read()
        name = file.relative_to(folder).with_suffix("").as_posix()
        yield from _split_brat_lines(text, list(_read_brat_spans(file, text, layout)), source, name)


def _read_brat_spans(file: Path, text: str, layout: Layout) -> Iterator[tuple[Row, Span]]:
    with open_text(file) as opened:
        lines = opened.read().split("\n")
    for number, line in enumerate(lines, 1):
        if not line.startswith("T"):
            continue  # relations, events, notes
        row = Row({}, f"{file}, line {number}")
        fields = line.rstrip("\r").split("\t")
        label, *places = fields[1].split(" ") if len(fields) == 3 else [""]
        if any(";" in place for place in places):
            raise row.error("the span has a gap (0 5;8 10), which tags cannot express; mark one part")
        if len(places) != 2 or not all(place.isdigit() for place in places):
            raise row.error(f"should be T1<TAB>LABEL START END<TAB>TEXT, not {quote(line)}")
        start, end = place_span(row, int(places[0]), int(places[1]), fields[2], text, layout.offsets)
        yield row, Span(start, end, label)


def _split_brat_lines(text: str, spans: Sequence[tuple[Row, Span]], source: Path, name: str) -> Iterator[Row]:
    start = 0
    ordered = sorted(spans, key=lambda each: each[1])
    for number, line in enumerate(text.split("\n"), 1):
        end = start + len(line)
        inside = [(row, span) for row, span in ordered if start <= span.start < end]
        if crossing := next((row for row, span in inside if span.end > end), None):
            raise crossing.error(f"the span crosses the end of line {number}, but a row is one line; split it")
        if line.strip():
            marked = [Span(span.start - start, span.end - start, span.label)._asdict() for _, span in inside]
            values = {"id": f"{name}:{number}", "file": name, "text": line.rstrip("\r"), "spans": marked}
            yield Row(values, f"{source}, line {number}")
        start = end + 1
