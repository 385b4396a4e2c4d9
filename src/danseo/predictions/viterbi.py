"""Tags of characters from distributions over tags: what taggers end with, and ensembles of them; needs no torch.

A row of zeros means that nobody knows anything about the character: no piece covers a space.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from danseo.tasks.ner import LABELS
from danseo.text.letters import letters_of

Array = npt.NDArray[Any]
_ROUNDING = 1e-6  # far above that of a sum of logarithms
SMALLEST = 1e-30  # what a probability of 0 counts as, so that every sentence has a legal path


def character_probabilities(
    pieces: Array, offsets: Array, length: int, labels: tuple[str, ...] = LABELS
) -> tuple[Array, Array]:
    """Distributions of the pieces (n × labels) as those of the characters, and which characters have one.

    The first character of a piece takes its distribution; a later one cannot begin an entity, so there P(I-x) takes
    what B-x had. Works for one sentence, and for many at once when their characters are counted through.
    """
    owners, firsts = owners_of(offsets, length)
    return spread(pieces, owners, firsts, labels), owners >= 0


def owners_of(offsets: Array, length: int) -> tuple[Array, Array]:
    """The piece of every character (-1 for none) and whether it starts there.

    Of several pieces, such as the bytes of a syllable, the first that starts at the character has it.
    """
    owners, firsts = np.full(length, -1), np.zeros(length, dtype=bool)
    starts, sizes = offsets[:, 0], offsets[:, 1] - offsets[:, 0]
    pieces = np.repeat(np.arange(len(offsets)), sizes)
    positions = starts[pieces] + np.arange(len(pieces)) - (np.cumsum(sizes) - sizes)[pieces]
    owners[positions[::-1]] = pieces[::-1]  # of repeated positions the last assignment stays: the earliest piece
    filled = np.flatnonzero(sizes)[::-1]
    owners[starts[filled]] = filled
    firsts[starts[filled]] = True
    return owners, firsts


def spread(pieces: Array, owners: Array, firsts: Array, labels: tuple[str, ...] = LABELS) -> Array:
    """The distribution of every character from that of its piece; zeros where there is none."""
    _, begins, insides = columns(labels)
    covered = owners >= 0
    table = np.zeros((len(owners), len(labels)), dtype=pieces.dtype)
    table[covered] = pieces[owners[covered]]
    later = np.flatnonzero(covered & ~firsts)[:, None]
    table[later, insides] += table[later, begins]
    table[later, begins] = 0
    return table


@cache
def columns(labels: tuple[str, ...]) -> tuple[int, list[int], list[int]]:
    """Where O, the B- and the I- of the same types stand."""
    begins = [position for position, label in enumerate(labels) if label.startswith("B-")]
    return labels.index("O"), begins, [labels.index(f"I-{labels[position][2:]}") for position in begins]


def decode_characters(
    probabilities: Sequence[Array], covered: Sequence[Array], labels: tuple[str, ...] = LABELS
) -> list[tuple[str, ...]]:
    """The likeliest legal tags of each sentence: I-x only after B-x or I-x, and no B- where nothing is known.

    A space inside an entity so carries I-; between equals O wins.
    """
    if not probabilities:
        return []
    outside, begins, insides = columns(labels)
    order = [outside, *begins, *insides]
    evidence = _evidence(np.concatenate(probabilities)[:, order], np.concatenate(covered))
    lengths = np.array([len(rows) for rows in probabilities])
    tags = np.array([labels[position] for position in order], dtype=object)[_best_paths(evidence, lengths)].tolist()
    ends = np.cumsum(lengths).tolist()
    return [tuple(tags[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]


def decode_texts(
    texts: Sequence[str], probabilities: Sequence[Array], covered: Sequence[Array], labels: tuple[str, ...] = LABELS
) -> list[tuple[str, ...]]:
    """As decode_characters, but a syllable that a text spells with several characters counts once."""
    starts = [letters_of(text).starts for text in texts]
    if not any(starts):
        return decode_characters(probabilities, covered, labels)
    firsts = [np.unique(found or range(len(text) + 1)) for found, text in zip(starts, texts, strict=True)]
    rows = [table[positions[:-1]] for table, positions in zip(probabilities, firsts, strict=True)]
    known = [which[positions[:-1]] for which, positions in zip(covered, firsts, strict=True)]
    return [
        _spelled(tags, positions)
        for tags, positions in zip(decode_characters(rows, known, labels), firsts, strict=True)
    ]


def _spelled(tags: tuple[str, ...], firsts: Array) -> tuple[str, ...]:
    """The tags of all characters from those of the positions where something begins, and the end."""
    sizes = np.diff(firsts).tolist()
    spelled = ((tag, *[tag.replace("B-", "I-")] * (size - 1)) for tag, size in zip(tags, sizes, strict=True))
    return tuple(chain.from_iterable(spelled))


def _evidence(rows: Array, covered: Array) -> Array:
    """Logarithms of probabilities; nothing is known of characters that no piece covers, but that none begins there."""
    evidence: Array = np.log(np.maximum(rows.astype(np.float64), SMALLEST))
    blank = np.zeros(evidence.shape[1])
    blank[1 : 1 + _types(evidence)] = -np.inf
    evidence[~covered] = blank
    return evidence


def _types(table: Array) -> int:
    """How many types the columns O, B-…, I-… stand for."""
    return int(table.shape[1] - 1) // 2


def _best_paths(evidence: Array, lengths: Array) -> Array:
    """The best states of all sentences, laid end to end; only stretches that are in doubt are searched."""
    covered: Array = np.asarray(np.isfinite(evidence).all(axis=1))
    following = _following(covered)
    states = _likeliest(evidence, covered, following, lengths)
    illegal = _illegal(states, lengths, _types(evidence))
    equals = covered & ((evidence == evidence.max(axis=1, keepdims=True)).sum(axis=1) > 1)
    loss = np.zeros(len(states))
    amiss = following[illegal]
    loss[illegal] = evidence[amiss, states[amiss]] - evidence[amiss, states[amiss] - _types(evidence)]
    parts = _stretches(evidence, states, _summed(loss, lengths), lengths)
    doubtful = np.flatnonzero(_summed(illegal | equals, parts))
    if len(doubtful):
        firsts = np.cumsum(parts) - parts
        rows = np.concatenate([np.arange(firsts[k], firsts[k] + parts[k]) for k in doubtful])
        states[rows] = _searched(evidence[rows], parts[doubtful])
    return states


def _following(covered: Array) -> Array:
    """The first covered character from each on; the last one where there is none."""
    places = np.where(covered, np.arange(len(covered)), len(covered) - 1)
    following: Array = np.minimum.accumulate(places[::-1])[::-1]
    return following


def _likeliest(evidence: Array, covered: Array, following: Array, lengths: Array) -> Array:
    """The likeliest state of every character by itself; spaces before an I- go with it, other spaces are O."""
    states = evidence.argmax(axis=1)  # O stands first, so it wins between equals
    sentences = np.repeat(np.arange(len(lengths)), lengths)
    joins = ~covered & (states[following] > _types(evidence)) & (sentences[following] == sentences)
    found: Array = np.where(joins, states[following], states)
    return found


def _illegal(states: Array, lengths: Array, types: int) -> Array:
    """Where an I- stands after something else than its own B- or I-."""
    before = np.concatenate([[0], states[:-1]])
    before[(np.cumsum(lengths) - lengths)[lengths > 0]] = 0  # nothing is open where a sentence begins
    illegal: Array = (states > types) & (before != states) & (before + types != states)
    return illegal


def _stretches(evidence: Array, states: Array, losses: Array, lengths: Array) -> Array:
    """Lengths of stretches that can be searched apart: they end with sentences, and with an O that is certain.

    The likeliest states become legal if every I- that stands amiss turns into a B-, which loses so much; a path that
    loses more at a single character cannot be the best.
    """
    others = evidence[:, 1:].max(axis=1)
    is_last = (states == 0) & (others < evidence[:, 0] - np.repeat(losses, lengths) - _ROUNDING)
    is_last[(np.cumsum(lengths) - 1)[lengths > 0]] = True
    return np.diff(np.flatnonzero(is_last), prepend=-1)


def _summed(values: Array, lengths: Array) -> Array:
    """The sum over each of so many values in a row."""
    totals = np.concatenate([[0], np.cumsum(values)])
    ends = np.cumsum(lengths)
    sums: Array = totals[ends] - totals[ends - lengths]
    return sums


def _searched(evidence: Array, lengths: Array) -> Array:
    """The best legal states; the loop goes over positions, not over sentences."""
    by_length = np.argsort(-lengths, kind="stable")
    firsts = (np.cumsum(lengths) - lengths)[by_length]
    alive = [int((lengths > position).sum()) for position in range(int(lengths.max()))]
    from_any = np.zeros(len(evidence), dtype=np.int64)
    from_begin = np.zeros((len(evidence), _types(evidence)), dtype=bool)
    ends, scores = np.zeros(len(lengths), dtype=np.int64), np.zeros((len(lengths), 1))
    for position, count in enumerate(alive):
        rows = firsts[:count] + position
        if position == 0:
            scores = _start(evidence[rows])
        else:
            ends[count : len(scores)] = scores[count:].argmax(axis=1)
            scores, from_any[rows], from_begin[rows] = _advance(scores[:count], evidence[rows])
    ends[: len(scores)] = scores.argmax(axis=1)
    return _trace(ends, firsts, lengths[by_length], from_any, from_begin)


def _start(evidence: Array) -> Array:
    """Scores of the first character, which is inside of nothing."""
    scores = evidence.copy()
    scores[:, 1 + _types(evidence) :] = -np.inf
    return scores


def _advance(scores: Array, evidence: Array) -> tuple[Array, Array, Array]:
    """Scores one character on; the best state before O and B-, and whether a B- is best before each I-."""
    types = _types(scores)
    begins, insides = scores[:, 1 : 1 + types], scores[:, 1 + types :]
    best = scores.argmax(axis=1)  # O stands first, so it wins between equals
    ahead = evidence.copy()
    ahead[:, : 1 + types] += scores[np.arange(len(scores)), best][:, None]
    ahead[:, 1 + types :] += np.maximum(begins, insides)
    return ahead, best, begins >= insides


def _trace(ends: Array, firsts: Array, lengths: Array, from_any: Array, from_begin: Array) -> Array:
    """The states on the best paths, read from the ends; plain numbers are quicker here than small arrays."""
    types, any_before, begin_before = from_begin.shape[1], from_any.tolist(), from_begin.tolist()
    states = [0] * len(any_before)
    for state, first, length in zip(ends.tolist(), firsts.tolist(), lengths.tolist(), strict=True):
        for row in range(first + length - 1, first - 1, -1):
            states[row] = state
            if state <= types:
                state = any_before[row]
            elif begin_before[row][state - 1 - types]:
                state -= types
    return np.array(states)
