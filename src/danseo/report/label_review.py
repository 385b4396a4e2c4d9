"""The page of likely label errors that `danseo mine` writes beside review.csv."""

from danseo.files import write_atomically
from danseo.language import _
from danseo.report.blocks import Block, ExamplesBlock, NoteBlock, Page, PageSection
from danseo.report.html import render_report
from danseo.sweeps.mining import MiningResult

_MOST = 1000  # examples on the page; the CSV file has all


def write_review_page(mined: MiningResult, model: str, folds: int) -> None:
    """Write review.html: the examples to review, the most confident predictions first."""
    task, doubtful = mined.task, mined.doubtful
    title = _("{task}: labels to review").format(task=task.name)
    lead = _(
        "{model}, {folds} folds, each predicted by a model that was not trained on it. Each prediction has more than "
        "{confidence:g} confidence in another label than the one in the data. Either can be wrong."
    ).format(model=model, folds=folds, confidence=mined.rule.min_confidence)
    shown = [task.type.render(task, each.example, {_("the model"): each.prediction}) for each in doubtful[:_MOST]]
    note = _("{n:,} of {all:,}, the most confident first; all of them are in review.csv")
    note = note.format(n=len(shown), all=len(doubtful))
    block: Block = ExamplesBlock("examples", note, shown) if shown else NoteBlock(_("There is nothing to review."))
    page = Page("review", title, lead, [PageSection("Labels to review", [block])])
    write_atomically(mined.out / "review.html", render_report([page], title))
