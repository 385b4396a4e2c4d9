"""The encoder in the box: it is there, small, and a model like any other wherever one is named."""

import json

import pytest

from danseo.errors import DanseoError
from danseo.hub import BOX, folder_of, pretrained
from danseo.models.encoder.facts import check_id, configuration, size_of
from danseo.probing.checkpoints import find_checkpoints

MOST_BYTES = 16 * 2**20
FILES = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def test_the_box_is_small_and_holds_one_file_each():
    assert {path.name for path in (BOX / "mini").iterdir()} == FILES
    assert sum(path.stat().st_size for path in (BOX / "mini").iterdir()) <= MOST_BYTES
    config = json.loads((BOX / "mini" / "config.json").read_text("utf-8"))
    assert (config["model_type"], config["max_position_embeddings"]) == ("modernbert", 512)


def test_a_name_in_the_box_is_a_folder_and_others_are_what_they_were(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert folder_of("mini") == BOX / "mini"
    assert folder_of("klue/roberta-base") is None
    (tmp_path / "mine").mkdir()
    assert str(folder_of("mine")) == "mine"
    assert pretrained("mini")[0] == str(BOX / "mini")
    assert size_of("mini", False, offline=True) == configuration("mini", False, offline=True).hidden_size ** 2 * 12 * 4
    assert [each.source for each in find_checkpoints(["mini"])] == ["mini"]
    with pytest.raises(DanseoError, match="did you mean 'mini'"):
        check_id("minni")


def test_a_tagger_on_it_trains_and_answers_offline(danseo, sample, tmp_path):
    pytest.importorskip("torch")
    settings = ("epochs=1", "limit=60", "precision=fp32", "attention=eager", "threads=1")
    listed = [part for each in settings for part in ("--set", each)]
    result = danseo("train", "ner", "-m", "mini", "--data", sample, "--runs", "runs", "--json", *listed)
    assert result.code == 0, result.err
    (run,) = (tmp_path / "runs").glob("ner--mini--*")
    facts = json.loads((run / "environment.json").read_text("utf-8"))["model"]
    assert facts["name"] == "mini"
    assert facts["sha256"]
    (tmp_path / "lines.txt").write_text("김서연은 부산에 산다.\n", "utf-8")
    answer = danseo("predict", run, "lines.txt")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["answer"]


def test_it_fills_gaps(danseo, tmp_path):
    pytest.importorskip("torch")
    result = danseo("probe", "mini", "--quick", "--precision", "fp32", "--output-dir", "probes", "--json")
    assert result.code == 0, result.err
    assert not any(path.name.startswith("probe") for path in BOX.rglob("*"))
    assert any((tmp_path / "probes").iterdir())
