"""A prompted language model: examples to requests, replies to predictions, without training."""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.config.run import RunConfig
from danseo.errors import DanseoError, DataError, PartlyDone
from danseo.files import parse_json, read_json, read_text, write_atomically
from danseo.launcher import is_first_process
from danseo.models.base import Answers, Events, TrainResult
from danseo.models.llm.backend import (
    Backend,
    CallLimits,
    CallLog,
    ModelCall,
    OnCall,
    ProgressReporter,
    PromptingProgress,
    PromptRequest,
    mean_tokens,
    sum_tokens,
)
from danseo.models.llm.formats import make_format
from danseo.models.llm.formats.base import Message, PromptFormat, Shot
from danseo.models.llm.prompt_template import NearestShots, PromptTemplate, drop_dev_texts, load_template, sample_shots
from danseo.models.llm.reply import Reply, ReplyStats, is_thought_opened_by_prompt, mark_unclosed
from danseo.records import Prediction
from danseo.tasktypes.base import Task
from danseo.training.processes import OneProcess, join_processes

if TYPE_CHECKING:
    from danseo.models.llm.server_process import ServerProcess
    from danseo.training.distributed import Workers

AGAIN = {
    "ko": "이 답은 읽을 수 없습니다. 앞에서 정한 꼴의 답 하나만 다시 쓰세요.",
    "en": "This answer cannot be read. Write one answer again, in the form that was described.",
}
_OFTEN, _BLANKS = 20, 8
"""Advise if one of this many replies failed for one reason; trailing blanks that count as filler."""
_NEIGHBOURS = "neighbours.jsonl"
"""File in a model folder: the training examples that are searched for the nearest."""
OnDone = Callable[[PromptingProgress], None]
_MAX_SPLITS = 12  # attempts to split an example


@dataclass
class PromptedExample:
    """An example, split if it is too long, with the requests of its parts."""

    example: Any
    parts: list[tuple[Any, PromptRequest]]
    replies: list[Reply] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)


