"""The benchmarks end in time on a slow machine."""

import importlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

for needed in ("torch", "transformers", "seqeval"):
    pytest.importorskip(needed)

NAMES = ("scoring", "training", "probing", "pretraining", "tagger")


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "bench")
    return importlib.import_module


@pytest.fixture
def clock(bench, monkeypatch):
    """A clock that only the test moves."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(bench("measuring"), "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_all_of_them_take_a_quarter_of_an_hour(bench, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench"])
    assert sum(bench(name).parsed().seconds for name in NAMES) <= 14 * 60
    makefile = (Path(__file__).parents[1] / "Makefile").read_text("utf-8")
    assert f"BENCHES := {' '.join(NAMES)}\n" in makefile


@pytest.mark.parametrize(("seconds", "calls"), [(0.001, 4), (5, 4), (40, 2), (1000, 2)])
def test_ways_of_training_take_turns_until_the_time_is_over(bench, clock, capsys, seconds, calls):
    training, done = bench("training"), []

    def way(limit):
        done.append(limit.left)
        clock.seconds += seconds
        return training.Reading(10, 20, seconds)

    ways = {"one": way, "other": way}
    readings = training.in_turns("ner", ways, bench("measuring").Limit(60), 1.0)
    assert len(done) == calls
    assert len(capsys.readouterr().err.splitlines()) == len(done), "a line for each"
    assert {reading.pieces for reading in readings.values()} == {10 * len(done) // 2}
    assert done[0] == pytest.approx(15)


def test_rounds_of_pretraining_and_scoring_end_with_the_time(bench, clock):
    limit, done = bench("measuring").Limit, []

    def way():
        done.append(clock.seconds)
        clock.seconds += 30
        return bench("pretraining").Round(10, 10, 30)

    assert len(bench("pretraining").measured({"danseo": way, "Trainer": way}, limit(100))["danseo"]) == 1
    assert len(done) == 4, "a warm-up and one round"
    done.clear()
    bench("scoring").in_turns([way, way], 25, limit(100))
    assert len(done) == 4


def test_a_probing_bench_takes_as_many_gaps_as_there_is_time_for(bench, clock, monkeypatch, tmp_path):
    probing = bench("probing")
    monkeypatch.setattr(probing, "child", lambda *arguments: {"filter": 4.0, "seconds": 20.0})  # a second a gap
    monkeypatch.setattr(probing, "write_items", lambda *arguments: None)
    for seconds, count in ((8000, 500), (800, 100), (1, 16)):
        limit = bench("measuring").Limit(seconds)
        assert probing.fitting_count(tmp_path, [None] * 500, "fp32", tmp_path, limit) == count


def test_a_failing_bench_is_one_line(bench, monkeypatch, tmp_path, capsys):
    runner = bench("run")
    monkeypatch.setattr(runner, "__file__", str(tmp_path / "run.py"))
    (tmp_path / "broken.py").write_text("import no_such_module", "utf-8")
    monkeypatch.setattr(sys, "argv", ["run.py", "broken"])
    with pytest.raises(SystemExit) as ended:
        runner.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "bench: broken failed: ModuleNotFoundError: No module named 'no_such_module'\n"


@pytest.mark.parametrize(("seconds", "growth"), [((1, 10, 100), 1.0), ((1, 10, 190), 2.0), ((1, 1.1, 9), None)])
def test_growth_is_what_a_further_one_costs(bench, seconds, growth):
    costs = [bench("growth").Cost(size, each, 1.0) for size, each in zip((1, 10, 100), seconds, strict=True)]
    assert bench("growth").measure_growth(costs) == (growth and pytest.approx(growth))


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
