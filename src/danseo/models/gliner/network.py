"""GLiNER checkpoints: version 2 as a trainable network (safetensors only), classic ones in a separate process."""

import json
import os
import shutil
import subprocess
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from danseo.errors import DanseoError, WorkFailed
from danseo.files import quote
from danseo.hub import find_model_folder, resolve_model
from danseo.launcher import SAFE_PATH
from danseo.models.checkpoint import load_config, load_tokenizer, refuse_code
from danseo.models.entity_spans import EntitySpan, split_characters
from danseo.models.remote_code import no_model_code
from danseo.runs.store import read_tensors
from danseo.text.normalization import compose
from danseo.training.features import Features, Outputs
from danseo.training.network import TrainableNetwork

PREFIX = "gliner:"
_NARROWEST = 24  # characters: a span head of fewer misses too many Korean entities
Labels = dict[str, tuple[str, ...]]
"""Type -> words that the model reads for it."""


class CharacterSplitter:
    """Splits a text into characters, since Korean entities end inside words."""

    def __call__(self, text: str, lower: bool = True) -> Iterator[tuple[str, int, int]]:
        for start, end in split_characters(text):
            word = compose(text[start:end])  # as vocabularies have it
            yield (word.lower() if lower else word), start, end


class LibraryBatch:
    """A batch of the library that can be moved to a device like a tensor."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def to(self, device: torch.device, non_blocking: bool = False) -> "LibraryBatch":
        return LibraryBatch(self.batch.to(device))

    def pin_memory(self) -> "LibraryBatch":
        return self


class GlinerNetwork(TrainableNetwork):
    """The library's extractor with its own loss."""

    def __init__(self, extractor: Any) -> None:
        super().__init__()
        self.extractor = extractor

    @property
    def model(self) -> Any:
        """The encoder, whose width the trainer reads."""
        return self.extractor.encoder

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        made = self.extractor(batch["packed"].batch, return_candidates=False)
        return {"loss": made["total_loss"]}

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Any]:
        rows = [(record.fields["text"], record.fields["schema"]) for record in features]
        batch = self.extractor.processor.collate_fn_train(rows, architecture=self.extractor.architecture)
        return {"packed": LibraryBatch(batch), "input_ids": batch.input_ids}


