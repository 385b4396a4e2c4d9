"""Figures as small SVG: text stays text, colours come from the page's style sheet, and nothing is fetched."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import ceil, floor, isfinite, log10
from unicodedata import east_asian_width

from danseo.display.escaping import visible
from danseo.plots.arcs import draw_arcs
from danseo.plots.figures import Chart, Curve, Figure, Forest, Grid

_WIDTH, _ROW, _LETTER = 720, 24, 12.5
_HEIGHT = 260  # of a chart
_COLOURS = 6
_CHART_LETTERS = 40  # of a name in a legend
_CELL = 54.0


def draw(figure: Figure, title: str) -> str:
    """The figure as an svg element; the title is for those who cannot see it."""
    if isinstance(figure, Forest):
        width, height, parts = _forest(figure)
    elif isinstance(figure, Chart):
        width, height, parts = _chart(figure)
    elif isinstance(figure, Grid):
        width, height, parts = _grid(figure)
    else:
        width, height, parts = draw_arcs(figure)
    kind = type(figure).__name__.lower()
    return (
        f'<svg class="figure {kind}" role="img" aria-label="{attribute(title)}" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}">{"".join(parts)}</svg>'
    )


def attribute(text: object) -> str:
    """A text for an attribute or an element: every sign that means something to a page is written out."""
    return escape(visible(text), quote=True)


def text_width(text: str, size: float = _LETTER) -> float:
    """About how wide a text is; Korean letters are square."""
    return sum(1.0 if east_asian_width(c) in "WF" else 0.58 for c in text) * size


def shortened(text: str, letters: int) -> str:
    """The text, cut in the middle where it is long: its end tells names apart as often as its beginning."""
    if len(text) <= letters:
        return text
    half = (letters - 1) // 2
    return f"{text[: letters - 1 - half]}…{text[-half:]}"


def ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers that cover a range, whole ones where asked; a range that is hardly one becomes wider."""
    if high - low <= 1e-6 * max(abs(low), abs(high), 1.0):
        low, high = (0.0, 1.0) if low == 0 else (low - 0.5, high + 0.5)  # nothing is below none
    span = high - low
    step = 10 ** floor(log10(span / count))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= count)
    step = max(1.0, step) if whole else step
    first = floor(low / step + 1e-9)
    return [k * step for k in range(first, ceil(high / step - 1e-9) + 1)]


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    named = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (f' class="{kind}"' if kind else "")
    return f'<text x="{_short(x)}" y="{_short(y)}"{named}>{attribute(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{_short(x1)}" y1="{_short(y1)}" x2="{_short(x2)}" y2="{_short(y2)}"/>'


def _short(place: float) -> str:
    """A coordinate in few letters: a report draws tens of thousands of them."""
    return f"{place:.1f}".removesuffix(".0")


def _number(value: float) -> str:
    return f"{value:,.6g}"


# Forest


