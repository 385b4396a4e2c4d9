"""Tables of any width on terminals of any width: nothing is cut, and rows stay recognisable."""

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from danseo.display.table import Best, Second, Table, print_tables, to_latex
from danseo.display.terminal import broken
from danseo.runs.layouts.klue import klue_tables
from danseo.runs.layouts.variants import as_typed


def printed(table: Table, width: int, *, terminal: bool = False) -> str:
    """What is printed; on a terminal bold needs no star."""
    system = {"force_terminal": True, "color_system": "standard"} if terminal else {}
    console = Console(file=StringIO(), width=width, legacy_windows=False, **system)
    print_tables([table], console)
    return console.file.getvalue()


def plain(text: str) -> str:
    from rich.text import Text

    return Text.from_ansi(text).plain


@pytest.mark.parametrize("width", [30, 50, 80, 100, 120, 200])
def test_no_number_of_the_klue_table_is_ever_cut(width):
    (table,) = klue_tables([])
    text = printed(table, width)
    assert "…" not in text
    assert max(cell_len(line.rstrip()) for line in text.splitlines()) <= width
    values = [value for row in table.rows for value in row if isinstance(value, float)]
    assert len(values) == 9 * 14
    for value in values:
        mark = {Best: "*", Second: "'"}.get(type(value), "")
        assert f"{value:.2f}{mark}" in text.split()


def test_the_klue_table_fits_120_columns():
    (table,) = klue_tables([])
    lines = plain(printed(table, 120, terminal=True)).splitlines()
    assert max(cell_len(line.rstrip()) for line in lines) <= 120
    (row,) = (line for line in lines if "KLUE-RoBERTa-large" in line)
    assert len(row.split()) == 1 + 1 + 14, "all in one line"
    assert "continued" in plain(printed(table, 80, terminal=True)), "and goes on below where it does not fit"


def test_the_klue_table_fits_a_page_of_latex():
    (table,) = klue_tables([])
    text = to_latex(table)
    assert text.startswith(r"% \usepackage{booktabs} and \usepackage{graphicx}")
    assert r"\resizebox{\textwidth}{!}{%" in text
    assert r"\end{tabular}}" in text
    assert r"\textit{published, test set}" in text
    assert text.count("{") == text.count("}")
    small = to_latex(Table("t", ("a", "b"), [("x--y – z", 1.0)]))
    assert "resizebox" not in small
    assert "x-{}-y -- z" in small, "two hyphens are not a dash"


def test_parts_below_repeat_what_tells_rows_apart():
    columns = ("task", "model", "seed", *(f"metric {k}" for k in range(12)))
    rows = [("ner", "roberta", as_typed(2000 + seed), *(10.5 + k for k in range(12))) for seed in (1, 2)]
    text = printed(Table("t", columns, rows, keys=3), 60)
    assert text.count("2001") == text.count("2002") == text.count("seed") > 1


def test_rows_that_look_alike_are_numbered_where_they_go_on_below():
    columns = ("model", *(f"metric {k}" for k in range(12)))
    rows = [("roberta", *(10.5 + k for k in range(12))) for _ in range(2)]
    parts = printed(Table("t", columns, rows), 60).split("continued")
    assert len(parts) > 1
    assert all([line.split()[0] for line in part.splitlines() if "roberta" in line] == ["1", "2"] for part in parts)
    assert "#" not in printed(Table("t", columns, rows), 200)


def test_stars_stand_where_nothing_is_bold():
    table = Table("t", ("a", "n"), [("x", Best(86.11)), ("y", Second(85.0))])
    assert "86.11*" in printed(table, 80)
    assert "85.00'" in printed(table, 80)
    assert "*" not in plain(printed(table, 80, terminal=True))


def test_empty_columns_are_not_shown():
    text = printed(Table("t", ("name", "nothing", "n"), [("a", None, 1), ("b", None, 2)]), 80)
    assert "nothing" not in text
    assert "nothing" in printed(Table("t", ("name", "nothing"), []), 80), "without rows nothing is known to be empty"


def test_settings_are_shown_as_typed():
    cells = Table("t", ("rate",), [(as_typed(5e-5),), (as_typed(0.001),), (as_typed(2024),), (as_typed(True),)]).cells()
    assert cells == [("5e-05",), ("0.001",), ("2024",), ("yes",)]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("runs/ynat--model--s1", 12, "runs/ynat--\nmodel--s1"),
        ("한국어 문장을 나눈다", 8, "한국어\n문장을\n나눈다"),
        ("가나다라마바", 4, "가나\n다라\n마바"),
        ("two words", 20, "two words"),
        ("a bcdefgh", 4, "a\nbcde\nfgh"),
    ],
)
def test_texts_are_broken_where_they_may_be(text, width, lines):
    assert broken(text, width) == lines
    assert all(cell_len(line) <= width for line in lines.split("\n"))
