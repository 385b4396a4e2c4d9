"""spaCy as a tagger: its standard pipeline trained on our examples, or a pipeline that is there already."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.config import RunConfig
from danseo.data.halves import in_half
from danseo.errors import DanseoError
from danseo.models.protocol import Answers, Events, Fitted, Loading
from danseo.models.spacy.tokens import NAMES, register
from danseo.models.spans import Span, answers_of, gold_spans, label_words, types_of
from danseo.runs.directory import Run
from danseo.runs.scores import finite
from danseo.scoring.score import measure
from danseo.tasks.task import Task

PREFIX = "spacy:"
_EVERY, _PATIENCE, _MOST = 200, 1600, 20000  # steps, as in spaCy's own standard configuration
_LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96}  # of tok2vec


@dataclass
class Standing:
    """How far a training is, for those who show it."""

    number: int
    total: int
    loss: float
    rate: float
    pieces: int
    seconds: float
    best: float
    best_step: int = 0


class Pipeline:
    """A spaCy pipeline, and what it calls our types."""

    reads_pos = False

    def __init__(self, config: RunConfig, task: Task, nlp: Any) -> None:
        self.config, self.task, self.nlp = config, task, nlp
        named = label_words(config.head.label_words, task, {})
        self.types = {word: type for type, words in named.items() for word in words}

    def predict(self, examples: Sequence[Any]) -> Answers:
        return self._answers(examples, self.nlp.pipe(example.text for example in examples))

    def _answers(self, examples: Sequence[Any], docs: Any) -> Answers:
        spans = [
            [Span(e.start_char, e.end_char, self.types[e.label_]) for e in doc.ents if e.label_ in self.types]
            for doc in docs
        ]
        return answers_of(self.task, examples, spans)

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> Fitted:
        """A pipeline that is brought along has learned already: it answers dev."""
        known = {label for _, part in self.nlp.pipeline for label in getattr(part, "labels", ())}
        if known and not known & self.types.keys():
            raise DanseoError(
                f"{self.config.model} knows {', '.join(sorted(known)[:8])}, none of {', '.join(types_of(self.task))}; "
                "say which is which, such as --set label_words=PS=PERSON,LC=GPE+LOC"
            )
        events.begin()
        started = time.perf_counter()
        ceiling = Ceiling(self.task, self.nlp.make_doc, dev)
        events.note(ceiling.line())
        answers = self.predict(dev)
        return Fitted(answers, seconds=time.perf_counter() - started, facts={"preflight": ceiling.as_dict()})

    def save(self, folder: Path) -> None:
        """As spacy.load takes it."""
        self.nlp.to_disk(folder)


class Trained(Pipeline):
    """The standard pipeline (tok2vec, transition-based NER) on Korean tokens, trained from nothing.

    A training that was killed begins anew.
    """

    def __init__(self, config: RunConfig, task: Task) -> None:
        super().__init__(config, task, fresh(config))

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> Fitted:
        ceiling = Ceiling(self.task, self.nlp.make_doc, dev)
        examples = [self._example(example) for example in train]
        positions = in_half(self.task, dev, self.config.train.select_on)
        if not positions:
            raise DanseoError("no dev example falls into the select half; use --select-on dev for so small a set")
        events.begin()
        events.run.write_json("preflight.json", ceiling.as_dict())
        events.note(ceiling.line())
        self.chosen = [dev[position] for position in positions]
        self.docs = [self.nlp.make_doc(example.text) for example in self.chosen]
        standing = self._learn(examples, events)
        best = {"monitor": self.task.headline, "best_step": standing.best_step, "steps": standing.number}
        best |= {"select_score": finite(standing.best), "preflight": ceiling.as_dict()}
        return Fitted(self.predict(dev), seconds=standing.seconds, facts=best)

    def _example(self, example: Any) -> Any:
        """Gold on the tokens; what does not begin and end with one is lost."""
        from spacy.training import Example

        doc = self.nlp.make_doc(example.text)
        doc.set_ents([found for span in gold_spans(example) if (found := aligned(doc, span))])
        return Example(self.nlp.make_doc(example.text), doc)

    def _learn(self, examples: list[Any], events: Events) -> Standing:
        """Train while the select half gets better; the best weights remain."""
        most = self.config.train.max_steps or _MOST
        standing = Standing(0, most, 0.0, 0.0, 0, 0.0, float("-inf"))
        kept = b""
        for info, is_best in self._steps(examples, most):
            standing.number, standing.pieces, standing.seconds = info["step"] + 1, info["words"], info["seconds"]
            standing.loss, standing.rate = float(sum(info["losses"].values())), float(self.optimizer.learn_rate)
            if is_best is None:
                events.step(standing, standing)
                continue
            if is_best:
                standing.best, standing.best_step, kept = info["score"], standing.number, self.nlp.to_bytes()
            events.run.log({"step": standing.number, "loss": standing.loss, "score": info["score"]})
            events.evaluated(standing, standing, info["score"])
        self.nlp.from_bytes(kept)
        return standing

    def _steps(self, examples: list[Any], most: int) -> Iterator[tuple[Any, Any]]:
        """spaCy's own loop with its own optimiser and batches; the score is ours."""
        from spacy import registry, util
        from spacy.schemas import ConfigSchemaTraining
        from spacy.training.loop import create_train_batches, train_while_improving

        util.fix_random_seed(self.config.seed)
        plan = registry.resolve(self.nlp.config.interpolate()["training"], schema=ConfigSchemaTraining)
        self.optimizer = plan["optimizer"]
        self.nlp.initialize(lambda: examples, sgd=self.optimizer)
        steps = train_while_improving(
            self.nlp,
            self.optimizer,
            create_train_batches(self.nlp, lambda nlp: examples, plan["batcher"], 0),
            evaluate=lambda: (self._score(), {}),
            dropout=plan["dropout"],
            accumulate_gradient=1,
            patience=self.config.train.patience or _PATIENCE,
            max_steps=most - 1,
            eval_frequency=min(_EVERY, max(1, most // 2)),
            exclude=[],
            annotating_components=[],
            before_update=None,
        )
        return ((info, is_best) for _, info, is_best in steps)

    def _score(self) -> float:
        from spacy.tokens import Doc

        fresh = (Doc(doc.vocab, [t.text for t in doc], [bool(t.whitespace_) for t in doc]) for doc in self.docs)
        answers = self._answers(self.chosen, self.nlp.pipe(fresh))
        score = measure(self.task, self.chosen, answers.predictions)[self.task.headline].value()
        return score if score == score else 0.0  # undefined where there is no entity at all


class Ceiling:
    """Which entities begin and end with a token, and what somebody would score who found all of those."""

    def __init__(self, task: Task, make_doc: Any, examples: Sequence[Any]) -> None:
        self.all = self.kept = 0
        spans = []
        for example in examples:
            doc, gold = make_doc(example.text), gold_spans(example)
            spans.append([span for span in gold if aligned(doc, span)])
            self.all, self.kept = self.all + len(gold), self.kept + len(spans[-1])
        answers = answers_of(task, examples, spans)
        self.score = finite(measure(task, examples, answers.predictions)[task.headline].value())

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


def aligned(doc: Any, span: Span) -> Any:
    """The tokens of a span; None where it begins or ends inside one."""
    return doc.char_span(span.start, span.end, label=span.type, alignment_mode="strict")


def fresh(config: RunConfig) -> Any:
    """A pipeline that has learned nothing."""
    import spacy

    register()
    nlp = spacy.blank("ko", config={"nlp": {"tokenizer": {"@tokenizers": NAMES[config.head.words]}}})
    nlp.add_pipe("tok2vec")
    nlp.add_pipe("ner", config={"model": {"tok2vec": _LISTENER}})
    return nlp


def opened(folder: Path) -> Any:
    """A pipeline that is there."""
    import spacy

    register()
    try:
        return spacy.load(folder)
    except Exception as error:  # it raises many kinds for the same few causes
        raise DanseoError(
            f"{folder} is no spaCy pipeline that loads here: {' '.join(str(error).split())[:200]}"
        ) from None


# What the table of families says of them


def check(config: RunConfig, task: Task) -> None:
    """Refuse tasks without entities, and folders that are not there."""
    if task.kind != "tag":
        raise DanseoError(f"spacy finds entities and does not know {task.name}; use it for ner")
    folder = Path(config.model.removeprefix(PREFIX))
    if config.model != "spacy" and not (folder / "config.cfg").is_file():
        raise DanseoError(f"{folder} is not a spaCy pipeline (no config.cfg); -m spacy trains one")
    label_words(config.head.label_words, task, {})


def make(config: RunConfig, task: Task) -> Pipeline:
    """One to train, or one that is there."""
    if config.model == "spacy":
        return Trained(config, task)
    return Pipeline(config, task, opened(Path(config.model.removeprefix(PREFIX))))


def load(run: Run, task: Task, loading: Loading) -> Pipeline:
    """The saved pipeline of a run."""
    if loading.precision:
        raise DanseoError(f"{run.path} is a spaCy pipeline, which has no precision; leave --precision out")
    return Pipeline(run.config, task, opened(run.path / "model"))
