"""The queue, and simulated sweeps that share a folder: no run is lost or done twice."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from danseo.runs.lock import Owner, RunLock, RunLocks
from danseo.sweeps.queue import MAX_LOSSES, RunQueue, makespan


def simulate_waves(seconds: list[float], slots: int) -> float:
    """Start as many runs as there are slots, wait for all of them, and so on."""
    return sum(max(seconds[start : start + slots]) for start in range(0, len(seconds), slots))


def test_the_queue_is_never_slower_than_waves():
    assert (simulate_waves([4, 1, 4, 1, 4, 1], 2), makespan([4, 1, 4, 1, 4, 1], 2)) == (12, 9)
    rng = random.Random(0)
    for _ in range(200):
        lengths = [rng.uniform(1, 10) for _ in range(rng.randint(1, 20))]
        slots = rng.randint(1, 5)
        assert makespan(lengths, slots) <= simulate_waves(lengths, slots) + 1e-9
        best, longest_first = max(max(lengths), sum(lengths) / slots), makespan(sorted(lengths, reverse=True), slots)
        assert best <= longest_first + 1e-9
        assert longest_first <= (4 / 3) * best + max(lengths) / 3, "Graham's bound"


def test_the_queue_takes_the_longest_free_run():
    queue = RunQueue()
    for name, seconds in {"short": 1, "long": 9, "middle": 5}.items():
        queue.add(name, seconds)
    others = {"long": "held", "middle": "free", "short": "done"}
    assert queue.take(0, lambda name: others[name]).name == "middle"
    assert queue.take(0.5, lambda name: "free").name == "short", "a held run is not checked again at once"
    assert queue.take(2, lambda name: "free").name == "long"
    assert queue.take(2, lambda name: "free") is None
    assert not queue.is_over


def test_retries_are_counted_but_losses_are_not():
    queue = RunQueue(retries=1)
    queue.add("a", 1)
    for now, (ending, state) in enumerate(
        [("lost", "queued"), ("held", "queued"), ("failed", "queued"), ("lost", "queued"), ("failed", "failed")]
    ):
        assert queue.take(2 * now, lambda name: "free").name == "a"
        assert queue.end("a", ending, 2 * now, "why").state == state
    assert queue.is_over
    assert queue.entries["a"].error == "why"


def test_a_run_that_loses_every_machine_fails():
    queue = RunQueue()
    queue.add("a", 1)
    for loss in range(1, MAX_LOSSES + 1):
        assert queue.take(2 * loss, lambda name: "free")
        queue.end("a", "lost", 2 * loss, "gone")
    assert queue.entries["a"].state == "failed"


# A simulation: several sweeps on one folder, real lock files, simulated clock, crashes, kills and deaths

STALE = 6.0


@dataclass
class World:
    """What all sweeps share."""

    folder: Path
    rng: random.Random
    now: float = 1e9
    dead: set[str] = field(default_factory=set)
    """Tokens of owners that the same machine knows to be gone."""
    done: dict[str, int] = field(default_factory=dict)
    working: dict[str, str] = field(default_factory=dict)
    """Run -> the token of whoever works on it right now."""
    failures: dict[str, int] = field(default_factory=dict)


class SimulatedSweep:
    """The loop of a driver, with workers that are only ends of intervals."""

    def __init__(self, world: World, jobs: dict[str, float], slots: int, retries: int, is_far: bool) -> None:
        self.world, self.jobs, self.slots = world, jobs, slots
        known = world.dead.__contains__ if not is_far else lambda token: False  # a far machine knows only heartbeats
        self.locks = RunLocks(
            world.folder, stale=STALE, now=lambda: world.now, is_dead=lambda owner: known(owner.token)
        )
        self.workers: dict[str, tuple[float, RunLock, str]] = {}
        self.queue = RunQueue(retries)
        for name, seconds in jobs.items():
            self.queue.add(name, seconds)

    def check_availability(self, name: str):
        return "done" if name in self.world.done else "held" if self.locks.is_held(name) else "free"

    def tick(self) -> None:
        self._end_some()
        while len(self.workers) < self.slots and (entry := self.queue.take(self.world.now, self.check_availability)):
            self._start(entry.name)

    def _start(self, name: str) -> None:
        owner = Owner("here", 1, "1", f"{self.world.rng.random()}")
        lock = self.locks.acquire(name, owner)
        if lock is None:
            self.queue.end(name, "held", self.world.now)
        elif name in self.world.done:
            lock.release()
            self.queue.end(name, "done", self.world.now)
        else:
            assert name not in self.world.working, "two at work on one run"
            self.world.working[name] = owner.token
            length = self.jobs[name] * self.world.rng.uniform(0.5, 1.5)
            fate = self.world.rng.choices(["done", "failed", "killed", "lost"], [6, 1, 1, 1])[0]
            self.workers[name] = self.world.now + length, lock, fate

    def _end_some(self) -> None:
        for name, (until, lock, fate) in list(self.workers.items()):
            if self.world.now < until:
                assert lock.beat(), "a living owner keeps its lock"
                continue
            del self.workers[name]
            del self.world.working[name]
            if fate == "done":
                assert name not in self.world.done, "a run was done twice"
                self.world.done[name] = 1
            if fate in ("done", "failed"):
                lock.release()
            else:  # it could not release its lock
                self.world.dead.add(lock.owner.token)
            ending = {"killed": "failed"}.get(fate, fate)
            if self.queue.end(name, ending, self.world.now).state == "failed":
                self.world.failures[name] = self.world.failures.get(name, 0) + 1

    def die(self) -> None:
        """kill -9 of the whole sweep: its workers die with it, and nobody releases anything."""
        for name, (_, lock, _) in self.workers.items():
            self.world.dead.add(lock.owner.token)
            del self.world.working[name]


def simulate(seed: int, folder: Path) -> World:
    rng = random.Random(seed)
    world = World(folder, rng)
    jobs = {f"run-{number}": rng.uniform(1, 20) for number in range(rng.randint(1, 10))}
    retries = rng.randint(0, 2)

    def sweep() -> SimulatedSweep:
        return SimulatedSweep(world, jobs, rng.randint(1, 3), retries, is_far=rng.random() < 0.5)

    sweeps = [sweep() for _ in range(rng.randint(1, 3))]
    deaths = rng.randint(0, 3)
    for _ in range(3000):
        world.now += rng.uniform(0.1, 1.0)
        for each in rng.sample(sweeps, len(sweeps)):
            each.tick()
        if deaths and rng.random() < 0.05:
            deaths -= 1
            sweeps.pop(rng.randrange(len(sweeps))).die()
            sweeps.append(sweep())  # the same command again
        if all(each.queue.is_over for each in sweeps):
            break
    else:
        pytest.fail(f"seed {seed}: the sweeps never end")
    for each in sweeps:
        for name, entry in each.queue.entries.items():
            assert entry.state in ("done", "failed")
            assert entry.attempts <= retries + 1
            assert (entry.state == "done") <= (name in world.done)
    lost = jobs.keys() - world.done.keys() - world.failures.keys()
    assert not lost, f"seed {seed}: {lost}"
    return world


@pytest.mark.parametrize("block", range(2))
def test_no_run_is_lost_or_done_twice(block: int, tmp_path: Path):
    worlds = [simulate(seed, tmp_path / str(seed)) for seed in range(50 * block, 50 * block + 50)]
    assert sum(len(world.done) for world in worlds) > 150
    assert sum(len(world.dead) for world in worlds) > 50, "too few deaths"


def test_the_simulation_detects_a_broken_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(RunLocks, "is_held", lambda self, run: False)
    with pytest.raises(AssertionError):
        [simulate(seed, tmp_path / str(seed)) for seed in range(20)]
