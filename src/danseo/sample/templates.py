"""Sentence frames with slots: "{city}" takes a word, "{city:은/는}" the word and its fitting particle."""

import random
import re
import zlib
from collections.abc import Iterable, Mapping

from danseo.sample.korean import with_particle

_SLOT = re.compile(r"\{(\w+)(?::([^}]+))?\}")


def fill(frame: str, words: Mapping[str, str]) -> str:
    """fill("{a:은/는} {b}에 산다.", {"a": "민수", "b": "서울"}) is "민수는 서울에 산다."."""

    def fill_slot(match: re.Match[str]) -> str:
        name, pair = match.groups()
        return with_particle(words[name], pair) if pair else words[name]

    return _SLOT.sub(fill_slot, frame)


def slots(frame: str) -> list[str]:
    """The slot names of a frame, each once, in order: slots("{a:은/는} {b}") is ["a", "b"]."""
    return list(dict.fromkeys(match[1] for match in _SLOT.finditer(frame)))


def choices(line: str, split: str) -> list[str]:
    """The words a split may use: "a, b | c | d" gives a, b, c to train and a, b, d to dev."""
    both, train, dev = (part.strip() for part in line.split("|"))
    own = train if split == "train" else dev
    return [word.strip() for part in (both, own) if part for word in part.split(",")]


def draw(names: Iterable[str], table: Mapping[str, str], split: str, rng: random.Random) -> dict[str, str]:
    """A word for every slot name; "city2" draws from the line of "city", and no word is drawn twice."""
    words: dict[str, str] = {}
    for name in names:
        line = table[name.rstrip("0123456789")]
        words[name] = rng.choice([word for word in choices(line, split) if word not in words.values()])
    return words


def belongs(text: str, split: str) -> bool:
    """Whether a generated text is the split's to use: about one text in four goes to dev, no text to both."""
    return (zlib.crc32(text.encode()) % 4 == 0) == (split == "dev")
