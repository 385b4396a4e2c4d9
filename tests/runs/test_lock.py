"""RunLocks: one owner at a time, over threads, processes and takeovers."""

import errno
import fcntl
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from danseo.errors import WorkFailed
from danseo.runs.lock import Heartbeat, Owner, RunLocks, lock_folder


def owner(token: str = "x", host: str = "elsewhere", pid: int = 1) -> Owner:
    return Owner(host, pid, "0", token)


def test_a_lock_is_held_until_it_is_released(tmp_path):
    locks = RunLocks(tmp_path)
    first = locks.acquire("run")
    assert first
    assert locks.is_held("run")
    assert locks.acquire("run") is None
    assert not locks.is_held("other")
    first.release()
    assert not locks.is_held("run")
    second = locks.acquire("run")
    assert second
    assert not first.beat(), "the first owner learns that it is no longer the one"
    assert second.beat()
    first.release()
    assert locks.is_held("run"), "a late release takes nothing from the next owner"


def test_an_owner_that_died_here_is_followed_at_once(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    born = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    me, locks = Owner.me(), RunLocks(tmp_path)
    assert locks.acquire("run", Owner(me.host, child.pid, born, "child"))
    child.wait()
    assert locks.acquire("run")


def test_a_recycled_process_id_is_not_the_owner(tmp_path):
    locks = RunLocks(tmp_path)
    assert locks.acquire("run", Owner(Owner.me().host, os.getpid(), "an earlier time", "x"))
    assert locks.acquire("run")


def test_an_owner_elsewhere_is_followed_when_its_heart_stops(tmp_path):
    now = [1000.0]
    locks = RunLocks(tmp_path, stale=60, now=lambda: now[0])
    far = locks.acquire("run", owner("far"))
    assert far
    now[0] += 50
    assert locks.acquire("run", owner("near")) is None
    assert far.beat()
    now[0] += 59
    assert locks.acquire("run", owner("near")) is None, "the heartbeat counts, not the beginning"
    now[0] += 2
    assert locks.acquire("run", owner("near"))
    assert not far.beat()


def test_a_dead_worker_on_another_machine_is_released_by_who_knows_of_its_death(tmp_path):
    locks = RunLocks(tmp_path)
    assert locks.acquire("run", owner("far"))
    locks.release_for("run", "another")
    assert locks.is_held("run")
    locks.release_for("run", "far")
    assert not locks.is_held("run")
    locks.release_for("never", "far")


@pytest.mark.parametrize("take_over", [False, True])
def test_of_many_threads_one_gets_it(tmp_path, take_over):
    locks = RunLocks(tmp_path)
    for round_ in range(30):
        run, start, winners = f"run-{round_}", threading.Barrier(8), []
        if take_over:
            assert locks.acquire(run, Owner(Owner.me().host, os.getpid(), "dead", "x"))

        def try_it(run=run, start=start, winners=winners):
            start.wait()
            if lock := locks.acquire(run):
                winners.append(lock)

        threads = [threading.Thread(target=try_it) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(winners) == 1
        assert winners[0].beat()


def count_up(folder: Path, times: int) -> None:
    """Add to a number in a file under a lock, in the least careful way."""
    locks, done = RunLocks(folder), 0
    while done < times:
        if lock := locks.acquire("run"):
            path = folder / "number"
            value = int(path.read_text())
            time.sleep(0.0005)
            path.write_text(str(value + 1))
            done += 1
            if done % 5:
                lock.release()
            else:  # as a killed owner would: leave the lock, and be someone else from now on
                lock.path.write_text(json.dumps(None))


def test_processes_that_count_together_lose_nothing(tmp_path):
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=count_up, args=(tmp_path, 20)) for _ in range(4)]
    [process.start() for process in processes]
    [process.join(60) for process in processes]
    assert (tmp_path / "number").read_text() == "80"
    assert {path.name for path in (tmp_path / ".locks").iterdir()} <= {"run", ".guard", ".clock"}


