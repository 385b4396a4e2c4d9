"""The local executor: every ending becomes a state, slots stay busy, and nothing is left running."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from danseo.errors import DanseoError
from danseo.runs.locks import Locks
from danseo.settings.declaring import flat
from danseo.sweeps import worker
from danseo.sweeps.devices import check_device, find_devices, fitting, on_device
from danseo.sweeps.local import LocalExecutor
from danseo.sweeps.worker import Order
from tests.sweeps.conftest import FAKE, tries


def test_every_ending_becomes_a_state_and_the_sweep_goes_on(driver, points):
    chosen = points(1, 2, 200, 201, 202, 101)
    schedule = driver(chosen, slots=3).run()
    states = {point.config.seed: schedule.entries[point.name].state for point in chosen}
    assert states == {1: "done", 2: "done", 200: "failed", 201: "failed", 202: "failed", 101: "failed"}
    errors = {
        point.config.seed: (point.run.path / "error.txt").read_text() for point in chosen if point.config.seed > 9
    }
    assert errors[200] == "killed (signal 9): out of memory, or somebody's kill -9\n"
    assert errors[201] == "killed by SIGABRT: about to break\n"
    assert errors[202] == "the reason\n"
    assert errors[101].startswith("the worker ended with code 1")
    assert all((point.run.path / "config.toml").is_file() for point in chosen if point.config.seed > 9)


def test_retries(driver, points):
    chosen = points(101, 102, 103)
    schedule = driver(chosen, retries=2).run()
    assert [schedule.entries[point.name].state for point in chosen] == ["done", "done", "failed"]
    assert [tries(point) for point in chosen] == [2, 3, 3]


def test_a_finished_run_is_not_started_and_force_starts_it_once(driver, points):
    (point,) = points(1)
    for options, expected in [({}, 1), ({}, 1), ({"force": True}, 2)]:
        assert driver([point], **options).run().entries[point.name].state == "done"
        assert tries(point) == expected


def test_slots_are_a_queue_and_the_longest_goes_first(driver, planner, points):
    long, *short = [*points(1, epochs=10), *points(2, 3, 4, epochs=1)]
    long = replace(long, work=1e9)
    driver([*short, long]).run()
    lines = [json.loads(line) for line in (planner.runs / "test.sweep.jsonl").read_text().splitlines()]
    started = [line["run"] for line in lines if line["state"] == "running"]
    assert started[0] == long.name
    assert [line["run"] for line in lines[:4]] == [point.name for point in (*short, long)]
    assert {line["state"] for line in lines[:4]} == {"queued"}  # who watches sees the queue
    ended = {line["run"]: line["time"] for line in lines if line["state"] == "done"}
    begun = {line["run"]: line["time"] for line in lines if line["state"] == "running"}
    # In waves of two, the second short one would have waited for the long one.
    assert sum(begun[point.name] < ended[long.name] for point in short) >= 2


def test_a_run_that_another_owner_has_is_waited_for(driver, points, planner):
    held, free = points(1, 2)
    lock = Locks(planner.runs).acquire(held.name)
    assert lock
    threading.Timer(1.5, lock.release).start()
    schedule = driver([held, free]).run()
    assert {entry.state for entry in schedule.entries.values()} == {"done"}
    assert (tries(held), tries(free)) == (1, 1)
    assert (held.run.path / "scores.json").stat().st_mtime > (free.run.path / "scores.json").stat().st_mtime


def test_a_run_that_another_process_finishes_is_done(driver, points, planner):
    (point,) = points(1)
    lock = Locks(planner.runs).acquire(point.name)
    assert lock

    def finish():
        point.run.write_json("scores.json", {})
        lock.release()

    threading.Timer(0.6, finish).start()
    assert driver([point]).run().entries[point.name].state == "done"
    assert tries(point) == 0


def test_close_leaves_no_process(driver, points):
    made = driver(points(1, 2, epochs=600))
    made._fill()
    children = [child.process for child in made.executor.children.values()]
    time.sleep(0.5)
    made.executor.close()
    assert all(process.poll() is not None for process in children)
    assert not any(made.locks.is_held(name) for name in made.points)


def test_workers_die_with_their_parent(points, tmp_path):
    """kill -9 of whoever started them, whatever they are doing."""
    (point,) = points(1, epochs=600)
    script = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from danseo.settings.declaring import flat
from danseo.sweeps.local import LocalExecutor
from danseo.sweeps.worker import Order
executor = LocalExecutor(["cpu"], [sys.executable, {str(tmp_path / "fake.py")!r}])
executor.start(Order({point.name!r}, {{"seed": 1, "train.epochs": 600}}, "", {str(point.run.path.parent)!r}))
print(executor.children[{point.name!r}].process.pid, flush=True)
time.sleep(600)
"""
    (tmp_path / "fake.py").write_text(FAKE)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    worker = int(parent.stdout.readline())
    until = time.monotonic() + 300
    while not tries(point) and time.monotonic() < until:
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    while is_alive(worker) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_alive(worker)
    assert not Locks(point.run.path.parent).is_held(point.name), "the next sweep need not wait"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# Devices


