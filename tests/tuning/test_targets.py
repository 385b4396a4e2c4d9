"""The training commands as targets of a search: real trainings of tiny models."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("optuna")
pytest.importorskip("kiwipiepy")

from tests.tiny import tiny_encoder

pytestmark = pytest.mark.lengthy


@pytest.fixture(scope="module")
def encoder(sample, tmp_path_factory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("bert") / "tiny", sample)


def space(folder: Path, text: str) -> Path:
    path = folder / "space.toml"
    path.write_text(text, "utf-8")
    return path


def test_train_is_judged_on_one_half_and_reported_on_the_other(danseo, sample, encoder, tmp_path):
    chosen = space(tmp_path, "learning_rate = {low = 1e-4, high = 1e-2, log = true}\n")
    arguments = ["tune", "train", "ynat", "-m", encoder, "--data", sample, "--limit", 40, "--epochs", 1]
    arguments += ["--runs", tmp_path / "runs", "--space", chosen, "--trials", 2, "--results", tmp_path / "out"]
    document = danseo(*arguments, "--storage", f"sqlite:///{tmp_path / 's.db'}", "--json").json
    assert [trial["state"] for trial in document["trials"]] == ["complete", "complete"]
    scores = json.loads((Path(document["best"]["folder"]) / "scores.json").read_text("utf-8"))
    assert document["best"]["value"] == max(trial["value"] for trial in document["trials"]) == scores["select_score"]
    reported = next(s for s in scores["scores"]["report"] if s["id"] == scores["headline"])
    assert document["report"]["scores"] == [reported]
    again = danseo(
        *("train", "ynat", "-m", encoder, "--data", sample, "--limit", 40, "--recipe", tmp_path / "out" / "best.toml"),
        *("--runs", tmp_path / "again", "--json"),
    ).json
    assert again["select_score"] == pytest.approx(document["best"]["value"])


def test_pretrain_is_judged_by_the_dev_probe_and_reported_on_the_test_probe(danseo, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"마을에는 우물 {n}개가 있었다. 사람들은 우물을 아꼈다.\n\n" for n in range(300)), "utf-8")
    settings = ["layers=1", "hidden=32", "heads=2", "vocabulary=200", "seq_len=32", "held_out=0.1", "every_steps=2"]
    arguments = ["tune", "pretrain", "--text", text, "--steps", 4, *(f"--set={setting}" for setting in settings)]
    arguments += ["--probe-items", "sample", "--metric", "strict@5", "--trials", 1, "--results", tmp_path / "out"]
    chosen = space(tmp_path, "[space]\nlearning_rate = {low = 1e-4, high = 1e-3}\n")
    storage = f"sqlite:///{tmp_path / 's.db'}"
    document = danseo(*arguments, "--space", chosen, "--storage", storage, "--json").json
    assert (Path(tmp_path) / document["best"]["folder"] / f"checkpoint-{document['best']['step']}").is_dir()
    assert document["report"]["on"] == "the test probe"
    strict = document["report"]["scores"][0]
    assert (strict["id"], strict["n"]) == ("strict@1", 108)
    assert strict["interval"][0] <= strict["value"] <= strict["interval"][1]


def test_one_file_of_probes_cannot_be_both_dev_and_test(danseo, tmp_path):
    (tmp_path / "dev.jsonl").write_text("{}\n", "utf-8")
    chosen = space(tmp_path, "learning_rate = [1e-4]\n")
    result = danseo(*("tune", "pretrain", "--text", chosen, "--probe-items", tmp_path / "dev.jsonl", "--space", chosen))
    assert result.code == 2
    assert "name the folder that `danseo data probes` wrote" in result.complaint
