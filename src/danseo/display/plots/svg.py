"""Figures as small SVG elements: texts stay text, and colours come from the style sheet of the page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from unicodedata import east_asian_width

from danseo.display.escaping import visible
from danseo.display.plots.figures import Arcs, Chart, Curve, Figure, Forest, Grid, Points

_WIDTH, _ROW, _LETTER = 720, 24, 12.5
_PHONE = 430  # a figure that is not wider can be read on a phone
_HEIGHT = 260  # of a chart
_COLOURS = 6
_CHART_LETTERS = 40  # of a name in a legend
_CELL = 54.0
_WORD_SIZE, _WORD_GAP, _ARC_LEVEL = 13.0, 16.0, 18.0
_MIN_WORD = 58.0  # so that the name of a relation fits over a short word


def draw_svg(figure: Figure, title: str) -> str:
    """Return the figure as an svg element; screen readers read the title.

    A wide figure is drawn a second time for phones, where the style sheet shows that one.
    """
    wide = _draw(figure, is_narrow=False)
    if wide[0] <= _PHONE:
        return _make_element(figure, title, "", *wide)
    narrow = _make_element(figure, title, " narrow", *_draw(figure, is_narrow=True))
    return _make_element(figure, title, " wide", *wide) + narrow


def _draw(figure: Figure, *, is_narrow: bool) -> tuple[float, float, list[str]]:
    """Return width, height and elements."""
    if isinstance(figure, Forest):
        return _draw_forest(figure, is_narrow=is_narrow)
    if isinstance(figure, Chart):
        return _draw_chart(figure)
    if isinstance(figure, Grid):
        return _draw_numbered_grid(figure) if is_narrow else _draw_grid(figure)
    return _draw_upright_arcs(figure) if is_narrow else _draw_arcs(figure)


def _make_element(figure: Figure, title: str, size: str, width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg class="figure {type(figure).__name__.lower()}{size}" role="img" aria-label="{escape_attribute(title)}" '
        f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">{"".join(parts)}</svg>'
    )


def escape_attribute(text: object) -> str:
    """Return a text for an attribute or element in which no character is markup."""
    return escape(visible(text), quote=True)


def measure_text(text: str, size: float = _LETTER) -> float:
    """Return the approximate width of a text; Korean characters are square."""
    return sum(1.0 if east_asian_width(c) in "WF" else 0.58 for c in text) * size


def shorten_text(text: str, letters: int) -> str:
    """Shorten a long text in the middle: its end distinguishes names as often as its beginning."""
    if len(text) <= letters:
        return text
    half = (letters - 1) // 2
    return f"{text[: letters - 1 - half]}…{text[-half:]}"


def choose_ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Return round numbers that cover a range; whole ones if requested. A range of one value is widened."""
    if high - low <= 1e-6 * max(abs(low), abs(high), 1.0):
        low, high = (0.0, 1.0) if low == 0 else (low - 0.5, high + 0.5)  # nothing is below none
    span = high - low
    step = 10 ** floor(log10(span / count))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= count)
    step = max(1.0, step) if whole else step
    first = floor(low / step + 1e-9)
    return [k * step for k in range(first, ceil(high / step - 1e-9) + 1)]


def _draw_text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    named = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (f' class="{kind}"' if kind else "")
    return f'<text x="{_format_place(x)}" y="{_format_place(y)}"{named}>{escape_attribute(text)}</text>'


def _draw_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    x1_, y1_, x2_, y2_ = map(_format_place, (x1, y1, x2, y2))
    return f'<line class="{kind}" x1="{x1_}" y1="{y1_}" x2="{x2_}" y2="{y2_}"/>'


def _format_place(place: float) -> str:
    """Return a coordinate in few characters: a report has tens of thousands of them."""
    return f"{place:.1f}".removesuffix(".0")


def _format_number(value: float) -> str:
    return f"{value:,.6g}"


# Forest


