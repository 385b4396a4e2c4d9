"""Prompts and replies, without any model: the right reply reads back as gold, and whatever else comes is classified."""

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import pytest

from danseo.errors import DanseoError
from danseo.metrics.tagging import list_entities
from danseo.models.llm.formats import make_format
from danseo.models.llm.prompt_template import (
    drop_dev_texts,
    join_texts,
    load_template,
    parse_template,
    sample_shots,
)
from danseo.models.llm.reply import CLASSES
from danseo.models.llm.settings import PromptSettings
from danseo.records import Entity, QuestionExample, RelationExample, TextExample
from danseo.tasks import TASKS
from tests.tiny import read_split

GOLDEN = json.loads((Path(__file__).parents[2] / "fixtures" / "ner_replies.json").read_text("utf-8"))


def prompt_format(task: str, **settings):
    config = PromptSettings(**settings)
    return make_format(TASKS[task], config, load_template(TASKS[task], config.output_format))


@pytest.mark.parametrize("task", TASKS)
def test_the_right_reply_is_the_gold_answer(task, sample):
    ner_format = prompt_format(task)
    for example in read_split(sample, task, "dev", 60):
        reply = ner_format.parse_reply(example, ner_format.gold_reply(example))
        assert not +reply.errors
        due = {"sts": lambda e: round(e.gold, 1), "mrc": lambda e: e.gold[0] if e.gold else ""}.get(
            task, lambda e: e.gold
        )
        assert (set(reply.answer), task) == (set(due(example)), task) if task == "wos" else reply.answer == due(example)
        TASKS[task].check_answer(example, reply.answer)


@pytest.mark.parametrize("shape", ["inline", "tsv"])
def test_other_shapes_of_entities_read_back(shape, sample):
    ner_format = prompt_format("ner", output_format=shape)
    for example in read_split(sample, "ner", "dev", 60):
        assert ner_format.parse_reply(example, ner_format.gold_reply(example)).answer == example.gold
        assert ner_format.schema(example) is None


@pytest.mark.parametrize("task", TASKS)
def test_prompts_show_the_example_and_describe_the_reply(task, sample):
    ner_format = prompt_format(task)
    example, shot = read_split(sample, task, "dev", 2)
    told = ner_format.messages(example, [shot])
    assert [message["role"] for message in told] == ["system", "user", "assistant", "user"]
    assert "{{" not in "".join(message["content"] for message in told)
    assert told[2]["content"] == ner_format.gold_reply(shot)
    for part in join_texts(example).split():
        assert part in told[3]["content"].replace('\\"', '"')
    assert all(label in told[0]["content"] for label in ner_format.label_names)


@pytest.mark.parametrize("task", TASKS)
def test_schemas_take_gold_and_refuse_other_things(task, sample):
    jsonschema = pytest.importorskip("jsonschema")
    ner_format = prompt_format(task)
    for example in read_split(sample, task, "dev", 20):
        schema = jsonschema.Draft202012Validator(ner_format.schema(example))
        schema.validate(json.loads(ner_format.gold_reply(example)))
        for odd in (
            {},
            {"label": "무엇"},
            {"score": 7},
            {"words": []},
            {"state": {"없는-항목": "x"}},
            {"answer": 1},
            [],
        ):
            assert not schema.is_valid(odd)


@pytest.mark.parametrize("case", GOLDEN["triplet_parsing"]["cases"], ids=lambda case: case["name"])
def test_golden_triplets(case):
    ner_format, example = prompt_format("ner"), TextExample("g", case["text"], ())
    reply = ner_format.parse_reply(example, case["raw_output"])
    spans = [list(span) for span in list_entities(reply.answer)] if reply.answer else []
    assert spans == case["expected_spans"]
    assert dict(+reply.errors) == case["expected_errors"]


def test_truncated_reply_can_be_kept():
    case = next(case for case in GOLDEN["triplet_parsing"]["cases"] if case["name"] == "truncated json")
    reply = prompt_format("ner", keep_truncated=True).parse_reply(
        TextExample("g", case["text"], ()), case["raw_output"]
    )
    assert list(list_entities(reply.answer)) == [(0, 3, "PS")]
    assert reply.errors["salvaged"] == 1


