"""Words of several pieces: the pseudo-likelihood of candidate words in a gap, and filling as many masks as needed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from danseo.probing.asking import Answer, Question, ask
from danseo.probing.items import ProbeItem
from danseo.probing.pieces import WordPieces
from danseo.probing.windows import Window

if TYPE_CHECKING:
    from danseo.models.masked.load import MaskedModel

Key = tuple[int, tuple[int, ...]]
"""The number of pieces of the word, and those that are already in place: words with the same start share a question."""


@dataclass
class Choice:
    """One gap and the words to choose from, each as pieces; a word that the vocabulary cannot spell has none."""

    window: Window
    words: Mapping[str, tuple[int, ...]]
    wanted: dict[Key, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pieces in self.words.values():
            for position, piece in enumerate(pieces):
                self.wanted.setdefault((len(pieces), pieces[:position]), set()).add(piece)

    def questions(self, mask: int) -> list[Question]:
        """What has to be asked: PLL-w2r masks a piece and those to its right within the word."""
        return [_question(self.window, key, mask, pieces) for key, pieces in self.wanted.items()]

    def scores(self, answers: Sequence[Answer]) -> dict[str, float]:
        """The pseudo-log-likelihood of every word."""
        known = dict(zip(self.wanted, answers, strict=True))
        return {
            word: sum(known[len(pieces), pieces[:k]].log_probabilities[piece] for k, piece in enumerate(pieces))
            if pieces
            else float("-inf")
            for word, pieces in self.words.items()
        }


def _question(window: Window, key: Key, mask: int, pieces: set[int], top: int = 0) -> Question:
    count, start = key
    ids, position = window.filled([*start, *[mask] * (count - len(start))])
    return Question(ids, position + len(start), top, tuple(sorted(pieces)))


def choice_of(item: ProbeItem, window: Window, pieces: WordPieces) -> Choice:
    """The target and the nouns of its text, to be told apart."""
    words = dict.fromkeys((item.target, *item.candidates, *item.given))
    return Choice(window, {word: pieces.in_gap(word, item) for word in words})


def rank(scores: Mapping[str, float], target: str, among: Sequence[str]) -> int:
    """The place of the target, 1 for the best; a target that cannot be spelled comes last."""
    others = [scores[word] for word in among if word != target]
    if scores[target] == float("-inf"):
        return len(others) + 1
    return 1 + sum(value > scores[target] for value in others)


def greedy_fills(masked: "MaskedModel", windows: Sequence[Window], lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """The pieces that the model puts into so many masks, from left to right, the best one each time."""
    fills: list[tuple[int, ...]] = [() for _ in windows]
    mask = masked.tokenizer.mask_token_id
    for step in range(max(lengths, default=0)):
        open_ = [k for k, length in enumerate(lengths) if length > step]
        questions = [_question(windows[k], (lengths[k], fills[k]), mask, set(), top=1) for k in open_]
        for k, answer in zip(open_, ask(masked, questions), strict=True):
            fills[k] += tuple(answer.top[:1])
    return fills
