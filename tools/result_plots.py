"""Draw docs/images/results-*.svg from the tables of docs/results.md and docs/results.ko.md: result_plots.py."""

import re
from pathlib import Path

from danseo.display.plots.figures import Chart, Curve, Figure, Forest
from danseo.display.plots.svg import draw_svg
from danseo.report.html import read_asset

DOCS = Path(__file__).parents[1] / "docs"
NUMBER = re.compile(r"[+−]?\d+(?:\.\d+)?")


def find_table(page: str, mark: str) -> list[list[str]]:
    """Return header and rows of the first table that contains a text."""
    table = next(text for text in re.findall(r"(?:^\|.*\n)+", page, re.M) if mark in text)
    rows = [[cell.strip().replace("`", "") for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
    return [rows[0], *rows[2:]]


def read_numbers(text: str) -> list[float]:
    """Return the numbers of a cell."""
    return [float(number.replace("−", "-")) for number in NUMBER.findall(text)]


def read_value(text: str) -> float | None:
    """Return the number of a cell, if there is one."""
    return next(iter(read_numbers(text)), None)


def read_interval(value: str, ends: str) -> tuple[float, float, float]:
    """Return low end, value and high end from two cells."""
    low, high = read_numbers(ends)
    return low, read_numbers(value)[0], high


def make_figures(page: str) -> dict[str, Figure]:
    """Return the plots of a page; all words in them come from its tables."""
    head, *rows = find_table(page, "ynat/macro_f1@official-1")
    tasks = Forest(
        names=[f"{row[0]}, {row[1]}" for row in rows],
        values=[read_interval(row[6], row[7]) for row in rows],
        x_label=head[7],
        references=[(head[at], [read_value(row[at]) for row in rows]) for at in (5, 4)],
    )
    head, base, *rows = find_table(page, "hard_negative_ratio")
    relations = Forest(
        names=[row[0] for row in rows],
        values=[read_interval(row[2], row[3]) for row in rows],
        x_label=f"{head[2]}, {head[3]}",
        levels=[(base[0], 0.0)],
    )
    head, loss, _ = find_table(page, "101.2 |")
    points = [(read_numbers(x)[0], read_numbers(y)[0]) for x, y in zip(head[1:], loss[1:], strict=True)]
    return {"tasks": tasks, "relations": relations, "mini": Chart([Curve("mini", points)], head[0], loss[0])}


def make_file(figure: Figure, title: str) -> str:
    """Return the figure as an SVG file, narrow enough for a phone, on white paper."""
    drawing = "<svg " + draw_svg(figure, title).split("<svg ")[-1]
    rules = [line for line in read_asset("style.css").splitlines() if line.startswith((":root{", "svg"))]
    style = f"<style>{''.join(rules)}svg{{font-family:system-ui,sans-serif}}</style>"
    style += '<rect width="100%" height="100%" fill="#fff"/>'
    return drawing.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1) + "\n"


def make_files() -> dict[str, str]:
    """Return the content of each file by its name."""
    pages = {language: (DOCS / f"results{language}.md").read_text("utf-8") for language in ("", ".ko")}
    return {
        f"results-{name}{language}.svg": make_file(figure, name)
        for language, page in pages.items()
        for name, figure in make_figures(page).items()
    }


if __name__ == "__main__":
    for name, text in make_files().items():
        (DOCS / "images" / name).write_text(text, "utf-8")