def test_decomposed_letters_are_found_in_the_sentence_as_written():
    text = normalize("NFD", "박지성은 수원에서")
    start = len(normalize("NFD", "박지성은 "))
    reply = prompt_format("ner").parse_reply(
        TextExample("g", text, ()), '{"entities":[{"text":"수원","type":"LC","occ":0}]}'
    )
    assert list(list_entities(reply.answer)) == [(start, start + len(normalize("NFD", "수원")), "LC")]
    assert len(reply.answer) == len(text)


def test_inline_tags_have_to_leave_the_sentence_alone():
    ner_format, example = prompt_format("ner", output_format="inline"), TextExample("g", "박지성은 왔다", ())
    assert list(list_entities(ner_format.parse_reply(example, "<PS>박지성</PS>은 왔다\n끝").answer)) == [(0, 3, "PS")]
    assert ner_format.parse_reply(example, "<PS>박지성</PS>은 갔다").errors == {"malformed": 1}
    assert ner_format.parse_reply(example, "<PS>박지성은 왔다").has_failed
    assert ner_format.parse_reply(example, "<CITY>박지성</CITY>은 왔다").errors == {"unknown_type": 1}


def test_answers_are_in_the_passage():
    ner_format = prompt_format("mrc")
    example = QuestionExample("g", "서울은 대한민국의 수도이다.", "수도는?", ())
    assert ner_format.parse_reply(example, '{"answer":"서울"}').span == (0, 2)
    assert ner_format.parse_reply(example, '{"answer":null}').answer == ""
    assert ner_format.parse_reply(example, '{"answer":"부산"}').errors == {"not_in_text": 1}
    assert ner_format.failed_answer(example) != ""


def test_long_passages_are_cut_into_windows_and_their_replies_joined():
    ner_format = prompt_format("mrc")
    text = "".join(chr(0xAC00 + position % 5000) for position in range(3000))
    example = QuestionExample("g", text, "무엇?", ())
    parts = ner_format.split_example(example, 2000)
    assert all(len(part.text) <= 1000 for part in parts)
    assert parts[-1].text.endswith(text[-1])
    assert all(a.text[-100:] == b.text[:100] for a, b in itertools.pairwise(parts))
    replies = [ner_format.parse_reply(part, '{"answer":null}') for part in parts[:-1]]
    last = ner_format.parse_reply(parts[-1], json.dumps({"answer": parts[-1].text[200:210]}))
    joined = ner_format.join_replies(example, [*replies, last])
    assert text[slice(*joined.span)] == joined.answer == parts[-1].text[200:210]
    assert ner_format.join_replies(example, replies).answer == ""
    assert ner_format.join_replies(example, [*replies, ner_format.parse_reply(example, "모름")]).has_failed


def test_oldest_turns_are_dropped_first(sample):
    ner_format = prompt_format("wos")
    example = next(e for e in read_split(sample, "wos", "dev") if len(e.turns) >= 5)
    (shorter,) = ner_format.split_example(example, len(example.turns[0]) + 1)
    assert shorter.turns == example.turns[1:]
    assert ner_format.user_message(shorter).splitlines()[-1].startswith("사용자: ")
    assert ner_format.user_message(shorter).splitlines()[0].startswith("안내원: ")


def test_types_allow_only_labels_that_training_has():
    def example(kind: str, gold: str) -> RelationExample:
        return RelationExample(kind + gold, "가 나", Entity("가", 0, 1, "PER"), Entity("나", 2, 3, kind), gold)

    ner_format = prompt_format("re", allowed_labels_only=True)
    ner_format.prepare([example("PER", "per:spouse"), example("PER", "no_relation"), example("LOC", "per:origin")])
    assert ner_format.labels_for(example("PER", "no_relation")) == ("no_relation", "per:spouse")
    assert "per:spouse" in ner_format.user_message(example("PER", "no_relation"))
    assert "per:" not in ner_format.system_message()
    assert ner_format.schema(example("LOC", "x"))["properties"]["label"]["enum"] == ["per:origin"]
    again = prompt_format("re", allowed_labels_only=True)
    again.restore(json.loads(json.dumps(ner_format.state())))
    assert again.allowed == ner_format.allowed


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
def test_error_classes(text, finish, classes):
    reply = prompt_format("ynat").parse_reply(TextExample("g", "제목", "정치"), text, finish)
    assert set(+reply.errors) == classes
    assert reply.has_failed == (classes != {"duplicate"})


