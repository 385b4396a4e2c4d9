"""All settings of `danseo pretrain` and `danseo coref`."""

from typing import ClassVar, Literal

from danseo.config.base import (
    Amount,
    Config,
    Count,
    PositiveAmount,
    PositiveCount,
    PositiveRatio,
    Ratio,
    Section,
    Seed,
    Text,
)
from danseo.config.train import OptimizationSettings


class ModelSettings(Section):
    """A model from scratch; a checkpoint has its own sizes."""

    architecture: Literal["bert", "roberta", "electra", "deberta-v2", "xlm-roberta", "modernbert"] = "modernbert"
    """The architecture, by the name that transformers has for it."""
    num_hidden_layers: PositiveCount = 4
    """Number of layers of the encoder."""
    hidden_size: PositiveCount = 256
    """Width of the hidden states."""
    num_attention_heads: PositiveCount = 4
    """Number of attention heads."""
    vocab_size: PositiveCount = 16000
    """Number of tokens of the tokenizer that is trained on the text."""
    tokenizer: Literal["word", "morpheme"] = "word"
    """word: tokens are frequent parts of words; morpheme: of Kiwi's morphemes, so that no token hides a particle."""
    embedding_init: Literal["random", "cooccurrence"] = "random"
    """Token embeddings at the start: random, or from co-occurrence counts in the text."""
    dropout: Ratio = 0.0
    """Dropout everywhere; text that is read only once or twice needs none."""
    tokenizer_documents: PositiveCount = 20000
    """Number of documents that the tokenizer is trained on, taken evenly from the text."""


class TextSettings(Section):
    """How text becomes sequences."""

    seq_len: PositiveCount = 256
    """Maximum sequence length in tokens, special tokens included; position embeddings are extended if needed."""
    packing: bool = True
    """Fill sequences with several short documents; attention and positions stay within each document."""
    held_out_ratio: PositiveRatio = 0.01
    """Ratio of the documents, by a hash of their text, that is never trained on."""
    max_held_out_sequences: PositiveCount = 100
    """Maximum number of held-out sequences in an evaluation."""


class MaskSettings(Section):
    """Which tokens are masked."""

    mlm_probability: PositiveRatio = 0.15
    """Ratio of the tokens that are masked; with max_probability, the ratio at length 0."""
    max_probability: Ratio | None = None
    """Ratio at full length; between them it grows with min(1, mean length of the batch / seq_len). none is fixed."""
    whole_word: Literal["none", "eojeol", "morpheme"] = "none"
    """Mask all tokens of an eojeol, or of a morpheme (by Kiwi), together."""


class RtdSettings(Section):
    """Replaced token detection; only for objective = rtd."""

    generator_hidden_size: PositiveCount = 64
    """Width of the generator's hidden states; its token embeddings are those of the model, projected."""
    generator_layers: PositiveCount = 2
    """Number of layers of the generator."""
    detection_weight: PositiveAmount = 50.0
    """Weight of the detection loss per token beside the generator's loss per masked token."""


class SaveSettings(Section):
    """When to evaluate and write checkpoint-<step>."""

    every_epochs: PositiveAmount = 0.5
    """Epochs between two checkpoints; the k-th ends at round(k * steps)."""
    every_steps: Count = 0
    """Steps between two checkpoints instead."""
    checkpoints: Count = 0
    """Number of checkpoints, evenly over the whole training, instead."""


class PretrainTrainSettings(OptimizationSettings):
    """Training of `danseo pretrain`."""

    epochs: PositiveAmount = 5.0
    """Number of passes over the text."""
    learning_rate: Amount = 1e-3
    """Peak learning rate, at the end of the warm-up."""
    warmup_ratio: Ratio = 0.06
    """Ratio of the steps in which the learning rate rises from 0."""
    adam_beta2: Ratio = 0.98
    """Decay of AdamW's average of squared gradients."""


class PretrainConfig(Config):
    """One pre-training: the same settings on the same text give the same checkpoints."""

    checkpoint: Text = ""
    """Hub id, id@revision or folder to continue from; empty starts from scratch."""
    objective: Literal["mlm", "rtd"] = "mlm"
    """mlm: predict masked tokens; rtd: detect the tokens that a small generator replaced, and save no head."""
    seed: Seed = 42
    """Seed of weights, order, masks and dropout."""
    steps: Count = 0
    """Number of optimiser steps; 0 leaves it to minutes or train.epochs."""
    minutes: Amount = 0.0
    """Time for training and evaluations, turned into steps by measuring the first ones; 0 sets no limit."""
    trust_remote_code: bool = False
    """Run code that comes with the checkpoint."""
    model: ModelSettings = ModelSettings()
    text: TextSettings = TextSettings()
    mask: MaskSettings = MaskSettings()
    rtd: RtdSettings = RtdSettings()
    save: SaveSettings = SaveSettings()
    train: PretrainTrainSettings = PretrainTrainSettings()

    LISTED_BY: ClassVar[str] = "danseo pretrain --settings"


class MentionSettings(Section):
    """Which mentions of an entity are to be recovered from an earlier one."""

    seq_len: Count = 0
    """Maximum sequence length in tokens; 0 takes what the checkpoint was made for, up to 512."""
    tags: Literal["names", "nouns"] = "names"
    """names: proper nouns (NNP); nouns: also common nouns."""
    max_mentions: PositiveCount = 4
    """The second to this mention of an entity give an item each."""
    min_distance: Count = 10
    """Minimum number of characters from the first mention to the one to recover."""
    max_distance: PositiveCount = 2000
    """Maximum number of characters between them."""
    max_per_entity: PositiveCount = 1000
    """Maximum number of items of one entity in the whole text."""
    max_train_items: Count = 0
    """Maximum number of training items; 0 takes all."""
    held_out_ratio: PositiveRatio = 0.1
    """Ratio of the documents, by a hash of their text, that is only evaluated on."""
    max_held_out_items: PositiveCount = 500
    """Maximum number of held-out items in an evaluation."""


class CorefTrainSettings(OptimizationSettings):
    """Training of `danseo coref`."""

    epochs: PositiveAmount = 5.0
    """Number of passes over the mentions."""
    learning_rate: Amount = 2e-5
    """Peak learning rate, at the end of the warm-up."""


class CorefConfig(Config):
    """One entity fine-tuning of a checkpoint."""

    checkpoint: Text
    """Hub id, id@revision or folder of a masked language model."""
    seed: Seed = 42
    """Seed of order, masks and dropout."""
    objective: Literal["target", "mlm", "both"] = "both"
    """target: only the tokens of the mention; mlm: only ordinary masks, the mention stays masked; or both."""
    mlm_probability: PositiveRatio = 0.15
    """Ratio of the other tokens that are masked in the ordinary way."""
    mlm_weight: Amount = 0.1
    """Weight of an ordinary mask in the loss; a token of the mention has 1."""
    steps: Count = 0
    """Number of optimiser steps; 0 leaves it to train.epochs."""
    trust_remote_code: bool = False
    """Run code that comes with the checkpoint."""
    mention: MentionSettings = MentionSettings()
    train: CorefTrainSettings = CorefTrainSettings()

    LISTED_BY: ClassVar[str] = "danseo coref --settings"
