"""KLUE-MRC: the answer to a question in a passage, or none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.files import quote
from danseo.metrics.answering import exact_match, longest_common_substring, normalise_brackets, rouge_w
from danseo.metrics.statistic import Statistic
from danseo.records import Prediction, QuestionExample
from danseo.rows import Row, is_parquet, read_object, read_rows
from danseo.tasks.inputs import question_input
from danseo.tasks.task import Task, answers_of, golds_of

QUESTION_TYPES = {1: "paraphrase", 2: "several sentences", 3: "unanswerable", None: "not known"}


def read(path: Path) -> list[QuestionExample]:
    if is_parquet(path):
        return [_from_hub(row) for row in read_rows(path)]
    return [
        _question(qa, paragraph.text("context"), document)
        for document in read_object(path).children("data")
        for paragraph in document.children("paragraphs")
        for qa in paragraph.children("qas")
    ]


def _question(qa: Row, context: str, document: Row) -> QuestionExample:
    """One question; passage and answers lose their outer white space, as on the Hub, and the offsets follow."""
    passage, margin = context.strip(), len(context) - len(context.lstrip())
    spans = [] if qa.flag("is_impossible") else _required([_span(row, context) for row in qa.children("answers")], qa)
    return QuestionExample(
        qa.text("guid"),
        text=passage,
        question=qa.text("question"),
        gold=tuple(text for text, _ in spans),
        starts=tuple(start - margin for _, start in spans),
        question_type=_question_type(qa),
        title=document.optional_text("title"),
        source=document.optional_text("source"),
    )


def _required(spans: list[tuple[str, int]], row: Row) -> list[tuple[str, int]]:
    """The spans, of which an answerable question has at least one."""
    if not spans:
        raise row.error("no answers although is_impossible is false; add them or mend is_impossible")
    return spans


def _question_type(row: Row) -> int | None:
    kind = row.values.get("question_type")
    if kind is not None and (not isinstance(kind, int) or isinstance(kind, bool) or kind not in QUESTION_TYPES):
        raise row.error(f"question_type {quote(kind)} should be 1, 2, 3 or null")
    return kind


def _span(row: Row, context: str) -> tuple[str, int]:
    text, start = row.text("text"), row.integer("answer_start")
    if start < 0 or not text.strip() or context[start : start + len(text)] != text:
        raise row.error(f"the answer {quote(text)} is not in its context at {quote(start)}; mend text or answer_start")
    bare = text.strip()
    return bare, start + text.index(bare)


def _from_hub(row: Row) -> QuestionExample:
    """The Hub merges plausible answers into the answers of unanswerable questions, and strips the passage."""
    context = row.text("context").strip()
    spans: list[tuple[str, int]] = []
    if not row.flag("is_impossible"):
        answers = row.child("answers")
        starts = answers.values.get("answer_start")
        texts = answers.texts("text")
        if not isinstance(starts, list) or len(starts) != len(texts):
            raise answers.error("text and answer_start should have the same length; fetch the file again")
        pairs = zip(texts, starts, strict=True)
        spans = _required([_settled(Row({"text": t, "answer_start": s}, row.where), context) for t, s in pairs], row)
    return QuestionExample(
        row.text("guid"),
        text=context,
        question=row.text("question"),
        gold=tuple(text for text, _ in spans),
        starts=tuple(start for _, start in spans),
        question_type=_question_type(row),
        title=row.optional_text("title"),
        source=row.optional_text("source"),
    )


def _settled(row: Row, context: str) -> tuple[str, int]:
    """The span where its text stands: the Hub cuts white space off passages and answers but keeps the offsets."""
    text, start = row.text("text"), row.integer("answer_start")
    if start >= 0 and context[start : start + len(text)] != text:
        before = context.rfind(text, 0, start + len(text))  # the passage lost its margin
        after = context.find(text, start)  # the answer lost its own
        start = next((position for position in (before, after) if position >= 0), start)
    return _span(Row({"text": text, "answer_start": start}, row.where), context)


def check_answer(example: QuestionExample, answer: Any) -> str:
    if not isinstance(answer, str):
        raise ValueError(f'the answer should be a text, "" for unanswerable, not {quote(answer)}')
    return answer


def measure(examples: Sequence[QuestionExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    return {
        "mrc/rouge_w@official-1": rouge_w(golds, answers),
        "mrc/exact_match@official-1": exact_match(golds, answers),
        "mrc/rouge_w@exact-1": rouge_w(golds, answers, longest_common_substring),
        "mrc/exact_match@brackets-1": exact_match(golds, answers, normalise_brackets),
    }


TASK = Task(
    name="mrc",
    short="MRC",
    title="machine reading comprehension",
    kind="answer",
    folder="klue-mrc-v1.1",
    extension=".json",
    official_rows={"train": 17554, "dev": 5841},
    read=read,
    metrics={
        "mrc/rouge_w@official-1": "mean F1 of the longest common substring, as difflib finds it",
        "mrc/exact_match@official-1": "share of the answers that equal an accepted one",
        "mrc/rouge_w@exact-1": "the same with the true longest common substring",
        "mrc/exact_match@brackets-1": "exact match that ignores Korean brackets and curly quotes too",
    },
    measure=measure,
    check_answer=check_answer,
    cluster=lambda example: example.text,
    form="question",
    input=question_input(),
    columns={"EM": "mrc/exact_match@official-1", "ROUGE": "mrc/rouge_w@official-1"},
    parts=("passage", "question"),
    sample="mrc",
)
