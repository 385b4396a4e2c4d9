"""Statistics of data: every rule on a toy set counted by hand, and known facts of the real files."""

import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from danseo.data.find import load_splits
from danseo.data.stats import describe
from danseo.data.stats.dialogue_state import get_value, select_last_turns
from danseo.data.stats.duplicates import CONFLICT, NEAR, SAME
from danseo.data.stats.labels import classify_character
from danseo.data.stats.parsing import count_roots, has_crossing_arcs, has_loop
from danseo.data.stats.tagging import count_orphans
from danseo.display.plots.image_files import save_figures
from danseo.display.table import to_markdown
from danseo.records import DialogueExample, Entity, ParseExample, QuestionExample, RelationExample, TextExample
from danseo.tasks import TASKS, get_task


def headline(number, text, gold, split="train"):
    return TextExample(f"ynat-v1_{split}_{number:05d}", text, gold)


def pair(number, text, other, gold, source=None):
    return TextExample(f"klue-x-v1_train_{number:05d}", text, gold, other, source)


def relation(number, text, subject, object_, gold, types="PER-ORG"):
    """Return an example whose entities are the last occurrences of their words."""
    words = zip((subject, object_), types.split("-"), strict=True)
    entities = [Entity(word, start := text.rindex(word), start + len(word), type_) for word, type_ in words]
    return RelationExample(f"klue-re-v1_train_{number:05d}", text, *entities, gold)


def tagged(guid, text, *spans):
    tags = ["O"] * len(text)
    for start, end, type_ in spans:
        tags[start:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - start - 1)]
    return TextExample(guid, text, tuple(tags))


def find(description, title):
    return next(table for table in description.tables if table.title.startswith(title))


def describe_table(name, title, **splits):
    return find(describe(get_task(name), splits), title)


def cells(table, row, *columns):
    """Return the values in these columns of the row that begins with this name."""
    values = next(values for values in table.rows if values[0] == row)
    return [values[table.columns.index(column)] for column in columns]


TOY = {
    "ynat": [headline(0, "코스피 상승", "경제"), headline(1, "총선 결과", "정치")],
    "sts": [pair(0, "방이 깨끗해요.", "방이 청결해요.", 4.2, "airbnb-rtt"), pair(1, "가", "나", 0.0, "policy-rtt")],
    "nli": [pair(0, "비가 왔다.", "비가 온다.", "entailment", "NSMC"), pair(1, "가", "나", "neutral", "policy")],
    "ner": [tagged("klue-ner-v1_train_00000-nsmc", "철수는 서울로", (0, 2, "PS"), (4, 6, "LC"))],
    "re": [relation(0, "철수는 삼성에 다닌다.", "철수", "삼성", "per:employee_of")],
    "dp": [ParseExample("klue-dp-v1_train_00000_airbnb", ("나는", "간다."), ((2, "NP_SBJ"), (0, "VP")), "나는 간다.")],
    "mrc": [QuestionExample("klue-mrc-v1_train_00000", "서울은 수도다.", "수도는?", ("서울",), (0,), 1)],
    "wos": [
        DialogueExample("wos-v1_train_00000-0", "wos-v1_train_00000", ("강남 숙소요",), ("숙소-지역-강남",), ("숙소",))
    ],
}


# Every task


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
@pytest.mark.parametrize("names", [("train",), ("dev",), ("train", "dev")], ids="+".join)
def test_every_task_and_every_choice_of_splits_can_be_described(task, names):
    description = describe(task, dict.fromkeys(names, TOY[task.name]))
    text = json.dumps(description.as_dict(), ensure_ascii=False, allow_nan=False)
    assert json.loads(text)["rows"] == dict.fromkeys(names, len(TOY[task.name]))
    for table in description.tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.title
        assert to_markdown(table)


# Labels


