"""Examples for pages: the worst errors of a run, failed replies, disagreements of two runs, and likely label errors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from danseo.files import write_atomically
from danseo.language import Message, _, join
from danseo.records import Prediction
from danseo.report.collection import Collection, RunAnswers
from danseo.report.html import Block, ExamplesBlock, NoteBlock, Page, PageSection, render_report
from danseo.runs.index import Record
from danseo.scoring.breakdown import rank_errors
from danseo.sweeps.mining import MiningResult
from danseo.tasktypes.base import Task
from danseo.tasktypes.rendering import EarlierTurns, RenderedExample, plain_line

_NAME = _("answer")
_MAX_WIDTH = 40  # words of a sentence whose tree is drawn
_SCREEN_WIDTH = 14  # words of one that fits on a screen
_MAX_REPLY = 400  # characters of a reply


def make_mistakes_block(task: Task, answers: RunAnswers, most: int) -> ExamplesBlock:
    """Return the worst errors of a run."""
    examples, predictions = answers.examples, answers.member.predictions
    ranked = rank_errors(task, examples, predictions)
    widths = {k: task.type.measure_width(examples[k]) for k in _drop_similar(task, examples, ranked.positions)}
    narrow = [position for position, width in widths.items() if width <= _MAX_WIDTH]
    chosen = sorted(narrow, key=lambda position: widths[position] > _SCREEN_WIDTH)[:most]
    rendered = []
    for position in chosen:
        earlier = list_earlier_turns(task, examples, position, lambda k: {_NAME: predictions[k]})
        rendered.append(task.type.render(task, examples[position], {_NAME: predictions[position]}, earlier))
    counts = {"n": len(rendered), "wrong": len(ranked.positions), "all": len(examples)}
    text = _("{n} of {wrong:,} wrong examples among {all:,}, {order}")
    note = text.format(**counts, order=ranked.order)
    if any(widths.values()):
        note += _(", short sentences (up to {n} words) before long ones").format(n=_SCREEN_WIDTH)
    return ExamplesBlock("Mistakes", add_legend(task, note), rendered)


def add_legend(task: Task, note: str) -> str:
    """Return the note, and what the marks in the examples mean."""
    return join([note, *([task.type.legend] if task.type.legend else [])], "\n")


def _drop_similar(task: Task, examples: Sequence[Any], positions: Sequence[int]) -> list[int]:
    """Return one example of each dialogue or passage: its neighbours are wrong in the same way."""
    if task.cluster is None:
        return list(positions)
    firsts: dict[str, int] = {}
    for position in positions:
        firsts.setdefault(task.cluster(examples[position]), position)
    return list(firsts.values())


def fit_on_screen(task: Task, examples: Sequence[Any], positions: list[int]) -> list[int]:
    """Return the positions of examples that fit on a screen; all if none does."""
    return [k for k in positions if task.type.measure_width(examples[k]) <= _SCREEN_WIDTH] or positions


def list_earlier_turns(
    task: Task, examples: Sequence[Any], position: int, answers: Callable[[int], Mapping[str, Prediction]]
) -> EarlierTurns:
    """Return the turns of the same dialogue before an example, with the answers to them."""
    return [(examples[k], answers(k)) for k in task.type.find_earlier(examples, position)]


def render_reply(task: Task, example: Any, text: str, problems: Sequence[str]) -> RenderedExample:
    """Return an example with a reply from which no answer could be read."""
    query = task.type.render(task, example, {})
    reply = (text if len(text) <= _MAX_REPLY else f"{text[:_MAX_REPLY]} …") if text.strip() else _("(nothing)")
    names = tuple(Message(problem.replace("_", " ")) for problem in problems)
    lines = (plain_line(_("reply"), reply, "answer", "wrong"), plain_line(_("problem"), join(names, ", ")))
    return RenderedExample(query.guid, (*query.lines, *lines), names)


def find_disagreements(collection: Collection, task: Task, one: Record, other: Record, most: int) -> Block:
    """Return up to `most` examples, from both sides in turn; a note if there are none."""
    names = collection.name(one), collection.name(other)
    first, second = collection.answers(one), collection.answers(other)
    if first is None or second is None:
        return NoteBlock(_("no examples: the dev file of these runs is missing, or their predictions cannot be read"))
    guids = {p.guid: p for p in second.member.predictions}
    sides: tuple[list[int], list[int]] = ([], [])
    for position, (example, prediction) in enumerate(zip(first.examples, first.member.predictions, strict=True)):
        if prediction.guid in guids:
            right = [task.type.credit(example, answer) for answer in (prediction.answer, guids[prediction.guid].answer)]
            if right[0] != right[1]:
                sides[0 if right[0] > right[1] else 1].append(position)
    total = [len(side) for side in sides]
    mixed = sorted(
        (rank, k, position)
        for k, side in enumerate(sides)
        for rank, position in enumerate(_sample_evenly(fit_on_screen(task, first.examples, side), most))
    )
    chosen = [position for _, _, position in mixed[:most]]
    if not chosen:
        text = _("{a} and {b} do not disagree: {reason}.")
        return NoteBlock(text.format(a=names[0], b=names[1], reason=_describe_agreement(task, first)))
    examples, own = first.examples, first.member.predictions

    def pair_answers(k: int) -> dict[str, Prediction]:
        return {names[0]: own[k], names[1]: guids[own[k].guid]}

    shown = []
    for position in chosen:
        earlier = list_earlier_turns(task, examples, position, pair_answers)
        shown.append(task.type.render(task, examples[position], pair_answers(position), earlier))
    text = _("{a} is right on {wins:,} examples where {b} is not, the other way round on {losses:,}; {n} of them")
    if task.type.partial_credit_unit:
        text = _("{a} is right in more words on {wins:,} examples, {b} on {losses:,}; {n} of them")
    note = text.format(a=names[0], b=names[1], wins=total[0], losses=total[1], n=len(shown))
    note = join([note, *([task.type.credit_note] if task.type.credit_note else [])], ", ")
    return ExamplesBlock("Disagreements", add_legend(task, note), shown)


def _describe_agreement(task: Task, answers: RunAnswers) -> str:
    """Describe two runs that are right on the same examples."""
    pairs = zip(answers.examples, answers.member.predictions, strict=True)
    right, total = sum(task.type.is_correct(example, each.answer) for example, each in pairs), len(answers.examples)
    if not right:
        return _("both are wrong on all {n:,} examples").format(n=total)
    text = _("both are right on the same {n:,} of {all:,} examples and wrong on the others")
    return text.format(n=right, all=total)


def _sample_evenly(positions: list[int], most: int) -> list[int]:
    """Return `most` of the positions, spread over the file."""
    step = max(1, len(positions) // max(1, most))
    return positions[::step][:most]


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
