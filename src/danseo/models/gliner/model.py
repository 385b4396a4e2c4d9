"""GLiNER as a tagging model, zero-shot or fine-tuned, with a threshold per type."""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.files import to_finite
from danseo.models.base import Answers, Events, LoadOptions, TrainResult, choose_select_examples
from danseo.models.checkpoint import apply_trust
from danseo.models.entity_spans import EntitySpan, get_gold_spans, make_answers, parse_label_names
from danseo.models.gliner.network import (
    PREFIX,
    GlinerLoss,
    GlinerNetwork,
    GlinerProcess,
    extract_spans,
    is_classic,
    labels_single_words,
    load_extractor,
    make_features,
    merge_neighbors,
)
from danseo.runs.store import Run
from danseo.scoring.score import compute_headline
from danseo.tasktypes.base import Task
from danseo.tasktypes.tagging import get_entity_types
from danseo.training.distributed import Workers
from danseo.training.precision import ComputeConfig, configure_torch
from danseo.training.processes import compute_shared
from danseo.training.trainer import Progress, Trainer
from danseo.training.training_loop import Engine

LEAST, USUAL = 0.05, 0.5
_GRID = [step / 20 for step in range(1, 20)]


def tune_thresholds(
    found: Sequence[Sequence[EntitySpan]], gold: Sequence[Sequence[EntitySpan]], types: Sequence[str]
) -> dict[str, float]:
    """Return the threshold of each type with the best F1; of equal ones that nearest to the default."""
    return {type: max(_GRID, key=lambda t: (_f1(found, gold, type, t), -abs(t - USUAL))) for type in types}


def _f1(
    found: Sequence[Sequence[EntitySpan]], gold: Sequence[Sequence[EntitySpan]], type: str, threshold: float
) -> float:
    hits = guesses = wanted = 0
    for spans, right in zip(found, gold, strict=True):
        guessed = {span[:2] for span in spans if span.type == type and span.score >= threshold}
        real = {span[:2] for span in right if span.type == type}
        hits, guesses, wanted = hits + len(guessed & real), guesses + len(guessed), wanted + len(real)
    return 2 * hits / max(1, guesses + wanted)


def filter_spans(spans: Sequence[EntitySpan], thresholds: Mapping[str, float]) -> list[EntitySpan]:
    """Return the spans above the threshold of their type; scores are rescaled so that it is 0.5."""
    return [
        span._replace(score=0.5 + 0.5 * (span.score - low) / max(1e-6, 1 - low))
        for span in spans
        if span.score >= (low := thresholds.get(span.type, USUAL))
    ]


WORDS = {"PS": "인물", "LC": "장소", "OG": "기관", "DT": "날짜", "TI": "시간", "QT": "수량"}
_OVERLAP = 32  # characters that windows share
_HELD = 500  # training examples at most that thresholds are tuned on


