"""The tree of a sentence as arcs: what is expected above the words, what was answered below, mistakes marked."""

from collections.abc import Iterator, Sequence
from html import escape
from unicodedata import east_asian_width

from danseo.display.escaping import visible
from danseo.plots.figures import Arcs

_LETTER, _GAP, _LEVEL = 13.0, 16.0, 18.0
_NARROWEST = 58.0  # so that a relation's name fits over a short word


def draw_arcs(figure: Arcs) -> tuple[float, float, list[str]]:
    """Width, height and elements."""
    centres, width = _centres(figure.words)
    tops = [_levels(side) for side in (figure.above, figure.below)]
    high = 40 + _LEVEL * max(tops[0], default=0)
    parts = [
        f'<text x="{x:.1f}" y="{high + 17:.1f}" text-anchor="middle"{_kind(k in figure.wrong)}>{_safe(word)}</text>'
        for k, (x, word) in enumerate(zip(centres, figure.words, strict=True))
    ]
    parts += _side(figure.above, tops[0], centres, high, -1, frozenset())
    if figure.below:
        parts += _side(figure.below, tops[1], centres, high + 26, 1, figure.wrong)
        return width, high + 26 + 44 + _LEVEL * max(tops[1], default=0), parts
    return width, high + 28, parts


def _centres(words: Sequence[str]) -> tuple[list[float], float]:
    """The middle of every word, and the width of all."""
    centres, x = [], 8.0
    for word in words:
        size = max(_NARROWEST, sum(1.0 if east_asian_width(c) in "WF" else 0.6 for c in word) * _LETTER)
        centres.append(x + size / 2)
        x += size + _GAP
    return centres, x


def _levels(edges: Sequence[tuple[int, str]]) -> list[int]:
    """How high each word's arc goes: above all arcs that lie within it."""
    levels = [0] * len(edges)
    order = sorted(range(len(edges)), key=lambda k: abs(edges[k][0] - 1 - k) if edges[k][0] else 0)
    for k in order:
        if edges[k][0]:
            low, high = sorted((k, edges[k][0] - 1))
            within = [levels[j] for j in order if j != k and edges[j][0] and _lies_in(j, edges[j][0] - 1, low, high)]
            levels[k] = 1 + max(within, default=0)
    return levels


def _lies_in(a: int, b: int, low: int, high: int) -> bool:
    return low <= min(a, b) and max(a, b) <= high and (a, b) != (low, high)


def _side(
    edges: Sequence[tuple[int, str]],
    levels: Sequence[int],
    centres: Sequence[float],
    y: float,
    way: int,
    wrong: frozenset[int],
) -> Iterator[str]:
    for k, (head, relation) in enumerate(edges):
        kind = "wrong" if k in wrong else "gold" if way < 0 else "right"
        x = centres[k]
        if head in (0, k + 1):  # the root, or a word that is its own head
            top = y + way * (14 + _LEVEL * max(levels, default=0))  # above all arcs, which end at its word
            yield f'<line class="arc {kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{top:.1f}"/>'
            name, up = f"{relation} {'(root)' if not head else '(itself)'}", top + (-4 if way < 0 else 12)
            yield f'<text class="relation {kind}" x="{x:.1f}" y="{up:.1f}" text-anchor="middle">{_safe(name)}</text>'
            continue
        far = y + way * (8 + _LEVEL * levels[k])
        end, shift = centres[head - 1], (5.0 if head - 1 > k else -5.0)
        yield (
            f'<path class="arc {kind}" d="M{x + shift:.1f} {y:.1f}V{far:.1f}H{end - shift:.1f}V{y:.1f}"/>'
            f'<circle class="head {kind}" cx="{end - shift:.1f}" cy="{y:.1f}" r="2.5"/>'
            f'<text class="relation {kind}" x="{(x + end) / 2:.1f}" y="{far + (-3 if way < 0 else 11):.1f}" '
            f'text-anchor="middle">{_safe(relation)}</text>'
        )


def _kind(is_wrong: bool) -> str:
    return ' class="word wrong"' if is_wrong else ' class="word"'


def _safe(text: str) -> str:
    return escape(visible(text), quote=True)
