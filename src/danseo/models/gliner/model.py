"""GLiNER as a tagger: words for types in, spans out; it learns, or answers as it is."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from danseo.config import RunConfig
from danseo.data.halves import in_half
from danseo.errors import DanseoError
from danseo.models.gliner.classic import Worker, is_classic, merged, names_words
from danseo.models.gliner.network import (
    PREFIX,
    GlinerNetwork,
    Objective,
    features_of,
    found_spans,
    load_extractor,
)
from danseo.models.gliner.thresholds import LEAST, USUAL, passing, tuned
from danseo.models.protocol import Answers, Events, Fitted, Loading
from danseo.models.spans import Span, answers_of, gold_spans, label_words, types_of
from danseo.runs.directory import Run
from danseo.runs.scores import finite
from danseo.scoring.score import measure
from danseo.tasks.task import Task
from danseo.training.fit import Fitting, Progress
from danseo.training.loop import Engine
from danseo.training.numbers import settle
from danseo.training.speed import ComputeMode
from danseo.training.workers import Workers

WORDS = {"PS": "인물", "LC": "장소", "OG": "기관", "DT": "날짜", "TI": "시간", "QT": "수량"}
_OVERLAP = 32  # characters that windows share
_HELD = 500  # training examples at most that thresholds are tuned on


class Finder(ABC):
    """A model that finds spans under words, with a threshold per type; a subclass says how."""

    reads_pos = False
    device: str

    def __init__(self, config: RunConfig, task: Task, *, learns: bool) -> None:
        self.config, self.task, self.learns = config, task, learns
        self.labels = label_words(config.head.label_words, task, WORDS)
        self.thresholds = dict.fromkeys(types_of(task), USUAL)

    @abstractmethod
    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """All spans worth a thought, of texts that are short enough."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """What load() takes up."""

    def learn(self, train: Sequence[Any], chosen: Sequence[Any], events: Events) -> Any:
        """Become better at the chosen examples; how that went comes out."""
        raise NotImplementedError

    def surroundings(self) -> dict[str, Any]:
        """What is worth noting of the model."""
        return {}

    # Fitting

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> Fitted:
        """Learn from most of train, tune thresholds on the rest, answer dev."""
        learned, held = self._parted(train)
        positions = in_half(self.task, dev, self.config.train.select_on)
        if not positions:
            raise DanseoError("no dev example falls into the select half; use --select-on dev for so small a set")
        events.begin()
        events.note(self._windows_line(dev))
        facts: dict[str, Any] = {"monitor": self.task.headline}
        seconds = 0.0
        if self.learns:
            progress = self.learn(learned, [dev[position] for position in positions], events)
            seconds = progress.seconds
            facts |= {"best_step": progress.best_step, "steps": progress.step, "select_score": finite(progress.best)}
        self.thresholds = tuned(self._found(held), [gold_spans(example) for example in held], types_of(self.task))
        found = self._found(dev)
        usual = self._answers(dev, found, dict.fromkeys(self.thresholds, USUAL))
        value = finite(measure(self.task, dev, usual.predictions)[self.task.headline].value())
        facts |= {"thresholds": self.thresholds, "tuned_on": len(held), "dev_at_usual_threshold": value}
        shown = ", ".join(f"{type} {threshold:.2f}" for type, threshold in self.thresholds.items())
        events.note(f"thresholds tuned on {len(held)} held-out training examples: {shown}")
        return Fitted(self._answers(dev, found, self.thresholds), self.device, seconds, self.surroundings(), facts)

    def _parted(self, train: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What is learned from, and what thresholds are tuned on; where nothing is learned, some of all."""
        shuffled = list(train)
        random.Random(self.config.seed).shuffle(shuffled)
        if not self.learns:
            return [], shuffled[:_HELD]
        count = min(_HELD, max(1, len(shuffled) // 10))
        return shuffled[count:], shuffled[:count]

    # Predicting

    def predict(self, examples: Sequence[Any]) -> Answers:
        return self._answers(examples, self._found(examples), self.thresholds)

    def _answers(self, examples: Sequence[Any], found: Sequence[list[Span]], thresholds: dict[str, float]) -> Answers:
        return answers_of(self.task, examples, [passing(spans, thresholds) for spans in found])

    def _found(self, examples: Sequence[Any]) -> list[list[Span]]:
        """Spans with any score worth a thought, of all windows of each text."""
        pieces = [
            (number, start, example.text[start:end])
            for number, example in enumerate(examples)
            for start, end in self._windows(example.text)
        ]
        spans = self.spans([text for _, _, text in pieces]) if pieces else []
        found: list[list[Span]] = [[] for _ in examples]
        for (number, begin, _), listed in zip(pieces, spans, strict=True):
            found[number] += [span._replace(start=span.start + begin, end=span.end + begin) for span in listed]
        return found

    def _windows(self, text: str) -> list[tuple[int, int]]:
        """Stretches of at most max_length characters that share some with the next; none of a blank text."""
        if not text.strip():
            return []
        size = max(self.config.head.max_length, 2 * _OVERLAP)
        starts = range(0, max(1, len(text) - _OVERLAP), size - _OVERLAP)
        return [(start, min(start + size, len(text))) for start in starts]

    def _windows_line(self, examples: Sequence[Any]) -> str:
        long = sum(len(self._windows(example.text)) > 1 for example in examples)
        size = max(self.config.head.max_length, 2 * _OVERLAP)
        return f"{long} of {len(examples)} dev texts are longer than {size} characters and read in windows"


class Gliner(Finder):
    """A GLiNER 2 model, in this process; it learns unless the settings say otherwise."""

    def __init__(self, config: RunConfig, task: Task, workers: Workers, source: Path | None = None) -> None:
        super().__init__(config, task, learns=not config.train.zero_shot)
        self.workers, self.device = workers, str(workers.device)
        settle(config.train, workers.device)
        torch.manual_seed(config.seed)
        name = str(source) if source else config.model.removeprefix(PREFIX)
        self.network = GlinerNetwork(load_extractor(name, config.trust_remote_code)).to(workers.device)

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        self.network.eval()
        batch = max(1, self.config.train.batch_size)
        return found_spans(self.network.extractor, texts, self.labels, LEAST, batch)

    def learn(self, train: Sequence[Any], chosen: Sequence[Any], events: Events) -> Progress:
        """With the loop of all networks here: schedules, checkpoints, the best weights by the select half."""
        features = [record for number, example in enumerate(train) for record in self.features(number, example)]
        if not features:
            raise DanseoError("no training example is left beside those that thresholds are tuned on; raise limit")
        half = self.config.train.precision if self.config.train.precision in ("bf16", "fp16") else "fp32"
        tokens = self.config.train.batch_tokens
        engine = Engine(self.network, Objective(), self.workers, ComputeMode(half, "eager"), tokens, events.note)
        fitting = Fitting(engine, features, self.config.train, self.config.seed, events.run)
        return fitting.run_to_end(lambda: self._score(chosen), events)

    def features(self, number: int, example: Any) -> list[Any]:
        """An example for learning, window by window."""
        spans = gold_spans(example)
        return [
            features_of(number, example.text[start:end], _inside(spans, start, end), self.labels)
            for start, end in self._windows(example.text)
        ]

    def _score(self, examples: Sequence[Any]) -> float:
        answers = self._answers(examples, self._found(examples), self.thresholds)
        return measure(self.task, examples, answers.predictions)[self.task.headline].value()

    def surroundings(self) -> dict[str, Any]:
        return {"parameters": sum(weight.numel() for weight in self.network.parameters())}

    def save(self, folder: Path) -> None:
        """As GLiNER 2 loads it, and the thresholds."""
        extractor = self.network.extractor
        extractor.save_pretrained(folder)
        extractor.processor.tokenizer.save_pretrained(folder)
        save_thresholds(self, folder)


class Classic(Finder):
    """A classic GLiNER or NuNER Zero in a process of its own; it answers as it is."""

    device = "cpu"

    def __init__(self, config: RunConfig, task: Task) -> None:
        super().__init__(config, task, learns=False)
        self.worker = Worker(config.model.removeprefix(PREFIX))

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        types = {word: type for type, words in self.labels.items() for word in words}
        listed = self.worker.spans(texts, list(types), LEAST)
        found = [[Span(start, end, types[word], score) for start, end, word, score in spans] for spans in listed]
        if not names_words(self.config.model):
            return found
        return [merged(spans, text) for spans, text in zip(found, texts, strict=True)]

    def surroundings(self) -> dict[str, Any]:
        return {"gliner": self.worker.version}

    def save(self, folder: Path) -> None:
        """The thresholds; the checkpoint stays where it is."""
        save_thresholds(self, folder)


def save_thresholds(model: Finder, folder: Path) -> None:
    """What predicting needs beside the weights."""
    Run(folder.parent).write_json(f"{folder.name}/danseo.json", {"thresholds": model.thresholds})


def _inside(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """Those that a window holds as a whole, counted from its beginning."""
    return [s._replace(start=s.start - start, end=s.end - start) for s in spans if start <= s.start and s.end <= end]


# What the table of families says of them


def check(config: RunConfig, task: Task) -> None:
    """Refuse tasks without entities and settings that it does not follow."""
    if task.kind != "tag":
        raise DanseoError(f"gliner finds entities and does not know {task.name}; use it for ner")
    if config.train.freeze != "none" or config.train.lora:
        raise DanseoError("gliner learns as a whole; leave train.freeze and train.lora out")
    label_words(config.head.label_words, task, WORDS)


def make(config: RunConfig, task: Task, device: str | None) -> Finder:
    """A checkpoint, ready to learn or to answer."""
    is_old = is_classic(config.model.removeprefix(PREFIX))
    return Classic(config, task) if is_old else Gliner(config, task, Workers(device))


def load(run: Run, task: Task, loading: Loading) -> Finder:
    """The saved model of a run with its thresholds."""
    if loading.precision:
        raise DanseoError(f"{run.path} is a GLiNER model, which predicts in fp32; leave --precision out")
    folder = run.path / "model"
    is_whole = (folder / "model.safetensors").is_file()
    model = Gliner(run.config, task, Workers(loading.device), folder) if is_whole else Classic(run.config, task)
    model.thresholds = run.read_json("model/danseo.json")["thresholds"]
    return model
