"""The bundled model is small, and works wherever a model is named."""

import json

import pytest

from danseo.errors import DanseoError
from danseo.hub import BUNDLED_MODEL_FOLDER, find_model_folder, resolve_model
from danseo.mlm.probing.checkpoints import find_checkpoints
from danseo.models.encoder.model_info import check_id, configuration, size_of

MAX_BYTES = 16 * 2**20
FILES = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
FOLDER = BUNDLED_MODEL_FOLDER / "mini"


def test_folder_is_small_and_complete():
    assert {path.name for path in FOLDER.iterdir()} == FILES
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MAX_BYTES
    config = json.loads((FOLDER / "config.json").read_text("utf-8"))
    assert (config["model_type"], config["max_position_embeddings"]) == ("modernbert", 512)


def test_name_is_resolved_before_folders_and_hub_ids(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert find_model_folder("mini") == FOLDER
    assert str(find_model_folder("mine")) == "mine"
    assert find_model_folder("klue/roberta-base") is None
    assert resolve_model("mini")[0] == str(FOLDER)
    assert size_of("mini", False, offline=True) == configuration("mini", False, offline=True).hidden_size ** 2 * 12 * 4
    assert [each.source for each in find_checkpoints(["mini"])] == ["mini"]
    with pytest.raises(DanseoError, match="'mini'"):
        check_id("minni")


def test_tagger_trains_and_predicts_offline(invoke, sample, tmp_path):
    pytest.importorskip("torch")
    settings = (
        "epochs=1",
        "max_train_samples=16",
        "max_length=64",
        "precision=fp32",
        "attn_implementation=eager",
        "num_threads=1",
    )
    options = [part for each in settings for part in ("--set", each)]
    result = invoke("train", "ner", "-m", "mini", "--data", sample, "--runs", "runs", "--json", *options)
    assert result.code == 0, result.err
    (run,) = (tmp_path / "runs").glob("ner--mini--*")
    model = json.loads((run / "environment.json").read_text("utf-8"))["model"]
    assert model["name"] == "mini"
    assert model["sha256"]
    (tmp_path / "lines.txt").write_text("김서연은 부산에 산다.\n", "utf-8")
    prediction = invoke("predict", run, "lines.txt")
    assert prediction.code == 0, prediction.err
    assert json.loads(prediction.out)["answer"]
