"""The description of data: every rule on a toy set counted by hand, and the known facts of the real files."""

import json
import math
import time
import warnings
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest

from danseo.display.table import Table, print_tables, to_markdown
from danseo.eda import Description, describe
from danseo.eda.characters import kind_of
from danseo.eda.counting import chance_variation, divergence, total_variation
from danseo.eda.dialogues import last_turns, value_of
from danseo.eda.duplicates import CONFLICT, NEAR, SAME, loosen
from danseo.eda.entities import orphans
from danseo.eda.labels import source_of
from danseo.eda.lengths import cumulated, percentile
from danseo.eda.parses import crosses, loops, roots
from danseo.eda.relations import contradicts_prefix, gap
from danseo.eda.sentences import overlap, score_bin
from danseo.errors import DanseoError
from danseo.plots.panels import korean_figure, korean_font, plot_description
from danseo.records import DialogueExample, Entity, ParseExample, QuestionExample, RelationExample, TextExample
from danseo.tasks import TASKS, get_task

KLUE = Path(__file__).parents[2] / "shared" / "data" / "klue"


def headline(number: int, text: str, gold: str, split: str = "train") -> TextExample:
    return TextExample(f"ynat-v1_{split}_{number:05d}", text, gold)


def pair(number: int, text: str, other: str, gold: object, source: str | None = None) -> TextExample:
    return TextExample(f"klue-x-v1_train_{number:05d}", text, gold, other, source)


def relation(number: int, text: str, subject: str, object_: str, gold: str, types: str = "PER-ORG") -> RelationExample:
    """An example whose entities are the last occurrences of their words."""
    first, second = types.split("-")
    entities = [
        Entity(word, start := text.rindex(word), start + len(word), kind)
        for word, kind in ((subject, first), (object_, second))
    ]
    return RelationExample(f"klue-re-v1_train_{number:05d}", text, *entities, gold)


def tagged(guid: str, text: str, *spans: tuple[int, int, str]) -> TextExample:
    tags = ["O"] * len(text)
    for start, end, kind in spans:
        tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    return TextExample(guid, text, tuple(tags))


def find(description: Description, title: str) -> Table:
    return next(table for table in description.tables if table.title.startswith(title))


def cells(table: Table, row: object, *columns: str) -> list[object]:
    """The values of the row that begins with this name, under these columns."""
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
def test_every_task_and_every_choice_of_splits_can_be_described_printed_and_written(task, names):
    description = describe(task, dict.fromkeys(names, TOY[task.name]))
    text = json.dumps(description.as_dict(), ensure_ascii=False, allow_nan=False)
    assert json.loads(text)["rows"] == dict.fromkeys(names, len(TOY[task.name]))
    for table in description.tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.title
        assert to_markdown(table)
    print_tables(description.tables, console := Recorder(100))
    assert console.longest() <= 100


def test_train_comes_first_whatever_the_order():
    assert list(describe(get_task("ynat"), {"dev": TOY["ynat"], "train": TOY["ynat"]}).rows) == ["train", "dev"]


@pytest.mark.parametrize("splits", [{}, {"train": []}])
def test_nothing_to_describe_is_an_error(splits):
    with pytest.raises(DanseoError, match="no examples of ynat"):
        describe(get_task("ynat"), splits)


def test_guids_that_belong_to_the_other_split_are_reported():
    train = [headline(0, "가", "경제"), headline(1, "나", "정치", "dev")]
    dev = [headline(1, "나", "정치", "dev")]
    note = describe(get_task("ynat"), {"train": train, "dev": dev}).tables[0].note
    assert "1 of the train examples have guids that say dev." in note
    assert "1 guids are in both splits, such as ynat-v1_dev_00001." in note


# Labels


def test_label_counts_shares_and_ratio():
    train = [headline(k, f"제목 {k}", "경제" if k < 6 else "정치") for k in range(8)]  # 75 % 경제
    dev = [headline(k, f"기사 {k}", "경제" if k < 1 else "정치", "dev") for k in range(2)]  # 50 %
    table = find(describe(get_task("ynat"), {"train": train, "dev": dev}), "Labels: the topic")
    assert cells(table, "경제", "train", "train %", "dev", "dev %", "dev/train") == [6, 75, 1, 50, pytest.approx(2 / 3)]
    assert cells(table, "정치", "dev/train") == [2]
    assert "Total variation distance 0.250" in table.note
    assert "KL(dev‖train) 0.208 bits" in table.note  # 0.5 log2(0.5/0.75) + 0.5 log2(0.5/0.25)
    assert "Never seen: 사회, 생활문화, 세계, IT과학, 스포츠." in table.note


