"""Configure torch: precision and attention of a network, determinism, and int8 layers for inference on CPUs."""

import json
import os
import platform
import subprocess
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from danseo.config.train import OptimizationSettings
from danseo.errors import DanseoError, DataError
from danseo.files import write_atomically
from danseo.launcher import PYTHON
from danseo.rows import read_object
from danseo.runs.schemas import matches_schema
from danseo.runs.store import Run
from danseo.training.distributed import Workers
from danseo.training.network import TrainableNetwork

COMPUTE_FILE = "compute.json"
PACKED = "packed"
"""The attention that reads the texts of a batch as one row without padding."""
FLASH = "flash_attention_2"
"""The same with FlashAttention's kernel: NVIDIA only, with the package flash_attn, in half precision."""
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_LARGE = 2e7  # weights above the embeddings: smaller networks gain little from bf16 on a CPU, and lose digits
_TRIAL_SECONDS = 120.0
_ISA_WITHOUT_AMX = "AVX512_CORE_BF16"
_BF16_TRIAL = """
import torch
layer = torch.nn.Linear(128, 128)
for _ in range(100):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = layer(torch.randn(4, 4, 48, 128))
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x) @ x.transpose(-1, -2)
    x.float().mean().backward()
"""


@dataclass(frozen=True)
class ComputeConfig:
    """The precision and attention of a network."""

    precision: str
    attention: str

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """Return the context in which the network computes."""
        dtype = _HALF.get(self.precision)
        return torch.autocast(device.type, dtype=dtype) if dtype else nullcontext()

    def apply_to(self, network: TrainableNetwork) -> None:
        """Switch the network to this attention; raise an error if it does not have it."""
        if not set_attention(network, self.attention):
            raise DanseoError(f"this encoder has no {self.attention} attention; use train.attn_implementation=auto")


def choose_compute_config(
    network: TrainableNetwork,
    config: OptimizationSettings,
    workers: Workers,
    run: Run | None = None,
    on_note: Callable[[str], None] = lambda line: None,
    series: Path | None = None,
) -> ComputeConfig:
    """Return the precision and attention of a run: recorded, shared by its sweep, or selected; rank 0 decides.

    They are recorded together with everything else that the numbers depend on.
    """
    chosen: ComputeConfig | None = None
    if workers.is_first:
        chosen = read_compute_config(run, config, workers.device) if run else None
        if chosen is None and series and series.parent.is_dir():
            chosen = _share_compute_config(series, lambda: select_compute_config(network, config, workers.device))
        chosen = chosen or select_compute_config(network, config, workers.device)
        if run:
            _record(run, chosen, workers, on_note)
    shared: ComputeConfig = workers.broadcast(chosen)
    return shared


def select_compute_config(
    network: TrainableNetwork, config: OptimizationSettings, device: torch.device
) -> ComputeConfig:
    """Return what the settings say; `auto` goes by the device and the network alone, so it is the same every time."""
    precision = select_precision(config.precision, device, count_body_weights(network))
    return ComputeConfig(precision, select_attention(network, config, device, precision))


def select_attention(
    network: TrainableNetwork, config: OptimizationSettings, device: torch.device, precision: str
) -> str:
    """Switch the network to the attention of the settings, or for `auto` to the best one that it has."""
    names = _list_attentions(config, device, precision)
    attention = next((name for name in names if set_attention(network, name)), None)
    if attention is None:
        raise DanseoError(
            f"this encoder has no {config.attn_implementation} attention; use train.attn_implementation=auto"
        )
    if attention == FLASH and precision not in _HALF:
        raise DanseoError(f"train.attn_implementation={FLASH} computes in half precision; use precision=auto")
    return attention


def select_precision(setting: str, device: torch.device, body_weights: float) -> str:
    """Return the precision that is set, or for `auto` bf16 where the device is made for it and the network is large."""
    if setting != "auto":
        if setting == "bf16" and device.type == "cpu" and cpu_has_bf16() and not bf16_works():
            os.environ.setdefault("ONEDNN_MAX_CPU_ISA", _ISA_WITHOUT_AMX)
        return setting
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"  # T4 and V100 have fp16
    is_large_on_cpu = device.type == "cpu" and body_weights >= _LARGE
    return "bf16" if is_large_on_cpu and cpu_has_bf16() and bf16_works() else "fp32"


def stores_bf16(body_weights: float, device: torch.device) -> bool:
    """Return whether frozen weights are stored in bf16: where a network of this size computes in it anyway."""
    return select_precision("auto", device, body_weights) == "bf16"


def count_body_weights(network: TrainableNetwork) -> int:
    """Return the number of weights without heads and token embeddings."""
    body = network.model.base_model
    weights: int = sum(parameter.numel() for parameter in body.parameters())
    embeddings: int = body.get_input_embeddings().weight.numel()
    return weights - embeddings


