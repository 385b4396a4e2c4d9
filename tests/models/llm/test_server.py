"""Servers that answer well, slowly, in another order, with garbage, or not at all."""

import json
import random

import pytest

from danseo.config import RunConfig
from danseo.errors import DanseoError, NetworkError, PartlyDone
from danseo.models.llm import server as module
from danseo.models.llm.calls import Calls
from danseo.models.llm.prompted import Prompted
from danseo.models.llm.server import Gate, Server, checked_url
from danseo.models.llm.settings import PromptConfig
from danseo.models.llm.source import Limits
from danseo.tasks import TASKS
from tests.models.llm.stub import said, serving, slowly
from tests.tiny import read_split


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "_wait", lambda stated, attempt: float(stated or 0.001))


def prompted(url: str, task: str = "ynat", limits: Limits | None = None, **settings) -> Prompted:
    config = RunConfig(task=task, model="server:stub", prompt=PromptConfig(url=url, **settings))
    limits = limits or Limits(at_a_time=4, timeout=5)
    model = Prompted(config, TASKS[task], Server("stub", config.prompt, limits))
    model.limits = limits
    return model


def knowing(examples, task="ynat"):
    """An answer function that finds the gold reply by the question."""
    asked = prompted("http://127.0.0.1:1/v1", task).asking
    golds = {asked.user(example): asked.gold(example) for example in examples}
    return lambda body: golds[body["messages"][-1]["content"]]


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_answered_over_the_line(task, sample):
    examples = read_split(sample, task, "dev", 6)
    gold = knowing(examples, task)
    with serving(lambda body, before: said(gold(body))) as (url, bodies):
        model = prompted(url, task)
        found = model.ask(examples)
    right = [model.asking.read(example, model.asking.gold(example)).answer for example in examples]
    assert [(p.guid, p.answer) for p in found] == [(e.guid, a) for e, a in zip(examples, right, strict=True)]
    assert model.tally.failed == 0
    assert all(body["response_format"]["json_schema"]["strict"] for body in bodies)
    assert all(p.probabilities is None for p in found)


def test_answers_are_never_mixed_up(sample):
    examples = read_split(sample, "ynat", "dev", 24)
    gold, rng = knowing(examples), random.Random(1)

    def answer(body, before):
        slowly(rng.random() / 50)
        return said(gold(body))

    with serving(answer) as (url, _):
        found = prompted(url).ask(examples)
    assert [(p.guid, p.answer) for p in found] == [(e.guid, e.gold) for e in examples]


def test_busy_broken_and_silent_servers_are_asked_again(sample):
    examples = read_split(sample, "ynat", "dev", 8)
    gold = knowing(examples)
    troubles = [
        (429, {"retry-after": "0.01"}, "slow down"),
        (500, {}, "oops"),
        None,
        (200, {}, "<html>"),
        (200, {}, "{}"),
    ]

    def answer(body, before):
        number = next(k for k, e in enumerate(examples) if e.text in body["messages"][-1]["content"])
        return troubles[number] if number < len(troubles) and before == 0 else said(gold(body))

    with serving(answer) as (url, _):
        model = prompted(url)
        found = model.ask(examples)
    assert [p.answer for p in found] == [e.gold for e in examples]
    attempts = [model.calls.known[key].attempts for key in model.calls.known]
    assert sorted(attempts) == [1, 1, 1, 2, 2, 2, 2, 2]
    assert model.source.gate.limit == 2  # halved once, from 4


def test_garbage_and_refusals_are_failures_and_nothing_is_skipped(sample):
    examples = read_split(sample, "ynat", "dev", 4)
    texts = iter(["모르겠어요", '{"label":"날씨"}', "", '{"label":"정치"'])

    def answer(body, before):
        text = next(texts)
        return said(text, "length" if text.endswith('"') else "stop", **({} if text else {"refusal": "죄송합니다"}))

    with serving(answer) as (url, _):
        model = prompted(url, limits=Limits(at_a_time=1, timeout=5))
        found = model.ask(examples)
    assert len(found) == 4
    assert [p.answer for p in found] == [""] * 4
    tally = model.tally.as_dict()
    assert (tally["asked"], tally["failed"], tally["failed_percent"]) == (4, 4, 100.0)
    assert tally["classes"] == {"malformed": 3, "unknown_type": 1, "refused": 1, "truncated": 1}


def test_repairs_are_counted_apart(sample):
    examples = read_split(sample, "ynat", "dev", 3)
    gold = knowing(examples)

    def answer(body, before):
        if len(body["messages"]) > 2:
            return said(gold({"messages": body["messages"][:-2]}))
        return said("음…")

    with serving(answer) as (url, bodies):
        model = prompted(url, repair=2)
        found = model.ask(examples)
    assert [p.answer for p in found] == [e.gold for e in examples]
    assert (model.tally.failed, model.tally.failed_at_first) == (0, 3)
    assert len(bodies) == 6


