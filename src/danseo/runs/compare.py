"""Compare runs: their saved predictions on the examples they report, one by one or over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.runs.answers import Member, Members, open_members
from danseo.runs.layouts.variants import key_of, label_variants
from danseo.scoring.compare import OnProgress, Work, compare, is_identical
from danseo.scoring.over_seeds import SeedDifference, System, compare_over_seeds
from danseo.scoring.resampling import as_json_number, tie_groups
from danseo.scoring.score import example_clusters, measure
from danseo.scoring.tables import (
    DIFFERENCE,
    FAILED,
    ComparisonResult,
    difference_cells,
    differences_table,
    few_examples,
    left_out,
    more_metrics,
    size,
    systems_table,
)
from danseo.tasks.task import Task


@dataclass(frozen=True)
class SeedComparisonResult:
    """The comparison of systems over examples and seeds."""

    task: Task
    gold: Path
    on: str
    n: int
    clusters: int
    runs: dict[str, list[str]]
    systems: dict[str, dict[str, System]]
    differences: list[SeedDifference]
    note: str = ""
    failed: dict[str, float] = field(default_factory=dict)
    """System -> mean percent of its replies that failed, where it is a language model that answers in words."""

    def tables(self) -> list[Table]:
        return [self._systems(), *map(self._differences, self.systems)]

    def groups(self, metric: str) -> dict[str, str]:
        """Letters per system, best first."""
        names = sorted(self.systems[metric], key=lambda name: -self.systems[metric][name].mean)
        pairs = [d for d in self.differences if d.metric == metric]
        return tie_groups(names, {frozenset((d.a, d.b)) for d in pairs if not d.is_significant})

    def _systems(self) -> Table:
        rows: list[tuple[object, ...]] = [
            (id_, name, system.mean, system.spread**0.5, system.seeds, self.failed.get(name), letters)
            for id_ in self.systems
            for name, letters in self.groups(id_).items()
            for system in [self.systems[id_][name]]
        ]
        part = "all of dev" if self.on == "dev" else f"{self.on} half of dev"
        words = (size(self.task, self.n, self.clusters), part, self.note, few_examples(self.clusters))
        note = "; ".join(filter(None, (*words, more_metrics(self.task, self.systems))))
        columns = ("metric", "system", "mean", "std over seeds", "seeds", FAILED, "group")
        return systems_table(self.task, columns, rows, note)

    def _differences(self, id_: str) -> Table:
        rows: list[tuple[object, ...]] = [
            (
                *difference_cells(d),
                d.from_examples,
                d.from_seeds,
                d.verdict,
                d.needed.words() if d.needed else None,
            )
            for d in self.differences
            if d.metric == id_
        ]
        columns = (*DIFFERENCE, "± examples", "± seeds", "differs")
        note = "seeds per system that would show it in four of five studies, if the true difference is the observed one"
        return differences_table(id_, (*columns, "seeds needed"), rows, note if any(row[-1] for row in rows) else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.task.name,
            "gold": str(self.gold),
            "over": "seeds",
            "on": self.on,
            "n": self.n,
            "clusters": self.clusters,
            "headline": self.task.headline,
            "note": self.note,
            "runs": self.runs,
            "scores": {
                id_: {name: _numbers(system) for name, system in systems.items()}
                for id_, systems in self.systems.items()
            },
            "groups": {id_: self.groups(id_) for id_ in self.systems},
            **({"failed_percent": self.failed} if self.failed else {}),
            "differences": [difference.as_dict() for difference in self.differences],
        }


def _numbers(system: System) -> dict[str, Any]:
    return {
        "mean": as_json_number(system.mean),
        "std": as_json_number(system.spread**0.5),
        "std_ddof": 1,
        "values": [as_json_number(value) for value in system.values],
    }


def compare_runs(
    paths: Sequence[Path],
    data_dir: str | None,
    *,
    on: str = "report",
    over: str | None = None,
    skip: Sequence[str] = (),
    headline_only: bool = False,
    rounds: int = 2000,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> ComparisonResult | SeedComparisonResult:
    """Paired tests of runs, on the half of dev that picked nothing unless told otherwise."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise DanseoError("the same run is named twice; compare different ones")
    members = open_members(paths, data_dir)
    chosen = members if on == "dev" else members.half(on)
    if not chosen.examples:
        raise DanseoError(f"no dev example falls into the {on} half; compare on all of them with --on dev")
    skipped = left_out(members.task, skip, _without_probabilities(members), headline_only=headline_only)
    note = _note(members, on)
    if over == "seeds":
        return _over_seeds(chosen, on, skipped, note, rounds, seed, on_progress)
    systems = {name: member.predictions for name, member in _named(chosen).items()}
    comparison = compare(
        members.task, chosen.examples, systems, rounds=rounds, seed=seed, skip=skipped, on_progress=on_progress
    )
    files = {name: member.path for name, member in _named(chosen).items()}
    failed = _failed({name: [member] for name, member in _named(chosen).items()})
    return ComparisonResult(members.task, members.gold, len(chosen.examples), files, comparison, on, note, failed)


