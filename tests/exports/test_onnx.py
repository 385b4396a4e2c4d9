"""Exported networks: the same answers for every kind and family, without torch, and one line where that cannot be."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from danseo.config import RunConfig
from danseo.errors import DanseoError, DataError
from danseo.experiment import run_experiment
from danseo.exports import onnx
from danseo.exports.format import Request
from danseo.exports.table import export
from danseo.models.encoder.model import Encoder
from danseo.models.exported import NETWORK, Exported, load_exported, open_session
from danseo.models.families import load_model
from danseo.models.protocol import Loading
from danseo.records import TextExample
from danseo.tasks import TASKS
from danseo.training.workers import Workers
from tests.tiny import FAMILIES, assert_same_answers, quick_config, read_split, tiny_decoder, tiny_encoder

KINDS = [(task, "default") for task in TASKS] + [("ner", "official"), ("dp", "official"), ("wos", "official")]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"), sample, layers=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path):
    config = quick_config("ner", encoder, limit=16, max_length=64)
    return run_experiment(config, sample, tmp_path_factory.mktemp("runs"), quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, run) -> Path:
    out = tmp_path_factory.mktemp("exported") / "ner"
    export("onnx", Request(str(run.path), str(out)))
    return out


def both_ways(model: Encoder, path: Path, sample: Path):
    """The answers of the exported network and of torch, which is asked first: layers may be written anew for it."""
    examples = read_split(sample, model.task.name, "dev", 6)
    usual = model.predict(examples)
    assert onnx._write_network(model, path) < 1e-4
    return Exported(model.kind, open_session(path), 32, 1).predict(examples), usual


@pytest.mark.parametrize(("task", "architecture"), KINDS)
def test_every_kind_answers_the_same(task: str, architecture: str, encoder, sample, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("danseo.models.encoder.biaffine.LSTM_SIZE", 32)  # 768 takes seconds
    settings = {"architecture": architecture, "max_length": 96, "value_length": 2, "attention": "sdpa"}
    model = Encoder(quick_config(task, encoder, **settings), TASKS[task], Workers("cpu"))
    assert_same_answers(*both_ways(model, tmp_path / NETWORK, sample))


@pytest.mark.parametrize("task", ["sts", "mrc"])
def test_heads_that_compare_answer_the_same(task: str, encoder, sample, tmp_path) -> None:
    config = quick_config(task, encoder, max_length=96, pooling="compare")
    model = Encoder(config, TASKS[task], Workers("cpu"))
    assert_same_answers(*both_ways(model, tmp_path / NETWORK, sample))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "bert"])
def test_every_family_answers_the_same(family: str, sample: Path, tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path, sample, family, layers=1 if family != "modernbert" else 2)
    model = Encoder(quick_config("ynat", folder, max_length=64), TASKS["ynat"], Workers("cpu"))
    assert_same_answers(*both_ways(model, tmp_path / NETWORK, sample))


def test_lean_layers_are_the_same_beyond_their_window_and_with_biases(sample: Path, tmp_path: Path) -> None:
    import torch
    from onnx import load

    folder = tiny_encoder(tmp_path, sample, "modernbert", layers=3, positions=300)
    model = Encoder(quick_config("ner", folder, max_length=300), TASKS["ner"], Workers("cpu"))
    network = model.network.float().eval().cpu()
    for name, part in network.named_modules():
        if name.endswith(("Wi", "Wqkv")):
            part.bias = torch.nn.Parameter(torch.randn(part.out_features))
    examples = [TextExample("1", "서울에 비가 왔다.", None), TextExample("2", "서울에 비가 왔다. " * 30, None)]
    batch = network.collate(model.kind.encode(examples, with_gold=False), model.kind, False)
    assert batch["input_ids"].shape[1] > 1.5 * network.model.config.local_attention
    with torch.inference_mode():
        wanted = network(batch)["logits"].numpy()
    onnx._write_network(model, tmp_path / NETWORK)
    made = onnx._run(tmp_path / NETWORK, batch, ["logits"])["logits"]
    there = batch["attention_mask"].bool().numpy()
    np.testing.assert_allclose(made[there], wanted[there], atol=1e-4)
    names = [node.op_type for node in load(tmp_path / NETWORK).graph.node]
    assert names.count("RotaryEmbedding") == 2 * 3


def test_a_folder_answers_as_its_run(run, folder: Path, sample: Path) -> None:
    examples = read_split(sample, "ner", "dev", 20)
    model, task = load_exported(folder, Loading())
    assert task.name == "ner"
    assert_same_answers(list(model.predict(examples)), list(load_model(run).predict(examples)))


def test_a_folder_is_used_without_torch(folder: Path, run) -> None:
    script = "import sys; sys.modules |= dict.fromkeys(('torch', 'transformers')); from danseo.cli import main; main()"
    lines = "서울에 비가 왔다.\n" + json.dumps({"text": "부산에 간다.", "id": 7, "source": "x"}) + "\n"
    command = [sys.executable, "-c", script, "predict", str(folder), "--text"]
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    first, second = map(json.loads, ended.stdout.splitlines())
    assert (first["guid"], first["text"], len(first["answer"])) == ("1", "서울에 비가 왔다.", 10)
    assert (second["guid"], second["id"], second["source"]) == ("7", 7, "x")


def test_a_folder_is_scored(run, folder: Path, sample: Path) -> None:
    from danseo.evaluate import evaluate_run

    tables = [evaluate_run(path, "dev", None, str(sample)) for path in (run.path, folder)]
    assert [s.value for s in tables[0].scores] == [s.value for s in tables[1].scores]
    with pytest.raises(DanseoError, match="--prior and --type-mask need the run itself"):
        evaluate_run(folder, "dev", None, str(sample), prior="em")


def test_decoders_are_refused_in_one_line(sample: Path, tmp_path: Path) -> None:
    model = Encoder(quick_config("ynat", tiny_decoder(tmp_path, sample, "llama")), TASKS["ynat"], Workers("cpu"))
    with pytest.raises(DanseoError, match="a llama body is not exported as onnx; danseo predict and danseo serve take"):
        onnx._write_network(model, tmp_path / NETWORK)


def test_bytes_are_smaller_and_answer(run, folder: Path, sample: Path, tmp_path: Path) -> None:
    out = tmp_path / "bytes"
    made = export("onnx", Request(str(run.path), str(out), options={"int8": True}))
    assert made["out"] == str(out)
    assert (out / NETWORK).stat().st_size < (folder / NETWORK).stat().st_size
    examples = read_split(sample, "ner", "dev", 5)
    for example, answer in zip(examples, load_exported(out, Loading())[0].predict(examples), strict=True):
        TASKS["ner"].check_answer(example, answer.answer)


def test_what_cannot_be_is_one_line(run, folder: Path, sample: Path, tmp_path: Path) -> None:
    floor = run_experiment(RunConfig(task="ynat", model="majority"), sample, tmp_path / "runs")
    with pytest.raises(DanseoError, match="is a floor model; only encoders are exported as onnx"):
        export("onnx", Request(str(floor.path)))
    with pytest.raises(DanseoError, match="is there already"):
        export("onnx", Request(str(run.path), str(folder)))
    with pytest.raises(DanseoError, match="leave --precision and --device out"):
        load_exported(folder, Loading(precision="bf16"))
    assert not list((tmp_path / "runs").glob("*onnx*"))


def test_a_damaged_folder_is_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / NETWORK).write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be opened"):
        load_exported(copy, Loading())
    (copy / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json is damaged"):
        load_exported(copy, Loading())


def test_a_network_that_computes_something_else_is_not_written(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(onnx, "_distance", lambda one, other: 1.0)
    with pytest.raises(DanseoError, match="computes something else"):
        export("onnx", Request(str(run.path), str(tmp_path / "out")))
    assert not list(tmp_path.iterdir())