def test_label_counts_shares_and_ratio():
    train = [headline(k, f"제목 {k}", "경제" if k < 6 else "정치") for k in range(8)]  # 75 % 경제
    dev = [headline(k, f"기사 {k}", "경제" if k < 1 else "정치", "dev") for k in range(2)]  # 50 %
    table = describe_table("ynat", "Labels: the topic", train=train, dev=dev)
    assert cells(table, "경제", "train", "train %", "dev", "dev %", "dev/train") == [6, 75, 1, 50, pytest.approx(2 / 3)]
    assert cells(table, "정치", "dev/train") == [2]
    assert "Total variation distance 0.250" in table.note
    assert "KL(dev‖train) 0.208 bits" in table.note  # 0.5 log2(0.5/0.75) + 0.5 log2(0.5/0.25)
    assert "Never seen: 사회, 생활문화, 세계, IT과학, 스포츠." in table.note


def test_labels_by_source():
    rows = [("neutral", "NSMC"), ("neutral", "NSMC"), ("entailment", "NSMC"), ("entailment", "policy")]
    examples = [pair(k, f"{k}", f"{k}!", gold, source) for k, (gold, source) in enumerate(rows)]
    table = describe_table("nli", "Labels by source", train=examples)
    assert cells(table, "NSMC", "n", "neutral %") == [3, pytest.approx(200 / 3)]
    assert cells(table, "policy", "n", "entailment %") == [1, 100]


# Lengths


# Duplicates


def duplicates(name, **splits):
    """Return the table of counts, and what and where -> guids."""
    tables = describe(get_task(name), splits).tables
    counts, *guids = [table for table in tables if table.title.startswith("Duplicates")]
    return counts, {row[:2]: row[2] for table in guids for row in table.rows}


def test_identical_conflicting_and_nearly_identical_inputs():
    train = [
        headline(0, "총선 결과", "정치"),
        headline(1, "총선 결과", "정치"),
        headline(2, "총선 결과", "사회"),  # contradicts
        headline(3, "총선결과!", "정치"),  # nearly the same
        headline(4, "코스피", "경제"),
        headline(5, "코스피", "경제"),
        headline(6, "환율", "경제"),
    ]
    dev = [
        headline(7, "코스피", "경제", "dev"),
        headline(8, "환 율", "사회", "dev"),
        headline(9, "날씨", "사회", "dev"),
    ]
    counts, guids = duplicates("ynat", train=train, dev=dev)
    assert cells(counts, SAME, "train", "train %", "dev", "dev in train") == [3, pytest.approx(300 / 7), 0, 1]
    assert cells(counts, CONFLICT, "train", "dev in train") == [1, 0]
    assert cells(counts, NEAR, "train", "dev", "dev in train") == [4, 0, 2]
    assert guids[CONFLICT, "train"] == ("ynat-v1_train_00000", "ynat-v1_train_00002")
    assert guids[SAME, "train"] == tuple(f"ynat-v1_train_{k:05d}" for k in (0, 1, 2, 4, 5))
    assert guids[SAME, "dev in train"] == ("ynat-v1_dev_00007", "ynat-v1_train_00004")
    assert guids[NEAR, "dev in train"][:2] == ("ynat-v1_dev_00008", "ynat-v1_train_00006")  # the new one first
    assert (CONFLICT, "dev in train") not in guids


def test_exchanged_roles_and_shared_sentences():
    text = "철수는 삼성에 다니고 영희는 논다."
    examples = [
        relation(0, text, "철수", "삼성", "per:employee_of"),
        relation(1, text, "삼성", "철수", "org:top_members/employees", "ORG-PER"),
        relation(2, text, "영희", "삼성", "no_relation"),
        relation(3, text.replace(" ", "  "), "철수", "삼성", "no_relation"),
    ]
    counts, _ = duplicates("re", train=examples)
    assert cells(counts, "sentence, roles exchanged", "train") == [1]
    assert cells(counts, "sentence", "train") == [2]
    assert cells(counts, SAME, "train") == [0]  # other entities make another input
    assert cells(counts, NEAR, "train") == [1]


# Characters


@pytest.mark.parametrize(
    ("characters", "name"),
    [
        ("ᄏ\u1172", "conjoining jamo"),
        ("ㅋ", "compatibility jamo"),
        ("\u3164\u200b\x7f\ufeff", "zero-width and control"),  # the first is the Hangul filler
        ("美金", "CJK ideographs"),
        ("％", "full- and half-width forms"),
        ("\ue000", "private use"),
        ("\ufffd", "replacement character"),
        ("\xa0\u3000\n", "white space other than U+0020"),
        ("😀", "emoji"),
        ("★…가A ", None),
    ],
)
def test_classes_of_characters(characters, name):
    assert {classify_character(character) for character in characters} == {name}