def _forest(figure: Forest) -> tuple[float, float, list[str]]:
    names = [shortened(name, 44) for name in figure.names]
    marks = list(figure.marks) or [""] * len(names)
    left = 12 + max(map(text_width, names), default=0) + (14 + max(map(text_width, marks)) if any(marks) else 0)
    left = min(left, _WIDTH * 0.55)
    bottom = 26 + _ROW * len(names)
    numbers = [end for value in figure.values for end in value if end is not None and isfinite(end)]
    numbers += [level for _, level in figure.levels if isfinite(level)]
    numbers += [value for _, series in figure.references for value in series if value is not None and isfinite(value)]
    marked = ticks(min(numbers, default=0.0), max(numbers, default=100.0))
    low, high = marked[0], marked[-1]

    def at(value: float) -> float:
        return left + 8 + (value - low) / (high - low or 1) * (_WIDTH - left - 70)

    parts = [_line(at(tick), 22, at(tick), bottom, "grid") for tick in marked]
    parts += [_text(at(tick), bottom + 15, _number(tick), "middle", "small") for tick in marked]
    for name, level in ((n, v) for n, v in figure.levels if isfinite(v)):
        parts.append(_line(at(level), 22, at(level), bottom, "level"))
        parts.append(_text(at(level) + 3, 18, name, "start", "small muted"))
    for k, (name, mark, (below, value, above)) in enumerate(zip(names, marks, figure.values, strict=True)):
        y = 22 + _ROW * (k + 0.5)
        parts.append(_text(left - 4 - (text_width(mark) + 10 if any(marks) else 0), y + 4, name, "end"))
        parts += [_text(left - 4, y + 4, mark, "end", "muted")] if mark else []
        if below is not None and above is not None:
            parts.append(_line(at(below), y, at(above), y, "bar c0"))
        parts += [
            mark for number, (_, row) in enumerate(figure.references) for mark in _reference(number, row[k], at, y)
        ]
        parts.append(f'<circle class="dot c0" cx="{at(value):.1f}" cy="{y:.1f}" r="4.5"/>')
        parts.append(_text(_WIDTH - 4, y + 4, f"{value:.2f}", "end", "number"))
    parts.append(_text((left + _WIDTH) / 2, bottom + 31, figure.x_label, "middle", "small muted"))
    parts += _meanings(figure.references, left + 8, _WIDTH)
    return _WIDTH, bottom + 38, parts


def _reference(number: int, value: float | None, at: Callable[[float], float], y: float) -> Iterator[str]:
    """A small mark beside the value: a bar, or a diamond."""
    if value is None or not isfinite(value):
        return
    x = at(value)
    if number == 0:
        yield _line(x, y - 6, x, y + 6, "bar muted")
    else:
        yield f'<path class="diamond" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>'


def _meanings(references: Sequence[tuple[str, Sequence[float | None]]], x: float, end: float) -> Iterator[str]:
    """What the marks mean, in a line above the rows that begins where it ends in time."""
    x = max(8.0, min(x, end - sum(32 + text_width(name, 11.5) for name, _ in references)))
    for number, (name, _) in enumerate(references):
        yield from _reference(number, x, float, 12)
        yield _text(x + 9, 16, name, "start", "small muted")
        x += 32 + text_width(name, 11.5)


# Charts


def _chart(figure: Chart) -> tuple[float, float, list[str]]:
    points = [point for curve in figure.curves for point in curve.points]
    points += [(0.0, 0.0), (100.0, 100.0)] if figure.diagonal else []
    xs, ys = ([point[axis] for point in points] for axis in (0, 1))
    x_marks = ticks(min(xs, default=0), max(xs, default=1), 6, whole=all(x == int(x) for x in xs))
    y_marks = ticks(min(ys, default=0), max(ys, default=1))
    left, top, bottom = 34 + max((text_width(_number(y), 11.5) for y in y_marks), default=20.0), 12.0, _HEIGHT - 40.0
    right = left + (290.0 if figure.diagonal else 340.0)
    x_low, x_high, y_low, y_high = x_marks[0], x_marks[-1], y_marks[0], y_marks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        across = left + (x - x_low) / (x_high - x_low or 1) * (right - left)
        return across, bottom - (y - y_low) / (y_high - y_low or 1) * (bottom - top)

    parts = [_line(left, at(0, y)[1], right, at(0, y)[1], "grid") for y in y_marks]
    parts += [_text(left - 6, at(0, y)[1] + 4, _number(y), "end", "small") for y in y_marks]
    parts += [_text(at(x, 0)[0], bottom + 16, _number(x), "middle", "small") for x in x_marks]
    if figure.diagonal:
        parts.append(_line(*at(0, 0), *at(100, 100), "level"))
    for k, curve in enumerate(figure.curves):
        parts += _curve(curve, k, at)
    parts.append(_text((left + right) / 2, bottom + 33, figure.x_label, "middle", "small muted"))
    parts.append(
        f'<text class="small muted" text-anchor="middle" '
        f'transform="translate(12 {(top + bottom) / 2:.0f}) rotate(-90)">'
        f"{attribute(figure.y_label)}</text>"
    )
    parts += _legend(figure.curves, right + 16)
    names = [shortened(curve.name, _CHART_LETTERS) for curve in figure.curves]
    width = right + 16 + (34 + max(map(text_width, names)) if len(names) > 1 else 0)  # one curve needs no legend
    return width, max(_HEIGHT, 24 + 18 * len(figure.curves)), parts


