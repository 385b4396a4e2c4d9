"""Which precision and attention are fastest here: measured once per device and size of encoder, then remembered."""

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from danseo.config import TrainConfig
from danseo.data.find import cache_root
from danseo.errors import DanseoError, DataError
from danseo.files import write_atomically
from danseo.rows import read_object
from danseo.runs.directory import Run
from danseo.runs.shapes import has_shape
from danseo.training.network import TrainableNetwork
from danseo.training.numbers import changes, conditions
from danseo.training.workers import Workers

_ROUNDS = 3
_SECONDS = 3.0  # of measuring at most, but for one pass of each mode
_SHARE = 0.02  # of the planned work, likewise
_LITTLE = 3e12  # operations that are done before measuring pays, in half a minute or so: the usual mode does them
_LAYERS = 2  # that are measured: they tell as much as all
_SHAPE = (8, 48)  # rows and pieces of an ordinary batch; a network may name its own
_PATIENCE = 120.0  # seconds, with a process that tries bfloat16
_GPU_PIECES = 8192  # in a measured batch: fewer only show how fast a GPU is told what to do
_GPU_WIDTH = 128
_LARGE = 2e7  # weights above the embeddings from which on the frozen ones of a CPU may lie in bfloat16
_PRODUCT = (512, 1024, 1024)  # of the matrices whose product tells whether a CPU gains by bfloat16
_GAIN = 1.2  # times as fast, so that it pays
_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
COMPUTE_FILE = "gear.json"
FLASH = "flash_attention_2"
"""FlashAttention, as the library calls it: for GPUs of NVIDIA with the package flash_attn, in half precision."""


@dataclass(frozen=True)
class ComputeMode:
    """How the network computes."""

    precision: str
    attention: str

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        dtype = _HALVES.get(self.precision)
        return torch.autocast(device.type, dtype=dtype) if dtype else nullcontext()

    def engage(self, network: TrainableNetwork) -> None:
        if not takes(network, self.attention):
            raise DanseoError(f"this encoder has no {self.attention} attention here; use attention=auto")


def takes(network: TrainableNetwork, attention: str) -> bool:
    """Switch to an attention where the family has it; some only warn and go on with their own."""
    try:
        network.use_attention(attention)
    except (ValueError, ImportError):
        return False
    return bool(network.model.config._attn_implementation == attention)


def settled_mode(
    network: TrainableNetwork,
    config: TrainConfig,
    workers: Workers,
    run: Run | None,
    pieces: float = math.inf,
    on_note: Callable[[str], None] = lambda line: None,
    series: Path | None = None,
) -> ComputeMode:
    """As an earlier start of the run had it, or the series of runs, else chosen for so many pieces; the first decides.

    What the numbers depend on besides is written beside it; a run that goes on under other conditions says so.
    """
    mode: ComputeMode | None = None
    if workers.is_first:
        mode = recorded_mode(run, config, workers.device) if run else None
        if mode is None:
            memory = cache_root() / "measured.json"
            if series and not series.parent.is_dir():
                pieces = 0  # out of sight of the others: the usual mode, which all of them would take
            fresh = partial(choose_mode, network, config, workers.device, memory, pieces, on_note)
            mode = _of_series(series, fresh) if series and series.parent.is_dir() else fresh()
        if run:
            _record(run, mode, workers, on_note)
    chosen: ComputeMode = workers.agreed(mode)
    return chosen


def _of_series(file: Path, choose: Callable[[], ComputeMode]) -> ComputeMode:
    """The mode that the runs of a series share: that of the first one to choose."""
    if not file.is_file():
        draft = file.with_name(f"{file.name}.{os.getpid()}.part")
        write_atomically(draft, json.dumps(asdict(choose())))
        with suppress(FileExistsError):  # another was first
            os.link(draft, file)
        draft.unlink()
    return ComputeMode(**read_object(file).values)


