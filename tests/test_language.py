"""Texts in Korean: a complete catalogue, the command line, tables, plots and pages; files and JSON stay as they are."""

import gettext
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from danseo.display.plots.figures import Arcs, Chart, Curve, Forest, Grid, translate_figure
from danseo.display.plots.svg import draw_svg
from danseo.display.table import Table, format_table, translate_table
from danseo.errors import DanseoError, get_message
from danseo.language import VARIABLE, _, choose_page_language, get_language, join, ngettext, translate

from .test_docs import load_tool

HANGUL = re.compile("[가-힣]")
Run = Callable[..., Any]


@pytest.fixture
def korean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "ko")
    monkeypatch.setenv("LANGUAGE", "")


def _list_fields(text: str) -> list[tuple[str, str | None, str | None]]:
    return sorted({(name, spec, mark) for _text, name, spec, mark in Formatter().parse(text) if name is not None})


def test_the_catalogue_is_complete() -> None:
    tool = load_tool("messages")
    with tool.CATALOGUE.with_suffix(".mo").open("rb") as file:
        known: dict[Any, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    messages = tool.collect_messages()
    assert len(messages) > 800
    missing = [text for text in messages if not known.get(text)]
    assert not missing, "run python tools/messages.py and fill danseo.po"
    for text in messages:
        if "{" in text:
            assert _list_fields(text) == _list_fields(known[text]), text
        assert ("%" in text) == ("%" in known[text]), text  # it decides the decimals of a column
    old = {text for text in known if isinstance(text, str) and text} - set(messages)
    assert not old, "run python tools/messages.py"


def test_the_compiled_catalogue_is_that_of_the_text_file() -> None:
    pofile = pytest.importorskip("babel.messages.pofile", reason="Babel (extra dev) is not installed")
    tool = load_tool("messages")
    with tool.CATALOGUE.open("rb") as file:
        texts = {m.id: m.string for m in pofile.read_po(file) if m.id and isinstance(m.id, str)}
    with tool.CATALOGUE.with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    assert texts == {text: compiled[text] for text in texts}


def test_a_message_is_english_text_until_it_is_translated() -> None:
    message = join([_("{path} is missing; check the path").format(path="a.json"), "x"], "; ")
    assert message == "a.json is missing; check the path; x"
    assert pickle.loads(pickle.dumps(message)) == message
    assert translate(message, "en") == message
    assert translate(pickle.loads(pickle.dumps(message)), "ko") == "a.json이(가) 없습니다. 경로를 확인하세요; x"
    assert translate(ngettext("{n} model", "{n:,} models", 1200), "ko") == "모델 1,200개"
    assert translate("Runs", "ko") == translate("runs", "ko") == "실험"
    assert translate("no entry of this", "ko") == "no entry of this"
    assert get_message(DanseoError(message)) is message
    assert get_message(DanseoError("a", "b")) == "('a', 'b')"


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "ko_KR.UTF-8", VARIABLE: "en"}, "en"),
        ({"LANG": "C.UTF-8", VARIABLE: "ko"}, "ko"),
        ({VARIABLE: "fr"}, "en"),
    ],
)
def test_the_variable_comes_before_the_locale(
    variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert get_language() == language


@pytest.mark.parametrize(
    ("requested", "accepted", "language"),
    [
        (None, "ko-KR,ko;q=0.9,en;q=0.8", "ko"),
        (None, "fr,en;q=0.5,ko;q=0.8", "ko"),
        (None, "en-US,ko;q=0.9", "en"),
        (None, "ko;q=x,*;q=0.1", "ko"),
        (None, "", "en"),
        ("en", "ko", "en"),
        ("<script>", "ko", "ko"),
    ],
)
def test_live_pages_follow_the_choice_then_the_browser(
    requested: str | None, accepted: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert choose_page_language(requested, accepted) == language


def test_the_command_line_in_korean(invoke: Run, korean: None) -> None:
    assert "실험 목록" in invoke("--help").out
    assert "미세 조정" in invoke("train", "--help").out
    for command, word in {"": "로캘", "train": "학습률", "data probes": "형태소", "export": "양자화"}.items():
        assert word in invoke(*command.split(), "--help").out  # the help of an option
    assert "해시를 확인합니다" in invoke("data").out
    for command, word in {
        "tasks nre": "'ner'인가요?",
        "tasks --nothing": "없는 옵션",
        "runs --format x": "가운데 하나가 아닙니다",
        "runs nothing": "실험이 든 폴더가 아닙니다",
        "eval nothing": "실험 폴더가 아닙니다",
        "score ner": "인자 'GOLD'",
        "train ynat -m mini --data sample --set epoch=3": "없는 설정",
        "train ynat -m mini --data nothing": "data get",
        "report --out page.txt": "HTML",
    }.items():
        ended = invoke(*command.split())
        assert ended.code == 2
        assert word in ended.complaint
        assert HANGUL.search(ended.complaint)
        assert len(ended.complaint) < 250


def test_the_option_is_for_one_command(invoke: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "en")
    assert "대표 지표" in invoke("--lang", "ko", "tasks").out
    assert "headline metric" in invoke("tasks").out


def test_json_csv_and_markdown_stay_english(invoke: Run, korean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("train", "ynat", "-m", "majority", "--data", "sample").code == 0
    formats = (["--json"], ["--format", "csv"], ["--format", "markdown"])
    shown = [invoke("runs", *options).out for options in formats]
    assert "점수" in invoke("runs").out
    (scores,) = Path("runs").glob("ynat*/scores.json")
    assert not HANGUL.search(re.sub("사회|IT과학|경제|생활문화|세계|스포츠|정치", "", scores.read_text("utf-8")))
    monkeypatch.setenv(VARIABLE, "en")
    assert [invoke("runs", *options).out for options in formats] == shown


def test_a_table_and_its_plots_in_korean() -> None:
    table = Table("runs", ("run", "score", "my_column"), [("score", True, _("finished"))], _("(nothing)"))
    translated = translate_table(table, "ko")
    assert translated.columns == ("실험", "점수", "my_column")
    assert translated.rows == [("score", "예", "완료")]  # the name of a run is data
    assert "finished" in format_table(table, "csv")
    forest = translate_figure(Forest(["run"], [(1, 2, 3)], "score", levels=[("base", 1.0)]), "ko")
    assert (forest.names, forest.x_label, forest.levels) == (["run"], "점수", [("기준", 1.0)])
    chart = translate_figure(Chart([Curve(_("answers"), [(0, 1)]), Curve("best", [])], "step", "loss"), "ko")
    assert [curve.name for curve in chart.curves] == ["예측", "best"]
    assert (chart.x_label, chart.y_label) == ("단계", "손실")


def test_a_report_in_korean(invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "en")
    for model in ("majority", "linear"):
        assert invoke("train", "nli", "-m", model, "--data", "sample").code == 0
    assert invoke("report", "runs", "--data", "sample", "--lang", "ko").code == 0
    page = Path("report.html").read_text("utf-8")
    assert '<html lang="ko">' in page
    texts = re.findall(r"<(?:h3|figcaption|summary)[^>]*>([^<]+)<|<button data-sort>([^<]+)<", page)
    same = re.compile(
        r"[\w]+/\S+|n|p|F1|AP|majority|linear|random|danseo|commit|python|torch|transformers|sha256|p \(Holm\)|McNemar"
        r"|entailment|contradiction|neutral|.*\((?:official|plain)\)|[A-Z]{2,3}(?: .+)?"
    )
    left = {text for pair in texts for text in pair if text.strip() and not HANGUL.search(text)}
    assert not {text for text in left if not same.fullmatch(text.strip())}
    monkeypatch.setenv(VARIABLE, "en")
    assert invoke("report", "runs", "--data", "sample", "--out", "en.html").code == 0
    english = Path("en.html").read_text("utf-8")
    assert '<html lang="en">' in english
    assert "Paired tests" in english


WIDE_WORDS = tuple(f"어절{k}" for k in range(14))
WIDE_EDGES = tuple((k + 2 if k < 13 else 0, "NP_SBJ") for k in range(14))


@pytest.mark.parametrize(
    "figure",
    [
        Forest(["a long name of a run " * 3], [(1, 2, 3)], "x", marks=["a"], references=[("one", [1]), ("two", [2])]),
        Grid(["long names " * 3] * 6, ["long names " * 3] * 6, [[""] * 6] * 6, [[0.5] * 6] * 6, "corner"),
        Arcs(WIDE_WORDS, WIDE_EDGES, WIDE_EDGES, frozenset({1})),
    ],
    ids=["forest", "grid", "arcs"],
)
def test_a_wide_plot_has_a_narrow_twin(figure: Any) -> None:
    drawn = draw_svg(figure, "title")
    wide, narrow = re.findall(r'class="figure \w+ (wide|narrow)"[^>]*viewBox="0 0 ([0-9.]+)', drawn)
    assert (wide[0], narrow[0]) == ("wide", "narrow")
    assert float(narrow[1]) <= 450 < float(wide[1])
