"""Exports of Label Studio, doccano, Prodigy and brat: recognised, checked against the text, read and merged."""

import csv
import json
import random
from contextlib import suppress
from functools import partial

import pytest

from danseo.errors import DanseoError
from danseo.metrics.tagging import list_entities
from danseo.tasks import get_task

from .conftest import run_command, run_json, write_lines

pytest.importorskip("torch")

TEXTS = [("😀👍 서울에서 김철수가 말했다", "서울", "김철수"), ("부산은 넓다", "부산", ""), ("비가 온다", "", "")] * 4
GOLD = [[(word, label) for word, label in ((place, "LC"), (person, "PS")) if word] for _, place, person in TEXTS]


def spans(text, place, person, units=False):
    """Yield the entities of a text, in characters or in UTF-16 units."""
    for word, label in ((place, "LC"), (person, "PS")):
        if word:
            start = text.index(word)
            start = len(text[:start].encode("utf-16-le")) // 2 if units else start
            yield start, start + len(word), label


def regions(text, place, person, units):
    words = {"LC": place, "PS": person}
    for start, end, label in spans(text, place, person, units):
        yield {"start": start, "end": end, "text": words[label], "labels": [label]}


def write_json(path, rows):
    path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")


def label_studio(path, units=False):
    rows = []
    for k, each in enumerate(TEXTS):
        results = [{"type": "labels", "value": region} for region in regions(*each, units)]
        rows.append({"id": k, "data": {"review": each[0]}, "annotations": [{"completed_by": 1, "result": results}]})
    write_json(path, rows)


def label_studio_min(path):
    meta = {"annotator": 1, "annotation_id": 1, "lead_time": 2}
    write_json(path, [{"text": e[0], "id": k, "label": [*regions(*e, True)], **meta} for k, e in enumerate(TEXTS)])


def label_studio_csv(path):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("text", "id", "label", "annotator", "annotation_id"))
        for k, each in enumerate(TEXTS):
            writer.writerow((each[0], k, json.dumps([*regions(*each, False)], ensure_ascii=False), 1, k))


def doccano(path, units=False):
    write_lines(path, [{"id": k, "text": e[0], "label": [*spans(*e, units)]} for k, e in enumerate(TEXTS)])


def doccano_relations(path):
    rows = []
    for k, each in enumerate(TEXTS):
        entities = [{"id": 1, "label": x, "start_offset": a, "end_offset": b} for a, b, x in spans(*each)]
        rows.append({"id": k, "text": each[0], "entities": entities, "relations": []})
    write_lines(path, rows)


def prodigy(path):
    rows = []
    for k, each in enumerate(TEXTS):
        marked = [{"start": a, "end": b, "label": x} for a, b, x in spans(*each)]
        rows.append({"text": each[0], "spans": marked, "answer": "accept", "_input_hash": k})
    write_lines(path, [*rows, {**rows[0], "answer": "reject", "_input_hash": 99}])


def brat(path):
    (path / "inner").mkdir(parents=True)
    for k in range(0, 12, 2):
        text, lines = "", ["#1\tAnnotatorNotes T1\tsure"]
        for each in TEXTS[k : k + 2]:
            lines += [f"T{len(lines)}\t{x} {a + len(text)} {b + len(text)}\t{each[0][a:b]}" for a, b, x in spans(*each)]
            text += f"{each[0]}\n\n"
        (path / "inner" / f"doc{k:02}.txt").write_text(text, "utf-8")
        (path / "inner" / f"doc{k:02}.ann").write_text("\n".join(lines) + "\n", "utf-8")


def conll(path):
    lines = ["-DOCSTART- -X- O"]
    for text, place, person in TEXTS:
        for word in text.split():
            tag = "B-LC" if place and word.startswith(place) else "B-PS" if person and word.startswith(person) else "O"
            lines.append(f"{word} -X- _ {tag}")
        lines.append("")
    path.write_text("\n".join(lines), "utf-8")


EXPORTS = {
    "studio.json": label_studio,
    "units.json": partial(label_studio, units=True),
    "min.json": label_studio_min,
    "studio.csv": label_studio_csv,
    "doccano.jsonl": doccano,
    "doccano-units.jsonl": partial(doccano, units=True),
    "relations.jsonl": doccano_relations,
    "prodigy.jsonl": prodigy,
    "brat": brat,
}


def write_task(path):
    out = path.parent / "own.toml"
    run_command("data", "describe", path, "--out", out, "--force")
    return out


