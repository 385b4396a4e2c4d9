"""One bundle of several tasks, and the submission CSV."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.export.bundle import pack_zip
from danseo.models.registry import configure_run
from danseo.tasks import TASKS


@pytest.fixture(scope="module")
def runs(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("submission")
    models = {"re": "linear", "sts": "majority", "nli": "linear"}
    configs = {task: configure_run(task, model, "default", {}) for task, model in models.items()}
    return {task: run_experiment(config, sample, folder, quiet=True).path for task, config in configs.items()}


def invoke(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    return found.exit_code, found.stdout, found.stderr


def assert_refused(folder: Path, word: str, *arguments: object) -> None:
    """The command ends with one line and exit code 2, and writes nothing."""
    before = sorted(folder.rglob("*"))
    error = CliRunner().invoke(cli, [str(argument) for argument in arguments]).exception
    assert isinstance(error, DanseoError), error
    assert error.exit_code == 2
    assert word in str(error)
    assert "\n" not in str(error)
    assert sorted(folder.rglob("*")) == before


def test_a_bundle_of_several_tasks_is_verified_and_names_the_missing_ones(runs, sample, tmp_path):
    paths = [tmp_path / "a.zip", tmp_path / "b.zip"]
    for path, order in zip(paths, (list(runs), ["nli", "re", "sts"]), strict=True):
        code, out, err = invoke("export", *(runs[task] for task in order), "--to", "bundle", "--out", path, "--json")
        assert code == 0, err
        document = json.loads(out)
        assert document["tasks"] == ["sts", "nli", "re"]
        assert document["missing"] == ["ynat", "ner", "dp", "mrc", "wos"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    code, out, err = invoke("score", "--bundle", paths[0], "--data", sample, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["verified"]
    assert document["missing"] == ["ynat", "ner", "dp", "mrc", "wos"]
    for each in document["runs"]:
        assert each["scores"] == json.loads((runs[each["task"]] / "scores.json").read_text())["scores"]
    code, out, _ = invoke("score", "--bundle", paths[0], "--data", sample)
    assert code == 0
    assert "3 of 8" in out
    assert all(task.short in out for task in TASKS.values())


def test_a_bundle_of_one_task_reports_it_too(runs, sample, tmp_path):
    _, out, _ = invoke("export", runs["re"], "--to", "bundle", "--out", tmp_path / "a.zip", "--json")
    assert json.loads(out)["tasks"] == ["re"]
    _, out, _ = invoke("score", "--bundle", tmp_path / "a.zip", "--data", sample, "--json")
    assert len(json.loads(out)["missing"]) == 7


def test_runs_that_cannot_share_a_bundle_are_one_line(runs, sample, tmp_path):
    out = tmp_path / "out.zip"
    other = shutil.copytree(runs["re"], tmp_path / "other")
    assert_refused(tmp_path, "re", "export", runs["re"], other, "--to", "bundle", "--out", out)
    (other / "scores.json").unlink()
    assert_refused(tmp_path, "unfinished", "export", runs["nli"], other, "--to", "bundle", "--out", out)
    assert_refused(tmp_path, "missing", "export", runs["nli"], tmp_path / "missing", "--to", "bundle", "--out", out)
    broken = shutil.copytree(runs["sts"], tmp_path / "broken")
    (broken / "predictions" / "dev.jsonl").unlink()
    assert_refused(tmp_path, "dev.jsonl", "export", runs["nli"], broken, "--to", "bundle", "--out", out)
    assert_refused(tmp_path, "one run", "export", runs["nli"], runs["re"], "--to", "card", "--out", tmp_path / "card")
    inside = runs["re"] / "bundle.zip"
    assert_refused(runs["re"], "run directory", "export", runs["nli"], runs["re"], "--to", "bundle", "--out", inside)


def test_an_own_task_has_a_bundle_of_its_own(runs, sample, tmp_path):
    rows = [f"{number}번째 글이 {word}\t{word}" for number in range(60) for word in ("좋다", "싫다")]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n", "utf-8")
    (tmp_path / "mine.toml").write_text(
        'type = "classification"\ntrain = "train.tsv"\ndev = 0.5\ntext = "text"\nlabel = "label"\n'
    )
    own = run_experiment(
        configure_run(str(tmp_path / "mine.toml"), "linear", "default", {}), sample, tmp_path / "runs", quiet=True
    ).path
    out = tmp_path / "out.zip"
    assert_refused(tmp_path, "mine", "export", runs["nli"], own, "--to", "bundle", "--out", out)
    code, text, _ = invoke("export", own, "--to", "csv", "--out", tmp_path / "own.csv", "--json")
    assert (code, json.loads(text)["labels"]) == (0, ["싫다", "좋다"])


def test_a_changed_bundle_of_several_tasks_is_refused(runs, sample, tmp_path):
    import zipfile

    path = tmp_path / "all.zip"
    invoke("export", *runs.values(), "--to", "bundle", "--out", path)
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    moved = {name.replace("nli/", "ynat/"): content for name, content in files.items()}
    changes = {
        "nothing else": files | {"../evil": b"x"},
        "and nothing": {name: content for name, content in files.items() if name != "re/scores.json"},
        "hash": files | {"re/config.toml": files["re/config.toml"] + b"\n"},
        "ynat": moved,
    }
    for number, (word, changed) in enumerate(changes.items()):
        bad = tmp_path / f"{number}.zip"
        bad.write_bytes(pack_zip(changed))
        assert_refused(tmp_path, word, "score", "--bundle", bad, "--data", sample, "--json")


def test_a_submission_has_the_probabilities_in_the_order_of_the_labels(runs, tmp_path):
    path = tmp_path / "submission.csv"
    code, out, err = invoke("export", runs["re"], "--to", "csv", "--out", path, "--json")
    assert code == 0, err
    assert json.loads(out)["labels"] == list(TASKS["re"].labels)
    header, *rows = csv.reader(path.read_text("utf-8").splitlines())
    assert header == ["id", "pred_label", "probs"]
    saved = [json.loads(line) for line in (runs["re"] / "predictions" / "dev.jsonl").read_text().splitlines()]
    assert len(rows) == len(saved)
    for (guid, label, probs), record in zip(rows, saved, strict=True):
        assert (guid, label) == (record["guid"], record["answer"])
        assert json.loads(probs) == [record["probabilities"][name] for name in TASKS["re"].labels]


def test_a_run_without_probabilities_has_no_submission(runs, tmp_path):
    out = tmp_path / "out.csv"
    assert_refused(tmp_path, "probabilities", "export", runs["sts"], "--to", "csv", "--out", out)
    plain = shutil.copytree(runs["nli"], tmp_path / "plain")
    saved = plain / "predictions" / "dev.jsonl"
    records = [json.loads(line) for line in saved.read_text().splitlines()]
    del records[1]["probabilities"]
    saved.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    assert_refused(tmp_path, "line 2", "export", plain, "--to", "csv", "--out", out)
    saved.write_text('{"guid": 1}\n')
    assert_refused(tmp_path, "line 1", "export", plain, "--to", "csv", "--out", out)
