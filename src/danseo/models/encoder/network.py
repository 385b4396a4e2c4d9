"""The network of a run: a pretrained body with a head, loaded and saved without pickles."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from danseo.config.run import RunConfig
from danseo.errors import DanseoError, NetworkError
from danseo.files import quote
from danseo.hub import OFFLINE_HINT, find_model_folder
from danseo.models.checkpoint import (
    check_new,
    check_whole,
    load_config,
    load_tokenizer,
    load_weights,
    quiet_transformers,
    refuse_missing,
    refuse_nonfinite,
)
from danseo.models.encoder.decoder_only import Masks, check_body, frame_inputs, is_decoder, masks_for
from danseo.models.encoder.entity_positions import EntityPositions
from danseo.models.encoder.heads import get_head_class
from danseo.models.encoder.heads.base import TaskHead, make_batch
from danseo.models.encoder.heads.pooling import NormalizedHead
from danseo.models.encoder.lora import (
    AddedRows,
    add_adapters,
    check_settings,
    get_body_name,
    is_body_frozen,
    load_adapters,
    locate_body,
    save_adapters,
)
from danseo.models.encoder.model_info import above_embeddings, usable_positions
from danseo.models.encoder.packed_forward import classify_texts, make_row, run_model
from danseo.models.encoder.packed_texts import PackedTexts, PaddedTexts, is_packed, reads_packed, use_cpu_dropout
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.models.remote_code import CodeRefused
from danseo.runs.store import Run, read_tensors
from danseo.tasktypes.base import Task
from danseo.training.features import Features
from danseo.training.network import TrainableNetwork, to_tensors
from danseo.training.optimizers import freeze
from danseo.training.precision import FLASH, PACKED, read_compute_config, stores_bf16

HEAD_WEIGHTS, POSITION_WEIGHTS = "head.safetensors", "entity_positions.safetensors"


class Network(TrainableNetwork):
    """A body with a head; a stock class of transformers has its own head.

    It reads the tokens of a batch as one row, or padded where the body cannot. Heads read the states of the row.
    """

    def __init__(self, model: Any, head: nn.Module | None) -> None:
        super().__init__()
        self.model, self.head = model, head
        use_cpu_dropout(model)
        self.classifies = head is None and type(model).__name__.endswith("ForSequenceClassification")
        self.masks: Masks | None = None  # of a language model, which sees as far as these let it
        self.sees_ahead: bool | None = None  # a language model whose direction is set
        self.rows: AddedRows | None = None
        self.entity_positions: EntityPositions | None = None
        self.base: str | None = None  # where the body's weights are, when they stay as they were
        # Segment ids only where the encoder has a table for them: RoBERTa's has one row, and id 1 is out of range.
        self.uses_segments = getattr(model.config, "type_vocab_size", 0) > 1
        self._reads_packed: bool | None = None

    @property
    def is_packed(self) -> bool:
        return is_packed(self.model)

    def use_attention(self, name: str) -> None:
        """Switch to an attention; raise ValueError if the body cannot read packed texts with it."""
        if name == PACKED and self._reads_packed is None:
            self._reads_packed = reads_packed(self.model, lambda ids, texts: self._run(ids, texts)[0])
        if (name == PACKED and not self._reads_packed) or (name == FLASH and self.sees_ahead):
            raise ValueError(f"no {name} attention")
        super().use_attention(name)

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        texts = batch["texts"] if "texts" in batch else PaddedTexts(batch["attention_mask"])
        with self._add_entity_positions(batch, texts):
            states, made = self._run(batch["input_ids"], texts, batch.get("segments"))
        if self.head is None:
            return {key: value for key, value in made.items() if isinstance(value, Tensor)}
        inputs = {**batch, "texts": texts}
        if getattr(self.head, "reads_pooler", False):
            inputs["pooled"] = self.model.pooler(states.index_select(0, texts.starts).unsqueeze(1))
        outputs: dict[str, Tensor] = self.head(states, inputs)
        return outputs

    def _add_entity_positions(
        self, batch: dict[str, Any], texts: PackedTexts | PaddedTexts
    ) -> AbstractContextManager[None]:
        if self.entity_positions is None:
            return nullcontext()
        return self.entity_positions.at(batch["entities"], texts, is_packed=self.is_packed)

    def _run(
        self, ids: Tensor, texts: PackedTexts | PaddedTexts, segments: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return the states of all tokens (of a stock head its logits), and the outputs of a stock head."""
        segments = segments if self.uses_segments else None
        if self.classifies:
            logits = classify_texts(self.model, ids, texts, segments)
            return logits, {"logits": logits}
        if self.head is None:
            made = {k: v for k, v in run_model(self.model, ids, texts, segments).items() if isinstance(v, Tensor)}
            return next(iter(made.values())), made
        return run_model(self.model, ids, texts, segments, self.masks, self.sees_ahead)["last_hidden_state"], {}

    def collate(self, features: list[Features], task_head: Any, with_gold: bool) -> dict[str, Any]:
        """Return features as a row of tokens."""
        return make_row(features, self.uses_segments) | to_tensors(task_head.collate(features, with_gold))


