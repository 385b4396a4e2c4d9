"""Figures as files."""

import sys

import matplotlib
import pytest
from matplotlib.ft2font import FT2Font

from danseo.display.plots.figures import Bars, Chart, Curve
from danseo.display.plots.image_files import find_korean_font, save_figures
from danseo.errors import DanseoError

CURVES = [
    Curve("값", [(1, 15), (2, 30)], band=[(1.0, 10.0, 20.0), (2.0, 20.0, 40.0)]),
    Curve("best", [(1, 15), (2, 30)], style="steps"),
    Curve("pruned", [(2, 5)], style="points"),
]
CHART = Chart(CURVES, "step", "%", title="Chart", levels=[("guess", 7.0)], from_zero=True)


def test_every_part_of_a_chart_is_in_the_file(tmp_path):
    """The names stay text in an SVG file."""
    save_figures(tmp_path / "chart.svg", [CHART])
    text = (tmp_path / "chart.svg").read_text("utf-8")
    assert all(f"<!-- {name} -->" in text for name in ("값", "best", "pruned", "guess", "Chart"))
    assert "FillBetween" in text


def test_same_figure_gives_the_same_file_and_global_settings_are_unchanged(tmp_path):
    settings = dict(matplotlib.rcParams)
    for suffix in ("svg", "pdf"):
        for name in "ab":
            save_figures(tmp_path / f"{name}.{suffix}", [CHART])
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    assert dict(matplotlib.rcParams) == settings
    assert "koreanize_matplotlib" not in sys.modules
    assert FT2Font(str(find_korean_font())).get_char_index(ord("가"))


def test_failed_plots_write_nothing(tmp_path):
    with pytest.raises(DanseoError, match="png, svg, pdf"):
        save_figures(tmp_path / "plot.foo", [CHART])
    assert not list(tmp_path.iterdir())
    path = tmp_path / "plot.png"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="zip"):
        save_figures(path, [Bars(["가", "나"], {"share": [1.0, 2.0, 3.0]}, "%")])
    assert path.read_bytes() == b"old"
