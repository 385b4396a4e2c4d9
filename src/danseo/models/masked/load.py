"""A masked language model that is asked only at its gaps: loaded, checked, and run in batches of similar length."""

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from danseo.errors import DanseoError
from danseo.hub import folder_of, from_hub, pretrained

if TYPE_CHECKING:
    from torch import Tensor

OWN = "own"
"""The attention that the library chooses for the family."""
TOKENS = {"cpu": 1024, "cuda": 32768}  # pieces in a batch, padding included


class MaskedModel:
    """A model and its tokenizer, ready to fill gaps; takes live objects, `load` takes a folder or a Hub id."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        device: str | None = None,
        precision: str = "fp32",
        name: str = "model",
        batch_tokens: int | None = None,
    ) -> None:
        import torch

        check_pair(model, tokenizer, name)
        self.model, self.tokenizer, self.name = model, tokenizer, name
        self.device = torch.device(device) if device else next(model.parameters()).device
        self.precision = precision
        self.batch_tokens = batch_tokens or TOKENS.get(self.device.type, 4096)
        model.to(self.device)

    @classmethod
    def load(
        cls,
        source: str,
        device: str | None = None,
        precision: str = "auto",
        on_note: Callable[[str], None] = lambda line: None,
        attention: str = OWN,
        trust_remote_code: bool = False,
    ) -> "MaskedModel":
        """The model of a checkpoint folder or Hub id, from safetensors, with its own head."""
        model, tokenizer, new = load_pair(source, trust_remote_code)
        if new:
            raise DanseoError(
                f"{source} has no masked-language-model head (without weights: {new[0]}); probe one that has"
            )
        if attention != OWN:
            with suppress(ValueError, ImportError):  # a family without it computes in its own way
                model.set_attn_implementation(attention)
        where = str(usable_device(device))
        if precision == "int8":
            from danseo.models.encoder.int8 import to_bytes

            to_bytes(model, usable_device(device))
            return cls(model, tokenizer, where, precision, name=source)
        return cls(model, tokenizer, where, usable_precision(model, where, precision, on_note), name=source)

    def gap_logits(
        self, inputs: Sequence[Sequence[int]], positions: Sequence[int], on_done: Callable[[int], None] = lambda n: None
    ) -> Iterator[tuple[list[int], "Tensor"]]:
        """The scores of the whole vocabulary at one place of each input: (indices, one row each), a batch at a time."""
        import torch

        from danseo.training.batching import packed

        lengths = [len(ids) for ids in inputs]
        was_training = self.model.training
        self.model.eval()
        try:
            for part in packed(range(len(inputs)), lengths, self.batch_tokens):
                with torch.inference_mode():
                    rows = self._forward([inputs[k] for k in part], [positions[k] for k in part])
                yield part, rows
                on_done(len(part))
        finally:
            self.model.train(was_training)

    def _forward(self, inputs: list[Sequence[int]], positions: list[int]) -> "Tensor":
        import torch

        from danseo.models.masked.head import states_at, vocabulary_logits
        from danseo.training.speed import ComputeMode

        width, pad = max(map(len, inputs)), self.tokenizer.pad_token_id or 0
        ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in inputs], device=self.device)
        lengths = torch.tensor([len(row) for row in inputs], device=self.device)
        mask = (torch.arange(width, device=self.device)[None] < lengths[:, None]).long()
        gaps = torch.tensor(positions, device=self.device).unsqueeze(-1)
        with ComputeMode(self.precision, "").autocast(self.device):
            states = states_at(self.model, gaps, ids, mask)
            return vocabulary_logits(self.model, states[:, 0]).float()


def check_pair(model: Any, tokenizer: Any, name: str) -> None:
    """Refuse what cannot fill a gap."""
    if tokenizer.mask_token_id is None:
        raise DanseoError(f"{name}: its tokenizer has no mask token, so there is nothing to fill a gap with")
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise DanseoError(
            f"{name}: its tokenizer has {len(tokenizer)} pieces and the model only {rows}; "
            "they are not of one checkpoint"
        )
    if len(tokenizer) < rows // 2:
        raise DanseoError(
            f"{name}: its tokenizer has {len(tokenizer)} pieces for a vocabulary of {rows}; "
            "are vocab.txt or tokenizer.json there?"
        )


def load_pair(source: str, trust_remote_code: bool = False) -> tuple[Any, Any, list[str]]:
    """A masked language model, its tokenizer, and the weights of a head that the checkpoint does not have."""
    name, options = pretrained(source)
    from danseo.models.encoder.network import load_encoder_config, loading_error, quiet_transformers
    from danseo.models.weights import check_new

    transformers = quiet_transformers()
    pieces = transformers.AutoTokenizer
    check_masked(load_encoder_config(source, trust_remote_code), name)
    options |= {"trust_remote_code": trust_remote_code}
    try:
        tokenizer = from_hub(name, lambda: pieces.from_pretrained(name, use_fast=True, **options))
        options |= {"use_safetensors": True, "dtype": "float32", "output_loading_info": True}
        model, report = from_hub(name, lambda: transformers.AutoModelForMaskedLM.from_pretrained(name, **options))
    except Exception as error:  # the library raises many kinds for the same few causes
        raise loading_error(name, error) from None
    return model, tokenizer, check_new(name, model, report, head="masked")


def check_masked(config: Any, name: str) -> None:
    made_for = getattr(config, "architectures", None) or [""]
    if any(word in made_for[0] for word in ("CausalLM", "LMHeadModel")) or getattr(config, "is_decoder", False):
        raise DanseoError(f"{name} is a causal language model ({made_for[0]}); a masked one is needed")
    import transformers

    if type(config) not in transformers.MODEL_FOR_MASKED_LM_MAPPING:
        raise DanseoError(f"{name}: {config.model_type} has no masked language model in transformers")


def usable_device(device: str | None) -> Any:
    """The device of this name, or the best there is."""
    from danseo.training.workers import Workers

    return Workers(device).device


def usable_precision(model: Any, device: str, precision: str, on_note: Callable[[str], None]) -> str:
    """fp32 or bf16; auto takes the faster one of those that work here."""
    import torch

    from danseo.config import TrainConfig
    from danseo.data.find import cache_root
    from danseo.models.encoder.network import Network
    from danseo.training.speed import choose_mode

    model.to(device)
    config = TrainConfig(precision=precision, attention=model.config._attn_implementation)  # type: ignore[arg-type]
    memory = cache_root() / "measured.json"
    return choose_mode(Network(model, None), config, torch.device(device), memory, on_note=on_note).precision


def weights_hash(source: str, trust_remote_code: bool = False) -> str:
    """Sixteen hex digits of a checkpoint's weights and configuration; a Hub id counts with its revision."""
    folder = folder_of(source)
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
    """What computed, for the record."""
    from importlib.metadata import version

    return {"python": sys.version.split()[0], **{name: version(name) for name in ("torch", "transformers")}}
