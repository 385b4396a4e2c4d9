"""Servers that mean harm: replies without end, dripped bytes, and content that no server should send."""

import gzip
import json
import resource
import time

import pytest

from danseo.errors import NetworkError, PartlyDone
from danseo.models.llm import server_backend as module
from danseo.models.llm.backend import CallLimits
from tests.models.llm.stub import make_completion, serving
from tests.models.llm.test_server_backend import knowing, prompted
from tests.tiny import read_split


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "_choose_wait", lambda stated, attempt: 0.001)
    monkeypatch.setattr(module, "_ATTEMPTS", 2)


def write_slowly(handler, parts) -> None:
    """Write a byte of each part at a time, for ever."""
    handler.wfile.write(parts[0])
    while True:
        for byte in parts[1]:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(0.05)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SLOW = {
    "headers": (HEAD, b"X-A: b\r\n"),
    "body": (HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"a"),
    "informational": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
}


@pytest.mark.parametrize("where", SLOW)
def test_the_deadline_is_for_the_whole_call(where, sample):
    (example,) = read_split(sample, "ynat", "dev", 1)
    with serving(lambda body, before: lambda handler: write_slowly(handler, SLOW[where])) as (url, bodies):
        model = prompted(url, limits=CallLimits(concurrency=1, timeout=1))
        began = time.monotonic()
        with pytest.raises(PartlyDone, match="longer than 1 s"):
            model.prompt([example])
    assert len(bodies) == 2
    assert time.monotonic() - began < 5


def write_endless(handler) -> None:
    handler.wfile.write(HEAD + b"\r\n{")
    while True:
        handler.wfile.write(b" " * (1 << 16))


BOMB = gzip.compress(gzip.compress(b" " * (1 << 26)))


@pytest.mark.parametrize(
    "reply",
    [
        lambda handler: write_endless(handler),
        (200, {}, b" " * (1 << 25)),
        (500, {}, b"x" * (1 << 25)),
        (200, {"content-encoding": "gzip, gzip"}, BOMB),
        (200, {"content-encoding": "br"}, BOMB),
        (500, {"content-encoding": "deflate"}, BOMB),
        (200, {}, b"[[[]]," + b"{}," * 300_000 + b"0]"),
    ],
    ids=["endless", "large", "large error", "gzip", "brotli", "compressed error", "many objects"],
)
def test_memory_is_bounded(reply, sample):
    (example,) = read_split(sample, "ynat", "dev", 1)
    with serving(lambda body, before: reply) as (url, _):
        model = prompted(url, limits=CallLimits(concurrency=1, timeout=20))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(PartlyDone):
            model.prompt([example])
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def make_document(**token) -> dict:
    """A chat completion with one token and its alternatives."""
    document = make_completion('{"label":"정치"}')
    document["choices"][0]["logprobs"] = {"content": [{"token": '{"label":"정치"}', "logprob": -0.1, **token}]}
    return document


def changed(**parts) -> dict:
    return {**make_completion('{"label":"정치"}'), **parts}


ODD = {
    "usage is a list": changed(usage=[1, 2]),
    "usage is a text": changed(usage="many"),
    "details are a list": changed(usage={"prompt_tokens": 1, "prompt_tokens_details": [1]}),
    "tokens without measure": changed(usage={"prompt_tokens": 10**400}),
    "no choices": changed(choices=[]),
    "choices are a text": changed(choices="message"),
    "message is a list": changed(choices=[{"message": ["content"]}]),
    "a list": [1],
    "deep": '{"choices":[{"message":{"content":"a"}}],"usage":' + "[" * 100_000 + "]" * 100_000 + "}",
    "nearly too deep": '{"choices":[{"message":{"content":"a"}}],"x":' + "[" * 980 + "]" * 980 + "}",
    "logprob 1e400": json.dumps(make_document(logprob=7)).replace("7", "1e400"),
    "logprob NaN": make_document(logprob=float("nan")),
    "logprob 1000": make_document(logprob=1000),
    "logprob of many digits": make_document(logprob=10**400),
    "alternative 1e400": json.dumps(make_document(top_logprobs=[{"token": "x", "logprob": 7}])).replace("7", "1e400"),
    "alternative NaN": make_document(top_logprobs=[{"token": "x", "logprob": float("nan")}]),
    "bytes beyond a byte": make_document(top_logprobs=[{"token": "x", "bytes": [999], "logprob": -1}]),
    "not UTF-8": json.dumps(make_completion("정치"), ensure_ascii=False).encode("cp949"),
    "NUL": b"\0" * 100,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_content_is_a_failed_reply(name, sample):
    (example,) = read_split(sample, "ynat", "dev", 1)
    content = ODD[name] if isinstance(ODD[name], str | bytes) else json.dumps(ODD[name])
    with serving(lambda body, before: (200, {}, content)) as (url, bodies):
        with pytest.raises(PartlyDone, match="no chat completion") as caught:
            prompted(url, limits=CallLimits(concurrency=1, timeout=5)).prompt([example])
        assert len(bodies) == 2
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


def test_odd_content_that_can_be_read_is_read(sample, tmp_path):
    from danseo.models.llm.backend import CallLog

    (example,) = read_split(sample, "ynat", "dev", 1)
    gold = knowing([example])
    harmless = (
        lambda text: (200, {"content-type": "application/json; charset=no-such"}, json.dumps(make_completion(text))),
        lambda text: (
            make_document(logprob=-float("inf"), top_logprobs=[{"token": "x", "logprob": -float("inf")}])
            | make_completion(text)
        ),
        lambda text: make_completion(text) | {"usage": None},
    )
    for change in harmless:
        with serving(lambda body, before, change=change: change(gold(body))) as (url, _):
            assert prompted(url).prompt([example])[0].answer == example.gold
    for text in ('{"label":"정치\ud800"}', "\udfff", '{"label":' + "[" * 100_000, '{"label":NaN}', '{"label":1e999}'):
        with serving(lambda body, before, text=text: make_completion(text, finish="\ud800")) as (url, _):
            model = prompted(url)
            model.calls = CallLog(tmp_path / f"{abs(hash(text))}.jsonl")
            assert model.prompt([example])[0].answer == ""
            assert model.reply_stats.failed == 1


def test_a_failed_reply_has_no_probabilities(sample):
    (example,) = read_split(sample, "ynat", "dev", 1)
    labels = [{"token": f'{{"label":"{name}"}}', "logprob": -3.0} for name in ("경제", "사회")]
    document = make_document(logprob=-0.105, top_logprobs=labels)
    document["choices"][0]["message"]["content"] = "garbage"
    with serving(lambda body, before: document) as (url, _):
        (found,) = prompted(url).prompt([example])
    assert (found.answer, found.probabilities) == ("", None)


def test_the_probe_of_a_hostile_server_is_one_line():
    for reply in ([1], make_completion("[" * 100_000) | {"usage": []}, "{"):
        with serving(lambda body, before: None) as (url, _):
            backend = prompted(url).backend
            backend.client.post = lambda *_, reply=reply: module.HttpReply(200, {}, json.dumps(reply).encode())
            with pytest.raises(NetworkError, match="no chat completion"):
                backend.prepare()
