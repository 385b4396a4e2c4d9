"""What servers tell of labels they did not write becomes probabilities, and what they do not tell does not."""

import math

import pytest

from danseo.models.llm.reply import compute_label_logprobs, read_token_logprobs
from danseo.tasks import TASKS
from tests.models.llm.stub import make_completion, serving
from tests.models.llm.test_server_backend import prompted
from tests.tiny import read_split

REPLIES = {"참": '{"label":"참"}', "거짓": '{"label":"거짓"}', "모름": '{"label":"모름"}'}


def make_entry(token: str | bytes, share: float, **others: float) -> dict:
    alternatives = [{"token": other, "logprob": math.log(part)} for other, part in others.items()]
    found = {"token": str(token), "logprob": math.log(share), "top_logprobs": alternatives}
    return found | ({"bytes": list(token)} if isinstance(token, bytes) else {})


def compute_weights(*entries: dict, replies=REPLIES):
    steps = read_token_logprobs({"choices": [{"logprobs": {"content": list(entries)}}]})
    return compute_label_logprobs(steps, replies) if steps else None


def test_alternatives_of_one_label_count_for_it():
    found = compute_weights(
        make_entry('{"', 1.0),
        make_entry('label":"', 1.0),
        make_entry("참", 0.6, 거짓=0.3, 모=0.1),
        make_entry('"}', 1.0),
    )
    assert {label: math.exp(weight) for label, weight in found.items()} == pytest.approx(
        {"참": 0.6, "거짓": 0.3, "모름": 0.1}, abs=1e-5
    )


def test_white_space_parts_of_syllables_and_several_ways_to_one_label():
    lead, rest = "참".encode()[:2], "참".encode()[2:]
    found = compute_weights(
        make_entry('{ "label": "', 1.0),
        make_entry(lead, 0.5, 거=0.2, 거짓=0.1, 모름=0.195, 또=0.005),
        make_entry(rest, 1.0),
        make_entry('"', 1),
    )
    assert {label: math.exp(weight) for label, weight in found.items()} == pytest.approx(
        {"참": 0.5, "거짓": 0.3, "모름": 0.195}, abs=1e-5
    )


def test_unknown_probabilities_are_not_estimated():
    head = make_entry('{"label":"', 1.0)
    assert compute_weights(head, make_entry("참", 0.6, 거짓=0.3)) is None  # a tenth may be 모름
    assert set(compute_weights(head, make_entry("참", 0.6, 거짓=0.399))) == {
        "참",
        "거짓",
    }  # less than a hundredth is open
    assert compute_weights(head, make_entry("참", 0.6), make_entry('"}', 1.0)) is None
    assert compute_weights(make_entry("모르겠습니다", 0.6, 참=0.4)) is None
    shared = {"a": "per:a", "b": "per:b", "c": "org"}
    assert compute_weights(make_entry("org", 0.6, per=0.4), replies=shared) is None  # a or b
    assert compute_weights(make_entry("per:", 0.6, org=0.4), make_entry("a", 0.5, b=0.5), replies=shared) is not None


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"choices": []},
        {"choices": [{"logprobs": None}]},
        {"choices": [{"logprobs": {"content": [{"token": "참"}]}}]},
    ],
)
def test_servers_without_logprobs(document):
    assert read_token_logprobs(document) is None


def make_answer(label: str, **others: float) -> dict:
    found = make_completion(f'{{"label":"{label}"}}')
    rest = 1 - sum(others.values())
    content = [make_entry('{"label":"', 1.0), make_entry(label, rest, **others), make_entry('"}', 1.0)]
    found["choices"][0]["logprobs"] = {"content": content}
    return found


def test_server_with_logprobs_gives_probabilities(sample):
    examples = read_split(sample, "nli", "dev", 3)
    with serving(lambda body, before: make_answer("neutral", entailment=0.25, contradiction=0.25)) as (url, bodies):
        model = prompted(url, "nli")
        found = model.prompt(examples)
    assert all(body["top_logprobs"] == 20 for body in bodies)
    assert [p.answer for p in found] == ["neutral"] * 3
    expected = {"neutral": 0.5, "entailment": 0.25, "contradiction": 0.25}
    assert all(p.probabilities == pytest.approx(expected, abs=1e-5) for p in found)
    assert set(found[0].probabilities) == set(TASKS["nli"].labels)


def test_server_that_refuses_top_logprobs(sample):
    def answer(body, before):
        return (
            (400, {}, "top_logprobs is not supported")
            if "top_logprobs" in body
            else make_completion('{"label":"neutral"}')
        )

    examples = read_split(sample, "nli", "dev", 3)
    with serving(answer) as (url, bodies):
        found = prompted(url, "nli").prompt(examples)
    assert [(p.answer, p.probabilities) for p in found] == [("neutral", None)] * 3
    assert sum("top_logprobs" not in body for body in bodies) == 3


def test_other_tasks_request_no_logprobs(sample):
    with serving(lambda body, before: make_completion('{"score":3.0}')) as (url, bodies):
        prompted(url, "sts").prompt(read_split(sample, "sts", "dev", 2))
    assert all("top_logprobs" not in body for body in bodies)
