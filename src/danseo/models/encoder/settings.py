"""Settings of encoders: inputs, heads and losses."""

from typing import Annotated, Literal

from pydantic import Field

from danseo.config.base import Amount, Count, PositiveAmount, PositiveCount, PositiveRatio, Ratio, Text
from danseo.config.train import LoraSettings


class EncoderSettings(LoraSettings):
    """Inputs, heads and losses of encoders; a setting of one task type starts with its KLUE tasks."""

    architecture: Literal["default", "official"] = "default"
    """official: KLUE's own alignment, heads and decoding where they differ; dp then needs gold POS tags."""
    attention_direction: Literal["bidirectional", "causal"] = "bidirectional"
    """Decoder-only models: whether a token attends to later ones; causal is how they were pre-trained."""

    label_smoothing: Ratio = 0.0
    """Ratio of the target that is spread over all labels."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced weights labels by their rarity."""
    loss: Literal["ce", "focal", "class_balanced", "ldam", "logit_adjusted"] = "ce"
    """ynat, nli, re: cross-entropy, or a loss for rare labels."""
    focal_gamma: Amount = 1.0
    """focal: how much less examples count that are predicted well; 0 is cross-entropy."""
    class_balanced_beta: Annotated[float, Field(ge=0, le=0.999999)] = 0.999
    """class_balanced: beta of the weight (1 - beta) / (1 - beta^n) of a label with n examples."""
    ldam_margin: Amount = 0.5
    """ldam: margin of the rarest label; others have less, by the fourth root of their counts."""
    ldam_scale: PositiveAmount = 1.0
    """ldam: factor of the logits."""
    logit_adjustment_tau: Amount = 1.0
    """logit_adjusted: factor of the log prior of train that is added to the logits in training."""
    rdrop_alpha: Amount = 0.0
    """ynat, nli, re: R-Drop, two passes that differ in dropout, CE + CE + alpha / 2 (KL + KL); 0 is off."""

    pooling: Literal["auto", "cls", "last", "mean", "e_start", "cls+e_start", "e_mean", "e_max", "compare"] = "auto"
    """Token states that represent a text; auto: the stock head, for decoders mean (causal: last); e_: entities of re;
    compare: for pairs, each token beside what it attends to in the other text, which small encoders need."""
    classifier_dropout: Ratio = 0.1
    """Dropout of label heads other than the stock head (pooling, multi_sample_dropout)."""
    multi_sample_dropout: PositiveCount = 1
    """ynat, nli, re: mean loss over this many dropouts before the last layer; 1 keeps the stock head."""

    outside_weight: Amount = 1.0
    """ner: weight of the tag O in the loss."""
    label_first_token: bool = False
    """ner: predict tags at the first token of every word between spaces, for the whole word."""

    markers: Literal[
        "klue", "entity_marker", "entity_marker_punct", "typed_entity_marker", "typed_entity_marker_punct",
        "typed_punct_korean", "entity_mask", "concat",
    ] = "klue"  # fmt: skip
    """re: how entities are marked: <subj>, [E1], @, <S:ORG>, @*organization*, @*단체*, [SUBJ-ORG] instead, in front."""
    object_marker: Text = "#"
    """re: the character around the object where markers are punctuation; & instead of # where ## has a meaning."""
    add_query: bool = False
    """re: put a question before the sentence: @*단체*비틀즈@와 #^사람^조지 해리슨#의 관계."""
    max_entity_distance: Count = 0
    """re: add embeddings of the distance of each token to both entities, up to this many tokens; 0 adds none."""
    hard_negative_ratio: PositiveRatio = 1.0
    """re: ratio of a batch's no_relation examples, the hardest ones, in the loss at the end; it falls from 1 evenly."""
    type_mask: Literal["none", "inference", "training"] = "none"
    """re: allow only labels that train has for the two entity types: in prediction, or also in training."""
    type_mask_min_count: PositiveCount = 1
    """re, type_mask: how often train must have a label for two entity types."""
    type_mask_table: Literal["none", "wide"] = "wide"
    """re, type_mask: a table of possible labels, which only allows more."""
    type_mask_bias: Amount = 0.0
    """re, type_mask: instead of forbidding, add this times the log of a label's smoothed frequency for the types."""

    arc_hidden_size: PositiveCount = 512
    """dp: width of the layers that score heads."""
    relation_hidden_size: PositiveCount = 256
    """dp: width of the layers that score relations."""
    parser_dropout: Ratio = 0.33
    """dp: dropout before and inside the scoring layers."""

    doc_stride: PositiveCount = 128
    """mrc: tokens between the starts of two windows."""
    max_query_length: PositiveCount = 64
    """mrc: maximum question length in tokens; the rest is cut off."""
    max_answer_length: PositiveCount = 30
    """mrc: maximum answer length in tokens."""
    n_best_size: PositiveCount = 20
    """mrc: number of start and end positions that are combined."""

    max_value_length: PositiveCount = 10
    """wos: maximum length of a slot value in tokens."""
    teacher_forcing_ratio: Ratio = 0.5
    """wos, official: ratio of the batches that read the gold value while generating it."""
