"""Prompts and replies, without any model: the right reply reads back as gold, and whatever else comes is classified."""

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import pytest

from danseo.errors import DanseoError
from danseo.metrics.tagging import spans_of
from danseo.models.llm.kinds import make_asking
from danseo.models.llm.reply import CLASSES, is_complete, is_open
from danseo.models.llm.settings import PromptConfig
from danseo.models.llm.shots import Nearest, seeded, text_of, unseen
from danseo.models.llm.template import load_template, parsed
from danseo.records import Entity, QuestionExample, RelationExample, TextExample
from danseo.tasks import TASKS
from tests.tiny import read_split

GOLDEN = json.loads((Path(__file__).parents[2] / "fixtures" / "ner_replies.json").read_text("utf-8"))


def asking(task: str, **settings):
    config = PromptConfig(**settings)
    return make_asking(TASKS[task], config, load_template(TASKS[task], config.shape))


@pytest.mark.parametrize("task", TASKS)
def test_the_right_reply_is_the_gold_answer(task, sample):
    asked = asking(task)
    for example in read_split(sample, task, "dev", 60):
        reply = asked.read(example, asked.gold(example))
        assert not +reply.errors
        due = {"sts": lambda e: round(e.gold, 1), "mrc": lambda e: e.gold[0] if e.gold else ""}.get(
            task, lambda e: e.gold
        )
        assert (set(reply.answer), task) == (set(due(example)), task) if task == "wos" else reply.answer == due(example)
        TASKS[task].check_answer(example, reply.answer)


@pytest.mark.parametrize("shape", ["inline", "tsv"])
def test_other_shapes_of_entities_read_back(shape, sample):
    asked = asking("ner", shape=shape)
    for example in read_split(sample, "ner", "dev", 60):
        assert asked.read(example, asked.gold(example)).answer == example.gold
        assert asked.schema(example) is None


@pytest.mark.parametrize("task", TASKS)
def test_prompts_show_the_example_and_describe_the_reply(task, sample):
    asked = asking(task)
    example, shot = read_split(sample, task, "dev", 2)
    told = asked.messages(example, [shot])
    assert [message["role"] for message in told] == ["system", "user", "assistant", "user"]
    assert "{{" not in "".join(message["content"] for message in told)
    assert told[2]["content"] == asked.gold(shot)
    for part in text_of(example).split():
        assert part in told[3]["content"].replace('\\"', '"')
    assert all(label in told[0]["content"] for label in asked.names)


@pytest.mark.parametrize("task", TASKS)
def test_schemas_take_gold_and_refuse_other_things(task, sample):
    jsonschema = pytest.importorskip("jsonschema")
    asked = asking(task)
    for example in read_split(sample, task, "dev", 20):
        schema = asked.schema(example)
        jsonschema.validate(json.loads(asked.gold(example)), schema)
        for odd in (
            {},
            {"label": "무엇"},
            {"score": 7},
            {"words": []},
            {"state": {"없는-항목": "x"}},
            {"answer": 1},
            [],
        ):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(odd, schema)


@pytest.mark.parametrize("case", GOLDEN["triplet_parsing"]["cases"], ids=lambda case: case["name"])
def test_golden_triplets(case):
    asked, example = asking("ner"), TextExample("g", case["text"], ())
    reply = asked.read(example, case["raw_output"])
    spans = [list(span) for span in spans_of(reply.answer)] if reply.answer else []
    assert spans == case["expected_spans"]
    assert dict(+reply.errors) == case["expected_errors"]


def test_a_cut_reply_can_be_salvaged():
    case = next(case for case in GOLDEN["triplet_parsing"]["cases"] if case["name"] == "truncated json")
    reply = asking("ner", salvage=True).read(TextExample("g", case["text"], ()), case["raw_output"])
    assert list(spans_of(reply.answer)) == [(0, 3, "PS")]
    assert reply.errors["salvaged"] == 1


def test_decomposed_letters_are_found_in_the_sentence_as_written():
    text = normalize("NFD", "박지성은 수원에서")
    start = len(normalize("NFD", "박지성은 "))
    reply = asking("ner").read(TextExample("g", text, ()), '{"entities":[{"text":"수원","type":"LC","occ":0}]}')
    assert list(spans_of(reply.answer)) == [(start, start + len(normalize("NFD", "수원")), "LC")]
    assert len(reply.answer) == len(text)


def test_inline_tags_have_to_leave_the_sentence_alone():
    asked, example = asking("ner", shape="inline"), TextExample("g", "박지성은 왔다", ())
    assert list(spans_of(asked.read(example, "<PS>박지성</PS>은 왔다\n끝").answer)) == [(0, 3, "PS")]
    assert asked.read(example, "<PS>박지성</PS>은 갔다").errors == {"malformed": 1}
    assert asked.read(example, "<PS>박지성은 왔다").has_failed
    assert asked.read(example, "<CITY>박지성</CITY>은 왔다").errors == {"unknown_type": 1}


