"""The pages name what exists, both languages say the same, and generated pages are up to date."""

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT
from .pages import DOCS, ENGLISH, find_blocks, name_of

PAGES = sorted((*DOCS.rglob("*.md"), *ROOT.glob("*.md")))
ENGLISH_ONLY = {
    "reference/cli": "generated from the help texts, which are English in the code",
    "reference/settings": "generated from the declarations, which are English in the code",
    "reference/python": "generated from signatures and docstrings",
    "explanation/attacks": "changes with every round of attacks, and is for people who review the code",
}
"""Pages without a Korean one -> the reason. The site shows the English page in their place."""


def find_headings(text: str) -> list[int]:
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return [len(marks) for marks in re.findall(r"^(#+) ", prose, re.M)]


def find_code(page: Path) -> list[tuple[str, str, str]]:
    """Return the code blocks of a page without comments and printed tables, which have the language of the page."""
    return [
        (note, language, "" if language == "text" else re.sub(r"\s+# .*$", "", code, flags=re.M))
        for note, language, code in find_blocks(page)
    ]


@pytest.mark.parametrize("page", ENGLISH, ids=name_of)
def test_both_languages_have_the_same_headings_and_code(page: Path) -> None:
    name = page.relative_to(DOCS).with_suffix("").as_posix() if page.is_relative_to(DOCS) else page.stem
    korean = page.with_suffix(".ko.md")
    assert korean.exists() != (name in ENGLISH_ONLY), f"{name}: write {korean.name}, or name the reason in ENGLISH_ONLY"
    if korean.exists():
        english_text, korean_text = page.read_text("utf-8"), korean.read_text("utf-8")
        assert find_headings(korean_text) == find_headings(english_text)
        assert find_code(korean) == find_code(page)
        assert len(re.findall(r"^\|", korean_text, re.M)) == len(re.findall(r"^\|", english_text, re.M))
        assert sorted(re.findall(r"\]\(([^)#]*)", korean_text.replace(".ko.", "."))) == sorted(
            re.findall(r"\]\(([^)#]*)", english_text.replace(".ko.", "."))
        )


def test_no_korean_page_is_alone() -> None:
    for page in DOCS.rglob("*.ko.md"):
        assert page.with_name(page.name.replace(".ko.md", ".md")).exists(), page


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sentences_and_paragraphs_are_short(page: Path) -> None:
    if page.parent == ROOT and not page.stem.startswith("README"):
        return
    if page.stem == "attacks" or page.parent.name == "reference":
        return
    prose = re.sub(r"^```.*?^```$|<!--.*?-->", "", page.read_text("utf-8"), flags=re.M | re.S)
    for paragraph in re.split(r"\n\s*\n|\n(?=- |\d+\. |\|)", prose):
        if paragraph.lstrip().startswith(("|", "#", "!")):
            continue
        lines = paragraph.strip().splitlines()
        assert len(lines) <= 5, paragraph
        assert all(len(line) <= 100 for line in lines), paragraph
        plain = re.sub(r"`[^`]*`", "x", re.sub(r"\]\([^)]*\)", "]", paragraph))
        for sentence in re.split(r"(?<=[.?!:;])\s+", plain):
            assert len(sentence.split()) <= 27, sentence  # 25 words, and a dash or two


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    if page.stem == "CHANGELOG":  # it names files of its time
        return
    text = page.read_text("utf-8")
    links = re.findall(r"\]\(([^)#:]+)[^):]*\)", text)
    lost = [link for link in links if not (page.parent / link).exists()]
    named = re.findall(r"(?<![\w./-])((?:tests|bench|src|configs|docs)/[\w./*-]*\w)(?![\w<])", text)
    lost += [path for path in named if not any(ROOT.glob(path))]
    known = {path.name for path in (ROOT / "tests").rglob("*.py")}
    assert not lost
    assert set(re.findall(r"\btest_\w+\.py", text)) <= known


def load_tool(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date() -> None:
    for name, text in load_tool("reference_pages").make_pages().items():
        assert (DOCS / "reference" / name).read_text("utf-8") == text, f"{name}: run python tools/reference_pages.py"


def test_plots_show_the_numbers_of_their_page() -> None:
    for name, text in load_tool("result_plots").make_files().items():
        assert (DOCS / "images" / name).read_text("utf-8") == text, f"{name}: run python tools/result_plots.py"


def test_files_match_their_schemas(invoke: Callable[..., Any], tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")

    def check(document: Any, name: str) -> None:
        schema = json.loads((DOCS / "reference" / "schemas" / f"{name}.schema.json").read_text("utf-8"))
        jsonschema.Draft202012Validator(schema).validate(document)

    assert invoke("train", "ynat", "-m", "majority", "--data", "sample", "--runs", tmp_path / "runs").code == 0
    (run,) = (tmp_path / "runs").glob("ynat--*")
    check(json.loads((run / "scores.json").read_text("utf-8")), "scores")
    for line in (run / "predictions" / "dev.jsonl").read_text("utf-8").splitlines()[:20]:
        check(json.loads(line), "prediction")


def test_the_site_check_finds_what_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    tool = load_tool("check_site")
    (tmp_path / "search").mkdir()
    docs = [{"location": "a/", "text": "an interval"}, {"location": "ko/a/", "text": "신뢰 구간"}]
    (tmp_path / "search" / "search_index.json").write_text(json.dumps({"config": {"lang": ["en", "ko"]}, "docs": docs}))
    page = tmp_path / "index.html"
    page.write_text('<a href="https://example.org">x</a><script src="assets/a.js"></script>')
    assert not list(tool.find_problems(tmp_path))
    for loaded in (
        '<script src="https://e.org/a.js">',
        '<link rel="stylesheet" href=//e.org/a.css>',
        "<img src=http://e/x>",
    ):
        page.write_text(loaded)
        assert len(list(tool.find_problems(tmp_path))) == 1
