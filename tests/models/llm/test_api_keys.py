"""A key goes only where the command or the environment says, and is stored and shown nowhere."""

import json
from pathlib import Path

import pytest

from danseo.cli import main
from danseo.data.find import write_sample
from danseo.errors import DanseoError
from danseo.models.llm import server_backend as module
from danseo.tasks import TASKS
from tests.models.llm.stub import make_completion, serving
from tests.models.llm.test_server_backend import prompted
from tests.tiny import read_split

KEY = "sk-geheim/0123456789"


@pytest.fixture(autouse=True)
def keyed(monkeypatch):
    monkeypatch.setattr(module, "_choose_wait", lambda stated, attempt: 0.001)
    monkeypatch.setenv("DANSEO_API_KEY", KEY)
    monkeypatch.setenv("DANSEO_API_URL", "")  # --url sets it, and it is unset again after the test


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_sample(root)
    for split in ("train", "dev"):
        path = root / TASKS["ynat"].folder / TASKS["ynat"].file(split)
        path.write_text(json.dumps(json.loads(path.read_text("utf-8"))[:8], ensure_ascii=False), "utf-8")
    return root


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    assert KEY not in shown.out + shown.err
    return ended.value.code, shown.out, shown.err


def prompt_run(capsys, data: Path, runs: Path, url: str) -> Path:
    code, out, err = run(
        capsys, "prompt", "ynat", "-m", "server:stub", "--url", url, "--data", data, "--runs", runs, "--json"
    )
    assert code == 0, err
    return Path(json.loads(out)["run"])


def contents(folder: Path) -> str:
    return "".join(path.read_text("utf-8") for path in folder.rglob("*") if path.is_file())


def good(body, before):
    return make_completion('{"label":"정치"}')


def test_a_key_is_not_sent_to_an_address_from_a_run(data, tmp_path, capsys, monkeypatch):
    with serving(good) as (url, bodies):
        folder = prompt_run(capsys, data, tmp_path / "runs", url)
        assert {body["authorization"] for body in bodies} == {f"Bearer {KEY}"}
        bodies.clear()
        texts = tmp_path / "texts.txt"
        texts.write_text("국회 본회의\n", "utf-8")
        commands = {
            "predict": ("predict", folder, texts),
            "eval": ("eval", folder, "--split", "train", "--data", data),
            "serve": ("serve", folder, "--port", 0),
        }
        monkeypatch.setenv("DANSEO_API_URL", "")
        for command in commands.values():
            code, out, err = run(capsys, *command)
            assert (code, out) == (2, ""), command
            assert "--url" in err
            assert err.count("\n") == 1
        assert bodies == []

        code, out, err = run(capsys, *commands["predict"], "--url", url)
        assert code == 0, err
        assert [body["authorization"] for body in bodies] == [f"Bearer {KEY}"]

        monkeypatch.setenv("DANSEO_API_URL", url)
        code, out, err = run(capsys, *commands["eval"], "--json")
        assert code == 0, err
        assert {body["authorization"] for body in bodies} == {f"Bearer {KEY}"}

        bodies.clear()
        monkeypatch.setenv("DANSEO_API_URL", "")
        monkeypatch.delenv("DANSEO_API_KEY")
        code, out, err = run(capsys, *commands["predict"])
        assert code == 0, err
        assert [body["authorization"] for body in bodies] == [None]


def test_the_address_of_the_environment_takes_the_place_of_the_stored_one(data, tmp_path, capsys, monkeypatch):
    with serving(good) as (url, _):
        folder = prompt_run(capsys, data, tmp_path / "runs", url)
    texts = tmp_path / "texts.txt"
    texts.write_text("국회 본회의\n", "utf-8")
    with serving(good) as (stored, evil), serving(good) as (url, bodies):
        settings = (folder / "config.toml").read_text("utf-8")
        assert "url = " in settings
        lines = [f'url = "{stored}"' if line.startswith("url = ") else line for line in settings.splitlines()]
        (folder / "config.toml").write_text("\n".join(lines) + "\n", "utf-8")
        assert run(capsys, "predict", folder, texts)[0] == 2
        assert run(capsys, "predict", folder, texts, "--url", url)[0] == 0
        assert (len(evil), len(bodies)) == (0, 1)


