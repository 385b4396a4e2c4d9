"""Examples shown in a prompt: picked from the training file alone, never one whose text stands in dev."""

import hashlib
from collections.abc import Sequence
from typing import Any

from danseo.errors import DanseoError
from danseo.models.llm.spans import composed
from danseo.tasks.task import Task

_NEIGHBOURS = 20000
"""Training examples among which the nearest are looked for."""


def text_of(example: Any) -> str:
    """All that an example says, without its gold."""
    parts = [getattr(example, name, None) for name in ("text", "pair", "question")]
    parts += list(getattr(example, "turns", ())) + list(getattr(example, "words", ()))
    return composed(" ".join(" ".join(part for part in parts if part).split()))


def unseen(train: Sequence[Any], dev: Sequence[Any]) -> list[Any]:
    """The training examples whose text does not stand in dev."""
    known = {text_of(example) for example in dev}
    known |= {composed(example.text) for example in dev if hasattr(example, "question")}  # a passage with its answers
    return [e for e in train if text_of(e) not in known and composed(getattr(e, "text", "") or "") not in known]


def seeded(task: Task, train: Sequence[Any], count: int, seed: int) -> list[Any]:
    """The same few examples for every question: in turn from every label, in an order that the seed gives."""
    if len(train) < count:
        raise DanseoError(f"prompt.shots = {count}: only {len(train)} training examples have a text that is not in dev")
    mixed = sorted(train, key=lambda e: hashlib.sha256(f"{seed} {e.guid}".encode()).digest())
    groups: dict[str, list[Any]] = {}
    for example in mixed:
        groups.setdefault(_group(task, example), []).append(example)
    chosen: list[Any] = []
    while len(chosen) < count:
        for members in groups.values():
            if members and len(chosen) < count:
                chosen.append(members.pop(0))
    return chosen


def _group(task: Task, example: Any) -> str:
    """What shots should differ in: the label, the similarity in whole steps, whether there is an answer."""
    if task.kind == "classify":
        return str(example.gold)
    if task.kind == "score":
        return str(int(example.gold))
    return str(bool(example.gold)) if task.kind == "answer" else ""


class Nearest:
    """The training examples most similar, by TF-IDF of character n-grams; the nearest comes last."""

    def __init__(self, train: Sequence[Any], texts: Sequence[str] | None = None) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.train = list(train[:_NEIGHBOURS])
        self.texts = list(texts) if texts is not None else [text_of(example) for example in self.train]
        self.vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 3), sublinear_tf=True)
        self.matrix = self.vectorizer.fit_transform(self.texts)

    def of(self, examples: Sequence[Any], count: int) -> list[list[Any]]:
        """The nearest training examples of each example, the nearest last."""
        found: list[list[Any]] = []
        for first in range(0, len(examples), 256):
            texts = [text_of(example) for example in examples[first : first + 256]]
            scores = (self.vectorizer.transform(texts) @ self.matrix.T).toarray()
            for row in scores:
                best = row.argsort(kind="stable")[::-1][:count]
                found.append([self.train[position] for position in best[::-1]])
        return found
