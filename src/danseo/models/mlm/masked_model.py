"""A masked language model that predicts gaps: loading, checks, and batches of similar length."""

import hashlib
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from danseo.errors import DanseoError
from danseo.hub import find_model_folder, resolve_model

if TYPE_CHECKING:
    from torch import Tensor

OWN = "own"
"""The default attention of the architecture."""
TOKENS = {"cpu": 1024, "cuda": 32768}  # tokens in a batch, padding included


class MaskedModel:
    """A model and its tokenizer for filling gaps; `load` takes a folder or a Hub id."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        device: str | None = None,
        precision: str = "fp32",
        name: str = "model",
        batch_tokens: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        import torch

        check_masked_pair(model, tokenizer, name)
        self.model, self.tokenizer, self.name = model, tokenizer, name
        self.device = torch.device(device) if device else next(model.parameters()).device
        self.precision = precision
        self.batch_tokens = batch_tokens or TOKENS.get(self.device.type, 4096)
        self.batch_size = batch_size or sys.maxsize
        self.on_note: Callable[[str], None] = lambda line: None
        model.to(self.device)

    @classmethod
    def load(
        cls,
        source: str,
        device: str | None = None,
        precision: str = "auto",
        attention: str = OWN,
        trust_remote_code: bool = False,
        batch_size: int | None = None,
    ) -> "MaskedModel":
        """Load the model of a checkpoint folder or Hub id with its own head."""
        from danseo.models.encoder.network import Network
        from danseo.training.precision import PACKED

        model, tokenizer, new = load_masked_pair(source, trust_remote_code)
        if new:
            raise DanseoError(
                f"{source} has no masked-language-model head (without weights: {new[0]}); probe one that has"
            )
        with suppress(ValueError, ImportError):  # a family without it computes in its own way
            Network(model, None).use_attention(PACKED if attention == OWN else attention)
        chosen = choose_device(device)
        if precision == "int8":
            from danseo.training.precision import quantize_to_int8

            quantize_to_int8(model, chosen)
        else:
            precision = choose_precision(model, str(chosen), precision)
        return cls(model, tokenizer, str(chosen), precision, name=source, batch_size=batch_size)

    def compute_gap_logits(
        self, inputs: Sequence[Sequence[int]], positions: Sequence[int], on_done: Callable[[int], None] = lambda n: None
    ) -> Iterator[tuple[list[int], "Tensor"]]:
        """Yield (indices, vocabulary logits) at one position of each input, batch by batch.

        A batch that does not fit into memory is halved, and so are the following ones.
        """
        import torch

        from danseo.models.encoder.packed_texts import is_packed
        from danseo.training.features import make_token_batches

        lengths = [len(ids) for ids in inputs]
        was_training = self.model.training
        self.model.eval()
        try:
            batches = make_token_batches(range(len(inputs)), lengths, self.batch_tokens, packed=is_packed(self.model))
            waiting = deque(list(part) for part in batches)
            while waiting:
                part = waiting.popleft()
                if rest := part[self.batch_size :]:
                    waiting.appendleft(rest)
                    part = part[: self.batch_size]
                rows = None
                with suppress(torch.OutOfMemoryError), torch.inference_mode():
                    rows = self._forward([inputs[k] for k in part], [positions[k] for k in part])
                if rows is None:
                    self._halve_batch(part, max(lengths[k] for k in part))
                    waiting.appendleft(part)
                    continue
                yield part, rows
                on_done(len(part))
        finally:
            self.model.train(was_training)

    def _halve_batch(self, part: Sequence[int], length: int) -> None:
        """Halve the batch size after the device ran out of memory; one window alone cannot be halved."""
        import torch

        if len(part) == 1:
            raise DanseoError(f"{self.name}: out of memory with one window of {length} tokens; lower --seq-len")
        self.batch_size = len(part) // 2
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.on_note(f"out of memory with a batch of {len(part)}: the batch size is now {self.batch_size}")

    def _forward(self, inputs: list[Sequence[int]], positions: list[int]) -> "Tensor":
        import torch

        from danseo.models.encoder.packed_forward import states_at
        from danseo.models.encoder.packed_texts import PackedTexts
        from danseo.models.mlm.objective import vocabulary_logits
        from danseo.training.precision import ComputeConfig

        ids = torch.tensor([id for row in inputs for id in row], device=self.device)
        texts = PackedTexts.of([len(row) for row in inputs]).to(self.device)
        gaps = texts.starts + torch.tensor(positions, device=self.device)
        with ComputeConfig(self.precision, "").autocast(self.device):
            states = states_at(self.model, ids, texts, gaps, [1] * len(inputs))
            return vocabulary_logits(self.model, states).float()


def check_masked_pair(model: Any, tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer without mask token, or one that does not match the model."""
    if tokenizer.mask_token_id is None:
        raise DanseoError(f"{name}: its tokenizer has no mask token, so it cannot fill gaps; choose another checkpoint")
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise DanseoError(
            f"{name}: its tokenizer has {len(tokenizer)} tokens and the model only {rows}; "
            "they are not of one checkpoint"
        )
    if len(tokenizer) < rows // 2:
        raise DanseoError(
            f"{name}: its tokenizer has {len(tokenizer)} tokens for a vocabulary of {rows}; "
            "are vocab.txt or tokenizer.json there?"
        )


