"""The network of a run: a pretrained body with the head of a kind, loaded and saved without pickles."""

import logging
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from danseo.config import RunConfig
from danseo.errors import DanseoError, NetworkError
from danseo.hub import WAYS, from_hub, pretrained
from danseo.models.encoder.adapters import (
    AddedRows,
    add_adapters,
    body_name,
    body_of,
    check_settings,
    load_adapters,
    save_adapters,
    stays,
)
from danseo.models.encoder.decoder import Masks, check_body, frame_inputs, is_decoder, masks_for
from danseo.models.encoder.facts import above_embeddings
from danseo.models.encoder.heads import Normed
from danseo.models.encoder.kind import Kind, batch_of
from danseo.models.encoder.last_layer import last_layer
from danseo.models.encoder.pieces import Pieces
from danseo.models.weights import check_finite, check_new, check_whole, refuse_missing
from danseo.runs.directory import Run, read_tensors
from danseo.training.features import Features
from danseo.training.network import TrainableNetwork, tensors
from danseo.training.speed import keeps_half, recorded_mode

HEAD_WEIGHTS = "head.safetensors"


class Network(TrainableNetwork):
    """Batch in, outputs out; a stock model brings its own head."""

    def __init__(self, model: Any, head: nn.Module | None, *, reads_first: bool = False) -> None:
        super().__init__()
        self.model, self.head = model, head
        self.reads_first = reads_first  # the stock head looks at the first piece only
        self.masks: Masks | None = None  # of a language model, which sees as far as these let it
        self.rows: AddedRows | None = None
        self.base: str | None = None  # where the body's weights are, when they stay as they were
        # Segment ids only where the encoder has a table for them: RoBERTa's has one row, and id 1 is out of range.
        self.uses_segments = getattr(model.config, "type_vocab_size", 0) > 1

    @property
    def takes_flash(self) -> bool:
        """ModernBERT: the others gain little, and masks of language models are more than lengths."""
        return self.masks is None and bool(self.model.config.model_type == "modernbert")

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        mask = batch["attention_mask"]
        inputs = {"input_ids": batch["input_ids"], "attention_mask": self.masks(mask) if self.masks else mask}
        if self.uses_segments:
            inputs["token_type_ids"] = batch["segments"]
        if self.reads_first:
            with last_layer(self.model).at(torch.zeros_like(inputs["input_ids"][:, :1])):
                outputs = self.model(**inputs)
        else:
            outputs = self.model(**inputs)
        if self.head is None:
            return {key: value for key, value in outputs.items() if isinstance(value, Tensor)}
        pooled = getattr(outputs, "pooler_output", None)
        extra = {} if pooled is None else {"pooled": pooled}
        made: dict[str, Tensor] = self.head(outputs.last_hidden_state, {**batch, **extra})
        return made

    def collate(self, features: list[Features], kind: Any, with_gold: bool) -> dict[str, Tensor]:
        """Features as padded tensors."""
        return tensors(batch_of(features, kind, with_gold, with_segments=self.uses_segments))


