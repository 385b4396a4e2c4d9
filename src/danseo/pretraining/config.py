"""Every setting of `danseo pretrain` and `danseo coref`, declared as those of a run are."""

from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal

from danseo.config import SEEDS, TrainConfig
from danseo.settings.declaring import later, later_section, setting
from danseo.training.settings import FitSettings

_LABELS = "evaluations monitor select_on halves example_weights augment fgm awp"
_OF_FITTING = {each.name for each in fields(FitSettings)} - set(_LABELS.split())
_WITHOUT = {"without": tuple(each.name for each in fields(TrainConfig) if each.name not in _OF_FITTING)}
"""What only labelled examples or another family have a use for."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model from scratch; a checkpoint brings its own measures."""

    family: Literal["bert", "roberta", "electra", "deberta-v2", "xlm-roberta", "modernbert"] = "modernbert"
    """The architecture."""
    layers: int = setting(4, above=0)
    """Layers of the encoder."""
    hidden: int = setting(256, above=0)
    """Width of the hidden states."""
    heads: int = setting(4, above=0)
    """Attention heads."""
    vocabulary: int = setting(16000, above=0)
    """Pieces of the tokenizer that is trained on the text."""
    pieces: Literal["word", "morpheme"] = later("word")
    """word: pieces are frequent parts of words; morpheme: of Kiwi's morphemes, so that none swallows a particle."""
    embeddings: Literal["random", "cooccurrence"] = later("random")
    """What the pieces start from: random rows, or rows by the company that each keeps in the text."""
    dropout: float = setting(0.0, most=1)
    """Dropout everywhere; text that is seen only once or twice needs none."""
    tokenizer_documents: int = setting(20000, above=0)
    """Documents that the tokenizer is trained on, taken evenly from the text."""


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How text becomes sequences."""

    seq_len: int = setting(256, above=0)
    """Longest sequence in pieces, special ones included; a checkpoint with fewer positions is extended."""
    pack: bool = True
    """Fill sequences with several short documents; none sees another, and positions begin anew with each."""
    held_out: float = setting(0.01, above=0, most=1)
    """Share of the documents, by a hash of their text, that is never trained on."""
    held_out_rows: int = setting(100, above=0)
    """Most held-out sequences that an evaluation reads."""


@dataclass(frozen=True, kw_only=True)
class MaskConfig:
    """Which pieces are to be guessed."""

    probability: float = setting(0.15, above=0, most=1)
    """Share of the pieces that are masked; with maximum, the share at length 0."""
    maximum: float | None = setting(None, most=1)
    """Share at full length; between them it grows with min(1, mean length of the batch / seq_len). None is fixed."""
    whole_words: Literal["none", "eojeol", "morpheme"] = "none"
    """Mask all pieces of an eojeol, or of a morpheme (by Kiwi), together."""


@dataclass(frozen=True, kw_only=True)
class RtdConfig:
    """The generator that replaces pieces, and how much telling them apart counts; only for objective = rtd."""

    generator_width: int = setting(64, above=0)
    """Width of the generator's hidden states; its pieces are those of the model, narrowed."""
    generator_layers: int = setting(2, above=0)
    """Layers of the generator."""
    weight: float = setting(50.0, above=0)
    """Weight of the detection loss per piece beside the generator's loss per gap."""


@dataclass(frozen=True, kw_only=True)
class SaveConfig:
    """When to evaluate and write checkpoint-<step>."""

    every_epochs: float = setting(0.5, above=0)
    """Epochs between two checkpoints; k intervals end at round(k * steps)."""
    every_steps: int = 0
    """Steps between two checkpoints instead."""
    checkpoints: int = 0
    """That many checkpoints, evenly over the whole training, instead."""


def _pretrain_defaults() -> TrainConfig:
    return TrainConfig(epochs=5, batch_size=32, learning_rate=1e-3, warmup=0.06, weight_decay=0.01, beta2=0.98)


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """One pre-training: the same settings on the same text give the same checkpoints."""

    checkpoint: str = ""
    """Hub id, id@revision or folder to go on from; empty starts from scratch."""
    objective: Literal["mlm", "rtd"] = later("mlm")
    """mlm: guess masked pieces; rtd: tell which pieces a small generator has replaced, and save no head."""
    seed: int = setting(42, bounds=SEEDS)
    """Seed of weights, order, masks and dropout."""
    steps: int = 0
    """Optimiser steps; 0 leaves it to minutes or train.epochs."""
    minutes: float = 0.0
    """Time for the training and its evaluations, turned into steps by measuring the first ones; 0 sets no limit."""
    trust_remote_code: bool = False
    """Run code that comes with the checkpoint."""
    model: ModelConfig = field(default_factory=ModelConfig)
    text: TextConfig = field(default_factory=TextConfig)
    mask: MaskConfig = field(default_factory=MaskConfig)
    rtd: RtdConfig = later_section(RtdConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    train: TrainConfig = field(default_factory=_pretrain_defaults, metadata=_WITHOUT)

    LISTED_BY: ClassVar[str] = "danseo pretrain --settings"


@dataclass(frozen=True, kw_only=True)
class MentionConfig:
    """Which mentions of an entity are to be recovered from an earlier one."""

    seq_len: int = 0
    """Longest sequence in pieces; 0 takes what the checkpoint was made for, up to 512."""
    tags: Literal["names", "nouns"] = "names"
    """names: proper nouns (NNP); nouns: common ones too."""
    mentions: int = setting(4, above=0)
    """The second to this mention of an entity give an item each."""
    nearest: int = 10
    """Fewest characters from the first mention to the one to recover."""
    farthest: int = setting(2000, above=0)
    """Most characters between them."""
    per_entity: int = setting(1000, above=0)
    """Most items of one entity in the whole text."""
    limit: int = 0
    """Most training items; 0 takes all."""
    held_out: float = setting(0.1, above=0, most=1)
    """Share of the documents, by a hash of their text, that is only evaluated on."""
    held_out_items: int = setting(500, above=0)
    """Most held-out items that an evaluation reads."""


def _coref_defaults() -> TrainConfig:
    return TrainConfig(epochs=5, batch_size=32, learning_rate=2e-5, warmup=0.1, weight_decay=0.01)


@dataclass(frozen=True, kw_only=True)
class CorefConfig:
    """One entity fine-tuning of a checkpoint."""

    checkpoint: str
    """Hub id, id@revision or folder of a masked language model."""
    seed: int = setting(42, bounds=SEEDS)
    """Seed of order, masks and dropout."""
    objective: Literal["target", "mlm", "both"] = "both"
    """target: only the pieces of the mention; mlm: only ordinary masks, the mention a gap that is not learned."""
    mlm_probability: float = setting(0.15, above=0, most=1)
    """Share of the other pieces that are masked in the ordinary way."""
    mlm_weight: float = 0.1
    """Weight of an ordinary mask in the loss; that of a piece of the mention is 1."""
    steps: int = 0
    """Optimiser steps; 0 leaves it to train.epochs."""
    trust_remote_code: bool = False
    """Run code that comes with the checkpoint."""
    mention: MentionConfig = field(default_factory=MentionConfig)
    train: TrainConfig = field(default_factory=_coref_defaults, metadata=_WITHOUT)

    LISTED_BY: ClassVar[str] = "danseo coref --settings"
