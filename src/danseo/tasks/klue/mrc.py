"""KLUE-MRC: the answer to a question in a passage, or none."""

from collections.abc import Sequence
from pathlib import Path

from danseo.files import quote
from danseo.metrics.question_answering import exact_match, longest_common_substring, normalize_brackets, rouge_w
from danseo.metrics.statistic import Metric, Statistic, index_metrics
from danseo.records import Prediction, QuestionExample
from danseo.rows import Row, is_parquet, read_object, read_rows
from danseo.tasktypes import question_answering
from danseo.tasktypes.base import Task, answers_of, golds_of


def read(path: Path) -> list[QuestionExample]:
    if is_parquet(path):
        return [_read_hub_row(row) for row in read_rows(path)]
    return [
        _read_question(qa, paragraph.text("context"), document)
        for document in read_object(path).children("data")
        for paragraph in document.children("paragraphs")
        for qa in paragraph.children("qas")
    ]


def _read_question(qa: Row, context: str, document: Row) -> QuestionExample:
    """Return one question; passage and answers lose their outer white space, as on the Hub, and the offsets follow."""
    passage, margin = context.strip(), len(context) - len(context.lstrip())
    is_impossible = qa.flag("is_impossible")
    spans = [] if is_impossible else _require_answers([_read_answer(r, context) for r in qa.children("answers")], qa)
    return QuestionExample(
        qa.text("guid"),
        text=passage,
        question=qa.text("question"),
        gold=tuple(text for text, _ in spans),
        starts=tuple(start - margin for _, start in spans),
        question_type=_read_question_type(qa),
        title=document.optional_text("title"),
        source=document.optional_text("source"),
    )


def _require_answers(spans: list[tuple[str, int]], row: Row) -> list[tuple[str, int]]:
    """Return the answers; raise DataError if there are none."""
    if not spans:
        raise row.error("no answers although is_impossible is false; add them or correct is_impossible")
    return spans


def _read_question_type(row: Row) -> int | None:
    type_ = row.values.get("question_type")
    if type_ is not None and (
        not isinstance(type_, int) or isinstance(type_, bool) or type_ not in question_answering.QUESTION_TYPES
    ):
        raise row.error(f"question_type {quote(type_)} should be 1, 2, 3 or null")
    return type_


def _read_answer(row: Row, context: str) -> tuple[str, int]:
    text, start = row.text("text"), row.integer("answer_start")
    if start < 0 or not text.strip() or context[start : start + len(text)] != text:
        raise row.error(f"the answer {quote(text)} is not in its context at {quote(start)}; correct one of them")
    stripped = text.strip()
    return stripped, start + text.index(stripped)


def _read_hub_row(row: Row) -> QuestionExample:
    """Return one question; on the Hub, unanswerable questions have plausible answers, and passages are stripped."""
    context = row.text("context").strip()
    spans: list[tuple[str, int]] = []
    if not row.flag("is_impossible"):
        answers = row.child("answers")
        starts = answers.values.get("answer_start")
        texts = answers.texts("text")
        if not isinstance(starts, list) or len(starts) != len(texts):
            raise answers.error("text and answer_start should have the same length; fetch the file again")
        pairs = zip(texts, starts, strict=True)
        spans = _require_answers(
            [_locate_answer(Row({"text": t, "answer_start": s}, row.where), context) for t, s in pairs], row
        )
    return QuestionExample(
        row.text("guid"),
        text=context,
        question=row.text("question"),
        gold=tuple(text for text, _ in spans),
        starts=tuple(start for _, start in spans),
        question_type=_read_question_type(row),
        title=row.optional_text("title"),
        source=row.optional_text("source"),
    )


def _locate_answer(row: Row, context: str) -> tuple[str, int]:
    """Return the answer where it is in the passage: the Hub strips passages and answers but keeps the offsets."""
    text, start = row.text("text"), row.integer("answer_start")
    if start >= 0 and context[start : start + len(text)] != text:
        before = context.rfind(text, 0, start + len(text))  # the passage lost its margin
        after = context.find(text, start)  # the answer lost its own
        start = next((position for position in (before, after) if position >= 0), start)
    return _read_answer(Row({"text": text, "answer_start": start}, row.where), context)


def measure(examples: Sequence[QuestionExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    return {
        "mrc/rouge_w@official-1": rouge_w(golds, answers),
        "mrc/exact_match@official-1": exact_match(golds, answers),
        "mrc/rouge_w@exact-1": rouge_w(golds, answers, longest_common_substring),
        "mrc/exact_match@brackets-1": exact_match(golds, answers, normalize_brackets),
    }


TASK = Task(
    name="mrc",
    short="MRC",
    title="machine reading comprehension",
    type=question_answering.TYPE,
    folder="klue-mrc-v1.1",
    extension=".json",
    official_rows={"train": 17554, "dev": 5841},
    read=read,
    metrics=index_metrics(
        Metric("mrc/rouge_w@official-1", "mean F1 of the longest common substring, as difflib finds it"),
        Metric("mrc/exact_match@official-1", "share of the answers that equal an accepted one"),
        Metric("mrc/rouge_w@exact-1", "the same with the true longest common substring"),
        Metric("mrc/exact_match@brackets-1", "exact match that ignores Korean brackets and curly quotes too"),
    ),
    measure=measure,
    cluster=lambda example: example.text,
    input=question_answering.question_input(),
    columns={"EM": "mrc/exact_match@official-1", "ROUGE": "mrc/rouge_w@official-1"},
    parts=("passage", "question"),
)
