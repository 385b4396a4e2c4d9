"""The command line: output, errors and exit codes."""

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from danseo.cli import cli
from danseo.data.find import SAMPLE
from danseo.data.prediction_file import write_predictions
from danseo.files import content_sha256
from danseo.scoring.score import baseline
from danseo.tasks import TASKS
from tests.conftest import Result

OFFICIAL = {
    "ynat": ["ynat/macro_f1@official-1"],
    "sts": ["sts/pearson@official-1", "sts/f1@official-1"],
    "nli": ["nli/accuracy@official-1"],
    "ner": ["ner/entity_f1@official-1", "ner/char_f1@official-1", "ner/char_f1@paper-1", "ner/entity_f1@micro-1"],
    "re": ["re/micro_f1@official-1", "re/auprc@official-1", "re/accuracy@plain-1"],
    "dp": ["dp/uas@official-1", "dp/las@official-1", "dp/uas@micro-1", "dp/las@micro-1"],
    "mrc": ["mrc/exact_match@official-1", "mrc/rouge_w@official-1", "mrc/rouge_w@exact-1"],
    "wos": ["wos/jga@official-1", "wos/slot_f1@official-1", "wos/slot_f1@pooled-1"],
}
DETAILS = {
    "ynat": ["per label", "confusion"],
    "sts": ["per source", "per gold score"],
    "nli": ["per label", "confusion", "per source"],
    "ner": ["per entity type", "entity errors", "by seen entities"],
    "re": [
        "per label",
        "confusion",
        "hardest pairs of labels",
        "is there a relation?",
        "per source",
        "by seen entities",
    ],
    "dp": ["per relation (right: head and relation)", "per sentence length", "confusion where the head is right"],
    "mrc": ["per question type", "per answerability", "did it answer?"],
    "wos": ["per domain", "per slot", "per user turn"],
}
Run = Callable[..., Result]


def gold_of(name: str, sample: Path) -> Path:
    return sample / TASKS[name].folder / TASKS[name].file("dev")


@pytest.fixture
def system(sample: Path, tmp_path: Path) -> Callable[..., Path]:
    """A prediction file that answers like the oracle except for a share of random answers."""

    def write(name: str, file: str = "oracle", wrong: float = 0, cut: int | None = None) -> Path:
        task, path = TASKS[name], tmp_path / f"{file}.jsonl"
        examples = task.read(gold_of(name, sample))
        right, random_ = (baseline(who, task, examples) for who in ("oracle", "random"))
        rng = random.Random(file)
        chosen = [other if rng.random() < wrong else one for one, other in zip(right, random_, strict=True)]
        write_predictions(path, chosen[:cut])
        return path

    return write


def test_tasks(danseo: Run) -> None:
    result = danseo("tasks")
    assert (result.code, result.err) == (0, "")
    lines = [line.split() for line in result.out.splitlines() if "/" in line and "@" in line]
    assert [(line[0], line[1]) for line in lines] == [(task.name, task.short) for task in TASKS.values()]
    assert result.out.count("missing") == len(TASKS)


def test_tasks_as_json(invoke: Run, sample: Path) -> None:
    document = invoke("tasks", "--json", "--data", sample).json
    assert document["data"] == str(sample)
    for described, task in zip(document["tasks"], TASKS.values(), strict=True):
        assert (described["name"], described["headline"]) == (task.name, task.headline)
        assert list(described["metrics"]) == list(task.metrics)
        assert set(OFFICIAL[task.name]) <= set(described["metrics"])
        assert described["files"] == {s: str(sample / task.folder / task.file(s)) for s in ("train", "dev")}
        assert invoke("tasks", task.name).out == invoke("tasks", task.short).out
    assert Path(invoke("tasks", "nli", "--data", "sample", "--json").json["files"]["dev"]).is_relative_to(SAMPLE)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, invoke: Run) -> None:
    result = invoke("completion", shell)
    assert (result.code, result.err) == (0, "")
    assert f"_DANSEO_COMPLETE={shell}_complete" in result.out
    assert f"danseo completion {shell}" in invoke("completion", "--help").out