def test_a_reply_that_failed_is_never_right(sample):
    from danseo.records import Prediction
    from danseo.scoring.score import score

    for task in TASKS.values():
        examples = read_split(sample, task.name, "dev", 80)
        ner_format = prompt_format(task.name)
        wrong = [Prediction(e.guid, task.check_answer(e, ner_format.failed_answer(e))) for e in examples]
        for found in score(task, examples, wrong, rounds=0, skip=task.needs_probabilities):
            if not found.id.startswith(("sts/", "ner/char", "ner/sentence")):  # O is right where nothing is to be found
                assert found.value in (0, None) or found.value != found.value, found


def test_five_thousand_replies_give_only_known_classes(sample):
    rng = random.Random(7)
    tasks = [(prompt_format(name), read_split(sample, name, "dev", 12)) for name in TASKS]
    tasks += [
        (prompt_format("ner", output_format=shape), read_split(sample, "ner", "dev", 12)) for shape in ("inline", "tsv")
    ]
    tasks += [(prompt_format("ner", keep_truncated=True), read_split(sample, "ner", "dev", 12))]
    for number in range(5000):
        ner_format, examples = tasks[number % len(tasks)]
        example = rng.choice(examples)
        text = damaged(ner_format.gold_reply(rng.choice(examples) if rng.random() < 0.3 else example), rng)
        reply = ner_format.parse_reply(example, text, rng.choice(["stop", "length", None, "content_filter"]))
        assert set(reply.errors) <= set(CLASSES), text
        answer = ner_format.failed_answer(example) if reply.has_failed else reply.answer
        assert reply.answer is not None or sum(reply.errors.values())
        json.dumps(ner_format.task.check_answer(example, answer), ensure_ascii=False).encode()


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


# Shots


def test_shots_come_from_every_label_and_never_from_dev(sample):
    train, dev = read_split(sample, "ynat", "train"), read_split(sample, "ynat", "dev")
    copied = replace(dev[0], guid="copy")
    usable = drop_dev_texts([copied, *train], dev)
    assert copied not in usable
    shots = sample_shots(usable, 7, 1, lambda example: example.gold)
    assert len({shot.gold for shot in shots}) == 7
    assert shots == sample_shots(list(reversed(usable)), 7, 1, lambda example: example.gold)
    assert shots != sample_shots(usable, 7, 2, lambda example: example.gold)
    with pytest.raises(DanseoError, match="only 7"):
        sample_shots(shots, 8, 1, lambda example: example.gold)


# Templates


def test_templates_are_checked():
    task = TASKS["ynat"]
    with pytest.raises(DanseoError, match="no part == user =="):
        parse_template("== system ==\n하세요\n", "own.txt")
    with pytest.raises(DanseoError, match=r"has no \{\{text\}\}"):
        make_format(task, PromptSettings(), parse_template("== system ==\n하세요\n== user ==\n제목\n", "own.txt"))
    with pytest.raises(DanseoError, match=r"nothing fills \{\{title\}\}"):
        make_format(task, PromptSettings(), parse_template("== system ==\n하세요\n== user ==\n{{title}}\n", "own.txt"))


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("ynat", {"output_format": "tsv"}, "only entities"),
        ("ner", {"mode": "likelihood"}, "only labels"),
        ("ynat", {"allowed_labels_only": True}, "only re"),
        ("mrc", {"keep_truncated": True}, "only entities"),
    ],
)
def test_settings_without_use_are_refused(task, settings, message):
    config = PromptSettings(**settings)
    with pytest.raises(DanseoError, match=message):
        make_format(TASKS[task], config, load_template(TASKS[task]))
