"""Tables of any width on terminals of any width: nothing is cut, and rows stay recognisable."""

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from danseo.display.table import Best, Second, Table, print_tables, to_latex
from danseo.tables.klue import make_klue_tables


def printed(table: Table, width: int, *, terminal: bool = False) -> str:
    """What is printed; on a terminal bold needs no star."""
    system = {"force_terminal": True, "color_system": "standard"} if terminal else {}
    console = Console(file=StringIO(), width=width, legacy_windows=False, **system)
    print_tables([table], console)
    return console.file.getvalue()


def plain(text: str) -> str:
    from rich.text import Text

    return Text.from_ansi(text).plain


@pytest.mark.parametrize("width", [30, 80, 120])
def test_no_number_of_the_klue_table_is_ever_cut(width):
    (table,) = make_klue_tables([])
    text = printed(table, width)
    assert "…" not in text
    assert max(cell_len(line.rstrip()) for line in text.splitlines()) <= width
    values = [value for row in table.rows for value in row if isinstance(value, float)]
    assert len(values) == (10 + 9) * 14
    for value in values:
        mark = {Best: "*", Second: "'"}.get(type(value), "")
        assert f"{value:.2f}{mark}" in text.split()


def test_the_klue_table_fits_120_columns():
    (table,) = make_klue_tables([])
    lines = plain(printed(table, 120, terminal=True)).splitlines()
    assert max(cell_len(line.rstrip()) for line in lines) <= 120
    found = [line for line in lines if "KLUE-RoBERTa-large" in line]
    assert [len(row.split()) for row in found] == [1 + 1 + 14] * 2, "all in one line, for dev and for test"
    assert "continued" in plain(printed(table, 80, terminal=True)), "and goes on below where it does not fit"


def test_the_klue_table_fits_a_page_of_latex():
    (table,) = make_klue_tables([])
    text = to_latex(table)
    assert text.startswith(r"% \usepackage{booktabs} and \usepackage{graphicx}")
    assert r"\resizebox{\textwidth}{!}{%" in text
    assert r"\end{tabular}}" in text
    assert r"\textit{published, test set}" in text
    assert text.count("{") == text.count("}")
    small = to_latex(Table("t", ("a", "b"), [("x--y – z", 1.0)]))
    assert "resizebox" not in small
    assert "x-{}-y -- z" in small, "two hyphens are not a dash"


def test_stars_stand_where_nothing_is_bold():
    table = Table("t", ("a", "n"), [("x", Best(86.11)), ("y", Second(85.0))])
    assert "86.11*" in printed(table, 80)
    assert "85.00'" in printed(table, 80)
    assert "*" not in plain(printed(table, 80, terminal=True))


def test_empty_columns_are_left_out():
    text = printed(Table("t", ("name", "nothing", "n"), [("a", None, 1), ("b", None, 2)]), 80)
    assert "nothing" not in text
    assert "nothing" in printed(Table("t", ("name", "nothing"), []), 80), "without rows nothing is known to be empty"


@pytest.mark.parametrize("width", [12, 20, 40])
def test_long_texts_wrap_and_nothing_is_cut(width):
    row = ("runs/ynat--model--s1", "한국어 문장을 나눈다", "가나다라마바" * 10)
    text = printed(Table("t", ("path", "sentence", "long"), [row]), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert all(text.count(letter) >= "".join(row).count(letter) for letter in "한국어문장을나눈다가라마바1")
    assert "…" not in text
