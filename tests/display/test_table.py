"""Tables on a terminal, as Markdown and as JSON."""

import math
from io import StringIO

from rich.cells import cell_len
from rich.console import Console

from danseo.display.table import Table, print_tables, to_markdown

TABLE = Table("값", ("이름", "수", "%", "비"), [("가|나 [b]", 32470, 29.36, 0.5), ("다", 3, 0.01, None)], "끝")


def print_lines(table, width):
    console = Console(file=StringIO(), width=width)
    print_tables([table], console)
    return console.file.getvalue().splitlines()


def test_tables_print_korean_in_line():
    lines = print_lines(TABLE, 80)
    first, second = (next(line for line in lines if name in line) for name in ("가|나 [b]", "다"))
    assert first.split() == ["가|나", "[b]", "32,470", "29.4", "0.50"]
    assert second.split() == ["다", "3", "<0.1", "–"]
    assert cell_len(first.rstrip()) == cell_len(second.rstrip())  # numbers end in the same column


def test_tables_as_markdown_and_json():
    assert to_markdown(TABLE) == (
        "**값**\n\n| 이름 | 수 | % | 비 |\n| --- | ---: | ---: | ---: |\n"
        "| 가\\|나 \\[b] | 32,470 | 29.4 | 0.50 |\n| 다 | 3 | &lt;0.1 | – |\n\n끝\n"
    )
    table = Table("t", ("a", "b"), [(("x", "y"), math.nan), (True, 1.5)])
    rows = [[["x", "y"], None], [True, 1.5]]
    assert table.as_dict() == {"title": "t", "columns": ["a", "b"], "rows": rows, "note": ""}


def test_minus_zero_and_invisible_characters_are_not_shown():
    rows = [(-0.001,), (-0.0,), (0.001,), (0.0,), (-2.5,)]
    assert Table("t", ("difference",), rows).cells() == [(">-0.01",), ("0.00",), ("<0.01",), ("0.00",), ("-2.50",)]
    assert Table("t", ("a",), [("가\u200b\n",)]).cells() == [(r"가U+200B\n",)]