def test_a_heartbeat_renews_the_lock_and_reports_its_loss(tmp_path):
    locks = RunLocks(tmp_path, stale=1.0)
    lock = locks.acquire("run", owner("far"))
    assert lock
    lost = threading.Event()
    with Heartbeat(lock, lost.set, every=0.3):
        before = lock.path.stat().st_mtime_ns
        time.sleep(0.5)
        assert lock.path.stat().st_mtime_ns > before
        os.utime(lock.path, (0, 0))
        assert locks.acquire("run", owner("thief"))
        assert lost.wait(2)


# A run for one process


def test_the_second_waits_with_a_line_or_ends(tmp_path):
    notes, order = [], []

    def second():
        with lock_folder(tmp_path / "run", on_note=notes.append):
            order.append("second")

    with lock_folder(tmp_path / "run"):
        with (
            pytest.raises(WorkFailed, match=f"another process .pid {os.getpid()} on "),
            lock_folder(tmp_path / "run", wait=False),
        ):
            pytest.fail("two owners")
        thread = threading.Thread(target=second)
        thread.start()
        while not notes:
            time.sleep(0.01)
        order.append("first")
        (tmp_path / "run").mkdir()
    thread.join(timeout=60)
    assert order == ["first", "second"]
    assert len(notes) == 1
    assert "waiting" in notes[0]


def test_a_full_disk_leaves_no_draft(tmp_path, monkeypatch):
    locks = RunLocks(tmp_path)
    lock = locks.acquire("run")
    assert lock

    def full(self, *arguments):
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space"):
            lock.release()
    assert not list((tmp_path / ".locks").glob("*.part"))


def test_a_run_that_never_came_to_be_leaves_no_lock(tmp_path):
    with lock_folder(tmp_path / "runs" / "run"):
        pass
    assert not list(tmp_path.iterdir())
    (tmp_path / "runs").mkdir()
    with lock_folder(tmp_path / "runs" / "run"):
        pass
    assert not list((tmp_path / "runs").iterdir()), "but the folder was there before"


def enter_in_turn(folder: Path, times: int) -> None:
    """Count up in a folder whose lock is removed after each turn."""
    for _ in range(times):
        with lock_folder(folder, inside=True):
            (folder / "number").write_text(str(int((folder / "number").read_text()) + 1))


def test_a_removed_lock_admits_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("danseo.runs.lock._POLL_SECONDS", 0.001)
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=enter_in_turn, args=(tmp_path, 20)) for _ in range(4)]
    [process.start() for process in processes]
    [process.join(60) for process in processes]
    assert (tmp_path / "number").read_text() == "80"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def test_a_killed_process_frees_the_guard(tmp_path):
    code = """
import os, sys
from pathlib import Path
from danseo.runs.lock import RunLocks
locks = RunLocks(Path(sys.argv[1]))
locks._write = lambda run, owner: os.kill(os.getpid(), 9)
locks.acquire("run")
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert RunLocks(tmp_path).acquire("run")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
@pytest.mark.filterwarnings("ignore:flock not supported")
def test_locks_work_on_file_systems_without_flock(number, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    test_a_lock_is_held_until_it_is_released(tmp_path / "a")
    test_an_owner_elsewhere_is_followed_when_its_heart_stops(tmp_path / "b")
    with lock_folder(tmp_path / "run"), pytest.raises(WorkFailed), lock_folder(tmp_path / "run", wait=False):
        pass


def test_locks_need_no_hard_links(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    test_a_lock_is_held_until_it_is_released(tmp_path / "a")


def test_an_incomplete_lock_file_counts_until_it_is_stale(tmp_path):
    now = [1000.0]
    locks = RunLocks(tmp_path, stale=60, now=lambda: now[0])
    lock = locks.acquire("run", owner("far"))
    assert lock
    lock.path.write_text("")
    locks.touch(lock.path)
    assert locks.acquire("run", owner("near")) is None
    now[0] += 61
    assert locks.acquire("run", owner("near"))