def quiet_transformers() -> Any:
    """The library without its reports of loading, its progress bars and the Hub's tale of every retry."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for library in ("transformers", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.ERROR)
    return transformers


def load_pieces(config: RunConfig, special_tokens: tuple[str, ...] = (), source: Path | None = None) -> Pieces:
    """The tokenizer of a checkpoint, with the special pieces of the kind added."""
    transformers = quiet_transformers()
    name, options = pretrained(str(source or config.model))
    options |= {"trust_remote_code": config.trust_remote_code}
    try:
        encoder_config = from_hub(name, lambda: transformers.AutoConfig.from_pretrained(name, **options))
        make = transformers.AutoTokenizer.from_pretrained
        tokenizer = from_hub(name, lambda: make(name, use_fast=True, **options))
    except Exception as error:  # the library raises many kinds for the same few causes
        raise loading_error(name, error) from None
    if len(tokenizer) <= 10 < encoder_config.vocab_size:
        raise DanseoError(
            f"{name}: its tokenizer has only {len(tokenizer)} pieces; are vocab.txt or tokenizer.json there?"
        )
    if special_tokens:
        tokenizer.add_special_tokens({"additional_special_tokens": list(special_tokens)})
    if is_decoder(encoder_config):
        frame_inputs(tokenizer)
    if tokenizer.pad_token_id is None:
        raise DanseoError(f"{name}: its tokenizer has no padding piece, so it is no encoder danseo can train")
    return Pieces(tokenizer, usable_positions(encoder_config))


def load_encoder_config(model: str, trust_remote_code: bool = False) -> Any:
    """The configuration of a checkpoint."""
    name, options = pretrained(model)
    make = quiet_transformers().AutoConfig.from_pretrained
    try:
        return from_hub(name, lambda: make(name, trust_remote_code=trust_remote_code, **options))
    except Exception as error:  # as above
        raise loading_error(name, error) from None


def usable_positions(encoder_config: Any) -> int:
    """How many pieces an encoder takes; RoBERTa's positions start behind its padding id."""
    positions: int = getattr(encoder_config, "max_position_embeddings", 0) or 512
    if encoder_config.model_type in ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"):
        positions -= (encoder_config.pad_token_id or 0) + 1
    return positions


def load_network(
    config: RunConfig, kind: Kind, source: Path | None = None, device: torch.device | None = None
) -> Network:
    """The network with pretrained weights; parts that are new are drawn from torch's generator."""
    body_config = load_encoder_config(str(source or config.model), config.trust_remote_code)
    if is_decoder(body_config):
        check_body(config.model, body_config)
        return _load_decoder(config, kind, source, device)
    if config.train.lora or config.head.attention == "causal":
        setting = "train.lora" if config.train.lora else "head.attention=causal"
        raise DanseoError(f"{config.model} is an encoder; {setting} is for decoder-only language models: leave it out")
    extra = kind.head_options() if kind.head else {} if kind.pools else without_pooler(body_config)
    model = _load_body(config, str(source or config.model), kind.head or "AutoModel", is_whole=bool(source), **extra)
    _fit_vocabulary(model, kind.pieces, source)
    if not source:
        kind.start_rows(model.get_input_embeddings().weight)
    head = None if kind.head else kind.build_head(model)
    network = Network(model, head, reads_first=kind.head == "AutoModelForSequenceClassification")
    if source and head is not None:
        load_head(head, source / HEAD_WEIGHTS)
    return network


def _load_body(config: RunConfig, location: str, auto: str, *, is_whole: bool, **extra: Any) -> Any:
    """A model of the library with the weights of a checkpoint, by the class that finds its own."""
    name, options = pretrained(location)
    options |= {"trust_remote_code": config.trust_remote_code, "dtype": torch.float32, **extra}
    options |= {"use_safetensors": True, "output_loading_info": True}
    make = getattr(quiet_transformers(), auto).from_pretrained
    try:
        model, report = from_hub(name, lambda: make(name, **options))
    except Exception as error:  # as above
        raise loading_error(name, error) from None
    (check_whole if is_whole else check_new)(name, model, report)
    for weights in model.parameters():
        weights.data = weights.data.clone()  # from wherever they lie in the file, on which the last bits would depend
    return model


def _load_decoder(config: RunConfig, kind: Kind, source: Path | None, device: torch.device | None) -> Network:
    """A language model's body under a head of our own; what of it learns, the settings say."""
    if config.head.architecture == "official":
        raise DanseoError(f"{config.model}: KLUE's own heads are for encoders; use head.architecture=default")
    check_settings(config.train)
    is_frozen, is_half = stays(config.train), computes_half(config, source, device)
    location = body_of(source) if source else config.model
    model = _load_body(config, location, "AutoModel", is_whole=True, dtype=torch.bfloat16 if is_half else torch.float32)
    model.config.use_cache = False
    old = model.get_input_embeddings().weight.shape[0]
    _fit_vocabulary(model, kind.pieces)
    if not source:
        kind.start_rows(model.get_input_embeddings().weight)
    network = Network(model, Normed(model.config.hidden_size, kind.build_head(model)))
    network.masks = masks_for(config.model, model, config.head.attention)
    if is_frozen:
        network.base, network.keeps_frozen = body_name(config), False
        model.requires_grad_(False)
        if len(kind.pieces.tokenizer) > old:
            network.rows = AddedRows(model.get_input_embeddings(), old)
        if config.train.lora:
            add_adapters(model, config.train)
        if source:
            load_adapters(model, network.rows, source)
    if source and network.head is not None:
        load_head(network.head, source / HEAD_WEIGHTS)
    return network


