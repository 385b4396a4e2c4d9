"""Probing results as tables."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from danseo.display.table import Table, shown_interval
from danseo.probing.checkpoints import shown_name
from danseo.probing.results import Record
from danseo.probing.score import RULE_SCORES, mcnemar
from danseo.runs.naming import told_apart

_NAMES = {"repeated": "repeated nouns", "lambada": "LAMBADA-style"}
_GROUPS = {"unfiltered": "unfiltered", "covered_scores": "covered", "without_antecedent": "no antecedent"}
_COMPARED = ("strict@1", "strict@5", "lenient@1", "lenient@5", "piece@1", "choice@1", "exact@1")


def _percent(share: Mapping[str, Any] | None, key: str = "value") -> float | None:
    value = (share or {}).get(key)
    return None if value is None else 100 * value


def _interval(share: Mapping[str, Any] | None) -> str | None:
    return shown_interval(_percent(share, "low"), _percent(share, "high"), decimals=1)


def result_tables(record: Record) -> Iterator[Table]:
    """All of one checkpoint."""
    for kind, probe in record["probes"].items():
        yield _scores(record, kind, probe)
        yield _by_distance(kind, probe)


def _scores(record: Record, kind: str, probe: Mapping[str, Any]) -> Table:
    rows: list[tuple[object, ...]] = []
    for name in RULE_SCORES:
        shares = [probe.get(group, {}).get(name) for group in ("scores", *_GROUPS)]
        found = [_percent(share) for share in shares]
        guesses = [_percent(probe["baselines"].get(each, {}).get(name)) for each in ("nearest", "frequent", "unigram")]
        rows.append((name, found[0], _interval(shares[0]), *found[1:], *guesses))
    for name in ("choice@1", "exact@1", "given@1"):
        if name in probe:
            rows.append((name, _percent(probe[name]), _interval(probe[name]), *[None] * 6))
    columns = ("metric", "score", "95 %", *_GROUPS.values(), "nearest", "most frequent", "unigram")
    title = f"{shown_name(record['checkpoint'])}: {_NAMES.get(kind, kind)}, {probe['n']} items, %"
    return Table(title, columns, rows, _note(record, probe))


def _note(record: Record, probe: Mapping[str, Any]) -> str:
    parts = [
        f"{record['seq_len']} pieces, {record['spelling']} spelling ({100 * probe['respelled']:.1f} % respelled)",
        f"coverage {100 * probe['coverage']:.1f} %",
        f"no noun among the guesses {100 * probe['no_candidate']:.1f} %",
        f"antecedent in the window {100 * probe['antecedent_in_window']:.1f} %",
    ]
    if "choice_mrr" in probe:
        parts.append(f"choice: MRR {probe['choice_mrr']:.3f}, chance {100 * probe['choice_chance']:.1f} %")
    return "; ".join(parts)


def _by_distance(kind: str, probe: Mapping[str, Any]) -> Table:
    names = [name for name in ("strict@1", "strict@5", "lenient@1", "choice@1") if name in probe["by_distance"][0]]
    rows: list[tuple[object, ...]] = [
        (
            row["distance"],
            row["n"],
            row["in_window"],
            *(_percent(row[name]) for name in names),
            _interval(row[names[0]]),
        )
        for row in probe["by_distance"]
    ]
    columns = ("pieces to the antecedent", "items", "in the window", *names, "95 % of strict@1")
    return Table(f"{_NAMES.get(kind, kind)} by distance", columns, rows)


def _names(rows: Sequence[Record]) -> list[str]:
    """A name per checkpoint, short and different."""
    sources = [str(row["checkpoint"]) for row in rows]
    names = told_apart({source: (shown_name(source), str(Path(source).absolute())) for source in sources})
    return [names[source] for source in sources]


def sweep_table(summary: Record) -> Table:
    """One line per checkpoint; what went wrong only where something did."""
    results = summary["results"]
    rows: list[tuple[object, ...]] = [
        (
            name,
            row.get("step"),
            *(None if row.get(key) is None else 100 * row[key] for key in _SHOWN),
            None if row["status"] == "ok" else f"{row['status']}: {row.get('error')}",
        )
        for row, name in zip(results, _names(results), strict=True)
    ]
    weights = next((row["weights"] for row in results if row.get("weights")), None)
    notes = [f"composite and score: weights {weights} of repeated@1, repeated@5, LAMBADA@1; score is by the old rule"]
    notes += [best] if (best := _best(results)) else []
    new, old = ("strict@1", "strict@5", "choice@1", "LAMBADA strict@1", "composite"), ("Real@1", "Real@5", "LAMBADA@1")
    columns = ("checkpoint", "step", *new, *old, "score", "error")
    return Table("Checkpoints, %", columns, rows, "; ".join(notes), keys=2)


def _best(results: Sequence[Record]) -> str:
    """Who has the best composite; several who share it are a tie, and one alone is no contest."""
    known = [(row["composite"], name) for row, name in zip(results, _names(results), strict=True) if _counts(row)]
    if len(known) < 2:
        return ""
    best = [name for value, name in known if value == max(known)[0]]
    if len(best) == len(known):
        return "all have the same composite"
    return f"best composite: {best[0]}" if len(best) == 1 else f"{' and '.join(best)} share the best composite"


def _counts(row: Record) -> bool:
    return row["status"] == "ok" and row.get("composite") is not None


_SHOWN = ("strict1", "strict5", "choice1", "lambada_strict1", "composite", "real1", "real5", "lambada_top1", "score")


def comparison(records: Sequence[Record], reference: Record) -> list[Record]:
    """Differences to the reference in points, with McNemar's test on the same items."""
    made = []
    for record in records:
        for kind, found in record["hits"].items():
            for name in _COMPARED:
                here, there = found.get(name), reference["hits"].get(kind, {}).get(name)
                if here and there:
                    ours, theirs = ([mark == "1" for mark in marks] for marks in (here, there))
                    made.append(_difference(record, kind, name, ours, theirs))
    return made


def _difference(record: Record, kind: str, name: str, ours: list[bool], theirs: list[bool]) -> Record:
    here, there = (100 * sum(hits) / len(hits) for hits in (ours, theirs))
    return {
        "checkpoint": record["checkpoint"],
        "probe": kind,
        "score": name,
        "value": here,
        "reference": there,
        "difference": here - there,
        "only_here": sum(a and not b for a, b in zip(ours, theirs, strict=True)),
        "only_reference": sum(b and not a for a, b in zip(ours, theirs, strict=True)),
        "mcnemar_p": mcnemar(theirs, ours),
    }


def comparison_table(differences: Sequence[Record], reference: Record) -> Table:
    """The comparison to look at."""
    keys = ("probe", "score", "value", "reference", "difference", "only_here", "only_reference", "mcnemar_p")
    rows: list[tuple[object, ...]] = [
        (name, *(row[key] for key in keys)) for row, name in zip(differences, _names(differences), strict=True)
    ]
    columns = ("checkpoint", "probe", "metric", "score", "reference", "points", "only here", "only reference", "p")
    title = f"Against {shown_name(reference['checkpoint'])}, %"
    return Table(title, columns, rows, "p: McNemar's exact test, not corrected", keys=3)
