"""Models that need no encoder, so that every table has a floor: majority answers, and a linear model of n-grams."""

import io
import json
import math
import re
import time
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any
from unicodedata import is_normalized, normalize

import numpy as np
from numpy.typing import NDArray

from danseo.config import FLOORS as FLOORS
from danseo.config import RunConfig
from danseo.errors import DanseoError, DataError
from danseo.extras import require
from danseo.files import quote, read_bytes, write_atomically
from danseo.models.protocol import Answers, Events, Fitted, Loading
from danseo.records import Entity, Prediction, RelationExample, TextExample
from danseo.rows import read_object
from danseo.runs.directory import Run
from danseo.scoring.baselines import label_shares, majority_answers, usual_gold
from danseo.tasks import TASKS
from danseo.tasks.task import Task

View = Callable[[Any], Iterable[str]]
"""One way to see an example: as a bag of n-grams and other short texts."""
Array = NDArray[Any]


class Floor(ABC):
    """A model that goes over the training examples once; load takes up what save wrote."""

    reads_pos = False

    def __init__(self, task: Task, seed: int = 42) -> None:
        self.task, self.seed = task, seed

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> Fitted:
        events.begin()
        started = time.perf_counter()
        self.learn(train)
        answers = self.predict(dev)
        return Fitted(answers, seconds=time.perf_counter() - started)

    @abstractmethod
    def learn(self, train: Sequence[Any]) -> None:
        """Take from the training examples all that answering needs."""

    @abstractmethod
    def predict(self, examples: Sequence[Any]) -> Answers: ...

    @abstractmethod
    def save(self, folder: Path) -> None: ...

    @abstractmethod
    def load(self, folder: Path) -> None: ...


def make_floor(name: str, task: Task, seed: int = 42) -> Floor:
    """A floor by name, not fitted yet."""
    return Majority(task, seed) if name == "majority" else Linear(task, seed, name)


# What the table of families says of floors


def new_floor(config: RunConfig, task: Task, device: str | None) -> Floor:
    """The floor of a config; it takes the CPU, whatever the device."""
    return make_floor(config.model, task, config.seed)


def check_floor(config: RunConfig, task: Task) -> None:
    """Refuse a task that the floor does not know."""
    make_floor(config.model, task)


def floor_uses(setting: str) -> bool:
    """Whether a setting means anything to a floor: it is fitted at once, and has no head."""
    is_about_learning = setting.startswith(("train.", "head."))
    return not is_about_learning or setting in ("train.select_on", "train.halves", "train.threads", "train.augment")


def load_floor(run: Run, task: Task, loading: Loading) -> Floor:
    """The saved floor of a run."""
    config = run.config
    if loading.precision:
        raise DanseoError(f"{run.path} is a {config.model} model, which has no precision; leave --precision out")
    floor = make_floor(config.model, task)
    floor.load(run.path / "model")
    return floor


def packages_of_floor(model: str, task: str) -> tuple[str, ...]:
    """Counting needs nothing, the linear model scikit-learn."""
    return () if model == "majority" else ("scikit-learn",)


def size_of_floor(model: str, trust_remote_code: bool, offline: bool) -> float:
    """A rough number of weights, for estimates."""
    return 1e3 if model == "majority" else 1e5


class Majority(Floor):
    """The most frequent answer of the training examples, whatever the input."""

    def __init__(self, task: Task, seed: int = 42) -> None:
        super().__init__(task, seed)
        self.usual: Any = None
        self.shares: dict[str, float] | None = None

    def learn(self, train: Sequence[Any]) -> None:
        self.usual = usual_gold(self.task, _some(train))
        if self.task.kind in ("classify", "labels"):
            shares = label_shares(train)
            self.shares = {label: shares.get(label, 0.0) for label in self.task.labels}

    def predict(self, examples: Sequence[Any]) -> Answers:
        answers = majority_answers(self.task, examples, self.usual)
        return Answers([Prediction(e.guid, answer, self.shares) for e, answer in zip(examples, answers, strict=True)])

    def save(self, folder: Path) -> None:
        _write_json(folder / "majority.json", {"task": self.task.name, "usual": self.usual, "shares": self.shares})

    def load(self, folder: Path) -> None:
        document = _read_json(folder / "majority.json", self.task)
        self.usual, self.shares = document.get("usual"), document.get("shares")
        if isinstance(self.usual, list):
            self.usual = tuple(self.usual)
        if not ("usual" in document and _are_shares(self.shares, self.task) and self._answers_itself()):
            raise DataError(f"{folder / 'majority.json'} is damaged or of another version; train the run again")

    def _answers_itself(self) -> bool:
        """Whether the usual answer is one of the task's."""
        if self.task.kind == "classify":
            return self.usual in self.task.labels
        if self.task.kind == "labels":
            return isinstance(self.usual, tuple) and all(label in self.task.labels for label in self.usual)
        if self.task.kind == "score":
            return isinstance(self.usual, float) and math.isfinite(self.usual)
        return isinstance(self.usual, str) if self.task.kind == "parse" else self.usual is None


