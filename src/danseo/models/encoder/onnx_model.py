"""An exported encoder: ONNX Runtime and a tokenizer, without torch."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, DataError
from danseo.extras import require
from danseo.files import read_bytes
from danseo.models.base import Answers, LoadOptions
from danseo.models.checkpoint import refuse_code
from danseo.models.encoder.heads import get_head_class
from danseo.models.encoder.heads.base import TaskHead, make_batch
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.rows import read_object
from danseo.runs.store import Run
from danseo.tasktypes.base import Task
from danseo.training.features import Features, Outputs, make_token_batches
from danseo.training.processes import compute_shared

MANIFEST, SETTINGS, NETWORK, TOKENIZER = "exported.json", "run", "model.onnx", "tokenizer.json"
VERSION = 1
PACKAGES = ("onnxruntime", "tokenizers")
_PADDING = 16  # tokens of padding that cost as much as another call
_STATES = 3 * 2**18  # hidden values that fit the caches of a core: 1,024 tokens of width 768


@dataclass(frozen=True)
class PlainTokenizer:
    """The attributes of a fast tokenizer that heads need, without transformers."""

    backend_tokenizer: Any
    name_or_path: str
    pad_token_id: int
    unk_token_id: int | None
    unk_token: str | None
    cls_token_id: int | None
    sep_token_id: int | None
    all_special_ids: list[int]

    @staticmethod
    def facts(tokenizer: Any) -> dict[str, Any]:
        """Return the attributes to save next to the tokenizer file."""
        names = ("pad_token_id", "unk_token_id", "unk_token", "cls_token_id", "sep_token_id", "all_special_ids")
        return {name: getattr(tokenizer, name) for name in names}


class OnnxEncoder:
    """Encoding and decoding of a task head around a network in ONNX Runtime."""

    def __init__(self, task_head: TaskHead, session: Any, width: int, threads: int) -> None:
        self.task_head, self.session = task_head, session
        self.inputs = [each.name for each in session.get_inputs()]
        self.outputs = [each.name for each in session.get_outputs()]
        self.tokens = max(1, _STATES // width) * threads

    @property
    def reads_pos(self) -> bool:
        return self.task_head.reads_pos

    def predict(self, examples: Sequence[Any]) -> Answers:
        features = self.task_head.encode(examples, with_gold=False)
        return self.task_head.decode(examples, features, compute_shared(self._compute_outputs, features))

    def _compute_outputs(self, features: Sequence[Features]) -> list[Outputs]:
        """Return the outputs of the features in their order, batch by batch."""
        found: list[Any] = [None] * len(features)
        lengths = [len(record) for record in features]
        for part in make_token_batches(range(len(features)), lengths, self.tokens, _PADDING):
            for index, output in zip(part, self.outputs_of([features[index] for index in part]), strict=True):
                found[index] = output
        return found

    def outputs_of(self, features: Sequence[Features]) -> list[Outputs]:
        """Return the outputs of the network for a batch."""
        batch = make_batch(features, self.task_head, False, with_segments="segments" in self.inputs)
        outputs = self.session.run(self.outputs, {name: batch[name] for name in self.inputs})
        is_token = batch["attention_mask"].ravel() == 1
        values = [output[is_token] if len(output) == len(is_token) else output for output in outputs]
        return self.task_head.unpack(dict(zip(self.outputs, values, strict=True)), batch, features)


def is_exported(folder: Path) -> bool:
    """Return whether `danseo export --to onnx` wrote the folder."""
    return (folder / MANIFEST).is_file()


def load_exported(folder: Path, loading: LoadOptions) -> tuple[OnnxEncoder, Task]:
    """Load the model of an exported folder, and its task."""
    require(*PACKAGES)
    refuse_code(folder, loading.trust_remote_code)
    if loading.precision not in (None, "auto") or loading.device not in (None, "cpu"):
        raise DanseoError(f"{folder} is exported for CPUs in its own precision; leave --precision and --device out")
    manifest = read_object(folder / MANIFEST).values
    if manifest.get("version") != VERSION:
        raise DataError(f"{folder / MANIFEST} is of another version; export the run again")
    run = Run(folder / SETTINGS)
    config, task = run.config, run.task
    try:
        task_head = get_head_class(task)(task, _pieces(folder, manifest), config.encoder, config.train)
        task_head.restore_thresholds(manifest["decision"])
        task_head.restore_state(manifest["state"])
        return OnnxEncoder(task_head, open_session(folder / NETWORK), manifest["width"], threads_here()), task
    except (KeyError, TypeError):
        raise DataError(f"{folder / MANIFEST} is damaged; export the run again") from None


def _pieces(folder: Path, manifest: Mapping[str, Any]) -> EncoderTokenizer:
    from tokenizers import Tokenizer

    content = read_bytes(folder / TOKENIZER)
    try:
        backend = Tokenizer.from_buffer(content)
    except Exception:  # the library raises one exception class for everything
        raise DataError(f"{folder / TOKENIZER} is damaged; export the run again") from None
    tokenizer = PlainTokenizer(backend, str(folder), **manifest["tokenizer"])
    sizes = (tokenizer.pad_token_id + 1, manifest["longest"], manifest["width"])
    if any(type(size) is not int or size < 1 for size in sizes):
        raise TypeError("not a size")
    return EncoderTokenizer(tokenizer, manifest["longest"])


def threads_here() -> int:
    """Return the number of threads: OMP_NUM_THREADS, else one per available core."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(named) if named.isdigit() and int(named) else available


def open_session(path: Path) -> Any:
    """Open a network for the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads_here()
    options.log_severity_level = 4  # whatever is wrong comes as an exception
    if not path.is_file():
        raise DataError(f"{path} is missing; export the run again")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # one of many, none of which has a common parent
        raise DataError(f"{path} cannot be opened: {' '.join(str(error).split())[:200]}; export it again") from None