def _record(run: Run, mode: ComputeMode, workers: Workers, on_note: Callable[[str], None]) -> None:
    """The mode and the conditions; those of the beginning stay, and later ones that differ are added."""
    now = {**asdict(mode), "device": workers.device.type, **conditions(workers)}
    before = run.read_json(COMPUTE_FILE) if (run.path / COMPUTE_FILE).is_file() and run.has_checkpoint else now
    if line := changes(before, now):
        on_note(f"{run.path.name} {line}")
        now = {**before, "later": [*before.get("later", []), now]}
    else:
        now = {**now, **before}
    run.write_json(COMPUTE_FILE, now)


def recorded_mode(run: Run, config: TrainConfig, device: torch.device) -> ComputeMode | None:
    """The mode that a run computed with, where the settings and the device allow it."""
    if not (run.path / COMPUTE_FILE).is_file():
        return None
    kept = run.read_json(COMPUTE_FILE)
    if not has_shape(kept, {"precision": _is_precision, "attention": str, "?later": list}):
        raise DataError(f"{run.path / COMPUTE_FILE} is damaged; remove it, and how to compute is settled anew")
    mode = ComputeMode(kept["precision"], kept["attention"])
    allowed = config.precision in ("auto", mode.precision) and config.attention in ("auto", mode.attention)
    is_there = mode.attention != FLASH or has_flash(device)
    return mode if allowed and is_there and kept.get("device") == device.type else None


def _is_precision(value: Any) -> bool:
    return value in ("fp32", "bf16", "fp16", "int8")


def choose_mode(
    network: TrainableNetwork,
    config: TrainConfig,
    device: torch.device,
    memory: Path,
    pieces: float = math.inf,
    on_note: Callable[[str], None] = lambda line: None,
) -> ComputeMode:
    """The mode of the settings; what they leave open is measured, or remembered, and where little is to do, the usual.

    Whether there is little depends on the work alone, never on the clock: the same command computes the same way.
    """
    attentions = [name for name in _attentions(network, config, device) if takes(network, name)]
    if not attentions:
        raise DanseoError(f"this encoder has no {config.attention} attention here; use attention=auto")
    is_little = pieces * _operations(network) < _LITTLE
    is_usual = is_little and config.precision == "auto"
    allowed = (usual_precision(device),) if is_usual else precisions(config, device, memory)
    modes = [
        ComputeMode(precision, attention)
        for attention in attentions
        for precision in allowed
        if attention != FLASH or precision in _HALVES
    ]
    if not modes:
        raise DanseoError(f"attention={FLASH} computes in half precision; use precision=auto")
    mode = modes[0] if is_little else _fastest_known(network, modes, device, memory, pieces, on_note)
    mode.engage(network)
    return mode


def usual_precision(device: torch.device) -> str:
    """The precision without measuring: the half one on NVIDIA's GPUs, else fp32."""
    return half_of(device) if device.type == "cuda" else "fp32"


def _attentions(network: TrainableNetwork, config: TrainConfig, device: torch.device) -> tuple[str, ...]:
    """Those of the settings, the usual one first."""
    flash = (FLASH,) if has_flash(device) and getattr(network, "takes_flash", False) else ()
    if config.attention == FLASH:
        return flash
    return ("sdpa", "eager", *flash) if config.attention == "auto" else (config.attention,)


def has_flash(device: torch.device) -> bool:
    """Whether FlashAttention is installed, and a GPU of NVIDIA there for it."""
    return device.type == "cuda" and find_spec("flash_attn") is not None


def _operations(network: TrainableNetwork) -> float:
    """Of learning from one piece: two per weight forward and four backward; tables are only looked up."""
    body = network.model.base_model
    weights: int = sum(parameter.numel() for parameter in body.parameters())
    tables: int = body.get_input_embeddings().weight.numel()
    return 6.0 * (weights - tables)


