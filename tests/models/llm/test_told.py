"""What servers tell of labels they did not write becomes probabilities, and what they do not tell does not."""

import math

import pytest

from danseo.models.llm.told import steps_of, told_weights
from danseo.tasks import TASKS
from tests.models.llm.stub import said, serving
from tests.models.llm.test_server import prompted
from tests.tiny import read_split

REPLIES = {"참": '{"label":"참"}', "거짓": '{"label":"거짓"}', "모름": '{"label":"모름"}'}


def entry(token: str | bytes, share: float, **others: float) -> dict:
    told = [{"token": other, "logprob": math.log(part)} for other, part in others.items()]
    found = {"token": str(token), "logprob": math.log(share), "top_logprobs": told}
    return found | ({"bytes": list(token)} if isinstance(token, bytes) else {})


def weights(*entries: dict, replies=REPLIES):
    steps = steps_of({"choices": [{"logprobs": {"content": list(entries)}}]})
    return told_weights(steps, replies) if steps else None


def test_alternatives_that_only_one_label_begins_with_are_its_weight():
    found = weights(
        entry(
            '{"',
            1.0,
        ),
        entry('label":"', 1.0),
        entry("참", 0.6, 거짓=0.3, 모=0.1),
        entry('"}', 1.0),
    )
    assert {label: math.exp(weight) for label, weight in found.items()} == pytest.approx(
        {"참": 0.6, "거짓": 0.3, "모름": 0.1}, abs=1e-5
    )


def test_white_space_parts_of_syllables_and_several_ways_to_one_label():
    lead, rest = "참".encode()[:2], "참".encode()[2:]
    found = weights(
        entry('{ "label": "', 1.0),
        entry(lead, 0.5, 거=0.2, 거짓=0.1, 모름=0.195, 또=0.005),
        entry(rest, 1.0),
        entry('"', 1),
    )
    assert {label: math.exp(weight) for label, weight in found.items()} == pytest.approx(
        {"참": 0.5, "거짓": 0.3, "모름": 0.195}, abs=1e-5
    )


def test_what_is_not_told_is_not_made_up():
    head = entry('{"label":"', 1.0)
    assert weights(head, entry("참", 0.6, 거짓=0.3)) is None  # a tenth may be 모름
    assert set(weights(head, entry("참", 0.6, 거짓=0.399))) == {"참", "거짓"}  # less than a hundredth is open
    assert weights(head, entry("참", 0.6), entry('"}', 1.0)) is None
    assert weights(entry("모르겠습니다", 0.6, 참=0.4)) is None
    shared = {"a": "per:a", "b": "per:b", "c": "org"}
    assert weights(entry("org", 0.6, per=0.4), replies=shared) is None  # a or b
    assert weights(entry("per:", 0.6, org=0.4), entry("a", 0.5, b=0.5), replies=shared) is not None


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"choices": []},
        {"choices": [{"logprobs": None}]},
        {"choices": [{"logprobs": {"content": [{"token": "참"}]}}]},
    ],
)
def test_servers_that_tell_nothing(document):
    assert steps_of(document) is None


def answered(label: str, **others: float) -> dict:
    found = said(f'{{"label":"{label}"}}')
    rest = 1 - sum(others.values())
    content = [entry('{"label":"', 1.0), entry(label, rest, **others), entry('"}', 1.0)]
    found["choices"][0]["logprobs"] = {"content": content}
    return found


def test_a_server_that_tells_gives_probabilities(sample):
    examples = read_split(sample, "nli", "dev", 3)
    with serving(lambda body, before: answered("neutral", entailment=0.25, contradiction=0.25)) as (url, bodies):
        model = prompted(url, "nli")
        found = model.ask(examples)
    assert all(body["top_logprobs"] == 20 for body in bodies)
    assert [p.answer for p in found] == ["neutral"] * 3
    expected = {"neutral": 0.5, "entailment": 0.25, "contradiction": 0.25}
    assert all(p.probabilities == pytest.approx(expected, abs=1e-5) for p in found)
    assert set(found[0].probabilities) == set(TASKS["nli"].labels)


def test_a_server_that_takes_no_alternatives_is_asked_without(sample):
    def answer(body, before):
        return (400, {}, "top_logprobs is not supported") if "top_logprobs" in body else said('{"label":"neutral"}')

    examples = read_split(sample, "nli", "dev", 3)
    with serving(answer) as (url, bodies):
        found = prompted(url, "nli").ask(examples)
    assert [(p.answer, p.probabilities) for p in found] == [("neutral", None)] * 3
    assert sum("top_logprobs" not in body for body in bodies) == 3


def test_other_tasks_ask_for_none(sample):
    with serving(lambda body, before: said('{"score":3.0}')) as (url, bodies):
        prompted(url, "sts").ask(read_split(sample, "sts", "dev", 2))
    assert all("top_logprobs" not in body for body in bodies)
