"""Settings of encoders: what all of them read, and what each kind of task has for itself."""

from dataclasses import dataclass
from typing import Literal

from danseo.settings.declaring import later, setting


@dataclass(frozen=True, kw_only=True)
class InputSettings:
    """Of every task."""

    architecture: Literal["default", "official"] = "default"
    """official: KLUE's own alignment, heads and decoding where they differ; they need gold POS tags for dp."""
    attention: Literal["bidirectional", "causal"] = later("bidirectional")
    """Decoder-only language models: whether a piece sees those behind it; causal is how they were pre-trained."""


@dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """Questions about passages."""

    stride: int = setting(128, above=0)
    """mrc: how far the next window starts behind the last one, in pieces."""
    question_length: int = setting(64, above=0)
    """mrc: longest question in pieces; the rest is cut."""
    answer_length: int = setting(30, above=0)
    """mrc: longest answer in pieces."""
    best: int = setting(20, above=0)
    """mrc: how many starts and ends are combined."""


@dataclass(frozen=True, kw_only=True)
class ParseSettings:
    """Trees of words."""

    arc_size: int = setting(512, above=0)
    """dp: width of the layers that score heads."""
    relation_size: int = setting(256, above=0)
    """dp: width of the layers that score relations."""
    head_dropout: float = setting(0.33, most=1)
    """dp: dropout before and inside the scoring layers."""


@dataclass(frozen=True, kw_only=True)
class DialogueSettings:
    """Slots and their values."""

    value_length: int = setting(10, above=0)
    """wos: longest slot value in pieces."""
    teacher_forcing: float = setting(0.5, most=1)
    """wos, official: share of the batches that read the gold value while writing it."""


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """One label of a text, a pair or a candidate."""

    pooling: Literal["auto", "cls", "last", "mean", "e_start", "cls+e_start", "e_mean", "e_max", "compare"] = later(
        "auto"
    )
    """Whose state speaks for a text; auto: the stock head, of decoders mean or, if causal, last; re: entities too;
    compare: for pairs, each piece beside what the other text has for it, which small encoders need."""
    pool_dropout: float = later(0.1, most=1)
    """Dropout of heads of labels that are not the library's own (pooling, dropout_samples)."""
    dropout_samples: int = later(1, above=0)
    """ynat, nli, re: the loss is the mean over this many dropouts before the last layer; 1 keeps the stock head."""


@dataclass(frozen=True, kw_only=True)
class TagSettings:
    """A tag per character."""

    pieces: Literal["all", "first"] = later("all")
    """ner: which pieces say the tags: all, or the first of every word between spaces, which speaks for all of it."""


@dataclass(frozen=True, kw_only=True)
class RelationSettings:
    """Two entities in a sentence."""

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


@dataclass(frozen=True, kw_only=True)
class EncoderHead(
    RelationSettings, TagSettings, LabelSettings, DialogueSettings, ParseSettings, AnswerSettings, InputSettings
):
    """All of them; what the last one has is listed first."""


@dataclass(frozen=True, kw_only=True)
class EncoderLoss:
    """What labels, tags and relations count in the loss."""

    label_smoothing: float = setting(0.0, most=1)
    """Share of the target that is spread over all labels."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced weighs labels by their rarity."""
    outside_weight: float = 1.0
    """ner: weight of the tag O in the loss."""
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
    hard_negatives: float = later(1.0, above=0, most=1)
    """re: share of a batch's no_relation, the hardest ones, that still counts at the end; it falls from 1 evenly."""