def test_character_counts_per_split():
    splits = {
        "train": [headline(0, "재밌다", "사회"), headline(1, "ㅋㅋㅋ 美 방문…", "세계"), headline(2, "ㅠ", "사회")],
        "dev": [headline(3, "ᄏᄏ", "사회", "dev")],
    }
    table = describe_table("ynat", "Unusual characters", **splits)
    rows = {row[:2]: row[2:] for row in table.rows}
    second = "ynat-v1_train_00001"
    assert rows["compatibility jamo", "train"] == (4, 2, pytest.approx(200 / 3), "ㅋ U+314B, ㅠ U+3160", second)
    assert rows["conjoining jamo", "dev"] == (2, 1, 100, "ᄏ U+110F", "ynat-v1_dev_00003")
    assert rows["CJK ideographs", "train"] == (1, 1, pytest.approx(100 / 3), "美", second)
    assert rows["NFKC would change", "train"][1] == 2  # jamo and the ellipsis
    assert ("NFKC would change", "dev") not in rows
    assert "NFC would change" in table.note


# Pairs and entities


def test_type_pairs_and_their_labels():
    text = "철수는 삼성에 다닌다."
    train = [
        relation(0, text, "철수", "삼성", "per:employee_of"),
        relation(1, text, "철수", "삼성", "no_relation"),
        relation(2, text, "삼성", "철수", "org:top_members/employees", "ORG-PER"),
        relation(3, text, "철수", "삼성", "per:employee_of"),
    ]
    dev = [relation(4, text, "삼성", "철수", "no_relation", "ORG-POH")]
    description = describe(get_task("re"), {"train": train, "dev": dev})
    table = find(description, "Type pairs")
    assert cells(table, "PER-ORG", "train", "train %", "dev", "dev/train") == [3, 75, 0, 0]
    assert "Unseen in train: ORG-POH." in table.note
    labels = find(description, "Labels of a type pair, train")
    assert labels.rows[0] == ("PER-ORG", 3, 2, "per:employee_of 67, no_relation 33")


def test_entity_checks_of_relations():
    examples = [
        relation(0, "김철수, 철수는 삼성에 다닌다.", "철수", "삼성", "per:employee_of"),  # 철수 also occurs earlier
        relation(1, "삼성, 현대 그리고 철수.", "삼성, 현대", "철수", "per:title", "ORG-PER"),  # wrong prefix, a comma
    ]
    table = describe_table("re", "Subjects and objects", train=examples)
    assert {row[0] for row in table.rows if row[2] == 1} == {
        "label contradicts the subject's type",
        "subject followed directly by a letter",
        "object followed directly by a letter",
        "subject or object has a comma",
        "first match of the subject is another place",
    }
    assert sum(row[2] == 0 for row in table.rows) == 5


def test_memorised_pairs():
    train = [relation(0, "철수는 삼성에", "철수", "삼성", "per:employee_of")]
    dev = [
        relation(1, "철수가 삼성을", "철수", "삼성", "per:employee_of"),
        relation(2, "철수도 삼성은", "철수", "삼성", "no_relation"),
        relation(3, "영희는 삼성에", "영희", "삼성", "per:employee_of"),
    ]
    table = describe_table("re", "Seen in train", train=train, dev=dev)
    hits = {row[:2]: row[2] for row in table.rows}
    assert hits["subject word", "rows"] == 2
    assert hits["object word", "rows"] == 3
    assert hits["subject and object words", "rows"] == 2
    assert hits["subject and object words", "rows with a relation"] == 1
    assert hits["subject and object words with the same label", "rows"] == 1