class Linear(Floor):
    """TF-IDF of several bags of tokens; a support vector machine for labels, ridge regression for numbers."""

    def __init__(self, task: Task, seed: int = 42, name: str = "linear") -> None:
        super().__init__(task, seed)
        if name != "linear" and (task.kind, task.form) != ("classify", "relation"):
            raise DanseoError(
                f"{name} sees entities or sentences alone, and {task.name} has no entities; use -m linear"
            )
        if (way := _BLIND.get(name, _WAYS.get((task.kind, task.form)))) is None:
            known = ", ".join(other.name for other in TASKS.values() if (other.kind, other.form) in _WAYS)
            raise DanseoError(f"the linear model knows {known} and their like, not {task.name}; use -m majority there")
        self.way = way
        self.bags = {view.__name__.strip("_"): Bag(view) for view in way.views}
        self.labels: list[str] = []
        self.weights = np.zeros((0, 0), dtype=np.float32)  # a row per token
        self.bias = np.zeros(0)
        self.range = np.zeros(2)

    def learn(self, train: Sequence[Any]) -> None:
        _sklearn("svm")  # complains before the work if it is absent
        train = [_composed(example) for example in train]
        for bag in self.bags.values():
            bag.fit(_some(train))
        golds = [example.gold for example in train]
        if self.task.kind == "score":
            self._regress(self._features(train), np.array(golds))
        elif self.task.kind == "labels":
            self._separate_each(self._features(train), golds)
        else:
            self._separate(self._features(train), golds)

    def _separate(self, features: Any, golds: list[str]) -> None:
        self.labels = [label for label in self.task.labels if label in set(golds)]
        if len(self.labels) < 2:
            raise DanseoError(f"linear needs training examples of two labels, but all are {golds[0]}; raise limit")
        # Where the score is a mean over labels, as of topics, rare ones matter; relations are pooled.
        balance = "balanced" if "macro" in self.task.headline else None
        machine = _sklearn("svm").LinearSVC(C=self.way.cost, class_weight=balance, tol=1e-3, random_state=self.seed)
        machine.fit(features, [self.labels.index(gold) for gold in golds])
        weights, bias = machine.coef_.T, machine.intercept_
        if len(self.labels) == 2:  # one boundary serves both labels
            weights, bias = np.hstack([-weights, weights]), np.hstack([-bias, bias])
        self.weights, self.bias = np.ascontiguousarray(weights, dtype=np.float32), bias

    def _separate_each(self, features: Any, golds: list[tuple[str, ...]]) -> None:
        """A boundary for each label: with it or without."""
        counts = Counter(label for gold in golds for label in gold)
        self.labels = [label for label in self.task.labels if 0 < counts[label] < len(golds)]
        if not self.labels:
            raise DanseoError(
                "linear needs texts with a label and texts without it, and no label has both; raise limit"
            )
        found = []
        for label in self.labels:
            machine = _sklearn("svm").LinearSVC(
                C=self.way.cost, class_weight="balanced", tol=1e-3, random_state=self.seed
            )
            machine.fit(features, [label in gold for gold in golds])
            found.append((machine.coef_[0], machine.intercept_[0]))
        self.weights = np.ascontiguousarray(np.stack([weights for weights, _ in found], axis=1), dtype=np.float32)
        self.bias = np.array([bias for _, bias in found])

    def _regress(self, features: Any, golds: Array) -> None:
        ridge = _sklearn("linear_model").Ridge(alpha=self.way.cost, solver="sparse_cg", random_state=self.seed)
        ridge.fit(features, golds)
        self.weights, self.bias = ridge.coef_.reshape(-1, 1).astype(np.float32), np.atleast_1d(ridge.intercept_)
        self.range = np.array([golds.min(), golds.max()])

    def predict(self, examples: Sequence[Any]) -> Answers:
        return Answers(self._answers(examples) if examples else [])

    def _answers(self, examples: Sequence[Any]) -> list[Prediction]:
        outputs = self._features([_composed(example) for example in examples]) @ self.weights + self.bias
        if self.task.kind == "score":
            numbers = np.clip(outputs[:, 0], *self.range)
            return [Prediction(e.guid, round(float(number), 6)) for e, number in zip(examples, numbers, strict=True)]
        answer = self._with_labels if self.task.kind == "labels" else self._labelled
        return [answer(example.guid, row) for example, row in zip(examples, outputs, strict=True)]

    def _labelled(self, guid: str, margins: Array) -> Prediction:
        raised = np.exp(self.way.sharpness * (margins - margins.max()))
        found = dict(zip(self.labels, raised / raised.sum(), strict=True))
        probabilities = {label: float(found.get(label, 0.0)) for label in self.task.labels}
        return Prediction(guid, self.labels[int(margins.argmax())], probabilities)

    def _with_labels(self, guid: str, margins: Array) -> Prediction:
        """Every label on whose side the text lies."""
        chances = 1 / (1 + np.exp(-self.way.sharpness * margins))
        found = dict(zip(self.labels, chances.tolist(), strict=True))
        probabilities = {label: found.get(label, 0.0) for label in self.task.labels}
        return Prediction(guid, tuple(label for label, chance in probabilities.items() if chance > 0.5), probabilities)

    def _features(self, examples: Sequence[Any]) -> Any:
        from scipy.sparse import hstack

        return hstack([bag.transform(examples) for bag in self.bags.values()], format="csr")

    def save(self, folder: Path) -> None:
        tokens = {name: list(bag.tokens) for name, bag in self.bags.items()}
        _write_json(folder / "linear.json", {"task": self.task.name, "labels": self.labels, "tokens": tokens})
        arrays: dict[str, Any] = {f"rarity.{name}": bag.rarity for name, bag in self.bags.items()}
        content = io.BytesIO()
        np.savez(content, weights=self.weights, bias=self.bias, range=self.range, **arrays)
        write_atomically(folder / "linear.npz", content.getvalue())

    def load(self, folder: Path) -> None:
        document = _read_json(folder / "linear.json", self.task)
        try:
            with np.load(io.BytesIO(read_bytes(folder / "linear.npz")), allow_pickle=False) as arrays:
                self.weights, self.bias, self.range = (arrays[name] for name in ("weights", "bias", "range"))
                for name, bag in self.bags.items():
                    bag.restore(document["tokens"][name], arrays[f"rarity.{name}"])
            self.labels = document["labels"]
            self._check()
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OSError, EOFError, zipfile.error):
            raise DataError(f"{folder / 'linear.npz'} is damaged or of another version; train the run again") from None

    def _check(self) -> None:
        """A ValueError where the parts do not fit together."""
        tokens = sum(len(bag.tokens) for bag in self.bags.values())
        columns = 1 if self.task.kind == "score" else len(self.labels)
        arrays: list[Array] = [self.weights, self.bias, self.range, *(bag.rarity for bag in self.bags.values())]
        shapes = [(tokens, columns), (columns,), (2,), *((len(bag.tokens),) for bag in self.bags.values())]
        is_numbers = all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays)
        if [array.shape for array in arrays] != shapes or not is_numbers or not set(self.labels) <= {*self.task.labels}:
            raise ValueError("parts that do not fit together")


