"""Every setting with its default, bounds and help text; TOML files, --set and the docs all read them here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from danseo.errors import DanseoError
from danseo.settings.declaring import Bounds, later, setting
from danseo.settings.history import Change, Rewritten
from danseo.settings.values import put_in
from danseo.settings.written import read_kept

Kind = Literal["training", "ensemble", "soup", "prompt"]
SEEDS = Bounds(-(2**63) + 1, 2**63 - 1)  # what torch takes


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """How examples become inputs, and outputs answers."""

    architecture: Literal["default", "official"] = "default"
    """official: KLUE's own alignment, heads and decoding where they differ; they need gold POS tags for dp."""
    max_length: int = setting(128, above=0)
    """Longest input in pieces, special ones included."""
    stride: int = setting(128, above=0)
    """mrc: how far the next window starts behind the last one, in pieces."""
    question_length: int = setting(64, above=0)
    """mrc: longest question in pieces; the rest is cut."""
    answer_length: int = setting(30, above=0)
    """mrc: longest answer in pieces."""
    best: int = setting(20, above=0)
    """mrc: how many starts and ends are combined."""
    arc_size: int = setting(512, above=0)
    """dp: width of the layers that score heads."""
    relation_size: int = setting(256, above=0)
    """dp: width of the layers that score relations."""
    head_dropout: float = setting(0.33, most=1)
    """dp: dropout before and inside the scoring layers."""
    value_length: int = setting(10, above=0)
    """wos: longest slot value in pieces."""
    teacher_forcing: float = setting(0.5, most=1)
    """wos, official: share of the batches that read the gold value while writing it."""
    attention: Literal["bidirectional", "causal"] = later("bidirectional")
    """Decoder-only language models: whether a piece sees those behind it; causal is how they were pre-trained."""
    pieces: Literal["all", "first"] = later("all")
    """ner: which pieces say the tags: all, or the first of every word between spaces, which speaks for all of it."""
    words: Literal["kiwi", "characters"] = later("kiwi")
    """spacy: the tokens, Kiwi's morphemes or single characters."""
    label_words: str = later("")
    """gliner, spacy:FOLDER: what the model calls our types, as PS=person,LC=place+city; "" has the usual words."""
    pooling: Literal["auto", "cls", "last", "mean", "e_start", "cls+e_start", "e_mean", "e_max", "compare"] = later(
        "auto"
    )
    """Whose state speaks for a text; auto: the stock head, of decoders mean or, if causal, last; re: entities too;
    compare: for pairs, each piece beside what the other text has for it, which small encoders need."""
    markers: Literal[
        "klue", "entity_marker", "entity_marker_punct", "typed_entity_marker", "typed_entity_marker_punct",
        "typed_punct_korean", "entity_mask", "concat",
    ] = later("klue")  # fmt: skip
    """re: how entities are shown: <subj>, [E1], @, <S:ORG>, @*organization*, @*단체*, [SUBJ-ORG] instead, in front."""
    object_char: str = later("#")
    """re: the sign around the object where markers are signs; & instead of # where ## has a meaning."""
    query: bool = later(False)
    """re: put a question before the sentence: @*단체*비틀즈@와 #^사람^조지 해리슨#의 관계."""
    type_mask: Literal["none", "inference", "training"] = later("none")
    """re: only labels that train has with the types of subject and object: when answering, or while learning too."""
    type_count: int = later(1, above=0)
    """re, type_mask: how often train must have a label with a pair of types."""
    type_prior: Literal["none", "wide"] = later("wide")
    """re, type_mask: a table of what is possible, which only allows more."""
    type_bias: float = later(0.0)
    """re, type_mask: instead of forbidding, add this times the log of a label's smoothed share with the types."""
    pool_dropout: float = later(0.1, most=1)
    """Dropout of heads of labels that are not the library's own (pooling, dropout_samples)."""
    dropout_samples: int = later(1, above=0)
    """ynat, nli, re: the loss is the mean over this many dropouts before the last layer; 1 keeps the stock head."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the weights are fitted."""

    epochs: float = setting(3, above=0)
    """Passes over the training examples."""
    batch_size: int = setting(32, above=0)
    """Examples per optimiser step, over all processes."""
    batch_tokens: int = setting(8192, above=0)
    """Most padded pieces at a time (on a CPU, what its caches hold); larger batches are split into parts."""
    learning_rate: float = 5e-5
    """Peak rate, reached when the warm-up ends."""
    head_learning_rate: float | None = None
    """Peak rate of the layers above the encoder; None takes learning_rate."""
    schedule: Literal["linear", "cosine", "constant", "hold"] = "linear"
    """How the rate falls after the warm-up; hold keeps it, and falls to 0 over the last fifth."""
    warmup: float = setting(0.1, most=1)
    """Share of the steps in which the rate rises from 0."""
    weight_decay: float = 0.01
    """Decay of weights; biases and norms have none."""
    optimizer: Literal["adamw", "muon"] = later("adamw")
    """muon: orthogonal steps for the matrices of the layers, as long as AdamW's, which has all the rest."""
    beta2: float = setting(0.999, most=1)
    """AdamW's memory of squared gradients."""
    clip: float = 1.0
    """Longest gradient; 0 never clips."""
    evaluations: int = 2
    """Evaluations per epoch."""
    monitor: str = "headline"
    """The metric that picks the best checkpoint, by id; headline is the task's first."""
    patience: int | None = None
    """Stop after this many evaluations without a better score; None never stops."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """auto measures on this device and remembers; for short work bf16, or fp16 without it, on GPUs, else fp32."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """auto measures on this device and remembers; for short work sdpa where the encoder has it. Flash: NVIDIA only."""
    freeze: str = "none"
    """none, encoder (only the head learns), embeddings, or a number: embeddings and that many lowest layers."""
    layer_decay: float = setting(1.0, most=1)
    """Each layer's rate as a share of that of the layer above it; the top layer has the full one, as has the head."""
    gradient_checkpointing: bool = False
    """Recompute activations to save memory."""
    label_smoothing: float = setting(0.0, most=1)
    """Share of the target that is spread over all labels."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced weighs labels by their rarity."""
    outside_weight: float = 1.0
    """ner: weight of the tag O in the loss."""
    swa_start: float | None = None
    """Average the weights from this epoch on (0 is the start); None does not."""
    swa_every: int = 0
    """Steps between the averaged weights; 0 takes those at the end of each epoch."""
    swa_learning_rate: float | None = None
    """Constant rate while averaging; None keeps the schedule."""
    swa_include: Literal["all", "encoder"] = "all"
    """What is averaged: all that learns, or the encoder without its head."""
    ema: float = setting(0.0, most=1)
    """Share of the old average that each step keeps, such as 0.999; 0 does not average."""
    select_on: Literal["select", "dev"] = "select"
    """Which dev examples pick the best checkpoint: one half (the other is reported), or all of them."""
    halves: Literal[1, 2] = later(1)
    """How dev is parted: 2 keeps examples of one passage or premise together, as new runs do; 1 goes by guid alone."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch."""
    exact: bool = later(False)
    """GPU: matrix products of fp32 in full; else their factors are rounded to TF32, which is faster."""
    deterministic: bool = later(False)
    """GPU: only algorithms that take sums in a fixed order; slower, and an operation that has none ends the run."""
    max_steps: int = later(0)
    """spacy: most optimiser steps; 0 is 20,000."""
    zero_shot: bool = later(False)
    """gliner: answer without learning; training examples only tune the thresholds."""
    loss: Literal["ce", "focal", "class_balanced", "ldam", "logit_adjusted"] = later("ce")
    """ynat, nli, re: cross-entropy, less of it for what is right, or weights, margins, a flat prior for rare labels."""
    gamma: float = later(1.0)
    """focal: how much less examples count that are right already; 0 is cross-entropy."""
    balance: float = later(0.999, most=0.999999)
    """class_balanced: beta of the weight (1 - beta) / (1 - beta^n) of a label with n examples."""
    margin: float = later(0.5)
    """ldam: the margin of the rarest label; others have less, by the fourth root of their counts."""
    margin_scale: float = later(1.0, above=0)
    """ldam: what logits are multiplied by."""
    tau: float = later(1.0)
    """logit_adjusted: how much of the log prior of train the logits get while learning."""
    rdrop: float = later(0.0)
    """ynat, nli, re: R-Drop's alpha: two passes that differ in dropout, CE + CE + alpha / 2 (KL + KL); 0 is off."""
    fgm: float = later(0.0)
    """A second pass with the embeddings moved this far along their gradient; 0 is off, 1 common."""
    awp: float = later(0.0, most=1)
    """A second pass with every matrix moved by this share of its norm along its gradient; 0 is off, 0.001 common."""
    hard_negatives: float = later(1.0, above=0, most=1)
    """re: share of a batch's no_relation, the hardest ones, that still counts at the end; it falls from 1 evenly."""
    example_weights: str = later("")
    """Encoders: a CSV of guid,weight (danseo mine writes one); examples are drawn by weight, those not named by 1."""
    augment: str = later("")
    """Examples made of train, by comma: aeda (signs between words), and of re swap (entities), inverse (relations)."""
    lora: int = later(0)
    """Language models: rank of the adapters (LoRA) that learn in place of the body's weights; 0 trains these."""
    lora_alpha: int = later(32)
    """Language models: what adapters are scaled by, divided by their rank."""
    lora_dropout: float = later(0.0, most=1)
    """Language models: dropout before the adapters."""


