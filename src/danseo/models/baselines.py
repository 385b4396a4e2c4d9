"""Baselines without an encoder: the most frequent answer, and linear models of n-grams (scikit-learn)."""

import io
import json
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any
from unicodedata import is_normalized

import numpy as np
from numpy.typing import NDArray

from danseo.config.run import BASELINES as BASELINES
from danseo.config.run import RunConfig
from danseo.errors import DanseoError, DataError
from danseo.extras import require
from danseo.files import quote, read_bytes, write_atomically
from danseo.language import _
from danseo.models.base import Answers, Events, LoadOptions, TrainResult
from danseo.records import Entity, Prediction, RelationExample, TextExample
from danseo.rows import read_object
from danseo.runs.store import Run
from danseo.scoring.score import find_most_frequent, majority_answers
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task
from danseo.tasktypes.classification import label_shares
from danseo.tasktypes.decoding import unpack_npz
from danseo.text.normalization import compose

View = Callable[[Any], Iterable[str]]
"""A function that turns an example into n-grams and other short texts."""
Array = NDArray[Any]


class BaselineModel(ABC):
    """A model that reads the training examples once."""

    reads_pos = False

    def __init__(self, task: Task, seed: int = 42) -> None:
        self.task, self.seed = task, seed

    def prepare_data(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> None:
        """Do nothing: these models read the examples unchanged."""

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> TrainResult:
        started = time.perf_counter()
        events.work_on(f"learning from {len(train):,} examples")
        self.learn(train)
        events.work_on(f"predicting {len(dev):,} dev examples")
        answers = self.predict(dev)
        return TrainResult(answers, seconds=time.perf_counter() - started)

    @abstractmethod
    def learn(self, train: Sequence[Any]) -> None:
        """Learn from the training examples."""

    @abstractmethod
    def predict(self, examples: Sequence[Any]) -> Answers: ...

    @abstractmethod
    def save(self, folder: Path) -> None: ...

    @abstractmethod
    def load(self, folder: Path) -> None: ...


def make_baseline(name: str, task: Task, seed: int = 42) -> BaselineModel:
    """Create the untrained baseline with this name."""
    return Majority(task, seed) if name == "majority" else Linear(task, seed, name)


# The row of the families' table


def check_baseline(config: RunConfig, task: Task) -> None:
    """Raise an error if the baseline does not support the task."""
    make_baseline(config.model, task)


def load_baseline(run: Run, task: Task, loading: LoadOptions) -> BaselineModel:
    """Load the baseline of a run."""
    config = run.config
    if loading.precision:
        raise DanseoError(f"{run.path} is a {config.model} model, which has no precision; leave --precision out")
    model = make_baseline(config.model, task)
    model.load(run.path / "model")
    return model


class Majority(BaselineModel):
    """The most frequent answer of the training examples, for every input."""

    def __init__(self, task: Task, seed: int = 42) -> None:
        super().__init__(task, seed)
        self.answer: Any = None
        self.shares: dict[str, float] | None = None

    def learn(self, train: Sequence[Any]) -> None:
        self.answer = find_most_frequent(self.task, _check_not_empty(train))
        if self.task.type.has_label_probabilities:
            shares = label_shares(train)
            self.shares = {label: shares.get(label, 0.0) for label in self.task.labels}

    def predict(self, examples: Sequence[Any]) -> Answers:
        answers = majority_answers(self.task, examples, self.answer)
        return Answers([Prediction(e.guid, answer, self.shares) for e, answer in zip(examples, answers, strict=True)])

    def save(self, folder: Path) -> None:
        _write_json(folder / "majority.json", {"task": self.task.name, "answer": self.answer, "shares": self.shares})

    def load(self, folder: Path) -> None:
        document = _read_json(folder / "majority.json", self.task)
        self.answer, self.shares = document.get("answer"), document.get("shares")
        if isinstance(self.answer, list):
            self.answer = tuple(self.answer)
        is_valid = self.task.type.is_most_frequent(self.task, self.answer)
        if not ("answer" in document and _are_shares(self.shares, self.task) and is_valid):
            raise DataError(f"{folder / 'majority.json'} is corrupted; train the run again")


class Linear(BaselineModel):
    """TF-IDF of several views with a linear SVM for labels, or with ridge regression for numbers.

    Its arrays are stored, and not a scikit-learn pipeline, because a pipeline can only be stored as a pickle.
    """

    def __init__(self, task: Task, seed: int = 42, name: str = "linear") -> None:
        super().__init__(task, seed)
        if name != "linear" and task.type.name != "relation":
            raise DanseoError(f"{name} needs entities, and {task.name} has none; use -m linear")
        if (recipe := _PARTIAL.get(name, _RECIPES.get((task.type.name, task.is_pair)))) is None:
            known = ", ".join(other.name for other in TASKS.values() if has_linear_model(other))
            raise DanseoError(
                f"the linear model supports {known} and tasks of their types, not {task.name}; use -m majority"
            )
        self.recipe = recipe
        self.vectorizers = {view.__name__.strip("_"): Vectorizer(view) for view in recipe.views}
        self.labels: list[str] = []
        self.weights = np.zeros((0, 0), dtype=np.float32)  # a row per token
        self.bias = np.zeros(0)
        self.range = np.zeros(2)

    def learn(self, train: Sequence[Any]) -> None:
        require("scikit-learn")
        train = [_normalize(example) for example in _check_not_empty(train)]
        for vectorizer in self.vectorizers.values():
            vectorizer.fit(train)
        golds = [example.gold for example in train]
        weights, self.bias = self._fit(self._compute_features(train), golds)
        self.weights = np.ascontiguousarray(weights, dtype=np.float32)

    def _fit(self, features: Any, golds: list[Any]) -> tuple[Array, Array]:
        if self.task.type.name == "regression":
            return self._fit_ridge(features, golds)
        if self.task.type.name == "multilabel":
            return self._fit_multilabel(features, golds)
        return self._fit_classes(features, golds)

    def _fit_classes(self, features: Any, golds: list[str]) -> tuple[Array, Array]:
        self.labels = [label for label in self.task.labels if label in set(golds)]
        if len(self.labels) < 2:
            raise DanseoError(f"linear needs two labels in train, but all are {golds[0]}; raise max_train_samples")
        # Rare labels matter where the score is a mean over labels.
        class_weight = "balanced" if self.task.metrics[self.task.headline].average == "macro" else None
        svm = self._make_svm(class_weight).fit(features, [self.labels.index(gold) for gold in golds])
        if len(self.labels) == 2:  # scikit-learn has one row of weights for two labels
            return np.vstack([-svm.coef_, svm.coef_]).T, np.hstack([-svm.intercept_, svm.intercept_])
        return svm.coef_.T, svm.intercept_

    def _fit_multilabel(self, features: Any, golds: list[tuple[str, ...]]) -> tuple[Array, Array]:
        counts = Counter(label for gold in golds for label in gold)
        self.labels = [label for label in self.task.labels if 0 < counts[label] < len(golds)]
        if not self.labels:
            raise DanseoError("linear needs texts with and without each label; raise max_train_samples")
        svms = [self._make_svm("balanced").fit(features, [label in gold for gold in golds]) for label in self.labels]
        return np.vstack([svm.coef_ for svm in svms]).T, np.hstack([svm.intercept_ for svm in svms])

    def _fit_ridge(self, features: Any, golds: list[float]) -> tuple[Array, Array]:
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=self.recipe.cost, solver="sparse_cg", random_state=self.seed).fit(features, golds)
        self.range = np.array([min(golds), max(golds)])
        return ridge.coef_.reshape(-1, 1), np.atleast_1d(ridge.intercept_)

    def _make_svm(self, class_weight: str | None) -> Any:
        from sklearn.svm import LinearSVC

        return LinearSVC(C=self.recipe.cost, class_weight=class_weight, tol=1e-3, random_state=self.seed)

    def predict(self, examples: Sequence[Any]) -> Answers:
        return Answers(self._predict(examples) if examples else [])

    def _predict(self, examples: Sequence[Any]) -> list[Prediction]:
        outputs = self._compute_features([_normalize(example) for example in examples]) @ self.weights + self.bias
        if self.task.type.name == "regression":
            numbers = np.clip(outputs[:, 0], *self.range)
            return [Prediction(e.guid, round(float(number), 6)) for e, number in zip(examples, numbers, strict=True)]
        decode = self._decode_labels if self.task.type.name == "multilabel" else self._decode_class
        return [decode(example.guid, row) for example, row in zip(examples, outputs, strict=True)]

    def _decode_class(self, guid: str, margins: Array) -> Prediction:
        exponents = np.exp(self.recipe.sharpness * (margins - margins.max()))
        found = dict(zip(self.labels, exponents / exponents.sum(), strict=True))
        probabilities = {label: float(found.get(label, 0.0)) for label in self.task.labels}
        return Prediction(guid, self.labels[int(margins.argmax())], probabilities)

    def _decode_labels(self, guid: str, margins: Array) -> Prediction:
        sigmoids = 1 / (1 + np.exp(-self.recipe.sharpness * margins))
        found = dict(zip(self.labels, sigmoids.tolist(), strict=True))
        probabilities = {label: found.get(label, 0.0) for label in self.task.labels}
        return Prediction(guid, tuple(label for label, chance in probabilities.items() if chance > 0.5), probabilities)

    def _compute_features(self, examples: Sequence[Any]) -> Any:
        from scipy.sparse import hstack

        return hstack([vectorizer.transform(examples) for vectorizer in self.vectorizers.values()], format="csr")

    def save(self, folder: Path) -> None:
        tokens = {name: list(vectorizer.tokens) for name, vectorizer in self.vectorizers.items()}
        _write_json(folder / "linear.json", {"task": self.task.name, "labels": self.labels, "tokens": tokens})
        arrays: dict[str, Any] = {f"idf.{name}": vectorizer.idf for name, vectorizer in self.vectorizers.items()}
        content = io.BytesIO()
        np.savez(content, weights=self.weights, bias=self.bias, range=self.range, **arrays)
        write_atomically(folder / "linear.npz", content.getvalue())

    def load(self, folder: Path) -> None:
        document = _read_json(folder / "linear.json", self.task)
        try:
            arrays = unpack_npz(read_bytes(folder / "linear.npz"))
            self.weights, self.bias, self.range = (arrays[name] for name in ("weights", "bias", "range"))
            for name, vectorizer in self.vectorizers.items():
                vectorizer.restore(document["tokens"][name], arrays[f"idf.{name}"])
            self.labels = document["labels"]
            self._check_shapes()
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise DataError(f"{folder / 'linear.npz'} is corrupted; train the run again") from None

    def _check_shapes(self) -> None:
        """Raise a ValueError if the arrays do not fit together."""
        vectorizers = self.vectorizers.values()
        tokens = sum(len(vectorizer.tokens) for vectorizer in vectorizers)
        columns = 1 if self.task.type.name == "regression" else len(self.labels)
        arrays: list[Array] = [self.weights, self.bias, self.range, *(vectorizer.idf for vectorizer in vectorizers)]
        shapes = [(tokens, columns), (columns,), (2,), *((len(vectorizer.tokens),) for vectorizer in vectorizers)]
        is_numbers = all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays)
        if [array.shape for array in arrays] != shapes or not is_numbers or not set(self.labels) <= {*self.task.labels}:
            raise ValueError("arrays that do not fit together")


