"""Servers that answer well, slowly, in another order, with garbage, or not at all."""

import itertools
import json
import random
from dataclasses import replace

import pytest

from danseo.config.run import RunConfig
from danseo.errors import DanseoError, NetworkError, PartlyDone
from danseo.models.llm import server_backend as module
from danseo.models.llm.backend import CallLimits, CallLog
from danseo.models.llm.prompted_model import PromptedModel
from danseo.models.llm.server_backend import ServerBackend, check_url
from danseo.models.llm.settings import PromptSettings
from danseo.tasks import TASKS
from tests.models.llm.stub import make_completion, serving, slowly
from tests.tiny import read_split


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "_choose_wait", lambda stated, attempt: float(stated or 0.001))


def prompted(url: str, task: str = "ynat", limits: CallLimits | None = None, **settings) -> PromptedModel:
    config = RunConfig(task=task, model="server:stub", prompt=PromptSettings(url=url, **settings))
    limits = limits or CallLimits(concurrency=4, timeout=5)
    model = PromptedModel(config, TASKS[task], ServerBackend("stub", config.prompt, limits))
    model.limits = limits
    return model


def knowing(examples, task="ynat"):
    """An answer function that finds the gold reply by the question."""
    asked = prompted("http://127.0.0.1:1/v1", task).prompt_format
    golds = {asked.user_message(example): asked.gold_reply(example) for example in examples}
    return lambda body: golds[body["messages"][-1]["content"]]


@pytest.mark.parametrize("task", TASKS)
def test_every_task_over_http(task, sample):
    examples = read_split(sample, task, "dev", 6)
    gold = knowing(examples, task)
    with serving(lambda body, before: make_completion(gold(body))) as (url, bodies):
        model = prompted(url, task)
        found = model.prompt(examples)
    right = [
        model.prompt_format.parse_reply(example, model.prompt_format.gold_reply(example)).answer for example in examples
    ]
    assert [(p.guid, p.answer) for p in found] == [(e.guid, a) for e, a in zip(examples, right, strict=True)]
    assert model.reply_stats.failed == 0
    assert all(body["response_format"]["json_schema"]["strict"] for body in bodies)
    assert all(p.probabilities is None for p in found)


def test_answers_are_never_mixed_up(sample):
    examples = read_split(sample, "ynat", "dev", 24)
    gold, rng = knowing(examples), random.Random(1)

    def answer(body, before):
        slowly(rng.random() / 50)
        return make_completion(gold(body))

    with serving(answer) as (url, _):
        found = prompted(url).prompt(examples)
    assert [(p.guid, p.answer) for p in found] == [(e.guid, e.gold) for e in examples]


def test_busy_broken_and_silent_servers_are_retried(sample):
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
        return troubles[number] if number < len(troubles) and before == 0 else make_completion(gold(body))

    with serving(answer) as (url, _):
        model = prompted(url)
        found = model.prompt(examples)
    assert [p.answer for p in found] == [e.gold for e in examples]
    attempts = [model.calls.known[key].attempts for key in model.calls.known]
    assert sorted(attempts) == [1, 1, 1, 2, 2, 2, 2, 2]
    assert model.backend.gate.limit == 2  # halved once, from 4


def test_garbage_and_refusals_are_failures_and_nothing_is_skipped(sample):
    examples = read_split(sample, "ynat", "dev", 4)
    texts = iter(["모르겠어요", '{"label":"날씨"}', "", '{"label":"정치"'])

    def answer(body, before):
        text = next(texts)
        return make_completion(
            text, "length" if text.endswith('"') else "stop", **({} if text else {"refusal": "죄송합니다"})
        )

    with serving(answer) as (url, _):
        model = prompted(url, limits=CallLimits(concurrency=1, timeout=5))
        found = model.prompt(examples)
    assert len(found) == 4
    assert [p.answer for p in found] == [""] * 4
    reply_stats = model.reply_stats.as_dict()
    assert (reply_stats["asked"], reply_stats["failed"], reply_stats["failed_percent"]) == (4, 4, 100.0)
    assert reply_stats["classes"] == {"malformed": 3, "unknown_type": 1, "refused": 1, "truncated": 1}


