"""Prompting, evaluation and prediction on several processes: each has its share, and the results are those of one."""

import json
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("torch")

from danseo.errors import DanseoError, PartlyDone
from danseo.models.llm import prompted_model
from danseo.models.llm.backend import CallLimits, CallLog, ModelCall
from tests.models.llm.stub import make_completion, serving
from tests.models.llm.test_own_tasks import write_task
from tests.models.llm.test_prompt_command import run
from tests.models.llm.test_server_backend import knowing, prompted
from tests.tiny import read_split, tiny_decoder
from tests.training.test_launchers import environment, free_port


class FakeWorkers:
    """Two processes as two threads."""

    world = 2

    def __init__(self) -> None:
        self.local, self.meeting, self.parts = threading.local(), threading.Barrier(2, timeout=20), dict[int, list]()

    @property
    def rank(self) -> int:
        return self.local.rank

    def shard(self, items: list) -> list:
        return items[self.rank :: 2]

    def barrier(self) -> None:
        self.meeting.wait()

    def all_gather(self, items: list) -> list:
        self.parts[self.rank] = items
        self.meeting.wait()
        found = [each for rank in range(2) for each in self.parts[rank]]
        self.meeting.wait()
        return found


@pytest.fixture
def two(monkeypatch):
    """Run a function in two processes, and return their results or errors by rank."""
    workers = FakeWorkers()
    monkeypatch.setattr(prompted_model, "join_processes", lambda: workers)
    monkeypatch.setattr(prompted_model, "is_first_process", lambda: workers.rank == 0)
    results: dict[int, object] = {}

    def work(function, rank: int) -> None:
        workers.local.rank = rank
        try:
            results[rank] = function(rank)
        except DanseoError as error:
            results[rank] = error

    def run_both(function) -> list:
        threads = [threading.Thread(target=work, args=(function, rank)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return [results[rank] for rank in range(2)]

    return run_both


def test_processes_share_requests_and_one_writes_them(two, sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 9)
    gold = knowing(examples)
    earlier = ModelCall("0" * 32, "x", "kept by a process that was killed")
    (tmp_path / "calls.3.jsonl").write_text(json.dumps(asdict(earlier)) + "\n")
    with serving(lambda body, before: make_completion(gold(body))) as (url, bodies):

        def answer(rank: int) -> tuple:
            model = prompted(url)
            model.open_calls(tmp_path / "calls.jsonl")
            return model.prompt(examples), model.new_calls, sorted(model.calls.known)

        first, second = two(answer)
        assert first == second
        assert first[1] == len(bodies) == 9
        assert [path.name for path in tmp_path.iterdir()] == ["calls.jsonl"]
        assert sorted(CallLog(tmp_path / "calls.jsonl").known) == first[2]
        assert earlier.key in first[2]
        assert two(answer)[0][1] == 0, "all replies are known"
    assert [prediction.answer for prediction in first[0]] == [example.gold for example in examples]


def test_an_error_of_one_process_ends_all_and_keeps_the_replies(two, sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 8)

    def answer(body: dict, before: int):
        is_bad = examples[1].text in body["messages"][-1]["content"]
        return (404, {}, "no such model") if is_bad else make_completion('{"label":"정치"}')

    with serving(answer) as (url, _):

        def prompt(rank: int) -> object:
            model = prompted(url)
            model.open_calls(tmp_path / "calls.jsonl")
            return model.prompt(examples)

        errors = two(prompt)
    assert all(isinstance(error, DanseoError) and "no such model" in str(error) for error in errors)
    assert len(CallLog(tmp_path / "calls.jsonl").known) >= 4, "the replies of the other process"


def test_limits_count_the_calls_of_all_processes(two, sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 24)
    with serving(lambda body, before: make_completion('{"label":"정치"}')) as (url, bodies):

        def prompt(limits: CallLimits):
            model = prompted(url, limits=limits)
            model.open_calls(tmp_path / "calls.jsonl")
            return model.prompt(examples)

        errors = two(lambda rank: prompt(CallLimits(calls=5, concurrency=1, timeout=5)))
        assert all(isinstance(error, PartlyDone) for error in errors)
        assert len(bodies) == 5
        errors = two(lambda rank: prompt(CallLimits(tokens=8 * 15, concurrency=1, timeout=5)))
        assert all(isinstance(error, PartlyDone) for error in errors)
        assert len(bodies) <= 5 + 2 * 3, "two of each process, and one that was under way"


def launch(folder: Path, *arguments: object, stdin: str = "") -> str:
    """Run a command on two processes; return what they print."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    line = [sys.executable, *launcher, f"--master-port={free_port()}", "-m", "danseo", *map(str, arguments)]
    ended = subprocess.run(
        line, env=environment(folder), capture_output=True, text=True, timeout=300, input=stdin, encoding="utf-8"
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def read_answers(run_folder: Path) -> list:
    lines = (run_folder / "predictions" / "dev.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["answer"] for line in lines]


def read_guids(run_folder: Path) -> list[str]:
    return [json.loads(line)["guid"] for line in (run_folder / "calls.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.lengthy
@pytest.mark.nightly
def test_two_processes_prompt_and_predict_as_one(sample, tmp_path, capsys):
    model = tiny_decoder(tmp_path / "tiny", sample, "llama")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    path = write_task(tmp_path / "data", "classify")
    options = ("-m", f"llm:{model}", "--device", "cpu", "--json")
    code, out, err = run(capsys, "prompt", path, *options, "--runs", tmp_path / "one")
    assert code == 0, err
    one = json.loads(out)
    two = json.loads(launch(tmp_path, "prompt", path, *options, "--runs", tmp_path / "two"))
    assert two["scores"] == one["scores"]
    folders = [Path(each["run"]) for each in (one, two)]
    assert read_answers(folders[0]) == read_answers(folders[1])
    assert sorted(read_guids(folders[1])) == sorted(read_guids(folders[0])), "every example is answered once"
    assert not list(folders[1].glob("calls.*.jsonl"))
    assert json.loads((folders[1] / "environment.json").read_text())["processes"] == 2

    texts = "".join(f"글 {k}번\n" for k in range(7))
    (tmp_path / "texts.txt").write_text(texts, "utf-8")
    assert run(capsys, "predict", folders[0], tmp_path / "texts.txt", "-o", tmp_path / "one.jsonl")[0] == 0
    printed = launch(tmp_path, "predict", folders[1], "--device", "cpu", stdin=texts)
    answers = [
        [json.loads(line)["answer"] for line in text.splitlines()]
        for text in (printed, (tmp_path / "one.jsonl").read_text())
    ]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 7
    evaluated = json.loads(
        launch(tmp_path, "eval", folders[1], "--file", tmp_path / "data" / "rows.jsonl", "--device", "cpu", "--json")
    )
    assert evaluated["scores"][0]["n"] == 40


@pytest.mark.lengthy
@pytest.mark.nightly
def test_two_processes_fine_tune_and_answer(sample, tmp_path):
    model = tiny_decoder(tmp_path / "tiny", sample, "llama")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    path = write_task(tmp_path / "data", "classify")
    settings = ("--epochs", 1, "--max-length", 1024, "--set", "llm.select_by=score", "--device", "cpu", "--json")
    document = json.loads(launch(tmp_path, "train", path, "-m", f"llm:{model}", "--runs", tmp_path / "runs", *settings))
    assert document["replies"]["asked"] == 8
    assert len(read_guids(Path(document["run"]))) == 8


@pytest.mark.lengthy
def test_two_processes_share_the_calls_of_a_server(tmp_path):
    path = write_task(tmp_path / "data", "classify")
    runs = tmp_path / "runs"
    with serving(lambda body, before: make_completion('{"label":"좋음"}')) as (url, bodies):
        command = ("prompt", path, "-m", "server:stub", "--url", url, "--runs", runs, "--json")
        document = json.loads(launch(tmp_path, *command))
    assert document["replies"]["asked"] == len(bodies) == 8
    assert [path.name for path in runs.glob("own-*")] == [Path(document["run"]).name]