def _failed(systems: Mapping[str, Sequence[Member]]) -> dict[str, float]:
    """How many of a language model's replies failed, in percent, by system."""
    shares = {
        name: [share for m in members if m.record and (share := m.record.failed_percent) is not None]
        for name, members in systems.items()
    }
    return {name: sum(found) / len(found) for name, found in shares.items() if found}


def _note(members: Members, on: str) -> str:
    """Who was picked on the examples that are compared."""
    peeked = [m.name for m in members.listed if m.selected_on == "dev" or on == "dev"]
    return f"SELECTED ON THE REPORTED SET: {', '.join(peeked)}" if peeked else ""


def _without_probabilities(members: Members) -> list[str]:
    lacking = any(p.probabilities is None for m in members.listed for p in m.predictions)
    return list(members.task.needs_probabilities) if lacking else []


def _named(members: Members) -> dict[str, Member]:
    """Each member by its name, or by its path where names repeat."""
    names = [member.name for member in members.listed]
    return {
        name if names.count(name) == 1 else str(member.path): member
        for name, member in zip(names, members.listed, strict=True)
    }


def _over_seeds(
    members: Members,
    on: str,
    skip: Sequence[str],
    note: str,
    rounds: int,
    seed: int,
    on_progress: OnProgress | None,
) -> SeedComparisonResult:
    """Runs that differ only in their seed are one system."""
    named = _systems(members)
    task = members.task
    measured = [measure(task, members.examples, member.predictions, skip) for member in members.listed]
    clusters = example_clusters(task, members.examples)
    systems = {name: [measured[position] for position in positions] for name, positions in named.items()}
    work = Work(on_progress, rounds)
    found, differences = compare_over_seeds(
        systems, clusters, rounds=rounds, seed=seed, identical=_identical(members, named), on_rounds=work.of(1)
    )
    runs = {name: [members.listed[position].name for position in positions] for name, positions in named.items()}
    count = int(clusters.max()) + 1
    failed = _failed({name: [members.listed[position] for position in positions] for name, positions in named.items()})
    return SeedComparisonResult(
        task, members.gold, on, len(members.examples), count, runs, found, differences, note, failed
    )


def _systems(members: Members) -> dict[str, list[int]]:
    """Name of a system -> the positions of its runs, one per seed."""
    records = [member.record for member in members.listed if member.record]
    if len(records) < len(members):
        raise DanseoError("--over seeds takes run directories only: a prediction file does not tell its seed")
    labels = label_variants(records)
    groups: dict[object, list[int]] = {}
    for position, record in enumerate(records):
        groups.setdefault(key_of(record), []).append(position)
    for positions in groups.values():
        seeds = [records[position].seeds for position in positions]
        if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
            raise DanseoError(
                f"--over seeds: {labels[positions[0]]} has seed {twice[0][0]} twice; leave one of them out"
            )
    if len(groups) < 2:
        raise DanseoError("--over seeds: all these runs differ only in their seed; name runs of two systems or more")
    named = {labels[positions[0]]: positions for positions in groups.values()}
    if len(named) < len(groups):
        raise DanseoError("--over seeds: two systems have the same name; rename one of the model folders")
    return named


def _identical(members: Members, named: Mapping[str, Sequence[int]]) -> set[tuple[str, str, str]]:
    """The metrics and pairs of systems whose runs, seed by seed, gave the same answers."""
    ranked = {name: sorted(positions, key=lambda k: members.listed[k].seed or 0) for name, positions in named.items()}
    answered = {
        name: [members.listed[position].predictions for position in positions] for name, positions in ranked.items()
    }
    found = set()
    for id_, (a, b) in product(members.task.metrics, combinations(answered, 2)):
        with_probabilities = id_ in members.task.needs_probabilities
        if len(answered[a]) == len(answered[b]) and all(
            is_identical(x, y, with_probabilities=with_probabilities)
            for x, y in zip(answered[a], answered[b], strict=True)
        ):
            found.add((id_, a, b))
    return found
