"""Tables and charts of trainings."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

from danseo.display.plots.figures import Chart, Curve
from danseo.display.table import Table
from danseo.mlm.overlap import format_left_out
from danseo.runs.schemas import has_numbers
from danseo.runs.store import Run

MASKED = {"held_out_loss": "held-out loss", "held_out_accuracy": "held-out accuracy %"}
DETECTION = {
    "held_out_rtd_loss": "held-out rtd loss",
    "held_out_rtd_accuracy": "rtd accuracy %",
    "held_out_rtd_majority": "majority %",
    "held_out_generator_loss": "held-out generator loss",
}
PROBES = ("strict@1", "strict@5", "choice@1", "composite")


def pretrain_tables(run: Run) -> list[Table]:
    """Return the learning curve, one row per checkpoint."""
    result = run.read_json("result.json")
    lines = result["evaluations"]
    names = [name for name in PROBES if any(name in line.get("probes", {}) for line in lines)]
    is_rtd = "held_out_rtd_loss" in lines[-1]
    figures = DETECTION if is_rtd else MASKED
    rows = [_make_row(line, figures, names) for line in lines]
    columns = ("step", "epoch", "train loss", *figures.values(), *(f"{name} %" for name in names))
    speed = f"{result['tokens']:,} tokens at {result['train_tokens_per_second']:,.0f} tokens/s"
    kept = "model/ holds the last weights" if is_rtd else f"least held-out loss at step {result['best_step']:,}"
    note = f"{kept}; {speed}; checkpoints in {run.path}"
    return [Table("pre-training", columns, rows, note + _describe_left_out(result))]


def _describe_left_out(result: dict[str, Any]) -> str:
    """Return a note about documents that were left out for the probes, or an empty string."""
    left_out = result.get("left_out") or {}
    return f"; {format_left_out(left_out)}" if left_out.get("items") else ""


def _make_row(line: dict[str, Any], figures: dict[str, str], names: list[str]) -> tuple[object, ...]:
    probes = [line.get("probes", {}).get(name) for name in names]
    scores = [100 * line[key] if title.endswith("%") else line[key] for key, title in figures.items()]
    shares = [None if value is None else 100 * value for value in probes]
    return line["step"], line["epoch"], line["loss"], *scores, *shares


def coref_tables(document: dict[str, Any]) -> list[Table]:
    """Return recovered mentions and probes of every objective before and after, with their intervals."""
    results = document["objectives"]
    rows: list[tuple[object, ...]] = [("before", 0, *_list_cells(results[0]["before"]), None)]
    rows += [
        (each["objective"], each["steps"], *_list_cells(each["after"]), _compute_p(each["before"], each["after"]))
        for each in results
    ]
    columns = ("objective", "steps", "recovered %", "loss at mentions", *(f"{name} (95 %)" for name in PROBES[:3]))
    left_out = _describe_left_out(document)
    source = "" if left_out else " of held-out documents"
    note = f"{results[0]['probe_items']:,} probe items{source}; p: McNemar, strict@1 against before{left_out}"
    tables = [Table("entity fine-tuning", (*columns, "p"), rows, note)]
    return [*tables, _make_pairs_table(results)] if len(results) > 1 else tables


def _list_cells(scores: dict[str, Any]) -> tuple[object, ...]:
    return 100 * scores["recovered"], scores["held_out_loss"], *(_format_score(scores, name) for name in PROBES[:3])


def _format_score(scores: dict[str, Any], name: str) -> str | None:
    """Return a score of the repeated-noun probe with its interval as text."""
    probe = scores.get("probe_result", {}).get("probes", {}).get("repeated", {})
    share = probe.get(name) or probe.get("scores", {}).get(name)
    if not share or share["value"] is None:
        return None
    return f"{100 * share['value']:.1f} ({100 * share['low']:.1f} – {100 * share['high']:.1f})"


def _make_pairs_table(results: list[dict[str, Any]]) -> Table:
    """Return the differences between objectives on the same items."""
    rows: list[tuple[object, ...]] = []
    for (a, b), name in product(combinations(results, 2), PROBES[:3]):
        values = [each["after"].get("probes", {}).get(name) for each in (a, b)]
        if None not in values:
            p = _compute_p(a["after"], b["after"], name)
            rows.append((a["objective"], b["objective"], name, 100 * (values[0] - values[1]), p))
    return Table("objectives against each other", ("a", "b", "score", "a - b, points", "p (McNemar)"), rows)


def _compute_p(a: dict[str, Any], b: dict[str, Any], name: str = "strict@1") -> float | None:
    """Return McNemar's p of two evaluations on the same repeated-noun items."""
    from danseo.mlm.probing.score import compute_mcnemar_p

    bits = [each.get("probe_result", {}).get("hits", {}).get("repeated", {}).get(name) for each in (a, b)]
    if not all(bits):
        return None
    return compute_mcnemar_p(*([hit == "1" for hit in text] for text in bits))


_LOSSES = {
    "Loss over steps": {"held_out_loss": "held-out loss", "loss": "training loss"},
    "Detection loss over steps": {"held_out_rtd_loss": "held-out detection loss"},
    "Generator loss over steps": {"held_out_generator_loss": "held-out generator loss"},
}
_SHARES = {"held_out_accuracy": "held-out words found", "recovered": "entities recovered"}


def make_training_charts(lines: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return the charts of a log: losses, and the share of masked words and probe items that are found."""
    charts = [Chart(_make_curves(lines, names), "step", "loss", title=title) for title, names in _LOSSES.items()]
    probed = ((line.get("step"), line.get("probes")) for line in lines)
    probes = [{"step": step, **scores} for step, scores in probed if isinstance(scores, dict)]
    shares = [*_make_curves(lines, _SHARES, 100), *_make_curves(probes, {name: name for name in PROBES[:3]}, 100)]
    charts.append(Chart(shares, "step", "% of items", title="Words found over steps", from_zero=True))
    return [chart for chart in charts if chart.curves]


def _make_curves(lines: Sequence[Mapping[str, Any]], names: Mapping[str, str], times: float = 1) -> list[Curve]:
    points = {
        name: [(line["step"], times * line[key]) for line in lines if has_numbers(line, "step", key)]
        for key, name in names.items()
    }
    return [Curve(name, each) for name, each in points.items() if each]