def test_repairs_are_counted_separately(sample):
    examples = read_split(sample, "ynat", "dev", 3)
    gold = knowing(examples)

    def answer(body, before):
        if len(body["messages"]) > 2:
            return make_completion(gold({"messages": body["messages"][:-2]}))
        return make_completion("음…")

    with serving(answer) as (url, bodies):
        model = prompted(url, repair_attempts=2)
        found = model.prompt(examples)
    assert [p.answer for p in found] == [e.gold for e in examples]
    assert (model.reply_stats.failed, model.reply_stats.failed_at_first) == (0, 3)
    assert len(bodies) == 6


def test_thoughts_are_removed(sample):
    examples = read_split(sample, "ynat", "dev", 2)
    gold = knowing(examples)
    with serving(lambda body, before: make_completion(gold(body), reasoning_content='{"label":"경제"}?')) as (
        url,
        bodies,
    ):
        model = prompted(url, thinking="on", max_thinking_tokens=77)
        assert [p.answer for p in model.prompt(examples)] == [e.gold for e in examples]
    assert bodies[0]["max_tokens"] == 77 + model.reply_tokens
    assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": True}
    with serving(lambda body, before: make_completion("", "length", reasoning_content="음")) as (url, _):
        model = prompted(url)
        model.prompt(examples)
    assert model.reply_stats.classes["reasoning_exhausted"] == 2


def test_logged_calls_are_not_repeated(sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 10)
    gold = knowing(examples)
    with serving(lambda body, before: make_completion(gold(body))) as (url, bodies):
        first = prompted(url, limits=CallLimits(calls=4, concurrency=2, timeout=5))
        first.calls = CallLog(tmp_path / "calls.jsonl")
        with pytest.raises(PartlyDone, match="limit-calls 4 is reached with 6 to go"):
            first.prompt(examples)
        with (tmp_path / "calls.jsonl").open("a") as file:
            file.write('{"key": "half')  # as a kill leaves it
        second = prompted(url)
        second.calls = CallLog(tmp_path / "calls.jsonl")
        assert [p.answer for p in second.prompt(examples)] == [e.gold for e in examples]
        assert len(bodies) == 10
        again = prompted(url)
        again.calls = CallLog(tmp_path / "calls.jsonl")
        again.prompt(examples)
        assert len(bodies) == 10
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text("utf-8").splitlines()]
    assert {line["guid"] for line in lines} == {e.guid for e in examples}
    assert lines[0]["cached_tokens"] == 4


def test_a_budget_of_tokens_ends_the_run(sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 10)
    gold = knowing(examples)
    with serving(lambda body, before: make_completion(gold(body))) as (url, bodies):
        model = prompted(url, limits=CallLimits(tokens=40, concurrency=1, timeout=5))
        with pytest.raises(PartlyDone, match="budget-tokens 40 is used up"):
            model.prompt(examples)
    assert 3 <= len(bodies) <= 5


def test_failed_requests_keep_the_other_replies(sample):
    examples = read_split(sample, "ynat", "dev", 5)
    gold = knowing(examples)

    def answer(body, before):
        return (
            (422, {}, "too long")
            if examples[2].text in body["messages"][-1]["content"]
            else make_completion(gold(body))
        )

    with serving(answer) as (url, _):
        model = prompted(url)
        with pytest.raises(PartlyDone, match=r"1 of 5 requests failed for good.*too long"):
            model.prompt(examples)
    assert len(model.calls.known) == 4


def test_probe_detects_enforced_schemas():
    for enforces in (True, False):
        with serving(lambda body, before: None, enforces=enforces) as (url, _):
            assert prompted(url).backend.prepare() == {"enforced": enforces}
    assert prompted("http://127.0.0.1:1/v1", unconstrained=True).backend.prepare() == {"enforced": None}
    with pytest.raises(NetworkError, match="is it running"):
        prompted("http://127.0.0.1:1/v1").backend.prepare()


