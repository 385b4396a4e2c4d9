"""Prediction files: every wrong one is refused with its line and guid, every fair one is read."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from danseo.errors import DanseoError, PredictionError
from danseo.predictions.file import read_predictions, write_predictions
from danseo.records import (
    DialogueExample,
    Entity,
    ParseExample,
    Prediction,
    QuestionExample,
    RelationExample,
    TextExample,
)
from danseo.scoring.baselines import NAMES, baseline
from danseo.scoring.score import score
from danseo.scoring.tables import score_file, skipped_metrics
from danseo.tasks import TASKS

ENTITIES = Entity("가온", 0, 2, "ORG"), Entity("서울", 3, 5, "LOC")
EXAMPLES: dict[str, list[Any]] = {
    "ynat": [TextExample("a", "비", "사회"), TextExample("b", "칩", "IT과학")],
    "sts": [TextExample("a", "비", 1.0, "눈"), TextExample("b", "칩", 4.0, "칩")],
    "ner": [TextExample("a", "솔이", ("B-PS", "I-PS")), TextExample("b", "가", ("O",))],
    "re": [
        RelationExample("a", "가온 서울", *ENTITIES, "org:members"),
        RelationExample("b", "가온 서울", *ENTITIES, "no_relation"),
    ],
    "dp": [
        ParseExample("a", ("밥을", "먹자"), ((2, "NP_OBJ"), (0, "VP"))),
        ParseExample("b", ("가자",), ((0, "VP"),)),
    ],
    "mrc": [QuestionExample("a", "비가 온다", "무엇이?", ("비가",)), QuestionExample("b", "비가 온다", "누가?", ())],
    "wos": [DialogueExample("a", "d", ("네",), ("식당-이름-가온",)), DialogueExample("b", "d", ("네", "예", "네"), ())],
}
Read = Callable[..., list[Prediction]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read lines, given as texts or records, as a prediction file of a task."""

    def run(name: str, *lines: Any, **options: Any) -> list[Prediction]:
        texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
        path = tmp_path / "p.jsonl"
        path.write_text("\n".join(texts))
        return read_predictions(path, TASKS[name], EXAMPLES[name], **options)

    return run


@pytest.fixture
def refusal(read: Read, tmp_path: Path) -> Callable[..., str]:
    """What is said against a prediction file, after its path."""

    def run(name: str, *lines: Any, **options: Any) -> str:
        with pytest.raises(PredictionError) as caught:
            read(name, *lines, **options)
        message = str(caught.value)
        assert message.startswith(str(tmp_path / "p.jsonl"))
        assert len(message.splitlines()) == 1
        return message.removeprefix(str(tmp_path / "p.jsonl"))

    return run


def line(guid: str, answer: Any, **more: Any) -> dict[str, Any]:
    return {"guid": guid, "answer": answer, **more}


A, B = line("a", "사회"), line("b", "IT과학")

# The file as a whole


def test_missing_guid(refusal: Callable[..., str]) -> None:
    assert refusal("ynat", B) == (
        ": 1 of 2 examples have no prediction, the first is guid 'a'; add them "
        "(`danseo score --partial` scores what is there)"
    )


def test_unknown_guid(refusal: Callable[..., str]) -> None:
    assert refusal("ynat", A, line("c", "사회")) == (
        ", line 2: guid 'c' is not in the gold file; are these the right examples?"
    )


def test_repeated_guid(refusal: Callable[..., str]) -> None:
    assert refusal("ynat", A, "", B, A) == ", line 4: guid 'a' is answered twice; keep one"


def test_empty_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    for name in ("empty.jsonl", "nowhere.jsonl"):
        with pytest.raises(DanseoError, match=f"{name} is (empty|missing)"):
            read_predictions(tmp_path / name, TASKS["ynat"], EXAMPLES["ynat"], partial=True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '{"guid": "a", "ans',
            ", line 2: not valid JSON (Unterminated string starting at, column 15); one JSON object",
        ),
        ('["a", "사회"]', ', line 2: should be {"guid": …, "answer": …}, not \'["a", "사회"]\''),
        ("null", ', line 2: should be {"guid": …, "answer": …}, not \'null\''),
        ('{"guid": "a"}', ', line 2: should be {"guid": …, "answer": …}, not'),
        ('{"answer": "사회"}', ', line 2: should be {"guid": …, "answer": …}, not'),
        ('{"guid": 3, "answer": "사회"}', ', line 2: should be {"guid": …, "answer": …}, not'),
        ("[" * 100_000, ", line 2: not readable JSON"),
        (
            r'{"guid": "a", "answer": "사회", "note": "\ud800"}',
            ", line 2: half a surrogate pair, which is no character",
        ),
    ],
)
def test_line_that_is_no_prediction(text: str, complaint: str, refusal: Callable[..., str]) -> None:
    assert refusal("ynat", B, text).startswith(complaint)


# Answers


