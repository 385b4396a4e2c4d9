"""danseo prompt --launch: a server that is started, awaited and stopped, however the command ends."""

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from danseo.data.find import write_sample
from tests.models.llm.test_prompt_command import run

STUB = Path(__file__).with_name("launched_stub.py")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_sample(folder)
    return folder


def launch(behaviour: str, notes: Path, data: Path, *more: object) -> tuple[object, ...]:
    """Return a command that launches the stub."""
    command = shlex.join([sys.executable, str(STUB), "{port}", behaviour, str(notes)])
    runs = ("--data", data, "--runs", notes.parent / "runs", "--limit", 4)
    return ("prompt", "ynat", "-m", "server:stub", "--launch", command, *runs, *more)


def is_alive(notes: Path) -> bool:
    """Return whether the stub still runs."""
    try:
        os.kill(int(notes.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_runs_as_long_as_the_command(data, tmp_path, capsys):
    notes = tmp_path / "pid"
    code, out, err = run(capsys, *launch("good", notes, data, "--json"))
    assert code == 0, err
    assert json.loads(out)["replies"]["asked"] == 4
    assert not is_alive(notes)
    notes.unlink()
    assert run(capsys, *launch("good", notes, data, "--json"))[0] == 0
    assert not notes.exists(), "a finished run needs no server"
    assert run(capsys, *launch("good", notes, data, "--shots", 1, "--dry-run"))[0] == 0
    assert not notes.exists(), "a dry run neither"


def test_a_server_that_does_not_start_is_one_line_with_the_end_of_its_log(data, tmp_path, capsys):
    code, out, err = run(capsys, *launch("broken", tmp_path / "pid", data))
    assert (code, out) == (2, "")
    (line,) = [line for line in err.splitlines() if line.startswith("danseo:")]
    assert "ended with code 7" in line
    assert line.endswith("RuntimeError: no memory for the weights")
    assert not list((tmp_path / "runs").glob("*")), "nothing is half-written"


def test_a_server_that_is_never_ready_is_stopped(data, tmp_path, capsys):
    code, _, err = run(capsys, *launch("silent", tmp_path / "pid", data, "--launch-timeout", 1))
    assert code == 2
    assert "not ready after 1 s" in err
    assert "loading the weights" in err
    assert not is_alive(tmp_path / "pid")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_too(number, data, tmp_path):
    notes = tmp_path / "pid"
    arguments = map(str, launch("silent", notes, data))
    process = subprocess.Popen([sys.executable, "-m", "danseo", *arguments], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (notes.is_file() and notes.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert not is_alive(notes)


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("no-such-program-here --port {port}", "no-such-program-here"),
        ("vllm serve MODEL", "{port}"),
        ('vllm serve "MODEL --port {port}', "quotes"),
        ("", "empty"),
        ("sh -c 'exit 3' {port}; touch {file}", "ended with code 3"),
    ],
)
def test_bad_commands_are_one_line(command, word, data, tmp_path, capsys):
    """The last one has a second command, which no shell runs."""
    text = command.replace("{file}", str(tmp_path / "touched"))
    options = ("--launch", text, "--data", data, "--runs", tmp_path / "runs", "--limit", 4)
    code, _, err = run(capsys, "prompt", "ynat", "-m", "server:stub", *options)
    assert code == 2
    assert word in err.splitlines()[-1]
    assert not (tmp_path / "touched").exists()


def test_local_models_launch_nothing(data, tmp_path, capsys):
    code, _, err = run(capsys, "prompt", "ynat", "-m", "llm:x", "--launch", "vllm serve x --port {port}")
    assert code == 2
    assert "--launch" in err


@pytest.mark.lengthy
@pytest.mark.skipif(
    not importlib.util.find_spec("xllamacpp"), reason="xllamacpp is not installed; a stub server tests the same steps"
)
def test_the_llama_cpp_server_answers(data, tmp_path, capsys):
    pytest.importorskip("gguf", reason="gguf is not installed, so no tiny model can be written")
    from tests.models.llm.tiny_gguf import SERVER, write_gguf

    model = write_gguf(tmp_path / "tiny.gguf")
    command = shlex.join([sys.executable, "-c", SERVER, str(model), "{port}"])
    options = ("--launch", command, "--data", data, "--runs", tmp_path / "runs", "--limit", 6, "--json")
    code, out, err = run(capsys, "prompt", "ynat", "-m", "server:tiny", *options, "--concurrency", 1)
    assert code == 0, err
    document = json.loads(out)
    assert (document["replies"]["asked"], document["replies"]["failed"]) == (6, 0)
    tokens = document["replies"]["tokens_per_reply"]
    assert tokens["prompt"] > tokens["cached"] > tokens["prompt"] / 3
