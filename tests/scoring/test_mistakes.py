"""The wrong examples themselves, in the form of every task."""

from pathlib import Path

import pytest

from danseo.display.table import Table
from danseo.predictions.file import write_predictions
from danseo.records import (
    DialogueExample,
    Entity,
    ParseExample,
    Prediction,
    QuestionExample,
    RelationExample,
    TextExample,
)
from danseo.scoring.baselines import baseline
from danseo.scoring.mistakes import mistakes_table
from danseo.tasks import TASKS
from tests.tiny import read_split


def shown(task: str, example: object, answer: object, probabilities: dict[str, float] | None = None) -> dict[str, str]:
    """The parts of one wrong example."""
    predictions = [Prediction(example.guid, answer, probabilities)]  # type: ignore[attr-defined]
    return {part: content for _, part, content in mistakes_table(TASKS[task], [example], predictions, 5).rows}  # type: ignore[misc]


def guids(table: Table) -> list[object]:
    return [content for _, part, content in table.rows if part == "guid"]


def test_a_label_is_shown_with_its_texts_and_how_sure_it_was() -> None:
    example = TextExample("g", text="비가 온다.", pair="맑다.", gold="contradiction")
    assert shown("nli", example, "neutral", {"neutral": 0.9, "contradiction": 0.1}) == {
        "guid": "g",
        "premise": "비가 온다.",
        "hypothesis": "맑다.",
        "gold": "contradiction",
        "answer": "neutral (0.900)",
    }
    assert shown("ynat", TextExample("g", text="새 공장", gold="경제"), "사회")["answer"] == "사회"


def test_the_most_confident_mistake_comes_first_and_right_answers_never() -> None:
    examples = [TextExample(f"g{k}", text="가", pair="나", gold="neutral") for k in range(4)]
    sure = (0.5, 0.9, 0.7, 0.8)
    predictions = [
        Prediction(e.guid, answer, {answer: p})
        for e, p, answer in zip(examples, sure, ["entailment"] * 3 + ["neutral"], strict=True)
    ]
    table = mistakes_table(TASKS["nli"], examples, predictions, 2)
    assert guids(table) == ["g1", "g2"]
    assert table.note == "2 of 3 wrong examples, most confident first"
    unsure = [Prediction(p.guid, p.answer) for p in predictions]
    table = mistakes_table(TASKS["nli"], examples, unsure, 9)
    assert guids(table) == ["g0", "g1", "g2"]
    assert table.note == "3 of 3 wrong examples, in the order of the file"


def test_a_number_that_is_far_off_comes_first() -> None:
    examples = [TextExample(f"g{k}", text="가", pair="나", gold=gold) for k, gold in enumerate((3.0, 0.0, 4.0))]
    predictions = [Prediction(e.guid, 3.5) for e in examples]
    table = mistakes_table(TASKS["sts"], examples, predictions, 3)
    assert guids(table) == ["g1", "g0", "g2"]
    assert table.rows[4][2] == "3.50 (+3.50)"


def test_entities_are_shown_where_they_differ_and_spaces_do_not_count() -> None:
    example = TextExample("g", text="김솔은 남해 로", gold=("B-PS", "I-PS", "O", "O", "B-LC", "I-LC", "I-LC", "I-LC"))
    assert shown("ner", example, ("B-PS", "I-PS", "O", "O", "B-LC", "I-LC", "O", "I-LC")) == {}
    found = shown("ner", example, ("B-PS", "I-PS", "I-PS", "O", "B-LC", "I-LC", "I-LC", "I-LC"))
    assert (found["gold where wrong"], found["answer where wrong"]) == ("김솔:PS", "김솔은:PS")
    assert shown("ner", example, ("O",) * 8)["answer where wrong"] == "(none)"


def test_relations_are_shown_in_their_sentence() -> None:
    text = "한빛전자 대표 김솔"
    inside = RelationExample("g", text, Entity("한빛전자", 0, 4, "ORG"), Entity("한빛", 0, 2, "LOC"), "no_relation")
    assert shown("re", inside, "org:founded")["text"] == "[[한빛:LOC object]전자:ORG subject] 대표 김솔"
    apart = RelationExample("g", text, Entity("김솔", 8, 10, "PER"), Entity("한빛전자", 0, 4, "ORG"), "no_relation")
    assert shown("re", apart, "org:founded")["text"] == "[한빛전자:ORG object] 대표 [김솔:PER subject]"


def test_edges_questions_and_states() -> None:
    tree = ParseExample("g", words=("나는", "간다."), gold=((2, "NP_SBJ"), (0, "VP")))
    found = shown("dp", tree, ((2, "NP_OBJ"), (0, "VP")))
    assert (found["gold where wrong"], found["answer where wrong"]) == ("나는 → 간다. NP_SBJ", "나는 → 간다. NP_OBJ")
    passage = "가" * 100 + "1998년" + "나" * 100
    question = QuestionExample("g", text=passage, question="언제?", gold=("1998년",), starts=(100,))
    assert shown("mrc", question, "1998년!", {"": 0.1}) == {}, "as the official score sees it"
    found = shown("mrc", question, "", {"": 0.75})
    assert found["passage"] == f"…{'가' * 60}1998년{'나' * 60}…"
    assert (found["gold"], found["answer"]) == ("1998년", "(none) (0.750)")
    turns = DialogueExample("g", "d", ("안녕", "네", "서울 숙소"), gold=("숙소-지역-서울", "숙소-종류-호텔"))
    found = shown("wos", turns, ("숙소-종류-호텔", "식당-지역-서울"))
    assert found["turns"] == "안녕 ⏎ 네 ⏎ 서울 숙소"
    assert (found["gold where wrong"], found["answer where wrong"]) == ("숙소-지역-서울", "식당-지역-서울")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_shows_its_wrong_examples(name: str, danseo, sample: Path, tmp_path: Path) -> None:
    task, examples = TASKS[name], read_split(sample, name, "dev")
    table = mistakes_table(task, examples, baseline("oracle", task, examples), 3)
    assert (table.rows, table.note.split(",")[0]) == ([], "0 of 0 wrong examples")
    if name not in ("nli", "dp"):  # two kinds through the command line are enough
        return
    predictions = tmp_path / "p.jsonl"
    write_predictions(predictions, baseline("random", task, examples))
    gold = sample / task.folder / task.file("dev")
    result = danseo("score", name, gold, predictions, "--errors", 2, "--json")
    (found,) = result.json["details"]
    assert found["title"] == "wrong examples"
    assert {row[0] for row in found["rows"]} == {1, 2}
    both = danseo("score", name, gold, predictions, "--details", "--errors", 1)
    assert "wrong examples" in both.out
    assert "per " in both.out
    assert examples[0].text[:4] in danseo("score", name, gold, predictions, "--errors", 999).out
