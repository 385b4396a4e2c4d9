"""Exported networks: the same answers for every kind and family, without torch, and one line where that cannot be."""

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from danseo.config.run import RunConfig
from danseo.errors import DanseoError, DataError
from danseo.experiment import run_experiment
from danseo.export import onnx
from danseo.export.base import ExportRefused, ExportRequest
from danseo.export.onnx_quantization import VARIANTS, pack_bits, quantize_blocks
from danseo.export.registry import export_run
from danseo.files import is_disk_failure
from danseo.inference.evaluation import evaluate_run
from danseo.models.base import LoadOptions
from danseo.models.encoder.model import Encoder
from danseo.models.encoder.network import make_padded_batch
from danseo.models.encoder.onnx_model import MANIFEST, NETWORK, OnnxEncoder, load_exported, open_session
from danseo.models.registry import load_model
from danseo.records import TextExample
from danseo.tasks import TASKS
from danseo.training.distributed import Workers
from tests.tiny import FAMILIES, assert_same_answers, quick_config, read_split, tiny_decoder, tiny_encoder

INT8 = {"int8": True, "no_check": True}
HEADS = [
    *((task, {"architecture": "default"}) for task in TASKS if task != "nli"),
    *((task, {"architecture": "official"}) for task in ("dp", "wos")),
    ("sts", {"pooling": "compare"}),
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"), sample, layers=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path):
    config = quick_config("ner", encoder, max_train_samples=16, max_length=64)
    return run_experiment(config, sample, tmp_path_factory.mktemp("runs"), quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, run) -> Path:
    out = tmp_path_factory.mktemp("exported") / "ner"
    export_run("onnx", ExportRequest(str(run.path), str(out)))
    return out


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory, run) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("exported") / "int8"
    return out, export_run("onnx", ExportRequest(str(run.path), str(out), options=INT8))


