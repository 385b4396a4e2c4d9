"""Listings: help of groups, settings, bundled files, tasks and documentation pages."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from danseo.config.recipes import find_bundled_file, list_bundled_files, read_purpose
from danseo.tasks import TASKS
from tests.conftest import ROOT, Result

Run = Callable[..., Result]


def test_every_extra_named_anywhere_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    lists = [found for page in pages for found in re.findall(r"danseo\[([a-z,]+)\]", page.read_text("utf-8"))]
    assert {"train", "ko", "sweep"} <= {extra for each in lists for extra in each.split(",")} <= extras.keys()


def test_every_page_named_by_a_command_exists() -> None:
    pages = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    named = [
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"danseo docs ([a-z-]+)", path.read_text("utf-8"))
    ]
    assert "probe" in named
    assert set(named) <= pages


def read_rows(result: Result) -> dict[str, list[str]]:
    assert result.code == 0, result.err
    return {row[0]: row[1:] for row in result.json["rows"]}


def test_settings_of_a_run(invoke: Run) -> None:
    rows = read_rows(invoke("settings", "ner", "--recipe", "official", "--set", "epochs=7", "--json"))
    assert rows["train.learning_rate"][:2] == ["5e-05", "5e-05"]
    assert rows["encoder.architecture"][:2] == ["official", "default"]
    assert rows["train.epochs"][:2] == ["7.0", "3.0"]
    assert "-m" in invoke("settings", "ner", "--recipe", "official").out
    assert read_rows(invoke("settings", "TC", "--json"))["train.max_length"][0] == "128"
    assert "Missing argument 'TASK'" in invoke("settings", "--recipe", "official").complaint


def test_bundled_files_are_listed(invoke: Run) -> None:
    rows = read_rows(invoke("configs", "--json"))
    files = {path.relative_to(ROOT / "configs").with_suffix("").as_posix() for path in ROOT.glob("configs/*/*.toml")}
    assert files | {"prompts/ner", "prompts/classify"} <= rows.keys()
    assert list(rows) == sorted(rows)
    assert all(len(purpose) > 10 and use.startswith("danseo ") for purpose, use in rows.values())
    assert rows["sweeps/ner-seeds"] == [read_purpose(ROOT / "configs/sweeps/ner-seeds.toml"), "danseo sweep ner-seeds"]


def test_bundled_files_are_printed_and_copied(invoke: Run, tmp_path: Path) -> None:
    text = (ROOT / "configs/sweeps/search.toml").read_text("utf-8")
    for name in ("search", "sweeps/search", "search.toml", "configs/sweeps/search.toml"):
        assert invoke("configs", name).out == text
    assert invoke("configs", "search", "--out", "mine.toml").code == 0
    assert (tmp_path / "mine.toml").read_text("utf-8") == text
    assert invoke("configs", "--out", "all").code == 0
    copied = {path.relative_to(tmp_path / "all").with_suffix("").as_posix() for path in tmp_path.glob("all/*/*.t*")}
    assert copied == list_bundled_files().keys()
    (tmp_path / "mine.toml").write_text("own = 1")
    assert "other content" in invoke("configs", "search", "--out", "mine.toml").complaint
    assert (tmp_path / "mine.toml").read_text() == "own = 1"


def test_a_bundled_file_is_found_by_name_unless_there_is_such_a_file(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "ner-seeds").write_text("task = ")
    assert "ner-seeds: not valid TOML" in invoke("sweep", "ner-seeds", "--dry-run", "--data", "sample").complaint
    (tmp_path / "ner-seeds").unlink()
    result = invoke("sweep", "ner-seeds", "--dry-run", "--data", "sample")
    assert str(find_bundled_file("ner-seeds")) in result.err or result.code == 0
    assert "unknown setting" not in invoke("pretrain", "--config", "small", "--text", "nowhere").complaint


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("sweep nowhere.toml", "nowhere.toml; ner-seeds, re-models, re-study, search are bundled; `danseo configs`"),
        ("sweep ner-sedes", "did you mean 'ner-seeds'?"),
        ("pretrain --config smal --text x", "did you mean 'small'?"),
        ("train ynat -m majority --data sample --recipe none.toml", "no such file: none.toml"),
        ("configs ner", "ner may be default/ner or llm/ner or official/ner or prompts/ner or small/ner; name one"),
        ("tune train ynat -m majority --data sample --space none.toml", "none.toml is missing"),
        ("score ynat nowhere.json p.jsonl", "nowhere.json is missing"),
        ("probe . --items none.jsonl", "none.jsonl is missing"),
        ("train ynat -m majority --data sample --set data=x", "unknown setting 'data'"),
        ("train ynat -m own --data sample", "--trust-remote-code"),
        ("probe own", "--trust-remote-code"),
        ("docs trainn", "did you mean 'train'?"),
    ],
)
def test_hints_fit_the_command(command: str, complaint: str, invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    config = '{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}'
    (tmp_path / "own" / "config.json").write_text(config)
    result = invoke(*command.split())
    assert result.code == 2
    assert complaint in result.complaint


def test_pages_are_listed_and_printed(invoke: Run) -> None:
    docs = ROOT / "docs"
    names = {path.relative_to(docs).with_suffix("").as_posix() for path in docs.rglob("*.md")}
    for lang in ("en", "ko"):
        listed = {row[0] for row in invoke("docs", "--lang", lang, "--json").json["rows"]}
        assert listed == {name for name in names if not name.endswith(".ko")}
    page = (docs / "guides" / "train.md").read_text("utf-8")
    assert invoke("docs", "train").out == invoke("docs", "docs/guides/train.md").out == page
    assert invoke("docs", "train", "--lang", "ko").out == (docs / "guides" / "train.ko.md").read_text("utf-8")
    assert invoke("docs", "cli", "--lang", "ko").out == (docs / "reference" / "cli.md").read_text("utf-8")


def test_the_sample_has_predictions_for_every_task(sample: Path) -> None:
    from danseo.data.find import load
    from danseo.data.prediction_file import read_predictions

    for task in TASKS.values():
        dev = load(task, "dev", sample)
        for name in ("a", "b", "c"):
            assert len(read_predictions(sample / "predictions" / name / f"{task.name}.jsonl", task, dev))
