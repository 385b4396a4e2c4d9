"""The list of examples whose labels are to be looked at: a table for programs, and a page for people."""

from collections.abc import Sequence

from danseo.display.escaping import to_csv
from danseo.mining.rule import Judged
from danseo.report.blocks import Block, ExamplesBlock, NoteBlock, Page, Section
from danseo.report.forms import Answered, show
from danseo.report.html import report_html
from danseo.tasks.task import Task

MOST = 1000
"""Examples on the page; the CSV has all."""


def texts_of(task: Task, judged: Judged) -> dict[str, str]:
    """What an example says, by name: its text or both of them, and its entities."""
    example = judged.example
    if hasattr(example, "subject"):
        entities = {"subject": example.subject, "object": example.object}
        return {"sentence": example.text} | {role: f"{e.word} ({e.type})" for role, e in entities.items()}
    pair = getattr(example, "pair", None)
    choices = {"choices": " / ".join(example.choices)} if hasattr(example, "choices") else {}
    texts = (example.text,) if pair is None else (example.text, pair)
    return dict(zip(task.parts, texts, strict=False)) | choices


def review_csv(task: Task, doubtful: Sequence[Judged]) -> str:
    """One row per example: its texts, its label, and what the model would say with which confidence."""
    texts = [texts_of(task, each) for each in doubtful]
    named = list(texts[0]) if texts else list(task.parts)
    header = ["guid", "gold", "answer", "confidence", "of_gold", *named]
    rows = [
        [each.example.guid, each.example.gold, each.prediction.answer, *_numbers(each), *said.values()]
        for each, said in zip(doubtful, texts, strict=True)
    ]
    return to_csv([header, *rows])


def _numbers(each: Judged) -> tuple[float, float]:
    return round(each.confidence, 4), round(each.own, 4)


def review_page(task: Task, doubtful: Sequence[Judged], title: str, lead: str) -> str:
    """The same as one HTML file, the surest answers first."""
    shown = [show(Answered(task, each.example, {"the model": each.prediction})) for each in doubtful[:MOST]]
    note = f"{len(shown):,} of {len(doubtful):,}, the surest first; all of them are in review.csv"
    block: Block = ExamplesBlock("examples", note, shown) if shown else NoteBlock("There is nothing to look at.")
    page = Page("review", title, lead, [Section("Labels to look at", [block])])
    return report_html([page], title)