def test_completion_in_bash(tmp_path: Path) -> None:
    """The printed script completes commands and options in a real bash."""
    if not (bash := shutil.which("bash")):
        pytest.skip("bash is not installed")
    program = tmp_path / "danseo"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m danseo "$@"\n')
    program.chmod(0o755)
    script = """
PATH="$PWD:$PATH"
eval "$(danseo completion bash)"
for words in "sc" "score --js"; do
    COMP_WORDS=(danseo $words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
    _danseo_completion danseo; echo "${COMPREPLY[@]}"
done
"""
    ended = subprocess.run([bash, "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (ended.stdout.split(), ended.stderr) == (["score", "--json"], "")


@pytest.mark.parametrize(("name", "hint"), [("ynta", "did you mean 'ynat'? "), ("dts", "did you mean "), ("분류", "")])
@pytest.mark.parametrize("command", ["tasks {}", "score {} dev x", "compare {} dev x", "data stats {}"])
def test_unknown_task(command: str, name: str, hint: str, invoke: Run) -> None:
    result = invoke(*command.format(name).split())
    assert (result.code, result.out) == (2, "")
    assert result.complaint.startswith(f"danseo: no task named {name!r}; {hint}")


def test_sample_is_written_to_a_folder(invoke: Run, sample: Path, tmp_path: Path) -> None:
    result = invoke("data", "sample", tmp_path / "again")
    assert (result.code, result.err) == (0, "")
    assert f"42 files in {tmp_path / 'again'}" in result.out
    assert content_sha256(tmp_path / "again") == content_sha256(sample)


def test_check_accepts_the_sample(invoke: Run, sample: Path) -> None:
    result = invoke("data", "check", "--data", sample)
    assert (result.code, result.err) == (0, "")
    assert "bundled sample, not KLUE data" in result.out
    document = invoke("data", "check", "--data", sample, "--json").json
    assert len(document["files"]) == 18
    assert {file["verdict"] for file in document["files"]} == {"subset"}
    assert len(invoke("data", "check", "dp", "NER", "--data", sample, "--json").json["files"]) == 4


def test_check_reports_damaged_and_missing_files(invoke: Run, tmp_path: Path) -> None:
    result = invoke("data", "check", "--data", tmp_path)
    assert result.code == 2
    assert result.complaint.startswith(f"danseo: no data in {tmp_path}; fetch it with `danseo data get`")
    path = tmp_path / TASKS["nli"].folder / TASKS["nli"].file("dev")
    path.parent.mkdir()
    path.write_text("[{")
    result = invoke("data", "check", "--data", tmp_path, "--json")
    assert result.code == 2
    assert result.complaint.startswith(f"danseo: 1 corrupted files; the first: {path}, line 1: not valid JSON")
    assert [file["verdict"] for file in result.json["files"]].count("corrupted") == 1


def test_the_sample_is_not_overwritten(invoke: Run, sample: Path, tmp_path: Path) -> None:
    result = invoke("data", "get", "ynat", "--from", sample, "--data", "sample")
    assert result.code == 2
    assert "--data sample" in result.complaint
    (tmp_path / "file").touch()
    result = invoke("data", "sample", tmp_path / "file")
    assert result.code == 2
    assert "cannot be written" in result.complaint


@pytest.mark.parametrize("name", TASKS)
def test_score_of_the_oracle(name: str, invoke: Run, system: Callable[..., Path], sample: Path) -> None:
    gold, path = gold_of(name, sample), system(name)
    result = invoke("score", TASKS[name].short, gold, path, "--json", "--resamples", 50)
    assert (result.code, result.err) == (0, "")
    document = result.json
    assert (document["task"], document["gold"], document["predictions"]) == (name, str(gold), str(path))
    assert document["headline"] == document["scores"][0]["id"] == TASKS[name].headline
    assert document["partial"] is False
    assert document["n"] == document["examples"] == len(TASKS[name].read(gold))
    scores = {score["id"]: score for score in document["scores"]}
    assert list(scores) == list(TASKS[name].metrics)
    assert set(OFFICIAL[name]) <= set(scores)
    for id_, score in scores.items():
        assert score["value"] == pytest.approx(100), id_
        assert score["interval"][0] < 99.9 < score["interval"][1] == pytest.approx(100), id_
        assert score["n"] == document["n"]
        assert document["baselines"]["oracle"][id_] == pytest.approx(100)
    assert set(document["baselines"]) == {"oracle", "majority", "random"}


@pytest.mark.parametrize("name", TASKS)
def test_score_with_details(name: str, invoke: Run, system: Callable[..., Path], sample: Path) -> None:
    arguments = ("score", name, "dev", system(name, "a", wrong=0.4), "--data", sample, "--details", "--resamples", 20)
    result = invoke(*arguments)
    assert (result.code, result.err) == (0, "")
    assert set(DETAILS[name]) <= set(result.out.splitlines())
    tables = invoke(*arguments, "--json").json["details"]
    assert [table["title"] for table in tables] == DETAILS[name]
    for table in tables:
        assert table["rows"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_score_table(invoke: Run, system: Callable[..., Path], sample: Path) -> None:
    result = invoke("score", "ynat", "dev", system("ynat", "a", wrong=0.3), "--data", sample)
    assert (result.code, result.err) == (0, "")
    header = next(line for line in result.out.splitlines() if "95 % interval" in line)
    assert header.split() == ["metric", "score", "95", "%", "interval", "oracle", "majority", "random"]
    assert len(header) < 80
    assert "\nn = 140\n" in result.out
    rows = [line.split() for line in result.out.splitlines() if "ynat/" in line]
    assert [row[0] for row in rows] == list(TASKS["ynat"].metrics)
    value, low, _, high = rows[0][1:5]
    assert float(low) < float(value) < float(high) < 100


def test_seeds_and_resamples(invoke: Run, system: Callable[..., Path], sample: Path) -> None:
    command = ("score", "ner", "dev", system("ner", "a", wrong=0.3), "--data", sample, "--json")
    first, again, other = (invoke(*command, "--seed", seed).out for seed in (1, 1, 2))
    assert first == again != other
    document = invoke(*command, "--resamples", 0).json
    assert {score["interval"] for score in document["scores"]} == {None}


def test_partial_scores(invoke: Run, system: Callable[..., Path], sample: Path) -> None:
    arguments = ("score", "nli", "dev", system("nli", "some", cut=7), "--data", sample)
    refused = invoke(*arguments)
    assert refused.code == 2
    assert "examples have no prediction, the first is guid 'klue-nli-sample_dev_00007'" in refused.complaint
    result = invoke(*arguments, "--partial")
    assert result.code == 0
    assert "PARTIAL: 7 of 140 examples" in result.out
    document = invoke(*arguments, "--partial", "--json").json
    assert (document["partial"], document["n"], document["examples"]) == (True, 7, 140)
    assert {score["n"] for score in document["scores"]} == {7}


def test_relations_without_probabilities(invoke: Run, sample: Path, tmp_path: Path) -> None:
    task = TASKS["re"]
    predictions = baseline("oracle", task, task.read(gold_of("re", sample)))
    write_predictions(tmp_path / "bare.jsonl", [replace(p, probabilities=None) for p in predictions])
    arguments = ("score", "re", "dev", tmp_path / "bare.jsonl", "--data", sample)
    refused = invoke(*arguments)
    assert refused.code == 2
    assert ", line 1 (guid 'klue-re-sample_dev_00000'): no probabilities" in refused.complaint
    document = invoke(*arguments, "--skip", "auprc", "--json").json
    assert [score["id"] for score in document["scores"]] == [id_ for id_ in task.metrics if "auprc" not in id_]


def test_undefined_scores_are_null_with_a_note(invoke: Run, sample: Path, tmp_path: Path) -> None:
    task = TASKS["sts"]
    write_predictions(tmp_path / "flat.jsonl", baseline("majority", task, task.read(gold_of("sts", sample))))
    arguments = ("score", "sts", "dev", tmp_path / "flat.jsonl", "--data", sample)
    pearson = invoke(*arguments, "--json").json["scores"][0]
    assert (pearson["value"], pearson["interval"]) == (None, None)
    assert pearson["note"].startswith("undefined")
    assert pearson["note"] in invoke(*arguments).out


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_wrong_files_end_with_2_and_one_line(
    as_json: list[str], invoke: Run, system: Callable[..., Path], sample: Path, tmp_path: Path
) -> None:
    oracle = system("nli")
    (tmp_path / "broken.jsonl").write_text('{"guid": ')
    cases = {
        ("nli", gold_of("nli", sample), tmp_path / "none.jsonl"): "none.jsonl is missing",
        ("nli", gold_of("nli", sample), tmp_path): "is a folder",
        ("nli", gold_of("nli", sample), tmp_path / "broken.jsonl"): "broken.jsonl, line 1: not valid JSON",
        ("nli", gold_of("nli", sample), gold_of("nli", sample)): "not predictions",
        ("nli", gold_of("ner", sample), oracle): "is a file of the task ner, not of nli",
        ("ner", gold_of("nli", sample), oracle): "is a file of the task nli, not of ner",
        ("nli", gold_of("ynat", sample), oracle): "is a file of the task ynat, not of nli",
        ("nli", "nowhere.json", oracle): "nowhere.json is missing",
        ("nli", "dev", oracle): "klue-nli-v1.1/klue-nli-v1.1_dev.json (or .gz, or nli/validation-*.parquet) is not in",
    }
    for arguments, complaint in cases.items():
        result = invoke("score", *arguments, *as_json)
        assert (result.code, result.out) == (2, "")
        assert complaint in result.complaint


@pytest.fixture
def three(system: Callable[..., Path]) -> list[Path]:
    return [system("nli", "weak", wrong=0.6), system("nli", "good", wrong=0.06), system("nli", "fair", wrong=0.07)]


def test_compare_three_systems(invoke: Run, three: list[Path], sample: Path) -> None:
    result = invoke("compare", "nli", "dev", *three, "--data", sample, "--json", "--resamples", 500)
    assert (result.code, result.err) == (0, "")
    document = result.json
    assert document["files"] == {path.stem: str(path) for path in three}
    assert (document["n"], document["clusters"], document["partial"]) == (140, 135, False), (
        "premises that several hypotheses share"
    )
    assert set(document["scores"]) == set(document["groups"]) == set(TASKS["nli"].metrics)
    for id_, values in document["scores"].items():
        pairs = [each for each in document["differences"] if each["metric"] == id_]
        assert [(pair["a"], pair["b"]) for pair in pairs] == [("weak", "good"), ("weak", "fair"), ("good", "fair")]
        for pair in pairs:
            assert pair["difference"] == pytest.approx(values[pair["b"]] - values[pair["a"]])
            assert pair["interval"][0] <= pair["difference"] <= pair["interval"][1]
            assert pair["p_permutation"] <= pair["p_holm"] <= 1
            assert pair["significant"] == (pair["p_holm"] < 0.05)
            assert pair["smallest_detectable"] > 0
            assert pair["p_mcnemar"] is None, "hypotheses share their premises, so examples are not independent"
        ordered = sorted(pairs, key=lambda pair: pair["p_permutation"])
        assert ordered[0]["p_holm"] == pytest.approx(3 * ordered[0]["p_permutation"])
        assert ordered[2]["p_holm"] == pytest.approx(max(ordered[2]["p_permutation"], ordered[1]["p_holm"]))
        assert [pair["significant"] for pair in pairs] == [True, True, False]
        assert document["groups"][id_] == {"good": "a", "fair": "a", "weak": "b"}


def test_compare_fails_if_a_system_is_significantly_worse(invoke: Run, three: list[Path], sample: Path) -> None:
    weak, good, fair = three
    options = ["--data", sample, "--resamples", 500, "--fail-if-worse"]
    for files, code, line in (
        ([good, fair, weak], 1, "worse than good in nli/accuracy@official-1: weak -"),
        ([good, fair], 0, "no system is significantly worse than good"),
        ([weak, good], 0, "no system is significantly worse than weak"),
    ):
        result = invoke("compare", "nli", "dev", *files, *options)
        assert result.code == code
        assert line in result.err
        assert invoke("compare", "nli", "dev", *files, *options, "--json").json["n"] == 140


def test_compare_shows_the_headline_and_all_only_when_asked(
    invoke: Run, system: Callable[..., Path], sample: Path, tmp_path: Path
) -> None:
    paths = [system("re", "a", wrong=0.2), system("re", "b", wrong=0.3)]
    arguments = ("compare", "re", "dev", *paths, "--data", sample, "--resamples", 100)
    short, full = invoke(*arguments), invoke(*arguments, "--all")
    metrics = list(TASKS["re"].metrics)
    assert [id_ for id_ in metrics if id_ in short.out] == metrics[:1]
    assert "--all shows 6 more metrics" in short.out
    assert [id_ for id_ in metrics if id_ in full.out] == metrics
    assert "--all" not in full.out
    other = invoke(*arguments, "--skip", "micro_f1").out
    assert [id_ for id_ in metrics if id_ in other] == metrics[1:2]
    bare = [path.rename(tmp_path / f"bare-{path.name}") for path in paths]
    for path in bare:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({k: row[k] for k in ("guid", "answer")}) + "\n" for row in rows))
    assert invoke("compare", "re", "dev", *bare, "--data", sample, "--resamples", 100).code == 0


def test_few_examples_are_noted(invoke: Run, system: Callable[..., Path], sample: Path) -> None:
    some = [system("nli", "a", wrong=0.2, cut=19), system("nli", "b", wrong=0.4, cut=19)]
    options = ("--partial", "--data", sample, "--resamples", 100)
    for arguments in (("score", "nli", "dev", some[0]), ("compare", "nli", "dev", *some)):
        assert "few independent examples (19)" in invoke(*arguments, *options).out
    assert "few independent" not in invoke("score", "nli", "dev", system("nli", "c", cut=20), *options).out


def test_identical_answers(invoke: Run, system: Callable[..., Path], sample: Path) -> None:
    paths = [system("nli", "a", wrong=0.2), system("nli", "b", wrong=0.3)]
    paths[1].write_bytes(paths[0].read_bytes())
    arguments = ("compare", "nli", "dev", *paths, "--data", sample, "--resamples", 200)
    assert "identical answers" in invoke(*arguments).out
    for pair in invoke(*arguments, "--json").json["differences"]:
        assert (pair["difference"], pair["p_permutation"], pair["smallest_detectable"]) == (0, 1, None)
        assert pair["identical_answers"] is True
        assert pair["interval"] == [0, 0]


@pytest.mark.parametrize(("name", "units"), [("wos", "dialogue"), ("mrc", "text")])
def test_compare_keeps_clusters_together(
    name: str, units: str, invoke: Run, system: Callable[..., Path], sample: Path
) -> None:
    paths = [system(name, "a", wrong=0.2), system(name, "b", wrong=0.3)]
    document = invoke("compare", name, "dev", *paths, "--data", sample, "--json", "--resamples", 100).json
    examples = TASKS[name].read(gold_of(name, sample))
    assert document["clusters"] == len({getattr(example, units) for example in examples}) < document["n"]
    assert all(pair["p_mcnemar"] is None for pair in document["differences"])


def test_compare_enforces_the_same_examples(invoke: Run, system: Callable[..., Path], sample: Path) -> None:
    whole, some = system("nli", "whole", wrong=0.2), system("nli", "some", cut=50)
    arguments = ("compare", "nli", "dev", whole, some, "--data", sample, "--resamples", 100)
    refused = invoke(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert f"{some}: 90 of 140 examples have no prediction" in refused.complaint
    result = invoke(*arguments, "--partial")
    assert "PARTIAL: 50 of 140 examples are answered by every file" in result.out
    assert invoke(*arguments, "--partial", "--json").json["partial"] is True


def test_compare_needs_two_different_files(invoke: Run, system: Callable[..., Path], sample: Path) -> None:
    path = system("nli")
    for files, complaint in (
        ([path], "name at least two prediction files"),
        ([path, path.parent / "." / path.name], "the same prediction file is named twice"),
        ([path, path.parent / ".." / path.parent.name / path.name], "the same prediction file is named twice"),
    ):
        result = invoke("compare", "nli", "dev", *files, "--data", sample)
        assert (result.code, result.out) == (2, "")
        assert complaint in result.complaint


def test_files_of_one_name_are_named_with_their_folders(
    invoke: Run, system: Callable[..., Path], sample: Path, tmp_path: Path
) -> None:
    paths = []
    for folder, wrong in (("one", 0.1), ("two", 0.2)):
        (tmp_path / folder).mkdir()
        paths.append(system("nli", "p", wrong=wrong).rename(tmp_path / folder / "p.jsonl"))
    document = invoke("compare", "nli", "dev", *paths, "--data", sample, "--json", "--resamples", 100).json
    assert list(document["files"]) == ["one/p", "two/p"]


def test_doctor_finds_the_sample_healthy(invoke: Run, sample: Path) -> None:
    result = invoke("doctor", "--data", sample, "--json")
    assert (result.code, result.err) == (0, "")
    document = result.json
    assert (document["healthy"], document["failures"]) == (True, [])
    tables = {table["title"]: table for table in document["tables"]}
    preflight = [dict(zip(tables["preflight"]["columns"], row, strict=True)) for row in tables["preflight"]["rows"]]
    assert [trial["task"] for trial in preflight] == list(TASKS)
    for trial in preflight:
        assert trial["oracle"] == pytest.approx(100)
        assert trial["random"] < 50
        assert trial["ok"] is True


def test_doctor_without_data(invoke: Run, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        result = invoke("doctor", "--data", folder)
        assert (result.code, result.err) == (0, "")
        assert f"no dev files in {folder}; try --data sample" in result.out


def test_doctor_reports_failures(invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / TASKS["ner"].folder / TASKS["ner"].file("dev")
    path.parent.mkdir()
    path.write_text("## a\t가\n가\tX\n")
    shards = tmp_path / "dp"
    shards.mkdir()
    for number in range(2):
        (shards / f"validation-0000{number}-of-00002.parquet").touch()
    (tmp_path / "file").touch()
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "file"))
    result = invoke("doctor", "--data", tmp_path, "--json")
    assert result.code == 2
    assert result.json["healthy"] is False
    failures = " ".join(result.json["failures"])
    assert f"{path}, line 2 (guid 'a')" in failures
    assert "has 2 parquet files for dev" in failures
    assert "set DANSEO_CACHE" in failures


def test_doctor_accepts_a_few_examples(invoke: Run, sample: Path, tmp_path: Path) -> None:
    path = tmp_path / TASKS["nli"].folder / TASKS["nli"].file("dev")
    path.parent.mkdir()
    path.write_text(json.dumps(json.loads(gold_of("nli", sample).read_text())[:1]))
    assert invoke("doctor", "--data", tmp_path).code == 0


@pytest.mark.lengthy
def test_demo(danseo: Run, tmp_path: Path) -> None:
    result = danseo("demo", "ynat", "--folder", tmp_path / "demo")
    assert result.code == 0, result.err
    assert "[1/1] TC" in result.err
    table = (tmp_path / "demo" / "scores.md").read_text()
    assert TASKS["ynat"].headline in table
    assert table.rstrip().splitlines()[-3].endswith("| yes |"), "a trained encoder beats the majority answer"
    assert (tmp_path / "demo" / "sample").is_dir()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["frobnicate"], "danseo: No such command 'frobnicate'. See `danseo --help`."),
        (["data", "frobnicate"], "danseo: No such command 'frobnicate'. See `danseo data --help`."),
        (["--frobnicate"], "danseo: No such option '--frobnicate'"),
        (["score", "ner", "x", "y", "--frobnicate"], "danseo: No such option '--frobnicate'"),
        (["score"], "danseo: Missing argument 'TASK'. See `danseo score --help`."),
        (["score", "ner", "dev"], "danseo: Missing argument 'PREDICTIONS'. See `danseo score --help`."),
        (["score", "ner", "x", "y", "--resamples", "-1"], "danseo: Invalid value for '--resamples': -1 is not in"),
        (["score", "ner", "x", "y", "--seed", "-1"], "danseo: Invalid value for '--seed': -1 is not in the range"),
        (["score", "ner", "x", "y", "--seed", "?"], "danseo: Invalid value for '--seed': '?' is not a valid integer"),
        (
            ["score", "nli", "dev", "x", "--skip", "f2"],
            "danseo: --skip f2: nli has no such metric; it has nli/accuracy",
        ),
        (["score", "nli", "dev", "x", "--data", ""], "danseo: --data is empty; name a folder"),
    ],
)
def test_wrong_usage(arguments: list[str], complaint: str, invoke: Run, sample: Path) -> None:
    if "--skip" in arguments:
        arguments = [*arguments, "--data", str(sample)]
    result = invoke(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.complaint.startswith(complaint)


@pytest.mark.parametrize("group", [[], ["data"]])
def test_a_group_alone_shows_its_help(group: list[str], invoke: Run) -> None:
    result = invoke(*group)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: danseo ")
    assert len(result.out.splitlines()) > 8
    assert result.out == invoke(*group, "--help").out == invoke(*group, "-h").out


def test_help_has_one_whole_line_per_command(invoke: Run) -> None:
    shown = invoke("--help").out.splitlines()
    for name in cli.list_commands(click.Context(cli)):
        line = next(line for line in shown if line.split()[:1] == [name])
        assert line.endswith("."), f"{name}: the first sentence of its help is too long"


def test_every_command_and_option_has_a_help_text() -> None:
    commands: list[Any] = [cli]
    for command in commands:
        assert command.help, command.name
        assert all(each.param_type_name == "argument" or each.help for each in command.params), command.name
        commands += getattr(command, "commands", {}).values()
    assert len(commands) > 30


def test_interrupt(system: Callable[..., Path], sample: Path) -> None:
    paths = [system("ner", name, wrong=0.2) for name in ("a", "b")]
    arguments = ["compare", "ner", "dev", *paths, "--data", sample, "--resamples", "2000000", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "danseo", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells ignore it for what runs behind
    )
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    result = Result(subprocess.CompletedProcess([], process.returncode, out, err))
    assert (result.code, result.out) == (130, "")
    assert result.complaint == "danseo: interrupted"


@pytest.mark.parametrize(("arguments", "reader"), [("tasks --json", "head -1"), ("tasks", "true")])
def test_reader_that_leaves_early(arguments: str, reader: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m danseo {arguments} | {reader}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout.splitlines()) == (1 if reader == "head -1" else 0)


def test_full_disk_and_closed_output() -> None:
    command = f"{shlex.quote(sys.executable)} -m danseo tasks"
    if Path("/dev/full").exists():
        full = subprocess.run(["sh", "-c", f"{command} >/dev/full"], capture_output=True, text=True, timeout=60)
        assert (full.returncode, full.stderr.count("\n")) == (1, 1)
        assert "no space left" in full.stderr
    closed = subprocess.run(["sh", "-c", f"{command} >&-"], capture_output=True, text=True, timeout=60)
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.parametrize(
    ("environment", "as_json"),
    [
        ({"PYTHONIOENCODING": "ascii"}, []),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ["--json"]),  # arguments arrive as raw bytes
        ({"PYTHONIOENCODING": "latin-1"}, ["--json"]),
    ],
    ids=["ascii", "C uncoerced", "latin-1"],
)
def test_korean_stays_korean(environment: dict[str, str], as_json: list[str], tmp_path: Path) -> None:
    variables = {**{k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}, **environment}
    variables["DANSEO_CACHE"] = str(tmp_path)
    command = [sys.executable, "-m", "danseo", "tasks"]
    right, wrong = (
        subprocess.run([*command, *arguments], capture_output=True, env=variables, timeout=60)
        for arguments in (["ynat", *as_json], ["감정"])
    )
    assert (right.returncode, right.stderr) == (0, b"")
    assert "생활문화" in right.stdout.decode()
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    shown = repr("감정".encode().decode("ascii", "surrogateescape")) if "PYTHONUTF8" in environment else "'감정'"
    assert wrong.stderr.decode() == f"danseo: no task named {shown}; `danseo tasks` lists all\n"


def test_an_error_line_is_bounded(invoke, tmp_path):
    (tmp_path / "data.csv").write_text(f"text,{'라' * 50_000}\n" + "가,나\n" * 8, "utf-8")
    (tmp_path / "own.toml").write_text(
        "type = 'classification'\ntrain = 'data.csv'\ndev = 0.5\ntext = 'text'\nlabel = 'label'\n", "utf-8"
    )
    result = invoke("train", tmp_path / "own.toml", "-m", "majority", "--runs", tmp_path / "runs")
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert len(result.err) < 1000