def _draw_forest(figure: Forest, *, is_narrow: bool) -> tuple[float, float, list[str]]:
    """Draw the names beside the values, or above them."""
    names = [shorten_text(name, 44) for name in figure.names]
    marks = list(figure.marks) or [""] * len(names)
    left = 12 + max(map(measure_text, names), default=0) + (14 + max(map(measure_text, marks)) if any(marks) else 0)
    full, left, row = (_PHONE, 4.0, _ROW * 1.75) if is_narrow else (_WIDTH, min(left, _WIDTH * 0.55), float(_ROW))
    top = 22 + 18 * (len(figure.references) - 1 if is_narrow and figure.references else 0)
    bottom = top + 4 + row * len(names)
    numbers = [end for value in figure.values for end in value if end is not None and isfinite(end)]
    numbers += [level for _, level in figure.levels if isfinite(level)]
    numbers += [value for _, series in figure.references for value in series if value is not None and isfinite(value)]
    marked = choose_ticks(min(numbers, default=0.0), max(numbers, default=100.0))
    low, high = marked[0], marked[-1]

    def at(value: float) -> float:
        return left + 8 + (value - low) / (high - low or 1) * (full - left - 70)

    parts = [_draw_line(at(tick), top, at(tick), bottom, "grid") for tick in marked]
    parts += [_draw_text(at(tick), bottom + 15, _format_number(tick), "middle", "small") for tick in marked]
    for name, level in ((n, v) for n, v in figure.levels if isfinite(v)):
        parts.append(_draw_line(at(level), top, at(level), bottom, "level"))
        is_left = at(level) + 3 + measure_text(name, 11.5) > full
        parts.append(
            _draw_text(at(level) + (-3 if is_left else 3), 18, name, "end" if is_left else "start", "small muted")
        )
    for k, (name, mark, (below, value, above)) in enumerate(zip(names, marks, figure.values, strict=True)):
        y = top + row * (k + (0.7 if is_narrow else 0.5))
        if is_narrow:
            parts.append(_draw_text(left, y - 13, f"{name}  {mark}".rstrip()))
        else:
            parts.append(_draw_text(left - 4 - (measure_text(mark) + 10 if any(marks) else 0), y + 4, name, "end"))
            parts += [_draw_text(left - 4, y + 4, mark, "end", "muted")] if mark else []
        if below is not None and above is not None:
            parts.append(_draw_line(at(below), y, at(above), y, "bar c0"))
        parts += [
            mark for number, (_, row) in enumerate(figure.references) for mark in _draw_reference(number, row[k], at, y)
        ]
        parts.append(f'<circle class="dot c0" cx="{at(value):.1f}" cy="{y:.1f}" r="4.5"/>')
        parts.append(_draw_text(full - 4, y + 4, f"{value:.2f}", "end", "number"))
    parts.append(_draw_text((left + full) / 2, bottom + 31, figure.x_label, "middle", "small muted"))
    parts += _draw_reference_names(figure.references, left + 8, full, is_narrow=is_narrow)
    return full, bottom + 38, parts


def _draw_reference(number: int, value: float | None, at: Callable[[float], float], y: float) -> Iterator[str]:
    """Yield a small mark beside the value: a bar, or a diamond."""
    if value is None or not isfinite(value):
        return
    x = at(value)
    if number == 0:
        yield _draw_line(x, y - 6, x, y + 6, "bar muted")
    else:
        yield f'<path class="diamond" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>'


def _draw_reference_names(
    references: Sequence[tuple[str, Sequence[float | None]]], x: float, end: float, *, is_narrow: bool
) -> Iterator[str]:
    """Yield the names of the marks above the rows: in a line that fits into the width, or one below the other."""
    x = max(8.0, min(x, end - sum(32 + measure_text(name, 11.5) for name, _ in references)))
    y = 12.0
    for number, (name, _) in enumerate(references):
        yield from _draw_reference(number, x, float, y)
        yield _draw_text(x + 9, y + 4, name, "start", "small muted")
        if is_narrow:
            y += 18
        else:
            x += 32 + measure_text(name, 11.5)


# Charts


