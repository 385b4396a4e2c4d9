"""spaCy as a tagging model: the standard pipeline trained here, or an existing pipeline."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.files import to_finite
from danseo.models.base import Answers, Events, LoadOptions, TrainResult, choose_select_examples
from danseo.models.checkpoint import apply_trust
from danseo.models.entity_spans import EntitySpan, get_gold_spans, make_answers, parse_label_names
from danseo.models.spacy.pipeline import (
    PREFIX,
    add_new_ner,
    continue_ner,
    find_part,
    locate_pipeline,
    make_blank_pipeline,
    open_pipeline,
)
from danseo.runs.store import Run
from danseo.scoring.score import compute_headline
from danseo.tasktypes.base import Task
from danseo.tasktypes.tagging import get_entity_types

_EVERY, _PATIENCE, _MOST = 200, 1600, 20000  # steps, as in spaCy's own standard configuration


@dataclass
class SpacyProgress:
    """The progress of a training."""

    number: int
    total: int
    loss: float
    rate: float
    tokens: int
    seconds: float
    best: float
    best_step: int = 0


class SpacyModel:
    """A spaCy pipeline and its names for entity types."""

    reads_pos = False

    def __init__(self, config: RunConfig, task: Task, nlp: Any) -> None:
        self.config, self.task, self.nlp = config, task, nlp
        self.names = parse_label_names("spacy", config.spacy.label_names, task, {})
        self.types = {word: type for type, words in self.names.items() for word in words}

    def predict(self, examples: Sequence[Any]) -> Answers:
        return self._answers(examples, self.nlp.pipe(example.text for example in examples))

    def _answers(self, examples: Sequence[Any], docs: Any) -> Answers:
        spans = [
            [EntitySpan(e.start_char, e.end_char, self.types[e.label_]) for e in doc.ents if e.label_ in self.types]
            for doc in docs
        ]
        return make_answers(self.task, examples, spans)

    def prepare_data(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> None:
        """Check that the pipeline knows types of the task."""
        known = {label for _, part in self.nlp.pipeline for label in getattr(part, "labels", ())}
        if known and not known & self.types.keys():
            found, wanted = ", ".join(sorted(known)[:8]), ", ".join(get_entity_types(self.task.labels))
            raise DanseoError(
                f"{self.config.model} knows {found}, none of {wanted}; name them, such as "
                "--set spacy.label_names=PS=PERSON,LC=GPE+LOC"
            )

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> TrainResult:
        """Answer dev: a finished pipeline has learned already."""
        started = time.perf_counter()
        ceiling = TokenizationCeiling(self.task, self.nlp.make_doc, dev)
        events.note(ceiling.line())
        answers = self.predict(dev)
        return TrainResult(answers, seconds=time.perf_counter() - started, facts={"preflight": ceiling.as_dict()})

    def save(self, folder: Path) -> None:
        """Save the pipeline for spacy.load."""
        self.nlp.to_disk(folder)


class TrainedSpacyModel(SpacyModel):
    """A pipeline whose tok2vec and transition-based NER are trained: spaCy's standard one, or an existing one.

    A killed training starts again from the beginning.
    """

    def prepare_data(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> None:
        """Choose a new or the present NER, and tokenize the examples."""
        self.labels = [names[0] for names in self.names.values()]
        name, choice = find_part(self.nlp, "ner"), self.config.spacy.ner
        if choice == "continued" and not name:
            raise DanseoError(f"spacy.ner = continued: {self.config.model} finds no entities; set spacy.ner=new")
        known = set(self.nlp.get_pipe(name).labels) if name else set()
        self.is_continued = choice == "continued" or (choice == "auto" and known >= set(self.labels))
        self.ceiling = TokenizationCeiling(self.task, self.nlp.make_doc, dev)
        self.examples = [self._example(example) for example in train]
        self.chosen = choose_select_examples(self.config, self.task, dev)

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> TrainResult:
        """Train, keep the best weights by the select split, and answer dev with them."""
        ceiling = self.ceiling
        events.run.write_json("preflight.json", ceiling.as_dict())
        events.note(ceiling.line())
        if self.config.model != "spacy":
            events.note(
                f"{self.config.model}: {'its NER is continued' if self.is_continued else 'a new NER is trained'}"
            )
        self.docs = [self.nlp.make_doc(example.text) for example in self.chosen]
        progress = self._learn(self.examples, events)
        best = {"monitor": self.task.headline, "best_step": progress.best_step, "steps": progress.number}
        best |= {"select_score": to_finite(progress.best), "preflight": ceiling.as_dict()}
        best |= {"ner": "continued" if self.is_continued else "new"}
        return TrainResult(self.predict(dev), seconds=progress.seconds, facts=best)

    def _example(self, example: Any) -> Any:
        """Return a training example of spaCy; entities that do not align with tokens are dropped."""
        from spacy.training import Example

        doc = self.nlp.make_doc(example.text)
        spans = (span._replace(type=self.names[span.type][0]) for span in get_gold_spans(example))
        doc.set_ents([found for span in spans if (found := align_span(doc, span))])
        return Example(self.nlp.make_doc(example.text), doc)

    def _learn(self, examples: list[Any], events: Events) -> SpacyProgress:
        """Train until the select split stops improving; keep the best weights."""
        progress = SpacyProgress(0, 0, 0.0, 0.0, 0, 0.0, float("-inf"))
        kept = b""
        for info, is_best in self._steps(examples, progress):
            progress.number, progress.tokens, progress.seconds = info["step"] + 1, info["words"], info["seconds"]
            progress.loss, progress.rate = float(sum(info["losses"].values())), float(self.optimizer.learn_rate)
            if is_best is None:
                events.step(progress, progress)
                continue
            if is_best:
                progress.best, progress.best_step, kept = (
                    info["score"],
                    progress.number,
                    self.nlp.to_bytes(exclude=["vocab"]),
                )
            events.run.log({"step": progress.number, "loss": progress.loss, "score": info["score"]})
            events.report_evaluation(progress, progress, info["score"])
        self.nlp.from_bytes(kept, exclude=["vocab"])
        self.nlp.meta["performance"] = {}  # scores of the pipeline before the training
        return progress

    def _steps(self, examples: list[Any], progress: SpacyProgress) -> Iterator[tuple[Any, Any]]:
        """Run spaCy's training loop with its standard settings, not those of the pipeline, and our score."""
        from spacy import registry, util
        from spacy.language import DEFAULT_CONFIG
        from spacy.schemas import ConfigSchemaTraining
        from spacy.training.loop import create_train_batches, train_while_improving

        util.fix_random_seed(self.config.seed)
        settings = DEFAULT_CONFIG.interpolate()["training"]
        plan, counted = (registry.resolve(settings, schema=ConfigSchemaTraining) for _ in range(2))
        self.optimizer, epochs = plan["optimizer"], self.config.spacy.max_epochs
        most = self.config.spacy.max_steps or (sys.maxsize if epochs else _MOST)
        steps_of_epochs = sum(1 for _ in range(epochs) for _ in counted["batcher"](examples))
        progress.total = min(most, steps_of_epochs or most)
        if self.is_continued:
            continue_ner(self.nlp, self.labels)
        else:
            add_new_ner(self.nlp, examples)
        steps = train_while_improving(
            self.nlp,
            self.optimizer,
            create_train_batches(self.nlp, lambda nlp: examples, plan["batcher"], epochs),
            evaluate=lambda: (self._score(), {}),
            dropout=plan["dropout"],
            accumulate_gradient=1,
            patience=self.config.train.patience or _PATIENCE,
            max_steps=most - 1,
            eval_frequency=min(_EVERY, max(1, progress.total // 2)),
            exclude=[],
            annotating_components=[],
            before_update=None,
        )
        return ((info, is_best) for _, info, is_best in steps)

    def _score(self) -> float:
        from spacy.tokens import Doc

        fresh = (Doc(doc.vocab, [t.text for t in doc], [bool(t.whitespace_) for t in doc]) for doc in self.docs)
        answers = self._answers(self.chosen, self.nlp.pipe(fresh))
        score = compute_headline(self.task, self.chosen, answers.predictions)
        return score if score == score else 0.0  # undefined where there is no entity at all


class TokenizationCeiling:
    """Counts entities that align with tokens, and the score of finding all of these."""

    def __init__(self, task: Task, make_doc: Any, examples: Sequence[Any]) -> None:
        self.all = self.kept = 0
        spans = []
        for example in examples:
            doc, gold = make_doc(example.text), get_gold_spans(example)
            spans.append([span for span in gold if align_span(doc, span)])
            self.all, self.kept = self.all + len(gold), self.kept + len(spans[-1])
        answers = make_answers(task, examples, spans)
        self.score = to_finite(compute_headline(task, examples, answers.predictions))

    def line(self) -> str:
        shown = "" if self.score is None else f"; no model on these tokens can score above {self.score:.2f}"
        share = 100 * self.kept / max(1, self.all)
        return f"tokens: {share:.2f} % of {self.all:,} dev entities begin and end with a token{shown}"

    def as_dict(self) -> dict[str, Any]:
        lost = self.all - self.kept
        return {
            "entities": self.all,
            "lost": lost,
            "lost_percent": 100 * lost / max(1, self.all),
            "ceiling": self.score,
        }


def align_span(doc: Any, span: EntitySpan) -> Any:
    """Return the tokens of a span; None if it begins or ends inside a token."""
    return doc.char_span(span.start, span.end, label=span.type, alignment_mode="strict")


# Entries of the registry


def check(config: RunConfig, task: Task) -> None:
    """Refuse tasks without entities, and missing pipelines."""
    if task.type.name != "tagging":
        raise DanseoError(f"spacy finds entities and does not know {task.name}; use it for ner")
    location = locate_pipeline(config.model)
    if config.model == "spacy":
        if config.spacy.ner in ("continued", "frozen"):
            raise DanseoError(f"spacy.ner = {config.spacy.ner}: -m spacy has no NER yet; name a pipeline, spacy:FOLDER")
    elif not (Path(location) / "config.cfg").is_file():
        raise DanseoError(
            f"{location} is not a spaCy pipeline (no folder with config.cfg, no installed package); -m spacy trains one"
        )
    parse_label_names("spacy", config.spacy.label_names, task, {})


def make(config: RunConfig, task: Task, device: str | None) -> SpacyModel:
    """Create a pipeline to train, or load an existing one."""
    if config.model == "spacy":
        return TrainedSpacyModel(config, task, make_blank_pipeline(config))
    name = config.model.removeprefix(PREFIX)
    location = locate_pipeline(config.model)
    if config.trust_remote_code and location != name:
        import_module(name)  # its code registers its functions
    make_model = SpacyModel if config.spacy.ner == "frozen" else TrainedSpacyModel
    return make_model(config, task, open_pipeline(Path(location), config.trust_remote_code))


def load(run: Run, task: Task, loading: LoadOptions) -> SpacyModel:
    """Load the pipeline of a run."""
    if loading.precision:
        raise DanseoError(f"{run.path} is a spaCy pipeline, which has no precision; leave --precision out")
    config = apply_trust(run, loading.trust_remote_code)
    return SpacyModel(config, task, open_pipeline(run.path / "model", config.trust_remote_code))
