"""A run's encoder for ONNX Runtime: network, tokenizer and what decoding needs, in a folder that needs no torch."""

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo import __version__
from danseo.errors import DanseoError, WorkFailed
from danseo.exports.format import Format, Request
from danseo.files import check_writable, write_atomically
from danseo.models.exported import MANIFEST, NETWORK, PACKAGES, SETTINGS, TOKENIZER, VERSION, PlainTokenizer
from danseo.models.families import family_of, load_model
from danseo.records import (
    ChoiceExample,
    DialogueExample,
    Entity,
    ParseExample,
    QuestionExample,
    RelationExample,
    TextExample,
)
from danseo.tasks.dp import TAGS

if TYPE_CHECKING:
    from danseo.models.encoder.model import Encoder

_OPSET = 18
_CLOSE = 2e-3  # of the largest output: how far rounding may take two ways of computing the same
_TEXTS = ("가", "서울에 비가 왔다.", "김 대리는 어제 부산 지사에서 열린 회의에 참석한 뒤 오늘 아침 서울로 돌아왔다.")


def write(request: Request) -> dict[str, Any]:
    """Export, compare with the run's own network, and only then put the folder in its place."""
    record, out = request.record, request.path("-onnx")
    family = family_of(record.run.config.model)
    if family.name != "encoder":
        raise DanseoError(f"{record.run.path} is a {family.name} model; only encoders are exported as onnx")
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise DanseoError(f"{out} is there already; remove it, or name another --out")
    check_writable(out.parent)
    model: Any = load_model(record.run, "cpu", "fp32", trust_remote_code=bool(request.options.get("trust_remote_code")))
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=_made(out.parent)) as temporary:
        folder = Path(temporary) / "exported"
        folder.mkdir()
        difference = _write_network(model, folder / NETWORK)
        if request.options.get("int8"):
            to_bytes(folder / NETWORK)
        _write_rest(model, record.run.path, folder, bool(request.options.get("int8")))
        if out.is_dir():
            out.rmdir()
        shutil.move(folder, out)
    size = sum(path.stat().st_size for path in out.rglob("*"))
    return {"out": str(out), "bytes": size, "largest_difference": difference, "next": f"danseo predict {out}"}


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_network(model: "Encoder", path: Path) -> float:
    """The network as a graph, and how far its outputs are from those of torch."""
    import torch

    from danseo.models.encoder.decoder import is_decoder
    from danseo.models.encoder.lean import write_leanly

    if is_decoder(facts := model.network.model.config):  # their masks do not survive the tracing
        raise DanseoError(
            f"a {facts.model_type} body is not exported as onnx; danseo predict and danseo serve take the run itself"
        )
    features = model.kind.encode(_specimens(model), with_gold=False)
    network = model.network.float().eval().cpu()
    batches = [network.collate(part, model.kind, False) for part in (features[:2], features[2:], features[1:])]
    with torch.inference_mode():
        wanted = [network(batch) for batch in batches]
    write_leanly(network)
    try:
        _trace(network, batches[0], list(wanted[0]), path)
        made = [_run(path, batch, list(wanted[0])) for batch in batches]
    except Exception as error:  # exporters and runtimes raise many kinds; what they mean is the same
        raise DanseoError(
            f"a {network.model.config.model_type} network for {model.task.name} cannot be written as onnx: "
            f"{' '.join(str(error).split())[:150]}"
        ) from None
    pairs = zip(wanted, made, strict=True)
    difference = max(_distance(one[name].float().numpy(), other[name]) for one, other in pairs for name in other)
    if difference > _CLOSE:
        raise WorkFailed(f"the exported network computes something else ({difference:.2g} off); nothing is written")
    return difference


def _distance(one: Any, other: Any) -> float:
    """The largest difference, as a share of the largest output; impossible positions are left out."""
    if one.shape != other.shape:
        return float("inf")
    there = np.abs(one) < 1e8
    scale = max(1.0, float(np.abs(one[there]).max(initial=0.0)))
    return float(np.abs(one[there] - other[there]).max(initial=0.0)) / scale