def test_distances_between_distributions():
    before, after = Counter(a=3, b=1), Counter(a=1, b=1)
    assert total_variation(before, after) == 0.25
    assert divergence(before, after) == pytest.approx(0.5 * math.log2(0.5 / 0.75) + 0.5)
    assert divergence(before, Counter(c=1)) == math.inf
    # one label in two at half each: |difference| of n=m=100 has mean sqrt(2 * 0.25 * 0.02 / pi)
    assert chance_variation(Counter(a=50, b=50), Counter(a=50, b=50)) == pytest.approx(math.sqrt(0.01 / math.pi))


def test_a_label_of_dev_alone_has_no_ratio():
    splits = {"train": [headline(0, "가", "경제")], "dev": [headline(1, "나", "정치", "dev")]}
    table = find(describe(get_task("ynat"), splits), "Labels: the topic")
    assert cells(table, "정치", "train", "dev", "dev/train") == [0, 1, None]
    assert "infinite: only dev has 정치" in table.note


@pytest.mark.parametrize(
    ("score", "name"), [(0, "0–0.5"), (0.49, "0–0.5"), (3.0, "3–3.5"), (5.0, "4.5–5"), (-1, "0–0.5")]
)
def test_scores_fall_into_half_points(score, name):
    assert score_bin(score) == name


def test_share_of_similar_pairs():
    examples = [pair(k, f"{k}", f"{k}!", score) for k, score in enumerate((2.9, 3.0, 4.5, 0.0))]
    table = find(describe(get_task("sts"), {"train": examples}), "Pairs")
    assert cells(table, "score of 3.0 or more", "train", "train %", "for example") == [2, 50, examples[1].guid]


@pytest.mark.parametrize(
    ("guid", "source"),
    [
        ("klue-ner-v1_dev_00000-wikitree", "wikitree"),
        ("klue-dp-v1_train_00012_airbnb", "airbnb"),
        ("klue-ner-v1_dev_00000", None),
        ("wos-v1_dev_00008-0", None),
    ],
)
def test_sources_stand_at_the_end_of_some_guids(guid, source):
    assert source_of(TextExample(guid, "가", ())) == source


def test_labels_by_source():
    examples = [pair(k, f"{k}", f"{k}!", gold, source) for k, (gold, source) in enumerate(
        [("neutral", "NSMC"), ("neutral", "NSMC"), ("entailment", "NSMC"), ("entailment", "policy")]
    )]  # fmt: skip
    table = find(describe(get_task("nli"), {"train": examples}), "Labels by source")
    assert cells(table, "NSMC", "n", "neutral %") == [3, pytest.approx(200 / 3)]
    assert cells(table, "policy", "n", "entailment %") == [1, 100]


def test_one_source_makes_no_table():
    titles = [table.title for table in describe(get_task("ynat"), {"train": TOY["ynat"]}).tables]
    assert not any("source" in title for title in titles)


# Lengths


def test_percentiles_are_lengths_that_occur():
    assert [percentile(range(1, 11), share) for share in (1, 10, 50, 90, 95, 99, 100)] == [1, 1, 5, 9, 10, 10, 10]
    assert percentile([7], 50) == 7


def test_length_table():
    examples = [headline(k, "가" * k, "경제") for k in range(1, 101)]
    table = find(describe(get_task("ynat"), {"train": examples}), "Lengths")
    assert table.rows == [("title", "characters", "train", 50, 90, 95, 99, 100, 50.5)]


def test_cumulated_shares():
    assert cumulated([1, 1, 3, 8]) == [(1, 50), (3, 75), (8, 100)]


# Duplicates


def duplicates(description: Description) -> tuple[Table, Table | None]:
    found = [table for table in description.tables if table.title.startswith("Duplicates")]
    return found[0], found[1] if len(found) > 1 else None


