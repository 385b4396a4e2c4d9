"""The dry run of a sweep."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from danseo.display.table import to_markdown
from danseo.sweeps.preparation import SweepOptions
from danseo.sweeps.sweep import forecast


@pytest.fixture
def make_forecast(little: Path, tmp_path: Path):
    """Make the forecast of a sweep file."""

    def make(text: str, **options: Any):
        path = tmp_path / "grid.toml"
        path.write_text(text)
        return forecast(path, SweepOptions(little, tmp_path / "runs", **options))

    return make


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def write_encoder(folder: Path, hidden: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"hidden_size": hidden, "num_hidden_layers": 2}))
    (folder / "model.safetensors").write_bytes(bytes(hidden))
    return folder


def test_what_varies_is_shown(make_forecast, tmp_path):
    models = [str(write_encoder(tmp_path / name / "model", hidden)) for name, hidden in (("one", 32), ("two", 64))]
    found = make_forecast(f'task = "ynat"\n[grid]\nmodel = {models}\nlearning_rate = [5e-5, 1e-4]\nseed = [1, 2]\n')
    table = found.tables()[0]
    assert table.columns == ("model", "learning rate", "seed", "state", "expected", "run")
    assert {row[:3] for row in table.rows} == {
        (model, rate, seed) for model in ("one", "two") for rate in (5e-5, 1e-4) for seed in (1, 2)
    }
    assert "| 5e-05 |" in to_markdown(table)
    settings = found.as_dict()["runs"][0]["settings"]
    assert set(settings) == {"model", "train.learning_rate", "seed"}


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("recipe", ["default", "official"])
def test_models_of_the_hub_are_guessed_without_network(make_forecast, recipe):
    found = make_forecast(
        f'task = "ynat"\nrecipe = "{recipe}"\n[grid]\nmodel = ["danseo-test/base", "danseo-test/large@v1"]\n'
    )
    assert [row[0] for row in found.tables()[0].rows] == ["base", "large@v1"]
    assert found.as_dict()["unseen"] == ["danseo-test/base", "danseo-test/large@v1"]
    assert found.seconds > 0


def test_a_search_shows_its_space_and_the_trials_left(make_forecast, tmp_path):
    text = (
        'task = "ynat"\nmodel = "majority"\n[search]\ntrials = 4\n[search.space]\n'
        "learning_rate = {low = 1e-5, high = 1e-4, log = true}\nbatch_size = [16, 32]\n"
    )
    found = make_forecast(text)
    assert found.tables()[0].rows == [
        ("train.learning_rate", "1e-05 – 0.0001, on a log scale"),
        ("train.batch_size", "16, 32"),
    ]
    assert (found.as_dict()["trials"], found.as_dict()["left"]) == (4, 4)
    events = [
        {"time": 0.0, "run": "a", "state": "running"},
        {"time": 30.0, "run": "a", "state": "done", "ending": "done"},
        {"time": 30.0, "run": "b", "state": "running"},
        {"time": 31.0, "run": "b", "state": "failed", "ending": "failed"},
        {"time": 31.0, "run": "c", "state": "running"},
    ]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "grid.sweep.jsonl").write_text("\n".join(map(json.dumps, events)))
    again = make_forecast(text)
    assert (again.left, again.trial_seconds, again.seconds) == (2, 30.0, 60.0)
    assert "2 of 4 trials to do, 30 s each: 1 min 00 s" in again.tables()[0].note