class Vectorizer:
    """scikit-learn's TfidfVectorizer of one view, which can be empty and is stored without pickle."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.tokens: Sequence[str] = ()
        self.idf: Array = np.zeros(0, dtype=np.float32)

    def fit(self, examples: Sequence[Any]) -> None:
        """Learn the tokens of at least two examples, or all tokens if there are few examples."""
        vectorizer = self._make_tfidf(min_df=2 if len(examples) >= 1000 else 1)
        with suppress(ValueError):  # the view has no tokens
            vectorizer.fit(examples)
            self.restore(vectorizer.get_feature_names_out().tolist(), vectorizer.idf_)

    def restore(self, tokens: Sequence[str], idf: Array) -> None:
        """Set the tokens and their inverse document frequencies."""
        self.tokens, self.idf = list(dict.fromkeys(tokens)), idf

    def transform(self, examples: Sequence[Any]) -> Any:
        """Return a sparse matrix with a row per example."""
        from scipy.sparse import csr_matrix

        if not len(self.tokens):
            return csr_matrix((len(examples), 0), dtype=np.float32)
        vectorizer = self._make_tfidf(vocabulary=self.tokens)
        vectorizer.idf_ = self.idf
        return vectorizer.transform(examples)

    def _make_tfidf(self, **options: Any) -> Any:
        require("scikit-learn")
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(analyzer=self.view, sublinear_tf=True, dtype=np.float32, **options)


# Views of examples


def _normalize(example: Any) -> Any:
    """Return the example with its text in NFC."""
    pair = getattr(example, "pair", None)
    if is_normalized("NFC", example.text) and is_normalized("NFC", pair or ""):
        return example
    text = compose(example.text)
    if isinstance(example, RelationExample):
        subject, other = (_move_entity(entity, example.text) for entity in (example.subject, example.object))
        return replace(example, text=text, subject=subject, object=other)
    return replace(example, text=text, pair=pair and compose(pair))


def _move_entity(entity: Entity, text: str) -> Entity:
    start, end = (len(compose(text[:position])) for position in (entity.start, entity.end))
    return replace(entity, word=compose(entity.word), start=start, end=end)


def _grams(text: str, low: int = 1, high: int = 4) -> list[str]:
    """Return the character n-grams inside words: 나는 gives, among others, " 나", "나는" and "는 "."""
    return [
        padded[position : position + size]
        for padded in (f" {word} " for word in text.casefold().split())
        for size in range(low, min(high, len(padded)) + 1)
        for position in range(len(padded) - size + 1)
    ]


def _text(example: TextExample) -> list[str]:
    return _grams(example.text)


def _pair(example: TextExample) -> list[str]:
    return _grams(example.pair or "")


def _only_second(example: TextExample) -> list[str]:
    """Return the n-grams that only the second text has."""
    return _missing_from(example.text, example.pair or "")


def _only_first(example: TextExample) -> list[str]:
    """Return the n-grams that only the first text has."""
    return _missing_from(example.pair or "", example.text)


def _difference(example: TextExample) -> list[str]:
    return _only_second(example) + _only_first(example)


def _intersection(example: TextExample) -> list[str]:
    """Return the n-grams that both texts have."""
    first = set(_grams(example.text))
    return [gram for gram in _grams(example.pair or "") if gram in first]


def _missing_from(text: str, other: str) -> list[str]:
    known = set(_grams(text))
    return [gram for gram in _grams(other) if gram not in known]


def _overlap(example: TextExample) -> list[str]:
    """Return the overlap of the texts in discrete steps, and pairs of steps as interactions."""
    shares, flags = _shares(example.text, example.pair or ""), _flags(example.text, example.pair or "")
    coarse = [f"{name}={int(6 * share)}" for name, share in shares.items()] + flags
    fine = [f"{name}:{int(12 * share)}" for name, share in shares.items()]
    return [*fine, *flags, *map("&".join, combinations(coarse, 2))]


def _shares(first: str, second: str) -> dict[str, float]:
    """Return numbers from 0 to 1: shared n-grams and words, and lengths."""
    shares: dict[str, float] = {}
    bags = {str(size): [set(_grams(text, size, size)) for text in (first, second)] for size in (1, 2, 3)}
    for name, (one, two) in {**bags, "word": [set(first.split()), set(second.split())]}.items():
        both = len(one & two)
        shares |= {f"of2-{name}": both / max(1, len(two)), f"of1-{name}": both / max(1, len(one))}
        if name != "word":
            shares[f"either-{name}"] = both / max(1, len(one | two))
    return {**shares, "ratio": min(len(second) / max(1, len(first)), 2) / 2, "length": min(len(second), 60) / 60}


def _flags(first: str, second: str) -> list[str]:
    """Return features of negation and of the numbers in both texts."""
    negations = [min(2, sum(text.count(word) for word in _NEGATIONS)) for text in (first, second)]
    one, two = (set(re.findall(r"\d+", text)) for text in (first, second))
    return [f"negations={negations}", f"figures={bool(two - one)},{bool(one - two)},{bool(one & two)}"]


_NEGATIONS = ("않", "못", "안 ", "없", "아니", "금지", "말")


def _sort_entities(example: RelationExample) -> tuple[Entity, Entity, str]:
    """Return the first entity, the second one, and "<" if the first is the subject, else ">"."""
    subject, other = example.subject, example.object
    return (subject, other, "<") if subject.start <= other.start else (other, subject, ">")


def _between_text(example: RelationExample) -> str:
    first, last, _ = _sort_entities(example)
    return example.text[first.end : last.start]


def _types(example: RelationExample) -> list[str]:
    """Return the types of the entities with their order and distance."""
    first, last, order = _sort_entities(example)
    types = f"{example.subject.type}-{example.object.type}"
    distance = max(0, last.start - first.end).bit_length()
    words = min(6, len(_between_text(example).split()))
    one, two = example.subject.word, example.object.word
    return [
        types,
        f"{example.subject.type}-",
        f"-{example.object.type}",
        f"{types}{order}",
        f"{types}{order}{distance}",
        f"{order}{distance}",
        f"{types}{order}words{words}",
        f"{types}{'alike' if one in two or two in one else 'unlike'}",
    ]


def _types_only(example: RelationExample) -> list[str]:
    """Return the types of the entities without their positions."""
    return [f"{example.subject.type}-{example.object.type}", f"{example.subject.type}-", f"-{example.object.type}"]


def _names(example: RelationExample) -> list[str]:
    """Return the n-grams of the entities."""
    entities = {"s": example.subject.word, "o": example.object.word}
    return [f"{role}{token}" for role, word in entities.items() for token in (f"={word}", *_grams(word))]


def _around(example: RelationExample) -> list[str]:
    """Return the characters and words beside each entity: particles, titles, brackets."""
    tokens: list[str] = []
    for role, entity in (("s", example.subject), ("o", example.object)):
        before, after = example.text[: entity.start], example.text[entity.end :]
        tokens += [f"{role}[{before[-size:]}" for size in range(1, min(6, len(before)) + 1)]
        tokens += [f"{role}]{after[:size]}" for size in range(1, min(6, len(after)) + 1)]
        tokens += [f"{role}({word}" for word in before.split()[-2:]] + [f"{role}){word}" for word in after.split()[:3]]
    return tokens


def _between_grams(example: RelationExample) -> list[str]:
    order = _sort_entities(example)[2]
    return [f"{order}{gram}" for gram in _grams(_between_text(example)[:60])]


def _sentence_with_markers(example: RelationExample) -> list[str]:
    """Return the n-grams of the sentence with markers in place of the entities."""
    first, last, order = _sort_entities(example)
    markers = ("\ue000", "\ue001") if order == "<" else ("\ue001", "\ue000")  # private characters, which no text has
    between, after = _between_text(example), example.text[max(first.end, last.end) :]
    return _grams(f"{example.text[: first.start]}{markers[0]}{between}{markers[1]}{after}", 2, 4)


@dataclass(frozen=True)
class _Recipe:
    """The views and settings of a linear model for one type of task."""

    views: tuple[Any, ...]
    cost: float
    """C of the SVM, or alpha of the ridge regression."""
    sharpness: float = 3.0
    """The factor of the margins before the softmax."""


# The values were chosen on 15 % of the training data of ynat, sts, nli and re.
_RECIPES: Mapping[tuple[str, bool], _Recipe] = {
    ("classification", False): _Recipe((_text,), cost=0.5),
    ("classification", True): _Recipe((_pair, _only_second, _only_first, _overlap), cost=0.1, sharpness=2.0),
    ("relation", False): _Recipe((_types, _names, _around, _between_grams, _sentence_with_markers), cost=0.4),
    ("multilabel", False): _Recipe((_text,), cost=0.5),
    ("multilabel", True): _Recipe((_text, _pair, _only_second, _only_first, _overlap), cost=0.1, sharpness=2.0),
    ("regression", False): _Recipe((_text,), cost=1.0),
    ("regression", True): _Recipe((_difference, _intersection, _overlap), cost=1.0),
}
_PARTIAL: Mapping[str, _Recipe] = {  # relation extraction without the sentence, and without the entities
    "linear:entities": _Recipe((_types_only, _names), cost=0.4),
    "linear:sentence": _Recipe((_text,), cost=0.4),
}


def has_linear_model(task: Task) -> bool:
    """Return whether the linear model supports the task."""
    return (task.type.name, task.is_pair) in _RECIPES


# Files


def _check_not_empty(train: Sequence[Any]) -> Sequence[Any]:
    if not train:
        raise DanseoError(_("there are no training examples to learn from; check the data and limit"))
    return train


def _are_shares(shares: Any, task: Task) -> bool:
    """Return whether these are probabilities of the task's labels, or None for a task without labels."""
    has_labels = task.type.has_label_probabilities
    if not has_labels or not isinstance(shares, dict):
        return shares is None and not has_labels
    return set(shares) == {*task.labels} and all(
        isinstance(share, float) and 0 <= share <= 1 for share in shares.values()
    )


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(document, ensure_ascii=False) + "\n")


def _read_json(path: Path, task: Task) -> Mapping[str, Any]:
    document = read_object(path).values
    if document.get("task") != task.name:
        raise DataError(f"{path}: a model for {quote(document.get('task'))}, not for {task.name}; name another run")
    return document
