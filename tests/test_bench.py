"""The benches end in time, however slow the machine, and show what they have on the way."""

import importlib
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
    """Time that passes only where a test says so."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(bench("measuring"), "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_all_of_them_take_a_quarter_of_an_hour(bench, monkeypatch):
    """With some time left for what comes before the measuring."""
    monkeypatch.setattr(sys, "argv", ["bench"])
    assert sum(bench(name).parsed().seconds for name in NAMES) <= 14 * 60
    makefile = (Path(__file__).parents[1] / "Makefile").read_text("utf-8")
    assert f"BENCHES := {' '.join(NAMES)}\n" in makefile


def test_rows_are_printed_as_they_come(bench, capsys):
    table = bench("measuring").ResultTable("speed", ("way", "samples/s"))
    assert capsys.readouterr().out == "\n**speed**\n\n| way | samples/s |\n|---|---|\n"
    table.add("danseo", 12.5)
    assert capsys.readouterr().out == "| danseo | 12.50 |\n"
    assert table.rows == [("danseo", 12.5)]


@pytest.mark.parametrize(("seconds", "calls"), [(0.001, 4), (5, 4), (40, 2), (1000, 2)])
def test_ways_of_training_take_turns_until_the_time_is_over(bench, clock, capsys, seconds, calls):
    """Two rounds where there is time; one however long it takes."""
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


def test_a_target_beyond_the_machine_is_said_to_be(bench):
    judged = bench("training").judged
    assert judged(3.0, 4.0, 2.5) == (2.5, "PASS")
    assert judged(2.0, 4.0, 2.5) == (2.5, "FAIL")
    assert judged(2.0, 2.2, 2.5) == (2.5, "out of reach here")
    assert judged(2.0, 2.2, None) == (None, None)


def test_the_bound_of_the_machine_is_a_number(bench):
    assert bench("measuring").matrix_peak(seconds=0.0, size=64) > 0
