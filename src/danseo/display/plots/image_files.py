"""Figures as PNG, SVG and PDF files, readable in Korean, in black and white, and with any colour vision."""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.display.plots.figures import Bars, Chart, Curve, FileFigure, Forest, Grid, translate_figure
from danseo.errors import DanseoError
from danseo.files import write_atomically
from danseo.language import _, translate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")  # Okabe and Ito's
_REST = "#BBBBBB"
_DASHES = ("solid", (0, (4, 2)), (0, (1, 1.5)))
_MARKERS = "osD^vx"
_FORMATS = ("png", "svg", "pdf")
_FONT_PACKAGE = "koreanize_matplotlib"
_MANY = 20  # more rows or columns than this need small print
_WIDTH_IN_LETTERS = 80  # that fit below the columns of a grid


def get_plot_format(path: Path) -> str:
    """Return the format that the name of a plot ends in; refuse another ending."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in _FORMATS:
        raise DanseoError(
            _("{path}: a plot can be one of {names}; end its name in one of these").format(
                path=path, names=", ".join(_FORMATS)
            )
        )
    return suffix


def save_figures(path: Path, figures: Sequence[FileFigure], *, title: str = "", left: FileFigure | None = None) -> None:
    """Draw figures below each other, and another one on their left, to a file; on failure an old file stays."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    suffix = get_plot_format(path)
    title, left = translate(title), left and translate_figure(left)
    figures = [translate_figure(figure) for figure in figures]
    heights = [_measure_height(figure) for figure in figures]
    size = (14.0 if left else 8.0), max(sum(heights), _measure_height(left) if left else 0.0) + (0.5 if title else 0.0)
    buffer = BytesIO()
    with _use_korean_font():
        canvas = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
        canvas.suptitle(title, fontsize=13, x=0.01, ha="left") if title else None
        column: Any = canvas
        if left:  # subfigures, so that no figure bends to the margins of another
            side, column = canvas.subfigures(1, 2, squeeze=False, width_ratios=(5, 7))[0]
            _draw(side, left)
        parts = column.subfigures(len(figures), 1, squeeze=False, height_ratios=heights)
        for part, figure in zip(parts[:, 0], figures, strict=True):
            _draw(part, figure)
        dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        canvas.savefig(buffer, format=suffix, dpi=150, metadata=dates.get(suffix))
    write_atomically(path, buffer.getvalue())


def find_korean_font() -> Path:
    """Return the font file of koreanize-matplotlib; importing that package would change settings for everyone."""
    spec = importlib.util.find_spec(_FONT_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "fonts" / "NanumGothic.ttf"
        if path.is_file():
            return path
    raise DanseoError(_("the Korean font for plots is missing; run: pip install koreanize-matplotlib"))


@contextmanager
def _use_korean_font() -> Iterator[None]:
    """Let matplotlib write Korean within the block; figures have to be saved within it, too."""
    from matplotlib import rc_context
    from matplotlib.font_manager import FontProperties, fontManager

    path = find_korean_font()
    name = FontProperties(fname=path).get_name()
    if name not in fontManager.get_font_names():
        fontManager.addfont(path)
    settings: dict[Any, Any] = {
        "font.family": [name, "DejaVu Sans"],
        "font.size": 9,
        "axes.titlesize": 10.5,
        "axes.titlelocation": "left",
        "axes.unicode_minus": False,  # NanumGothic has no U+2212
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "svg.hashsalt": "danseo",  # the same figure, the same file
    }
    with rc_context(settings):
        yield


def _measure_height(figure: FileFigure) -> float:
    """Return the inches that a figure needs."""
    if isinstance(figure, Chart):
        return 3.4
    if isinstance(figure, Grid):
        return 0.9 + 0.27 * len(figure.rows) + (0.1 if _is_upright(figure) else 0.075) * max(map(len, figure.columns))
    return max(2.6, 1.0 + 0.25 * len(figure.names))


def _draw(part: "SubFigure", figure: FileFigure) -> None:
    axes = part.add_subplot()
    axes.set_title(figure.title)
    if isinstance(figure, Bars):
        _draw_bars(axes, figure)
    elif isinstance(figure, Chart):
        _draw_chart(axes, figure)
    elif isinstance(figure, Grid):
        _draw_grid(axes, figure)
    else:
        _draw_forest(axes, figure)


def _draw_bars(axes: "Axes", figure: Bars) -> None:
    colors = (*_COLORS[: len(figure.series) - 1], _REST) if figure.stacked else _COLORS
    thick = 0.8 if figure.stacked else 0.8 / len(figure.series)
    ends = [0.0] * len(figure.names)
    for number, (name, values) in enumerate(figure.series.items()):
        shift = 0 if figure.stacked else (number - (len(figure.series) - 1) / 2) * thick
        positions = [position + shift for position in range(len(values))]
        bars = axes.barh(positions, values, thick, ends if figure.stacked else 0.0, label=name, color=colors[number])
        ends = [end + value for end, value in zip(ends, values, strict=True)]
        if not figure.stacked:
            axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=6.5 if len(values) > _MANY else 8)
    _name_rows(axes, figure.names, figure.x_label)
    axes.set_axisbelow(True)
    if figure.stacked:
        axes.set_xlim(0, 100)
    else:
        axes.margins(x=0.08)  # for the numbers behind the bars
    if len(figure.series) > 1:
        axes.figure.legend(loc="outside lower right", ncols=len(figure.series))


