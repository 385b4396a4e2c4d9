"""Answers from the numbers of a model: Viterbi, trees, thresholds; and the npz files that hold them. Needs no torch.

Viterbi decides a unit at once: a token, or a character where the tokenizers of an ensemble differ.
A row of zeros means that no token covers the character, such as a space.
"""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from danseo.errors import PredictionError
from danseo.files import MAX_BYTES, read_bytes
from danseo.metrics.question_answering import best_overlap
from danseo.text.normalization import normalize_text

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


def pack_npz(arrays: Mapping[str, Array]) -> bytes:
    """Return the bytes of an npz file that holds the arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_npz(path: Path) -> Arrays | None:
    """Return the arrays of an npz file, or None if there is no file; nothing is unpickled."""
    if not path.is_file():
        return None
    content = read_bytes(path)
    try:
        arrays = unpack_npz(content)
    except ValueError as error:
        raise PredictionError(f"{path}: {error}; run `danseo train --force` again") from None
    if odd := [name for name, array in arrays.items() if array.dtype.kind == "f" and not (array < np.inf).all()]:
        raise PredictionError(f"{path}: {odd[0]} holds NaN or infinite numbers; run `danseo train --force` again")
    return arrays


def unpack_npz(content: bytes) -> Arrays:
    """Return the arrays in the bytes of an npz file; raise ValueError if they are corrupted or too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES / 2**30:.3g} GiB of numbers")
        with np.load(io.BytesIO(content), allow_pickle=False) as loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except Exception as error:  # a corrupted zip or header makes the libraries raise almost anything
        is_too_large = isinstance(error, ValueError) and "GiB" in str(error)
        raise ValueError(str(error) if is_too_large else "not a readable npz file") from None  # numpy advises pickle
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("not a readable npz file")
    return arrays


_ROUNDING = 1e-6  # far above that of a sum of logarithms
SMALLEST = 1e-30  # used for a probability of 0, so that every sentence has a legal path


def compute_character_probabilities(
    tokens: Array, offsets: Array, length: int, labels: tuple[str, ...]
) -> tuple[Array, Array, Array]:
    """Return the probabilities of characters from those of tokens (n x labels), who is covered, and token starts.

    Offsets may count through the characters of several sentences.
    """
    owners, firsts = find_owners(offsets, length)
    return spread_to_characters(tokens, owners, firsts, labels), owners >= 0, find_token_starts(owners, firsts)


def find_token_starts(owners: Array, firsts: Array) -> Array:
    """Return for each character whether a token starts there; a character without a token counts as a token."""
    starts: Array = firsts | (owners < 0) | (owners != np.concatenate([[-1], owners[:-1]]))
    return starts


def find_owners(offsets: Array, length: int) -> tuple[Array, Array]:
    """Return the token of every character (-1 for none), and whether it starts there.

    Of several tokens, such as the bytes of a syllable, the first that starts at the character owns it.
    """
    owners, firsts = np.full(length, -1), np.zeros(length, dtype=bool)
    starts, sizes = offsets[:, 0], offsets[:, 1] - offsets[:, 0]
    tokens = np.repeat(np.arange(len(offsets)), sizes)
    positions = starts[tokens] + np.arange(len(tokens)) - (np.cumsum(sizes) - sizes)[tokens]
    owners[positions[::-1]] = tokens[::-1]  # of repeated positions the last assignment stays: the earliest token
    filled = np.flatnonzero(sizes)[::-1]
    owners[starts[filled]] = filled
    firsts[starts[filled]] = True
    return owners, firsts


def spread_to_characters(tokens: Array, owners: Array, firsts: Array, labels: tuple[str, ...]) -> Array:
    """Return the probabilities of every character from those of its token; zeros if there is none.

    Only the first character of a token can begin an entity; at later ones I-x gets the probability of B-x.
    """
    _, begins, insides = index_tags(labels)
    covered = owners >= 0
    table = np.zeros((len(owners), len(labels)), dtype=tokens.dtype)
    table[covered] = tokens[owners[covered]]
    later = np.flatnonzero(covered & ~firsts)[:, None]
    table[later, insides] += table[later, begins]
    table[later, begins] = 0
    return table


@cache
def index_tags(labels: tuple[str, ...]) -> tuple[int, list[int], list[int]]:
    """Return the positions of O, of the B- tags, and of the I- tags of the same types."""
    begins = [position for position, label in enumerate(labels) if label.startswith("B-")]
    return labels.index("O"), begins, [labels.index(f"I-{labels[position][2:]}") for position in begins]