def test_entities_by_type_and_memory():
    train = [tagged("klue-ner-v1_train_00000-nsmc", "철수와 철수와 서울", (0, 2, "PS"), (4, 6, "PS"), (8, 10, "LC"))]
    dev = [tagged("klue-ner-v1_dev_00000-nsmc", "철수와 서울과 영희", (0, 2, "PS"), (4, 6, "OG"), (8, 10, "PS"))]
    description = describe(get_task("ner"), {"train": train, "dev": dev})
    assert cells(find(description, "Labels: the type"), "PS", "train", "dev") == [2, 2]
    assert ("PS", "train", 2, 1, 2.0, "철수 2") in find(description, "Entities by type").rows
    memory = find(description, "dev entities")
    assert cells(memory, "PS", "dev entities", "as this type", "only as another") == [2, 1, 0]
    assert cells(memory, "OG", "as this type", "only as another") == [0, 1]
    assert cells(memory, "all", "dev entities", "as this %") == [3, pytest.approx(100 / 3)]


def test_errors_of_tagging():
    examples = [
        TextExample("a", "가 나다", ("B-PS", "O", "I-PS", "I-PS")),  # the first I- continues O; the second has its type
        TextExample("b", "가 나다", ("O", "B-PS", "I-PS", "I-PS")),  # B- on a space
        TextExample("c", "가나", ("B-PS", "I-LC")),  # I- of another type
        TextExample("d", "가나", ("O", "O")),
    ]
    assert [count_orphans(example) for example in examples] == [1, 0, 1, 0]
    table = describe_table("ner", "Entities and tags", train=examples)
    assert cells(table, "with orphan I- tags", "train", "for example") == [2, "a"]
    assert cells(table, "spaces that carry B-", "train", "train %", "for example") == [1, 50, "b"]
    assert cells(table, "without any entity", "train") == [1]
    assert cells(table, "next to another entity", "train") == [1]


# Trees, questions, dialogues


def tree(*heads):
    return ParseExample("g", tuple("가" * len(heads)), tuple((head, "NP") for head in heads))


def test_shapes_of_trees():
    assert has_crossing_arcs(tree(3, 4, 0, 3))  # 1-3 and 2-4
    assert not has_crossing_arcs(tree(2, 0, 2))
    assert not has_crossing_arcs(tree(3, 3, 0))
    assert has_loop(tree(2, 1, 0))
    assert has_loop(tree(1, 0))
    assert not has_loop(tree(2, 3, 0))
    assert count_roots(tree(0, 0)) == 2


def test_tree_checks():
    table = describe_table("dp", "Trees", train=[tree(2, 3, 0), tree(0, 1), tree(0, 0)])
    assert cells(table, "head to the right", "train", "train %") == [2, pytest.approx(200 / 3)]
    assert cells(table, "the last word is a root", "train") == [2]
    assert cells(table, "several roots", "train") == [1]
    assert cells(table, "arcs cross (non-projective)", "train") == [0]


@pytest.fixture
def sentence():
    pos = ("NNG+JX", "NNG+JKO", "VV+EP+EF+SF")
    return ParseExample("a", ("학교는", "밥을", "먹었다."), ((3, "NP_SBJ"), (3, "NP_OBJ"), (0, "VP")), pos=pos)


def test_tags_of_kiwi_are_compared_with_gold(sentence):
    pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")
    other = replace(sentence, guid="b", pos=("NNP+JX", "NNG+JKB", "VV+EP+EF+SF"))
    table = next(t for t in describe(TASKS["dp"], {"dev": [sentence, other]}).tables if "kiwipiepy" in t.title)
    assert [row[2:4] for row in table.rows] == [(5, pytest.approx(500 / 6)), (4, pytest.approx(400 / 6))]
    assert "JKB as JKO (1)" in table.note


def test_kiwi_may_be_absent(sentence, monkeypatch):
    monkeypatch.setattr("danseo.data.stats.parsing.is_installed", lambda package: False)
    tables = describe(TASKS["dp"], {"dev": [sentence]}).tables
    assert any("danseo[ko]" in table.note for table in tables)


