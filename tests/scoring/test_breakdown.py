"""Tables of details: where scores come from, and the wrong examples of every task."""

from dataclasses import replace
from pathlib import Path

import pytest

from danseo.data.prediction_file import write_predictions
from danseo.display.table import Table
from danseo.records import (
    DialogueExample,
    Entity,
    ParseExample,
    Prediction,
    QuestionExample,
    RelationExample,
    TextExample,
)
from danseo.scoring.breakdown import details, mistakes_table
from danseo.scoring.score import baseline
from danseo.tasks import TASKS
from tests.tiny import read_split


def describe(
    task: str, example: object, answer: object, probabilities: dict[str, float] | None = None
) -> dict[str, str]:
    """The parts of one wrong example."""
    predictions = [Prediction(example.guid, answer, probabilities)]  # type: ignore[attr-defined]
    return {part: content for _, part, content in mistakes_table(TASKS[task], [example], predictions, 5).rows}  # type: ignore[misc]


def list_guids(table: Table) -> list[object]:
    return [content for _, part, content in table.rows if part == "guid"]


def test_label_error_has_texts_and_confidence() -> None:
    example = TextExample("g", text="비가 온다.", pair="맑다.", gold="contradiction")
    assert describe("nli", example, "neutral", {"neutral": 0.9, "contradiction": 0.1}) == {
        "guid": "g",
        "premise": "비가 온다.",
        "hypothesis": "맑다.",
        "gold": "contradiction",
        "answer": "neutral (0.900)",
    }
    assert describe("ynat", TextExample("g", text="새 공장", gold="경제"), "사회")["answer"] == "사회"


def test_most_confident_error_is_first() -> None:
    examples = [TextExample(f"g{k}", text="가", pair="나", gold="neutral") for k in range(4)]
    certain = (0.5, 0.9, 0.7, 0.8)
    predictions = [
        Prediction(e.guid, answer, {answer: p})
        for e, p, answer in zip(examples, certain, ["entailment"] * 3 + ["neutral"], strict=True)
    ]
    table = mistakes_table(TASKS["nli"], examples, predictions, 2)
    assert list_guids(table) == ["g1", "g2"]
    assert "2 of 3" in table.note
    bare = [Prediction(p.guid, p.answer) for p in predictions]
    table = mistakes_table(TASKS["nli"], examples, bare, 9)
    assert list_guids(table) == ["g0", "g1", "g2"]
    assert "order of the file" in table.note


def test_entity_errors_ignore_spaces() -> None:
    example = TextExample("g", text="김솔은 남해 로", gold=("B-PS", "I-PS", "O", "O", "B-LC", "I-LC", "I-LC", "I-LC"))
    assert describe("ner", example, ("B-PS", "I-PS", "O", "O", "B-LC", "I-LC", "O", "I-LC")) == {}
    found = describe("ner", example, ("B-PS", "I-PS", "I-PS", "O", "B-LC", "I-LC", "I-LC", "I-LC"))
    assert (found["gold where wrong"], found["answer where wrong"]) == ("김솔:PS", "김솔은:PS")
    assert describe("ner", example, ("O",) * 8)["answer where wrong"] == "(none)"


def test_relations_are_shown_in_their_sentence() -> None:
    text = "한빛전자 대표 김솔"
    inside = RelationExample("g", text, Entity("한빛전자", 0, 4, "ORG"), Entity("한빛", 0, 2, "LOC"), "no_relation")
    assert describe("re", inside, "org:founded")["text"] == "[[한빛:LOC object]전자:ORG subject] 대표 김솔"
    apart = RelationExample("g", text, Entity("김솔", 8, 10, "PER"), Entity("한빛전자", 0, 4, "ORG"), "no_relation")
    assert describe("re", apart, "org:founded")["text"] == "[한빛전자:ORG object] 대표 [김솔:PER subject]"