def precisions(config: TrainConfig, device: torch.device, memory: Path) -> tuple[str, ...]:
    """The precisions that the settings allow and the device survives, the usual one first."""
    if config.precision in ("fp32", "fp16") or device.type != "cpu":
        return (half_of(device), "fp32") if config.precision == "auto" else (config.precision,)
    if config.precision == "auto":
        return ("fp32", "bf16") if has_bf16() and bf16_works(memory) else ("fp32",)
    if has_bf16() and not bf16_works(memory):
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", _SAFE_ISA)
    return ("bf16",)


def half_of(device: torch.device) -> str:
    """The half precision that a GPU is made for: T4 and V100 have only fp16."""
    is_old = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    return "fp16" if is_old else "bf16"


def has_bf16() -> bool:
    """Whether this CPU has instructions for bfloat16; imitated, it is many times slower than fp32."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True  # left to the measuring
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def keeps_half(size: float, device: torch.device, memory: Path | None = None) -> bool:
    """Whether so many weights that stay as they are had better lie in bfloat16: on GPUs, and CPUs that gain by it.

    Small models gain nothing worth its rounding, which makes answers depend on batch mates.
    """
    if device.type != "cpu":
        return device.type == "cuda" and half_of(device) == "bf16"
    memory = memory or cache_root() / "measured.json"
    if size < _LARGE or not has_bf16() or not bf16_works(memory):
        return False
    cpu = f"{platform.node()} {torch.backends.cpu.get_cpu_capability()}"
    key = f"products cpu {cpu}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    known = _recall(memory).get(key)
    if not isinstance(known, dict) or set(known) != {"fp32", "bf16"}:
        modes = [ComputeMode("fp32", "sdpa"), ComputeMode("bf16", "sdpa")]
        known = {mode.precision: taken for mode, taken in measured_seconds(modes, _product, math.inf).items()}
        _remember(memory, key, known)
    return float(known["fp32"]) > _GAIN * float(known["bf16"])


def _product(mode: ComputeMode) -> float:
    """Seconds of a few matrix products of a language model's size."""
    rows, inner, columns = _PRODUCT
    dtype = _HALVES.get(mode.precision, torch.float32)
    left, right = torch.ones(rows, inner, dtype=dtype), torch.ones(columns, inner, dtype=dtype)
    clock = _cpu_clock()
    start = clock()
    for _ in range(4):
        torch.nn.functional.linear(left, right)
    return clock() - start


def _cpu_clock() -> Callable[[], float]:
    """One thread's own seconds, where there is one: other work on the machine would decide otherwise."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def bf16_works(memory: Path) -> bool:
    """Whether this CPU computes in bfloat16 without dying.

    Some virtual machines announce matrix units (AMX) whose use kills the process, which only another process can
    find out. The answer is remembered.
    """
    key = f"bf16 {platform.machine()} {platform.node()} {torch.__version__}"
    known = _recall(memory).get(key)
    if known is None:
        known = _survives(_BF16_TRIAL)
        _remember(memory, key, known)
    return bool(known)


def _survives(code: str) -> bool:
    """Whether another process runs the code to its end; one that hangs does not."""
    command = [sys.executable, "-c", code]
    try:
        return subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


_SAFE_ISA = "AVX512_CORE_BF16"  # bfloat16 without the matrix units
_BF16_TRIAL = """
import torch
layer = torch.nn.Linear(128, 128)
for _ in range(100):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = layer(torch.randn(4, 4, 48, 128))
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x) @ x.transpose(-1, -2)
    x.float().mean().backward()
