"""The noun filter: which pieces of a vocabulary Kiwi takes for nouns, worked out once and remembered."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danseo.errors import DataError
from danseo.files import write_atomically
from danseo.probing.rules import cleaned
from danseo.text.morphology import NOUNS, Analyser

Mask = NDArray[np.bool_]


def tokenizer_hash(tokenizer: Any) -> str:
    """Sixteen hex digits of a tokenizer: its vocabulary and its rules."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def piece_words(tokenizer: Any) -> list[str]:
    """Every piece of the vocabulary as a word, by its number."""
    return [cleaned(text) for text in tokenizer.batch_decode([[number] for number in range(len(tokenizer))])]


def noun_mask(tokenizer: Any, words: list[str], analyser: Analyser, cache: Path) -> Mask:
    """True for pieces of which any morpheme is a noun; special pieces are none."""
    version = analyser.version.replace(" ", "-").replace("/", "-")
    path = cache / "probing" / f"nouns-{tokenizer_hash(tokenizer)}-{version}.bits"
    if (found := _remembered(path, len(words))) is not None:
        return found
    mask = np.zeros(len(words), dtype=bool)
    filled = [number for number, word in enumerate(words) if word]
    for number, found_words in zip(filled, analyser.words(words[k] for k in filled), strict=True):
        mask[number] = any(word.tag in NOUNS for word in found_words)
    mask[[number for number in tokenizer.all_special_ids if number < len(mask)]] = False
    write_atomically(path, np.packbits(mask).tobytes())
    return mask


def _remembered(path: Path, size: int) -> Mask | None:
    try:
        bits = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    except OSError:
        return None
    if len(bits) != (size + 7) // 8:
        raise DataError(f"{path} is damaged; remove it")
    return np.unpackbits(bits, count=size).astype(bool)
