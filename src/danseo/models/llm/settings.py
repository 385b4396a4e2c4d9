"""Settings of language models: how they are asked, and how they learn."""

from dataclasses import dataclass
from typing import Literal

from danseo.settings.declaring import later


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
    url: str = later("", incidental=True)
    """Where the server of a server: model is."""
    judge: Literal["loss", "score"] = later("loss")
    """Fine-tuning: what picks the best step, the loss of the right replies or the score of those that are written."""
    judge_on: int = later(64, above=0)
    """Fine-tuning: how many examples of the select half are answered at an evaluation, where the score judges."""


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Weights beside the model's own (LoRA)."""

    lora: int = later(0)
    """Language models: rank of the adapters (LoRA) that learn in place of the body's weights; 0 trains these."""
    lora_alpha: int = later(32)
    """Language models: what adapters are scaled by, divided by their rank."""
    lora_dropout: float = later(0.0, most=1)
    """Language models: dropout before the adapters."""