def test_devices_are_checked_before_anything_starts():
    pytest.importorskip("torch")
    for name in ("cuda:99", "gpu", "cuda:x", "cpu:1", "tpu:0"):
        with pytest.raises(DanseoError, match=f"device {name} does not exist here"):
            check_device(name)
    assert find_devices("cpu, cpu", None, needs_torch=False) == ["cpu", "cpu"]
    assert find_devices(None, 3, needs_torch=False) == ["cpu"] * 3
    with pytest.raises(DanseoError, match="--devices is empty"):
        find_devices(",", None, needs_torch=False)


def test_a_worker_sees_one_gpu_and_its_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    device, environment = on_device("cuda:2", 4)
    assert (device, environment["CUDA_VISIBLE_DEVICES"], environment["OMP_NUM_THREADS"]) == ("cuda", "2", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert on_device("cuda:1", 1)[1]["CUDA_VISIBLE_DEVICES"] == "6"
    assert on_device("cpu", 16)[1]["OMP_NUM_THREADS"] == "1"


def test_workers_get_the_threads_of_the_plan(monkeypatch, points, tmp_path):
    """Whatever the shell had: by their environment, and by word where torch was there before."""
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    (point,) = points(1)
    (tmp_path / "fake.py").write_text(FAKE)
    executor = LocalExecutor(["cpu", "cpu"], [sys.executable, str(tmp_path / "fake.py")])
    executor.start(Order(point.name, flat(point.config), "", str(point.run.path.parent)))
    order = executor.children[point.name].order
    executor.close()
    assert order.threads == 3
    before, seen = torch.get_num_threads(), []

    def run_experiment(*arguments, series, **options):
        seen.append((torch.get_num_threads(), series))
        return point.run

    monkeypatch.setattr("danseo.experiment.run_experiment", run_experiment)
    try:
        for device in ("cpu", "cuda:1", "cuda:0"):
            settings = {**order.settings, "model": "some/encoder"}
            worker._run(replace(order, settings=settings, device=device, series=str(tmp_path)), point.run)
    finally:
        torch.set_num_threads(before)
    assert [threads for threads, _ in seen] == [3, 3, 3]
    assert len({series for _, series in seen}) == 2, "one agreement for all cards, another for the CPU"


def test_memory_bounds_the_slots():
    assert fitting(["cpu"] * 4, 0, lambda: 1) == ["cpu"] * 4
    assert fitting(["cpu"] * 4, 3, lambda: 8) == ["cpu"] * 2
    with pytest.raises(DanseoError, match=r"has 2\.0 GiB"):
        fitting(["cpu"], 3, lambda: 2)


def test_an_executor_without_work_waits_no_longer_than_told():
    began = time.monotonic()
    assert LocalExecutor(["cpu"]).poll(0.1) == []
    assert 0.09 < time.monotonic() - began < 2