class PromptedModel:
    """Prompts a backend with the examples of a task."""

    reads_pos = False

    def __init__(self, config: RunConfig, task: Task, backend: Backend, template: PromptTemplate | None = None) -> None:
        self.config, self.task, self.backend = config, task, backend
        prompt = config.prompt
        self.template = template or load_template(task, prompt.output_format, None, prompt.language)
        self.prompt_format: PromptFormat = make_format(task, config.prompt, self.template)
        self.shots: list[Any] = []
        self.nearest: NearestShots | None = None
        self.reply_stats, self.calls = ReplyStats(), CallLog(None)
        self.limits, self.new_calls = CallLimits(), 0
        self.server: ServerProcess | None = None  # started when the backend is needed
        self.facts: dict[str, Any] = {}
        self.is_thought_opened = False  # by the prompt of a server, as its replies show
        self.splits_requests = True
        """Whether each of several processes answers its share of the requests; else every process answers all."""

    # Training and prediction

    def prepare_data(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> None:
        """Choose the shots, and check that the backend answers."""
        self.started = time.perf_counter()
        self.prepare(train, dev)
        if self.server:
            with ProgressReporter(events.note, "") as shown:
                shown.describe = self.server.describe
                self.server.start()
        self.facts = {**self.backend.prepare(), "label_probabilities": self.uses_likelihood}

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> TrainResult:
        """Answer dev; nothing is learned."""
        self.open_calls(events.run.path / "calls.jsonl")
        events.note(f"{len(dev)} examples, {len(self.calls.known)} replies known; {self.describe_facts()}")
        with ProgressReporter(events.note, f"preparing {len(dev):,} prompts") as shown:
            predictions = self.prompt(dev, shown)
        for line in self.list_advice():
            events.note(line)
        if is_first_process():
            events.run.write_json("shots.json", self.used_shots)
        seconds = time.perf_counter() - self.started
        model = getattr(self.backend, "model", None)
        return TrainResult(
            self.prompt_format.make_answers(dev, predictions),
            str(getattr(model, "device", "server")),
            seconds,
            self.environment(seconds),
            self.score_details(),
        )

    def predict(self, examples: Sequence[Any]) -> Answers:
        return self.prompt_format.make_answers(examples, self.prompt(examples))

    def describe_facts(self) -> str:
        """Return facts about the backend as text."""
        return ", ".join(f"{name} {value}" for name, value in self.facts.items())

    def environment(self, seconds: float) -> dict[str, Any]:
        calls = list(self.calls.known.values())
        names = ("prompt_tokens", "cached_tokens", "reply_tokens")
        tokens = {name: sum(getattr(call, name) for call in calls) for name in names}
        spent = sum(call.seconds for call in calls)
        return {
            **self.facts,
            "calls": len(calls),
            "processes": self.workers.world,
            **tokens,
            "call_seconds": round(spent, 3),
            "tokens_per_second": round(sum_tokens(calls) / max(1e-9, seconds), 2) if self.new_calls else None,
        }

    def score_details(self) -> dict[str, Any]:
        self.reply_stats.tokens_per_reply = mean_tokens(self.calls.known.values())
        prompt = {"mode": self.mode, "template": self.template.sha256, "free": self.config.prompt.unconstrained}
        return {**self.reply_stats.as_scores(), "prompt": prompt}

    # Requests

    def prepare(self, train: Sequence[Any], dev: Sequence[Any]) -> None:
        """Choose few-shot examples, and learn what prompts need from train."""
        self.prompt_format.prepare(train)
        settings = self.config.prompt
        if not settings.shots:
            return
        usable = drop_dev_texts(train, dev)
        if settings.shot_selection == "nearest":
            self.nearest = NearestShots(usable)
        else:
            self.shots = sample_shots(usable, settings.shots, self.config.seed, self.task.type.group_shots)

    def choose_shots(self, examples: Sequence[Any]) -> list[list[Any]]:
        """Return the shots of each example."""
        if self.nearest:
            return self.nearest.find(examples, self.config.prompt.shots)
        return [self.shots] * len(examples)

    @property
    def reply_tokens(self) -> int:
        return self.config.prompt.max_new_tokens or self.prompt_format.reply_tokens

    @property
    def mode(self) -> str:
        """How labels are chosen: by likelihood, or in generated text."""
        return "likelihood" if self.uses_likelihood else "generate"

    @property
    def most_tokens(self) -> int:
        """Maximum number of tokens of a reply and its reasoning."""
        return self.reply_tokens + (self.config.prompt.max_thinking_tokens if self.backend.reasons else 0)

    @property
    def uses_likelihood(self) -> bool:
        """Whether label probabilities are compared."""
        mode = self.config.prompt.mode
        is_generated = mode == "generate" or (mode == "auto" and self.backend.reasons)
        return self.task.type.has_single_label and self.backend.scores_labels and not is_generated

    def make_questions(self, examples: Sequence[Any]) -> list[PromptedExample]:
        """Return every example with its requests, shortened to the model's context."""
        found: list[PromptedExample] = []
        self.used_shots: dict[str, list[str]] = {}
        for example, shots in zip(examples, self.choose_shots(examples), strict=True):
            self.used_shots[example.guid] = [shot.guid for shot in shots]
            fitted = truncate_prompt(
                self.prompt_format, self.backend, example, shots, self.most_tokens, self.reply_stats.cuts
            )
            found.append(
                PromptedExample(example, [(part, self._make_request(part, messages)) for part, messages in fitted])
            )
        return found

    def _make_request(self, part: Any, messages: list[Any]) -> PromptRequest:
        if self.uses_likelihood:
            return PromptRequest(part.guid, messages, self.reply_tokens, choices=self.prompt_format.choices(part))
        is_free = self.config.prompt.unconstrained
        schema = None if is_free else self.prompt_format.schema(part)
        grammar = None if is_free else self.prompt_format.grammar(part)
        label_replies = None if self.backend.scores_labels else self.prompt_format.choices(part)
        return PromptRequest(
            part.guid,
            messages,
            self.reply_tokens,
            schema,
            grammar,
            ends=self.prompt_format.ends,
            label_replies=label_replies,
        )

    # Calls

    @property
    def workers(self) -> "Workers | OneProcess":
        """The processes that share the requests."""
        return join_processes() if self.splits_requests else OneProcess()

    def open_calls(self, path: Path) -> None:
        """Read the calls of an earlier start, also those of other processes that ended before they were collected.

        The first process writes all calls to one file; any other one writes its own to calls.RANK.jsonl until then.
        """
        workers, is_first = join_processes(), is_first_process()
        workers.barrier()  # the first process may have emptied the run
        own = path if is_first else path.with_suffix(f".{workers.rank}.jsonl") if self.splits_requests else None
        self.calls = CallLog(own if own and own.parent.is_dir() else None)
        left = sorted(path.parent.glob("calls.*.jsonl")) if is_first else []
        for file in left:
            self.calls.add_others(CallLog(file).known.values(), writes=True)
        self._collect_calls(list(self.calls.known.values()), workers)
        for file in left:
            file.unlink(missing_ok=True)

    def _collect_calls(self, calls: Sequence[ModelCall], workers: "Workers | OneProcess") -> None:
        """Add the calls of all processes to the log of each; the first process writes them to the run."""
        for listed in workers.all_gather([calls]):
            self.calls.add_others(listed, writes=workers.rank == 0)
        workers.barrier()  # they are in the file of the first process now
        if workers.rank and self.calls.path:
            self.calls.path.unlink(missing_ok=True)

    def prompt(self, examples: Sequence[Any], on_done: OnDone = lambda pace: None) -> list[Prediction]:
        """Return predictions of all examples; failed replies count as wrong."""
        questions = self.make_questions(examples)
        self._send([request for question in questions for _, request in question.parts], on_done)
        self.is_thought_opened = is_thought_opened_by_prompt(call.text for call in self.calls.known.values())
        for question in questions:
            self._read(question)
        self.reply_stats.asked += len(questions)
        self.reply_stats.failed_at_first += sum(self._join_replies(question).has_failed for question in questions)
        for _ in range(self.config.prompt.repair_attempts):
            self._repair([question for question in questions if self._join_replies(question).has_failed], on_done)
        return [self._make_prediction(question) for question in questions]

    def _send(self, requests: Sequence[PromptRequest], on_done: OnDone) -> None:
        """Send the requests whose replies are not in the log; every process sends its share."""
        identity = self.backend.identity()
        wanted = {key: r for r in requests if (key := r.key(identity)) not in self.calls.known}
        if not wanted:
            return
        self._check_budget(len(wanted))
        allowed = len(wanted) if self.limits.calls is None else self.limits.calls - self.new_calls
        workers, chosen = self.workers, dict(list(wanted.items())[:allowed])
        own = dict(workers.shard(list(chosen.items())))
        is_shared = workers.world > 1
        known = 0 if is_shared else len(requests) - len(wanted)
        pace = PromptingProgress(known + (len(own) if is_shared else len(wanted)), known, len(own), workers.world)

        def note(call: ModelCall) -> None:
            self.calls.add(call)
            self.new_calls += 1
            pace.count(call)
            on_done(pace)
            if self.limits.tokens is not None:
                self._check_budget(len(wanted) - pace.fresh, pace.tokens * (workers.world - 1))

        on_done(pace)
        if problems := self._answer_together(own, note):
            raise PartlyDone(
                f"{len(problems)} of {len(requests)} requests failed for good, the first: {problems[0]}; the run "
                "is unfinished, and the same command resumes"
            )
        self._check_budget(len(wanted) - len(chosen))

    def _answer_together(self, own: Mapping[str, PromptRequest], note: OnCall) -> list[str]:
        """Answer the share of this process and collect the calls, problems and the first error of all processes."""
        workers, before, problems = self.workers, self.new_calls, list[str]()
        error: DanseoError | None = None
        try:
            problems = self._answer(own, note) if own else []
        except DanseoError as failure:
            if workers.world == 1:
                raise
            error = failure  # the other processes wait for the calls of this one
        if workers.world == 1:
            return problems
        self._collect_calls([self.calls.known[key] for key in own if key in self.calls.known], workers)
        outcomes = workers.all_gather([(self.new_calls - before, problems, error)])
        self.new_calls = before + sum(count for count, _, _ in outcomes)
        if errors := [failure for _, _, failure in outcomes if failure]:
            raise errors[0]
        return [problem for _, listed, _ in outcomes for problem in listed]

    def _answer(self, requests: Mapping[str, PromptRequest], note: OnCall) -> list[str]:
        """Answer requests by their keys; if a server stops answering, the run stays unfinished with its replies."""
        try:
            return self.backend.complete(list(requests.values()), list(requests), note)
        except DanseoError as error:
            if self.backend.scores_labels or not self.calls.known or error.exit_code != DanseoError.exit_code:
                raise
            kept = len(self.calls.known)
            raise PartlyDone(f"{error} ({kept} replies are kept, and the same command resumes)") from None

    def _check_budget(self, left: int, by_others: int = 0) -> None:
        """Stop before a limit is exceeded; by_others: about how many tokens other processes have used meanwhile."""
        limits, used = self.limits, self.calls.tokens + by_others
        if left and limits.calls is not None and self.new_calls >= limits.calls:
            raise PartlyDone(f"--limit-calls {limits.calls} is reached with {left} to go; the same command resumes")
        if left and limits.tokens is not None and used >= limits.tokens:
            raise PartlyDone(
                f"--budget-tokens {limits.tokens} is used up ({used} tokens) with {left} calls to go; "
                "raise it, and the same command resumes"
            )

    def _read(self, question: PromptedExample) -> None:
        identity = self.backend.identity()
        question.calls = [self.calls.known[request.key(identity)] for _, request in question.parts]
        pairs = [(part, call) for (part, _), call in zip(question.parts, question.calls, strict=True)]
        texts = [mark_unclosed(call.text) if self.is_thought_opened else call.text for _, call in pairs]
        question.replies = [
            self.prompt_format.parse_reply(part, text, call.finish)
            for (part, call), text in zip(pairs, texts, strict=True)
        ]

    def _join_replies(self, question: PromptedExample) -> Reply:
        if len(question.replies) == 1:
            return question.replies[0]
        return self.prompt_format.join_replies(question.example, question.replies)

    def _repair(self, questions: Sequence[PromptedExample], on_done: OnDone) -> None:
        """Ask again about failed replies, with the reply in the prompt."""
        for question in questions:
            question.parts = [
                (part, self._repeat_request(request, call) if reply.has_failed else request)
                for (part, request), call, reply in zip(question.parts, question.calls, question.replies, strict=True)
            ]
        self._send([request for question in questions for _, request in question.parts], on_done)
        for question in questions:
            self._read(question)

    def _repeat_request(self, request: PromptRequest, call: ModelCall) -> PromptRequest:
        again = {"role": "user", "content": AGAIN[self.config.prompt.language]}
        repeated = [{"role": "assistant", "content": call.text or "…"}, again]
        return replace(request, messages=[*request.messages, *repeated])

    def _make_prediction(self, question: PromptedExample) -> Prediction:
        reply, example = self._join_replies(question), question.example
        self.reply_stats.failed += reply.has_failed
        self.reply_stats.classes.update(reply.errors)
        self.reply_stats.replies.update(set(+reply.errors))
        weights = question.calls[0].label_logprobs
        if weights and not reply.has_failed:
            return Prediction(example.guid, reply.answer, compute_probabilities(weights, self.task.labels))
        answer = self.prompt_format.failed_answer(example) if reply.has_failed else reply.answer
        return Prediction(example.guid, answer, span=reply.span)

    def list_advice(self) -> list[str]:
        """Return advice if many replies failed for the same reason."""
        reply_stats, prompt, lines = self.reply_stats, self.config.prompt, list[str]()
        cut, thoughts = reply_stats.replies["truncated"], reply_stats.replies["unclosed_think"]
        if cut * _OFTEN >= reply_stats.asked and cut:
            what = f"{cut} of {reply_stats.asked} replies were cut off"
            blank = sum(len(call.text) - len(call.text.rstrip()) >= _BLANKS for call in self.calls.known.values())
            if 2 * blank >= cut:
                lines.append(
                    f"{what} while the model wrote blanks inside JSON; forbid them in the server (vLLM: "
                    "disable_any_whitespace), call llama.cpp without a proxy, or use --unconstrained"
                )
            else:
                most = 2 * self.reply_tokens
                lines.append(f"{what} at {self.reply_tokens} tokens; allow more: --set prompt.max_new_tokens={most}")
        if thoughts * _OFTEN >= reply_stats.asked and thoughts:
            most = 2 * prompt.max_thinking_tokens if self.backend.reasons else prompt.max_thinking_tokens
            lines.append(
                f"{thoughts} of {reply_stats.asked} replies ended inside a thought; allow more with --thinking on "
                f"--max-thinking-tokens {most}, or use --thinking off"
            )
        return lines

    # Saving

    def save(self, folder: Path) -> None:
        """Save the prompt, the shots and the state of the format."""
        write_atomically(folder / "prompt.txt", self.template.text)
        shots = [asdict(self.prompt_format.make_shot(shot)) for shot in self.shots]
        document = {"state": self.prompt_format.state(), "shots": shots}
        write_atomically(folder / "prompt.json", json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        if self.nearest:
            kept = zip(self.nearest.train, self.nearest.texts, strict=True)
            lines = [{"text": text, **asdict(self.prompt_format.make_shot(shot))} for shot, text in kept]
            rows = (json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            write_atomically(folder / _NEIGHBOURS, "".join(rows))

    def restore(self, folder: Path) -> None:
        """Restore what save wrote."""
        document = read_json(folder / "prompt.json")
        self.prompt_format.restore(document["state"])
        self.shots = [Shot(**shot) for shot in document["shots"]]
        if self.config.prompt.shots and self.config.prompt.shot_selection == "nearest":
            self.nearest = _load_neighbours(folder)


def _load_neighbours(folder: Path) -> NearestShots:
    """Load the examples that a run searches for the nearest."""
    path = folder / _NEIGHBOURS
    if not path.is_file():
        raise DanseoError(
            f"{folder.parent} has lost the training examples that its prompts show; make it again with danseo prompt … "
            "--force"
        )
    rows = [parse_json(line, path) for line in read_text(path).splitlines()]
    try:
        texts = [str(row.pop("text")) for row in rows]
        return NearestShots([Shot(**row) for row in rows], texts)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise DataError(f"{path}: corrupted; make the run again with --force") from None


def compute_probabilities(weights: Mapping[str, float], labels: Sequence[str]) -> dict[str, float]:
    """Return label probabilities from log-probabilities; missing labels get 0."""
    highest = max(weights.values())
    raised = {label: math.exp(weight - highest) for label, weight in weights.items()}
    total = sum(raised.values())
    return {label: raised.get(label, 0.0) / total for label in labels}


# Prompts that are too long


def truncate_prompt(
    prompt_format: PromptFormat, backend: Backend, example: Any, shots: Sequence[Any], reply: int, counts: Counter[str]
) -> list[tuple[Any, list[Message]]]:
    """Return the parts of an example with their messages; one part if everything fits."""
    limit = backend.max_context()
    messages = prompt_format.messages(example, shots)
    if limit is None or backend.count_tokens(messages) + reply <= limit:
        return [(example, messages)]
    for kept in range(len(shots) - 1, -1, -1):  # the last ones are the nearest
        messages = prompt_format.messages(example, shots[len(shots) - kept :])
        if backend.count_tokens(messages) + reply <= limit:
            counts["shots_dropped"] += 1
            return [(example, messages)]
    counts["shots_dropped"] += bool(shots)
    return _split_example(prompt_format, backend, example, limit - reply, counts)


def _split_example(
    prompt_format: PromptFormat, backend: Backend, example: Any, limit: int, counts: Counter[str]
) -> list[tuple[Any, list[Message]]]:
    """Split the example into parts that fit."""
    tokens, excess = backend.count_tokens(prompt_format.messages(example)), 0
    characters = max(1, len(prompt_format.user_message(example)))
    for _ in range(_MAX_SPLITS):
        excess += max(16, (tokens - limit) * characters // max(1, tokens))
        parts = [(part, prompt_format.messages(part)) for part in prompt_format.split_example(example, excess)]
        if not parts:
            break
        tokens = max(backend.count_tokens(messages) for _, messages in parts)
        if tokens <= limit:
            counts["cut"] += 1
            counts["windows"] += len(parts)
            return parts
    raise DanseoError(
        f"the model reads {limit} tokens before its reply, and the prompt of {example.guid} is longer, even without "
        "shots; use a model with a longer context, or a shorter --prompt"
    )
