"""danseo prompt and danseo train llm: from the command to a run that every other command takes."""

import json
from pathlib import Path

import pytest

from danseo.cli import main
from danseo.data.find import write_sample
from danseo.runs.store import Run
from danseo.tasks import TASKS
from tests.models.llm.stub import make_completion, serving
from tests.models.llm.test_server_backend import knowing
from tests.tiny import read_split, tiny_decoder


@pytest.fixture(scope="module")
def small(tmp_path_factory, sample):
    """The sample with few examples, and a tiny model."""
    root = tmp_path_factory.mktemp("small")
    write_sample(root / "data")
    for task, count in (("ynat", 30), ("ner", 12), ("nli", 30)):
        for split in ("train", "dev"):
            path = root / "data" / TASKS[task].folder / TASKS[task].file(split)
            text = path.read_text("utf-8")
            if path.suffix == ".json":
                path.write_text(json.dumps(json.loads(text)[:count], ensure_ascii=False), "utf-8")
            else:
                head, *blocks = text.split("\n## ")
                path.write_text("\n## ".join([head, *blocks[: count - 1]]).rstrip("\n") + "\n", "utf-8")
    folder = tiny_decoder(root / "tiny", sample, "llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    return root


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return ended.value.code, shown.out, shown.err


def examples(small: Path, task: str) -> list:
    return TASKS[task].read(small / "data" / TASKS[task].folder / TASKS[task].file("dev"))


def test_a_prompted_run_is_an_ordinary_run(small, tmp_path, capsys):
    options = ("--data", small / "data", "--runs", tmp_path)
    code, out, err = run(capsys, "prompt", "ynat", "-m", f"llm:{small / 'tiny'}", *options, "--shots", 2, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["replies"]["failed"] == 0
    assert document["prompt"]["mode"] == "likelihood"
    folder = Path(document["run"])
    assert folder.name.startswith("ynat--llm-tiny--s42--")
    assert (folder / "model" / "prompt.txt").read_text("utf-8").startswith("== system ==")
    shots = json.loads((folder / "shots.json").read_text())
    train = {e.guid for e in read_split(small / "data", "ynat", "train")}
    assert {guid for guids in shots.values() for guid in guids} <= train
    assert len((folder / "calls.jsonl").read_text().splitlines()) == len(examples(small, "ynat"))
    assert run(capsys, "prompt", "ynat", "-m", f"llm:{small / 'tiny'}", *options, "--shots", 2)[0] == 0  # is returned
    code, out, _ = run(capsys, "runs", tmp_path, "--json")
    assert code == 0
    assert "0.0" in json.dumps(json.loads(out))
    code, out, err = run(capsys, "eval", folder, "--data", small / "data")
    assert (code, err) == (0, "")
    lines = tmp_path / "lines.txt"
    lines.write_text("새 반도체 공장 착공\n", "utf-8")
    code, out, err = run(capsys, "predict", folder, lines)
    assert code == 0, err
    assert json.loads(out)["answer"] in TASKS["ynat"].labels


def test_new_lines_are_shown_their_nearest_examples(small, tmp_path, capsys):
    train = read_split(small / "data", "ynat", "train")
    with serving(lambda body, before: make_completion('{"label":"정치"}')) as (url, bodies):
        command = ("prompt", "ynat", "-m", "server:stub", "--url", url, "--data", small / "data", "--runs", tmp_path)
        code, out, err = run(capsys, *command, "--shots", 2, "--shot-selection", "nearest", "--json")
        assert code == 0, err
        folder, sent = Path(json.loads(out)["run"]), len(bodies)
        lines = tmp_path / "lines.txt"
        lines.write_text(train[7].text + "\n", "utf-8")
        code, out, err = run(capsys, "predict", folder, lines)
        assert code == 0, err
    messages = [message["content"] for message in bodies[sent]["messages"]]
    assert len(messages) == 6  # the task, two examples with their replies, the question
    assert train[7].text in messages[3]  # the nearest comes last
    kept = folder / "model" / "neighbours.jsonl"
    for content, message in (('{"no": 1}\n', "corrupted"), (None, "lost")):
        kept.write_text(content) if content else kept.unlink()
        code, _, err = run(capsys, "predict", folder, lines)
        assert code == 2
        assert message in err


def test_failures_are_a_column_of_tables(small, tmp_path, capsys):
    with serving(lambda body, before: make_completion("모르겠습니다")) as (url, _):
        command = ("prompt", "ynat", "-m", "server:stub", "--url", url, "--data", small / "data", "--runs", tmp_path)
        code, out, err = run(capsys, *command)
    assert code == 0, err
    assert "failed" in out
    assert "failed %" in out
    code, out, _ = run(capsys, "runs", tmp_path, "--format", "csv")
    assert "failed %" in out.splitlines()[0]
    assert run(capsys, "train", "ynat", "-m", "majority", "--data", small / "data", "--runs", tmp_path)[0] == 0
    for table in ("seeds", "sweep"):
        code, out, err = run(capsys, "runs", tmp_path, "--table", table, "--task", "ynat", "--format", "csv")
        assert code == 0, err
        rows = [line.split(",") for line in out.splitlines()]
        column = rows[0].index("failed %")
        assert {row[column][:5] for row in rows[1:3]} == {"", "100.0"}
    compared = (
        "compare",
        *sorted(tmp_path.glob("ynat--*")),
        "--data",
        small / "data",
        "--on",
        "dev",
        "--resamples",
        100,
    )
    code, out, err = run(capsys, *compared)
    assert code == 0, err
    assert "failed %" in out
    code, out, err = run(capsys, *compared, "--json")
    assert list(json.loads(out)["failed_percent"].values()) == [100.0]


def test_a_dry_run_shows_three_prompts_and_asks_nothing(small, tmp_path, capsys):
    command = ("prompt", "nli", "-m", "server:x", "--url", "http://127.0.0.1:1/v1", "--data", small / "data")
    code, out, err = run(capsys, *command, "--runs", tmp_path / "runs", "--dry-run", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert len(document["prompts"]) == 3
    assert document["calls"] == len(examples(small, "nli"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-m", "server:x"), "server: models need --url"),
        (("-m", "server:x", "--url", "nowhere"), "is no address"),
        (("-m", "klue/roberta-base"), "danseo prompt takes llm:"),
        (("-m", "llm:"), "names no model"),
        (("-m", "llm:/no/such/folder"), "/no/such/folder"),
        (("-m", "server:x", "--url", "http://127.0.0.1:1/v1", "--mode", "likelihood"), "probability of every label"),
        (("-m", "server:x", "--url", "http://127.0.0.1:1/v1", "--output-format", "tsv"), "only entities"),
        (("-m", "server:x", "--url", "http://127.0.0.1:1/v1", "--prompt", "bad.txt"), "no part == user =="),
    ],
)
def test_bad_input_is_one_line_before_anything_is_sent(arguments, message, small, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.txt").write_text("== system ==\n네\n", "utf-8")
    code, out, err = run(capsys, "prompt", "ynat", *arguments, "--data", small / "data")
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("runs").exists()


def test_a_model_without_room_is_refused(small, tmp_path, capsys):
    command = ("prompt", "ynat", "-m", f"llm:{small / 'tiny'}", "--data", small / "data", "--runs", tmp_path / "runs")
    code, _, err = run(capsys, *command, "--max-context-length", 40)
    assert code == 2
    assert "a longer context" in err


def test_servers_are_not_trained(small, capsys):
    code, _, err = run(capsys, "train", "ynat", "-m", "server:x", "--data", small / "data")
    assert code == 2
    assert "danseo prompt ynat -m server:x" in err


def test_ner_systems_stand_in_one_table(small, tmp_path, capsys):
    dev = examples(small, "ner")
    gold = knowing(dev, "ner")

    def answer(body, before):
        text = gold(body)
        return make_completion(text if dev[0].text not in body["messages"][-1]["content"] else "모름")

    options = ("--data", small / "data", "--runs", tmp_path / "runs")
    assert run(capsys, "train", "ner", "-m", "majority", *options)[0] == 0
    with serving(answer) as (url, _):
        assert run(capsys, "prompt", "ner", "-m", "server:stub", "--url", url, *options)[0] == 0
    command = ("runs", tmp_path / "runs", "--table", "ner-systems", "--data", small / "data")
    code, out, err = run(capsys, *command, "--json")
    assert code == 0, err
    rows = {row["model"]: row for row in json.loads(out)}
    served = rows["server:stub"]
    assert served["system"] == "prompted server"
    assert served["entity P (micro)"] == 100
    assert served["entity R (micro)"] < 100
    assert served["sentence %"] == pytest.approx(100 * (len(dev) - 1) / len(dev))
    assert served["failed %"] == pytest.approx(100 / len(dev), abs=1e-3)
    assert served["missed"] > 0
    assert served["deterministic"] == "no"
    assert rows["majority"]["failed %"] is None
    for style in ("markdown", "csv", "latex"):
        assert "prompted server" in run(capsys, *command, "--format", style)[1]
    shorter = tmp_path / "shorter"
    write_sample(shorter)
    assert run(capsys, "train", "ner", "-m", "majority", "--data", shorter, "--runs", tmp_path / "runs")[0] == 0
    code, out, err = run(capsys, *command, "--json")
    assert (code, len(json.loads(out))) == (0, 2), err  # the run on other sentences is left out


def test_a_wrong_address_leaves_an_unfinished_run_unfinished(small, tmp_path, capsys):
    def answer(body: dict, before: int):
        return make_completion('{"label":"정치"}') if len(bodies) <= 12 else (404, {}, "no such model")

    def status() -> str:
        return Run(next(path for path in tmp_path.iterdir() if path.is_dir())).status

    with serving(answer) as (url, bodies):
        command = ("prompt", "ynat", "-m", "server:stub", "--data", small / "data", "--runs", tmp_path)
        assert run(capsys, *command, "--url", url, "--limit-calls", 10)[0] == 3
        assert status() == "unfinished"
        assert run(capsys, *command, "--url", "http://127.0.0.1:9/v1")[0] == 1
        assert status() == "unfinished"
        code, _, err = run(capsys, *command, "--url", url)
        assert (code, status()) == (3, "unfinished")
        assert "12 replies are kept" in err


def test_a_limit_answers_a_seeded_part_of_dev(small, tmp_path, capsys):
    def guids(document: dict) -> list[str]:
        return [json.loads(line)["guid"] for line in (Path(document["run"]) / "predictions/dev.jsonl").open()]

    with serving(lambda body, before: make_completion('{"label":"정치"}')) as (url, bodies):
        command = ("prompt", "ynat", "-m", "server:stub", "--url", url, "--data", small / "data", "--runs", tmp_path)
        found = {}
        for name, more in {"8": (), "8 again": ("--force",), "12": (), "8 seed 1": ("--seed", 1)}.items():
            code, out, err = run(capsys, *command, "--limit", name.split()[0], *more, "--json")
            assert code == 0, err
            found[name] = guids(json.loads(out))
        folder, sent = json.loads(out)["run"], len(bodies)
        code, out, err = run(capsys, "eval", folder, "--data", small / "data", "--json")
        assert code == 0, err
        assert len(bodies) == sent == 8 + 8 + 12 + 8  # saved answers are scored, nothing is sent again
        assert run(capsys, *command, "--json")[0] == 0
    order = [example.guid for example in examples(small, "ynat")]
    assert found["8"] == found["8 again"] == [guid for guid in order if guid in found["8"]]
    assert len(found["8"]) == 8
    assert set(found["8"]) < set(found["12"])
    assert found["8"] != found["8 seed 1"]
    out = run(capsys, "runs", tmp_path, "--format", "markdown")[1]
    assert out.count("8 dev examples") == 2
    assert out.count("12 dev examples") == 1
    assert run(capsys, "report", tmp_path, "--data", small / "data", "--out", tmp_path / "page.html")[0] == 0
    assert "12 dev examples" in (tmp_path / "page.html").read_text("utf-8")