def test_loosening_leaves_letters_and_digits():
    assert loosen("‘5G’ 시대, 왔다…!_") == "5G시대왔다"
    assert loosen("?!") == "?!"  # or all such texts would be one
    assert loosen("ㅋㅋ ᄏ") == "ㅋㅋᄏ"


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
    counts, guids = duplicates(describe(get_task("ynat"), {"train": train, "dev": dev}))
    assert cells(counts, SAME, "train", "train %", "dev", "dev in train") == [3, pytest.approx(300 / 7), 0, 1]
    assert cells(counts, CONFLICT, "train", "dev in train") == [1, 0]
    assert cells(counts, NEAR, "train", "dev", "dev in train") == [4, 0, 2]
    assert guids is not None
    found = {row[:2]: row[2] for row in guids.rows}
    assert found[CONFLICT, "train"] == ("ynat-v1_train_00000", "ynat-v1_train_00002")
    assert found[SAME, "train"] == tuple(f"ynat-v1_train_{k:05d}" for k in (0, 1, 2, 4, 5))
    assert found[SAME, "dev in train"] == ("ynat-v1_dev_00007", "ynat-v1_train_00004")
    assert found[NEAR, "dev in train"][:2] == ("ynat-v1_dev_00008", "ynat-v1_train_00006")  # the new one ahead
    assert (CONFLICT, "dev in train") not in found


def test_clean_data_needs_no_guids():
    assert duplicates(describe(get_task("ynat"), {"train": TOY["ynat"]}))[1] is None


def test_exchanged_sentences():
    examples = [pair(0, "가", "나", 1.0), pair(1, "나", "가", 2.0), pair(2, "나", "가", 2.0), pair(3, "다", "다", 5.0)]
    counts, guids = duplicates(describe(get_task("sts"), {"train": examples}))
    assert cells(counts, "pair, sentences exchanged", "train") == [1]
    assert guids is not None
    assert ("pair, sentences exchanged", "train", (examples[0].guid, examples[1].guid)) in guids.rows


def test_exchanged_roles_and_shared_sentences():
    text = "철수는 삼성에 다니고 영희는 논다."
    examples = [
        relation(0, text, "철수", "삼성", "per:employee_of"),
        relation(1, text, "삼성", "철수", "org:top_members/employees", "ORG-PER"),
        relation(2, text, "영희", "삼성", "no_relation"),
        relation(3, text.replace(" ", "  "), "철수", "삼성", "no_relation"),
    ]
    counts, _ = duplicates(describe(get_task("re"), {"train": examples}))
    assert cells(counts, "sentence, roles exchanged", "train") == [1]
    assert cells(counts, "sentence", "train") == [2]
    assert cells(counts, SAME, "train") == [0]  # other entities make another input
    assert cells(counts, NEAR, "train") == [1]


def test_a_dialogue_repeats_when_all_turns_do():
    examples = [
        DialogueExample(f"wos-v1_train_0000{k}-0", f"wos-v1_train_0000{k}", ("안녕하세요",), gold)
        for k, gold in enumerate([(), ("숙소-지역-강남",)])
    ]
    counts, _ = duplicates(describe(get_task("wos"), {"train": examples}))
    assert cells(counts, SAME, "train") == [1]
    assert cells(counts, CONFLICT, "train") == [1]


# Characters


@pytest.mark.parametrize(
    ("character", "kind"),
    [
        ("ᄏ", "conjoining jamo"),
        ("\u1172", "conjoining jamo"),
        ("ㅋ", "compatibility jamo"),
        ("\u3164", "zero-width and control"),  # the Hangul filler
        ("美", "CJK ideographs"),
        ("金", "CJK ideographs"),
        ("％", "full- and half-width forms"),
        ("\u200b", "zero-width and control"),
        ("\x7f", "zero-width and control"),
        ("\ufeff", "zero-width and control"),
        ("\ue000", "private use"),
        ("\ufffd", "replacement character"),
        ("\xa0", "white space other than U+0020"),
        ("\u3000", "white space other than U+0020"),
        ("\n", "white space other than U+0020"),
        ("😀", "emoji"),
        ("★", None),
        ("…", None),
        ("가", None),
        ("A", None),
        (" ", None),
    ],
)
def test_kinds_of_characters(character, kind):
    assert kind_of(character) == kind