def read(path):
    return get_task(str(write_task(path))).read(path)


def read_entities(path):
    return [[(e.text[a:b], x) for a, b, x in list_entities(e.gold)] for e in read(path)]


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_are_recognised_and_read(tmp_path, name):
    EXPORTS[name](tmp_path / name)
    assert read_entities(tmp_path / name) == GOLD
    assert ('offsets = "utf-16"' in (tmp_path / "own.toml").read_text("utf-8")) == (name == "doccano-units.jsonl")


def test_header_of_conll_of_label_studio_is_skipped(tmp_path):
    conll(tmp_path / "a.conll")
    entities = read_entities(tmp_path / "a.conll")
    assert entities[0] == [("서울에서", "LC"), ("김철수가", "PS")]
    assert len(entities) == len(TEXTS)


@pytest.mark.parametrize("name", ["brat", "min.json"])
def test_exports_are_checked_and_trained_on(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    EXPORTS[name](tmp_path / name)
    task = write_task(tmp_path / name)
    run_command("data", "check", task)
    run_command("train", task, "-m", "majority")


@pytest.mark.parametrize(
    ("name", "tool", "old", "new", "message"),
    [
        (
            "studio.json",
            "label-studio",
            '"start": 3, "end": 5',
            '"start": 4, "end": 6',
            "row 1, annotations 1, result 1: ",
        ),
        ("doccano.jsonl", "doccano", "[3, 5,", "[3, 500,", "line 1, label 1: 3..500"),
        (
            "prodigy.jsonl",
            "prodigy",
            '"end": 5,',
            '"end": 5, "text": "부산",',
            "line 1, spans 1: the text has '서울' at 3..5",
        ),
        ("brat", "brat", "LC 3 5", "LC 4 6", "doc00.ann, line 2: the text has '울에' at 4..6, not '서울'"),
    ],
)
def test_wrong_offsets_are_named(tmp_path, name, tool, old, new, message):
    text = "review" if name == "studio.json" else "text"
    lines = {"type": "tagging", "train": name, "format": tool, "text": text, "spans": "spans"}
    settings = "".join(f'{key} = "{value}"\n' for key, value in lines.items())
    (tmp_path / "own.toml").write_text(settings + "dev = 0.2\n", "utf-8")
    EXPORTS[name](tmp_path / name)
    file = tmp_path / name / "inner" / "doc00.ann" if name == "brat" else tmp_path / name
    assert old in file.read_text("utf-8")
    file.write_text(file.read_text("utf-8").replace(old, new, 1), "utf-8")
    with pytest.raises(DanseoError) as caught:
        run_command("data", "check", tmp_path / "own.toml")
    assert message in str(caught.value)


def test_prodigy_spans_agree_with_its_tokens(tmp_path):
    tokens = [{"text": "서울은", "start": 0, "end": 3, "id": 0}, {"text": "넓다", "start": 4, "end": 6, "id": 1}]
    span = {"start": 0, "end": 3, "label": "LC", "token_start": 0, "token_end": 1}
    write_lines(tmp_path / "a.jsonl", [{"text": "서울은 넓다", "tokens": tokens, "spans": [span], "answer": "accept"}])
    with pytest.raises(Exception, match=r"line 1, spans 1: 0\.\.3, but tokens 0 to 1 are at 0\.\.6"):
        read(tmp_path / "a.jsonl")


# Several annotators


def annotate(*results, cancelled=-1):
    annotations = [
        {"completed_by": k, "was_cancelled": k == cancelled, "result": [{"value": value} for value in result]}
        for k, result in enumerate(results)
    ]
    return {"data": {"text": "가나다라마"}, "annotations": annotations}


def region(start, end, label="X"):
    return {"start": start, "end": end, "labels": [label]}


def test_several_annotators_are_merged_by_majority(tmp_path):
    rows = [
        annotate([region(0, 2)], [region(0, 2)], [region(0, 3)]),  # two of three
        annotate([region(0, 2), region(3, 4)], [region(0, 3)]),  # a tie: the first decides
        annotate([region(0, 1, "Y")], [region(0, 2)], [region(0, 3)]),  # no majority
        annotate([region(1, 2)], [region(0, 2)], cancelled=0),
        annotate(),  # not annotated
        annotate([region(0, 1)]),
    ]
    write_json(tmp_path / "a.json", rows)
    assert [list(list_entities(e.gold)) for e in read(tmp_path / "a.json")] == [
        [(0, 2, "X")],
        [(0, 2, "X"), (3, 4, "X")],
        [],
        [(0, 2, "X")],
        [(0, 1, "X")],
    ]
    [table] = [
        each for each in run_json("data", "check", tmp_path / "own.toml")["tables"] if "annotations" in each["title"]
    ]
    assert [row[1:] for row in table["rows"]] == [
        ["texts", 5],
        ["with several annotators", 3],
        ["whose annotators differ", 3],
        ["left out (not annotated)", 1],
        ["left out (skipped by the annotator)", 1],
    ]


def test_rows_of_one_text_are_several_annotators(tmp_path):
    rows = [
        {"text": "가", "_input_hash": 1, "answer": "accept", "accept": ["A"], "_annotator_id": "kim"},
        {"text": "가", "_input_hash": 1, "answer": "accept", "accept": ["B"], "_annotator_id": "lee"},
        {"text": "가", "_input_hash": 1, "answer": "accept", "accept": ["B"], "_annotator_id": "park"},
        {"text": "나", "_input_hash": 2, "answer": "accept", "accept": ["A"], "_annotator_id": "kim"},
        {"text": "나", "_input_hash": 2, "answer": "accept", "accept": ["B"], "_annotator_id": "lee"},
        {"text": "다", "_input_hash": 3, "answer": "ignore", "accept": [], "_annotator_id": "lee"},
    ]
    write_lines(tmp_path / "a.jsonl", rows)
    assert [(e.text, e.gold) for e in read(tmp_path / "a.jsonl")] == [("가", "B"), ("나", "A")]


def classify(name):
    """Return ten texts with one of two labels, as a tool writes them."""
    pairs = [(f"글 {k} 번", ("좋음", "나쁨")[k % 2]) for k in range(10)]
    return {
        "studio": [{"data": {"text": t}, "annotations": [{"result": [{"value": {"choices": [x]}}]}]} for t, x in pairs],
        "min": [{"text": t, "id": t, "sentiment": x, "annotator": 1, "annotation_id": t} for t, x in pairs],
        "doccano": [{"id": t, "text": t, "label": [x], "Comments": []} for t, x in pairs],
        "prodigy": [{"text": t, "label": x, "answer": "accept", "_input_hash": t} for t, x in pairs],
    }[name]


@pytest.mark.parametrize("name", ["studio", "min", "doccano", "prodigy"])
def test_labels_of_texts_are_read(tmp_path, name):
    write_json(tmp_path / "a.json", classify(name))
    task = get_task(str(write_task(tmp_path / "a.json")))
    assert task.type.has_single_label
    assert [e.gold for e in task.read(tmp_path / "a.json")] == ["좋음", "나쁨"] * 5


def test_accept_and_reject_are_labels(tmp_path):
    answers = ["accept", "reject", "ignore"] * 3
    rows = [{"text": f"글 {k}", "label": "스팸", "answer": answer} for k, answer in enumerate(answers)]
    write_lines(tmp_path / "a.jsonl", rows)
    assert [e.gold for e in read(tmp_path / "a.jsonl")] == ["accept", "reject"] * 3


def mutate(value, rng):
    """Return the value with one part replaced, removed or of another type."""
    odd = [None, -1, 10**9, "", "x", [], {}, [[]], {"labels": 3}, True, 1.5, "\ud800"]
    if rng.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return rng.choice(odd)
    copy = dict(value) if isinstance(value, dict) else list(value)
    key = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
    if rng.random() < 0.2:
        del copy[key]
    else:
        copy[key] = mutate(copy[key], rng)
    return copy


@pytest.mark.parametrize("name", ["studio.json", "min.json", "doccano.jsonl", "relations.jsonl", "prodigy.jsonl"])
def test_corrupted_exports_are_read_or_refused(tmp_path, name):
    path, rng = tmp_path / name, random.Random(name)
    EXPORTS[name](path)
    original = write_task(path).read_text("utf-8")
    text = path.read_text("utf-8")
    rows = json.loads(text) if name.endswith("json") else [json.loads(line) for line in text.splitlines()]
    for _ in range(40):
        changed = list(rows)
        for position in {0, rng.randrange(len(rows))}:
            changed[position] = mutate(rows[position], rng)
        path.write_text(json.dumps(changed) if name.endswith("json") else "\n".join(map(json.dumps, changed)), "utf-8")
        (tmp_path / "own.toml").write_text(original, "utf-8")
        for use in (lambda: list(get_task(str(tmp_path / "own.toml")).read(path)), lambda: write_task(path)):
            with suppress(DanseoError):
                use()
