"""Questions to a model: one place in one text each, and what of the answer is wanted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from danseo.models.masked.load import MaskedModel

TOP = 50  # guesses that the noun filter chooses from, as the old rule has it


@dataclass(frozen=True)
class Question:
    """Pieces with a gap; wanted: the best guesses, or the log-probabilities of given pieces, or both."""

    ids: tuple[int, ...]
    position: int
    top: int = 0
    pieces: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The best pieces in order, and the log-probability of each piece that was asked for."""

    top: list[int]
    log_probabilities: dict[int, float] = field(default_factory=dict)


def ask(
    masked: "MaskedModel", questions: Sequence[Question], on_done: Callable[[int], None] = lambda n: None
) -> list[Answer]:
    """Answers in the order of the questions; every question costs one row of one forward pass."""
    answers: list[Answer | None] = [None] * len(questions)
    size = len(masked.tokenizer)
    batches = masked.gap_logits([q.ids for q in questions], [q.position for q in questions], on_done)
    for part, logits in batches:
        rows = logits[:, :size]  # a padded vocabulary has rows without pieces
        most = min(size, max(questions[k].top for k in part))
        best = rows.topk(most, dim=-1).indices.tolist() if most else [[]] * len(part)
        totals = rows.logsumexp(-1)
        for row, k in enumerate(part):
            wanted = list(questions[k].pieces)
            values = (rows[row, wanted] - totals[row]).tolist() if wanted else []
            answers[k] = Answer(best[row][: questions[k].top], dict(zip(wanted, values, strict=True)))
    return [answer for answer in answers if answer is not None]