def test_character_counts_per_split():
    splits = {
        "train": [headline(0, "재밌다", "사회"), headline(1, "ㅋㅋㅋ 美 방문…", "세계"), headline(2, "ㅠ", "사회")],
        "dev": [headline(3, "ᄏᄏ", "사회", "dev")],
    }
    table = find(describe(get_task("ynat"), splits), "Unusual characters")
    rows = {row[:2]: row[2:] for row in table.rows}
    second = "ynat-v1_train_00001"
    assert rows["compatibility jamo", "train"] == (4, 2, pytest.approx(200 / 3), "ㅋ U+314B, ㅠ U+3160", second)
    assert rows["conjoining jamo", "dev"] == (2, 1, 100, "ᄏ U+110F", "ynat-v1_dev_00003")
    assert rows["CJK ideographs", "train"] == (1, 1, pytest.approx(100 / 3), "美", second)
    assert rows["NFKC would change", "train"][1] == 2  # jamo and the ellipsis
    assert ("NFKC would change", "dev") not in rows
    assert "NFC would change" in table.note


def test_decomposed_korean_changes_under_nfc():
    splits = {"train": [headline(0, "\u1100\u1161", "사회"), headline(1, "가", "사회")]}
    table = find(describe(get_task("ynat"), splits), "Unusual characters")
    assert cells(table, "NFC would change", "rows", "for example") == [1, "ynat-v1_train_00000"]


# Pairs and entities


def test_overlap_counts_pairs_of_characters():
    assert overlap(pair(0, "비가 왔다", "비가 온다", "neutral")) == 33  # 비가, 가온, 온다
    assert overlap(pair(0, "비가 왔다", "비", "neutral")) == 0


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
        relation(0, "김철수, 철수는 삼성에 다닌다.", "철수", "삼성", "per:employee_of"),  # 철수 stands earlier, too
        relation(1, "삼성, 현대 그리고 철수.", "삼성, 현대", "철수", "per:title", "ORG-PER"),  # wrong prefix, a comma
    ]
    table = find(describe(get_task("re"), {"train": examples}), "Subjects and objects")
    count = {row[0]: row[2] for row in table.rows}
    assert count == {
        "label contradicts the subject's type": 1,
        "subject stands after the object": 0,
        "entities overlap": 0,
        "subject and object are the same word": 0,
        "subject followed directly by a letter": 1,
        "object followed directly by a letter": 1,
        "an entity ends the sentence": 0,
        "subject or object has a comma": 1,
        "first match of the subject is another place": 1,
        "first match of the object is another place": 0,
    }


def test_gap_and_overlap_of_entities():
    example = relation(0, "철수는 삼성에", "철수", "삼성", "no_relation")
    assert gap(example) == 2
    inner = RelationExample(
        "g", "한국은행", Entity("한국은행", 0, 4, "ORG"), Entity("한국", 0, 2, "LOC"), "no_relation"
    )
    assert gap(inner) == 0
    assert cells(find(describe(get_task("re"), {"dev": [inner]}), "Subjects"), "entities overlap", "dev") == [1]
    assert not contradicts_prefix(inner)


def test_memorised_pairs():
    train = [relation(0, "철수는 삼성에", "철수", "삼성", "per:employee_of")]
    dev = [
        relation(1, "철수가 삼성을", "철수", "삼성", "per:employee_of"),
        relation(2, "철수도 삼성은", "철수", "삼성", "no_relation"),
        relation(3, "영희는 삼성에", "영희", "삼성", "per:employee_of"),
    ]
    table = find(describe(get_task("re"), {"train": train, "dev": dev}), "Seen in train")
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