def make_padded_batch(network: Network, task_head: TaskHead, features: Sequence[Features]) -> dict[str, Tensor]:
    """Return features as padded tensors, for networks that are traced."""
    return to_tensors(make_batch(features, task_head, False, with_segments=network.uses_segments))


def load_encoder_tokenizer(
    config: RunConfig, special_tokens: tuple[str, ...] = (), source: Path | None = None
) -> EncoderTokenizer:
    """Load the tokenizer of a checkpoint and add special tokens."""
    name = str(source or config.model)
    encoder_config = load_encoder_config(name, config.trust_remote_code)
    try:
        tokenizer = load_tokenizer(name, config.trust_remote_code, use_fast=True)
    except Exception as error:  # the library raises many kinds for the same few causes
        raise loading_error(name, error) from None
    if len(tokenizer) <= 10 < encoder_config.vocab_size:
        raise DanseoError(
            f"{name}: its tokenizer has only {len(tokenizer)} tokens; are vocab.txt or tokenizer.json there?"
        )
    templates = (
        tokenizer.chat_template if isinstance(tokenizer.chat_template, dict) else {"": tokenizer.chat_template or ""}
    )
    if not all(isinstance(text, str) for text in templates.values()):
        raise DanseoError(f"{name}: the chat template of its tokenizer is no text; correct tokenizer_config.json")
    if special_tokens:
        tokenizer.add_special_tokens({"additional_special_tokens": list(special_tokens)})
    if is_decoder(encoder_config):
        frame_inputs(tokenizer)
    if tokenizer.pad_token_id is None:
        raise DanseoError(f"{name}: its tokenizer has no padding token, so it is no encoder danseo can train")
    return EncoderTokenizer(tokenizer, usable_positions(encoder_config))


def load_encoder_config(model: str, trust_remote_code: bool = False) -> Any:
    """Load the configuration of a checkpoint."""
    try:
        return load_config(model, trust_remote_code)
    except Exception as error:  # as above
        raise loading_error(model, error) from None


def load_network(
    config: RunConfig, task_head: TaskHead, source: Path | None = None, device: torch.device | None = None
) -> Network:
    """Load the network with pretrained weights; new parts are initialized by torch's generator."""
    body_config = load_encoder_config(str(source or config.model), config.trust_remote_code)
    if is_decoder(body_config):
        check_body(config.model, body_config)
        return _load_decoder(config, task_head, source, device)
    if config.encoder.lora_rank or config.encoder.attention_direction == "causal":
        setting = "encoder.lora_rank" if config.encoder.lora_rank else "encoder.attention_direction=causal"
        raise DanseoError(f"{config.model} is an encoder; {setting} is for decoder-only language models: leave it out")
    extra = (
        task_head.head_options()
        if task_head.auto_class
        else {}
        if task_head.uses_pooler
        else without_pooler(body_config)
    )
    model = _load_body(
        config, str(source or config.model), task_head.auto_class or "AutoModel", is_whole=bool(source), **extra
    )
    _fit_vocabulary(model, task_head.tokenizer, source)
    if not source:
        task_head.init_added_embeddings(model.get_input_embeddings().weight)
    head = None if task_head.auto_class else task_head.build_network_head(model)
    network = Network(model, head)
    network.entity_positions = task_head.build_entity_positions(model.get_input_embeddings())
    if source:
        load_own_weights(network, source)
    return network


