"""The pages in a real browser (`make test-browser`): no complaint, no request elsewhere, and they do as they say."""

import json
import os
import shutil
from pathlib import Path

import pytest

from danseo.report.build import write_report
from danseo.runs.progress_file import ProgressFile
from tests.showing import EVIL, LABELS, OWN, RUNS, TASKS, TEXT, make_runs

if os.environ.get("DANSEO_BROWSER") != "1":
    pytest.skip("only by `make test-browser`", allow_module_level=True)
PATIENCE = 180_000  # milliseconds, for machines that are busy


@pytest.fixture(scope="module")
def runs(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(sample, tmp_path_factory.mktemp("browser") / "runs")


@pytest.fixture(scope="module")
def report(runs: Path, sample: Path) -> str:
    out = runs.parent / "report.html"
    write_report([runs], out, str(sample))
    return out.as_uri()


@pytest.fixture(scope="module")
def board(runs: Path, sample: Path):
    from danseo.board.app import make_app
    from tests.asgi_server import LoopbackServer

    server = LoopbackServer(make_app(runs, str(sample)), lifespan="off")
    yield f"http://127.0.0.1:{server.port}"
    server.end()


@pytest.fixture
def tab(chromium):
    """A page that fails its test when anything complains, asks elsewhere, or opens a dialog."""
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda r: None if r.url.startswith(("file:", "http://127.0.0.1:")) else wrong.append(r.url))
    yield page
    context.close()
    assert wrong == []


def shown(tab) -> list[str]:
    return tab.eval_on_selector_all(".page", "pages => pages.filter(p => !p.hidden).map(p => p.id)")


def test_the_report_shows_one_page_at_a_time(tab, report):
    tab.goto(report)
    assert shown(tab) == ["overview"]
    for task in TASKS:
        tab.click(f"nav a[href='#task-{task}']")
        assert shown(tab) == [f"task-{task}"]
        assert tab.locator(f"#task-{task} h2").is_visible()
    tab.go_back()
    assert shown(tab) == ["task-mrc"]


def test_every_run_page_draws(tab, report):
    tab.goto(report)
    for value in tab.eval_on_selector_all("[data-go] option", "all => all.map(o => o.value).filter(Boolean)"):
        tab.select_option("[data-go]", value)
        assert shown(tab) == [value[1:]]
    tab.goto(f"{report}#task-dp")


def test_tables_sort_both_ways_and_filter(tab, report):
    tab.goto(report)
    table = tab.locator("#overview .tablebox", has=tab.locator("button", has_text="seconds")).first
    header = table.locator("th", has_text="score").first
    scores = "cells => cells.map(c => parseFloat(c.dataset.v)).filter(v => !isNaN(v))"
    header.locator("button").click()
    falling = table.locator("tbody td:nth-child(3)").evaluate_all(scores)
    assert falling == sorted(falling, reverse=True)
    header.locator("button").press("Enter")
    rising = table.locator("tbody td:nth-child(3)").evaluate_all(scores)
    assert rising == sorted(rising)
    assert header.get_attribute("aria-sort") == "ascending"
    table.locator("input").fill("wos")
    rows = table.locator("tbody tr").evaluate_all(
        "rows => rows.filter(r => !r.hidden).map(r => r.cells[1].textContent)"
    )
    assert rows == ["wos"]


def test_examples_are_searched_and_filtered(tab, report):
    tab.goto(report)
    tab.select_option("[data-go]", label="ynat: majority")
    box = tab.locator(".page:not([hidden]) .examples")
    all_of_them = box.locator(".example").count()
    first = box.locator(".example").first.locator("dd").first.text_content().strip()
    box.locator("[data-filter=examples]").fill(first)
    assert 1 <= box.locator(".example:not([hidden])").count() < all_of_them
    assert "of" in box.locator(".count").text_content()
    box.locator("[data-filter=examples]").fill("")
    gold = box.locator("[data-tag] option", has_text="gold").first.get_attribute("value")
    box.locator("[data-tag]").select_option(gold)
    assert 1 <= box.locator(".example:not([hidden])").count() < all_of_them


def test_a_name_with_a_script_in_it_is_a_name(tab, report, board):
    tab.goto(report)
    assert tab.locator("#overview td", has_text=EVIL).count() >= 1
    tab.goto(f"{board}/runs")
    tab.locator("td a", has_text=EVIL).first.click()
    assert EVIL in tab.locator("h1").text_content()
    tab.goto(f"{board}/runs?q=%3Cscript%3Ealert(2)%3C%2Fscript%3E")
    assert tab.locator("input[name=q]").input_value() == "<script>alert(2)</script>"


def test_labels_and_texts_with_html_in_them_are_words(tab, report, board):
    tab.goto(report)
    for name, words in zip(OWN, ((*LABELS, TEXT), ("<b>0</b>", "<b>1</b>", TEXT)), strict=True):
        tab.select_option("[data-go]", label=f"{name}: majority")
        page = tab.locator(".page:not([hidden])")
        for word in words:
            assert page.get_by_text(word, exact=False).count() >= 1, word
        assert page.locator("script, img, b, svg[onload]").count() == 0
        for option in page.locator("[data-tag] option").all():
            page.locator("[data-tag]").select_option(option.get_attribute("value"))
            assert page.locator(".example:not([hidden])").count() >= 1
        tab.goto(f"{board}/task/{name}")
        tab.locator("td a").first.click()
        assert TEXT in tab.locator("#content").text_content()
        tab.goto(report)