def _curve(curve: Curve, number: int, at: Callable[[float, float], tuple[float, float]]) -> Iterator[str]:
    colour = f"c{number % _COLOURS} d{number // _COLOURS % 3}"
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in curve.points))
    if len(curve.points) > 1:
        yield f'<polyline class="curve {colour}" points="{points}"/>'
    for point in curve.points:
        x, y = at(*point)
        is_best = point[0] == curve.best
        label = attribute(f"{curve.name}: {_number(point[0])}, {point[1]:.4g}{' (best)' if is_best else ''}")
        yield (
            f'<circle class="dot {colour}{" best" if is_best else ""}" cx="{x:.1f}" cy="{y:.1f}" '
            f'r="{5 if is_best else 2.5}"><title>{label}</title></circle>'
        )


def _legend(curves: Sequence[Curve], left: float) -> Iterator[str]:
    if len(curves) < 2:
        return
    for k, curve in enumerate(curves):
        y = 16.0 + 18 * k
        yield _line(left, y, left + 18, y, f"curve c{k % _COLOURS} d{k // _COLOURS % 3}")
        yield _text(left + 24, y + 4, shortened(curve.name, _CHART_LETTERS), "start", "small")


# Grids


def _grid(figure: Grid) -> tuple[float, float, list[str]]:
    rows = [shortened(name, 40) for name in figure.rows]
    columns = [shortened(name, 28) for name in figure.columns]
    is_upright = max(map(text_width, columns), default=0) < _CELL - 4
    left = 12 + max(*map(text_width, rows), text_width(figure.corner)) if rows else 12.0
    top = 26.0 if is_upright else 14 + max(map(text_width, columns), default=0) * 0.75
    parts = [_text(left - 6, top - 8, figure.corner, "end", "small muted")] if figure.corner else []
    for k, name in enumerate(columns):
        x = left + _CELL * (k + 0.5)
        turned = "" if is_upright else f' transform="rotate(-45 {x:.0f} {top - 6:.0f})"'
        anchor = "middle" if is_upright else "start"
        parts.append(f'<text x="{x:.0f}" y="{top - 6:.0f}" text-anchor="{anchor}"{turned}>{attribute(name)}</text>')
    for k, (name, texts, strengths) in enumerate(zip(rows, figure.texts, figure.strengths, strict=True)):
        y = top + _ROW * k
        parts.append(_text(left - 6, y + 16, name, "end"))
        for j, (text, strength) in enumerate(zip(texts, strengths, strict=True)):
            x, kind = left + _CELL * j, "minus" if strength < 0 else "plus"
            if abs(strength) >= 0.005:  # most cells of a large matrix are empty
                parts.append(
                    f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{_CELL:g}" height="{_ROW}" '
                    f'fill-opacity="{min(1.0, abs(strength)):.2f}"/>'
                )
            if text:
                strong = "number strong" if abs(strength) > 0.55 else "number"
                parts.append(_text(x + _CELL / 2, y + 16, text, "middle", strong))
    right, low = left + _CELL * len(columns), top + _ROW * len(rows)
    parts += [_line(left, top + _ROW * k, right, top + _ROW * k, "grid") for k in range(len(rows) + 1)]
    parts += [_line(left + _CELL * k, top, left + _CELL * k, low, "grid") for k in range(len(columns) + 1)]
    slant = 0 if is_upright else max(map(text_width, columns), default=0) * 0.72
    return left + _CELL * len(columns) + slant + 6, top + _ROW * len(rows) + 6, parts