@dataclass(frozen=True, kw_only=True)
class PromptConfig:
    """How a language model is asked, and how its replies are read."""

    mode: Literal["auto", "likelihood", "generate"] = later("auto")
    """Labels: weigh every reply (likelihood), or let the model write one; auto weighs where the model runs here."""
    shape: Literal["json", "inline", "tsv"] = later("json")
    """ner: how entities are written."""
    template: str = later("")
    """The prompt's text, as a hash; the text itself is in the run."""
    shots: int = later(0, most=1000)
    """Training examples shown before the question."""
    pick: Literal["seeded", "nearest"] = later("seeded")
    """Which ones: the same for all questions, of every label in turn, or those most similar (TF-IDF)."""
    free: bool = later(False)
    """Let the model write what it will; else its replies are held to their shape."""
    allowed_only: bool = later(False)
    """re: list only labels that the training examples have for the types of the two entities."""
    repair: int = later(0, most=10)
    """Ask again so often where a reply has failed."""
    salvage: bool = later(False)
    """ner: take the complete items of replies that were cut off."""
    think: Literal["auto", "off", "on"] = later("auto")
    """Whether a reasoning model may think before it answers; auto leaves it to the model's own template."""
    think_tokens: int = later(1024, above=0)
    """Most tokens of thinking."""
    reply_tokens: int = later(0)
    """Most tokens of a reply; 0 takes what the task needs."""
    context: int = later(0)
    """Most tokens that the model reads; 0 asks the model, and a server is taken to have room for all."""
    url: str = later("")
    """Where the server of a server: model is."""
    judge: Literal["loss", "score"] = later("loss")
    """Fine-tuning: what picks the best step, the loss of the right replies or the score of those that are written."""
    judge_on: int = later(64, above=0)
    """Fine-tuning: how many examples of the select half are answered at an evaluation, where the score judges."""


