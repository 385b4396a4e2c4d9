"""Few-shot examples: chosen from the training file, never one whose text is in dev."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from danseo.errors import DanseoError
from danseo.text.normalization import compose

_NEIGHBOURS = 20000
"""Maximum number of training examples that are searched for the nearest."""


def join_texts(example: Any) -> str:
    """Return all texts of an example, without its gold answer."""
    parts = [getattr(example, name, None) for name in ("text", "pair", "question")]
    parts += list(getattr(example, "turns", ())) + list(getattr(example, "words", ()))
    return compose(" ".join(" ".join(part for part in parts if part).split()))


def drop_dev_texts(train: Sequence[Any], dev: Sequence[Any]) -> list[Any]:
    """Return the training examples whose text is not in dev."""
    known = {join_texts(example) for example in dev}
    known |= {compose(example.text) for example in dev if hasattr(example, "question")}  # a passage with its answers
    return [e for e in train if join_texts(e) not in known and compose(getattr(e, "text", "") or "") not in known]


def sample_shots(train: Sequence[Any], count: int, seed: int, group: Callable[[Any], str]) -> list[Any]:
    """Choose few-shot examples by seed, from every group (such as a label) in turn."""
    if len(train) < count:
        raise DanseoError(f"prompt.shots = {count}: only {len(train)} training examples have a text that is not in dev")
    mixed = sorted(train, key=lambda e: hashlib.sha256(f"{seed} {e.guid}".encode()).digest())
    groups: dict[str, list[Any]] = {}
    for example in mixed:
        groups.setdefault(group(example), []).append(example)
    chosen: list[Any] = []
    while len(chosen) < count:
        for members in groups.values():
            if members and len(chosen) < count:
                chosen.append(members.pop(0))
    return chosen


class NearestShots:
    """Index of training examples by TF-IDF of character n-grams."""

    def __init__(self, train: Sequence[Any], texts: Sequence[str] | None = None) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.train = list(train[:_NEIGHBOURS])
        self.texts = list(texts) if texts is not None else [join_texts(example) for example in self.train]
        self.vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 3), sublinear_tf=True)
        self.matrix = self.vectorizer.fit_transform(self.texts)

    def find(self, examples: Sequence[Any], count: int) -> list[list[Any]]:
        """Return the nearest training examples of each example, the nearest last."""
        found: list[list[Any]] = []
        for first in range(0, len(examples), 256):
            texts = [join_texts(example) for example in examples[first : first + 256]]
            scores = (self.vectorizer.transform(texts) @ self.matrix.T).toarray()
            for row in scores:
                best = row.argsort(kind="stable")[::-1][:count]
                found.append([self.train[position] for position in best[::-1]])
        return found
