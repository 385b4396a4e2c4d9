"""Question-answering head: windows over the passage, a start and an end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from danseo.models.base import Answers
from danseo.models.encoder.heads.base import TaskHead, log_softmax
from danseo.models.encoder.heads.classification import collate_sides
from danseo.models.encoder.tokenizer import EncoderTokenizer, TokenizedText
from danseo.records import Prediction, QuestionExample
from danseo.runs.soft_targets import TeacherAnswer
from danseo.tasktypes.decoding import Candidates, fit_no_answer_threshold
from danseo.training.features import Array, Features, Outputs, split_row

if TYPE_CHECKING:
    from torch import Tensor, nn

_LOGITS = ("start_logits", "end_logits")
_WORD_ENDS = " \t\r\n\u202f"  # where the official code splits passages into words


class QuestionAnsweringHead(TaskHead):
    """A span of the passage that answers a question; "" for no answer.

    The official architecture differs in that its no-answer threshold stays 0, and in that an answer with an unknown
    token grows to the whole words around it, as aligning it with the words fails there. Not reproduced: cutting
    every word of the passage for itself, labels that cover whole words where the tokens of the answer do not occur,
    questions dropped from training because their answer was not found, and the best starts and ends being sought
    among the tokens of the question too.
    """

    auto_class = "AutoModelForQuestionAnswering"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.official = self.config.architecture == "official"
        self.threshold = 0.0
        if self.config.pooling == "compare":
            self.auto_class = ""

    def build_network_head(self, body: Any) -> nn.Module:
        from danseo.models.encoder.heads.pooling import CompareSpanHead, SpanHead

        if self.config.pooling == "compare":
            return CompareSpanHead(body.config.hidden_size, self.config.classifier_dropout)
        return SpanHead(body.config.hidden_size, self.config)

    def encode(self, examples: Sequence[QuestionExample], *, with_gold: bool) -> list[Features]:
        texts = list(dict.fromkeys(example.text for example in examples))
        passages = {cut.text: Passage.of(cut) for cut in self.tokenizer.tokenize(texts)}
        questions = self.tokenizer.tokenize([example.question for example in examples])
        frame = PairTemplate(self.tokenizer)
        features = []
        for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
            for record in self._windows(number, question.ids, passages[example.text], frame):
                if with_gold:
                    record.fields["start"], record.fields["end"] = find_gold_positions(example, record)
                features.append(record)
        return features

    def _windows(self, number: int, question: list[int], passage: Passage, frame: PairTemplate) -> Iterator[Features]:
        """Yield the windows of one question, `stride` tokens apart."""
        room = self.max_length - frame.specials
        asked = question[: min(self.config.max_query_length, room // 2)]
        width = room - len(asked)
        begins = np.arange(0, max(len(passage) - width, 0) + self.stride(width), self.stride(width))
        sizes = np.minimum(len(passage) - begins, width)
        for begin, size, owned in zip(begins.tolist(), sizes.tolist(), assign_owners(begins, sizes), strict=True):
            ids, position = frame.join(asked, passage.ids[begin : begin + size])
            fields: dict[str, Any] = {
                "truncated": len(asked) < len(question),
                "position": position,
                "passage": passage,
                "begin": begin,
                "owned": owned,
            }
            if self.config.pooling == "compare":
                fields["sides"] = ((frame.begin, frame.begin + len(asked)), (position, position + size))
            yield Features(number, ids, frame.segments(len(asked), size), fields)

    def stride(self, width: int) -> int:
        """Return the distance between windows; never more than their width."""
        return max(1, min(self.config.doc_stride, width))

    def collate(self, features: Sequence[Features], with_gold: bool) -> dict[str, Array]:
        names = ("start", "end") if with_gold else ()
        gold = {name: np.array([f.fields[name] for f in features]) for name in names}
        return gold | collate_sides(features)

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        from danseo.models.encoder.heads.losses import position_cross_entropy

        texts, smoothing = batch["texts"], self.config.label_smoothing
        starts, ends = (texts.pad(outputs[name]) for name in _LOGITS)
        starts, windows = position_cross_entropy(starts, batch["start"], texts.mask, smoothing)
        ends, _ = position_cross_entropy(ends, batch["end"], texts.mask, smoothing)
        return (starts + ends) / 2, windows

    @staticmethod
    def has_soft_target(answer: TeacherAnswer) -> bool:
        return answer.row is not None

    def encode_soft_target(self, example: Any, record: Features, answer: TeacherAnswer | None) -> Array:
        """Return the probabilities of starts and of ends; what is not in the window counts for the first token."""
        if answer is None or answer.row is None:
            return np.full((2, len(record)), np.nan, dtype=np.float32)
        targets = np.zeros((2, len(record)), dtype=np.float32)
        scores = np.exp(log_softmax(np.array([score for _, score in answer.row])))
        for (text, _), probability in zip(answer.row, scores.tolist(), strict=True):
            known = example if text in example.gold else self.task.type.with_answer(self.task, example, text)
            start, end = find_gold_positions(known or replace(example, gold=()), record)
            targets[0, start] += probability
            targets[1, end] += probability
        return targets

    def collate_soft_targets(self, features: Sequence[Features]) -> Array:
        batch = np.zeros((len(features), 2, max(map(len, features))), dtype=np.float32)
        for row, record in zip(batch, features, strict=True):
            row[:, : len(record)] = record.fields["soft_target"]
        return batch

    def soft_loss(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> Tensor:
        from danseo.models.encoder.heads.losses import NOWHERE, soft_cross_entropy

        texts, temperature = batch["texts"], self.train.distill_temperature
        starts, ends = (texts.pad(outputs[name]).masked_fill(~texts.mask, NOWHERE) for name in _LOGITS)
        targets = batch["soft_target"]
        losses = (
            soft_cross_entropy(starts, targets[:, 0], temperature),
            soft_cross_entropy(ends, targets[:, 1], temperature),
        )
        return (losses[0] + losses[1]) / 2

    def unpack(self, outputs: dict[str, Any], batch: dict[str, Any], features: Sequence[Features]) -> list[Outputs]:
        starts, ends = (split_row(outputs[name], features) for name in _LOGITS)
        return [{"start": start, "end": end} for start, end in zip(starts, ends, strict=True)]

    def decode(
        self, examples: Sequence[QuestionExample], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> Answers:
        candidates, predictions = self.candidates(examples, features, outputs), []
        for example, (*found, none) in zip(examples, candidates, strict=True):
            best = found[0] if found else NOTHING
            p_none = 1 / (1 + np.exp(np.clip(best.score - none.score, -50, 50)))
            chosen = none if none.score > best.score else best
            predictions.append(Prediction(example.guid, chosen.text, {"": float(p_none)}, chosen.span))
        return Answers(predictions, self.task.type.pack_arrays(self.task, list_scored_texts(candidates)))

    def candidates(
        self, examples: Sequence[QuestionExample], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> list[list[Candidate]]:
        """Return per example the best answers of all windows, best first, then "" with the no-answer score."""
        pairs = groupby(zip(features, outputs, strict=True), key=lambda pair: pair[0].example)
        return [
            self._rank_candidates(example.text, list(windows))
            for example, (_, windows) in zip(examples, pairs, strict=True)
        ]

    def _rank_candidates(self, passage: str, windows: Sequence[tuple[Features, Outputs]]) -> list[Candidate]:
        none = min(float(output["start"][0] + output["end"][0]) for _, output in windows)
        found = [(*span, record) for record, output in windows for span in self._find_spans(record, output)]
        found.sort(key=lambda span: -span[0])
        texts: dict[str, Candidate] = {}
        for score, start, end, record in found:
            if len(texts) == self.config.n_best_size:
                break
            span = self._find_characters(passage, record, start, end)
            texts.setdefault(passage[slice(*span)], Candidate(passage[slice(*span)], score, span))
        return [*texts.values(), Candidate("", none - self.threshold)]

    def _find_spans(self, record: Features, output: Outputs) -> list[tuple[float, int, int]]:
        """Return the best spans of one window: score, first and last token."""
        position, owned, best = record.fields["position"], record.fields["owned"], self.config.n_best_size
        real = record.fields["passage"].real[record.fields["begin"] :][: len(owned)]
        starts = find_highest(output["start"][position : position + len(owned)], real & owned, best)
        ends = find_highest(output["end"][position : position + len(owned)], real, best)
        gaps = ends[None, :] - starts[:, None]
        rows, columns = np.nonzero((gaps >= 0) & (gaps < self.config.max_answer_length))
        starts, ends = starts[rows], ends[columns]
        scores = output["start"][position + starts].astype(np.float64) + output["end"][position + ends]
        order = np.argsort(-scores, kind="stable")[:best]
        return list(zip(scores[order].tolist(), starts[order].tolist(), ends[order].tolist(), strict=True))

    def _find_characters(self, passage: str, record: Features, start: int, end: int) -> tuple[int, int]:
        """Return the characters of a span; the official code expands spans with unknown tokens to words."""
        offsets, position = record.fields["passage"].offsets[record.fields["begin"] :], record.fields["position"]
        first, last = int(offsets[start, 0]), int(offsets[end, 1])
        if self.official and self.tokenizer.unk_id in record.ids[position + start : position + end + 1]:
            first, last = expand_to_words(passage, first, last)
        while last > first and passage[last - 1].isspace():
            last -= 1
        while first < last and passage[first].isspace():
            first += 1
        return first, last

    def fit_thresholds(
        self, examples: Sequence[QuestionExample], features: Sequence[Features], outputs: Sequence[Outputs]
    ) -> None:
        if self.official:
            return
        self.threshold = 0.0
        candidates = self.candidates(examples, features, outputs)
        self.threshold = fit_no_answer_threshold([example.gold for example in examples], list_scored_texts(candidates))

    def get_thresholds(self) -> dict[str, float]:
        return {"threshold": self.threshold}

    def restore_thresholds(self, thresholds: dict[str, float]) -> None:
        self.threshold = thresholds["threshold"]

    def make_perfect_outputs(self, examples: Sequence[QuestionExample], features: Sequence[Features]) -> list[Outputs]:
        outputs = []
        for example, (_, windows) in zip(examples, groupby(features, key=lambda f: f.example), strict=True):
            for record in windows:
                start, end = find_gold_positions(example, record)
                logits = np.zeros((2, len(record)), dtype=np.float32)
                logits[0, start] = logits[1, end] = 10.0
                outputs.append({"start": logits[0], "end": logits[1]})
        return outputs


class Candidate(NamedTuple):
    """An answer with its score and the span of its best occurrence."""

    text: str
    score: float
    span: tuple[int, int] | None = None


NOTHING = Candidate("", -np.inf)


def list_scored_texts(candidates: Sequence[Sequence[Candidate]]) -> list[Candidates]:
    """Return the candidates as texts with scores, as runs save them."""
    return [[(one.text, one.score) for one in listed] for listed in candidates]


@dataclass(frozen=True)
class Passage:
    """The tokens of a passage and their characters."""

    ids: list[int]
    offsets: Any
    real: Any
    """Whether a token covers any character."""

    @classmethod
    def of(cls, cut: TokenizedText) -> Passage:
        offsets = np.array(cut.trimmed_offsets(), dtype=np.int32).reshape(-1, 2)
        return cls(cut.ids, offsets, offsets[:, 1] > offsets[:, 0])

    def find_tokens(self, start: int, end: int) -> Any:
        """Return the tokens that cover any of the characters from start to end."""
        return np.flatnonzero((self.offsets[:, 1] > start) & (self.offsets[:, 0] < end) & self.real)

    def __len__(self) -> int:
        return len(self.ids)


class PairTemplate:
    """The special tokens and segments around question and passage."""

    def __init__(self, tokenizer: EncoderTokenizer) -> None:
        part = tokenizer.tokenize(["1"])[0]
        joined, size = tokenizer.add_special_tokens(part, part), len(part)
        before = joined.special_tokens_mask.index(0)
        after = len(joined) - joined.special_tokens_mask[::-1].index(0)
        cuts = [0, before, before + size, after - size, after, len(joined)]
        parts = [slice(a, b) for a, b in pairwise(cuts)]
        self._ids = [joined.ids[part] for part in parts]
        self._segments = [joined.type_ids[part] for part in parts]
        self.begin, self.specials = before, len(joined) - 2 * size
        self.segments = cache(self._build_segments)

    def join(self, question: list[int], window: list[int]) -> tuple[list[int], int]:
        """Return the ids of an input and where the window begins in it."""
        left = [*self._ids[0], *question, *self._ids[2]]
        return [*left, *window, *self._ids[4]], len(left)

    def _build_segments(self, question: int, window: int) -> list[int]:
        """Return the segments of an input with this many question and window tokens."""
        before, asked, between, read, after = self._segments
        return [*before, *asked[:1] * question, *between, *read[:1] * window, *after]


def assign_owners(begins: Any, sizes: Any) -> list[Any]:
    """Return which tokens of each window have more context there than in any other window."""
    ends = (begins + sizes).tolist()
    context, winners = np.full(ends[-1], -1.0), np.zeros(ends[-1], dtype=np.int64)
    for k, (begin, end) in enumerate(zip(begins.tolist(), ends, strict=True)):  # not all at once: that is quadratic
        positions = np.arange(end - begin)
        here = np.minimum(positions, positions[::-1]) + 0.01 * len(positions)
        better = here > context[begin:end]
        context[begin:end][better], winners[begin:end][better] = here[better], k
    return [winners[begin:end] == k for k, (begin, end) in enumerate(zip(begins.tolist(), ends, strict=True))]


def find_gold_positions(example: QuestionExample, record: Features) -> tuple[int, int]:
    """Return where the first gold answer starts and ends in an input; (0, 0) if it is not completely in it."""
    if not example.gold:
        return 0, 0
    start, end = example.starts[0], example.starts[0] + len(example.gold[0])
    begin, size = record.fields["begin"], len(record.fields["owned"])
    tokens = record.fields["passage"].find_tokens(start, end) - begin
    if not len(tokens) or tokens[0] < 0 or tokens[-1] >= size:
        return 0, 0
    return record.fields["position"] + int(tokens[0]), record.fields["position"] + int(tokens[-1])


def find_highest(scores: Any, allowed: Any, count: int) -> Any:
    """Return the indices of the highest allowed scores, best first."""
    numbers = np.flatnonzero(allowed)
    if len(numbers) > count:  # all that reach the last place, so that ties do not hang on the partition
        numbers = numbers[scores[numbers] >= np.partition(scores[numbers], -count)[-count]]
    return numbers[np.argsort(-scores[numbers], kind="stable")[:count]]


def expand_to_words(passage: str, first: int, last: int) -> tuple[int, int]:
    """Return the span expanded to whole words."""
    while first and passage[first - 1] not in _WORD_ENDS:
        first -= 1
    while last < len(passage) and passage[last] not in _WORD_ENDS:
        last += 1
    return first, last