"""


def _fastest_known(
    network: TrainableNetwork,
    modes: list[ComputeMode],
    device: torch.device,
    memory: Path,
    pieces: float,
    on_note: Callable[[str], None],
) -> ComputeMode:
    """The fastest mode by the times that are remembered, or measured now and remembered."""
    if len(modes) == 1:
        return modes[0]
    key, names = _key(network, device), {mode: f"{mode.precision} {mode.attention}" for mode in modes}
    times = _recall(memory).get(key)
    if not (isinstance(times, dict) and set(names.values()) <= times.keys()):
        on_note("measuring which precision and attention are fastest here (some seconds, once per size of encoder)")
        with _shortened(network.model.base_model) as share:
            rows, width = _shape(network, device)
            trials = pieces / (rows * width * share)
            measured = measured_seconds(modes, lambda mode: _trial(network, mode, device), trials)
        times = {names[mode]: seconds for mode, seconds in measured.items()}
        _remember(memory, key, times)
    return min(modes, key=lambda mode: float(times[names[mode]]))


def _key(network: TrainableNetwork, device: torch.device) -> str:
    """What times depend on: the device, and the size of the body, whatever head is on it."""
    cpu = device.type == "cpu"
    name = f"cpu {torch.backends.cpu.get_cpu_capability()}" if cpu else torch.cuda.get_device_name(device)
    config = network.model.config
    sizes = [getattr(config, key, 0) for key in ("hidden_size", "num_hidden_layers")]
    rows, width = _shape(network, device)
    body = f"{config.model_type} {sizes[0]} x {sizes[1]}"
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}, {body}, {rows} x {width} pieces"


def measured_seconds(
    modes: Sequence[ComputeMode], trial: Callable[[ComputeMode], float], trials: float
) -> dict[ComputeMode, float]:
    """The median time of each mode for work of so many trials; rounds are interleaved, so that noise meets all of them.

    The first one warms up. No round begins when a share of the work, or some seconds, are spent.
    """
    started = time.perf_counter()
    times = {mode: [trial(mode)] for mode in modes}
    limit = min(_SECONDS, _SHARE * trials * min(first for (first,) in times.values()))
    for _ in range(_ROUNDS):
        if time.perf_counter() - started >= limit:
            break
        for mode in modes:
            times[mode].append(trial(mode))
    return {mode: statistics.median(taken[1:] or taken) for mode, taken in times.items()}


@contextmanager
def _shortened(body: Any) -> Iterator[float]:
    """The body with only its last layers, for as long as the block lasts; their share of all."""
    count = getattr(body.config, "num_hidden_layers", 0)
    lists = [
        (parent, name, child)
        for parent in body.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.ModuleList) and len(child) == count
    ]
    for parent, name, child in lists:
        setattr(parent, name, child[-_LAYERS:])
    try:
        yield min(1.0, _LAYERS / count) if lists else 1.0
    finally:
        for parent, name, child in lists:
            setattr(parent, name, child)


def _shape(network: TrainableNetwork, device: torch.device) -> tuple[int, int]:
    """Rows and pieces of a batch as the device will see them."""
    rows, width = getattr(network, "shape", _SHAPE)
    if device.type != "cpu":
        width = width if hasattr(network, "shape") else _GPU_WIDTH
        rows = max(1, _GPU_PIECES // width)
    return rows, width


def _trial(network: TrainableNetwork, mode: ComputeMode, device: torch.device) -> float:
    """Seconds of one forward and backward pass of the body over a batch of ordinary shape."""
    mode.engage(network)
    ids = torch.full(_shape(network, device), 5, device=device)
    clock = _cpu_clock() if device.type == "cpu" else time.perf_counter
    start = clock()
    with mode.autocast(device):
        states = network.model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    if states.requires_grad:  # a frozen encoder has only its forward pass
        states.float().mean().backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elapsed = clock() - start
    network.zero_grad(set_to_none=True)
    return elapsed


def _recall(memory: Path) -> dict[str, Any]:
    try:
        return dict(read_object(memory).values)
    except DataError:
        return {}  # not measured yet, or unreadable: measured again


def _remember(memory: Path, key: str, value: Any) -> None:
    write_atomically(memory, json.dumps({**_recall(memory), key: value}, indent=2))
