"""Estimate the memory of a training per device from the configuration of a model; no weights are loaded."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.config.train import TrainSettings
from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.models.encoder.model_info import usable_positions
from danseo.models.encoder.network import loading_reason, make_empty_network
from danseo.models.llm.loading import make_empty_language_model
from danseo.tasktypes.base import Task
from danseo.training.distributed import Workers
from danseo.training.optimizers import is_layer_matrix
from danseo.training.precision import count_body_weights, select_precision
from danseo.training.sharding import is_sharded
from danseo.training.training_loop import count_cache_tokens

_GIB = 2**30
_REPLIES = 4  # of so many tokens one belongs to a reply, for which a language model computes the vocabulary
_QUANTIZED = {"nf4": 0.5 + 1 / 64 + 4 / (64 * 256), "int8": 1.0}  # bytes per weight, with its scales
_8BIT_STATE = 2 * (1 + 4 / 256)  # bytes per weight of both moments of an 8-bit optimizer, with their scales
_SUMS = 2**25  # numbers in the buffer for the sums of gradients over processes


@dataclass(frozen=True)
class MemoryEstimate:
    """The memory of a training on each device, in bytes."""

    model: str
    device: str
    processes: int
    precision: str
    tokens: int
    """Most tokens that a device reads at once."""
    weights: int
    """Weights, and their copies in half precision where the network computes in it."""
    gradients: int
    optimizer: int
    """Moments of the optimizer, and averaged weights."""
    activations: int
    available: int
    changes: Mapping[str, Any]
    """Settings with which the training fits; empty if it fits unchanged, or if nothing helps."""

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations

    @property
    def fits(self) -> bool:
        return self.total <= self.available

    def tables(self) -> list[Table]:
        names = ("weights", "gradients", "optimizer", "activations", "total", "available")
        rows: list[tuple[object, ...]] = [(name, _to_gib(getattr(self, name))) for name in names]
        where = f"{self.device}, {self.precision}, {self.tokens:,} tokens at once"
        processes = f", {self.processes} processes" if self.processes > 1 else ""
        return [Table(f"estimated memory per device ({where}{processes})", ("what", "GiB"), rows)]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "total": self.total, "fits": self.fits}

    def check(self) -> None:
        """Raise an error that names the settings to change if the training does not fit."""
        if self.fits:
            return
        chosen = " ".join(f"--set {name}={_to_text(value)}" for name, value in self.changes.items())
        raise DanseoError(
            f"too little memory: {self.model} needs {_to_gib(self.total)} GiB and {self.device} has "
            f"{_to_gib(self.available)}; {f'add {chosen}' if chosen else 'use a smaller model or a larger device'}"
        )


def _to_gib(size: float) -> str:
    return f"{size / _GIB:.2f}"


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class ModelSize:
    """What a family tells about a model without weights."""

    network: nn.Module
    """Its module with the weights of transformers; tensors without memory."""
    body: Any
    """The part that reads tokens."""
    quantization: str = "none"
    vocabulary: int = 0
    """Number of logits for each token of a reply; 0 if it writes none."""
    precision: str = "auto"


def estimate_encoder(config: RunConfig, task: Task, device: str | None) -> MemoryEstimate:
    """Estimate the training of an encoder with its head."""

    def make(config: RunConfig, where: torch.device) -> ModelSize:
        network = make_empty_network(config, task, where)
        precision = select_precision(config.train.precision, where, count_body_weights(network))
        return ModelSize(network, network.model.base_model, precision=precision)

    return _find_fitting(config, Workers(device), make, ())


def estimate_language_model(config: RunConfig, task: Task, device: str | None) -> MemoryEstimate:
    """Estimate the fine-tuning of a language model on replies."""

    def make(config: RunConfig, where: torch.device) -> ModelSize:
        model = make_empty_language_model(config, where)
        usual = "bf16" if model.dtype == torch.bfloat16 else select_precision("auto", where, 0)
        named = config.train.precision
        return ModelSize(
            model,
            model.base_model,
            config.llm.quantization,
            model.config.vocab_size,
            usual if named == "auto" else named,
        )

    smaller = () if config.llm.lora_rank else ({"llm.lora_rank": 16},)
    quantized = {"llm.quantization": "nf4"} if config.llm.quantization == "none" else {}
    return _find_fitting(config, Workers(device), make, (*smaller, {**(smaller[0] if smaller else {}), **quantized}))


def _find_fitting(
    config: RunConfig,
    workers: Workers,
    make: Callable[[RunConfig, torch.device], ModelSize],
    smaller: tuple[dict[str, Any], ...],
) -> MemoryEstimate:
    """Return the estimate, with the first changes of settings that let the training fit."""
    found = _estimate(config, workers, make)
    if found.fits:
        return found
    shorter = {"train.max_batch_tokens": max(config.train.max_length, config.train.max_batch_tokens // 4)}
    recomputed = {"train.gradient_checkpointing": True}
    options: list[dict[str, Any]] = [shorter, recomputed, {**shorter, **recomputed}]
    if workers.world > 1 and config.train.sharding == "none" and config.llm.quantization == "none":
        divided = {"train.sharding": "full"}
        options += [divided, {**divided, **recomputed}, {**divided, **shorter, **recomputed}]
    options += [{**more, **each} for each in smaller for more in ({}, recomputed, {**shorter, **recomputed})]
    for option in options:
        changed = _estimate(update_config(config, option), workers, make)
        if changed.fits:
            return MemoryEstimate(**{**vars(found), "changes": option})
    return found


def _estimate(
    config: RunConfig, workers: Workers, make: Callable[[RunConfig, torch.device], ModelSize]
) -> MemoryEstimate:
    """Estimate one training: bytes of the tensors that it keeps, counted on tensors without memory."""
    train, device = config.train, workers.device
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            size = make(config, device)
        with FakeTensorMode():
            _to_fake(size.network)
            length = min(train.max_length, usable_positions(size.body.config))
            tokens = min(train.max_batch_tokens, -(-train.batch_size // workers.world) * length)
            if device.type == "cpu":
                tokens = min(tokens, max(length, count_cache_tokens(size.body.config.hidden_size)))
            copies, activations = _measure_forward(size, length, tokens, train.gradient_checkpointing)
    except DanseoError:
        raise
    except Exception as error:  # of any layer that reads numbers, which there are none of
        raise DanseoError(
            f"the memory of {config.model} cannot be estimated: {loading_reason(error)}; leave --dry-run out"
        ) from None
    learning = {name: weight for name, weight in size.network.named_parameters() if weight.requires_grad}
    count = sum(weight.numel() for weight in learning.values())
    moments = _count_moment_bytes(learning, train, is_8bit=size.quantization != "none" and device.type == "cuda")
    averages = 4 * count if train.ema_decay or train.swa_start_epoch is not None else 0
    sums = 4 * min(count, _SUMS) if workers.world > 1 else 0
    stored, parts = _count_weight_bytes(size) + copies, 1
    if is_sharded(train, workers.world):  # the steps need a part, and evaluations the whole weights
        is_half = size.precision == "bf16" and size.vocabulary
        whole = sum(weight.numel() * (2 if is_half else 4) for weight in size.network.parameters())
        parts, sums = workers.world, 0
        stored = _count_weight_bytes(size) / parts + whole
    return MemoryEstimate(
        config.model,
        str(device),
        workers.world,
        size.precision,
        tokens,
        weights=round(stored),
        gradients=4 * count // parts + sums,
        optimizer=round((moments + averages) / parts),
        activations=round(activations),
        available=read_memory(device),
        changes={},
    )


def _count_moment_bytes(learning: Mapping[str, nn.Parameter], train: TrainSettings, *, is_8bit: bool) -> float:
    """Return the bytes of the optimizer's moments: two of Adam, one of Muon for the matrices of layers."""
    count = sum(weight.numel() for weight in learning.values())
    if is_8bit:
        return _8BIT_STATE * count
    if train.optimizer == "muon":
        return 8 * count - 4 * sum(w.numel() for name, w in learning.items() if is_layer_matrix(name, w))
    return 8 * count