def _kind_from_recipe(settings: dict[str, Any]) -> dict[str, Any]:
    """Schema 2: ensembles and soups are kinds of runs; they were said to be recipes."""
    if settings.get("recipe") in ("ensemble", "soup"):
        return {**settings, "kind": settings["recipe"], "recipe": "default"}
    return settings


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: the same settings give the same directory."""

    task: str
    """The task, by name."""
    model: str
    """Hub id, id@revision, folder, or one of majority, linear, linear:entities and linear:sentence."""
    seed: int = setting(42, bounds=SEEDS)
    """Seed of weights, order and dropout."""
    recipe: str = "default"
    """The settings that were started from."""
    kind: Kind = later("training", by_command=True)
    """How the run was made; the command says it."""
    limit: int = 0
    """Only this many training examples; 0 takes all."""
    folds: int = later(0)
    """Part the training examples into so many folds, texts whole and labels evenly; 0 does not."""
    fold: int = later(0)
    """The fold that is left out of training, from 0: it picks the checkpoint, so dev picks nothing."""
    trust_remote_code: bool = False
    """Run code that comes with the checkpoint."""
    head: HeadConfig = field(default_factory=HeadConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)

    CHANGES: ClassVar[tuple[Change, ...]] = (Rewritten(_kind_from_recipe),)


FLOORS = ("majority", "linear", "linear:entities", "linear:sentence")
"""Models that need no encoder; of the settings of training none counts for them."""


def read_config(path: Path) -> RunConfig:
    """The config that to_toml wrote, now or in an earlier version."""
    settings = read_kept(path, RunConfig)
    if missing := [name for name in ("task", "model") if name not in settings]:
        raise DanseoError(f"{path}: {' and '.join(missing)} missing; is this a run's config.toml?")
    return put_in(RunConfig(task=settings["task"], model=settings["model"]), settings)