def load_masked_pair(source: str, trust_remote_code: bool = False) -> tuple[Any, Any, list[str]]:
    """Load a masked language model and its tokenizer; return also the names of missing head weights."""
    name, _ = resolve_model(source)
    from danseo.models.checkpoint import check_new, load_tokenizer, load_weights
    from danseo.models.encoder.network import load_encoder_config, loading_error

    _check_masked_config(load_encoder_config(source, trust_remote_code), name)
    try:
        tokenizer = load_tokenizer(source, trust_remote_code, use_fast=True)
        model, report = load_weights("AutoModelForMaskedLM", source, trust_remote_code, dtype="float32")
    except Exception as error:  # the library raises many kinds for the same few causes
        raise loading_error(name, error) from None
    return model, tokenizer, check_new(name, model, report, head="masked")


def _check_masked_config(config: Any, name: str) -> None:
    """Raise an error if transformers has no masked language model for a configuration."""
    architectures = getattr(config, "architectures", None) or [""]
    if any(word in architectures[0] for word in ("CausalLM", "LMHeadModel")) or getattr(config, "is_decoder", False):
        raise DanseoError(f"{name} is a causal language model ({architectures[0]}); choose a masked one")
    import transformers

    if type(config) not in transformers.MODEL_FOR_MASKED_LM_MAPPING:
        raise DanseoError(f"{name}: {config.model_type} has no masked language model in transformers; choose another")


def choose_device(device: str | None) -> Any:
    """Return the named device, or the fastest available one."""
    from danseo.training.distributed import Workers

    return Workers(device).device


def choose_precision(model: Any, device: str, precision: str) -> str:
    """Return the precision of a model; `auto` goes by the device and the size of the model."""
    import torch

    from danseo.models.encoder.network import Network
    from danseo.training.precision import count_body_weights, select_precision

    return select_precision(precision, torch.device(device), count_body_weights(Network(model, None)))


def weights_hash(source: str, trust_remote_code: bool = False) -> str:
    """Return a 16-digit hash of a checkpoint's weights and configuration; a Hub id counts with its revision."""
    folder = find_model_folder(source)
    if not folder:
        from danseo.models.encoder.network import load_encoder_config

        revision = getattr(load_encoder_config(source, trust_remote_code), "_commit_hash", None)
        return hashlib.sha256(f"{source} {revision}".encode()).hexdigest()[:16]
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        with path.open("rb") as file:
            digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries."""
    from importlib.metadata import version

    return {"python": sys.version.split()[0], **{name: version(name) for name in ("torch", "transformers")}}