def contents_of(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.lengthy
def test_two_exports_are_the_same_bytes(run, folder, rounded, danseo, tmp_path):
    options = ("--to", "onnx", "--out", tmp_path / "again")
    assert danseo("export", run.path, *options, PYTHONHASHSEED="7").code == 0  # sets come in another order
    assert contents_of(tmp_path / "again") == contents_of(folder)
    export_run("onnx", ExportRequest(str(run.path), str(tmp_path / "int8"), options=INT8))
    assert contents_of(tmp_path / "int8") == contents_of(rounded[0])


def test_a_full_disk_leaves_nothing(run, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
    try:
        with pytest.raises((OSError, DanseoError)) as caught:
            export_run("onnx", ExportRequest(str(run.path), str(tmp_path / "net")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert is_disk_failure(caught.value)
    assert not (tmp_path / "net").exists()


def both_ways(model: Encoder, path: Path, sample: Path):
    """The answers of the exported network and of torch, which is asked first: layers may be written anew for it."""
    examples = read_split(sample, model.task.name, "dev", 6)
    usual = model.predict(examples)
    assert onnx.write_network(model, path) < 1e-4
    return OnnxEncoder(model.task_head, open_session(path), 32, 1).predict(examples), usual


@pytest.mark.parametrize(("task", "head"), HEADS)
def test_every_head_predicts_the_same(task: str, head, encoder, sample, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("danseo.models.encoder.heads.biaffine.LSTM_SIZE", 32)  # 768 takes seconds
    settings = {**head, "max_length": 96, "max_value_length": 2, "attn_implementation": "sdpa"}
    model = Encoder(quick_config(task, encoder, **settings), TASKS[task], Workers("cpu"))
    assert_same_answers(*both_ways(model, tmp_path / NETWORK, sample))


@pytest.mark.parametrize(("family", "pooling"), [("bert", "auto"), ("modernbert", "e_mean"), ("deberta-v2", "auto")])
def test_distances_to_entities_are_exported(family: str, pooling: str, sample: Path, tmp_path: Path) -> None:
    import torch

    folder = tiny_encoder(tmp_path, sample, family, layers=1 if family != "modernbert" else 2)
    config = quick_config("re", folder, max_length=64, max_entity_distance=8, pooling=pooling)
    model = Encoder(config, TASKS["re"], Workers("cpu"))
    positions = model.network.entity_positions
    assert positions is not None
    without = model.predict(read_split(sample, "re", "dev", 6))
    torch.nn.init.normal_(positions.embeddings.weight)
    found, expected = both_ways(model, tmp_path / NETWORK, sample)
    assert_same_answers(found, expected)
    assert found[0].probabilities != pytest.approx(without[0].probabilities, rel=1e-3)


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
    batch = make_padded_batch(network, model.task_head, model.task_head.encode(examples, with_gold=False))
    assert batch["input_ids"].shape[1] > 1.5 * network.model.config.local_attention
    with torch.inference_mode():
        wanted = network(batch)["logits"].numpy()
    onnx.write_network(model, tmp_path / NETWORK)
    made = onnx.run_network(tmp_path / NETWORK, batch, ["logits"])["logits"]
    there = batch["attention_mask"].bool().flatten().numpy()
    np.testing.assert_allclose(made[there], wanted[there], atol=1e-4)
    names = [node.op_type for node in load(tmp_path / NETWORK).graph.node]
    assert names.count("RotaryEmbedding") == 2 * 3


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
    tables = [evaluate_run(path, "dev", None, str(sample)) for path in (run.path, folder)]
    assert [s.value for s in tables[0].scores] == [s.value for s in tables[1].scores]
    with pytest.raises(DanseoError, match="--prior and --type-mask need the run itself"):
        evaluate_run(folder, "dev", None, str(sample), prior="em")


def test_decoders_are_refused_in_one_line(sample: Path, tmp_path: Path) -> None:
    model = Encoder(quick_config("ynat", tiny_decoder(tmp_path, sample, "llama")), TASKS["ynat"], Workers("cpu"))
    with pytest.raises(DanseoError, match="llama"):
        onnx.write_network(model, tmp_path / NETWORK)


def test_int8_is_smaller_predicts_and_reports_the_difference_after_rounding(run, folder, sample, rounded) -> None:
    path, made = rounded
    assert (path / NETWORK).stat().st_size < (folder / NETWORK).stat().st_size
    examples = read_split(sample, "ner", "dev", 5)
    predictions = load_exported(path, LoadOptions())[0].predict(examples)
    for example, prediction in zip(examples, predictions, strict=True):
        TASKS["ner"].check_answer(example, prediction.answer)
    model = load_model(run, "cpu", "fp32")
    features = model.task_head.encode([TextExample("1", "서울에 비가 왔다.", None)], with_gold=False)
    batch = {name: t.numpy() for name, t in make_padded_batch(model.network, model.task_head, features).items()}
    exact, rounded = (
        session.run(["logits"], {each.name: batch[each.name] for each in session.get_inputs()})[0]
        for session in (open_session(each / NETWORK) for each in (folder, path))
    )
    assert made["largest_difference"] > 1e-4
    assert made["largest_difference"] >= np.abs(exact - rounded).max() / max(1, np.abs(exact).max()) - 1e-3


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("shape", [(3, 64), (2, 70)])
def test_blocks_are_rounded_to_the_nearest_code(bits: int, shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    rows[0] = np.abs(rows[0]) + 5  # all of one sign
    codes, scales, zeros = quantize_blocks(rows, bits)
    assert codes.max() == 2**bits - 1
    restored = (codes.astype(np.float32) - zeros[..., None]) * scales[..., None]
    width = restored.shape[1] * restored.shape[2]
    padded = np.pad(rows, ((0, 0), (0, width - shape[1]))).reshape(restored.shape)
    assert (np.abs(restored - padded) <= scales[..., None] * 1.01).all()
    assert (np.abs(restored - padded)[1:] <= scales[1:, :, None] * 0.51).mean() > 0.9
    packed = pack_bits(codes, bits)
    assert packed.size == codes.size * bits // 8
    if bits == 4:
        assert (packed & 15 == codes[..., ::2]).all()
        assert (packed >> 4 == codes[..., 1::2]).all()


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_weights_of_8_bits_predict_nearly_the_same(family: str, sample: Path, tmp_path: Path) -> None:
    import onnx as library

    encoder = tiny_encoder(tmp_path, sample, family, layers=1 if family == "bert" else 2)
    model = Encoder(quick_config("ynat", encoder, max_length=64), TASKS["ynat"], Workers("cpu"))
    paths = {name: tmp_path / f"{name}.onnx" for name in ("fp32", "int8-weights", "int4")}
    onnx.write_network(model, paths["fp32"])
    for name in ("int8-weights", "int4"):
        VARIANTS[name](paths["fp32"], paths[name])
    sizes = [path.stat().st_size for path in paths.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    examples = read_split(sample, "ynat", "dev", 8)
    exact, weights, rough = (
        [[*p.probabilities.values()] for p in OnnxEncoder(model.task_head, open_session(path), 32, 1).predict(examples)]
        for path in paths.values()
    )
    off = [np.abs(np.array(exact) - np.array(other)).max() for other in (weights, rough)]
    assert 0 < off[0] < 0.01
    assert off[1] > 10 * off[0]
    names = [node.op_type for node in library.load(paths["int4"]).graph.node]
    assert "MatMulNBits" in names
    assert "GatherBlockQuantized" in names


def test_the_table_of_an_export_has_the_score_of_the_written_model(run, sample: Path, tmp_path: Path, invoke) -> None:
    out = tmp_path / "out"
    limits = ("--max-drop", "100", "--max-label-drop", "100")
    made = invoke("export", run.path, "--to", "onnx", "--int4", "--out", out, "--data", sample, *limits, "--json")
    assert made.code == 0, made.complaint
    variants, labels = made.json["tables"]
    assert [row[0] for row in variants["rows"]] == ["fp32", "int4"]
    assert variants["rows"][1][2] < 1  # smaller
    assert {row[0] for row in labels["rows"]} <= {"PS", "LC", "OG", "DT", "TI", "QT"}
    exact, small = (row[5] for row in variants["rows"])
    assert small == evaluate_run(out, "dev", None, str(sample)).scores[0].value
    assert exact == evaluate_run(run.path, "dev", None, str(sample)).scores[0].value


def test_a_loss_is_refused_with_its_tables(run, sample: Path, tmp_path: Path, monkeypatch) -> None:
    def forget(source: Path, target: Path) -> None:
        """Write a network whose weights are gone."""
        import onnx as library

        graph = library.load(source)
        for tensor in graph.graph.initializer:
            if len(tensor.dims) == 2:
                empty = np.zeros(tensor.dims, dtype=np.float32)
                tensor.CopyFrom(library.numpy_helper.from_array(empty, tensor.name))
        library.save(graph, target)

    monkeypatch.setitem(VARIANTS, "int4", forget)
    request = ExportRequest(str(run.path), str(tmp_path / "out"), str(sample), {"int4": True, "max_drop": "0"})
    with pytest.raises(ExportRefused) as caught:
        export_run("onnx", request)
    assert caught.value.exit_code == 1
    (exact, small), labels = caught.value.tables[0].rows, caught.value.tables[1].rows
    assert small[6] == pytest.approx(small[5] - exact[5])
    assert small[6] < 0
    assert min(row[3] for row in labels) == labels[0][3] < 0  # the largest loss first
    assert not list(tmp_path.iterdir())
    allowed = {"int4": True, "max_drop": "100", "max_label_drop": "0"}
    with pytest.raises(ExportRefused, match=str(labels[0][0])):
        export_run("onnx", ExportRequest(str(run.path), str(tmp_path / "out"), str(sample), allowed))
    assert not list(tmp_path.iterdir())
    export_run(
        "onnx", ExportRequest(str(run.path), str(tmp_path / "out"), str(sample), allowed | {"max_label_drop": 100})
    )
    assert (tmp_path / "out" / NETWORK).is_file()


def test_all_variants_are_compared_and_none_is_written(run, tmp_path: Path) -> None:
    request = ExportRequest(str(run.path), str(tmp_path / "out"), None, {"compare_variants": True})  # run on the sample
    variants, labels = export_run("onnx", request)["tables"]
    assert [row[0] for row in variants.rows] == ["fp32", *VARIANTS]
    assert labels.columns[2:] == ("fp32", *VARIANTS)
    assert not list(tmp_path.iterdir())


def test_without_dev_data_nothing_is_checked_or_written(run, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DanseoError, match="--no-check") as caught:
        export_run("onnx", ExportRequest(str(run.path), str(tmp_path / "out"), str(empty), {"int8": True}))
    assert caught.value.exit_code == 2
    assert "--data" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"int8": True, "int4": True}, "--int4"),
        ({"max_drop": "1"}, "--max-drop"),
        ({"compare_variants": True, "int4": True}, "--int4"),
        ({"compare_variants": True, "no_check": True}, "--no-check"),
        ({"int8": True, "max_drop": "much"}, "much"),
        ({"int8": True, "max_label_drop": "nan"}, "nan"),
        ({"int8": True, "max_drop": "-1"}, "-1"),
    ],
)
def test_options_that_do_not_fit_are_one_line(options, word: str, run, sample: Path, tmp_path: Path) -> None:
    with pytest.raises(DanseoError, match=word) as caught:
        export_run("onnx", ExportRequest(str(run.path), str(tmp_path / "out"), str(sample), options))
    assert caught.value.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_is_one_line(run, folder: Path, sample: Path, tmp_path: Path) -> None:
    baseline = run_experiment(RunConfig(task="ynat", model="majority"), sample, tmp_path / "runs")
    with pytest.raises(DanseoError, match="not an encoder but baseline"):
        export_run("onnx", ExportRequest(str(baseline.path)))
    with pytest.raises(DanseoError, match="exists already"):
        export_run("onnx", ExportRequest(str(run.path), str(folder)))
    with pytest.raises(DanseoError, match="leave --precision and --device out"):
        load_exported(folder, LoadOptions(precision="bf16"))
    assert not list((tmp_path / "runs").glob("*onnx*"))


def test_a_corrupted_export_is_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / NETWORK).write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be opened"):
        load_exported(copy, LoadOptions())
    (copy / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json is damaged"):
        load_exported(copy, LoadOptions())


@pytest.mark.parametrize(
    "change", [{"width": 0}, {"width": "8"}, {"longest": -1}, {"longest": None}, {"tokenizer": {}}]
)
def test_a_manifest_with_odd_sizes_is_named(folder: Path, tmp_path: Path, change) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    manifest = json.loads((copy / MANIFEST).read_bytes())
    for odd in (change, {"tokenizer": manifest["tokenizer"] | {"pad_token_id": []}}):
        (copy / MANIFEST).write_text(json.dumps(manifest | odd), "utf-8")
        with pytest.raises(DataError, match=MANIFEST):
            load_exported(copy, LoadOptions())


def test_a_network_that_computes_something_else_is_not_written(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(onnx, "_relative_difference", lambda one, other: 1.0)
    with pytest.raises(DanseoError, match="other outputs"):
        export_run("onnx", ExportRequest(str(run.path), str(tmp_path / "out")))
    assert not list(tmp_path.iterdir())


def test_a_tagger_answers_the_same_everywhere(run, folder: Path, sample: Path) -> None:
    """In its file of predictions, from what it kept, when asked again, exported and served; each token counts once."""
    from starlette.testclient import TestClient

    from danseo.inference.predict import open_model
    from danseo.serve.app import Limits, make_app
    from danseo.tasktypes.decoding import decode_texts, read_npz

    examples = read_split(sample, "ner", "dev")
    texts = [example.text for example in examples]
    saved = [tuple(json.loads(line)["answer"]) for line in (run.path / "predictions/dev.jsonl").open(encoding="utf-8")]
    arrays = read_npz(run.path / "predictions" / "dev.npz")
    rows, starts = run.task.type.unpack_arrays(run.task, arrays), run.task.type.unpack_token_starts(arrays)
    assert not np.concatenate(starts).all()
    assert decode_texts(texts, rows, [row.any(axis=1) for row in rows], run.task.labels, starts) == saved
    for path in (run.path, folder):
        opened = open_model(path, LoadOptions())
        assert [prediction.answer for prediction in opened.model.predict(examples)] == saved
        assert [opened.model.predict([example])[0].answer for example in examples[:10]] == saved[:10]
        with TestClient(make_app(opened, Limits(), ["testserver"])) as client:
            reply = client.post("/predict", json={"text": texts[0]})
            assert reply.status_code == 200, reply.text
            answer = reply.json()
        answer = answer["answers"][0] if "answers" in answer else answer
        assert tuple(answer["answer"]) == saved[0]
