"""Plots that read well in Korean, in black and white, and with any kind of colour vision."""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.eda import Description
from danseo.eda.panels import Bars, Dots, Heat, Lines, Panel
from danseo.errors import DanseoError
from danseo.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")  # Okabe and Ito's
_DASHES = ("solid", (0, (4, 2)), (0, (1, 1.5)))
_FORMATS = ("png", "svg", "pdf")
_FONT_PACKAGE = "koreanize_matplotlib"
_REST = "#BBBBBB"
_MANY = 20  # more rows or columns than this want small print
_LETTERS = 80  # that fit below the columns of a heat map
_WORTH_A_NUMBER = 0.5


def korean_font() -> Path:
    """The font file that koreanize-matplotlib ships; importing that package would change settings for everyone."""
    spec = importlib.util.find_spec(_FONT_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "fonts" / "NanumGothic.ttf"
        if path.is_file():
            return path
    raise DanseoError("the Korean font for plots is missing; run: pip install koreanize-matplotlib")


@contextmanager
def use_korean_font() -> Iterator[None]:
    """Within the block, matplotlib writes Korean; figures have to be saved within it, too."""
    from matplotlib import rc_context
    from matplotlib.font_manager import FontProperties, fontManager

    path = korean_font()
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


@contextmanager
def korean_figure(path: Path, width: float, height: float) -> Iterator["Figure"]:
    """A figure of so many inches to draw on; it is written to path, whole or not at all, when the block ends well."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in _FORMATS:
        raise DanseoError(f"{path}: a plot can be one of {', '.join(_FORMATS)}; end its name in one of these")
    with use_korean_font():
        figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
        yield figure
        dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        buffer = BytesIO()
        figure.savefig(buffer, format=suffix, dpi=150, metadata=dates.get(suffix))
    write_atomically(path, buffer.getvalue())


def plot_description(description: Description, path: Path) -> None:
    """Draw a description: the labels on the left, the other panels below each other on the right."""
    labels, *others = description.panels
    heights = [_height(panel) for panel in others]
    with korean_figure(path, 14, max(_height(labels), sum(heights)) + 0.5) as figure:
        figure.suptitle(description.title, fontsize=13, x=0.01, ha="left")
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(5, 7))[0]
        _draw(left, labels)  # subfigures, so that no panel bends to another's margins
        parts = right.subfigures(len(others), 1, squeeze=False, height_ratios=heights)
        for part, panel in zip(parts[:, 0], others, strict=True):
            _draw(part, panel)


def _height(panel: Panel) -> float:
    """The inches that a panel needs."""
    if isinstance(panel, Lines):
        return 3.4
    if isinstance(panel, Heat):
        return 0.9 + 0.27 * len(panel.rows) + (0.1 if _is_upright(panel) else 0.075) * max(map(len, panel.columns))
    return max(2.6, 1.0 + 0.25 * len(panel.names))


def _draw(figure: "SubFigure", panel: Panel) -> None:
    axes = figure.add_subplot()
    axes.set_title(panel.title)
    if isinstance(panel, Bars):
        _draw_bars(axes, panel)
    elif isinstance(panel, Lines):
        _draw_lines(axes, panel)
    elif isinstance(panel, Heat):
        _draw_heat(axes, panel)
    else:
        _draw_dots(axes, panel)


def _draw_bars(axes: "Axes", panel: Bars) -> None:
    colours = (*COLOURS[: len(panel.series) - 1], _REST) if panel.stacked else COLOURS
    thick = 0.8 if panel.stacked else 0.8 / len(panel.series)
    ends = [0.0] * len(panel.names)
    for number, (name, values) in enumerate(panel.series.items()):
        shift = 0 if panel.stacked else (number - (len(panel.series) - 1) / 2) * thick
        positions = [position + shift for position in range(len(values))]
        bars = axes.barh(positions, values, thick, ends if panel.stacked else 0.0, label=name, color=colours[number])
        ends = [end + value for end, value in zip(ends, values, strict=True)]
        if not panel.stacked:
            axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=6.5 if len(values) > _MANY else 8)
    _name_rows(axes, panel.names)
    axes.set_xlabel(panel.x_label)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    if panel.stacked:
        axes.set_xlim(0, 100)
    else:
        axes.margins(x=0.08)  # for the numbers behind the bars
    if len(panel.series) > 1:
        axes.figure.legend(loc="outside lower right", ncols=len(panel.series))


def _name_rows(axes: "Axes", names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top, and no margin around many
    axes.tick_params(axis="y", length=0)


def _draw_lines(axes: "Axes", panel: Lines) -> None:
    subjects = list(dict.fromkeys(line.subject for line in panel.lines))
    splits = list(dict.fromkeys(line.split for line in panel.lines))
    for line in panel.lines:
        several = len(subjects) > 1
        colour = COLOURS[subjects.index(line.subject) if several else splits.index(line.split)]
        name = f"{line.subject}, {line.split}" if several else line.split
        xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
        dash = _DASHES[splits.index(line.split)]
        style = "steps-post" if panel.steps else "default"
        axes.plot(xs, ys, color=colour, linestyle=dash, drawstyle=style, linewidth=1.8, label=name)
    _scale_length_axis(axes, log=panel.log_x)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(alpha=0.3)
    axes.legend(loc="best")


def _scale_length_axis(axes: "Axes", *, log: bool) -> None:
    """Whole numbers below the axis: 1, 2, 5, 10 ... on a logarithmic one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))


def _is_upright(panel: Heat) -> bool:
    """Whether the column names fit side by side."""
    return max(map(len, panel.columns), default=0) * len(panel.columns) <= _LETTERS


def _draw_heat(axes: "Axes", panel: Heat) -> None:
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.6, 0, 100)  # small shares matter, and would all look like none
    axes.imshow(panel.values, aspect="auto", cmap="Blues", norm=norm)
    axes.set_title(f"{panel.title}: {panel.value_label}")
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    axes.set_xticks(range(len(panel.columns)), panel.columns, rotation=0 if _is_upright(panel) else 90)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(True)
    for row, values in enumerate(panel.values):
        for column, value in enumerate(values):
            if value >= _WORTH_A_NUMBER:
                colour = "white" if norm(value) > 0.6 else "black"
                size = 7 if len(panel.columns) > _MANY else 8.5
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=size)


def _draw_dots(axes: "Axes", panel: Dots) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    lows, values, highs = zip(*panel.values, strict=True)
    left = [value - low for value, low in zip(values, lows, strict=True)]
    right = [high - value for value, high in zip(values, highs, strict=True)]
    axes.axvline(panel.neutral, color="0.5", linewidth=1)
    axes.errorbar(values, range(len(values)), xerr=[left, right], fmt="o", color=COLOURS[0], capsize=3)
    axes.set_xscale("log", base=2)
    least, most = axes.get_xlim()
    axes.set_xlim(min(least, panel.neutral / 2.1), max(most, panel.neutral * 2.1))  # a tick on either side, or more
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    _name_rows(axes, panel.names)
    axes.set_xlabel(panel.x_label)
    axes.grid(axis="x", alpha=0.3)