def make_empty_network(config: RunConfig, task: Task, device: torch.device) -> Network:
    """Return the network of a training with weights that were never loaded; call it where tensors need no memory."""
    cls, name = get_head_class(task), config.model
    task_head = cls(
        task, load_encoder_tokenizer(config, cls.added_tokens(config.encoder)), config.encoder, config.train
    )
    body_config = load_config(
        name, config.trust_remote_code, **(task_head.head_options() if task_head.auto_class else {})
    )
    is_frozen, is_half = is_body_frozen(config), is_decoder(body_config) and computes_half(config, None, device)
    make = getattr(quiet_transformers(), task_head.auto_class or "AutoModel").from_config
    dtype = torch.bfloat16 if is_half else torch.float32
    extra = {} if task_head.auto_class or task_head.uses_pooler else without_pooler(body_config)
    model = make(body_config, trust_remote_code=config.trust_remote_code, dtype=dtype, **extra)
    model.config.use_cache = False
    if is_decoder(body_config) and is_frozen:
        model.requires_grad_(False)
        if config.encoder.lora_rank:
            add_adapters(model, config.encoder)
    network = Network(model, None if task_head.auto_class else task_head.build_network_head(model))
    freeze(network, config.train.freeze)
    return network


def _load_body(config: RunConfig, location: str, auto: str, *, is_whole: bool, **extra: Any) -> Any:
    """Load a model of transformers with the weights of a checkpoint."""
    try:
        model, report = load_weights(auto, location, config.trust_remote_code, **{"dtype": torch.float32, **extra})
    except Exception as error:  # as above
        raise loading_error(location, error) from None
    (check_whole if is_whole else check_new)(location, model, report)
    for weights in model.parameters():
        weights.data = weights.data.clone()  # from wherever they lie in the file, on which the last bits would depend
    return model


def _load_decoder(config: RunConfig, task_head: TaskHead, source: Path | None, device: torch.device | None) -> Network:
    """Load a language model's body with our head; the settings decide which weights train."""
    if config.encoder.architecture == "official":
        raise DanseoError(f"{config.model}: KLUE's own heads are for encoders; use encoder.architecture=default")
    check_settings(config.encoder, config.train)
    is_frozen, is_half = is_body_frozen(config), computes_half(config, source, device)
    location = locate_body(source) if source else config.model
    model = _load_body(config, location, "AutoModel", is_whole=True, dtype=torch.bfloat16 if is_half else torch.float32)
    model.config.use_cache = False
    old = model.get_input_embeddings().weight.shape[0]
    _fit_vocabulary(model, task_head.tokenizer)
    if not source:
        task_head.init_added_embeddings(model.get_input_embeddings().weight)
    network = Network(model, NormalizedHead(model.config.hidden_size, task_head.build_network_head(model)))
    network.entity_positions = task_head.build_entity_positions(model.get_input_embeddings())
    network.masks = masks_for(config.model, model, config.encoder.attention_direction)
    network.sees_ahead = config.encoder.attention_direction == "bidirectional"
    if is_frozen:
        network.base, network.keeps_frozen = get_body_name(config), False
        model.requires_grad_(False)
        if len(task_head.tokenizer.hf_tokenizer) > old:
            network.rows = AddedRows(model.get_input_embeddings(), old)
        if config.encoder.lora_rank:
            add_adapters(model, config.encoder)
        if source:
            load_adapters(model, network.rows, source)
    if source:
        load_own_weights(network, source)
    return network


def computes_half(config: RunConfig, source: Path | None, device: torch.device | None) -> bool:
    """Return whether frozen weights are loaded in bfloat16: if the language model computes in it.

    One that was saved lies as it did when it learned.
    """
    if not is_body_frozen(config) or config.train.precision not in ("auto", "bf16"):
        return False
    if config.train.precision == "bf16" or device is None:
        return config.train.precision == "bf16"
    kept = read_compute_config(Run(source.parent), config.train, device) if source else None
    if kept:
        return kept.precision == "bf16"
    body = load_encoder_config(locate_body(source) if source else config.model, config.trust_remote_code)
    return stores_bf16(above_embeddings(vars(body)), device)


def list_own_parts(network: Network) -> dict[str, nn.Module]:
    """Return the parts of the network that transformers does not save, by the names of their files."""
    parts = {HEAD_WEIGHTS: network.head, POSITION_WEIGHTS: network.entity_positions}
    return {name: part for name, part in parts.items() if part is not None}


