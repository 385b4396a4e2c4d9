"""The guides name what exists, and all of it."""

import re

import pytest

from danseo.scoring.baselines import NAMES
from danseo.scoring.subword import METRICS
from danseo.tasks import TASKS

from .conftest import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
IDS = {*METRICS, *(id_ for task in TASKS.values() for id_ in task.metrics)}


def test_every_metric_is_explained_once():
    rows = re.findall(r"^\| `([^`]+)` \|(?:[^|]*\|){3}$", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(IDS)


def test_every_id_on_the_page_exists():
    assert set(re.findall(r"\b[a-z]+/\w+@\w+-\d+", PAGE)) == IDS


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_the_headline_stands_first(task):
    section = PAGE.split(f"## {task.short} ({task.name})")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)[: len(task.metrics)] == list(task.metrics)


def test_conventions_and_baselines_are_named():
    for convention in {id_.split("@")[1].rsplit("-", 1)[0] for id_ in IDS}:
        assert f"`{convention}`" in PAGE
    for name in NAMES:
        assert f"| {name} |" in PAGE


def test_links_lead_somewhere():
    for guide in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", guide.read_text(encoding="utf-8")):
            assert (guide.parent / target).exists(), f"{guide.name}: {target}"
