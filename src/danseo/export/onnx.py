"""A run's encoder for ONNX Runtime: network, tokenizer and decoding settings in a folder that needs no torch."""

import json
import math
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo import __version__
from danseo.display.table import Table
from danseo.errors import DanseoError, WorkFailed
from danseo.export.base import TRUST_REMOTE_CODE, ExportFormat, ExportOption, ExportRequest
from danseo.export.onnx_check import compare_variants, load_dev_examples, measure_size, measure_variants, refuse_losses
from danseo.export.onnx_quantization import FP32, VARIANTS
from danseo.files import check_writable, is_disk_failure, write_atomically
from danseo.models.encoder.onnx_model import (
    MANIFEST,
    NETWORK,
    PACKAGES,
    SETTINGS,
    TOKENIZER,
    VERSION,
    PlainTokenizer,
    open_session,
)
from danseo.models.registry import get_family, load_model
from danseo.runs.provenance import is_of_sample

if TYPE_CHECKING:
    from danseo.models.encoder.model import Encoder

_VARIANT_OPTIONS = (
    ExportOption("int8", "8-bit weights and inputs of matrix products (dynamic quantization)."),
    ExportOption("int8_weights", "8-bit weights and embeddings; inputs stay float32."),
    ExportOption("int4", "4-bit weights and 8-bit embeddings; inputs stay float32."),
)
_MAX_DROP = ExportOption(
    "max_drop", "write a smaller variant only if it loses at most this on the dev set. [default: 0.5]", "POINTS"
)
_MAX_LABEL_DROP = ExportOption(
    "max_label_drop", "the same for every label with at least 50 gold examples. [default: 5]", "POINTS"
)
_NO_CHECK = ExportOption("no_check", "write a smaller variant without evaluating it on the dev set.")
_COMPARE = ExportOption("compare_variants", "measure size, speed and score of all variants on dev; write nothing.")
_OPSET = 18
_TOLERANCE = 2e-3  # relative to the largest output: rounding differences
_TEXTS = ("가", "서울에 비가 왔다.", "김 대리는 어제 부산 지사에서 열린 회의에 참석한 뒤 오늘 아침 서울로 돌아왔다.")


def write_onnx(request: ExportRequest) -> dict[str, Any]:
    """Export the network, compare it with the original, check what it loses, then move the folder to its place."""
    record, out, options = request.record, request.path("-onnx"), request.options
    task, is_comparison, family = record.run.task, "compare_variants" in options, get_family(record.run.config.model)
    if "onnx" not in family.export_formats:
        raise DanseoError(f"not an encoder but {family.name}: {record.run.path}; only encoders are exported as onnx")
    if not is_comparison and out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise DanseoError(f"{out} exists already; remove it, or name another --out")
    variants, limits = _choose_variants(options), [_read_limit(options, *each) for each in _LIMITS.items()]
    is_checked = variants and "no_check" not in options
    data_dir = request.data_dir or ("sample" if is_of_sample(record) else None)
    examples = load_dev_examples(task, data_dir) if is_checked else []
    check_writable(out.parent)
    model: Any = load_model(record.run, "cpu", "fp32", trust_remote_code=bool(options.get("trust_remote_code")))
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=_make_folder(out.parent)) as temporary:
        folders, differences = _write_folders(model, record.run.path, Path(temporary), variants)
        tables = list[Table]()
        if is_checked:
            compared = compare_variants(task, examples, measure_variants(folders, examples))
            tables = compared.tables
        if is_comparison:
            return {"tables": tables}
        if is_checked:
            refuse_losses(variants[0], task, compared, *limits)
        if out.is_dir():
            out.rmdir()
        chosen = variants[0] if variants else FP32
        shutil.move(folders[chosen], out)
    facts = {"out": str(out), "bytes": measure_size(out), "largest_difference": differences[chosen]}
    return {**facts, "next": f"danseo predict {out}", "tables": tables}


_LIMITS = {"max_drop": 0.5, "max_label_drop": 5.0}
"""Option -> the points that may be lost if it is not given."""