class GlinerLoss:
    """The library's loss, summed over texts."""

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Do nothing: no random choices per step."""

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        texts = len(batch["input_ids"])
        return outputs["loss"] * texts, outputs["loss"].new_full((), texts)

    def unpack(self, outputs: Any, batch: Any, features: Sequence[Features]) -> list[Outputs]:
        raise NotImplementedError  # spans are found by the library itself


def make_features(number: int, text: str, spans: Sequence[EntitySpan], labels: Labels) -> Features:
    """Return the training features of a text and its entities."""
    gold: dict[str, list[dict[str, Any]]] = {words[0]: [] for words in labels.values()}
    for start, end, type, _ in spans:
        gold[labels[type][0]].append({"text": text[start:end], "start": start, "end": end})
    return Features(number, [0] * len(text), [], {"text": text, "schema": {"entities": gold}})


def extract_spans(
    extractor: Any, texts: Sequence[str], labels: Labels, least: float, batch: int
) -> list[list[EntitySpan]]:
    """Return all spans with at least this score, including overlapping ones."""
    types = {word: type for type, words in labels.items() for word in words}
    with torch.inference_mode():
        results = extractor.batch_extract_entities(
            list(texts),
            list(types),
            batch_size=batch,
            threshold=least,
            include_confidence=True,
            include_spans=True,
            overlap_policy="nested",
        )
    return [
        [
            EntitySpan(one["start"], min(one["end"], len(text)), types[word], float(one["confidence"]))
            for word, listed in result["entities"].items()
            for one in listed
        ]
        for text, result in zip(texts, results, strict=True)
    ]


def load_extractor(name: str, trust_remote_code: bool = False) -> Any:
    """Load a GLiNER 2 checkpoint that splits texts into characters."""
    from gliner2.models.loading import checkpoint_file

    position, options = resolve_model(name)
    try:
        files = {
            file: Path(checkpoint_file(position, file, options))
            for file in ("config.json", "encoder_config/config.json", "model.safetensors")
        }
    except Exception as error:  # of the Hub
        raise DanseoError(f"{name} is no GLiNER 2 checkpoint with safetensors: {_line(error)}") from None
    if missing := [file for file, path in files.items() if not path.is_file()]:
        raise DanseoError(
            f"{name} is no GLiNER 2 checkpoint with safetensors: no {missing[0]}; see `danseo docs other-systems`"
        )
    _check(name, json.loads(files["config.json"].read_text("utf-8")))
    try:
        extractor = _build(name, files, trust_remote_code)
    except DanseoError:
        raise
    except Exception as error:  # the library raises many kinds for the same few causes
        raise DanseoError(f"{name} does not load as a GLiNER 2 model: {_line(error)}") from None
    extractor.processor.sampling_config.synthetic_entity_label_prob = 0.0  # its labels are ours
    return extractor


def _build(name: str, files: dict[str, Path], trust_remote_code: bool) -> Any:
    """Build the extractor from parts that danseo loads, since the library would run code of checkpoints."""
    from gliner2 import AutoExtractor
    from gliner2.configuration import ExtractorConfig
    from gliner2.models.loading import reconcile_encoder_embeddings

    if folder := find_model_folder(name):
        refuse_code(folder, trust_remote_code)
    encoder_config = load_config(str(files["encoder_config/config.json"].parent), trust_remote_code)
    try:
        tokenizer = load_tokenizer(name, trust_remote_code)
    except AttributeError:  # extra_special_tokens of older checkpoints are a list, which transformers does not take
        tokenizer = load_tokenizer(name, trust_remote_code, extra_special_tokens={})
    with no_model_code(trust_remote_code):
        config = ExtractorConfig.from_pretrained(str(files["config.json"]))
        parts = {"encoder_config": encoder_config, "tokenizer": tokenizer, "word_splitter": CharacterSplitter()}
        extractor = AutoExtractor.from_config(config, **parts)
    weights = read_tensors(files["model.safetensors"])
    reconcile_encoder_embeddings(extractor, weights)
    extractor.load_state_dict(weights)
    return extractor


def _check(name: str, config: dict[str, Any]) -> None:
    """Refuse models whose spans are too short for Korean entities."""
    width = (config.get("span_head") or config).get("max_width", 8)
    if config.get("architecture", "span") == "span" and width < _NARROWEST:
        raise DanseoError(
            f"{name} finds spans of at most {width} characters, and Korean entities are longer; use one of the "
            f"boundary architecture, or with a width of {_NARROWEST} and more"
        )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


CLASSIC = "gliner_config.json"
PYTHON = "DANSEO_SPAN_PYTHON"
"""Environment variable with the Python that has gliner; --span-python sets it."""
_WORKER = Path(__file__).with_name("worker.py")
_BATCH = 64


def is_classic(name: str) -> bool:
    """Return whether a checkpoint is in the classic format, by its configuration file."""
    if Path(name).is_dir():
        return (Path(name) / CLASSIC).is_file()
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = name.partition("@")
    try:
        cached = try_to_load_from_cache(repository, CLASSIC, revision=revision or None)
    except ValueError:  # no id of the Hub; who loads it says so
        return False
    return isinstance(cached, str) or bool(os.environ.get(PYTHON))


def command() -> list[str]:
    """Return the command of the process: the given Python, else uv, which installs what it needs."""
    if python := os.environ.get(PYTHON):
        if not shutil.which(python):
            raise DanseoError(f"--span-python {python}: no such program; name the Python of an environment with gliner")
        return [str(Path(python).absolute()) if "/" in python else python, str(_WORKER)]
    if uv := shutil.which("uv"):
        return [uv, "run", "--quiet", "--script", str(_WORKER)]
    raise DanseoError(
        "classic GLiNER checkpoints need an older transformers than danseo: name a Python with gliner by "
        "--span-python PATH (pip install gliner there), or install uv"
    )


class GlinerProcess:
    """A process with a loaded checkpoint; it ends with its owner."""

    def __init__(self, name: str, trust_remote_code: bool = False) -> None:
        self.name = name
        if Path(name).is_dir():
            refuse_code(Path(name), trust_remote_code)
        self.process = subprocess.Popen(
            command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=_WORKER.parent,  # settings of uv in the user's folder are not read
            env={**os.environ, **SAFE_PATH},
        )
        weakref.finalize(self, _end, self.process)
        position = str(Path(name).resolve()) if Path(name).is_dir() else name
        self.version = self._ask({"load": position, "trust_remote_code": trust_remote_code})["ready"]

    def spans(
        self, texts: Sequence[str], words: Sequence[str], least: float
    ) -> list[list[tuple[int, int, str, float]]]:
        """Return the spans of each text for these words."""
        found: list[Any] = []
        for position in range(0, len(texts), _BATCH):
            part = list(texts[position : position + _BATCH])
            spans = self._ask({"texts": part, "labels": list(words), "threshold": least}).get("spans")
            if not isinstance(spans, list) or len(spans) != len(part):
                raise WorkFailed(
                    f"{self.name}: the GLiNER process answered something else than spans of {len(part)} texts"
                )
            found += [[tuple(span) for span in listed] for listed in spans]
        return found

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request, ensure_ascii=False) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            code = self.process.wait()
            raise WorkFailed(f"{self.name}: the GLiNER process ended with code {code}; what it said stands above")
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise WorkFailed(f"{self.name}: the GLiNER process says what is no answer: {quote(line.strip(), 80)}")
        if "refused" in reply:
            raise DanseoError(f"GLiNER checkpoint {self.name}: {reply['refused']}")
        if "error" in reply:
            raise WorkFailed(f"{self.name}: the GLiNER process says {reply['error']}")
        return reply


def _end(process: "subprocess.Popen[str]") -> None:
    """End the process; it stops by itself when its input closes."""
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def merge_neighbors(spans: Sequence[EntitySpan], text: str) -> list[EntitySpan]:
    """Merge adjacent spans of one type: NuNER Zero labels the words of an entity one by one."""
    joined: list[EntitySpan] = []
    for span in sorted(spans, key=lambda span: (span.type, span.start)):
        last = joined[-1] if joined else None
        if last and last.type == span.type and span.start >= last.start and not text[last.end : span.start].strip():
            joined[-1] = last._replace(end=max(last.end, span.end), score=min(last.score, span.score))
        else:
            joined.append(span)
    return sorted(joined)


def labels_single_words(name: str) -> bool:
    """Return whether a checkpoint is a NuNER Zero, whose adjacent spans belong together."""
    short = name.lower().replace("_", "-")
    return "nuner-zero" in short and "span" not in short