def test_edges_questions_and_states() -> None:
    tree = ParseExample("g", words=("나는", "간다."), gold=((2, "NP_SBJ"), (0, "VP")))
    found = describe("dp", tree, ((2, "NP_OBJ"), (0, "VP")))
    assert (found["gold where wrong"], found["answer where wrong"]) == ("나는 → 간다. NP_SBJ", "나는 → 간다. NP_OBJ")
    passage = "가" * 100 + "1998년" + "나" * 100
    question = QuestionExample("g", text=passage, question="언제?", gold=("1998년",), starts=(100,))
    assert describe("mrc", question, "1998년!", {"": 0.1}) == {}, "as the official score sees it"
    found = describe("mrc", question, "", {"": 0.75})
    assert found["passage"] == f"…{'가' * 60}1998년{'나' * 60}…"
    assert (found["gold"], found["answer"]) == ("1998년", "(none) (0.750)")
    turns = DialogueExample("g", "d", ("안녕", "네", "서울 숙소"), gold=("숙소-지역-서울", "숙소-종류-호텔"))
    found = describe("wos", turns, ("숙소-종류-호텔", "식당-지역-서울"))
    assert found["turns"] == "안녕 ⏎ 네 ⏎ 서울 숙소"
    assert (found["gold where wrong"], found["answer where wrong"]) == ("숙소-지역-서울", "식당-지역-서울")


@pytest.mark.parametrize("name", ["nli", "dp"])
def test_errors_of_the_score_command(name: str, invoke, sample: Path, tmp_path: Path) -> None:
    task, examples = TASKS[name], read_split(sample, name, "dev")
    predictions = tmp_path / "p.jsonl"
    write_predictions(predictions, baseline("random", task, examples))
    gold = sample / task.folder / task.file("dev")
    result = invoke("score", name, gold, predictions, "--errors", 2, "--json")
    (found,) = result.json["details"]
    assert found["title"] == "wrong examples"
    assert {row[0] for row in found["rows"]} == {1, 2}
    assert "per " in invoke("score", name, gold, predictions, "--details", "--errors", 1).out


def test_relations_are_broken_down_by_source(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "dev")
    examples = [replace(e, source="odd" if position % 2 else "even") for position, e in enumerate(examples)]
    wrong = {e.gold: "per:title" if e.gold != "per:title" else "per:origin" for e in examples}
    predictions = [Prediction(e.guid, e.gold if e.source == "even" else wrong[e.gold]) for e in examples]
    (table,) = [table for table in details(task, examples, predictions) if table.title == "per source"]
    assert [(row[0], row[2]) for row in table.rows] == [("even", 100.0), ("odd", 0.0)]
    alone = [replace(example, source="one") for example in examples]
    assert not [table for table in details(task, alone, predictions) if table.title == "per source"]


def index_tables(task, examples, predictions, **options):
    return {table.title: table for table in details(task, examples, predictions, **options)}


def test_average_precision_of_labels(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "dev", 60)
    certain = [Prediction(e.guid, e.gold, {label: float(label == e.gold) for label in task.labels}) for e in examples]
    table = index_tables(task, examples, certain)["per label"]
    assert table.columns[-1] == "AP"
    assert {row[-1] for row in table.rows} == {100.0}
    bare = index_tables(task, examples, [Prediction(e.guid, e.gold) for e in examples])["per label"]
    assert "AP" not in bare.columns
    flat = [Prediction(e.guid, e.gold, dict.fromkeys(task.labels, 1 / 30)) for e in examples]
    shares = {row[0]: (row[1], row[-1]) for row in index_tables(task, examples, flat)["per label"].rows}
    assert all(abs(area - 100 * gold / 60) < 1e-6 for gold, area in shares.values()), "no order, no precision"


def test_hardest_pairs_of_labels(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "dev")
    spouse = [e for e in examples if e.gold in ("per:spouse", "per:siblings")]
    swapped = {"per:spouse": "per:siblings", "per:siblings": "per:spouse"}
    answers = [Prediction(e.guid, swapped.get(e.gold, e.gold)) for e in examples]
    table = index_tables(task, examples, answers)["hardest pairs of labels"]
    assert [(*sorted(row[:2]), *row[2:]) for row in table.rows] == [
        ("per:siblings", "per:spouse", len(spouse), len(spouse), 100.0)
    ]


def test_breakdown_by_seen_pairs(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "dev", 40)
    predictions = [Prediction(e.guid, e.gold) for e in examples]
    first, second, third = (replace(e, guid=f"t{k}") for k, e in enumerate(examples[:3]))
    crossed = replace(second, object=third.object, text=second.text + third.text)
    seen = index_tables(task, examples, predictions, train=[first, crossed])["by seen entities"]
    counts = {row[0]: row[1] for row in seen.rows}
    assert counts["the pair seen in training"] >= 1
    assert counts["one seen"] >= 2
    assert sum(counts.values()) == 40
    assert "by seen entities" not in index_tables(task, examples, predictions)
