"""A run's encoder for ONNX Runtime: network, tokenizer and decoding settings in a folder that needs no torch."""

import json
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo import __version__
from danseo.errors import DanseoError, WorkFailed
from danseo.export.base import TRUST_REMOTE_CODE, ExportFormat, ExportOption, ExportRequest
from danseo.files import check_writable, is_disk_failure, write_atomically
from danseo.models.encoder.onnx_model import MANIFEST, NETWORK, PACKAGES, SETTINGS, TOKENIZER, VERSION, PlainTokenizer
from danseo.models.registry import get_family, load_model

if TYPE_CHECKING:
    from danseo.models.encoder.model import Encoder

_INT8 = ExportOption("int8", "8-bit weights, smaller and faster but less exact.")
_OPSET = 18
_TOLERANCE = 2e-3  # relative to the largest output: rounding differences
_TEXTS = ("가", "서울에 비가 왔다.", "김 대리는 어제 부산 지사에서 열린 회의에 참석한 뒤 오늘 아침 서울로 돌아왔다.")


def write_onnx(request: ExportRequest) -> dict[str, Any]:
    """Export the network, compare it with the original, then move the folder to its place."""
    record, out = request.record, request.path("-onnx")
    family = get_family(record.run.config.model)
    if "onnx" not in family.export_formats:
        raise DanseoError(f"not an encoder but {family.name}: {record.run.path}; only encoders are exported as onnx")
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise DanseoError(f"{out} exists already; remove it, or name another --out")
    check_writable(out.parent)
    model: Any = load_model(record.run, "cpu", "fp32", trust_remote_code=bool(request.options.get("trust_remote_code")))
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=_make_folder(out.parent)) as temporary:
        folder = Path(temporary) / "exported"
        folder.mkdir()
        difference = write_network(model, folder / NETWORK, int8=bool(request.options.get("int8")))
        _write_metadata(model, record.run.path, folder, bool(request.options.get("int8")))
        if out.is_dir():
            out.rmdir()
        shutil.move(folder, out)
    size = sum(path.stat().st_size for path in out.rglob("*"))
    return {"out": str(out), "bytes": size, "largest_difference": difference, "next": f"danseo predict {out}"}


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_network(model: "Encoder", path: Path, *, int8: bool = False) -> float:
    """Write the network as a graph; return the largest difference from torch's outputs (with int8, after rounding)."""
    import torch

    from danseo.models.encoder.decoder_only import is_decoder
    from danseo.models.encoder.network import make_padded_batch
    from danseo.models.encoder.onnx_modernbert import optimize_for_onnx

    if is_decoder(facts := model.network.model.config):  # their masks do not survive the tracing
        raise DanseoError(
            f"a {facts.model_type} model cannot be exported to onnx; use the run with danseo predict or danseo serve"
        )
    features = model.task_head.encode(_make_examples(model), with_gold=False)
    network = model.network.float().eval().cpu()
    if network.is_packed:  # graphs read padded texts
        network.use_attention("sdpa")
    batches = [make_padded_batch(network, model.task_head, part) for part in (features[:2], features[2:], features[1:])]
    with torch.inference_mode():
        wanted = [network(batch) for batch in batches]
    optimize_for_onnx(network)
    try:
        _trace_network(network, batches[0], list(wanted[0]), path)
        actual = [run_network(path, batch, list(wanted[0])) for batch in batches]
    except Exception as error:  # exporters and runtimes raise many types
        if is_disk_failure(error):
            raise
        raise DanseoError(
            f"a {network.model.config.model_type} network for {model.task.name} cannot be written as onnx: "
            f"{' '.join(str(error).split())[:150]}"
        ) from None
    difference = _max_difference(wanted, actual)
    if difference > _TOLERANCE:
        raise WorkFailed(f"the exported network has other outputs ({difference:.2g} off); nothing is written")
    if int8:
        quantize(path)
        difference = _max_difference(wanted, [run_network(path, batch, list(wanted[0])) for batch in batches])
    return difference


def _max_difference(wanted: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]]) -> float:
    """Return the largest difference between the outputs of two networks."""
    pairs = zip(wanted, actual, strict=True)
    return max(_relative_difference(one[name].float().numpy(), other[name]) for one, other in pairs for name in other)


def _relative_difference(one: Any, other: Any) -> float:
    """Return the largest difference relative to the largest output, without masked positions."""
    if one.shape != other.shape:
        return float("inf")
    there = np.abs(one) < 1e8
    scale = max(1.0, float(np.abs(one[there]).max(initial=0.0)))
    return float(np.abs(one[there] - other[there]).max(initial=0.0)) / scale


def _trace_network(network: Any, batch: Mapping[str, Any], outputs: Sequence[str], path: Path) -> None:
    """Trace the network with one batch; batch size and lengths stay dynamic."""
    import torch

    class Flat(torch.nn.Module):
        """Takes and returns tensors in order, as graphs do."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            actual = self.network(dict(zip(batch, tensors, strict=True)))
            return tuple(actual[name] for name in outputs)

    axes = {name: {0: "batch"} for name in (*batch, *outputs)}
    for name, tensor in batch.items():
        axes[name] |= {1: f"{name}_length"} if tensor.dim() > 1 else {}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # about constants, which the comparison would show
        torch.onnx.export(
            Flat(), tuple(batch.values()), str(path), input_names=list(batch), output_names=list(outputs),
            dynamic_axes=axes, opset_version=_OPSET, dynamo=False,
        )  # fmt: skip


def run_network(path: Path, batch: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
    from danseo.models.encoder.onnx_model import open_session

    session = open_session(path)
    known = {each.name for each in session.get_inputs()}
    actual = session.run(list(outputs), {name: tensor.numpy() for name, tensor in batch.items() if name in known})
    return dict(zip(outputs, actual, strict=True))


def quantize(path: Path) -> None:
    """Quantize the weights of matrix products to int8, one scale per column; inputs are quantized at run time."""
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)
    rounded = path.with_suffix(".int8")
    products = ["MatMul", "Gemm"]
    quantize_dynamic(path, rounded, op_types_to_quantize=products, per_channel=True, weight_type=QuantType.QInt8)
    rounded.replace(path)


def _write_metadata(model: "Encoder", run: Path, folder: Path, is_int8: bool) -> None:
    """Write the tokenizer, the settings of the run and the decoding settings."""
    task_head = model.task_head
    manifest = {
        "version": VERSION,
        "danseo": __version__,
        "run": run.resolve().name,
        "int8": is_int8,
        "width": model.network.model.config.hidden_size,
        "longest": task_head.tokenizer.max_length,
        "tokenizer": PlainTokenizer.facts(task_head.tokenizer.hf_tokenizer),
        "decision": task_head.get_thresholds(),
        "state": task_head.get_state(),
    }
    write_atomically(folder / TOKENIZER, task_head.tokenizer.backend.to_str())
    for path in run.glob("*.toml"):  # the settings, and a task of the user's own
        write_atomically(folder / SETTINGS / path.name, path.read_bytes())
    write_atomically(folder / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=2) + "\n")


def _make_examples(model: "Encoder") -> list[Any]:
    """Return examples of different lengths for the tracing and the comparison."""
    return [model.task.type.make_example(model.task, str(number), text) for number, text in enumerate(_TEXTS)]


FORMAT = ExportFormat(
    "onnx",
    "the network and tokenizer for ONNX Runtime; danseo predict FOLDER needs no torch",
    write_onnx,
    packages=("torch", "transformers", "safetensors", "onnx", *PACKAGES),
    options=(_INT8, TRUST_REMOTE_CODE),
)
