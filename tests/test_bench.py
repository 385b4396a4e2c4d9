"""The benchmarks end in time on a slow machine."""

import importlib
import re
import sys
from pathlib import Path

import pytest

for needed in ("torch", "transformers", "seqeval"):
    pytest.importorskip(needed)

NAMES = ("scoring", "training", "probing", "pretraining", "tagger")


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "bench")
    return importlib.import_module


def test_all_of_them_take_a_quarter_of_an_hour(bench, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench"])
    assert sum(bench(name).parsed().seconds for name in NAMES) <= 14 * 60
    makefile = (Path(__file__).parents[1] / "Makefile").read_text("utf-8")
    assert f"BENCHES := {' '.join(NAMES)}\n" in makefile


def test_a_failing_bench_is_one_line(bench, monkeypatch, tmp_path, capsys):
    runner = bench("run")
    monkeypatch.setattr(runner, "__file__", str(tmp_path / "run.py"))
    (tmp_path / "broken.py").write_text("import no_such_module", "utf-8")
    monkeypatch.setattr(sys, "argv", ["run.py", "broken"])
    with pytest.raises(SystemExit) as ended:
        runner.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "bench: broken failed: ModuleNotFoundError: No module named 'no_such_module'\n"


def test_attacks_use_names_that_the_tests_have():
    """The attacks load helpers of the tests by name, which no type check sees."""
    folder, missing = Path(__file__).parents[1] / "bench", []
    for path in folder.glob("attack_*.py"):
        source = path.read_text("utf-8")
        loads = r'(\w+)(?:: Any)? = (?:importlib\.import_module\("tests\.|_tests\(")([\w.]+)"\)'
        uses = {(module, name) for alias, module in re.findall(loads, source) for name in used(alias, source)}
        uses |= set(re.findall(r'_tests\("([\w.]+)"\)\.(\w+)', source))
        missing += [name for module, name in uses if not hasattr(importlib.import_module(f"tests.{module}"), name)]
    assert not missing
    surroundings = (folder / "attack_surroundings.py").read_text("utf-8")
    (name,) = re.findall(r'name = "(test_\w+)"', surroundings)
    assert f"def {name}(" in (folder.parent / "tests" / "sweeps" / "test_ray.py").read_text("utf-8")


def used(alias: str, source: str) -> set[str]:
    return set(re.findall(rf"(?<![\w.\"]){alias}\.(\w+)", source))