def _draw_chart(figure: Chart) -> tuple[float, float, list[str]]:
    points = [point for curve in figure.curves for point in curve.points]
    points += [(0.0, 0.0), (100.0, 100.0)] if figure.diagonal else []
    xs, ys = ([point[axis] for point in points] for axis in (0, 1))
    ys += [level for _, level in figure.levels] + [end for c in figure.curves for each in c.band for end in each[1:]]
    ys += [0.0] if figure.from_zero else []
    x_marks = choose_ticks(min(xs, default=0), max(xs, default=1), 6, whole=all(x == int(x) for x in xs))
    y_marks = choose_ticks(min(ys, default=0), max(ys, default=1))
    left, top, bottom = (
        34 + max((measure_text(_format_number(y), 11.5) for y in y_marks), default=20.0),
        12.0,
        _HEIGHT - 40.0,
    )
    right = left + (290.0 if figure.diagonal else 340.0)
    x_low, x_high, y_low, y_high = x_marks[0], x_marks[-1], y_marks[0], y_marks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        across = left + (x - x_low) / (x_high - x_low or 1) * (right - left)
        return across, bottom - (y - y_low) / (y_high - y_low or 1) * (bottom - top)

    parts = [_draw_line(left, at(0, y)[1], right, at(0, y)[1], "grid") for y in y_marks]
    parts += [_draw_text(left - 6, at(0, y)[1] + 4, _format_number(y), "end", "small") for y in y_marks]
    parts += [_draw_text(at(x, 0)[0], bottom + 16, _format_number(x), "middle", "small") for x in x_marks]
    if figure.diagonal:
        parts.append(_draw_line(*at(0, 0), *at(100, 100), "level"))
    for name, level in figure.levels:
        parts.append(_draw_line(left, at(0, level)[1], right, at(0, level)[1], "level"))
        parts.append(_draw_text(right, at(0, level)[1] - 3, name, "end", "small muted"))
    for k, curve in enumerate(figure.curves):
        parts += _draw_curve(curve, k, at)
    parts.append(_draw_text((left + right) / 2, bottom + 33, figure.x_label, "middle", "small muted"))
    parts.append(
        f'<text class="small muted" text-anchor="middle" '
        f'transform="translate(12 {(top + bottom) / 2:.0f}) rotate(-90)">'
        f"{escape_attribute(figure.y_label)}</text>"
    )
    parts += _draw_legend(figure.curves, left, _HEIGHT)
    return right + 16, _HEIGHT + (18 * len(figure.curves) if len(figure.curves) > 1 else 0), parts


