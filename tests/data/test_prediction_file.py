"""Prediction files: a wrong one is one line with its location; legal but odd ones are read."""

import gzip
import json

import pytest

from danseo.data.prediction_file import read_predictions, write_predictions
from danseo.errors import PredictionError
from danseo.records import (
    DialogueExample,
    Entity,
    ParseExample,
    Prediction,
    QuestionExample,
    RelationExample,
    TextExample,
)
from danseo.scoring.score import NAMES, baseline, score
from danseo.scoring.tables import find_skipped_metrics
from danseo.tasks import TASKS

PAIR = "가온 서울", Entity("가온", 0, 2, "ORG"), Entity("서울", 3, 5, "LOC")
EXAMPLES = {
    "ynat": [TextExample("a", "비", "사회"), TextExample("b", "칩", "IT과학")],
    "sts": [TextExample("a", "비", 1.0, "눈"), TextExample("b", "칩", 4.0, "칩")],
    "ner": [TextExample("a", "솔이", ("B-PS", "I-PS")), TextExample("b", "가", ("O",))],
    "re": [RelationExample(*each) for each in (("a", *PAIR, "org:members"), ("b", *PAIR, "no_relation"))],
    "dp": [ParseExample("a", ("밥을", "먹자"), ((2, "NP_OBJ"), (0, "VP"))), ParseExample("b", ("가자",), ((0, "VP"),))],
    "mrc": [QuestionExample("a", "비가 온다", "무엇이?", ("비가",)), QuestionExample("b", "비가 온다", "누가?", ())],
    "wos": [DialogueExample("a", "d", ("네",), ("식당-이름-가온",)), DialogueExample("b", "d", ("네", "예", "네"), ())],
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Read lines, given as texts or records, as a prediction file of a task."""

    def run(name, *lines, **options):
        texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
        (tmp_path / "p.jsonl").write_text("\n".join(texts))
        return read_predictions(tmp_path / "p.jsonl", TASKS[name], EXAMPLES[name], **options)

    return run


@pytest.fixture
def read_error(read, tmp_path):
    """Return the error of a prediction file after its path."""

    def run(name, *lines, **options):
        with pytest.raises(PredictionError) as caught:
            read(name, *lines, **options)
        message = str(caught.value)
        assert message.startswith(str(tmp_path / "p.jsonl"))
        assert "\n" not in message
        return message.removeprefix(str(tmp_path / "p.jsonl"))

    return run


def record(guid, answer, **more):
    return {"guid": guid, "answer": answer, **more}


A, B = record("a", "사회"), record("b", "IT과학")
NO_RECORD = ', line 2: should be {"guid": …, "answer": …}'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((B,), ": 1 of 2 examples have no prediction, the first is guid 'a'"),
        ((A, record("c", "사회")), ", line 2: guid 'c' is not in the gold file"),
        ((A, "", B, A), ", line 4: guid 'a' is answered twice"),
        ((B, '{"guid": "a", "ans'), ", line 2: not valid JSON"),
        ((B, "[" * 100_000), ", line 2: not readable JSON"),
        ((B, r'{"guid": "a", "answer": "사회", "note": "\ud800"}'), ", line 2: half a surrogate pair"),
        *(((B, line), NO_RECORD) for line in (["a", "사회"], "null", {"guid": "a"}, {"answer": ""}, record(3, ""))),
    ],
)
def test_bad_files(lines, message, read_error):
    assert read_error("ynat", *lines).startswith(message)


@pytest.mark.parametrize(
    ("name", "answer", "message"),
    [
        *(("ynat", answer, "unknown label") for answer in ("연예", 3, None, ["사회"])),
        ("re", "per:friend", "unknown label 'per:friend'; known: no_relation,"),
        *(("sts", v, "should be a number") for v in ("4.2", True, None, float("nan"), float("inf"), 10**400)),
        ("ner", ["B-PS"], "1 tags for 2 characters"),
        ("ner", ["B-PS", "I-PS", "O"], "3 tags for 2 characters"),
        *(("ner", tags, "unknown tag") for tags in (["B-PS", "I-XX"], ["B-PS", None], [["O"], ["O"]])),
        ("ner", "OO", "should be a list of tags"),
        ("dp", [[2, "NP_OBJ"]], "1 words answered, the sentence has 2"),
        *(("dp", [[2, "NP_OBJ"], [head, "VP"]], f"word 2 has head {head!r}") for head in (3, -1, "0", True)),
        ("dp", [[2, "OBJ"], [0, "VP"]], "word 1 has the unknown relation 'OBJ'"),
        ("dp", [[2, ["NP"]], [0, "VP"]], "word 1 has the unknown relation"),
        ("dp", [[2, "NP_OBJ"], [0, "VP", 1]], "word 2 should be [head, relation]"),
        ("dp", {"head": 2}, "should be a list of [head, relation]"),
        *(("mrc", answer, "should be a text") for answer in (None, ["비가"])),
        *(("wos", answer, "should be a list of domain-slot-value") for answer in ("식당-이름-가온", [3])),
        ("wos", ["식당-맛-좋음"], "unknown slot '식당-맛'"),
        ("wos", ["식당-이름"], "should look like domain-slot-value"),
    ],
)
def test_wrong_answers(name, answer, message, read_error):
    error = read_error(name, "", record("a", answer))
    assert error.startswith(", line 2 (guid 'a'): ")
    assert message in error


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("sts", -0.5, -0.5),
        ("sts", 6, 6.0),
        ("ner", ["I-PS", "B-LC"], ("I-PS", "B-LC")),
        ("dp", [[1, "NP_OBJ"], [2, "VP"]], ((1, "NP_OBJ"), (2, "VP"))),
        ("mrc", "", ""),
        ("mrc", " 비가\n", " 비가\n"),
        ("wos", [], ()),
        ("wos", ["식당-이름-"], ("식당-이름-",)),
        ("wos", ["식당-이름-가온-본점"], ("식당-이름-가온-본점",)),
        ("wos", ["식당-이름-가온", "식당-이름-가온"], ("식당-이름-가온", "식당-이름-가온")),
    ],
)
def test_legal_but_odd_answers(name, answer, expected, read):
    (prediction,) = read(name, record("a", answer), partial=True)
    assert prediction == Prediction("a", expected)
    assert score(TASKS[name], EXAMPLES[name][:1], [prediction], rounds=0)


def test_relations_need_probabilities_unless_auprc_is_skipped(read, read_error):
    probabilities = {"org:members": 0.75, "no_relation": 0.25}
    lines = record("b", "no_relation", probabilities=probabilities), record("a", "org:members")
    assert read_error("re", *lines).startswith(", line 2 (guid 'a'): no probabilities")
    assert "no probabilities" in read_error("re", record("a", "org:members", probabilities=None))
    assert "no probabilities" in read_error("re", record("a", "org:members"), skip=["re/auprc@official-1"])
    skip = find_skipped_metrics(TASKS["re"], ["auprc"])
    assert skip == ["re/auprc@official-1", "re/auprc@present-1", "re/auprc@ap-1"]
    predictions = read("re", record("a", "org:members"), record("b", "no_relation"), skip=skip)
    scores = score(TASKS["re"], EXAMPLES["re"], predictions, rounds=0, skip=skip)
    names = ("micro_f1@official-1", "accuracy@plain-1", "precision@plain-1", "recall@plain-1")
    assert {s.id: s.value for s in scores} == {f"re/{name}": 100 for name in names}


@pytest.mark.parametrize(
    ("name", "probabilities", "message"),
    [
        ("re", {"per:friend": 0.5}, "unknown label 'per:friend'"),
        ("ynat", {"연예": 0.5}, "unknown label '연예'"),
        *(("re", {"org:members": p}, "should be a number from 0 to 1") for p in (1.1, -0.1, float("nan"), "1", True)),
        ("re", [0.5, 0.5], "should be an object"),
        ("mrc", {"": 2}, "should be a number from 0 to 1"),
    ],
)
def test_wrong_probabilities(name, probabilities, message, read_error):
    answer = {"re": "org:members", "ynat": "사회", "mrc": ""}[name]
    assert message in read_error(name, record("a", answer, probabilities=probabilities))


@pytest.mark.parametrize(
    "lines",
    [(B, A), ("", A, "  ", B, "", ""), ({**A, "model": "x", "answer_text": None}, B), ("\ufeff" + json.dumps(A), B)],
    ids=["any order", "blank lines", "extra keys", "byte-order mark"],
)
def test_legal_but_odd_files(lines, read):
    assert read("ynat", *lines) == [Prediction("a", "사회"), Prediction("b", "IT과학")]


@pytest.mark.parametrize("name", ["p.jsonl.gz", "p.jsonl"])
def test_gzipped_and_crlf(name, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress("\r\n".join(map(json.dumps, (A, B))).encode()))
    assert [p.answer for p in read_predictions(tmp_path / name, TASKS["ynat"], EXAMPLES["ynat"])] == ["사회", "IT과학"]


def test_partial_keeps_the_order_of_the_examples(read, read_error):
    assert read("ynat", B, partial=True) == [Prediction("b", "IT과학")]
    assert read("ynat", B, A, partial=True) == read("ynat", A, B)
    assert read_error("ynat", B, record("a", "연예"), partial=True).startswith(", line 2 (guid 'a'): unknown label")


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("model", NAMES)
def test_written_predictions_are_read_back(name, model, sample, tmp_path):
    task = TASKS[name]
    examples = task.read(sample / task.folder / task.file("dev"))
    predictions = baseline(model, task, examples)
    write_predictions(tmp_path / "p.jsonl", reversed(predictions))
    assert read_predictions(tmp_path / "p.jsonl", task, examples) == predictions
    assert "\\u" not in (tmp_path / "p.jsonl").read_text()