def _name_rows(axes: "Axes", names: Sequence[str], x_label: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top, and no margin around many
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(x_label)
    axes.grid(axis="x", alpha=0.3)


def _draw_chart(axes: "Axes", figure: Chart) -> None:
    for number, curve in enumerate(figure.curves):
        _draw_curve(axes, curve, number)
    for name, value in figure.levels:
        axes.axhline(value, color="#888888", linewidth=1)
        axes.annotate(name, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="#555555")
    if figure.diagonal:
        axes.plot((0, 100), (0, 100), color="#888888", linewidth=1)
    _scale_x_axis(axes, log=figure.log_x)
    if figure.from_zero:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.grid(alpha=0.3)
    if len(figure.curves) > 3:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    else:
        axes.legend(loc="best")


def _draw_curve(axes: "Axes", curve: Curve, number: int) -> None:
    color = _COLORS[(number if curve.color is None else curve.color) % len(_COLORS)]
    dash = _DASHES[(number if curve.dash is None else curve.dash) % len(_DASHES)]
    marker = "" if curve.style == "steps" or curve.dash is not None else _MARKERS[number % len(_MARKERS)]
    options: dict[str, Any] = {
        "linestyle": "none" if curve.style == "points" else dash,
        "drawstyle": "steps-post" if curve.style == "steps" else "default",
        "markersize": 6 if curve.style == "points" else 4,
    }
    xs, ys = [x for x, _ in curve.points], [y for _, y in curve.points]
    axes.plot(xs, ys, color=color, marker=marker, linewidth=1.8, label=curve.name, **options)
    if curve.band:
        steps, lows, highs = zip(*curve.band, strict=True)
        axes.fill_between(steps, lows, highs, color=color, alpha=0.15, linewidth=0)


def _scale_x_axis(axes: "Axes", *, log: bool) -> None:
    """Put whole numbers below the axis: 1, 2, 5, 10 ... on a logarithmic one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))


def _is_upright(figure: Grid) -> bool:
    """Return whether the column names fit side by side."""
    return max(map(len, figure.columns), default=0) * len(figure.columns) <= _WIDTH_IN_LETTERS


def _draw_grid(axes: "Axes", figure: Grid) -> None:
    has_minus = any(strength < 0 for row in figure.strengths for strength in row)
    axes.imshow(figure.strengths, aspect="auto", cmap="RdBu" if has_minus else "Blues", vmin=-has_minus, vmax=1)
    axes.set_yticks(range(len(figure.rows)), figure.rows)
    axes.set_xticks(range(len(figure.columns)), figure.columns, rotation=0 if _is_upright(figure) else 90)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(True)
    size = 7 if len(figure.columns) > _MANY else 8.5
    for row, texts in enumerate(figure.texts):
        for column, text in enumerate(texts):
            color = "white" if abs(figure.strengths[row][column]) > 0.6 else "black"
            axes.text(column, row, text, ha="center", va="center", color=color, fontsize=size)


def _draw_forest(axes: "Axes", figure: Forest) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ends = [
        (value if low is None else low, value, value if high is None else high) for low, value, high in figure.values
    ]
    left, right = [value - low for low, value, _ in ends], [high - value for _, value, high in ends]
    values = [value for _, value, _ in ends]
    axes.errorbar(values, range(len(values)), xerr=[left, right], fmt="o", color=_COLORS[0], capsize=3)
    for name, level in figure.levels:
        axes.axvline(level, color="0.5", linewidth=1)
        axes.annotate(name, (level, 1), xycoords=("data", "axes fraction"), va="bottom", color="#555555")
    if figure.is_ratio:
        axes.set_xscale("log", base=2)
        least, most = axes.get_xlim()
        axes.set_xlim(min(least, 1 / 2.1), max(most, 2.1))  # a tick on either side of 1, or more
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    _name_rows(axes, figure.names, figure.x_label)
