"""Compare runs by their saved predictions, one by one or over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.files import to_finite
from danseo.language import _, join
from danseo.runs.predictions import MemberPredictions, MemberSet, open_members
from danseo.scoring.compare import OnProgress, compare, count_work, is_identical
from danseo.scoring.compare_seeds import SeedDifference, System, compare_over_seeds
from danseo.scoring.resampling import group_ties
from danseo.scoring.score import example_clusters, measure
from danseo.scoring.tables import (
    DIFFERENCE,
    FAILED,
    ComparisonResult,
    describe_size,
    find_uncompared_metrics,
    make_difference_cells,
    make_differences_table,
    make_systems_table,
    note_more_metrics,
    warn_few_examples,
)
from danseo.tables.variants import get_variant_key, label_variants
from danseo.tasktypes.base import Task


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
    """System -> mean percent of failed examples, if its family reports them."""

    def tables(self) -> list[Table]:
        return [self._systems(), *map(self._differences, self.systems)]

    def groups(self, metric: str) -> dict[str, str]:
        """Return the letters of each system, best first."""
        names = sorted(self.systems[metric], key=lambda name: -self.systems[metric][name].mean)
        pairs = [d for d in self.differences if d.metric == metric]
        return group_ties(names, {frozenset((d.a, d.b)) for d in pairs if not d.is_significant})

    def _systems(self) -> Table:
        rows = [
            (id_, name, system.mean, system.spread**0.5, system.seeds, self.failed.get(name), letters)
            for id_ in self.systems
            for name, letters in self.groups(id_).items()
            for system in [self.systems[id_][name]]
        ]
        names = {"report": _("report split of dev"), "select": _("select split of dev"), "dev": _("whole dev set")}
        part = names[self.on]
        words = (describe_size(self.task, self.n, self.clusters), part, self.note, warn_few_examples(self.clusters))
        note = join(filter(None, (*words, note_more_metrics(self.task, self.systems))), "; ")
        columns = ("metric", "system", "mean", "std over seeds", "seeds", FAILED, "group")
        return make_systems_table(self.task, columns, rows, note)

    def _differences(self, id_: str) -> Table:
        rows = [
            (
                *make_difference_cells(d),
                d.from_examples,
                d.from_seeds,
                d.verdict,
                d.needed.as_text() if d.needed else None,
            )
            for d in self.differences
            if d.metric == id_
        ]
        columns = (*DIFFERENCE, _("± examples"), _("± seeds"), "differs")
        note = _(
            "seeds per system that would show it in four of five studies, if the true difference is the observed one"
        )
        return make_differences_table(
            id_, (*columns, _("seeds needed")), rows, note if any(row[-1] for row in rows) else ""
        )

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
                id_: {name: _as_json(system) for name, system in systems.items()}
                for id_, systems in self.systems.items()
            },
            "groups": {id_: self.groups(id_) for id_ in self.systems},
            **({"failed_percent": self.failed} if self.failed else {}),
            "differences": [difference.as_dict() for difference in self.differences],
        }


def _as_json(system: System) -> dict[str, Any]:
    return {
        "mean": to_finite(system.mean),
        "std": to_finite(system.spread**0.5),
        "std_ddof": 1,
        "values": [to_finite(value) for value in system.values],
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
    """Run paired tests of runs, by default on the report split of dev."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise DanseoError(_("the same run is named twice; compare different ones"))
    members = open_members(paths, data_dir)
    chosen = members if on == "dev" else members.select_split(on)
    if not chosen.examples:
        raise DanseoError(f"no dev example is in the {on} split; compare on all of them with --on dev")
    lacks_probabilities = any(p.probabilities is None for m in members.members for p in m.predictions)
    undefined = members.task.needs_probabilities if lacks_probabilities else ()
    skipped = find_uncompared_metrics(members.task, skip, undefined, headline_only=headline_only)
    note = _name_selected_on_reported(members, on)
    if over == "seeds":
        return _compare_over_seeds(chosen, on, skipped, note, rounds, seed, on_progress)
    named = _name_members(chosen)
    systems = {name: member.predictions for name, member in named.items()}
    comparison = compare(
        members.task, chosen.examples, systems, rounds=rounds, seed=seed, skip=skipped, on_progress=on_progress
    )
    files = {name: member.path for name, member in named.items()}
    failed = _compute_failed_percent({name: [member] for name, member in named.items()})
    return ComparisonResult(members.task, members.gold, len(chosen.examples), files, comparison, on, note, failed)


def _compute_failed_percent(systems: Mapping[str, Sequence[MemberPredictions]]) -> dict[str, float]:
    """Return system -> percent of failed examples."""
    shares = {
        name: [share for m in members if m.record and (share := m.record.failed_percent) is not None]
        for name, members in systems.items()
    }
    return {name: sum(found) / len(found) for name, found in shares.items() if found}


def _name_selected_on_reported(members: MemberSet, on: str) -> str:
    """Name the runs whose checkpoint was selected on the compared examples."""
    peeked = [m.name for m in members.members if m.selected_on == "dev" or on == "dev"]
    return _("SELECTED ON THE REPORTED SET: {runs}").format(runs=", ".join(peeked)) if peeked else ""


def _name_members(members: MemberSet) -> dict[str, MemberPredictions]:
    """Return the members by name, or by path if names repeat."""
    names = [member.name for member in members.members]
    return {
        name if names.count(name) == 1 else str(member.path): member
        for name, member in zip(names, members.members, strict=True)
    }


def _compare_over_seeds(
    members: MemberSet, on: str, skip: Sequence[str], note: str, rounds: int, seed: int, on_progress: OnProgress | None
) -> SeedComparisonResult:
    """Compare systems; runs that differ only in their seed are one system."""
    named = _group_systems(members)
    task = members.task
    measured = [measure(task, members.examples, member.predictions, skip) for member in members.members]
    clusters = example_clusters(task, members.examples)
    systems = {name: [measured[position] for position in positions] for name, positions in named.items()}
    found, differences = compare_over_seeds(
        systems,
        clusters,
        rounds=rounds,
        seed=seed,
        identical=_find_identical(members, named),
        on_rounds=count_work(on_progress, rounds),
    )
    runs = {name: [members.members[position].name for position in positions] for name, positions in named.items()}
    count = int(clusters.max()) + 1
    failed = _compute_failed_percent(
        {name: [members.members[position] for position in positions] for name, positions in named.items()}
    )
    return SeedComparisonResult(
        task, members.gold, on, len(members.examples), count, runs, found, differences, note, failed
    )


def _group_systems(members: MemberSet) -> dict[str, list[int]]:
    """Return the name of a system -> the positions of its runs, one per seed."""
    records = [member.record for member in members.members if member.record]
    if len(records) < len(members):
        raise DanseoError("--over seeds takes run directories only: a prediction file has no seed")
    labels = label_variants(records)
    groups: dict[object, list[int]] = {}
    for position, record in enumerate(records):
        groups.setdefault(get_variant_key(record), []).append(position)
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


def _find_identical(members: MemberSet, named: Mapping[str, Sequence[int]]) -> set[tuple[str, str, str]]:
    """Return the metrics and pairs of systems with the same predictions for every seed."""
    ranked = {name: sorted(positions, key=lambda k: members.members[k].seed or 0) for name, positions in named.items()}
    answered = {
        name: [members.members[position].predictions for position in positions] for name, positions in ranked.items()
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