@pytest.mark.parametrize(
    ("name", "answer", "complaint"),
    [
        ("ynat", "연예", "unknown label '연예'; known: 정치, 경제,"),
        ("ynat", 3, "unknown label 3; known:"),
        ("ynat", None, "unknown label None; known:"),
        ("ynat", ["사회"], "unknown label ['사회']; known:"),
        ("re", "per:friend", "unknown label 'per:friend'; known: no_relation,"),
        ("sts", "4.2", "the answer should be a number from 0 to 5, not '4.2'"),
        ("sts", True, "the answer should be a number from 0 to 5, not True"),
        ("sts", None, "the answer should be a number from 0 to 5, not None"),
        ("sts", float("nan"), "the answer should be a number from 0 to 5, not nan"),
        ("sts", float("inf"), "the answer should be a number from 0 to 5, not inf"),
        ("sts", 10**400, "the answer should be a number from 0 to 5, not 1000"),
        ("ner", ["B-PS"], "1 tags for 2 characters (spaces count)"),
        ("ner", ["B-PS", "I-PS", "O"], "3 tags for 2 characters (spaces count)"),
        ("ner", ["B-PS", "I-XX"], "unknown tag 'I-XX'; known: B-PS,"),
        ("ner", ["B-PS", None], "unknown tag None; known: B-PS,"),
        ("ner", [["O"], ["O"]], "unknown tag ['O']; known: B-PS,"),
        ("ner", "OO", "the answer should be a list of tags, one per character line of the raw file"),
        ("dp", [[2, "NP_OBJ"]], "1 words answered, the sentence has 2"),
        ("dp", [[2, "NP_OBJ"], [3, "VP"]], "word 2 has head 3; it should be from 0 (the root) to 2"),
        ("dp", [[2, "NP_OBJ"], [-1, "VP"]], "word 2 has head -1;"),
        ("dp", [[2, "NP_OBJ"], ["0", "VP"]], "word 2 has head '0';"),
        ("dp", [[True, "NP_OBJ"], [0, "VP"]], "word 1 has head True;"),
        ("dp", [[2, "OBJ"], [0, "VP"]], "word 1 has the unknown relation 'OBJ'; known: NP,"),
        ("dp", [[2, ["NP"]], [0, "VP"]], "word 1 has the unknown relation ['NP']"),
        ("dp", [[2, "NP_OBJ"], [0, "VP", 1]], "word 2 should be [head, relation], not [0, 'VP', 1]"),
        ("dp", {"head": 2}, "the answer should be a list of [head, relation], one per word"),
        ("mrc", None, 'the answer should be a text, "" for unanswerable, not None'),
        ("mrc", ["비가"], 'the answer should be a text, "" for unanswerable, not'),
        ("wos", "식당-이름-가온", "the answer should be a list of domain-slot-value texts"),
        ("wos", [3], "the answer should be a list of domain-slot-value texts"),
        ("wos", ["식당-맛-좋음"], "unknown slot '식당-맛'; `danseo tasks wos` lists the 45 slots"),
        ("wos", ["식당-이름"], "'식당-이름' should look like domain-slot-value"),
    ],
)
def test_wrong_answer(name: str, answer: Any, complaint: str, refusal: Callable[..., str]) -> None:
    assert refusal(name, "", line("a", answer)).startswith(f", line 2 (guid 'a'): {complaint}")