def test_slips_of_tagging():
    examples = [
        TextExample("a", "가 나다", ("B-PS", "O", "I-PS", "I-PS")),  # the first I- continues O; the second has its type
        TextExample("b", "가 나다", ("O", "B-PS", "I-PS", "I-PS")),  # B- on a space
        TextExample("c", "가나", ("B-PS", "I-LC")),  # I- of another type
        TextExample("d", "가나", ("O", "O")),
    ]
    assert [orphans(example) for example in examples] == [1, 0, 1, 0]
    table = find(describe(get_task("ner"), {"train": examples}), "Entities and tags")
    assert cells(table, "with orphan I- tags", "train", "for example") == [2, "a"]
    assert cells(table, "spaces that carry B-", "train", "train %", "for example") == [1, 50, "b"]
    assert cells(table, "without any entity", "train") == [1]
    assert cells(table, "next to another entity", "train") == [1]


# Trees, questions, dialogues


def tree(*heads: int) -> ParseExample:
    return ParseExample("g", tuple("가" * len(heads)), tuple((head, "NP") for head in heads))


def test_shapes_of_trees():
    assert crosses(tree(3, 4, 0, 3))  # 1-3 and 2-4
    assert not crosses(tree(2, 0, 2))
    assert not crosses(tree(3, 3, 0))
    assert loops(tree(2, 1, 0))
    assert loops(tree(1, 0))
    assert not loops(tree(2, 3, 0))
    assert roots(tree(0, 0)) == 2


def test_tree_checks():
    table = find(describe(get_task("dp"), {"train": [tree(2, 3, 0), tree(0, 1), tree(0, 0)]}), "Trees")
    assert cells(table, "head to the right", "train", "train %") == [2, pytest.approx(200 / 3)]
    assert cells(table, "the last word is a root", "train") == [2]
    assert cells(table, "several roots", "train") == [1]
    assert cells(table, "arcs cross (non-projective)", "train") == [0]


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
    found = find(description, "Where in the passage")
    assert [row[:2] for row in found.rows] == [("first quarter", 1), ("third quarter", 1)]
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
    assert value_of("숙소-이름-a-b") == "a-b"
    assert last_turns(examples) == [examples[2]]
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


# Tables


class Recorder:
    """A console of a given width that keeps what is printed."""

    def __new__(cls, width: int):
        from rich.console import Console

        console = Console(file=StringIO(), width=width)
        console.text = lambda: console.file.getvalue()
        console.longest = lambda: max(map(wide, console.text().splitlines()))
        return console


