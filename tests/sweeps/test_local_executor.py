"""The local executor with workers that pretend to train."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from danseo.config.base import flatten_config
from danseo.errors import DanseoError
from danseo.runs.lock import Owner, RunLocks
from danseo.sweeps.local_executor import LocalExecutor, check_device, find_devices, worker_environment
from danseo.sweeps.worker import Order, work
from tests.sweeps.conftest import FAKE, count_tries, is_alive, wait_for


def test_every_ending_becomes_a_state(driver, points):
    chosen = points(1, 2, 200, 201, 202, 101)
    queue = driver(chosen, slots=3).run()
    states = {point.config.seed: queue.entries[point.name].state for point in chosen}
    assert states == {1: "done", 2: "done", 200: "failed", 201: "failed", 202: "failed", 101: "failed"}
    failed = {point.config.seed: point.run.path for point in chosen if point.config.seed > 9}
    errors = {seed: (path / "error.txt").read_text() for seed, path in failed.items()}
    assert "signal 9" in errors[200]
    assert errors[201] == "killed by SIGABRT: about to break\n"
    assert errors[202] == "the reason\n"
    assert errors[101].startswith("the worker ended with code 1")
    assert all((path / "config.toml").is_file() for path in failed.values())


def test_retries(driver, points):
    chosen = points(101, 103)
    queue = driver(chosen, retries=1).run()
    assert [queue.entries[point.name].state for point in chosen] == ["done", "failed"]
    assert [count_tries(point) for point in chosen] == [2, 2]


@pytest.mark.lengthy
def test_the_longest_run_starts_first_and_slots_stay_busy(driver, planner, points):
    long, *short = [*points(1, epochs=10), *points(2, 3, 4, epochs=1)]
    long = replace(long, work=1e9)
    driver([*short, long]).run()
    events = [json.loads(line) for line in (planner.runs / "test.sweep.jsonl").read_text().splitlines()]
    assert [(event["run"], event["state"]) for event in events[:4]] == [(p.name, "queued") for p in (*short, long)]
    ended = {event["run"]: event["time"] for event in events if event["state"] == "done"}
    started = {event["run"]: event["time"] for event in events if event["state"] == "running"}
    assert next(iter(started)) == long.name
    assert sum(started[point.name] < ended[long.name] for point in short) >= 2


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_run_of_another_process_is_waited_for(is_finished, driver, points, planner):
    held, free = points(1, 2)
    lock = RunLocks(planner.runs).acquire(held.name)
    assert lock

    def end():
        if is_finished:
            held.run.write_json("scores.json", {})
        lock.release()

    threading.Timer(0.6, end).start()
    queue = driver([held, free]).run()
    assert {entry.state for entry in queue.entries.values()} == {"done"}
    assert (count_tries(held), count_tries(free)) == (0 if is_finished else 1, 1)


class InterruptedExecutor(LocalExecutor):
    """Workers that take their lock and are killed before they release it."""

    def start(self, order):
        RunLocks(Path(order.runs)).acquire(order.name, Owner.me(order.token))

    def poll(self, seconds):
        raise KeyboardInterrupt

    def where(self, name):
        return ""


def test_an_interrupt_releases_the_locks_of_killed_workers(driver, points):
    stopped = driver(points(1, 2))
    stopped.executor = InterruptedExecutor(["cpu"] * 2)
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    assert len(stopped.points) == 2
    assert not any(stopped.locks.read_owner(name) for name in stopped.points)


def test_workers_die_with_a_killed_parent(points, tmp_path):
    (point,) = points(1, epochs=600)
    script = f"""
import sys, time
from danseo.sweeps.local_executor import LocalExecutor
from danseo.sweeps.worker import Order, work
executor = LocalExecutor(["cpu"], [sys.executable, {str(tmp_path / "fake.py")!r}])
executor.start(Order({point.name!r}, {{"seed": 1, "train.epochs": 600}}, "", {str(point.run.path.parent)!r}))
print(executor.children[{point.name!r}].process.pid, flush=True)
time.sleep(600)
"""
    (tmp_path / "fake.py").write_text(FAKE)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    worker = int(parent.stdout.readline())
    wait_for(lambda: count_tries(point))
    parent.kill()
    parent.wait()
    wait_for(lambda: not is_alive(worker))
    assert not RunLocks(point.run.path.parent).is_held(point.name)


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
    device, environment = worker_environment("cuda:2", 4)
    assert (device, environment["CUDA_VISIBLE_DEVICES"], environment["OMP_NUM_THREADS"]) == ("cuda", "2", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert worker_environment("cuda:1", 1)[1]["CUDA_VISIBLE_DEVICES"] == "6"
    assert worker_environment("cpu", 16)[1]["OMP_NUM_THREADS"] == "1"


def test_workers_get_the_threads_of_the_plan(monkeypatch, points, tmp_path):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    (point,) = points(1)
    executor = LocalExecutor(["cpu", "cpu"], [sys.executable, "-c", ""])
    executor.start(Order(point.name, flatten_config(point.config), "", str(point.run.path.parent)))
    order = executor.children[point.name].order
    executor.close()
    assert order.threads == 3
    before, calls = torch.get_num_threads(), []

    def run_experiment(*arguments, series, **options):
        calls.append((torch.get_num_threads(), series))
        return point.run

    monkeypatch.setattr("danseo.experiment.run_experiment", run_experiment)
    try:
        for device in ("cpu", "cuda:1", "cuda:0"):
            settings = {**order.settings, "model": "some/encoder"}
            work(replace(order, settings=settings, device=device, series=str(tmp_path)))
    finally:
        torch.set_num_threads(before)
    assert [threads for threads, _ in calls] == [3, 3, 3]
    assert len({series for _, series in calls}) == 2, "one file for all GPUs, another for the CPU"