def _to_fake(network: nn.Module) -> None:
    """Replace tensors of the meta device by fake ones of the CPU, on which autocast works; tied ones stay tied."""
    made: dict[int, torch.Tensor] = {}
    replaced = []  # which stay, so that no other tensor gets the id of one of them
    for module in network.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and id(tensor) not in made:
                    empty = torch.empty(tensor.shape, dtype=tensor.dtype)
                    is_weight = isinstance(tensor, nn.Parameter)
                    made[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_weight else empty
                if tensor is not None:
                    replaced.append(tensor)
                    tensors[name] = made[id(tensor)]  # type: ignore[assignment]


def _count_weight_bytes(size: ModelSize) -> float:
    """Return the bytes of the weights; linear layers below the vocabulary are quantized."""
    stored = sum(weight.numel() * weight.element_size() for weight in size.network.parameters())
    if size.quantization == "none":
        return stored
    linear = [
        module.weight
        for name, module in size.body.named_modules()
        if isinstance(module, nn.Linear) and ".lora_" not in name
    ]
    saved = (weight.numel() * (weight.element_size() - _QUANTIZED[size.quantization]) for weight in linear)
    return stored - sum(saved)


def _measure_forward(size: ModelSize, length: int, tokens: int, recomputes: bool) -> tuple[float, float]:
    """Return the bytes of half-precision copies of weights, and of activations for so many tokens.

    Both come from the tensors that autograd saves for one and for two texts. With gradient checkpointing, it keeps the
    inputs of all layers, and computes one layer again.
    """
    size.network.train()
    one, two = (_count_saved(size, rows, length) for rows in (1, 2))
    per_text, constant = two - one, max(0, 2 * one - two)
    if recomputes:
        model: Any = size.body
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
        inputs = _count_saved(size, 2, length) - _count_saved(size, 1, length)
        per_text = inputs + (per_text - inputs) / max(1, model.config.num_hidden_layers)
    is_half = size.precision in ("bf16", "fp16")
    logits = tokens / _REPLIES * size.vocabulary * (2 * is_half + 4 + 4)  # as computed, in fp32, and their log-softmax
    activations = per_text * tokens / length + logits
    return (constant, activations) if is_half else (0, constant + activations)


def _count_saved(size: ModelSize, rows: int, length: int) -> int:
    """Return the bytes that autograd saves in a forward pass, without the weights themselves."""
    weights = {weight.untyped_storage()._cdata for weight in size.network.parameters()}
    found: dict[int, torch.UntypedStorage] = {}  # which stay, so that none has the address of an earlier one

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            found[storage._cdata] = storage
        return tensor

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(size.precision)
    ids = torch.zeros(rows, length, dtype=torch.long)
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=half, enabled=half is not None),
    ):
        size.body(input_ids=ids)  # without a mask, as packed texts have none
    return sum(storage.nbytes() for storage in found.values())


def read_memory(device: torch.device) -> int:
    """Return the memory of a device in bytes; the processes of a machine share that of its CPU."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory())
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