def cpu_has_bf16() -> bool:
    """Return whether this CPU has bf16 instructions (avx512_bf16, AMX); emulated bf16 is slower than fp32."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@cache
def bf16_works() -> bool:
    """Return whether another process survives computing in bf16.

    Some virtual machines announce AMX, and kill the process that uses it.
    """
    command = [*PYTHON, "-c", _BF16_TRIAL]
    try:
        return subprocess.run(command, capture_output=True, timeout=_TRIAL_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def set_attention(network: TrainableNetwork, attention: str) -> bool:
    """Switch to an attention, and return whether the network has it; some only warn and keep their own."""
    try:
        network.use_attention(attention)
    except (ValueError, ImportError):
        return False
    is_set = network.model.config._attn_implementation == attention
    return bool(is_set and network.is_packed == (attention in (PACKED, FLASH)))


def _list_attentions(config: OptimizationSettings, device: torch.device, precision: str) -> tuple[str, ...]:
    """Return the attentions that the settings allow, the preferred one first."""
    flash = (FLASH,) if has_flash(device) else ()
    if config.attn_implementation == "auto":
        return (*(flash if precision in _HALF else ()), PACKED, "sdpa", "eager")
    return flash if config.attn_implementation == FLASH else (config.attn_implementation,)


def has_flash(device: torch.device) -> bool:
    """Return whether FlashAttention is installed and the device is an NVIDIA GPU."""
    return device.type == "cuda" and find_spec("flash_attn") is not None


def _share_compute_config(file: Path, select: Callable[[], ComputeConfig]) -> ComputeConfig:
    """Return the config in the file that the runs of a sweep share; the first run writes it."""
    if not file.is_file():
        draft = file.with_name(f"{file.name}.{os.getpid()}.part")
        write_atomically(draft, json.dumps(asdict(select())))
        try:
            os.link(draft, file)
        except FileExistsError:
            pass  # another run was first
        except OSError:  # no hard links here; two runs that write at the same moment write the same
            if not file.is_file():
                draft.replace(file)
        draft.unlink(missing_ok=True)
    return ComputeConfig(**read_object(file).values)


def _record(run: Run, chosen: ComputeConfig, workers: Workers, on_note: Callable[[str], None]) -> None:
    """Write the config and the conditions; those of the first start stay, and later ones that differ are added."""
    now = {**asdict(chosen), "device": workers.device.type, **describe_conditions(workers)}
    before = run.read_json(COMPUTE_FILE) if (run.path / COMPUTE_FILE).is_file() and run.has_checkpoint else now
    if line := describe_changes(before, now):
        on_note(f"{run.path.name} {line}")
        now = {**before, "later": [*before.get("later", []), now]}
    else:
        now = {**now, **before}
    run.write_json(COMPUTE_FILE, now)


def read_compute_config(run: Run, config: OptimizationSettings, device: torch.device) -> ComputeConfig | None:
    """Return the recorded config of a run; None if there is none, or the settings or the device do not allow it."""
    if not (run.path / COMPUTE_FILE).is_file():
        return None
    kept = run.read_json(COMPUTE_FILE)
    if not matches_schema(
        kept, {"precision": lambda value: value in ("fp32", "bf16", "fp16", "int8"), "attention": str, "?later": list}
    ):
        raise DataError(f"{run.path / COMPUTE_FILE} is damaged; remove it, and they are chosen again")
    recorded = ComputeConfig(kept["precision"], kept["attention"])
    named = (config.precision, recorded.precision), (config.attn_implementation, recorded.attention)
    is_allowed = all(setting in ("auto", value) for setting, value in named)
    is_available = recorded.attention != FLASH or has_flash(device)
    return recorded if is_allowed and is_available and kept.get("device") == device.type else None


def configure_torch(config: OptimizationSettings, device: torch.device) -> None:
    """Set the number of threads, TF32 on GPUs, and deterministic algorithms as the settings say."""
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.allow_tf32
    if config.full_determinism:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is not deterministic without it
    if (
        torch.are_deterministic_algorithms_enabled() != config.full_determinism
    ):  # the call imports torch's compiler, so only if needed
        torch.use_deterministic_algorithms(config.full_determinism)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # for debugging, and slow


def describe_conditions(workers: Workers) -> dict[str, Any]:
    """Return the threads, processes, CPU instructions, GPU and torch version: each changes the order of sums."""
    device = workers.device
    card = {"card": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    return {
        "threads": torch.get_num_threads(),
        "processes": workers.world,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        **card,
    }


def describe_changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return one line about conditions that changed since a training began, or an empty one."""
    differing = [f"{key} {before[key]} then, {now[key]} now" for key in now if before.get(key, now[key]) != now[key]]
    if not differing:
        return ""
    return f"resumes under other conditions ({'; '.join(differing)}): not bit for bit the same as without a stop"


class Int8Linear(nn.Module):
    """A linear layer with int8 weights, one scale per output; inputs are quantized dynamically."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        scales = (weight.abs().amax(dim=1).clamp(min=1e-9) / 127).double()
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library plans to move this elsewhere
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        bias = None if layer.bias is None else layer.bias.detach().float()
        self.packed: Any = torch.ops.quantized.linear_prepack(rounded, bias)
        # Without byte instructions sums of products may overflow unless inputs have seven bits.
        self.seven_bits = not torch.cpu._is_vnni_supported()

    def forward(self, hidden: Tensor) -> Tensor:
        made: Tensor = torch.ops.quantized.linear_dynamic(hidden.float(), self.packed, self.seven_bits)
        return made.to(hidden.dtype)  # bfloat16 where the rest of the network computes in it


def quantize_to_int8(model: Any, device: torch.device) -> None:
    """Replace the linear layers of the body by int8 layers; heads are unchanged."""
    if device.type != "cpu":
        raise DanseoError(f"int8 is for CPUs, and this is {device.type}; use --precision bf16 or --device cpu")
    body = model.base_model
    layers = [(name, layer) for name, layer in body.named_modules() if isinstance(layer, nn.Linear)]
    for name, layer in layers:
        body.set_submodule(name, Int8Linear(layer))