def _choose_classes(curve: Curve, number: int) -> str:
    color = (number if curve.color is None else curve.color) % _COLOURS
    dash = (number // _COLOURS if curve.dash is None else curve.dash) % 3
    return f"c{color} d{dash}"


def _draw_curve(curve: Curve, number: int, at: Callable[[float, float], tuple[float, float]]) -> Iterator[str]:
    colour = _choose_classes(curve, number)
    if curve.band:
        ends = [*((x, high) for x, _, high in curve.band), *((x, low) for x, low, _ in reversed(curve.band))]
        yield f'<polygon class="dot band {colour}" points="{_join_places(ends, at)}"/>'
    if len(curve.points) > 1 and curve.style != "points":
        line = _make_steps(curve.points) if curve.style == "steps" else curve.points
        yield f'<polyline class="curve {colour}" points="{_join_places(line, at)}"/>'
    for point in curve.points if curve.style != "steps" else ():
        x, y = at(*point)
        is_best = point[0] == curve.best
        label = escape_attribute(
            f"{curve.name}: {_format_number(point[0])}, {point[1]:.4g}{' (best)' if is_best else ''}"
        )
        yield (
            f'<circle class="dot {colour}{" best" if is_best else ""}" cx="{x:.1f}" cy="{y:.1f}" '
            f'r="{5 if is_best else 2.5}"><title>{label}</title></circle>'
        )


def _join_places(points: Points, at: Callable[[float, float], tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))


def _make_steps(points: Points) -> Points:
    """Return a line that keeps each value until the next point."""
    corners = ((point, (after[0], point[1])) for point, after in pairwise(points))
    return [*(each for pair in corners for each in pair), points[-1]]


def _draw_legend(curves: Sequence[Curve], left: float, top: float) -> Iterator[str]:
    """Yield the names of the curves below the chart; one curve needs none."""
    if len(curves) < 2:
        return
    for k, curve in enumerate(curves):
        y = top + 6 + 18 * k
        kind = _choose_classes(curve, k)
        if curve.style == "points":
            yield f'<circle class="dot {kind}" cx="{_format_place(left + 9)}" cy="{_format_place(y)}" r="2.5"/>'
        else:
            yield _draw_line(left, y, left + 18, y, f"curve {kind}")
        yield _draw_text(left + 24, y + 4, shorten_text(curve.name, _CHART_LETTERS), "start", "small")


# Grids


def _draw_grid(figure: Grid) -> tuple[float, float, list[str]]:
    rows = [shorten_text(name, 40) for name in figure.rows]
    columns = [shorten_text(name, 28) for name in figure.columns]
    is_upright = max(map(measure_text, columns), default=0) < _CELL - 4
    left = 12 + max(*map(measure_text, rows), measure_text(figure.corner)) if rows else 12.0
    top = 26.0 if is_upright else 14 + max(map(measure_text, columns), default=0) * 0.75
    parts = [_draw_text(left - 6, top - 8, figure.corner, "end", "small muted")] if figure.corner else []
    for k, name in enumerate(columns):
        x = left + _CELL * (k + 0.5)
        turned = "" if is_upright else f' transform="rotate(-45 {x:.0f} {top - 6:.0f})"'
        anchor = "middle" if is_upright else "start"
        parts.append(
            f'<text x="{x:.0f}" y="{top - 6:.0f}" text-anchor="{anchor}"{turned}>{escape_attribute(name)}</text>'
        )
    for k, (name, texts, strengths) in enumerate(zip(rows, figure.texts, figure.strengths, strict=True)):
        y = top + _ROW * k
        parts.append(_draw_text(left - 6, y + 16, name, "end"))
        for j, (text, strength) in enumerate(zip(texts, strengths, strict=True)):
            x, kind = left + _CELL * j, "minus" if strength < 0 else "plus"
            if abs(strength) >= 0.005:  # most cells of a large matrix are empty
                parts.append(
                    f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{_CELL:g}" height="{_ROW}" '
                    f'fill-opacity="{min(1.0, abs(strength)):.2f}"/>'
                )
            if text:
                strong = "number strong" if abs(strength) > 0.55 else "number"
                parts.append(_draw_text(x + _CELL / 2, y + 16, text, "middle", strong))
    right, low = left + _CELL * len(columns), top + _ROW * len(rows)
    parts += [_draw_line(left, top + _ROW * k, right, top + _ROW * k, "grid") for k in range(len(rows) + 1)]
    parts += [_draw_line(left + _CELL * k, top, left + _CELL * k, low, "grid") for k in range(len(columns) + 1)]
    slant = 0 if is_upright else max(map(measure_text, columns), default=0) * 0.72
    return left + _CELL * len(columns) + slant + 6, top + _ROW * len(rows) + 6, parts


def _draw_numbered_grid(figure: Grid) -> tuple[float, float, list[str]]:
    """Draw a grid with numbers in place of names, which are listed below."""
    names = list(dict.fromkeys((*figure.rows, *figure.columns)))
    numbers = {name: str(number) for number, name in enumerate(names, 1)}
    rows, columns = [numbers[name] for name in figure.rows], [numbers[name] for name in figure.columns]
    width, height, parts = _draw_grid(replace(figure, rows=rows, columns=columns, corner=""))
    scale = max(1.0, width / _PHONE)  # the list stays readable where a large grid shrinks
    lines = [shorten_text(f"{number}  {name}", 52) for name, number in numbers.items()]
    lines = [*([figure.corner] if figure.corner else []), *lines]
    parts += [
        f'<text x="6" y="{height + 18 * scale * (k + 0.8):.1f}" font-size="{_LETTER * scale:.1f}">'
        f"{escape_attribute(line)}</text>"
        for k, line in enumerate(lines)
    ]
    return width, height + 18 * scale * len(lines) + 6, parts


# Trees


def _draw_arcs(figure: Arcs) -> tuple[float, float, list[str]]:
    """Return width, height and elements."""
    centres, width = _place_words(figure.words)
    tops = [_choose_levels(side) for side in (figure.above, figure.below)]
    high = 40 + _ARC_LEVEL * max(tops[0], default=0)
    parts = [
        _draw_text(x, high + 17, word, "middle", "word wrong" if k in figure.wrong else "word")
        for k, (x, word) in enumerate(zip(centres, figure.words, strict=True))
    ]
    parts += _draw_side(figure.above, tops[0], centres, high, -1, frozenset())
    if figure.below:
        parts += _draw_side(figure.below, tops[1], centres, high + 26, 1, figure.wrong)
        return width, high + 26 + 44 + _ARC_LEVEL * max(tops[1], default=0), parts
    return width, high + 28, parts


def _draw_upright_arcs(figure: Arcs) -> tuple[float, float, list[str]]:
    """Draw a word per line: the gold arcs on its left, the predicted ones on its right."""
    sides = [(figure.above, -1), *([(figure.below, 1)] if figure.below else [])]
    levels = [_choose_levels(side) for side, _ in sides]
    arcs, names = ([12 + 11 * max(each, default=0) for each in levels], [_measure_relations(side) for side, _ in sides])
    middle = max((measure_text(word, _WORD_SIZE) for word in figure.words), default=0)
    start = arcs[0] + names[0]
    parts = []
    for k, word in enumerate(figure.words):
        kind = "word wrong" if k in figure.wrong else "word"
        parts.append(_draw_text(start + middle / 2, _ROW * k + 17, word, "middle", kind))
    for (edges, way), side_levels, space in zip(sides, levels, names, strict=True):
        inner = start - space if way < 0 else start + middle + space
        for k, (head, relation) in enumerate(edges):
            kind = "wrong" if way > 0 and k in figure.wrong else "gold" if way < 0 else "right"
            y, end = _ROW * k + 13.0, _ROW * (head - 1) + 13.0
            text, place = relation if head else f"{relation} (root)", inner + (space - 8 if way < 0 else 8 - space)
            parts.append(_draw_text(place, y + 3, text, "end" if way < 0 else "start", f"relation {kind}"))
            if head not in (0, k + 1):
                far = inner + way * (6 + 11 * side_levels[k])
                shift = 3 if end > y else -3
                line = f"M{inner:.1f} {y + shift:.1f}H{far:.1f}V{end - shift:.1f}H{inner:.1f}"
                parts.append(f'<path class="arc {kind}" d="{line}"/>')
                parts.append(f'<circle class="head {kind}" cx="{inner:.1f}" cy="{end - shift:.1f}" r="2.5"/>')
    width = start + middle + (names[1] + arcs[1] if figure.below else 8)
    return width, _ROW * len(figure.words) + 6.0, parts


def _measure_relations(edges: Sequence[tuple[int, str]]) -> float:
    """Return the room that the relations beside the words need."""
    return 16 + max(
        (measure_text(relation if head else f"{relation} (root)", 10) for head, relation in edges), default=0
    )


def _place_words(words: Sequence[str]) -> tuple[list[float], float]:
    """Return the centre of every word, and the total width."""
    centres, x = [], 8.0
    for word in words:
        size = max(_MIN_WORD, measure_text(word, _WORD_SIZE))
        centres.append(x + size / 2)
        x += size + _WORD_GAP
    return centres, x


def _choose_levels(edges: Sequence[tuple[int, str]]) -> list[int]:
    """Return the height of each word's arc: above all arcs inside it."""
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


def _draw_side(
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
            top = y + way * (14 + _ARC_LEVEL * max(levels, default=0))  # above all arcs, which end at its word
            yield _draw_line(x, y, x, top, f"arc {kind}")
            name, up = f"{relation} {'(root)' if not head else '(itself)'}", top + (-4 if way < 0 else 12)
            yield _draw_text(x, up, name, "middle", f"relation {kind}")
            continue
        far = y + way * (8 + _ARC_LEVEL * levels[k])
        end, shift = centres[head - 1], (5.0 if head - 1 > k else -5.0)
        yield (
            f'<path class="arc {kind}" d="M{x + shift:.1f} {y:.1f}V{far:.1f}H{end - shift:.1f}V{y:.1f}"/>'
            f'<circle class="head {kind}" cx="{end - shift:.1f}" cy="{y:.1f}" r="2.5"/>'
            f'<text class="relation {kind}" x="{(x + end) / 2:.1f}" y="{far + (-3 if way < 0 else 11):.1f}" '
            f'text-anchor="middle">{escape_attribute(relation)}</text>'
        )