class SpanModel(ABC):
    """Base of models that find entity spans by words, with a threshold per type."""

    reads_pos = False
    device: str

    def __init__(self, config: RunConfig, task: Task, *, learns: bool) -> None:
        self.config, self.task, self.learns = config, task, learns
        self.labels = parse_label_names("gliner", config.gliner.label_names, task, WORDS)
        self.thresholds = dict.fromkeys(get_entity_types(task.labels), USUAL)

    @abstractmethod
    def spans(self, texts: Sequence[str]) -> list[list[EntitySpan]]:
        """Return all spans above the lowest threshold, of texts within the length limit."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save what load() reads."""

    def learn(self, train: Sequence[Any], chosen: Sequence[Any], events: Events) -> Any:
        """Train; select the best step on the chosen examples."""
        raise NotImplementedError

    def environment(self) -> dict[str, Any]:
        """Return facts about the model for environment.json."""
        return {}

    # Training

    def prepare_data(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> None:
        """Split train, and choose the dev examples that pick the weights."""
        self.learned, self.held = self._split_train(train)
        self.chosen = choose_select_examples(self.config, self.task, dev)

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> TrainResult:
        """Learn from most of train, tune thresholds on the rest, answer dev."""
        held = self.held
        events.note(self._windows_line(dev))
        facts: dict[str, Any] = {"monitor": self.task.headline}
        seconds = 0.0
        if self.learns:
            progress = self.learn(self.learned, self.chosen, events)
            seconds = progress.seconds
            facts |= {"best_step": progress.best_step, "steps": progress.step, "select_score": to_finite(progress.best)}
        self.thresholds = tune_thresholds(
            self._find_spans(held), [get_gold_spans(example) for example in held], get_entity_types(self.task.labels)
        )
        found = self._find_spans(dev)
        usual = self._answers(dev, found, dict.fromkeys(self.thresholds, USUAL))
        value = to_finite(compute_headline(self.task, dev, usual.predictions))
        facts |= {"thresholds": self.thresholds, "tuned_on": len(held), "dev_at_usual_threshold": value}
        shown = ", ".join(f"{type} {threshold:.2f}" for type, threshold in self.thresholds.items())
        events.note(f"thresholds tuned on {len(held)} held-out training examples: {shown}")
        return TrainResult(self._answers(dev, found, self.thresholds), self.device, seconds, self.environment(), facts)

    def _split_train(self, train: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Split train into examples for training and for thresholds; without training, sample the latter."""
        shuffled = list(train)
        random.Random(self.config.seed).shuffle(shuffled)
        if not self.learns:
            return [], shuffled[:_HELD]
        count = min(_HELD, max(1, len(shuffled) // 10))
        return shuffled[count:], shuffled[:count]

    # Predicting

    def predict(self, examples: Sequence[Any]) -> Answers:
        return self._answers(examples, self._find_spans(examples), self.thresholds)

    def _answers(
        self, examples: Sequence[Any], found: Sequence[list[EntitySpan]], thresholds: dict[str, float]
    ) -> Answers:
        return make_answers(self.task, examples, [filter_spans(spans, thresholds) for spans in found])

    def _find_spans(self, examples: Sequence[Any]) -> list[list[EntitySpan]]:
        """Return the spans of all windows of each text."""
        windows = [
            (number, start, example.text[start:end])
            for number, example in enumerate(examples)
            for start, end in self._windows(example.text)
        ]
        spans = compute_shared(self.spans, [text for _, _, text in windows])
        found: list[list[EntitySpan]] = [[] for _ in examples]
        for (number, begin, _), listed in zip(windows, spans, strict=True):
            found[number] += [span._replace(start=span.start + begin, end=span.end + begin) for span in listed]
        return found

    def _windows(self, text: str) -> list[tuple[int, int]]:
        """Return overlapping windows of at most max_length characters; none for a blank text."""
        if not text.strip():
            return []
        size = max(self.config.train.max_length, 2 * _OVERLAP)
        starts = range(0, max(1, len(text) - _OVERLAP), size - _OVERLAP)
        return [(start, min(start + size, len(text))) for start in starts]

    def _windows_line(self, examples: Sequence[Any]) -> str:
        long = sum(len(self._windows(example.text)) > 1 for example in examples)
        size = max(self.config.train.max_length, 2 * _OVERLAP)
        return f"{long} of {len(examples)} dev texts are longer than {size} characters and read in windows"


class Gliner2Model(SpanModel):
    """A GLiNER 2 model; it trains unless the settings say zero-shot."""

    def __init__(self, config: RunConfig, task: Task, workers: Workers, source: Path | None = None) -> None:
        super().__init__(config, task, learns=not config.gliner.zero_shot)
        self.workers, self.device = workers, str(workers.device)
        configure_torch(config.train, workers.device)
        torch.manual_seed(config.seed)
        name = str(source) if source else config.model.removeprefix(PREFIX)
        self.network = GlinerNetwork(load_extractor(name, config.trust_remote_code)).to(workers.device)

    def spans(self, texts: Sequence[str]) -> list[list[EntitySpan]]:
        self.network.eval()
        batch = max(1, self.config.train.batch_size)
        return extract_spans(self.network.extractor, texts, self.labels, LEAST, batch)

    def learn(self, train: Sequence[Any], chosen: Sequence[Any], events: Events) -> Progress:
        """Train with the common trainer; keep the best weights on the select split."""
        features = [record for number, example in enumerate(train) for record in self.features(number, example)]
        if not features:
            raise DanseoError("all training examples are used to tune thresholds; raise max_train_samples")
        precision = self.config.train.precision if self.config.train.precision in ("bf16", "fp16") else "fp32"
        tokens = self.config.train.max_batch_tokens
        engine = Engine(
            self.network, GlinerLoss(), self.workers, ComputeConfig(precision, "eager"), tokens, events.note
        )
        trainer = Trainer(engine, features, self.config.train, self.config.seed, events.run)
        return trainer.train(lambda: compute_headline(self.task, chosen, self.predict(chosen).predictions), events)

    def features(self, number: int, example: Any) -> list[Any]:
        """Return the training features of an example, one record per window."""
        spans = get_gold_spans(example)
        return [
            make_features(number, example.text[start:end], _select_inside(spans, start, end), self.labels)
            for start, end in self._windows(example.text)
        ]

    def environment(self) -> dict[str, Any]:
        return {"parameters": sum(weight.numel() for weight in self.network.parameters())}

    def save(self, folder: Path) -> None:
        """Save the checkpoint in the format of GLiNER 2, and the thresholds."""
        extractor = self.network.extractor
        extractor.save_pretrained(folder)
        extractor.processor.tokenizer.save_pretrained(folder)
        save_thresholds(self, folder)


class ClassicGlinerModel(SpanModel):
    """A classic GLiNER or NuNER Zero in its own process; it does not train."""

    device = "cpu"

    def __init__(self, config: RunConfig, task: Task) -> None:
        super().__init__(config, task, learns=False)
        self.worker = GlinerProcess(config.model.removeprefix(PREFIX), config.trust_remote_code)

    def spans(self, texts: Sequence[str]) -> list[list[EntitySpan]]:
        types = {word: type for type, words in self.labels.items() for word in words}
        listed = self.worker.spans(texts, list(types), LEAST)
        found = [[EntitySpan(start, end, types[word], score) for start, end, word, score in spans] for spans in listed]
        if not labels_single_words(self.config.model):
            return found
        return [merge_neighbors(spans, text) for spans, text in zip(found, texts, strict=True)]

    def environment(self) -> dict[str, Any]:
        return {"gliner": self.worker.version}

    def save(self, folder: Path) -> None:
        """Save the thresholds; the checkpoint is not copied."""
        save_thresholds(self, folder)


def save_thresholds(model: SpanModel, folder: Path) -> None:
    """Save the thresholds next to the weights."""
    Run(folder.parent).write_json(f"{folder.name}/danseo.json", {"thresholds": model.thresholds})


def _select_inside(spans: Sequence[EntitySpan], start: int, end: int) -> list[EntitySpan]:
    """Return the spans that are completely inside a window, relative to its start."""
    return [s._replace(start=s.start - start, end=s.end - start) for s in spans if start <= s.start and s.end <= end]


# Entries of the registry


def check(config: RunConfig, task: Task) -> None:
    """Refuse tasks without entities, and settings that have no effect."""
    if task.type.name != "tagging":
        raise DanseoError(f"gliner finds entities and does not know {task.name}; use it for ner")
    if config.train.freeze != "none":
        raise DanseoError("gliner learns as a whole; leave train.freeze out")
    parse_label_names("gliner", config.gliner.label_names, task, WORDS)


def make(config: RunConfig, task: Task, device: str | None) -> SpanModel:
    """Create a model from a checkpoint."""
    is_old = is_classic(config.model.removeprefix(PREFIX))
    return ClassicGlinerModel(config, task) if is_old else Gliner2Model(config, task, Workers(device))


def load(run: Run, task: Task, loading: LoadOptions) -> SpanModel:
    """Load the model of a run with its thresholds."""
    if loading.precision:
        raise DanseoError(f"{run.path} is a GLiNER model, which predicts in fp32; leave --precision out")
    config, folder = apply_trust(run, loading.trust_remote_code), run.path / "model"
    is_whole = (folder / "model.safetensors").is_file()
    model = (
        Gliner2Model(config, task, Workers(loading.device), folder) if is_whole else ClassicGlinerModel(config, task)
    )
    model.thresholds = run.read_json("model/danseo.json")["thresholds"]
    return model
