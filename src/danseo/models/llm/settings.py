"""Settings of language models: prompts and replies, and fine-tuning."""

from typing import Annotated, Literal

from pydantic import Field

from danseo.config.base import INCIDENTAL, Count, PositiveCount, Section, Text
from danseo.config.train import LoraSettings


class PromptSettings(Section):
    """How a language model is prompted, and how its replies are parsed."""

    mode: Literal["auto", "likelihood", "generate"] = "auto"
    """Labels: compare the probabilities of all labels (likelihood), or generate text; auto compares for llm: models."""
    output_format: Literal["json", "inline", "tsv"] = "json"
    """Entities: how they are written."""
    language: Literal["ko", "en"] = "ko"
    """Language of the bundled prompt."""
    template_hash: Text = ""
    """Hash of the prompt's text; the text itself is in the run."""
    shots: Annotated[int, Field(ge=0, le=1000)] = 0
    """Number of training examples in the prompt (few-shot)."""
    shot_selection: Literal["seeded", "nearest"] = "seeded"
    """Few-shot examples: the same for all, from every label in turn, or the most similar ones (TF-IDF)."""
    unconstrained: bool = False
    """Do not force replies into the output format."""
    allowed_labels_only: bool = False
    """re: list only labels that the training examples have for the types of the two entities."""
    repair_attempts: Annotated[int, Field(ge=0, le=10)] = 0
    """Number of new attempts after a failed reply."""
    keep_truncated: bool = False
    """ner: use the complete entities of truncated replies."""
    thinking: Literal["auto", "off", "on"] = "auto"
    """Whether a reasoning model may reason before it answers; auto follows the model's chat template."""
    max_thinking_tokens: PositiveCount = 1024
    """Maximum number of reasoning tokens."""
    max_eval_samples: Count = 0
    """Evaluate only this many dev examples, chosen by the seed; 0 takes all."""
    max_new_tokens: Count = 0
    """Maximum number of tokens of a reply; 0 takes what the task needs."""
    max_context_length: Count = 0
    """Maximum number of tokens of prompt and reply; 0 takes the model's own limit, and for servers none."""
    url: Annotated[Text, INCIDENTAL] = ""
    """Address of the server of a server: model."""


class LlmSettings(LoraSettings):
    """Fine-tuning of a language model that generates its answers."""

    quantization: Literal["none", "nf4", "int8"] = "none"
    """Store the model's own weights in 4 bits (nf4) or 8 bits (int8), with bitsandbytes; LoRA adapters learn."""
    select_by: Literal["loss", "score"] = "loss"
    """What selects the best step: the loss of the gold replies, or the score of generated ones."""
    select_examples: PositiveCount = 64
    """Number of examples of the select split that are answered at an evaluation, with select_by = score."""