def test_dark_light_and_the_button(chromium, report):
    paper = "() => getComputedStyle(document.body).backgroundColor"
    for scheme, other in (("dark", "rgb(255, 255, 255)"), ("light", "rgb(20, 23, 26)")):
        context = chromium.new_context(color_scheme=scheme)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(report)
        assert page.evaluate(paper) != other
        page.click("[data-theme-button]")
        assert page.evaluate(paper) == other
        context.close()


SCROLLING_PLOTS = """() => [...document.querySelectorAll("svg")].map((plot) => plot.parentElement)
  .filter((box) => box.scrollWidth > box.clientWidth).length"""


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("place", ["overview", "task-ner", "task-dp", "run-1"])
def test_a_narrow_screen_does_not_scroll_sideways(chromium, runs, sample, place, language):
    out = runs.parent / f"{language}.html"
    if not out.exists():
        write_report([runs], out, str(sample), language=language)
    context = chromium.new_context(viewport={"width": 360, "height": 700})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{out.as_uri()}#{place}")
    assert page.locator("svg:visible").count()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert page.evaluate(SCROLLING_PLOTS) == 0
    context.close()


def test_the_language_is_switched_on_the_board(tab, board):
    tab.goto(f"{board}/runs")
    tab.click("header a[lang=ko]")
    assert tab.locator("h1").inner_text() == "실험"
    tab.click("nav a[aria-current] >> xpath=../preceding-sibling::li/a")
    assert tab.locator("h1").inner_text() == "개요"  # links keep the choice
    tab.click("header a[lang=en]")
    assert tab.locator("h1").inner_text() == "Overview"


def test_on_paper_there_are_all_tasks_and_no_tools(tab, report):
    tab.goto(report)
    tab.emulate_media(media="print")
    assert tab.locator("#task-wos h2").is_visible()
    assert not tab.locator("header").is_visible()
    assert not tab.locator("#run-1 h2").is_visible()
    assert len(tab.pdf()) > 10_000


def test_a_keyboard_gets_everywhere(tab, report):
    tab.goto(report)
    tab.keyboard.press("Tab")
    assert tab.evaluate("() => document.activeElement.className") == "skip"
    tab.keyboard.press("/")
    assert tab.evaluate("() => document.activeElement.type") == "search"
    stuck = tab.eval_on_selector_all(
        "a, button, input, select, summary, .scroll", "all => all.filter(e => e.tabIndex < 0).length"
    )
    assert stuck == 0


def test_progress_moves_and_a_finished_run_comes(tab, board, runs):
    source = next(runs.glob("ynat--linear*"))
    going = runs / "ynat--going"
    shutil.copytree(source, going, ignore=shutil.ignore_patterns("scores.json", "environment.json"))
    (going / "log.jsonl").write_text(
        '{"step": 5, "loss": 1.5, "score": 40.0}\n{"step": 10, "loss": 1.0, "score": 50.0}\n'
    )
    ProgressFile(going).write(10, 40, 5.0)
    tab.goto(f"{board}/runs")
    tab.wait_for_selector("#live progress", timeout=PATIENCE)
    assert tab.locator("#live progress").get_attribute("value") == "25"
    ProgressFile(going).write(30, 40, 15.0)
    tab.wait_for_selector("#live progress[value='75']", timeout=PATIENCE)
    for name in ("environment.json", "scores.json"):
        shutil.copyfile(source / name, going / name)
    (going / "progress.json").unlink()
    tab.wait_for_function("() => document.getElementById('live').hidden", timeout=PATIENCE)
    told = f"() => document.querySelector('.lead').textContent.startsWith('{RUNS + 1} of')"
    tab.wait_for_function(told, timeout=PATIENCE)
    assert json.loads(tab.request.get(f"{board}/live.json").text())["running"] == []


def test_a_page_of_what_was_there_before_renews_itself(tab, board):
    def older(route):
        answer = route.fetch()
        text = answer.text()
        assert text.count('data-seen="') == 1
        route.fulfill(
            response=answer, body=text.replace('data-seen="', 'data-seen="older-').replace(" runs.", " gone.")
        )

    tab.route(f"{board}/runs", older, times=1)
    tab.goto(f"{board}/runs")
    told = "() => document.querySelector('.lead').textContent.endsWith(' runs.')"
    tab.wait_for_function(told, timeout=PATIENCE)


def test_two_runs_are_chosen_and_compared(tab, board):
    tab.goto(f"{board}/compare")
    tab.select_option("select[name=task]", "ynat")
    tab.click("text=list its runs")
    for box in tab.locator("input[name=run]").all()[:2]:
        box.check()
    tab.locator("button", has_text="compare").click()
    tab.wait_for_selector("h3:has-text('Paired tests')")
    assert tab.locator("h3").count() == 3