def _choose_variants(options: Mapping[str, Any]) -> list[str]:
    """Return the quantized variants to write: one, all of them, or none."""
    chosen = [name for name in VARIANTS if options.get(name.replace("-", "_"))]
    checks = [name.replace("_", "-") for name in (*_LIMITS, "no_check") if name in options]
    if "compare_variants" in options:
        if useless := chosen + checks:
            raise DanseoError(f"--compare-variants measures all variants and writes none; leave out --{useless[0]}")
        return list(VARIANTS)
    if len(chosen) > 1:
        raise DanseoError(f"an export has one variant; use --{chosen[0]} or --{chosen[1]}")
    if checks and not chosen:
        flags = ", ".join(f"--{name}" for name in VARIANTS)
        raise DanseoError(f"--{checks[0]} is for smaller variants: {flags}; add one of them, or leave it out")
    return chosen


def _read_limit(options: Mapping[str, Any], name: str, default: float) -> float:
    """Return the points that may be lost."""
    given = options.get(name, default)
    try:
        points = float(given)
    except ValueError:
        points = math.nan
    if not points >= 0:
        raise DanseoError(f"--{name.replace('_', '-')} {given}: not a number of points from 0; use 0.5, for example")
    return points


def _write_folders(
    model: "Encoder", run: Path, parent: Path, variants: Sequence[str]
) -> tuple[dict[str, Path], dict[str, float]]:
    """Write a folder per variant, float32 first; return the folders and the largest differences from torch."""
    folders = {name: _make_folder(parent / name) for name in (FP32, *variants)}
    original = folders[FP32] / NETWORK
    differences = {FP32: write_network(model, original)}
    for name in variants:
        VARIANTS[name](original, folders[name] / NETWORK)
        differences[name] = _compare_networks(model, original, folders[name] / NETWORK)
    for name, folder in folders.items():
        _write_metadata(model, run, folder, name)
    return folders, differences


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_network(model: "Encoder", path: Path) -> float:
    """Write the network as a graph; return the largest difference from torch's outputs."""
    import torch

    from danseo.models.encoder.decoder_only import is_decoder
    from danseo.models.encoder.onnx_modernbert import optimize_for_onnx

    if is_decoder(facts := model.network.model.config):  # their masks do not survive the tracing
        raise DanseoError(
            f"a {facts.model_type} model cannot be exported to onnx; use the run with danseo predict or danseo serve"
        )
    network = model.network.float().eval().cpu()
    if network.is_packed:  # graphs read padded texts
        network.use_attention("sdpa")
    batches = _make_batches(model)
    with torch.inference_mode():
        wanted = [{name: each.float().numpy() for name, each in network(batch).items()} for batch in batches]
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
    return difference


def _compare_networks(model: "Encoder", one: Path, other: Path) -> float:
    """Return the largest difference between the outputs of two written networks."""
    batches, names = _make_batches(model), [output.name for output in open_session(one).get_outputs()]
    actual = [[run_network(path, batch, names) for batch in batches] for path in (one, other)]
    return _max_difference(*actual)


def _make_batches(model: "Encoder") -> list[dict[str, Any]]:
    """Return batches of different lengths for the tracing and the comparison."""
    from danseo.models.encoder.network import make_padded_batch

    examples = [model.task.type.make_example(model.task, str(number), text) for number, text in enumerate(_TEXTS)]
    features = model.task_head.encode(examples, with_gold=False)
    parts = (features[:2], features[2:], features[1:])
    return [make_padded_batch(model.network, model.task_head, part) for part in parts]


def _max_difference(wanted: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]]) -> float:
    """Return the largest difference between the outputs of two networks."""
    pairs = zip(wanted, actual, strict=True)
    return max(_relative_difference(one[name], other[name]) for one, other in pairs for name in other)


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
    session = open_session(path)
    known = {each.name for each in session.get_inputs()}
    actual = session.run(list(outputs), {name: tensor.numpy() for name, tensor in batch.items() if name in known})
    return dict(zip(outputs, actual, strict=True))


def _write_metadata(model: "Encoder", run: Path, folder: Path, variant: str) -> None:
    """Write the tokenizer, the settings of the run and the decoding settings."""
    task_head = model.task_head
    manifest = {
        "version": VERSION,
        "danseo": __version__,
        "run": run.resolve().name,
        "variant": variant,
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


FORMAT = ExportFormat(
    "onnx",
    "the network and tokenizer for ONNX Runtime; danseo predict FOLDER needs no torch",
    write_onnx,
    packages=("torch", "transformers", "safetensors", "onnx", *PACKAGES),
    options=(*_VARIANT_OPTIONS, _MAX_DROP, _MAX_LABEL_DROP, _NO_CHECK, _COMPARE, TRUST_REMOTE_CODE),
)
