"""Grammars for llama.cpp: compact JSON, so that no model fills a reply with blanks."""

import json
import re
from pathlib import Path

import pytest

from danseo.models.llm.gbnf import write_gbnf
from danseo.tasks import TASKS
from tests.models.llm.stub import make_completion, serving, slowly
from tests.models.llm.test_prompt_command import examples, run, small  # noqa: F401
from tests.models.llm.test_replies import prompt_format
from tests.models.llm.test_server_backend import knowing
from tests.tiny import read_split


def as_pattern(grammar: str) -> re.Pattern[str]:
    """Translate a grammar of ours, which has no recursion, into a regular expression."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    token = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\](?:\{[\d,]+\})?|[a-z]+[0-9]*|.', re.DOTALL)

    def translate(text: str) -> str:
        made = ""
        for found in token.findall(text):
            if found.startswith('"'):
                made += f"(?:{re.escape(json.loads(found))})"
            elif found.startswith("[") or not found.strip():
                made += found.strip()
            else:
                made += f"(?:{translate(rules[found])})" if found[0].isalpha() else found
        return made

    return re.compile(translate(rules["root"]))


@pytest.mark.parametrize("task", TASKS)
def test_a_grammar_takes_gold_and_no_blanks_between_parts(task, sample):
    asked = prompt_format(task)
    for example in read_split(sample, task, "dev", 5):
        pattern, gold = as_pattern(write_gbnf(asked.schema(example))), asked.gold_reply(example)
        assert pattern.fullmatch(gold)
        assert not pattern.fullmatch(gold.replace(":", ": ", 1))
        assert not pattern.fullmatch(gold[:-1] + "\n}")
        assert not pattern.fullmatch(gold[:-1])


def test_texts_hold_few_blanks():
    pattern = as_pattern(write_gbnf({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}))
    assert pattern.fullmatch('{"a":"가 나  \\"다\\""}')
    assert not pattern.fullmatch('{"a":"가   나"}')
    assert not pattern.fullmatch('{"a":"' + "가" * 121 + '"}')


def test_llama_cpp_gets_a_grammar(small, tmp_path, capsys):  # noqa: F811
    gold = knowing(examples(small, "ner"), "ner")
    with serving(lambda body, before: make_completion(gold(body)), name="llama.cpp") as (url, bodies):
        command = ("prompt", "ner", "-m", "server:stub", "--url", url, "--data", small / "data", "--runs", tmp_path)
        code, out, err = run(capsys, *command, "--json")
        assert code == 0, err
        document, asked = json.loads(out), len(bodies)
        assert (document["environment"]["enforced"], document["environment"]["grammar"]) == (True, "gbnf")
        (tmp_path / "lines.txt").write_text(examples(small, "ner")[0].text + "\n", "utf-8")
        assert run(capsys, "predict", Path(document["run"]), tmp_path / "lines.txt")[0] == 0
    assert len(bodies) > asked
    assert all("grammar" in body and "response_format" not in body for body in bodies)


@pytest.mark.parametrize(
    ("reply", "finish", "advice"),
    [
        ('{"label":' + " " * 60, "length", "blanks"),
        ('{"label":"정', "length", "prompt.max_new_tokens=64"),
        ("<think>음", "length", "--thinking"),
        ('{"label":"정치"}', "stop", ""),
    ],
)
def test_frequent_failures_come_with_advice(reply, finish, advice, small, tmp_path, capsys):  # noqa: F811
    with serving(lambda body, before: make_completion(reply, finish)) as (url, _):
        command = ("prompt", "ynat", "-m", "server:stub", "--url", url, "--data", small / "data", "--runs", tmp_path)
        code, out, err = run(capsys, *command)
    assert code == 0, err
    assert advice in err
    assert ("of 30 replies" in err) == bool(advice)
    if advice == "blanks":
        assert "malformed, of these truncated" in out


def test_refused_grammar_falls_back_to_the_schema(small, tmp_path, capsys):  # noqa: F811
    def answer(body: dict, before: int):
        return (400, {}, "failed to parse grammar") if "grammar" in body else make_completion('{"entities":[]}')

    with serving(answer, name="llama.cpp") as (url, bodies):
        command = ("prompt", "ner", "-m", "server:stub", "--url", url, "--data", small / "data", "--runs", tmp_path)
        code, _, err = run(capsys, *command)
    assert code == 0, err
    assert "response_format" in bodies[-1]


def test_eta_counts_the_allowed_calls(small, tmp_path, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr("danseo.models.llm.backend._SHOWN_EVERY", 0.3)

    def slow(body: dict, before: int) -> dict:
        slowly(0.25)
        return make_completion('{"label":"정치"}')

    with serving(slow) as (url, _):
        command = ("prompt", "ynat", "-m", "server:stub", "--url", url, "--data", small / "data", "--runs", tmp_path)
        code, _, err = run(capsys, *command, "--concurrency", 1, "--limit-calls", 4)
    assert code == 3
    left = [int(found) for found in re.findall(r"/30 replies, .* ETA (\d+) s", err)]
    assert left
    assert max(left) <= 2  # 3 calls of 0.25 s, not 29
