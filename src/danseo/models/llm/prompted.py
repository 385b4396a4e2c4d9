"""A language model that is asked, not trained: questions out, replies in, predictions and failures from them."""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from danseo.config import RunConfig
from danseo.display.progress import clock_time
from danseo.errors import DanseoError, DataError, PartlyDone
from danseo.files import parse_json, read_text, write_atomically
from danseo.models.llm.asking import Asking, Told
from danseo.models.llm.calls import Call, Calls, Request, sum_tokens
from danseo.models.llm.fitting_in import fitting
from danseo.models.llm.kinds import make_asking
from danseo.models.llm.reply import HARMLESS, Reply, is_complete
from danseo.models.llm.shots import Nearest, seeded, unseen
from danseo.models.llm.source import Limits, Source
from danseo.models.llm.template import Template, load_template, parsed
from danseo.models.protocol import Answers, Events, Fitted
from danseo.models.spans import sure_answers
from danseo.records import Prediction
from danseo.tasks.task import Task

AGAIN = "이 답은 읽을 수 없습니다. 앞에서 정한 꼴의 답 하나만 다시 쓰세요."
_SHOWN_EVERY = 15.0  # seconds
_NEIGHBOURS = "neighbours.jsonl"
"""In a model folder: the training examples among which the nearest are looked for."""
OnDone = Callable[["Pace"], None]


@dataclass
class Pace:
    """How far the asking is, and how fast it goes."""

    total: int
    known: int
    fresh: int = 0
    tokens: int = 0
    unreadable: int = 0
    started: float = field(default_factory=time.monotonic)

    def count(self, call: Call) -> None:
        """One more reply."""
        self.fresh += 1
        self.tokens += call.prompt_tokens + call.reply_tokens
        self.unreadable += call.weights is None and not is_complete(call.text)

    def line(self) -> str:
        """In words."""
        seconds = max(1e-9, time.monotonic() - self.started)
        done = self.known + self.fresh
        left = (self.total - done) * seconds / max(1, self.fresh)
        return (
            f"{done}/{self.total} replies, {self.tokens / seconds:,.0f} tokens/s, {self.unreadable} without a whole "
            f"object, ETA {clock_time(left)}"
        )


@dataclass
class Tally:
    """What became of all replies."""

    asked: int = 0
    failed: int = 0
    failed_at_first: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    replies: Counter[str] = field(default_factory=Counter)
    """Class -> replies that have it."""
    cuts: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """For scores.json."""
        share = 100 / max(1, self.asked)
        return {
            "asked": self.asked,
            "failed": self.failed,
            "failed_percent": round(self.failed * share, 4),
            "failed_at_first": self.failed_at_first,
            "failed_at_first_percent": round(self.failed_at_first * share, 4),
            "classes": dict(+self.classes),
            "replies_with": dict(+self.replies),
            **({"fitted": dict(+self.cuts)} if +self.cuts else {}),
        }

    @property
    def invalid_items(self) -> int:
        """Items that were dropped because they cannot be right."""
        return sum(n for name, n in self.classes.items() if name not in HARMLESS)


@dataclass
class Question:
    """An example in its parts, with the requests that were made of them."""

    example: Any
    parts: list[tuple[Any, Request]]
    replies: list[Reply] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


