"""Question answering: the answer to a question in a passage, or none (machine reading comprehension)."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from danseo.display.table import Table
from danseo.files import quote
from danseo.language import _, join
from danseo.metrics.question_answering import best_overlap, exact_match, normalize, rouge_w
from danseo.metrics.statistic import Metric, index_metrics, mean
from danseo.records import Prediction, QuestionExample
from danseo.rows import Row, read_object
from danseo.tasktypes.base import (
    Confidences,
    DataFile,
    ErrorDescription,
    Examples,
    Golds,
    IsKnown,
    OutputRow,
    Predictions,
    Rows,
    Statistics,
    Systems,
    Task,
    TaskType,
    answers_of,
)
from danseo.tasktypes.combination import Combined, Combiner, Members, normalize_weights
from danseo.tasktypes.decoding import Array, Arrays, Candidates, fit_no_answer_threshold
from danseo.tasktypes.description import TaskDescription
from danseo.tasktypes.inputs import Input, read_cell, read_guid, text_of
from danseo.tasktypes.rendering import (
    NOTHING,
    EarlierTurns,
    RenderedExample,
    RenderedLine,
    TextSpan,
    mark_text,
    plain_line,
    show_confidence,
)
from danseo.text.perturbations import Change, change_spans

QUESTION_TYPES = {1: _("paraphrase"), 2: _("several sentences"), 3: _("unanswerable"), None: _("not known")}
_AROUND_ERROR = 60  # characters of a passage on either side of the answer, in a list of errors
_AROUND_MARK = 160  # the same for marks on a page


class QuestionAnswering(TaskType):
    """The answer is a text, "" if the passage holds no answer; gold holds every accepted answer."""

    name = "question_answering"
    resampling_unit = "passage"
    hub_pipeline = "question-answering"
    error_order = _("most confident first")
    ranks_by_confidence = True
    csv_columns: ClassVar[tuple[str, ...]] = ("answer", "start", "end", "confidence")
    is_numbered = False
    learns_labels = False
    custom_title = "question answering"
    custom_metrics: ClassVar[Mapping[str, Metric]] = index_metrics(
        Metric("answer/char_f1@1", "mean over questions of the best F1 in characters, as KorQuAD counts it"),
        Metric("answer/exact_match@1", "share of the answers that equal an accepted one"),
        Metric("answer/rouge_w@1", "mean F1 of the longest common substring"),
    )

    def measure_length(self, example: Any) -> int:
        return len(example.text) + len(example.question)

    def make_example(self, task: Task, guid: str, text: str) -> Any:
        return QuestionExample(guid, text, "어디에 왔는가?", ())

    def request_fields(self, task: Task) -> dict[str, Any]:
        names = {"text": "context", "question": "question"}
        return {name: getattr(task.custom, name, "") or default for name, default in names.items()}

    def validate(self, task: Task, example: Any, answer: Any) -> str:
        if not isinstance(answer, str):
            raise ValueError(
                _('the answer should be a text, "" for unanswerable, not {answer}').format(answer=quote(answer))
            )
        return answer

    def change_texts(self, example: Any, change: Change) -> Any:
        if len(example.starts) != len(example.gold):
            return example
        places = [(start, start + len(gold)) for start, gold in zip(example.starts, example.gold, strict=True)]
        text, spans = change_spans(example.text, places, change)
        return replace(
            example,
            text=text,
            question=change(example.question, ()).text,
            gold=tuple(text[start:end] for start, end in spans),
            starts=tuple(start for start, _ in spans),
        )

    # Baselines

    def gold_answer(self, example: Any) -> Any:
        return example.gold[0] if example.gold else ""

    def with_answer(self, task: Task, example: Any, answer: Any) -> Any | None:
        start = example.text.find(answer)
        if start < 0:  # a language model may write what the passage does not have
            return None
        return replace(example, gold=(answer,) if answer else (), starts=(start,) if answer else ())

    def majority_answer(self, example: Any, most_frequent: Any) -> Any:
        return ""

    # Scoring

    def breakdown(self, task: Task, examples: Examples, predictions: Predictions) -> list[Table]:
        answers = answers_of(predictions)
        types = [QUESTION_TYPES[example.question_type] for example in examples]
        answerable = [_("answerable") if example.gold else _("unanswerable") for example in examples]
        given = ["answered" if answer else "left empty" for answer in answers]
        pairs = Counter(zip(answerable, given, strict=True))
        rows: list[tuple[object, ...]] = [
            (gold, pairs[gold, "answered"], pairs[gold, "left empty"]) for gold in (_("answerable"), _("unanswerable"))
        ]
        return [
            *([] if task.custom else [question_table("per question type", types, examples, answers)]),
            question_table("per answerability", answerable, examples, answers),
            Table("did it answer?", ("question", "answered", "left empty"), rows),
        ]

    def confidences(self, task: Task, examples: Examples, predictions: Predictions, rows: Rows) -> Confidences | None:
        """Return the confidences that there is an answer, or none."""
        if not examples or not all("" in (prediction.probabilities or {}) for prediction in predictions):
            return None
        none = np.array([(prediction.probabilities or {})[""] for prediction in predictions])
        is_empty = np.array([not example.gold for example in examples])
        values = np.where(none >= 0.5, none, 1 - none)
        return Confidences("questions, whether they have an answer", values, (none >= 0.5) == is_empty)

    def describe_error(self, task: Task, example: Any, prediction: Prediction) -> ErrorDescription | None:
        if self.is_correct(example, prediction.answer):
            return None
        confidence = _find_confidence(prediction)
        parts = {
            "passage": _truncate_passage(example),
            "question": example.question,
            "gold": " | ".join(dict.fromkeys(example.gold)) or NOTHING,
            "answer": show_confidence(prediction.answer or NOTHING, confidence),
        }
        return ErrorDescription(confidence or 0.0, parts)

    def is_correct(self, example: Any, answer: Any) -> bool:
        return exact_match([example.gold], [answer]).value() == 100

    # Rendering

    def render(self, task: Task, example: Any, answers: Systems, earlier: EarlierTurns = ()) -> RenderedExample:
        text = example.text
        marks = [(start, start + len(gold), "gold") for start, gold in zip(example.starts, example.gold, strict=False)]
        for name, prediction in answers.items():
            start = text.find(prediction.answer) if prediction.answer else -1
            if start >= 0 and not self.is_correct(example, prediction.answer):
                marks.append((start, start + len(prediction.answer), "answer" if len(answers) == 1 else name))
        states = ["missed" if mark[2] == "gold" else "wrong" for mark in marks]
        lines = [
            RenderedLine("passage", tuple(_shorten_passage(mark_text(text, marks, states)))),
            plain_line("question", example.question),
            plain_line("gold", " | ".join(dict.fromkeys(example.gold)) or _("(no answer)"), "gold"),
        ]
        for name, prediction in answers.items():
            none = (prediction.probabilities or {}).get("")
            confidence = _(" (no answer: {percent:.0f} %)").format(percent=100 * none) if none is not None else ""
            state = "right" if self.is_correct(example, prediction.answer) else "wrong"
            lines.append(
                plain_line(name, join([prediction.answer or _("(no answer)"), confidence], ""), "answer", state)
            )
        return RenderedExample(example.guid, tuple(lines), (_("answerable") if example.gold else _("unanswerable"),))

    # Ensembles, output, prompts

    def make_combiner(self, members: Members, method: str) -> Combiner:
        return CandidateCombiner(members, method)

    def pack_arrays(self, task: Task, rows: Sequence[Any], token_starts: Sequence[Array] | None = None) -> Arrays:
        """Return the candidates of all questions: their texts as one UTF-8 string with sizes in characters."""
        pairs = [pair for candidates in rows for pair in candidates]
        return {
            "texts": np.frombuffer("".join(text for text, _ in pairs).encode(), dtype=np.uint8),
            "sizes": np.array([len(text) for text, _ in pairs], dtype=np.int32),
            "scores": np.array([score for _, score in pairs], dtype=np.float64),
            "counts": np.array([len(candidates) for candidates in rows], dtype=np.int32),
        }

    def unpack_arrays(self, task: Task, arrays: Arrays) -> list[Any]:
        joined, ends = arrays["texts"].tobytes().decode(), np.cumsum(arrays["sizes"]).tolist()
        columns = zip(ends, arrays["sizes"].tolist(), arrays["scores"].tolist(), strict=True)
        pairs = [(joined[end - size : end], score) for end, size, score in columns]
        last = np.cumsum(arrays["counts"]).tolist()
        return [pairs[end - count : end] for end, count in zip(last, arrays["counts"].tolist(), strict=True)]

    def fits_example(self, row: Any, example: Any) -> bool:
        return len(row) > 0

    def to_row(
        self, task: Task, example: Any, prediction: Prediction, table: Any = None, with_tags: bool = False
    ) -> OutputRow:
        row: dict[str, Any] = {"answer": prediction.answer}
        if prediction.span:
            row["start"], row["end"] = prediction.span
        if (confidence := _find_confidence(prediction)) is not None:
            row["confidence"] = round(confidence, 6)
        return row

    def group_shots(self, example: Any) -> str:
        return str(bool(example.gold))

    # Custom tasks

    def custom_parts(self, description: TaskDescription) -> tuple[str, ...]:
        return ("passage", "question")

    def custom_cluster(self, description: TaskDescription) -> Callable[[Any], str] | None:
        return lambda example: str(example.text)

    def custom_input(self, description: TaskDescription) -> Input:
        return question_input(description.text or "context", description.question or "question")

    def read_custom(self, file: DataFile, is_known: IsKnown) -> Iterator[Any]:
        if file.is_squad():
            return _read_squad(file)
        return super().read_custom(file, is_known)

    def read_row(self, row: Row, number: int, description: TaskDescription, is_known: IsKnown) -> Any:
        text = read_cell(row, description.text)
        answers = _read_answers(row, text, description)
        return QuestionExample(
            read_guid(row, number, description),
            text=text,
            question=read_cell(row, description.question),
            gold=tuple(answer for answer, _ in answers),
            starts=tuple(start for _, start in answers),
        )

    def measure_custom(self, custom: TaskDescription, examples: Examples, golds: Golds, answers: Golds) -> Statistics:
        pairs = zip(golds, answers, strict=True)
        best = [max(character_f1(text, answer) for text in gold or ("",)) for gold, answer in pairs]
        return {
            "answer/char_f1@1": mean(best),
            "answer/exact_match@1": exact_match(golds, answers),
            "answer/rouge_w@1": rouge_w(golds, answers),
        }


def question_input(passage: str = "context", question: str = "question") -> Input:
    """Return the input of a passage and a question about it."""
    return Input(
        f"{passage} and {question}",
        lambda row, guid: QuestionExample(guid, text=text_of(row, passage), question=text_of(row, question), gold=()),
    )


def question_table(title: str, keys: Sequence[str], examples: Sequence[Any], answers: list[str]) -> Table:
    """Return the scores of each group of questions."""
    rows: list[tuple[object, ...]] = []
    for key in sorted(set(keys)):
        chosen = [(e.gold, a) for e, a, k in zip(examples, answers, keys, strict=True) if k == key]
        golds, given = zip(*chosen, strict=True)
        overlaps = [best_overlap(gold, answer) for gold, answer in chosen]
        rows.append((key, len(chosen), exact_match(golds, given).value(), 100 * sum(overlaps) / len(overlaps)))
    return Table(title, (title.removeprefix("per "), "n", "exact match", "ROUGE-W"), rows)


def character_f1(gold: str, answer: str) -> float:
    """Return the F1 of the characters that both have, in any order; punctuation and spaces left out."""
    one, two = (Counter(normalize(text).replace(" ", "")) for text in (gold, answer))
    if not one or not two:
        return float(one == two)
    both = (one & two).total()
    return 2 * both / (one.total() + two.total())


def _find_confidence(prediction: Prediction) -> float | None:
    none = (prediction.probabilities or {}).get("")
    if none is None:
        return None
    return 1 - none if prediction.answer else none


def _truncate_passage(example: Any) -> str:
    """Return the passage near the first accepted answer, or its beginning if there is none."""
    text = example.text
    start = example.starts[0] if example.starts else 0
    end = start + len(example.gold[0]) if example.gold else start + _AROUND_ERROR
    first, last = max(0, start - _AROUND_ERROR), min(len(text), end + _AROUND_ERROR)
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


def _shorten_passage(spans: Sequence[TextSpan]) -> list[TextSpan]:
    """Return the passage near its marks; long texts between them become an ellipsis."""
    shortened = []
    for position, span in enumerate(spans):
        text, is_first, is_last = span.text, position == 0, position == len(spans) - 1
        if span.mark or len(text) <= 2 * _AROUND_MARK:
            shortened.append(span)
        elif is_first and is_last:
            shortened.append(TextSpan(text[: 2 * _AROUND_MARK] + " …"))
        elif is_first:
            shortened.append(TextSpan("… " + text[-_AROUND_MARK:]))
        elif is_last:
            shortened.append(TextSpan(text[:_AROUND_MARK] + " …"))
        else:
            shortened.append(TextSpan(f"{text[:_AROUND_MARK]} … {text[-_AROUND_MARK:]}"))
    return shortened


# Custom tasks


def _read_answers(row: Row, text: str, description: TaskDescription) -> list[tuple[str, int]]:
    """Return the answers with their offsets: one in a column, or {"text": […], "answer_start": […]}."""
    value = row.values.get(description.answer)
    if isinstance(value, dict):
        lists = [value.get(key) for key in ("text", "answer_start")]
        if not all(isinstance(each, list) for each in lists) or len(lists[0] or ()) != len(lists[1] or ()):
            raise row.error(f"column {description.answer!r} should have as many text as answer_start")
        pairs = zip(lists[0] or (), lists[1] or (), strict=True)
        return [_read_answer(Row({"text": one, "answer_start": start}, row.where), text) for one, start in pairs]
    answer = read_cell(row, description.answer) if value not in (None, "") else ""
    if not answer:
        return []
    start = read_cell(row, description.answer_start) if description.answer_start else str(text.find(answer))
    if not start.isdigit() or text[int(start) : int(start) + len(answer)] != answer:
        raise row.error(f"the answer {quote(answer)} is not in the passage at {quote(start)}; correct it")
    return [(answer, int(start))]


def _read_squad(file: DataFile) -> Iterator[QuestionExample]:
    for document in read_object(file.path).children("data"):
        for paragraph in document.children("paragraphs"):
            text = paragraph.text("context")
            for qa in paragraph.children("qas"):
                rows = [] if qa.values.get("is_impossible") else qa.children("answers")
                answers = [_read_answer(row, text) for row in rows]
                yield QuestionExample(
                    read_cell(qa, "id" if "id" in qa.values else "guid"),
                    text=text,
                    question=qa.text("question"),
                    gold=tuple(answer for answer, _ in answers),
                    starts=tuple(start for _, start in answers),
                    title=document.optional_text("title"),
                )


def _read_answer(row: Row, text: str) -> tuple[str, int]:
    answer, start = row.text("text"), row.integer("answer_start")
    if start < 0 or not answer.strip() or text[start : start + len(answer)] != answer:
        raise row.error(
            f"the answer {quote(answer)} is not in its context at {quote(start)}; correct text or answer_start"
        )
    return answer, start


# Ensembles


class CandidateCombiner(Combiner):
    """Sums the probabilities of the members' candidates, or votes; equal texts count together, "" among them.

    The no-answer threshold is fitted again on the select split, on top of the members' own; votes have none.
    """

    def __init__(self, members: Members, method: str) -> None:
        super().__init__(members, method)
        self.select = members.select_positions
        self.overlap = cache(best_overlap)  # fitting weights combines again and again
        if method != "vote":
            rows = self.require_rows("scores of answers")
            self.tables = [[score_candidates(candidates, method) for candidates in member] for member in rows]

    def __call__(self, weights: Array) -> Combined:
        normal = normalize_weights(weights)
        if self.method == "vote":
            voted = self._vote(self.weight_votes(normal))
            return [self._locate(position, prediction) for position, prediction in enumerate(voted)], None
        tables = [(t, w) for t, w in zip(self.tables, normal.tolist(), strict=True) if w > 0]
        columns = range(len(self.guids))
        pools = [pool_candidates([(t[position], w) for t, w in tables], self.method) for position in columns]
        rows = self._shift(pools)
        chosen = [choose_answer(guid, row) for guid, row in zip(self.guids, rows, strict=True)]
        return [self._locate(position, prediction) for position, prediction in enumerate(chosen)], rows

    def _shift(self, rows: list[Candidates]) -> list[Candidates]:
        """Return the candidates with the score of no answer shifted by the threshold."""
        if self.select:
            golds = [self.members.examples[position].gold for position in self.select]
            chosen = [rows[position] for position in self.select]
            self.threshold = fit_no_answer_threshold(golds, chosen, self.overlap)
        return [[*row[:-1], ("", row[-1][1] - (self.threshold or 0.0))] for row in rows]

    def _locate(self, position: int, prediction: Prediction) -> Prediction:
        """Return the prediction with the span of a member that has the same answer, or of its first occurrence."""
        same = (p for m in self.members.members if (p := m.predictions[position]).answer == prediction.answer)
        start = self.members.examples[position].text.find(prediction.answer)
        first = (start, start + len(prediction.answer)) if prediction.answer and start >= 0 else None
        return replace(prediction, span=next((p.span for p in same if p.span), first))

    def _vote(self, weights: Array) -> list[Prediction]:
        """Return the texts with the most votes; the probability of no answer is the mean over the members."""
        predictions = []
        for position, guid in enumerate(self.guids):
            votes: dict[str, float] = {}
            none = 0.0
            for member, weight in zip(self.members.members, weights.tolist(), strict=True):
                given = member.predictions[position]
                votes[given.answer] = votes.get(given.answer, 0.0) + weight
                none += weight * (given.probabilities or {}).get("", float(given.answer == ""))
            best = max(votes, key=lambda text: (votes[text], text))
            predictions.append(Prediction(guid, best, {"": min(1.0, none / float(weights.sum()))}))
        return predictions


def score_candidates(candidates: Candidates, method: str) -> dict[str, float]:
    """Return text -> its score, unchanged for logit, else its log-probability among the candidates."""
    if method == "logit":
        return dict(candidates)
    highest = max(score for _, score in candidates)
    total = highest + math.log(sum(math.exp(score - highest) for _, score in candidates))
    return {text: score - total for text, score in candidates}


def pool_candidates(members: list[tuple[dict[str, float], float]], method: str) -> Candidates:
    """Return the candidates of all members, best first, "" last; a missing text scores as a member's last one."""
    texts = dict.fromkeys(text for table, _ in members for text in table if text)
    pool = {}
    for text in (*texts, ""):
        if method == "prob":
            total = sum(weight * math.exp(table[text]) for table, weight in members if text in table)
            pool[text] = math.log(total) if total > 0 else -745.0
        else:
            pool[text] = sum(weight * table.get(text, min(table.values())) for table, weight in members)
    none = pool.pop("")
    return [*sorted(pool.items(), key=lambda pair: (-pair[1], pair[0])), ("", none)]


def choose_answer(guid: str, candidates: Candidates) -> Prediction:
    """Return the best text, or "" if no answer has a higher score."""
    *texts, (_, none) = candidates
    text, score = texts[0] if texts else ("", -math.inf)
    p_none = 1 / (1 + math.exp(min(max(score - none, -50.0), 50.0)))
    return Prediction(guid, "" if none > score else text, {"": p_none})


TYPE = QuestionAnswering()
