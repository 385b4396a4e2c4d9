"""Models that need no encoder, so that every table has a floor: the majority answer, and linear models."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from danseo.baselines import majority_answers
from danseo.errors import DanseoError, MissingExtra
from danseo.reading import read_object, write_atomically
from danseo.records import Prediction
from danseo.tasks.task import Task

FLOORS = ("majority", "linear")


class Floor(Protocol):
    """What a floor can do."""

    def fit(self, train: Sequence[Any], seed: int) -> None: ...

    def predict(self, examples: Sequence[Any]) -> list[Prediction]: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


def make_floor(name: str, task: Task) -> Floor:
    """A floor by name, not fitted yet."""
    return Majority(task) if name == "majority" else Linear(task)


class Majority:
    """The most frequent answer of the training examples, whatever the input."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.facts: dict[str, Any] = {}

    def fit(self, train: Sequence[Any], seed: int) -> None:
        kind, golds = self.task.kind, [example.gold for example in train]
        if kind == "classify":
            self.facts = {"shares": {label: count / len(golds) for label, count in Counter(golds).most_common()}}
        elif kind == "score":
            self.facts = {"mean": float(np.mean(golds))}
        elif kind == "parse":
            relations = Counter(relation for gold in golds for _, relation in gold)
            self.facts = {"relation": relations.most_common(1)[0][0]}

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        shares: dict[str, float] | None = self.facts.get("shares")
        most = next(iter(shares)) if shares else self.facts.get("mean", self.facts.get("relation"))
        answers = majority_answers(self.task, examples, most)
        return [Prediction(e.guid, answer, shares) for e, answer in zip(examples, answers, strict=True)]

    def save(self, folder: Path) -> None:
        write_atomically(folder / "floor.json", json.dumps(self.facts, ensure_ascii=False))

    def load(self, folder: Path) -> None:
        self.facts = dict(read_object(folder / "floor.json").values)


class Linear:
    """A linear model over hashed character n-grams: for labels a support vector machine, for numbers a ridge."""

    features = 2**18

    def __init__(self, task: Task) -> None:
        if task.kind not in ("classify", "score"):
            raise DanseoError(f"the linear model knows ynat, sts, nli and re, not {task.name}; use -m majority there")
        try:
            from sklearn.feature_extraction.text import HashingVectorizer
        except ImportError:
            raise MissingExtra("scikit-learn is not installed; run: pip install 'danseo[train]'") from None
        self.task = task
        self.hasher = HashingVectorizer(
            analyzer=GRAMS[task.name], n_features=self.features, alternate_sign=False, norm=None, binary=True
        )
        self.arrays: dict[str, Any] = {}

    def fit(self, train: Sequence[Any], seed: int) -> None:
        from sklearn.linear_model import Ridge
        from sklearn.svm import LinearSVC

        counts = self.hasher.transform(train)
        found = np.bincount(counts.indices, minlength=self.features)
        self.arrays = {"idf": (np.log((1 + len(train)) / (1 + found)) + 1).astype(np.float32)}
        inputs = self._inputs(counts, train)
        golds = [example.gold for example in train]
        if self.task.kind == "score":
            fitted = Ridge(alpha=3.0, solver="lsqr", random_state=seed).fit(inputs, golds)
            self.arrays |= {"weights": fitted.coef_[None].astype(np.float32), "bias": np.array([fitted.intercept_])}
            return
        fitted = LinearSVC(C=0.3, random_state=seed).fit(inputs, golds)
        two = len(fitted.classes_) == 2  # scikit-learn keeps one row for two labels
        rows = np.concatenate([-fitted.coef_, fitted.coef_]) if two else fitted.coef_
        bias = np.concatenate([-fitted.intercept_, fitted.intercept_]) if two else fitted.intercept_
        self.arrays |= {
            "weights": rows.astype(np.float32),
            "bias": bias,
            "labels": np.array(fitted.classes_, dtype=str),
        }

    def _inputs(self, counts: Any, examples: Sequence[Any]) -> Any:
        """Weighted n-grams of length 1, and beside them the overlap of a pair."""
        from scipy.sparse import csr_matrix, hstack
        from sklearn.preprocessing import normalize

        weighted = normalize(counts.multiply(self.arrays["idf"]).tocsr()).astype(np.float32)
        if not examples or getattr(examples[0], "pair", None) is None:
            return weighted
        overlaps = np.array([overlap_features(example.text, example.pair) for example in examples], dtype=np.float32)
        return hstack([weighted, csr_matrix(overlaps)]).tocsr()

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        inputs = self._inputs(self.hasher.transform(examples), examples)
        decisions = inputs @ self.arrays["weights"].T + self.arrays["bias"]
        if self.task.kind == "score":
            return [Prediction(e.guid, round(float(d[0]), 6)) for e, d in zip(examples, decisions, strict=True)]
        return [self._prediction(e, d) for e, d in zip(examples, decisions, strict=True)]

    def _prediction(self, example: Any, decision: Any) -> Prediction:
        """The label with the largest decision value; a softmax of the values serves as probabilities."""
        powers = np.exp(2 * (decision - decision.max()))
        named = dict(zip(self.arrays["labels"].tolist(), powers / powers.sum(), strict=True))
        shares = {label: round(float(named.get(label, 0.0)), 6) for label in self.task.labels}
        return Prediction(example.guid, str(self.arrays["labels"][int(decision.argmax())]), shares)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / "linear.npz", **self.arrays)

    def load(self, folder: Path) -> None:
        try:
            with np.load(folder / "linear.npz", allow_pickle=False) as saved:
                self.arrays = {key: saved[key] for key in saved.files}
        except (OSError, ValueError, KeyError) as error:
            raise DanseoError(f"{folder / 'linear.npz'} cannot be read: {error}") from None