def test_answers_stand_in_the_passage():
    asked = asking("mrc")
    example = QuestionExample("g", "서울은 대한민국의 수도이다.", "수도는?", ())
    assert asked.read(example, '{"answer":"서울"}').span == (0, 2)
    assert asked.read(example, '{"answer":null}').answer == ""
    assert asked.read(example, '{"answer":"부산"}').errors == {"not_in_text": 1}
    assert asked.wrong(example) != ""


def test_long_passages_are_cut_into_windows_and_their_replies_joined():
    asked = asking("mrc")
    text = "".join(chr(0xAC00 + position % 5000) for position in range(3000))
    example = QuestionExample("g", text, "무엇?", ())
    parts = asked.pieces(example, 2000)
    assert all(len(part.text) <= 1000 for part in parts)
    assert parts[-1].text.endswith(text[-1])
    assert all(a.text[-100:] == b.text[:100] for a, b in itertools.pairwise(parts))
    replies = [asked.read(part, '{"answer":null}') for part in parts[:-1]]
    last = asked.read(parts[-1], json.dumps({"answer": parts[-1].text[200:210]}))
    joined = asked.joined(example, [*replies, last])
    assert text[slice(*joined.span)] == joined.answer == parts[-1].text[200:210]
    assert asked.joined(example, replies).answer == ""
    assert asked.joined(example, [*replies, asked.read(example, "모름")]).has_failed


def test_old_turns_go_first(sample):
    asked = asking("wos")
    example = next(e for e in read_split(sample, "wos", "dev") if len(e.turns) >= 5)
    (shorter,) = asked.pieces(example, len(example.turns[0]) + 1)
    assert shorter.turns == example.turns[1:]
    assert asked.user(shorter).splitlines()[-1].startswith("사용자: ")
    assert asked.user(shorter).splitlines()[0].startswith("안내원: ")


def test_types_allow_only_labels_that_training_has():
    def example(kind: str, gold: str) -> RelationExample:
        return RelationExample(kind + gold, "가 나", Entity("가", 0, 1, "PER"), Entity("나", 2, 3, kind), gold)

    asked = asking("re", allowed_only=True)
    asked.prepare([example("PER", "per:spouse"), example("PER", "no_relation"), example("LOC", "per:origin")])
    assert asked.labels_for(example("PER", "no_relation")) == ("no_relation", "per:spouse")
    assert "per:spouse" in asked.user(example("PER", "no_relation"))
    assert "per:" not in asked.system()
    assert asked.schema(example("LOC", "x"))["properties"]["label"]["enum"] == ["per:origin"]
    again = asking("re", allowed_only=True)
    again.restore(json.loads(json.dumps(asked.state())))
    assert again.allowed == asked.allowed


@pytest.mark.parametrize(
    ("text", "finish", "classes"),
    [
        ("죄송하지만 답변할 수 없습니다.", "stop", {"malformed", "refused"}),
        ("", "content_filter", {"malformed", "refused"}),
        ('{"label":"정', "length", {"malformed", "truncated"}),
        ("<think>음", "length", {"malformed", "unclosed_think", "reasoning_exhausted"}),
        ("<think>음", "stop", {"malformed", "unclosed_think"}),
        ('{"label":"날씨"}', "stop", {"unknown_type"}),
        ('{"label":3}', "stop", {"malformed"}),
        ('{"label":"정치","label":"경제"}', "stop", {"duplicate"}),
        ("", "stop", {"malformed"}),
        ('{"label":' + "[" * 100000, "stop", {"malformed", "truncated"}),
        ('{"label":NaN}', "stop", {"malformed"}),
    ],
)
def test_what_is_wrong_with_a_reply(text, finish, classes):
    reply = asking("ynat").read(TextExample("g", "제목", "정치"), text, finish)
    assert set(+reply.errors) == classes
    assert reply.has_failed == (classes != {"duplicate"})


def test_a_reply_that_failed_is_never_right(sample):
    from danseo.records import Prediction
    from danseo.scoring.score import score

    for task in TASKS.values():
        examples = read_split(sample, task.name, "dev", 80)
        asked = asking(task.name)
        wrong = [Prediction(e.guid, task.check_answer(e, asked.wrong(e))) for e in examples]
        for found in score(task, examples, wrong, rounds=0, skip=task.needs_probabilities):
            if not found.id.startswith(("sts/", "ner/char", "ner/sentence")):  # O is right where nothing is to be found
                assert found.value in (0, None) or found.value != found.value, found


