"""Names and labels of others in print: a terminal, a page, a spreadsheet and LaTeX show them and never obey them."""

import csv
import json
import shutil
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from danseo.cli import main
from danseo.display.escaping import say, to_csv, to_json
from danseo.display.progress import TrainingProgress, Waiting
from danseo.display.table import Best, Strong, Table, format_table, print_tables, to_latex, to_markdown
from danseo.errors import WorkFailed
from danseo.runs.store import Run

EVIL = "가\x1b]0;owned\x07\x9b31m\u202egpj.exe\r"
RAW = ("\x1b", "\x07", "\x9b", "\u202e", "\r")


def is_harmless(text: str) -> bool:
    return not any(character in text for character in RAW)


def test_an_error_never_reaches_the_terminal_raw(capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["score", "ynat", "dev", str(tmp_path / EVIL), "--data", "sample"])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert "U+001B" in error
    assert is_harmless(error)
    assert error.count("\n") == 1


def test_options_and_tasks_of_the_command_line_are_escaped(capsys):
    for arguments in (["score", EVIL, "x"], ["runs", f"--{EVIL}"], [EVIL]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert is_harmless(capsys.readouterr().err)


@pytest.mark.parametrize("style", ["table", "markdown", "csv", "json", "latex"])
def test_tables_are_harmless_in_every_style(style):
    table = Table(EVIL, (EVIL, "b"), [(EVIL, 1.0), (Strong(EVIL), 2.0)], note=f"{EVIL}\n{EVIL}")
    if style == "table":
        console = Console(file=StringIO(), width=200)
        print_tables([table], console)
        text = console.file.getvalue()
    else:
        text = format_table(table, style)
    assert "owned" in text
    assert is_harmless(text)


def test_json_is_escaped_and_reads_back():
    document = {"a": f"{EVIL}\x7f\U000e0001 한글", EVIL: [1, None]}
    assert json.loads(to_json(document)) == document
    assert is_harmless(to_json(document))
    assert "한글" in to_json(document)
    assert "\n" not in to_json(document, indent=None)


def test_csv_has_no_formulas():
    cells = ["=1+1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "plain", "-0.5", "1e-3"]
    rows = list(csv.reader(StringIO(to_csv([cells, [-0.5, None, True, "a,b", "a\nb"]]))))
    assert rows[0] == [*("'=1+1", "'+1+1", "'-2+3", "'@SUM(A1)", "'\t=1", r"\r=1", "' =1"), *("plain", "-0.5", "1e-3")]
    assert rows[1] == ["-0.5", "", "True", "a,b", "a\nb"]


def test_markdown_is_neither_html_nor_columns_nor_links():
    label = "<img src=x onerror=alert(1)>|a & b|![x](http://x) `c` *d* \\"
    text = to_markdown(Table(label, (label,), [(label,), (Best(1.0),)], note=label))
    assert "<" not in text
    assert "&lt;img" in text
    assert "a &amp; b" in text
    assert "![" not in text
    row = next(line for line in text.splitlines() if line.startswith("| &lt;"))
    assert row.replace("\\\\", "").replace("\\|", "").count("|") == 2
    assert "**1.00**" in text, "danseo's own marks stay marks"


def test_latex_rows_do_not_begin_with_an_option_of_the_row_before():
    text = to_latex(Table("t", ("a",), [("[3cm]",), ("*x",), ("50% & #1_{}$",)]))
    assert "\n{[}3cm] \\\\\n" in text
    assert "\n{*}x \\\\\n" in text
    assert r"50\% \& \#1\_\{\}\$" in text


def test_progress_is_harmless(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with TrainingProgress(f"[/red]{EVIL}") as progress:
        progress.note(f"[0/3] [/bold] {EVIL}")
        step = SimpleNamespace(number=1, total=1, loss=1.0, rate=1.0)
        progress.step(step, SimpleNamespace(tokens=1, seconds=1.0, best=1.0, losses=[]))
        progress.bar.refresh()
    shown = capsys.readouterr().err
    assert "[0/3] [/bold] 가U+001B" in shown
    assert "[/red]가U+001B" in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown


def test_lines_without_a_terminal_are_harmless(capsys):
    say(EVIL)
    waiting = Waiting(EVIL, after=0.0)
    waiting(0, 2)
    waiting(1, 2)
    lines = capsys.readouterr().err
    assert lines.count("U+202E") == 2
    assert is_harmless(lines)


def test_a_removed_run_directory_is_not_called_a_full_disk(tmp_path):
    run = Run(tmp_path / "run")
    run.path.mkdir()
    run.log({"step": 1})
    shutil.rmtree(run.path)
    with pytest.raises(WorkFailed, match="removed or moved meanwhile") as caught:
        run.log({"step": 2})
    assert "space" not in str(caught.value)