def grams(text: str, sizes: Sequence[int], mark: str = "") -> Iterator[str]:
    """The character n-grams of each word, its borders included."""
    for word in text.split():
        padded = f" {word} "
        for size in sizes:
            for start in range(max(1, len(padded) - size + 1)):
                yield mark + padded[start : start + size]


def topic_grams(example: Any) -> Iterator[str]:
    return grams(example.text, (1, 2, 3, 4))


def pair_grams(example: Any) -> Iterator[str]:
    """What both texts share, and what only one of them has."""
    first, second = (set(grams(text, (1, 2, 3, 4))) for text in (example.text, example.pair))
    yield from ("=" + gram for gram in first & second)
    yield from ("<" + gram for gram in first - second)
    yield from (">" + gram for gram in second - first)


def relation_grams(example: Any) -> Iterator[str]:
    """The types, the words of the entities, and the text before, between and behind them."""
    subject, object_ = example.subject, example.object
    pair = f"{subject.type}-{object_.type}"
    order = "so" if subject.start < object_.start else "os"
    first, last = sorted((subject, object_), key=lambda entity: entity.start)
    between = example.text[first.end : last.start]
    yield from (f"t{pair}", f"o{order}{pair}", f"d{min(len(between) // 10, 6)}{pair}")
    parts = {
        "b": example.text[max(0, first.start - 15) : first.start],
        "a": example.text[last.end : last.end + 15],
        "s": subject.word,
        "j": object_.word,
        f"m{order}": between[:40],
    }
    for mark, text in parts.items():
        yield from grams(text, (2, 3, 4), f"{mark}:")
        yield from grams(text, (2, 3), f"{pair}{mark}:")
    yield from grams(example.text, (2, 3), "w:")


GRAMS: dict[str, Callable[[Any], Iterator[str]]] = {
    "ynat": topic_grams,
    "sts": pair_grams,
    "nli": pair_grams,
    "re": relation_grams,
}


def overlap_features(first: str, second: str) -> list[float]:
    """How much two texts share: in n-grams, in words, in length, in numbers."""
    shares: list[float] = []
    for size in (1, 2, 3):
        a, b = set(grams(first, (size,))), set(grams(second, (size,)))
        common = len(a & b)
        shares += [common / max(1, len(a | b)), common / max(1, len(b)), common / max(1, len(a))]
    words = [set(text.split()) for text in (first, second)]
    numbers = [{part for part in text.split() if any(c.isdigit() for c in part)} for text in (first, second)]
    shares.append(len(words[0] & words[1]) / max(1, len(words[0] | words[1])))
    shares.append(min(len(first), len(second)) / max(len(first), len(second), 1))
    shares.append(float(numbers[0] == numbers[1]))
    return shares