def test_thoughts_are_cut_off(sample):
    examples = read_split(sample, "ynat", "dev", 2)
    gold = knowing(examples)
    with serving(lambda body, before: said(gold(body), reasoning_content='{"label":"경제"}?')) as (url, bodies):
        model = prompted(url, think="on", think_tokens=77)
        assert [p.answer for p in model.ask(examples)] == [e.gold for e in examples]
    assert bodies[0]["max_tokens"] == 77 + model.reply_tokens
    assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": True}
    with serving(lambda body, before: said("", "length", reasoning_content="음")) as (url, _):
        model = prompted(url)
        model.ask(examples)
    assert model.tally.classes["reasoning_exhausted"] == 2


def test_calls_are_kept_and_the_next_start_goes_on(sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 10)
    gold = knowing(examples)
    with serving(lambda body, before: said(gold(body))) as (url, bodies):
        first = prompted(url, limits=Limits(calls=4, at_a_time=2, timeout=5))
        first.calls = Calls(tmp_path / "calls.jsonl")
        with pytest.raises(PartlyDone, match="limit-calls 4 is reached with 6 to go"):
            first.ask(examples)
        with (tmp_path / "calls.jsonl").open("a") as file:
            file.write('{"key": "half')  # as a kill leaves it
        second = prompted(url)
        second.calls = Calls(tmp_path / "calls.jsonl")
        assert [p.answer for p in second.ask(examples)] == [e.gold for e in examples]
        assert len(bodies) == 10
        again = prompted(url)
        again.calls = Calls(tmp_path / "calls.jsonl")
        again.ask(examples)
        assert len(bodies) == 10
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text("utf-8").splitlines()]
    assert {line["guid"] for line in lines} == {e.guid for e in examples}
    assert lines[0]["cached_tokens"] == 4


def test_a_budget_of_tokens_ends_the_run(sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 10)
    gold = knowing(examples)
    with serving(lambda body, before: said(gold(body))) as (url, bodies):
        model = prompted(url, limits=Limits(tokens=40, at_a_time=1, timeout=5))
        with pytest.raises(PartlyDone, match="budget-tokens 40 is used up"):
            model.ask(examples)
    assert 3 <= len(bodies) <= 5


def test_what_fails_for_good_leaves_the_rest_done(sample):
    examples = read_split(sample, "ynat", "dev", 5)
    gold = knowing(examples)

    def answer(body, before):
        return (422, {}, "too long") if examples[2].text in body["messages"][-1]["content"] else said(gold(body))

    with serving(answer) as (url, _):
        model = prompted(url)
        with pytest.raises(PartlyDone, match=r"1 of 5 requests failed for good.*too long"):
            model.ask(examples)
    assert len(model.calls.known) == 4


def test_the_key_comes_from_the_environment_and_is_never_told(sample, monkeypatch):
    monkeypatch.setenv("DANSEO_API_KEY", "geheim-123")
    examples = read_split(sample, "ynat", "dev", 1)
    with (
        serving(lambda body, before: (401, {}, "bad key geheim-123")) as (url, bodies),
        pytest.raises(DanseoError, match="is the key right") as caught,
    ):
        prompted(url).ask(examples)
    assert bodies[0]["authorization"] == "Bearer geheim-123"
    assert "geheim" not in str(caught.value)


def test_the_probe_tells_whether_schemas_are_enforced():
    for enforces in (True, False):
        with serving(lambda body, before: None, enforces=enforces) as (url, _):
            assert prompted(url).source.ready() == {"enforced": enforces}
    assert prompted("http://127.0.0.1:1/v1", free=True).source.ready() == {"enforced": None}
    with pytest.raises(NetworkError, match="is it running"):
        prompted("http://127.0.0.1:1/v1").source.ready()


def test_long_examples_lose_shots_first_and_are_then_cut(sample):
    train, dev = read_split(sample, "mrc", "train"), read_split(sample, "mrc", "dev")
    example = max(dev, key=lambda e: len(e.text))
    model = prompted("http://127.0.0.1:1/v1", "mrc", shots=2)
    model.prepare(train, dev)
    whole = model.source.count(model.asking.messages(example, model.shots)) + model.reply_tokens

    def asked(context: int) -> Prompted:
        made = prompted("http://127.0.0.1:1/v1", "mrc", shots=2, context=context)
        made.prepare(train, dev)
        (made.question,) = made.questions([example])
        return made

    assert not +asked(whole).tally.cuts
    assert asked(whole - 1).tally.cuts == {"shots_dropped": 1}
    bare = model.source.count(model.asking.messages(example)) + model.reply_tokens
    if len(example.text) > 400:
        cut = asked(bare - 60)
        assert cut.tally.cuts["cut"] == 1
        assert cut.tally.cuts["windows"] == len(cut.question.parts) > 1
    with pytest.raises(DanseoError, match="use a model that reads more"):
        asked(120)


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://x/v1", "http://", "http://a:b@host/v1", "http://x:99999/v1"]
)
def test_odd_addresses_are_refused(url):
    with pytest.raises(DanseoError):
        checked_url(url)


def test_the_gate_never_closes():
    gate = Gate(8)
    for _ in range(9):
        gate.narrow(0)
    assert gate.limit == 1
    with gate:
        assert gate.busy == 1