class Bag:
    """TF-IDF of one view of the examples: rows of length 1, in which repeated tokens count little more than once."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.tokens: Sequence[str] = ()
        self.rarity: Array = np.zeros(0, dtype=np.float32)

    def fit(self, examples: Sequence[Any]) -> None:
        """Keep the tokens of at least two examples; of few examples, all."""
        vectorizer = self._vectorizer(min_df=2 if len(examples) >= 1000 else 1)
        with suppress(ValueError):  # no token is left: the bag stays empty
            vectorizer.fit(examples)
            self.restore(vectorizer.get_feature_names_out().tolist(), vectorizer.idf_)

    def restore(self, tokens: Sequence[str], rarity: Array) -> None:
        self.tokens, self.rarity = list(dict.fromkeys(tokens)), rarity

    def transform(self, examples: Sequence[Any]) -> Any:
        """A sparse matrix with a row per example."""
        from scipy.sparse import csr_matrix

        if not len(self.tokens):
            return csr_matrix((len(examples), 0), dtype=np.float32)
        vectorizer = self._vectorizer(vocabulary=self.tokens)
        vectorizer.idf_ = self.rarity
        return vectorizer.transform(examples)

    def _vectorizer(self, **options: Any) -> Any:
        require("scikit-learn")
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(analyzer=self.view, sublinear_tf=True, dtype=np.float32, **options)


# How examples are seen


def _composed(example: Any) -> Any:
    """The example with its text composed (NFC), so that decomposed text is seen as the same."""
    pair = getattr(example, "pair", None)
    if is_normalized("NFC", example.text) and is_normalized("NFC", pair or ""):
        return example
    text = normalize("NFC", example.text)
    if isinstance(example, RelationExample):
        subject, other = (_moved(entity, example.text) for entity in (example.subject, example.object))
        return replace(example, text=text, subject=subject, object=other)
    return replace(example, text=text, pair=pair and normalize("NFC", pair))


def _moved(entity: Entity, text: str) -> Entity:
    start, end = (len(normalize("NFC", text[:position])) for position in (entity.start, entity.end))
    return replace(entity, word=normalize("NFC", entity.word), start=start, end=end)


def _grams(text: str, low: int = 1, high: int = 4) -> list[str]:
    """Character n-grams inside words: 나는 gives, among others, " 나", "나는" and "는 "."""
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


def _added(example: TextExample) -> list[str]:
    """What only the second text has."""
    return _missing_from(example.text, example.pair or "")


def _dropped(example: TextExample) -> list[str]:
    """What only the first text has."""
    return _missing_from(example.pair or "", example.text)


def _changed(example: TextExample) -> list[str]:
    return _added(example) + _dropped(example)


def _kept(example: TextExample) -> list[str]:
    """What both texts have."""
    first = set(_grams(example.text))
    return [gram for gram in _grams(example.pair or "") if gram in first]


def _missing_from(text: str, other: str) -> list[str]:
    known = set(_grams(text))
    return [gram for gram in _grams(other) if gram not in known]


def _overlap(example: TextExample) -> list[str]:
    """How much the texts share, in steps; pairs of steps let a linear model see them together."""
    shares, flags = _shares(example.text, example.pair or ""), _flags(example.text, example.pair or "")
    coarse = [f"{name}={int(6 * share)}" for name, share in shares.items()] + flags
    fine = [f"{name}:{int(12 * share)}" for name, share in shares.items()]
    return [*fine, *flags, *map("&".join, combinations(coarse, 2))]


def _shares(first: str, second: str) -> dict[str, float]:
    """Numbers from 0 to 1: shared n-grams and words, and lengths."""
    shares: dict[str, float] = {}
    bags = {str(size): [set(_grams(text, size, size)) for text in (first, second)] for size in (1, 2, 3)}
    for name, (one, two) in {**bags, "word": [set(first.split()), set(second.split())]}.items():
        both = len(one & two)
        shares |= {f"of2-{name}": both / max(1, len(two)), f"of1-{name}": both / max(1, len(one))}
        if name != "word":
            shares[f"either-{name}"] = both / max(1, len(one | two))
    return {**shares, "ratio": min(len(second) / max(1, len(first)), 2) / 2, "length": min(len(second), 60) / 60}


def _flags(first: str, second: str) -> list[str]:
    """Whether both are negated, and whether they name the same figures."""
    negations = [min(2, sum(text.count(word) for word in _NEGATIONS)) for text in (first, second)]
    one, two = (set(re.findall(r"\d+", text)) for text in (first, second))
    return [f"negations={negations}", f"figures={bool(two - one)},{bool(one - two)},{bool(one & two)}"]


_NEGATIONS = ("않", "못", "안 ", "없", "아니", "금지", "말")


def _in_order(example: RelationExample) -> tuple[Entity, Entity, str]:
    """The entity that comes first, the other one, and a sign of whether the first is the subject."""
    subject, other = example.subject, example.object
    return (subject, other, "<") if subject.start <= other.start else (other, subject, ">")


def _between_text(example: RelationExample) -> str:
    first, last, _ = _in_order(example)
    return example.text[first.end : last.start]


def _types(example: RelationExample) -> list[str]:
    """The types of the entities with their order and distance."""
    first, last, order = _in_order(example)
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


def _types_alone(example: RelationExample) -> list[str]:
    """The types of the entities, and nothing of where they stand."""
    return [f"{example.subject.type}-{example.object.type}", f"{example.subject.type}-", f"-{example.object.type}"]


def _names(example: RelationExample) -> list[str]:
    """The entities themselves."""
    entities = {"s": example.subject.word, "o": example.object.word}
    return [f"{role}{token}" for role, word in entities.items() for token in (f"={word}", *_grams(word))]


def _around(example: RelationExample) -> list[str]:
    """The characters and words that touch each entity: particles, titles, brackets."""
    tokens: list[str] = []
    for role, entity in (("s", example.subject), ("o", example.object)):
        before, after = example.text[: entity.start], example.text[entity.end :]
        tokens += [f"{role}[{before[-size:]}" for size in range(1, min(6, len(before)) + 1)]
        tokens += [f"{role}]{after[:size]}" for size in range(1, min(6, len(after)) + 1)]
        tokens += [f"{role}({word}" for word in before.split()[-2:]] + [f"{role}){word}" for word in after.split()[:3]]
    return tokens


def _between(example: RelationExample) -> list[str]:
    order = _in_order(example)[2]
    return [f"{order}{gram}" for gram in _grams(_between_text(example)[:60])]


def _marked(example: RelationExample) -> list[str]:
    """The sentence with marks in place of the entities."""
    first, last, order = _in_order(example)
    marks = ("\ue000", "\ue001") if order == "<" else ("\ue001", "\ue000")  # private characters, which no text has
    between, after = _between_text(example), example.text[max(first.end, last.end) :]
    return _grams(f"{example.text[: first.start]}{marks[0]}{between}{marks[1]}{after}", 2, 4)


@dataclass(frozen=True)
class _Way:
    """How a linear model goes about a kind of answer to a form of example."""

    views: tuple[Any, ...]
    cost: float
    """The machine's C, or the ridge's alpha."""
    sharpness: float = 3.0
    """What margins are multiplied by before the softmax."""


# The numbers were chosen on 15 % of train, held out, of ynat, sts, nli and re.
_WAYS: Mapping[tuple[str, str], _Way] = {
    ("classify", "text"): _Way((_text,), cost=0.5),
    ("classify", "pair"): _Way((_pair, _added, _dropped, _overlap), cost=0.1, sharpness=2.0),
    ("classify", "relation"): _Way((_types, _names, _around, _between, _marked), cost=0.4),
    ("labels", "text"): _Way((_text,), cost=0.5),
    ("labels", "pair"): _Way((_text, _pair, _added, _dropped, _overlap), cost=0.1, sharpness=2.0),
    ("score", "text"): _Way((_text,), cost=1.0),
    ("score", "pair"): _Way((_changed, _kept, _overlap), cost=1.0),
}
_BLIND: Mapping[str, _Way] = {  # of relations: what can be known without the sentence, and without the entities
    "linear:entities": _Way((_types_alone, _names), cost=0.4),
    "linear:sentence": _Way((_text,), cost=0.4),
}


# Files and libraries


def _some(train: Sequence[Any]) -> Sequence[Any]:
    if not train:
        raise DanseoError("there are no training examples to learn from; check the data and limit")
    return train


def _sklearn(part: str) -> Any:
    require("scikit-learn")
    from sklearn import linear_model, svm

    return svm if part == "svm" else linear_model


def _are_shares(shares: Any, task: Task) -> bool:
    """Whether these are probabilities of the labels, where the task has any."""
    has_labels = task.kind in ("classify", "labels")
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