def load_own_weights(network: Network, source: Path) -> None:
    """Load the weights of our parts of the network."""
    for name, part in list_own_parts(network).items():
        load_part(part, source / name)


def load_part(head: nn.Module, path: Path) -> None:
    """Load the weights of one part; refuse missing ones."""
    tensors = read_tensors(path)
    try:
        found = head.load_state_dict(tensors, strict=False)
    except RuntimeError as error:  # other shapes
        raise DanseoError(
            f"{path} is damaged: {shorten(' '.join(str(error).split()), 200, placeholder=' …')}"
        ) from None
    refuse_missing(str(path), found.missing_keys, {"unexpected_keys": found.unexpected_keys})
    refuse_nonfinite(path, head.named_parameters())


def without_pooler(encoder_config: Any) -> dict[str, Any]:
    """Return the option that leaves out the pooling layer, if the architecture has one."""
    takes = encoder_config.model_type in ("bert", "roberta", "xlm-roberta", "camembert")
    return {"add_pooling_layer": False} if takes else {}


def _fit_vocabulary(model: Any, tokenizer: EncoderTokenizer, source: Path | None = None) -> None:
    """Add embedding rows for added tokens; keep the padding id, which RoBERTa's positions depend on."""
    size, rows = len(tokenizer.hf_tokenizer), model.get_input_embeddings().weight.shape[0]
    if size > rows and source:
        raise DanseoError(f"{source} is damaged: its tokenizer has {size} tokens, its embeddings {rows} rows")
    if (highest := max(tokenizer.hf_tokenizer.get_vocab().values())) >= max(size, rows):
        raise DanseoError(
            f"{tokenizer.hf_tokenizer.name_or_path}: its tokenizer has a token {highest:,} of {rows:,}; get it again"
        )
    if size > rows:
        model.resize_token_embeddings(size, mean_resizing=False)


def loading_error(name: str, error: Exception) -> DanseoError:
    """Return a one-line error for an exception of the library."""
    if isinstance(error, DanseoError):
        return error
    text = " ".join(str(error).split())
    if ("safetensors" in text and "pytorch_model.bin" in text) or "no file named model.safetensors" in text:
        return DanseoError(
            f"{name} has no safetensors weights; danseo loads no pickles: "
            f"turn them with `danseo export {name} --to safetensors`"
        )
    if "trust_remote_code" in text or isinstance(error, CodeRefused):
        return DanseoError(f"model code is not allowed: {name}; allow it with --trust-remote-code")
    if not find_model_folder(name) and any(word in text for word in ("connect", "offline", "cached")):
        return NetworkError(
            f"model {name}: the cache of the Hub does not hold all of it, and the Hub is away; {OFFLINE_HINT}"
        )
    if not find_model_folder(name) and (broken := _find_network_error(error)):
        return NetworkError(f"model {name}: the download from the Hub failed: {quote(broken, 100)}; try again later")
    what = "is not a checkpoint folder" if find_model_folder(name) else "could not be loaded from the Hub"
    return DanseoError(f"model {name} {what}: {loading_reason(error)}")


def _find_network_error(error: BaseException | None) -> str:
    """Return the text of the error of the HTTP library behind an exception, or nothing."""
    while error is not None:
        if type(error).__module__.startswith("httpx"):
            return " ".join(str(error).split())
        error = error.__cause__ or error.__context__
    return ""


def loading_reason(error: Exception) -> str:
    """Return what the library raised, in a few words."""
    text = " ".join(str(error).split())
    if "ignore_mismatched_sizes" in text:
        return "its weights have other sizes than its config.json says"
    return shorten(f"unknown {text}" if isinstance(error, KeyError) else text, 200, placeholder=" …") or "no reason"


def save_network(network: Network, task_head: TaskHead, folder: Path) -> None:
    """Save the model for AutoModel….from_pretrained, and our head next to it."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    if network.base is None:
        network.model.save_pretrained(folder, safe_serialization=True)
    else:
        save_adapters(network.model, network.rows, network.base, folder)
    task_head.tokenizer.hf_tokenizer.save_pretrained(folder)
    for name, part in list_own_parts(network).items():
        state = {key: value.detach().cpu().contiguous().clone() for key, value in part.state_dict().items()}
        save_file(state, folder / name)