def wide(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(line.rstrip())


TABLE = Table("값", ("이름", "수", "%", "비"), [("가|나 [b]", 32470, 29.36, 0.5), ("다", 3, 0.01, None)], "끝")


def test_tables_print_korean_in_line():
    print_tables([TABLE], console := Recorder(80))
    lines = console.text().splitlines()
    first, second = (next(line for line in lines if name in line) for name in ("가|나 [b]", "다"))
    assert first.split() == ["가|나", "[b]", "32,470", "29.4", "0.50"]
    assert second.split() == ["다", "3", "<0.1", "–"]
    assert wide(first) == wide(second)  # numbers end in the same place


def test_numbers_and_guids_stay_whole_in_narrow_tables():
    rows = [("아주 긴 설명이 있는 행이라서 줄을 바꾸어야 한다", 123456, "klue-ner-v1_train_00003_wikitree")]
    print_tables([Table("t", ("무엇", "how many of them", "guid"), rows)], console := Recorder(70))
    assert "123,456" in console.text()
    assert "klue-ner-v1_train_00003_wikitree" in console.text()


@pytest.mark.parametrize("width", [30, 40, 80])
def test_tables_that_are_too_wide_go_on_below(width):
    columns = ("source", "split", *(f"{k} %" for k in range(12)))
    rows = [("airbnb", "train", *(10.5 + k for k in range(12)))]
    print_tables([Table("t", columns, rows, "end")], console := Recorder(width))
    assert console.longest() <= width
    assert all(f"{10.5 + k}" in console.text() for k in range(12))
    assert "…" not in console.text()
    assert console.text().count("end") == 1


def test_tables_as_markdown():
    assert to_markdown(TABLE) == (
        "**값**\n\n| 이름 | 수 | % | 비 |\n| --- | ---: | ---: | ---: |\n"
        "| 가\\|나 \\[b] | 32,470 | 29.4 | 0.50 |\n| 다 | 3 | &lt;0.1 | – |\n\n끝\n"
    )


def test_tables_as_json():
    table = Table("t", ("a", "b"), [(("x", "y"), math.nan), (True, 1.5)])
    assert table.as_dict() == {
        "title": "t",
        "columns": ["a", "b"],
        "rows": [[["x", "y"], None], [True, 1.5]],
        "note": "",
    }


def test_nothing_is_shown_as_minus_zero():
    rows = [(-0.001,), (-0.0,), (0.001,), (0.0,), (-2.5,)]
    assert Table("t", ("difference",), rows).cells() == [(">-0.01",), ("0.00",), ("<0.01",), ("0.00",), ("-2.50",)]


def test_invisible_characters_are_shown_by_their_numbers():
    assert Table("t", ("a",), [("가\u200b\n",)]).cells() == [("가U+200BU+000A",)]


# Plots


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_plots_are_made_without_warnings(task, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of every glyph that the font lacks
        plot_description(describe(task, {"train": TOY[task.name], "dev": TOY[task.name]}), tmp_path / "plot.png")
        plot_description(describe(task, {"dev": TOY[task.name]}), tmp_path / "dev.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert {path.name for path in tmp_path.iterdir()} == {"plot.png", "dev.png"}


def test_the_font_knows_korean():
    from matplotlib.ft2font import FT2Font

    assert FT2Font(str(korean_font())).get_char_index(ord("가"))


def test_settings_and_pyplot_stay_untouched(tmp_path):
    import sys

    import matplotlib

    before = dict(matplotlib.rcParams)
    plot_description(describe(get_task("ynat"), {"dev": TOY["ynat"]}), tmp_path / "plot.svg")
    assert dict(matplotlib.rcParams) == before
    assert "koreanize_matplotlib" not in sys.modules


def test_the_same_figure_is_the_same_file(tmp_path):
    description = describe(get_task("ynat"), {"dev": TOY["ynat"]})
    for name in ("a.svg", "b.svg", "a.pdf", "b.pdf"):
        plot_description(description, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()


def test_unknown_kinds_of_plots_are_refused(tmp_path):
    with pytest.raises(DanseoError, match="png, svg, pdf"):
        plot_description(describe(get_task("ynat"), {"dev": TOY["ynat"]}), tmp_path / "plot.foo")
    assert not list(tmp_path.iterdir())


def test_a_failed_plot_leaves_the_old_one(tmp_path):
    path = tmp_path / "plot.png"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), korean_figure(path, 2, 2):
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"


# The real files


def real(name: str) -> dict[str, list]:
    task = get_task(name)
    folder = KLUE / task.folder
    found = {
        split: path
        for split in ("train", "dev")
        for path in (folder / task.file(split), folder / f"{task.file(split)}.gz")
        if path.is_file()
    }
    if set(found) != {"train", "dev"}:
        pytest.skip(f"the KLUE files of {name} are not in {folder}")
    return {split: task.read(path) for split, path in found.items()}


def test_known_facts_of_relations():
    golden = Path(__file__).parent / "fixtures" / "relation_counts.json"
    splits = real("re")
    table = find(describe(get_task("re"), splits), "Labels: the relation")
    assert {row[0]: row[1] for row in table.rows} == json.loads(golden.read_text())["train_counts"]
    assert cells(table, "no_relation", "dev/train")[0] == pytest.approx(2.03, abs=0.01)


def test_known_facts_of_entities():
    description = describe(get_task("ner"), real("ner"))
    jamo = [row for row in find(description, "Unusual characters").rows if row[:2] == ("conjoining jamo", "dev")]
    assert jamo[0][4] == pytest.approx(6.3, abs=0.5)
    tags = find(description, "Entities and tags")
    assert cells(tags, "with orphan I- tags", "dev") == [0]
    assert cells(tags, "spaces that carry B-", "dev") == [2]


def test_known_facts_of_trees():
    table = find(describe(get_task("dp"), real("dp")), "Trees")
    assert cells(table, "head to the right", "train %", "dev %") == [100, 100]


def test_all_real_files_are_described_quickly():
    splits = {name: real(name) for name in TASKS}
    start = time.process_time()
    for name in TASKS:
        describe(get_task(name), splits[name])
    assert time.process_time() - start < 15