def computes_half(config: RunConfig, source: Path | None, device: torch.device | None) -> bool:
    """Whether weights that do not learn lie in bfloat16: where a language model computes in it anyway.

    One that was saved lies as it did when it learned.
    """
    if not stays(config.train) or config.train.precision not in ("auto", "bf16"):
        return False
    if config.train.precision == "bf16" or device is None:
        return config.train.precision == "bf16"
    kept = recorded_mode(Run(source.parent), config.train, device) if source else None
    if kept:
        return kept.precision == "bf16"
    body = load_encoder_config(body_of(source) if source else config.model, config.trust_remote_code)
    return keeps_half(above_embeddings(vars(body)), device)


def load_head(head: nn.Module, path: Path) -> None:
    """The saved weights of a head of our own, all of them."""
    tensors = read_tensors(path)
    try:
        found = head.load_state_dict(tensors, strict=False)
    except RuntimeError as error:  # other shapes
        raise DanseoError(
            f"{path} is damaged: {shorten(' '.join(str(error).split()), 200, placeholder=' …')}"
        ) from None
    refuse_missing(str(path), found.missing_keys, {"unexpected_keys": found.unexpected_keys})
    check_finite(str(path), head)


def without_pooler(encoder_config: Any) -> dict[str, Any]:
    """The option that leaves out the pooling layer, where the family has one."""
    takes = encoder_config.model_type in ("bert", "roberta", "xlm-roberta", "camembert")
    return {"add_pooling_layer": False} if takes else {}


def _fit_vocabulary(model: Any, pieces: Pieces, source: Path | None = None) -> None:
    """Rows for added pieces. The padding id of the configuration stays: RoBERTa counts its positions from it."""
    size, rows = len(pieces.tokenizer), model.get_input_embeddings().weight.shape[0]
    if size > rows and source:
        raise DanseoError(f"{source} is damaged: its tokenizer has {size} pieces, its embeddings {rows} rows")
    if size > rows:
        model.resize_token_embeddings(size, mean_resizing=False)


def loading_error(name: str, error: Exception) -> DanseoError:
    """One line for whatever the library said."""
    if isinstance(error, NetworkError):
        return error
    text = " ".join(str(error).split())
    if ("safetensors" in text and "pytorch_model.bin" in text) or "no file named model.safetensors" in text:
        return DanseoError(
            f"{name} has no safetensors weights; danseo loads no pickles: "
            f"turn them with `danseo export {name} --to safetensors`"
        )
    if "trust_remote_code" in text:
        return DanseoError(f"{name} wants to run code of its own; allow it with --trust-remote-code")
    if not Path(name).exists() and any(word in text for word in ("connect", "offline", "cached")):
        return NetworkError(f"model {name}: the cache of the Hub does not hold all of it, and the Hub is away; {WAYS}")
    what = "is not a checkpoint folder" if Path(name).exists() else "could not be loaded from the Hub"
    return DanseoError(f"model {name} {what}: {shorten(text, 200, placeholder=' …')}")


def save_network(network: Network, kind: Kind, folder: Path) -> None:
    """The model so that AutoModel….from_pretrained loads it, and beside it a head of our own."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    if network.base is None:
        network.model.save_pretrained(folder, safe_serialization=True)
    else:
        save_adapters(network.model, network.rows, network.base, folder)
    kind.pieces.tokenizer.save_pretrained(folder)
    if network.head is not None:
        state = {key: value.detach().cpu().contiguous().clone() for key, value in head_state(network).items()}
        save_file(state, folder / HEAD_WEIGHTS)


def head_state(network: Network) -> dict[str, Tensor]:
    """The head's own weights, without those it shares with the body."""
    assert network.head is not None
    return dict(network.head.state_dict())
