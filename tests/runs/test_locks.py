"""Locks: one owner at a time, over threads, processes and takeovers."""

import errno
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
from danseo.runs.locks import Heart, Locks, Owner, _signature, owned


def owner(token: str = "x", host: str = "elsewhere", pid: int = 1) -> Owner:
    return Owner(host, pid, "0", token)


def test_a_lock_is_held_until_it_is_released(tmp_path):
    locks = Locks(tmp_path)
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
    me, locks = Owner.me(), Locks(tmp_path)
    assert locks.acquire("run", Owner(me.host, child.pid, born, "child"))
    child.wait()
    assert locks.acquire("run")


def test_a_recycled_process_id_is_not_the_owner(tmp_path):
    locks = Locks(tmp_path)
    assert locks.acquire("run", Owner(Owner.me().host, os.getpid(), "an earlier time", "x"))
    assert locks.acquire("run")


def test_an_owner_elsewhere_is_followed_when_its_heart_stops(tmp_path):
    now = [1000.0]
    locks = Locks(tmp_path, stale=60, now=lambda: now[0])
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
    locks = Locks(tmp_path)
    assert locks.acquire("run", owner("far"))
    locks.release_for("run", "another")
    assert locks.is_held("run")
    locks.release_for("run", "far")
    assert not locks.is_held("run")
    locks.release_for("never", "far")


def test_the_file_says_who(tmp_path):
    lock = Locks(tmp_path).acquire("run")
    assert lock
    content = json.loads(lock.path.read_text())
    assert content["pid"] == os.getpid()
    assert len(content["token"]) == 32


@pytest.mark.parametrize("take_over", [False, True])
def test_of_many_threads_one_gets_it(tmp_path, take_over):
    locks = Locks(tmp_path)
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
    locks, done = Locks(folder), 0
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
    processes = [context.Process(target=count_up, args=(tmp_path, 40)) for _ in range(4)]
    [process.start() for process in processes]
    [process.join(60) for process in processes]
    assert (tmp_path / "number").read_text() == "160"
    assert len(list((tmp_path / ".locks" / "run").iterdir())) <= 3, "old generations are removed"


def test_one_who_comes_too_late_sees_it(tmp_path):
    """A process that looked at an old generation and was held up must not become a second owner."""
    locks = Locks(tmp_path)
    for _ in range(3):
        lock = locks.acquire("run")
        assert lock
        lock.release()
    holder = locks.acquire("run")
    assert holder
    assert not locks.make("run", 2, owner("late")), "the generation it saw is long past"
    assert holder.beat()
    assert locks.highest("run") == holder.generation


def test_a_heart_beats_and_tells_of_loss(tmp_path):
    locks = Locks(tmp_path, stale=1.0)
    lock = locks.acquire("run", owner("far"))
    assert lock
    lost = threading.Event()
    with Heart(lock, lost.set, every=0.05):
        before = lock.path.stat().st_mtime_ns
        time.sleep(0.2)
        assert lock.path.stat().st_mtime_ns > before
        assert locks.make("run", lock.generation + 1, owner("thief"))
        assert lost.wait(2)


# A run for one process


def test_the_second_waits_with_a_line_or_ends(tmp_path):
    notes, order = [], []

    def second():
        with owned(tmp_path / "run", on_note=notes.append):
            order.append("second")

    with owned(tmp_path / "run"):
        with (
            pytest.raises(WorkFailed, match="is being written by another process"),
            owned(tmp_path / "run", wait=False),
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


def test_drafts_of_dead_makers_go_with_the_next_lock(tmp_path):
    locks = Locks(tmp_path)
    assert locks.make("run", 1, None)
    living, dead = Owner.me(), Owner(Owner.me().host, 2**22 + 1, "1", "token")
    for name, owner in (("draft-a", living), ("draft-b", dead)):
        (tmp_path / ".locks" / "run" / name).write_text(json.dumps(vars(owner)))
    assert locks.acquire("run")
    assert {path.name for path in (tmp_path / ".locks" / "run").glob("draft-*")} == {"draft-a"}


def test_empty_drafts_tell_their_makers_by_their_names(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    mine = _signature()
    dead = mine.replace(f".{os.getpid()}.", f".{child.pid}.")
    child.wait()
    locks = Locks(tmp_path)
    assert locks.make("run", 1, None)
    for name in (f"draft-{mine}-a", f"draft-{dead}-b", "draft-elsewhere.1.1-c"):
        (tmp_path / ".locks" / "run" / name).touch()
    assert locks.acquire("run")
    left = {path.name[-1] for path in (tmp_path / ".locks" / "run").glob("draft-*")}
    assert left == {"a", "c"}, "living, or of another machine"


def test_a_full_disk_leaves_no_draft(tmp_path, monkeypatch):
    locks = Locks(tmp_path)
    lock = locks.acquire("run")
    assert lock

    def full(self, *arguments):
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space"):
            lock.release()
    assert not list((tmp_path / ".locks" / "run").glob("draft-*"))


def test_a_run_that_never_came_to_be_leaves_no_lock(tmp_path):
    with owned(tmp_path / "runs" / "run"):
        pass
    assert not list(tmp_path.iterdir())
    (tmp_path / "runs").mkdir()
    with owned(tmp_path / "runs" / "run"):
        pass
    assert not list((tmp_path / "runs").iterdir()), "but the folder was there before"