def test_questions():
    passage = "서울은 한국의 수도이고 서울에는 한강이 있다."
    examples = [
        QuestionExample("a", passage, "수도는?", ("서울",), (0,), 1),
        QuestionExample("b", passage, "강은?", ("한강", "한강이"), (18, 18), None),
        QuestionExample("c", passage, "산은?", (), (), 3),
    ]
    description = describe(get_task("mrc"), {"dev": examples})
    assert cells(find(description, "Labels: the question type"), "unanswerable", "dev") == [1]
    assert [row[:2] for row in find(description, "Accepted answers").rows] == [("0", 1), ("1", 1), ("2", 1)]
    positions = find(description, "Where in the passage")
    assert [row[:2] for row in positions.rows] == [("first quarter", 1), ("third quarter", 1)]
    table = find(description, "Questions and answers")
    assert cells(table, "without an answer", "dev", "dev %") == [1, pytest.approx(100 / 3)]
    assert cells(table, "several accepted texts", "dev", "dev %") == [1, 50]
    assert cells(table, "answer occurs elsewhere in the passage too", "dev") == [1]
    assert table.note == "Different passages: dev 1."


def test_dialogues():
    turns = ("강남 쪽 숙소요", "네", "주차도요, 아니 서초로", "네", "고마워요")
    states = (
        ("숙소-지역-강남", "숙소-이름-a-b"),
        ("숙소-지역-서초", "숙소-주차 가능-yes", "숙소-이름-a-b"),
        ("숙소-지역-서초", "숙소-주차 가능-yes"),
    )
    examples = [DialogueExample(f"d-{k}", "d", turns[: 2 * k + 1], state, ("숙소",)) for k, state in enumerate(states)]
    assert get_value("숙소-이름-a-b") == "a-b"
    assert select_last_turns(examples) == [examples[2]]
    description = describe(get_task("wos"), {"train": examples})
    assert cells(find(description, "Labels: the slot"), "숙소-지역", "train") == [3]
    assert cells(find(description, "Kinds of values"), "yes", "train") == [2]
    assert cells(find(description, "Domains"), "숙소", "train") == [1]
    table = find(description, "States")
    assert cells(table, "state changes a value", "train", "for example") == [1, "d-1"]
    assert cells(table, "state loses a slot", "train", "for example") == [1, "d-2"]
    assert cells(table, "state as before", "train") == [0]
    assert cells(table, "not said so far", "train", "train %") == [2, 40]  # a-b twice, of five texts
    assert find(description, "Values that were not said").rows[0][0] == "숙소-이름"
    assert cells(find(description, ""), "train", "rows", "examples") == [1, 3]


# Plots


@pytest.mark.parametrize("task", [TASKS[n] for n in TASKS if n != "nli"], ids=lambda task: task.name)
def test_plots_are_made_without_warnings(task, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of every glyph that the font lacks
        splits = {"train": TOY[task.name], "dev": TOY[task.name]}
        description = describe(task, splits if task.name != "re" else {"dev": splits["dev"]})
        labels, *others = description.panels
        save_figures(tmp_path / "a.png", others, title=description.title, left=labels)
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


# The real files


@pytest.fixture(scope="module")
def described(real_data):
    """All tasks described, within seconds of computing."""
    splits = {name: load_splits(get_task(name), real_data) for name in TASKS}
    start = time.process_time()
    descriptions = {name: describe(get_task(name), splits[name]) for name in TASKS}
    assert time.process_time() - start < 60
    return descriptions


@pytest.mark.lengthy
def test_known_facts_of_the_real_files(described):
    golden = Path(__file__).parents[1] / "fixtures" / "relation_counts.json"
    table = find(described["re"], "Labels: the relation")
    assert {row[0]: row[1] for row in table.rows} == json.loads(golden.read_text())["train_counts"]
    assert cells(table, "no_relation", "dev/train")[0] == pytest.approx(2.03, abs=0.01)
    rows = find(described["ner"], "Unusual characters").rows
    jamo = [row for row in rows if row[:2] == ("conjoining jamo", "dev")]
    assert jamo[0][4] == pytest.approx(6.3, abs=0.5)
    tags = find(described["ner"], "Entities and tags")
    assert cells(tags, "with orphan I- tags", "dev") == [0]
    assert cells(tags, "spaces that carry B-", "dev") == [2]
    assert cells(find(described["dp"], "Trees"), "head to the right", "train %", "dev %") == [100, 100]
