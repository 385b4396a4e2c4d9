"""Training commands as targets of a search: trainings of tiny models."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("optuna")
pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")

import optuna

from danseo.config.run import RunConfig
from danseo.models.registry import get_family
from danseo.models.run_plan import compute_identity
from danseo.runs.store import Run, find_run_path
from danseo.sweeps import tuning_targets
from danseo.sweeps.tuning_targets import TrainTarget
from tests.tiny import tiny_encoder


@pytest.fixture(scope="module")
def encoder(sample, tmp_path_factory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("bert") / "tiny", sample)


def write_space(folder: Path, text: str) -> Path:
    path = folder / "space.toml"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.lengthy
def test_train_compares_on_select_and_reports_on_report(invoke, sample, encoder, tmp_path):
    chosen = write_space(tmp_path, "learning_rate = {low = 1e-4, high = 1e-2, log = true}\n")
    arguments = ["tune", "train", "ynat", "-m", encoder, "--data", sample, "--limit", 40, "--epochs", 1]
    arguments += ["--runs", tmp_path / "runs", "--space", chosen, "--trials", 2, "--results", tmp_path / "out"]
    document = invoke(*arguments, "--storage", f"sqlite:///{tmp_path / 's.db'}", "--json").json
    assert [trial["state"] for trial in document["trials"]] == ["complete", "complete"]
    scores = json.loads((Path(document["best"]["folder"]) / "scores.json").read_text("utf-8"))
    assert document["best"]["value"] == max(trial["value"] for trial in document["trials"]) == scores["select_score"]
    reported = next(s for s in scores["scores"]["report"] if s["id"] == scores["headline"])
    assert document["report"]["scores"] == [reported]
    again = invoke(
        *("train", "ynat", "-m", encoder, "--data", sample, "--limit", 40, "--recipe", tmp_path / "out" / "best.toml"),
        *("--runs", tmp_path / "again", "--json"),
    ).json
    assert again["select_score"] == pytest.approx(document["best"]["value"])


@pytest.mark.lengthy
def test_pretrain_compares_on_dev_items_and_reports_on_test_items(invoke, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"마을에는 우물 {n}개가 있었다. 사람들은 우물을 아꼈다.\n\n" for n in range(300)), "utf-8")
    settings = ["num_hidden_layers=1", "hidden_size=32", "num_attention_heads=2", "vocab_size=200", "seq_len=32"]
    settings += ["held_out_ratio=0.1", "every_steps=2"]
    arguments = ["tune", "pretrain", "--text", text, "--steps", 4, *(f"--set={setting}" for setting in settings)]
    arguments += ["--probe-items", "sample", "--metric", "strict@5", "--trials", 1, "--results", tmp_path / "out"]
    chosen = write_space(tmp_path, "[space]\nlearning_rate = {low = 1e-4, high = 1e-3}\n")
    storage = f"sqlite:///{tmp_path / 's.db'}"
    document = invoke(*arguments, "--space", chosen, "--storage", storage, "--json").json
    assert (Path(tmp_path) / document["best"]["folder"] / f"checkpoint-{document['best']['step']}").is_dir()
    assert document["report"]["on"] == "the test probe"
    strict = document["report"]["scores"][0]
    assert (strict["id"], strict["n"]) == ("strict@1", 108)
    assert strict["interval"][0] <= strict["value"] <= strict["interval"][1]


def test_one_file_of_probes_cannot_be_both_dev_and_test(invoke, tmp_path):
    (tmp_path / "dev.jsonl").write_text("{}\n", "utf-8")
    chosen = write_space(tmp_path, "learning_rate = [1e-4]\n")
    result = invoke("tune", "pretrain", "--text", chosen, "--probe-items", "dev.jsonl", "--space", chosen)
    assert result.code == 2
    assert "--probe-items" in result.complaint


def test_a_pruned_trial_is_a_pruned_run(monkeypatch, sample, tmp_path):
    target = TrainTarget(RunConfig(task="ynat", model="no/model"), sample, tmp_path)

    def train(config, root, runs, *, on_score, **options):
        identity = compute_identity(config, target.identity(), get_family(config.model))
        Run(find_run_path(runs, config, identity)).start(config)
        on_score(3, 0.5)

    def prune(step, value):
        raise optuna.TrialPruned(f"pruned at step {step} with {value}")

    monkeypatch.setattr(tuning_targets, "run_experiment", train)
    with pytest.raises(optuna.TrialPruned):
        target.run({"seed": 7}, prune)
    (folder,) = tmp_path.iterdir()
    assert (Run(folder).status, Run(folder).reason) == ("pruned", "pruned at step 3 with 0.5")
    assert Run(folder).config.seed == 7