def test_long_prompts_lose_shots_and_are_then_split(sample):
    train, dev = read_split(sample, "mrc", "train"), read_split(sample, "mrc", "dev")
    example = max(dev, key=lambda e: len(e.text))
    model = prompted("http://127.0.0.1:1/v1", "mrc", shots=2)
    model.prepare(train, dev)
    whole = model.backend.count_tokens(model.prompt_format.messages(example, model.shots)) + model.reply_tokens

    def asked(context: int) -> PromptedModel:
        made = prompted("http://127.0.0.1:1/v1", "mrc", shots=2, max_context_length=context)
        made.prepare(train, dev)
        (made.question,) = made.make_questions([example])
        return made

    assert not +asked(whole).reply_stats.cuts
    assert asked(whole - 1).reply_stats.cuts == {"shots_dropped": 1}
    bare = model.backend.count_tokens(model.prompt_format.messages(example)) + model.reply_tokens
    if len(example.text) > 400:
        cut = asked(bare - 60)
        assert cut.reply_stats.cuts["cut"] == 1
        assert cut.reply_stats.cuts["windows"] == len(cut.question.parts) > 1
    with pytest.raises(DanseoError, match="a longer context"):
        asked(120)


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://x/v1", "http://", "http://a:b@host/v1", "http://x:99999/v1"]
)
def test_odd_addresses_are_refused(url):
    with pytest.raises(DanseoError):
        check_url(url)


def test_prompts_with_the_same_beginning_follow_each_other(sample):
    """Two questions about one passage: the server finds the passage in its prefix cache."""
    examples = read_split(sample, "mrc", "dev", 6)
    mixed = [*examples, *(replace(e, guid=f"{e.guid}-b", question="누구인가?") for e in examples)]
    with serving(lambda body, before: make_completion('{"answer":null}')) as (url, bodies):
        prompted(url, "mrc", CallLimits(concurrency=1, timeout=5)).prompt(mixed)
    passages = [body["messages"][-1]["content"].split("질문:")[0] for body in bodies]
    changes = sum(a != b for a, b in itertools.pairwise(passages))
    assert changes == len(set(passages)) - 1


def test_only_llama_cpp_gets_its_own_fields(sample):
    known = {"model", "messages", "temperature", "max_tokens", "logprobs", "top_logprobs", "response_format"}

    def answer(body: dict, before: int):
        if unknown := set(body) - known:
            return 400, {}, f"unknown fields: {unknown}"
        return make_completion('{"label":"정치"}')

    examples = read_split(sample, "ynat", "dev", 6)
    with serving(answer) as (url, bodies):
        model = prompted(url)
        model.backend.prepare()
        model.prompt(examples)
    assert len(bodies) == 6
    known |= {"cache_prompt", "grammar"}
    with serving(answer, name="llama.cpp") as (url, bodies):
        model = prompted(url)
        model.backend.prepare()
        model.prompt(examples)
    assert [body["cache_prompt"] for body in bodies] == [True] * 6


def test_tokens_per_reply_are_reported(sample):
    def answer(body: dict, before: int) -> dict:
        found = make_completion('{"label":"정치"}')
        if len(bodies) % 2:  # llama.cpp reports cached tokens here
            found["usage"].pop("prompt_tokens_details")
            found["timings"] = {"cache_n": 8}
        return found

    with serving(answer) as (url, bodies):
        model = prompted(url, limits=CallLimits(concurrency=1, timeout=5))
        model.prompt(read_split(sample, "ynat", "dev", 6))
    details = model.score_details()
    expected = {"prompt": 10, "cached": 6, "completion": 5}
    assert details["replies"]["tokens_per_reply"] == expected
    assert ["cached tokens per reply", 6] in details["extra_tables"][0]["rows"]