def test_an_unfinished_run_resumes_at_the_address_of_the_command(data, tmp_path, capsys):
    with serving(lambda body, before: (422, {}, "no")) as (stored, _):
        arguments = ("prompt", "ynat", "-m", "server:stub", "--data", data, "--runs", tmp_path, "--json")
        assert run(capsys, *arguments, "--url", stored)[0] == 3
    with serving(good) as (stored, evil), serving(good) as (url, bodies):
        (settings,) = tmp_path.glob("*/config.toml")
        lines = [
            f'url = "{stored}"' if line.startswith("url = ") else line
            for line in settings.read_text("utf-8").splitlines()
        ]
        settings.write_text("\n".join(lines) + "\n", "utf-8")
        assert run(capsys, *arguments, "--url", url)[0] == 0
        assert (len(evil), len(bodies)) == (0, 8)


def test_a_key_in_a_reply_is_masked(data, tmp_path, capsys):
    spelled = json.dumps(KEY).replace("/", "\\/").replace("s", "\\u0073", 1)

    def echo(body, before):
        text = json.dumps(make_completion(f'{{"label":"{KEY}"}}', KEY) | {KEY: KEY})
        return 200, {"x-key": KEY}, text.replace(json.dumps(KEY), spelled)

    with serving(echo) as (url, _):
        folder = prompt_run(capsys, data, tmp_path / "runs", url)
    assert "…" in (folder / "calls.jsonl").read_text("utf-8")
    assert KEY not in contents(tmp_path / "runs")
    assert KEY[3:] not in contents(tmp_path / "runs")


@pytest.mark.parametrize(
    "reply",
    [
        (422, {"retry-after": KEY}, f"no, {KEY}"),
        (401, {}, json.dumps({"error": KEY}).replace("/", "\\/")),
        (503, {}, json.dumps({"error": KEY}).replace("g", "\\u0067", 1)),
        (200, {}, json.dumps({"choices": KEY})),
        (200, {}, json.dumps({"choices": [{"message": KEY}]})),
        lambda handler: handler.wfile.write(f"HTTP/1.1 {KEY}\r\n\r\n".encode()),
        lambda handler: handler.wfile.write(f"HTTP/1.1 200 OK\r\n{KEY}\r\n\r\n".encode()),
    ],
)
def test_a_key_in_an_error_is_masked(reply, data, tmp_path, capsys):
    with serving(lambda body, before: reply) as (url, _):
        arguments = ("prompt", "ynat", "-m", "server:stub", "--data", data, "--runs", tmp_path, "--concurrency", 1)
        code, out, err = run(capsys, *arguments, "--url", url)
    assert code in (1, 2, 3)
    assert "Traceback" not in err
    found = contents(tmp_path) + out + err
    assert KEY not in found
    assert "0123456789" not in found


def test_a_key_that_no_header_can_carry_is_one_line(sample, monkeypatch):
    examples = read_split(sample, "ynat", "dev", 1)
    for odd in ("비밀번호", "two words", "line\nbreak", "nul\x01"):
        monkeypatch.setenv("DANSEO_API_KEY", odd)
        with pytest.raises(DanseoError, match="DANSEO_API_KEY") as caught:
            prompted("http://127.0.0.1:1/v1").prompt(examples)
        assert odd not in str(caught.value)
    monkeypatch.setenv("DANSEO_API_KEY", f"{KEY}\n")
    with serving(good) as (url, bodies):
        prompted(url).prompt(examples)
    assert bodies[0]["authorization"] == f"Bearer {KEY}"


def test_a_redirect_is_not_followed(data, tmp_path, capsys):
    with serving(good) as (other, reached):
        moved = (307, {"location": f"{other}/chat/completions"}, "")
        with serving(lambda body, before: moved) as (url, bodies):
            arguments = ("prompt", "ynat", "-m", "server:stub", "--data", data, "--runs", tmp_path, "--concurrency", 1)
            code, _, err = run(capsys, *arguments, "--url", url)
    assert (code, reached) == (3, []), err
    assert "HTTP 307" in err
    assert bodies
