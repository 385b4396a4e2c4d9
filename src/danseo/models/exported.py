"""An exported encoder: a network for ONNX Runtime with its tokenizer, which answers without torch."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, DataError
from danseo.extras import require
from danseo.files import read_bytes
from danseo.models.encoder.kind import Kind, batch_of
from danseo.models.encoder.kinds import kind_of
from danseo.models.encoder.pieces import Pieces
from danseo.models.protocol import Answers, Loading
from danseo.rows import read_object
from danseo.runs.directory import Run
from danseo.tasks.task import Task
from danseo.training.batching import packed
from danseo.training.features import Features, Outputs

MANIFEST, SETTINGS, NETWORK, TOKENIZER = "exported.json", "run", "model.onnx", "tokenizer.json"
VERSION = 1
PACKAGES = ("onnxruntime", "tokenizers")
_PADDING = 16  # pieces of padding that cost about as much as another call of the network
_STATES = 3 * 2**18  # hidden numbers that the caches of a core hold: 1,024 pieces of width 768


@dataclass(frozen=True)
class PlainTokenizer:
    """The few facts about a fast tokenizer that kinds ask for, without the library that trained it."""

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
        """What is to be written of a tokenizer beside its own file."""
        names = ("pad_token_id", "unk_token_id", "unk_token", "cls_token_id", "sep_token_id", "all_special_ids")
        return {name: getattr(tokenizer, name) for name in names}


class Exported:
    """A kind's encoding and decoding around a network in ONNX Runtime."""

    def __init__(self, kind: Kind, session: Any, width: int, threads: int) -> None:
        self.kind, self.session = kind, session
        self.inputs = [each.name for each in session.get_inputs()]
        self.outputs = [each.name for each in session.get_outputs()]
        self.tokens = max(1, _STATES // width) * threads

    @property
    def reads_pos(self) -> bool:
        return self.kind.task.kind == "parse" and self.kind.config.architecture == "official"

    def predict(self, examples: Sequence[Any]) -> Answers:
        features = self.kind.encode(examples, with_gold=False)
        found: list[Any] = [None] * len(features)
        lengths = [len(record) for record in features]
        for part in packed(range(len(features)), lengths, self.tokens, _PADDING):
            for index, output in zip(part, self.outputs_of([features[index] for index in part]), strict=True):
                found[index] = output
        return self.kind.decode(examples, features, found)

    def outputs_of(self, features: Sequence[Features]) -> list[Outputs]:
        """What the network makes of a batch."""
        batch = batch_of(features, self.kind, False, with_segments="segments" in self.inputs)
        made = self.session.run(self.outputs, {name: batch[name] for name in self.inputs})
        return self.kind.unpack(dict(zip(self.outputs, made, strict=True)), batch, features)


def is_exported(folder: Path) -> bool:
    """Whether the folder is what `danseo export --to onnx` wrote."""
    return (folder / MANIFEST).is_file()


def load_exported(folder: Path, loading: Loading) -> tuple[Exported, Task]:
    """The model of an exported folder, and its task."""
    require(*PACKAGES)
    if loading.precision not in (None, "auto") or loading.device not in (None, "cpu"):
        raise DanseoError(f"{folder} is exported for CPUs as it is; leave --precision and --device out")
    manifest = read_object(folder / MANIFEST).values
    if manifest.get("version") != VERSION:
        raise DataError(f"{folder / MANIFEST} is of another version; export the run again")
    run = Run(folder / SETTINGS)
    config, task = run.config, run.task
    try:
        kind = kind_of(task)(task, _pieces(folder, manifest), config.head, config.train)
        kind.restore_decision(manifest["decision"])
        kind.restore_state(manifest["state"])
        return Exported(kind, open_session(folder / NETWORK), manifest["width"], threads_here()), task
    except (KeyError, TypeError):
        raise DataError(f"{folder / MANIFEST} is damaged; export the run again") from None


def _pieces(folder: Path, manifest: Mapping[str, Any]) -> Pieces:
    from tokenizers import Tokenizer

    content = read_bytes(folder / TOKENIZER)
    try:
        backend = Tokenizer.from_buffer(content)
    except Exception:  # the library has one kind for all
        raise DataError(f"{folder / TOKENIZER} is damaged; export the run again") from None
    return Pieces(PlainTokenizer(backend, str(folder), **manifest["tokenizer"]), manifest["longest"])


def threads_here() -> int:
    """How many threads compute: as OMP_NUM_THREADS says, else one per core that is ours."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(named) if named.isdigit() and int(named) else available


def open_session(path: Path) -> Any:
    """A network ready to compute on the CPU."""
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