def test_no_answer_is_no_label_of_its_own():
    from danseo.metrics.classification import label_macro_f1

    assert label_macro_f1(["가", "나"], ["가", ""]).value() == pytest.approx(50)


def test_five_thousand_replies_give_only_known_classes(sample):
    rng = random.Random(7)
    tasks = [(asking(name), read_split(sample, name, "dev", 12)) for name in TASKS]
    tasks += [(asking("ner", shape=shape), read_split(sample, "ner", "dev", 12)) for shape in ("inline", "tsv")]
    tasks += [(asking("ner", salvage=True), read_split(sample, "ner", "dev", 12))]
    for number in range(5000):
        asked, examples = tasks[number % len(tasks)]
        example = rng.choice(examples)
        text = damaged(asked.gold(rng.choice(examples) if rng.random() < 0.3 else example), rng)
        reply = asked.read(example, text, rng.choice(["stop", "length", None, "content_filter"]))
        assert set(reply.errors) <= set(CLASSES), text
        answer = asked.wrong(example) if reply.has_failed else reply.answer
        assert reply.answer is not None or sum(reply.errors.values())
        json.dumps(asked.task.check_answer(example, answer), ensure_ascii=False).encode()


ODD = ["{", "}", "[", "]", '"', "\\", ",", ":", "null", "-1", "1e999", "<think>", "</think>", "```json\n", "\n\n", "\t"]
ODD += [
    "\\ud800",
    "NaN",
    "true",
    "<PS>",
    "</PS>",
    "9" * 5000,
    "{}",
    "[]",
    '{"label":',
    "죄송합니다",
    "\u2028",
    "👍",
    "\x00",
]


def damaged(text: str, rng: random.Random) -> str:
    for _ in range(rng.randrange(4)):
        position, way = rng.randrange(len(text) + 1), rng.randrange(5)
        piece = rng.choice(ODD)
        text = (
            text[:position],
            text[:position] + piece + text[position:],
            text[:position] + piece + text[position + 1 :],
            piece + text,
            text.replace(rng.choice(text or "가"), piece, 1),
        )[way]
    return text


def test_whole_objects_are_known_from_their_braces():
    assert is_complete('답: {"a":"}\\"","b":[1]} 끝')
    assert is_open('{"a":"}')
    assert not is_complete('{"a":"}')
    assert not is_open("아니요")
    assert not is_complete("아니요")


# Shots


def test_shots_come_from_every_label_and_never_from_dev(sample):
    train, dev = read_split(sample, "ynat", "train"), read_split(sample, "ynat", "dev")
    copied = replace(dev[0], guid="copy")
    usable = unseen([copied, *train], dev)
    assert copied not in usable
    shots = seeded(TASKS["ynat"], usable, 7, 1)
    assert len({shot.gold for shot in shots}) == 7
    assert shots == seeded(TASKS["ynat"], list(reversed(usable)), 7, 1)
    assert shots != seeded(TASKS["ynat"], usable, 7, 2)
    with pytest.raises(DanseoError, match="only 7"):
        seeded(TASKS["ynat"], shots, 8, 1)


def test_the_nearest_shot_comes_last(sample):
    train = read_split(sample, "nli", "train", 50)
    (found,) = Nearest(train).of([replace(train[9], guid="x")], 3)
    assert len(found) == 3
    assert text_of(found[-1]) == text_of(train[9])


# Templates


def test_templates_are_checked():
    task = TASKS["ynat"]
    with pytest.raises(DanseoError, match="no part == user =="):
        parsed("== system ==\n하세요\n", "own.txt")
    with pytest.raises(DanseoError, match=r"has no \{\{text\}\}"):
        make_asking(task, PromptConfig(), parsed("== system ==\n하세요\n== user ==\n제목\n", "own.txt"))
    with pytest.raises(DanseoError, match=r"nothing fills \{\{title\}\}"):
        make_asking(task, PromptConfig(), parsed("== system ==\n하세요\n== user ==\n{{title}}\n", "own.txt"))


def test_what_fills_a_place_is_not_filled_again():
    asked = asking("ynat")
    assert "{{labels}}" in asked.user(TextExample("g", "{{labels}}", "정치"))


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("ynat", {"shape": "tsv"}, "only entities"),
        ("ner", {"mode": "likelihood"}, "only labels"),
        ("ynat", {"allowed_only": True}, "only re"),
        ("mrc", {"salvage": True}, "only entities"),
    ],
)
def test_settings_without_use_are_refused(task, settings, message):
    config = PromptConfig(**settings)
    with pytest.raises(DanseoError, match=message):
        make_asking(TASKS[task], config, load_template(TASKS[task]))
