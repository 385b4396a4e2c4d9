"""Tiny masked language models with random weights, and an analyser that needs no Kiwi."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from danseo.mlm.probing.items import read_bundled_items
from danseo.models.new_encoder import EncoderSize, make_encoder_config, train_tokenizer
from danseo.text.morphology import Noun

FAMILIES = ("bert", "roberta", "electra", "deberta-v2", "xlm-roberta", "modernbert")


class FakeAnalyser:
    """Words that end in a particle are nouns, 그 and 나 are pronouns; enough for texts written for it."""

    version = "fake 1"
    particles = "은는이가을를에의도로"

    def find_nouns(self, texts: Iterable[str]) -> Iterator[list[Noun]]:
        for text in texts:
            yield [found for match in re.finditer(r"[가-힣]+", text) for found in self._word(match)]

    def _word(self, match: re.Match[str]) -> list[Noun]:
        word, start = match[0], match.start()
        stem = word[:-1] if len(word) > 1 and word[-1] in self.particles else word
        if stem in ("그", "나"):
            return [Noun(stem, "NP", start, start + len(stem))]
        return [] if stem.endswith("다") else [Noun(stem, "NNG", start, start + len(stem))]


def tiny_pair(family: str = "bert", texts: list[str] | None = None, seed: int = 0, **measures: Any) -> tuple[Any, Any]:
    """A model and a tokenizer that knows the built-in probes."""
    import torch
    from transformers import AutoModelForMaskedLM

    chosen = {"layers": 2, "hidden": 32, "heads": 2, "vocabulary": 2000, "positions": 128, "dropout": 0.0, **measures}
    size = EncoderSize(**chosen)
    tokenizer = train_tokenizer(texts or sorted({item.text for item in read_bundled_items()}), family, size)
    torch.manual_seed(seed)
    model = AutoModelForMaskedLM.from_config(make_encoder_config(family, size, tokenizer)).eval()
    return model, tokenizer


def save_pair(folder: Path, pair: tuple[Any, Any]) -> Path:
    """A checkpoint folder."""
    model, tokenizer = pair
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
