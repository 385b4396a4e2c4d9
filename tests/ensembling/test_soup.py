"""Soups: averages of weights are models like others."""

import json
import re
import shutil
from pathlib import Path

import pytest

from danseo.ensembling.soup import make_soup
from danseo.errors import DanseoError, WorkFailed
from danseo.experiment import run_experiment
from danseo.models.registry import load_model
from danseo.runs.lock import lock_folder

from ..tiny import quick_config, read_split, tiny_encoder


@pytest.fixture(scope="module")
def encoder(sample, tmp_path_factory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder") / "tiny", sample)


@pytest.fixture(scope="module")
def runs(encoder, sample, tmp_path_factory) -> dict[str, list[Path]]:
    """Two seeds of a stock head, of one with a decision, and of one of our own."""
    root = tmp_path_factory.mktemp("runs")
    settings = {"max_train_samples": 16, "evals_per_epoch": 1, "arc_hidden_size": 16, "relation_hidden_size": 16}
    found = {}
    for task in ("ynat", "dp"):
        configs = [quick_config(task, encoder, seed=seed, **settings) for seed in (1, 2)]
        found[task] = [run_experiment(config, sample, root, quiet=True).path for config in configs]
    return found


@pytest.mark.parametrize("task", ["ynat", "dp"])
def test_a_soup_of_one_run_is_that_run(runs, sample, tmp_path, task):
    soup = make_soup([runs[task][0]] * 2, str(sample), tmp_path, None, None, device="cpu")
    ours, theirs = ((path / "predictions" / "dev.jsonl").read_text() for path in (soup.path, runs[task][0]))
    assert [json.loads(a)["answer"] for a in ours.splitlines()] == [
        json.loads(b)["answer"] for b in theirs.splitlines()
    ]


@pytest.mark.parametrize("task", ["ynat", "dp"])
def test_weights_are_averaged(runs, sample, tmp_path, task):
    from safetensors.torch import load_file

    soup = make_soup(runs[task], str(sample), tmp_path, "1,3", None, device="cpu")
    for name in sorted(path.name for path in (soup.path / "model").glob("*.safetensors")):
        mean, one, two = (load_file(path / "model" / name) for path in (soup.path, *runs[task]))
        for key, tensor in mean.items():
            assert tensor.numpy() == pytest.approx((one[key] * 0.25 + two[key] * 0.75).numpy(), abs=1e-6)
    assert make_soup(runs[task][::-1], str(sample), tmp_path, "3,1", None, device="cpu").path == soup.path
    scores = soup.read_json("scores.json")
    assert sorted(member["weight"] for member in scores["ensemble"]["members"]) == [0.25, 0.75]
    answers = load_model(soup, "cpu").predict(read_split(sample, task, "dev", 3))
    saved = [json.loads(line) for line in soup.predictions_path("dev").read_text().splitlines()]
    assert [p.guid for p in answers] == [record["guid"] for record in saved[:3]]


def test_greedy_soups_are_no_worse_on_the_select_half(runs, sample, tmp_path):
    soup = make_soup(runs["ynat"], str(sample), tmp_path, None, "greedy", device="cpu").read_json("scores.json")
    best = max(member["select_score"] for member in soup["ensemble"]["members"])
    assert soup["select_score"] >= best - 1e-6
    assert soup["ensemble"]["fitted_on"] == "select"


def test_what_cannot_be_averaged_is_named(runs, make_run, encoder, sample, tmp_path):
    other = Path(shutil.copytree(runs["ynat"][1], tmp_path / "ynat--other--s3--00000000"))
    config = json.loads((other / "model" / "config.json").read_text())
    (other / "model" / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))
    with pytest.raises(
        DanseoError, match=r"differ in config.json: hidden_size is (32|64) in one and (32|64) in the other"
    ):
        make_soup([runs["ynat"][0], other], str(sample), tmp_path, None, None)
    (other / "model" / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((other / "model" / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"].popitem()
    (other / "model" / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(DanseoError, match=r"differ in tokenizer.json: the number of tokens"):
        make_soup([runs["ynat"][0], other], str(sample), tmp_path, None, None)
    shutil.copy(runs["ynat"][0] / "model" / "tokenizer.json", other / "model" / "tokenizer.json")
    settings = other / "config.toml"
    settings.write_text(re.sub(r"(?m)^pooling = .*$", 'pooling = "mean"', settings.read_text()))
    with pytest.raises(DanseoError, match=r"encoder.pooling"):
        make_soup([runs["ynat"][0], other], str(sample), tmp_path, None, None)
    with pytest.raises(DanseoError, match="has no encoder to average"):
        make_soup([runs["ynat"][0], make_run(tmp_path, "ynat", 1)], str(sample), tmp_path, None, None)
    with pytest.raises(DanseoError, match="a soup takes numbers"):
        make_soup(runs["ynat"], str(sample), tmp_path, "fit", None)


def test_a_soup_that_another_process_makes_is_left_to_it(runs, sample, tmp_path):
    soup = make_soup(runs["ynat"], str(sample), tmp_path, None, None, device="cpu")
    with lock_folder(soup.path):
        with pytest.raises(WorkFailed, match="is being written by another process"):
            make_soup(runs["ynat"], str(sample), tmp_path, None, None, device="cpu", force=True, wait=False)
        assert make_soup(runs["ynat"], str(sample), tmp_path, None, None, device="cpu", wait=False).path == soup.path
    assert soup.is_finished, "nothing was removed"