class Shown:
    """Says now and then how far the asking is."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note, self.due = note, time.monotonic() + _SHOWN_EVERY

    def __call__(self, pace: Pace) -> None:
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + _SHOWN_EVERY
            self.note(pace.line())


class Prompted:
    """Asks a source about examples of a task."""

    reads_pos = False

    def __init__(self, config: RunConfig, task: Task, source: Source, template: Template | None = None) -> None:
        self.config, self.task, self.source = config, task, source
        self.template = template or load_template(task, config.prompt.shape)
        self.asking: Asking = make_asking(task, config.prompt, self.template)
        self.shots: list[Any] = []
        self.nearest: Nearest | None = None
        self.tally, self.calls = Tally(), Calls(None)
        self.limits, self.new_calls = Limits(), 0
        self.facts: dict[str, Any] = {}

    # As a model

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> Fitted:
        """Nothing is learned: the model gets ready, and answers dev."""
        began = time.perf_counter()
        self.prepare(train, dev)
        self.facts = {**self.source.ready(), "weighs_labels": self.weighs}
        events.begin()
        self.calls = Calls(events.run.path / "calls.jsonl")
        events.note(f"{len(dev)} examples, {len(self.calls.known)} replies known; {self.told_facts()}")
        predictions = self.ask(dev, Shown(events.note))
        events.run.write_json("shots.json", self.used_shots)
        seconds = time.perf_counter() - began
        return Fitted(
            self.answers(dev, predictions), self._device(), seconds, self._surroundings(seconds), self._scored()
        )

    def predict(self, examples: Sequence[Any]) -> Answers:
        return self.answers(examples, self.ask(examples))

    def answers(self, examples: Sequence[Any], predictions: list[Prediction]) -> Answers:
        """The predictions, with what ensembles need: of tags, that the model is sure of what it says."""
        if self.task.kind == "tag":
            return sure_answers(self.task, examples, predictions)
        return Answers(predictions)

    def _device(self) -> str:
        model = getattr(self.source, "model", None)
        return str(getattr(model, "device", "server"))

    def told_facts(self) -> str:
        """What is known of the source, in a few words."""
        return ", ".join(f"{name} {value}" for name, value in self.facts.items())

    def _surroundings(self, seconds: float) -> dict[str, Any]:
        calls = list(self.calls.known.values())
        names = ("prompt_tokens", "cached_tokens", "reply_tokens")
        tokens = {name: sum(getattr(call, name) for call in calls) for name in names}
        spent = sum(call.seconds for call in calls)
        return {
            **self.facts,
            "calls": len(calls),
            **tokens,
            "call_seconds": round(spent, 3),
            "tokens_per_second": round(sum_tokens(calls) / max(1e-9, seconds), 2) if self.new_calls else None,
        }

    def _scored(self) -> dict[str, Any]:
        mode = "likelihood" if self.weighs else "generate"
        prompt = {"mode": mode, "template": self.template.sha256, "free": self.config.prompt.free}
        return {"replies": self.tally.as_dict(), "prompt": prompt}

    # Getting ready

    def prepare(self, train: Sequence[Any], dev: Sequence[Any]) -> None:
        """Pick shots, and what questions need of the training examples."""
        self.asking.prepare(train)
        settings = self.config.prompt
        if not settings.shots:
            return
        usable = unseen(train, dev)
        if settings.pick == "nearest":
            self.nearest = Nearest(usable)
        else:
            self.shots = seeded(self.task, usable, settings.shots, self.config.seed)

    def shots_for(self, examples: Sequence[Any]) -> list[list[Any]]:
        """The shots of each example."""
        if self.nearest:
            return self.nearest.of(examples, self.config.prompt.shots)
        return [self.shots] * len(examples)

    @property
    def reply_tokens(self) -> int:
        return self.config.prompt.reply_tokens or self.asking.reply_tokens

    @property
    def weighs(self) -> bool:
        """Whether labels are weighed one by one."""
        mode = self.config.prompt.mode
        if mode == "likelihood" and not self.source.weighs:
            raise DanseoError("prompt.mode = likelihood: a server does not tell what every reply weighs; use generate")
        return self.task.kind == "classify" and self.source.weighs and mode != "generate"

    def questions(self, examples: Sequence[Any]) -> list[Question]:
        """Every example as it is asked, in the room that the model has."""
        found: list[Question] = []
        thinking = self.config.prompt.think_tokens if self.config.prompt.think == "on" else 0
        self.used_shots: dict[str, list[str]] = {}
        for example, shots in zip(examples, self.shots_for(examples), strict=True):
            self.used_shots[example.guid] = [shot.guid for shot in shots]
            fitted = fitting(self.asking, self.source, example, shots, self.reply_tokens + thinking, self.tally.cuts)
            found.append(Question(example, [(part, self._request(part, messages)) for part, messages in fitted]))
        return found

    def _request(self, part: Any, messages: list[Any]) -> Request:
        if self.weighs:
            return Request(part.guid, messages, self.reply_tokens, choices=self.asking.choices(part))
        is_free = self.config.prompt.free
        schema, grammar = (None, None) if is_free else (self.asking.schema(part), self.asking.grammar(part))
        told = None if self.source.weighs else self.asking.choices(part)
        return Request(part.guid, messages, self.reply_tokens, schema, grammar, ends=self.asking.ends, told=told)

    # Asking

    def ask(self, examples: Sequence[Any], on_done: OnDone = lambda pace: None) -> list[Prediction]:
        """Predictions of all examples; replies that failed count as wrong, and are counted."""
        questions = self.questions(examples)
        self._send([request for question in questions for _, request in question.parts], on_done)
        for question in questions:
            self._read(question)
        self.tally.asked += len(questions)
        self.tally.failed_at_first += sum(self._joined(question).has_failed for question in questions)
        for _ in range(self.config.prompt.repair):
            self._repair([question for question in questions if self._joined(question).has_failed], on_done)
        return [self._prediction(question) for question in questions]

    def _send(self, requests: Sequence[Request], on_done: OnDone) -> None:
        """Answer what is not known yet."""
        identity = self.source.identity()
        wanted = {key: r for r in requests if (key := r.key(identity)) not in self.calls.known}
        pace = Pace(len(requests), len(requests) - len(wanted))

        def note(call: Call) -> None:
            self.calls.add(call)
            self.new_calls += 1
            pace.count(call)
            on_done(pace)
            if self.limits.tokens is not None:
                self._check_budget(len(wanted) - pace.fresh)

        if wanted:
            self._check_budget(len(wanted))
            allowed = self._allowed(len(wanted))
            chosen = dict(list(wanted.items())[:allowed])
            if problems := self.source.answer(list(chosen.values()), list(chosen), note):
                raise PartlyDone(
                    f"{len(problems)} of {len(requests)} requests failed for good, the first: {problems[0]}; the run "
                    "is unfinished, and the same command goes on"
                )
            self._check_budget(len(wanted) - len(chosen))

    def _allowed(self, wanted: int) -> int:
        """How many calls may still be made."""
        return wanted if self.limits.calls is None else min(wanted, self.limits.calls - self.new_calls)

    def _check_budget(self, left: int) -> None:
        """Stop before more is spent than was allowed."""
        limits = self.limits
        if left and limits.calls is not None and self.new_calls >= limits.calls:
            raise PartlyDone(f"--limit-calls {limits.calls} is reached with {left} to go; the same command goes on")
        if left and limits.tokens is not None and self.calls.tokens >= limits.tokens:
            raise PartlyDone(
                f"--budget-tokens {limits.tokens} is used up ({self.calls.tokens} tokens) with {left} calls to go; "
                "raise it, and the same command goes on"
            )

    def _read(self, question: Question) -> None:
        identity = self.source.identity()
        question.calls = [self.calls.known[request.key(identity)] for _, request in question.parts]
        pairs = zip(question.parts, question.calls, strict=True)
        question.replies = [self.asking.read(part, call.text, call.finish) for (part, _), call in pairs]

    def _joined(self, question: Question) -> Reply:
        if len(question.replies) == 1:
            return question.replies[0]
        return self.asking.joined(question.example, question.replies)

    def _repair(self, questions: Sequence[Question], on_done: OnDone) -> None:
        """Ask again, showing what was replied."""
        for question in questions:
            question.parts = [
                (part, _again(request, call) if reply.has_failed else request)
                for (part, request), call, reply in zip(question.parts, question.calls, question.replies, strict=True)
            ]
        self._send([request for question in questions for _, request in question.parts], on_done)
        for question in questions:
            self._read(question)

    def _prediction(self, question: Question) -> Prediction:
        reply, example = self._joined(question), question.example
        self.tally.failed += reply.has_failed
        self.tally.classes.update(reply.errors)
        self.tally.replies.update(set(+reply.errors))
        weights = question.calls[0].weights
        if weights:
            return Prediction(example.guid, reply.answer, probabilities(weights, self.task.labels))
        answer = self.asking.wrong(example) if reply.has_failed else reply.answer
        return Prediction(example.guid, answer, span=reply.span)

    # Saving

    def save(self, folder: Path) -> None:
        """The prompt, the shots and what was taken from training: all that new questions need."""
        write_atomically(folder / "prompt.txt", self.template.text)
        told = [asdict(self.asking.told(shot)) for shot in self.shots]
        document = {"state": self.asking.state(), "shots": told}
        write_atomically(folder / "prompt.json", json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        if self.nearest:
            kept = zip(self.nearest.train, self.nearest.texts, strict=True)
            lines = [{"text": text, **asdict(self.asking.told(shot))} for shot, text in kept]
            rows = (json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            write_atomically(folder / _NEIGHBOURS, "".join(rows))

    def restore(self, folder: Path) -> None:
        """Take up what save wrote."""
        document = parse_json(read_text(folder / "prompt.json"), folder / "prompt.json")
        self.asking.restore(document["state"])
        self.shots = [Told(**told) for told in document["shots"]]
        if self.config.prompt.shots and self.config.prompt.pick == "nearest":
            self.nearest = _saved_neighbours(folder)


def _saved_neighbours(folder: Path) -> Nearest:
    """The training examples among which a run looks for the nearest, as they are shown."""
    path = folder / _NEIGHBOURS
    if not path.is_file():
        raise DanseoError(
            f"{folder.parent} shows each question its nearest training examples, which it did not keep; make it anew "
            "with danseo prompt … --force"
        )
    rows = [parse_json(line, path) for line in read_text(path).splitlines()]
    try:
        texts = [str(row.pop("text")) for row in rows]
        return Nearest([Told(**row) for row in rows], texts)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise DataError(f"{path}: not what a run keeps of its examples; make the run anew with --force") from None


def saved_template(folder: Path) -> Template:
    """The prompt of a run."""
    return parsed(read_text(folder / "prompt.txt"), str(folder / "prompt.txt"))


def _again(request: Request, call: Call) -> Request:
    told = [{"role": "assistant", "content": call.text or "…"}, {"role": "user", "content": AGAIN}]
    return replace(request, messages=[*request.messages, *told])


def probabilities(weights: Mapping[str, float], labels: Sequence[str]) -> dict[str, float]:
    """Shares of the labels by the log-probabilities of their replies; labels that were not weighed have none."""
    highest = max(weights.values())
    raised = {label: math.exp(weight - highest) for label, weight in weights.items()}
    total = sum(raised.values())
    return {label: raised.get(label, 0.0) / total for label in labels}