@pytest.mark.parametrize(
    ("name", "answer", "kept"),
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
def test_legal_but_odd_answer(name: str, answer: Any, kept: Any, read: Read) -> None:
    (prediction,) = read(name, line("a", answer), partial=True)
    assert prediction == Prediction("a", kept)
    assert score(TASKS[name], EXAMPLES[name][:1], [prediction], rounds=0)


def test_a_repeated_slot_value_counts_once(read: Read) -> None:
    once, twice = (read("wos", line("a", ["식당-이름-가온"] * times), line("b", [])) for times in (1, 2))
    scores = [score(TASKS["wos"], EXAMPLES["wos"], predictions, rounds=0) for predictions in (once, twice)]
    assert [s.value for s in scores[0]] == [s.value for s in scores[1]] == [100, 100, 100]


# Probabilities

MEMBERS = {"org:members": 0.75, "no_relation": 0.25}


def test_relations_need_probabilities(refusal: Callable[..., str]) -> None:
    lines = line("b", "no_relation", probabilities=MEMBERS), line("a", "org:members")
    assert refusal("re", *lines) == (
        ", line 2 (guid 'a'): no probabilities, which re/auprc@official-1 needs; add them or use --skip auprc"
    )
    assert "no probabilities" in refusal("re", line("a", "org:members", probabilities=None))


def test_without_auprc_they_need_none(read: Read) -> None:
    skip = skipped_metrics(TASKS["re"], ["auprc"])
    assert skip == ["re/auprc@official-1", "re/auprc@present-1", "re/auprc@ap-1"]
    predictions = read("re", line("a", "org:members"), line("b", "no_relation"), skip=skip)
    scores = score(TASKS["re"], EXAMPLES["re"], predictions, rounds=0, skip=skip)
    assert {s.id: s.value for s in scores} == {
        f"re/{metric}": 100
        for metric in ("micro_f1@official-1", "accuracy@plain-1", "precision@plain-1", "recall@plain-1")
    }
    with pytest.raises(PredictionError, match="no probabilities"):  # one AUPRC is still wanted
        read("re", line("a", "org:members"), skip=["re/auprc@official-1"])


@pytest.mark.parametrize(
    ("name", "probabilities", "complaint"),
    [
        ("re", {"per:friend": 0.5}, "probability of the unknown label 'per:friend'; known: no_relation,"),
        ("ynat", {"연예": 0.5}, "probability of the unknown label '연예'; known: 정치,"),
        ("re", {"org:members": 1.1}, "probability of 'org:members' should be a number from 0 to 1, not 1.1"),
        ("re", {"org:members": -0.1}, "probability of 'org:members' should be a number from 0 to 1, not -0.1"),
        ("re", {"org:members": float("nan")}, "probability of 'org:members' should be a number from 0 to 1, not nan"),
        ("re", {"org:members": "1"}, "probability of 'org:members' should be a number from 0 to 1, not '1'"),
        ("re", {"org:members": True}, "probability of 'org:members' should be a number from 0 to 1, not True"),
        ("re", [0.5, 0.5], "probabilities should be an object label -> probability, not [0.5, 0.5]"),
        ("mrc", {"": 2}, "probability of '' should be a number from 0 to 1, not 2"),
    ],
)
def test_wrong_probabilities(name: str, probabilities: Any, complaint: str, refusal: Callable[..., str]) -> None:
    answer = {"re": "org:members", "ynat": "사회", "mrc": ""}[name]
    complaint = f", line 1 (guid 'a'): {complaint}"
    assert refusal(name, line("a", answer, probabilities=probabilities)).startswith(complaint)


def test_rounding_above_one_is_forgiven(read: Read) -> None:
    (prediction,) = read("ynat", line("a", "사회", probabilities={"사회": 1 + 1e-7, "정치": 0}), partial=True)
    assert prediction.probabilities == {"사회": 1 + 1e-7, "정치": 0}


# Legal files


@pytest.mark.parametrize(
    "lines",
    [(B, A), ("", A, "  ", B, "", ""), ({**A, "model": "x", "answer_text": None}, B), ("\ufeff" + json.dumps(A), B)],
    ids=["any order", "blank lines", "extra keys", "byte-order mark"],
)
def test_legal_but_odd_file(lines: Sequence[Any], read: Read) -> None:
    assert read("ynat", *lines) == [Prediction("a", "사회"), Prediction("b", "IT과학")]


@pytest.mark.parametrize("name", ["p.jsonl.gz", "p.jsonl"])
def test_gzipped_and_crlf(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress("\r\n".join(json.dumps(record) for record in (A, B)).encode()))
    assert [p.answer for p in read_predictions(path, TASKS["ynat"], EXAMPLES["ynat"])] == ["사회", "IT과학"]


def test_partial_keeps_the_order_of_the_examples(read: Read, refusal: Callable[..., str]) -> None:
    assert read("ynat", B, partial=True) == [Prediction("b", "IT과학")]
    assert read("ynat", B, A, partial=True) == read("ynat", A, B)
    assert refusal("ynat", B, line("a", "연예"), partial=True).startswith(", line 2 (guid 'a'): unknown label")


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("who", NAMES)
def test_what_is_written_reads_back(name: str, who: str, sample: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    examples = task.read(sample / task.folder / task.file("dev"))
    predictions = baseline(who, task, examples)
    write_predictions(tmp_path / "p.jsonl", reversed(predictions))
    assert read_predictions(tmp_path / "p.jsonl", task, examples) == predictions
    assert "\\u" not in (tmp_path / "p.jsonl").read_text()


def test_probabilities_of_tags_are_kept_as_they_come(read: Read, tmp_path: Path) -> None:
    per_character = [{"B-PS": 0.9, "O": 0.1}, {"I-PS": 1.0}]
    (prediction,) = read("ner", line("a", ["B-PS", "I-PS"], probabilities=per_character), partial=True)
    assert prediction.probabilities == per_character


def test_partial_scores_say_so(sample: Path, tmp_path: Path) -> None:
    task = TASKS["nli"]
    gold = sample / task.folder / task.file("dev")
    examples = task.read(gold)
    write_predictions(tmp_path / "p.jsonl", baseline("oracle", task, examples)[:5])
    result = score_file(task, examples, gold, tmp_path / "p.jsonl", partial=True, rounds=0)
    assert (result.n, result.is_partial) == (5, True)
    assert result.tables()[0].note.startswith(f"PARTIAL: 5 of {len(examples)} examples have predictions")


def test_skip_names_metrics() -> None:
    assert skipped_metrics(TASKS["nli"], ["macro_f1"]) == ["nli/macro_f1@plain-1"]
    assert skipped_metrics(TASKS["nli"], ["nli/macro_f1@plain-1"]) == ["nli/macro_f1@plain-1"]
    with pytest.raises(DanseoError, match="--skip auprc: nli has no such metric; it has nli/accuracy@official-1"):
        skipped_metrics(TASKS["nli"], ["auprc"])
    with pytest.raises(DanseoError, match="--skip leaves no metric"):
        skipped_metrics(TASKS["nli"], ["macro_f1", "accuracy"])