def decode_texts(
    texts: Sequence[str],
    probabilities: Sequence[Array],
    covered: Sequence[Array],
    labels: tuple[str, ...],
    starts: Sequence[Array] | None = None,
) -> list[tuple[str, ...]]:
    """Return the most likely legal tags of each text: I-x only after B-x or I-x, and no B- on an uncovered character.

    A space inside an entity so gets I-; of equal paths that with O wins. A token counts once, however long it is:
    starts marks the characters at which tokens start; without it every character is a token. A syllable that is
    spelled with several characters counts once in any case.
    """
    if not probabilities:
        return []
    lengths = np.array([len(text) for text in texts])
    table, known = np.concatenate(probabilities), np.concatenate(covered)
    is_start = np.ones(len(table), dtype=bool) if starts is None else np.concatenate(starts)
    first = np.cumsum(lengths) - lengths
    for text, position in zip(texts, first.tolist(), strict=True):
        if (spelled := normalize_text(text).starts) is not None:
            begins = np.zeros(len(text), dtype=bool)
            begins[spelled[:-1]] = True
            is_start[position : position + len(text)] &= begins
    is_start[first[lengths > 0]] = True
    return _decode_units(table, known, is_start, lengths, labels)


def _decode_units(
    table: Array, covered: Array, is_start: Array, lengths: Array, labels: tuple[str, ...]
) -> list[tuple[str, ...]]:
    """Decode the first character of every unit; the others have the same type."""
    outside, begins, insides = index_tags(labels)
    order = [outside, *begins, *insides]
    evidence = _compute_evidence(table[is_start][:, order], covered[is_start])
    states = _find_best_paths(evidence, _sum_segments(is_start, lengths).astype(np.int64))[np.cumsum(is_start) - 1]
    states[~is_start & (states > 0) & (states <= len(begins))] += len(begins)
    tags = np.array([labels[position] for position in order], dtype=object)[states].tolist()
    ends = np.cumsum(lengths).tolist()
    return [tuple(tags[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]


def _compute_evidence(rows: Array, covered: Array) -> Array:
    """Return log-probabilities; at uncovered characters all tags but B- are equal."""
    evidence: Array = np.log(np.maximum(rows.astype(np.float64), SMALLEST))
    blank = np.zeros(evidence.shape[1])
    blank[1 : 1 + _count_types(evidence)] = -np.inf
    evidence[~covered] = blank
    return evidence


def _count_types(table: Array) -> int:
    """Return the number of types of the columns O, B-…, I-…."""
    return int(table.shape[1] - 1) // 2


def _find_best_paths(evidence: Array, lengths: Array) -> Array:
    """Return the best states of all sentences, one after the other; only doubtful segments are searched."""
    covered: Array = np.asarray(np.isfinite(evidence).all(axis=1))
    following = _find_next_covered(covered)
    states = _choose_single_states(evidence, covered, following, lengths)
    illegal = _find_illegal_states(states, lengths, _count_types(evidence))
    equals = covered & ((evidence == evidence.max(axis=1, keepdims=True)).sum(axis=1) > 1)
    loss = np.zeros(len(states))
    wrong = following[illegal]
    loss[illegal] = evidence[wrong, states[wrong]] - evidence[wrong, states[wrong] - _count_types(evidence)]
    segments = _split_segments(evidence, states, _sum_segments(loss, lengths), lengths)
    doubtful = np.flatnonzero(_sum_segments(illegal | equals, segments))
    if len(doubtful):
        firsts = np.cumsum(segments) - segments
        rows = np.concatenate([np.arange(firsts[k], firsts[k] + segments[k]) for k in doubtful])
        states[rows] = _search_paths(evidence[rows], segments[doubtful])
    return states


def _find_next_covered(covered: Array) -> Array:
    """Return the first covered character from each on; the last character if there is none."""
    positions = np.where(covered, np.arange(len(covered)), len(covered) - 1)
    following: Array = np.minimum.accumulate(positions[::-1])[::-1]
    return following


def _choose_single_states(evidence: Array, covered: Array, following: Array, lengths: Array) -> Array:
    """Return the most likely state of every character by itself; spaces before an I- get it, other spaces O."""
    states = evidence.argmax(axis=1)  # O is the first column, so it wins ties
    sentences = np.repeat(np.arange(len(lengths)), lengths)
    joins = ~covered & (states[following] > _count_types(evidence)) & (sentences[following] == sentences)
    chosen: Array = np.where(joins, states[following], states)
    return chosen


def _find_illegal_states(states: Array, lengths: Array, types: int) -> Array:
    """Return which states are an I- that follows neither its own B- nor I-."""
    before = np.concatenate([[0], states[:-1]])
    before[(np.cumsum(lengths) - lengths)[lengths > 0]] = 0  # no entity is open where a sentence begins
    illegal: Array = (states > types) & (before != states) & (before + types != states)
    return illegal


def _split_segments(evidence: Array, states: Array, losses: Array, lengths: Array) -> Array:
    """Return the lengths of segments that are independent: they end with a sentence, or with an O that is certain.

    The single states become legal if every illegal I- becomes a B-, which costs the loss of its sentence; a path
    that loses more at one character cannot be the best.
    """
    others = evidence[:, 1:].max(axis=1)
    is_last = (states == 0) & (others < evidence[:, 0] - np.repeat(losses, lengths) - _ROUNDING)
    is_last[(np.cumsum(lengths) - 1)[lengths > 0]] = True
    return np.diff(np.flatnonzero(is_last), prepend=-1)


def _sum_segments(values: Array, lengths: Array) -> Array:
    """Return the sum of each segment of consecutive values."""
    totals = np.concatenate([[0], np.cumsum(values)])
    ends = np.cumsum(lengths)
    sums: Array = totals[ends] - totals[ends - lengths]
    return sums


def _search_paths(evidence: Array, lengths: Array) -> Array:
    """Return the best legal states by Viterbi; the loop is over positions, for all sentences at once."""
    by_length = np.argsort(-lengths, kind="stable")
    firsts = (np.cumsum(lengths) - lengths)[by_length]
    alive = [int((lengths > position).sum()) for position in range(int(lengths.max()))]
    from_any = np.zeros(len(evidence), dtype=np.int64)
    from_begin = np.zeros((len(evidence), _count_types(evidence)), dtype=bool)
    ends, scores = np.zeros(len(lengths), dtype=np.int64), np.zeros((len(lengths), 1))
    for position, count in enumerate(alive):
        rows = firsts[:count] + position
        if position == 0:
            scores = evidence[rows].copy()
            scores[:, 1 + _count_types(evidence) :] = -np.inf  # the first character is inside of nothing
        else:
            ends[count : len(scores)] = scores[count:].argmax(axis=1)
            scores, from_any[rows], from_begin[rows] = _advance(scores[:count], evidence[rows])
    ends[: len(scores)] = scores.argmax(axis=1)
    return _trace_back(ends, firsts, lengths[by_length], from_any, from_begin)


def _advance(scores: Array, evidence: Array) -> tuple[Array, Array, Array]:
    """Return the scores of the next character, the best state before O and B-, and if a B- is best before each I-."""
    types = _count_types(scores)
    begins, insides = scores[:, 1 : 1 + types], scores[:, 1 + types :]
    best = scores.argmax(axis=1)  # O is the first column, so it wins ties
    ahead = evidence.copy()
    ahead[:, : 1 + types] += scores[np.arange(len(scores)), best][:, None]
    ahead[:, 1 + types :] += np.maximum(begins, insides)
    return ahead, best, begins >= insides


def _trace_back(ends: Array, firsts: Array, lengths: Array, from_any: Array, from_begin: Array) -> Array:
    """Return the states on the best paths, read from the ends; lists are quicker here than small arrays."""
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


FLOOR = -1e4  # the lowest log probability kept, so that half precision holds it


def find_best_tree(arcs: Any) -> Any:
    """Return the heads of the best tree with exactly one root; arcs are words x (root and words)."""
    arcs, words = np.asarray(arcs, dtype=np.float64), len(arcs)  # the penalty of a root exceeds half precision
    scores = np.full((words + 1, words + 1), -np.inf)
    scores[1:] = arcs
    np.fill_diagonal(scores, -np.inf)
    heads = _find_best_heads(scores)
    if (heads[1:] == 0).sum() > 1:  # again, with a penalty on roots: a second one costs more than any tree can gain
        scores[1:, 0] -= (words + 1) * (arcs.max() - arcs.min() + 1.0)
        heads = _find_best_heads(scores)
    return heads[1:]


def _find_best_heads(scores: Any) -> Any:
    """Return the heads of the best tree below node 0, by Chu-Liu/Edmonds; scores are nodes x heads."""
    heads = _greedy_heads(scores)
    contractions = []
    while len(cycle := _find_cycle(heads)):  # it becomes one node, the last
        outside = np.ones(len(scores), dtype=bool)
        outside[cycle] = False
        others = np.flatnonzero(outside)
        entering = scores[np.ix_(cycle, others)] - scores[cycle, heads[cycle]][:, None]  # each breaks the cycle there
        leaving = scores[np.ix_(others, cycle)]
        contractions.append((heads, others, cycle[entering.argmax(axis=0)], cycle[leaving.argmax(axis=1)]))
        contracted = np.full((len(others) + 1, len(others) + 1), -np.inf)
        contracted[:-1, :-1] = scores[np.ix_(others, others)]
        contracted[-1, :-1] = entering.max(axis=0)
        contracted[:-1, -1] = leaving.max(axis=1)
        scores = contracted
        heads = _greedy_heads(scores)
    for inner, others, entered, left in reversed(contractions):
        outer, head = heads[:-1], heads[-1]
        inner[others] = np.where(outer == len(others), left, others[np.minimum(outer, len(others) - 1)])
        inner[entered[head]] = others[head]
        heads = inner
    return heads


def _greedy_heads(scores: Any) -> Any:
    """Return the best head of every node, chosen without regard to the others; node 0 keeps itself."""
    heads = scores.argmax(axis=1)
    heads[0] = 0
    return heads


def _find_cycle(heads: Any) -> Any:
    """Return the nodes of one cycle; none if node 0 is above all nodes."""
    reached = heads
    for _ in range(len(heads).bit_length()):
        reached = reached[reached]  # after more steps than there are nodes: node 0, or a node of a cycle
    cycle: list[Any] = []
    node = reached.max()
    while node and (not cycle or node != cycle[0]):
        cycle.append(node)
        node = heads[node]
    return np.array(cycle, dtype=np.int64)


Candidates = list[tuple[str, float]]
"""The best answers to a question with their scores, and at the end "" with the score of no answer."""
Overlap = Callable[[tuple[str, ...], str], float]
_STEPS = np.arange(1, 20) / 20


def fit_no_answer_threshold(
    golds: Sequence[tuple[str, ...]], candidates: Sequence[Candidates], overlap: Overlap = best_overlap
) -> float:
    """Return by how much the score of "" may exceed that of the best text before the answer is ""."""
    best = [texts[0] if len(texts) > 1 else ("", -np.inf) for texts in candidates]
    margins = [texts[-1][1] - score for texts, (_, score) in zip(candidates, best, strict=True)]
    answered = [overlap(gold, text) for gold, (text, _) in zip(golds, best, strict=True)]
    return choose_threshold(np.array(margins), np.array(answered), np.array([overlap(gold, "") for gold in golds]))


def choose_threshold(margins: Array, answered: Array, unanswered: Array) -> float:
    """Return the threshold with the highest total score; of equal ones that nearest to 0.

    An example scores as unanswered if its margin is above the threshold, else as answered.
    """
    order = np.argsort(margins, kind="stable")
    order = order[np.isfinite(margins[order])]
    levels = margins[order]
    if not len(levels):
        return 0.0
    thresholds = np.concatenate([[levels[0] - 1], (levels[:-1] + levels[1:]) / 2, [levels[-1] + 1], [0.0]])
    gains = np.concatenate([[0.0], np.cumsum(answered[order] - unanswered[order])])
    totals = gains[np.searchsorted(levels, thresholds, side="right")].round(9)
    best = thresholds[totals == totals.max()]
    return float(best[np.abs(best).argmin()])


def fit_label_threshold(probabilities: Array, golds: Array, average: str) -> float:
    """Return the threshold of label probabilities, in steps of 0.05, with the best score; of equal ones nearest to 0.5.

    The score is the F1 of all labels pooled; for average = macro its mean over labels, for subset the exact match.
    """
    return float(max(_STEPS, key=lambda step: (_score_labels(probabilities > step, golds, average), -abs(step - 0.5))))


def _score_labels(chosen: Array, golds: Array, average: str) -> float:
    """Return the score, rounded so that the order of sums decides nothing."""
    if average == "subset":
        return round(float((chosen == golds).all(axis=1).mean()), 9)
    hits, both = (chosen & golds).sum(axis=0), chosen.sum(axis=0) + golds.sum(axis=0)
    if average == "macro":
        present = both > 0
        return round(float((2 * hits[present] / both[present]).mean()), 9) if present.any() else 0.0
    return round(float(2 * hits.sum() / max(1, both.sum())), 9)
