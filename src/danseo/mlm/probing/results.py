"""Result files of `danseo probe`: one per checkpoint, a summary and a CSV, and their tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Any

from danseo.display.escaping import to_csv
from danseo.display.plots.figures import Chart, Curve
from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError, DataError
from danseo.files import write_atomically
from danseo.mlm.probing.checkpoints import format_name
from danseo.mlm.probing.items import BASELINES
from danseo.mlm.probing.score import RULE_SCORES, compute_mcnemar_p
from danseo.rows import read_object
from danseo.runs.naming import make_names_unique
from danseo.runs.schemas import has_numbers
from danseo.scoring.compare import ALPHA
from danseo.scoring.resampling import correct_holm, group_ties

SCHEMA = 2
SUMMARY, TABLE, CURVE = "probe_summary.json", "probe_summary.csv", "probe_curve.png"
LEGACY = ("checkpoint", "seq_len", "lambada_top1", "real1", "real5", "score", "epoch")
ADDED = (
    "step",
    "status",
    "strict1",
    "strict5",
    "choice1",
    "lambada_strict1",
    "composite",
    "eval_set_hash",
    "error",
    "spelling",
)
_ENDING = "_eval_results.json"

_COLUMNS = ("strict1", "strict5", "choice1", "lambada_strict1", "composite", "real1", "real5", "lambada_top1", "score")
Record = dict[str, Any]


@dataclass(frozen=True)
class EvaluationKey:
    """Hashes of the weights, the items and the settings: equal keys mean the same evaluation."""

    model_hash: str
    eval_set_hash: str
    eval_config_hash: str

    def matches(self, record: Mapping[str, Any]) -> bool:
        return all(record.get(key) == value for key, value in vars(self).items())


def remove_partial_files(folder: Path) -> None:
    """Remove partial result files that a killed process left; other files stay."""
    for name in (SUMMARY, TABLE, CURVE, f"*{_ENDING}"):
        for draft in folder.glob(f".{name}.*.part"):
            draft.unlink(missing_ok=True)


def read_record(path: Path) -> Record | None:
    """Read a result file; return None if it is missing or unreadable."""
    try:
        return dict(read_object(path).values)
    except DataError:
        return None


def find_result(folder: Path, name: str, identity: EvaluationKey) -> Record | None:
    """Return the stored result of the same evaluation, or None."""
    for path in sorted(folder.glob(f"*{name}*{_ENDING}")):
        record = read_record(path)
        if record and record.get("status") == "ok" and identity.matches(record):
            return record
    return None


def _choose_path(folder: Path, record: Mapping[str, Any]) -> Path:
    """Return the path <checkpoint>_eval_results.json, or a longer name if another evaluation has that file."""
    name, parent = record["checkpoint_info"]["name"], Path(record["checkpoint"]).resolve().parent.name
    key = f"{record['eval_set_hash'][:4]}{record['eval_config_hash'][:4]}"
    choices = (name, f"{parent}--{name}", f"{parent}--{name}--{key}")
    paths = [folder / f"{choice}{_ENDING}" for choice in choices]
    return next((path for path in paths if _is_free(path, record)), paths[-1])


def _is_free(path: Path, record: Mapping[str, Any]) -> bool:
    present = read_record(path)
    same = ("eval_set_hash", "eval_config_hash", "checkpoint")
    return present is None or all(present.get(key) == record[key] for key in same)


def write_record(folder: Path, record: Mapping[str, Any]) -> Path:
    """Write one checkpoint's result."""
    path = _choose_path(folder, record)
    write_atomically(path, json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    return path


def merge_rows(existing: Sequence[Record], new: Sequence[Record]) -> list[Record]:
    """Merge rows by checkpoint: the newest wins, in the order of first appearance."""
    return list({row["checkpoint"]: row for row in [*existing, *new]}.values())


def make_row(record: Mapping[str, Any]) -> Record:
    """Return a checkpoint's row of the summary: its record without the long fields."""
    return {key: value for key, value in record.items() if key not in ("probes", "hits", "libraries")}


def write_summary(
    folder: Path,
    rows: Sequence[Record],
    total: int,
    minutes: float,
    status: str,
    limits: Record,
    reference: Record | None = None,
) -> Record:
    """Write the summary as JSON and CSV; rows of other items, another spelling or length go to `other_sets`."""
    before = read_record(folder / SUMMARY) or {}
    reference = make_row(reference) if reference else before.get("reference")
    old = [row for row in [*before.get("results", []), *before.get("other_sets", [])] if isinstance(row, dict)]
    ours = {make_comparison_key(row) for row in rows}
    ours |= {(*key[:2], None, None) for key in ours}  # failures have no precision and attention
    settings = {row["checkpoint"]: _get_settings(row) for row in rows if row["status"] == "ok"}
    same: list[Record] = []
    others: list[Record] = []
    for row in old:
        replaced = row.get("status") != "ok" or settings.get(row.get("checkpoint")) in (None, _get_settings(row))
        (same if replaced and make_comparison_key(row) in ours else others).append(row)
    results = sorted(merge_rows(same, rows), key=lambda row: (row.get("step") is None, row.get("step") or 0))
    good = [row for row in results if row["status"] == "ok"]
    document = {
        "schema_version": SCHEMA,
        "status": status,
        "evaluated_at": max((row["evaluated_at"] for row in results), default=None),
        "total_checkpoints": total,
        "completed": len(rows),
        "progress_pct": round(100 * len(rows) / max(1, total), 1),
        "successful_evaluations": len(good),
        "elapsed_time_minutes": round(minutes, 3),
        "limits": limits,
        **{f"best_by_{key}": find_best(good, key) for key in ("score", "real1", "real5", "composite")},
        "results": results,
        "other_sets": others,
        **({"reference": reference} if reference else {}),
    }
    write_atomically(folder / SUMMARY, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    write_atomically(folder / TABLE, format_csv(results))
    return document


def _get_settings(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return length and weights: a result with other ones is another result of the same checkpoint."""
    return row.get("seq_len"), row.get("weights")


def make_comparison_key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return items, spelling, precision and attention: comparable results have them in common."""
    mode = (record.get("dtype"), record.get("attention", "own")) if record.get("status") == "ok" else (None, None)
    return record.get("eval_set_hash"), record.get("spelling"), *mode


def find_best(rows: Sequence[Record], key: str) -> Record | None:
    """Return the row with the highest value, or None if several share it."""
    known = [row for row in rows if row.get(key) is not None]
    best = [row for row in known if row[key] == max(float(each[key]) for each in known)]
    return best[0] if len(best) == 1 else None


def format_csv(rows: Sequence[Record]) -> str:
    """Return the CSV: columns of earlier results first, then the newer ones; scores with four decimals."""
    columns = (*LEGACY, *ADDED)
    return to_csv([columns, *([_format_cell(key, row.get(key)) for key in columns] for row in rows)])


def _format_cell(key: str, value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.4f}" if key in _COLUMNS else value


def read_reference(path: Path, eval_set_hash: str, spelling: str) -> Record:
    """Read a stored result to compare with; raise if it has other items or another spelling."""
    record = read_record(path)
    if record is None or "hits" not in record:
        raise DanseoError(f"not a result of `danseo probe`: {path}; name a <checkpoint>{_ENDING}")
    if record.get("eval_set_hash") != eval_set_hash:
        raise DanseoError(
            f"{path} was probed on other items ({record.get('eval_set_hash')}, here {eval_set_hash}); "
            "probe both on one set"
        )
    if (other := make_comparison_key(record)[1]) != spelling:
        raise DanseoError(f"{path} was probed with --spelling {other}, here it is {spelling}; use one of them")
    return record


_NAMES = {"repeated": "repeated nouns", "lambada": "LAMBADA-style"}
_GROUPS = {"unfiltered": "unfiltered", "covered_scores": "covered", "without_antecedent": "no antecedent"}
_COMPARED_SCORES = ("strict@1", "strict@5", "lenient@1", "lenient@5", "token@1", "choice@1", "exact@1")


def _to_percent(share: Mapping[str, Any] | None, key: str = "value") -> float | None:
    value = (share or {}).get(key)
    return None if value is None else 100 * value


def _format_interval(share: Mapping[str, Any] | None) -> str | None:
    return format_interval((_to_percent(share, "low"), _to_percent(share, "high")), decimals=1)


def make_result_tables(record: Record) -> Iterator[Table]:
    """Yield the tables of one checkpoint: scores, and scores by distance."""
    for kind, probe in record["probes"].items():
        yield _make_score_table(record, kind, probe)
        yield _make_distance_table(kind, probe)


def _make_score_table(record: Record, kind: str, probe: Mapping[str, Any]) -> Table:
    rows: list[tuple[object, ...]] = []
    for name in RULE_SCORES:
        shares = [probe.get(group, {}).get(name) for group in ("scores", *_GROUPS)]
        score, *others = map(_to_percent, shares)
        guesses = [_to_percent(probe["baselines"].get(baseline, {}).get(name)) for baseline in BASELINES]
        rows.append((name, score, _format_interval(shares[0]), *others, *guesses))
    for name in ("choice@1", "exact@1", "given@1"):
        if name in probe:
            rows.append((name, _to_percent(probe[name]), _format_interval(probe[name]), *[None] * 6))
    columns = ("metric", "score", "95 %", *_GROUPS.values(), "nearest", "most frequent", "unigram")
    title = f"{format_name(record['checkpoint'])}: {_NAMES.get(kind, kind)}, {probe['n']} items, %"
    return Table(title, columns, rows, _format_note(record, probe))


def _format_note(record: Record, probe: Mapping[str, Any]) -> str:
    parts = [
        f"{record['seq_len']} tokens, {record['spelling']} spelling ({100 * probe['respelled']:.1f} % respelled)",
        f"coverage {100 * probe['coverage']:.1f} %",
        f"no noun among the guesses {100 * probe['no_candidate']:.1f} %",
        f"antecedent in the window {100 * probe['antecedent_in_window']:.1f} %",
    ]
    if "choice_mrr" in probe:
        parts.append(f"choice: MRR {probe['choice_mrr']:.3f}, chance {100 * probe['choice_chance']:.1f} %")
    return "; ".join(parts)


def _make_distance_table(kind: str, probe: Mapping[str, Any]) -> Table:
    names = [name for name in ("strict@1", "strict@5", "lenient@1", "choice@1") if name in probe["by_distance"][0]]
    rows: list[tuple[object, ...]] = [
        (
            row["distance"],
            row["n"],
            row["in_window"],
            *(_to_percent(row[name]) for name in names),
            _format_interval(row[names[0]]),
        )
        for row in probe["by_distance"]
    ]
    columns = ("tokens to the antecedent", "items", "in the window", *names, "95 % of strict@1")
    return Table(f"{_NAMES.get(kind, kind)} by distance", columns, rows)


def _choose_names(rows: Sequence[Record]) -> list[str]:
    """Return a short, unique name per checkpoint."""
    sources = [str(row["checkpoint"]) for row in rows]
    names = make_names_unique({source: (format_name(source), str(Path(source).absolute())) for source in sources})
    return [names[source] for source in sources]


def make_sweep_table(summary: Record) -> Table:
    """Return a table with one row per checkpoint."""
    results = summary["results"]
    rows: list[tuple[object, ...]] = [
        (
            name,
            row.get("step"),
            *(None if row.get(key) is None else 100 * row[key] for key in _COLUMNS),
            None if row["status"] == "ok" else f"{row['status']}: {row.get('error')}",
        )
        for row, name in zip(results, _choose_names(results), strict=True)
    ]
    weights = next((row["weights"] for row in results if row.get("weights")), None)
    notes = [
        f"composite and score: weights {weights} of repeated@1, repeated@5, LAMBADA@1",
        "score and Real@k also count a guess that contains the answer, as in earlier results",
    ]
    notes += [best] if (best := _describe_best(results)) else []
    new, old = ("strict@1", "strict@5", "choice@1", "LAMBADA strict@1", "composite"), ("Real@1", "Real@5", "LAMBADA@1")
    columns = ("checkpoint", "step", *new, *old, "score", "error")
    return Table("Checkpoints, %", columns, rows, "; ".join(notes), keys=2)


def _describe_best(results: Sequence[Record]) -> str:
    """Return a sentence about the best composite, or nothing for fewer than two checkpoints."""
    rows = zip(results, _choose_names(results), strict=True)
    known = [(row["composite"], name) for row, name in rows if row.get("composite") is not None]
    if len(known) < 2:
        return ""
    best = [name for value, name in known if value == max(known)[0]]
    if len(best) == len(known):
        return "all have the same composite"
    return f"best composite: {best[0]}" if len(best) == 1 else f"{' and '.join(best)} share the best composite"


def compare_records(records: Sequence[Record], reference: Record) -> list[Record]:
    """Return differences from the reference in points, with McNemar's test on the same items."""
    differences = []
    for record in records:
        for kind, hits in record["hits"].items():
            for name in _COMPARED_SCORES:
                here, there = hits.get(name), reference["hits"].get(kind, {}).get(name)
                if here and there:
                    ours, theirs = ([mark == "1" for mark in marks] for marks in (here, there))
                    differences.append(_make_difference(record, kind, name, ours, theirs))
    return differences


def _make_difference(record: Record, kind: str, name: str, ours: list[bool], theirs: list[bool]) -> Record:
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
        "mcnemar_p": compute_mcnemar_p(theirs, ours),
    }


def make_comparison_table(differences: Sequence[Record], reference: Record) -> Table:
    """Return the comparison as a table."""
    keys = ("probe", "score", "value", "reference", "difference", "only_here", "only_reference", "mcnemar_p")
    rows: list[tuple[object, ...]] = [
        (name, *(row[key] for key in keys)) for row, name in zip(differences, _choose_names(differences), strict=True)
    ]
    columns = ("checkpoint", "probe", "metric", "score", "reference", "points", "only here", "only reference", "p")
    title = f"Against {format_name(reference['checkpoint'])}, %"
    return Table(title, columns, rows, "p: McNemar's exact test, not corrected", keys=3)


PROBE_NAMES = {
    "strict1": "repeated nouns, strict@1",
    "strict5": "repeated nouns, strict@5",
    "choice1": "choice among the text's nouns @1",
    "lambada_strict1": "LAMBADA-style, strict@1",
    "composite": "composite",
}
"""Names of the score columns of probe_summary.json."""


def make_probe_chart(rows: Sequence[Mapping[str, Any]], levels: Mapping[str, float] | None = None) -> Chart | None:
    """Return probe scores over steps with the 95 % band of strict@1; None for fewer than two checkpoints."""
    by_score = {name: [row for row in rows if has_numbers(row, "step", name)] for name in PROBE_NAMES}
    curves = [
        Curve(
            PROBE_NAMES[name],
            sorted((row["step"], 100 * row[name]) for row in known),
            band=_make_band(known) if name == "strict1" else (),
        )
        for name, known in by_score.items()
        if len({row["step"] for row in known}) > 1
    ]
    shares = [(name, 100 * value) for name, value in (levels or {}).items()]
    title = "Probes over training"
    return Chart(curves, "step", "% of items", title=title, levels=shares, from_zero=True) if curves else None


def _make_band(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float]]:
    ends = [(row["step"], row.get("strict1_interval")) for row in rows]
    known = [(step, *interval) for step, interval in ends if isinstance(interval, list) and len(interval) == 2]
    return sorted((step, 100 * low, 100 * high) for step, low, high in known if has_numbers({0: low, 1: high}, 0, 1))


@dataclass(frozen=True)
class ProbeSeries:
    """The probed checkpoints of one training, by step."""

    name: str
    rows: list[Record]
    hits: list[bool] | None
    """The hits of the best checkpoint (repeated nouns, strict@1), item by item; None if its result file is missing."""

    @property
    def best(self) -> Record:
        return find_best_checkpoint(self.rows)


def find_best_checkpoint(rows: Sequence[Record]) -> Record:
    """Return the row with the highest strict@1, the earliest of several."""
    return max(rows, key=lambda row: (row["strict1"], -row["step"]))


def find_series(summaries: Sequence[Path]) -> list[tuple[list[ProbeSeries], Record | None]]:
    """Return the series of several trainings that can be compared, and the reference: the same items and settings."""
    sets: dict[tuple[Any, ...], dict[str, dict[str, tuple[Record, Path]]]] = {}
    references: dict[Any, Record] = {}
    for path in summaries:
        summary = read_record(path) or {}
        if isinstance(reference := summary.get("reference"), dict) and has_numbers(reference, "strict1"):
            references[make_comparison_key(reference)[:2]] = reference
        results = summary.get("results")
        for row in results if isinstance(results, list) else ():
            if isinstance(row, dict) and has_numbers(row, "step", "strict1") and isinstance(row.get("checkpoint"), str):
                checkpoint = Path(row["checkpoint"])
                trainings = sets.setdefault(make_comparison_key(row), {})
                trainings.setdefault(str(checkpoint.parent), {})[str(checkpoint)] = row, path.parent
    return [(_make_series(trainings), references.get(key[:2])) for key, trainings in sets.items() if len(trainings) > 1]


def _make_series(trainings: Mapping[str, Mapping[str, tuple[Record, Path]]]) -> list[ProbeSeries]:
    names = make_names_unique({parent: (Path(parent).name or parent, parent) for parent in trainings})
    series = []
    for parent, rows in trainings.items():
        ordered = sorted((row for row, _ in rows.values()), key=itemgetter("step"))
        best = find_best_checkpoint(ordered)
        series.append(ProbeSeries(names[parent], ordered, _read_hits(best, rows[str(Path(best["checkpoint"]))][1])))
    return series


def _read_hits(row: Record, folder: Path) -> list[bool] | None:
    for path in sorted(folder.glob(f"*{Path(row['checkpoint']).name}*{_ENDING}")):
        record = read_record(path) or {}
        if all(record.get(key) == row.get(key) for key in ("checkpoint", "eval_set_hash", "eval_config_hash")):
            hits = record.get("hits")
            found = hits.get("repeated", {}).get("strict@1") if isinstance(hits, dict) else None
            return [mark == "1" for mark in found] if isinstance(found, str) else None
    return None


def group_tied_series(series: Sequence[ProbeSeries]) -> dict[str, str]:
    """Return letters per series: best checkpoints with the same letter do not differ significantly (McNemar, Holm)."""
    known = sorted((each for each in series if each.hits), key=lambda each: -each.best["strict1"])
    pairs = [(a, b) for a, b in combinations(known, 2) if len(a.hits or ()) == len(b.hits or ())]
    p_values = correct_holm([compute_mcnemar_p(a.hits or [], b.hits or []) for a, b in pairs])
    tied = {frozenset((a.name, b.name)) for (a, b), p in zip(pairs, p_values, strict=True) if p >= ALPHA}
    return group_ties([each.name for each in known], tied)


def make_series_chart(series: Sequence[ProbeSeries], groups: Mapping[str, str], reference: Record | None) -> Chart:
    """Return strict@1 over steps of several trainings, with their tie groups and the reference as a line."""
    curves = [
        Curve(
            f"{each.name} ({groups[each.name]})" if each.name in groups else each.name,
            [(row["step"], 100 * row["strict1"]) for row in each.rows],
            best=each.best["step"],
            band=_make_band(each.rows),
        )
        for each in series
    ]
    levels = (
        [(f"reference {format_name(str(reference.get('checkpoint')))}", 100 * reference["strict1"])]
        if reference
        else []
    )
    return Chart(curves, "step", PROBE_NAMES["strict1"] + ", %", title="Probe series", levels=levels, from_zero=True)