def _trace(network: Any, batch: Mapping[str, Any], outputs: Sequence[str], path: Path) -> None:
    """Follow one batch through the network; batch and lengths stay open."""
    import torch

    class Flat(torch.nn.Module):
        """Tensors in, tensors out, as graphs have them."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            made = self.network(dict(zip(batch, tensors, strict=True)))
            return tuple(made[name] for name in outputs)

    axes = {name: {0: "batch"} for name in (*batch, *outputs)}
    for name, tensor in batch.items():
        axes[name] |= {1: f"{name}_length"} if tensor.dim() > 1 else {}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # of values that stay as they are, which the comparison would show
        torch.onnx.export(
            Flat(), tuple(batch.values()), str(path), input_names=list(batch), output_names=list(outputs),
            dynamic_axes=axes, opset_version=_OPSET, dynamo=False,
        )  # fmt: skip


def _run(path: Path, batch: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
    from danseo.models.exported import open_session

    session = open_session(path)
    known = {each.name for each in session.get_inputs()}
    made = session.run(list(outputs), {name: tensor.numpy() for name, tensor in batch.items() if name in known})
    return dict(zip(outputs, made, strict=True))


def to_bytes(path: Path) -> None:
    """Weights of matrix products in bytes, one scale per column; what comes in is rounded on the way."""
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)
    rounded = path.with_suffix(".int8")
    products = ["MatMul", "Gemm"]
    quantize_dynamic(path, rounded, op_types_to_quantize=products, per_channel=True, weight_type=QuantType.QInt8)
    rounded.replace(path)


def _write_rest(model: "Encoder", run: Path, folder: Path, is_int8: bool) -> None:
    """The tokenizer, the settings of the run, and what decoding needs."""
    kind = model.kind
    manifest = {
        "version": VERSION,
        "danseo": __version__,
        "run": run.resolve().name,
        "int8": is_int8,
        "width": model.network.model.config.hidden_size,
        "longest": kind.pieces.longest,
        "tokenizer": PlainTokenizer.facts(kind.pieces.tokenizer),
        "decision": kind.decision(),
        "state": kind.extra_state(),
    }
    write_atomically(folder / TOKENIZER, kind.pieces.backend.to_str())
    for path in run.glob("*.toml"):  # the settings, and a task of the user's own
        write_atomically(folder / SETTINGS / path.name, path.read_bytes())
    write_atomically(folder / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=2) + "\n")


def _specimens(model: "Encoder") -> list[Any]:
    """Examples of different length, to follow through the network and to compare with."""
    makers: dict[str, Callable[[str, str], Any]] = {
        "classify": {"relation": _relation, "choices": _choices(len(model.task.labels))}.get(model.task.form, _pair),
        "labels": _pair,
        "score": _pair,
        "tag": lambda guid, text: TextExample(guid, text, None),
        "parse": _words,
        "answer": lambda guid, text: QuestionExample(guid, text, "어디에 왔는가?", ()),
        "track": lambda guid, text: DialogueExample(guid, guid, (text,), ()),
    }
    if model.task.kind not in makers:
        raise DanseoError(f"runs of kind {model.task.kind} are not exported as onnx yet")
    return [makers[model.task.kind](str(number), text) for number, text in enumerate(_TEXTS)]


def _pair(guid: str, text: str) -> TextExample:
    return TextExample(guid, text, None, pair=text)


def _choices(count: int) -> Callable[[str, str], ChoiceExample]:
    return lambda guid, text: ChoiceExample(guid, text, tuple(text[: k + 1] for k in range(count)), "")


def _words(guid: str, text: str) -> ParseExample:
    words = tuple(text.split())
    return ParseExample(guid, words, (), text, pos=(TAGS[0],) * len(words))


def _relation(guid: str, text: str) -> RelationExample:
    first, last = Entity(text[:1], 0, 1, "PER"), Entity(text[-1:], len(text) - 1, len(text), "PER")
    return RelationExample(guid, text, first, last, "")


FORMAT = Format(
    "onnx",
    "the network and tokenizer for ONNX Runtime; danseo predict FOLDER needs no torch",
    write,
    packages=("torch", "transformers", "safetensors", "onnx", *PACKAGES),
    options=("int8", "trust_remote_code"),
)
