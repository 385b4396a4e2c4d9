"""What a finished training shows."""

from typing import Any

from danseo.display.table import Table
from danseo.probing.overlap import left_out_line
from danseo.runs.directory import Run

MASKED = {"held_out_loss": "held-out loss", "held_out_accuracy": "held-out accuracy %"}
DETECTION = {
    "held_out_rtd_loss": "held-out rtd loss",
    "held_out_rtd_accuracy": "rtd accuracy %",
    "held_out_rtd_majority": "majority %",
    "held_out_generator_loss": "held-out generator loss",
}
PROBES = ("strict@1", "strict@5", "choice@1", "composite")


def pretrain_tables(run: Run) -> list[Table]:
    """The learning curve, one row per checkpoint."""
    result = run.read_json("result.json")
    lines = result["evaluations"]
    names = [name for name in PROBES if any(name in line.get("probes", {}) for line in lines)]
    is_rtd = "held_out_rtd_loss" in lines[-1]
    figures = DETECTION if is_rtd else MASKED
    rows = [_row(line, figures, names) for line in lines]
    columns = ("step", "epoch", "train loss", *figures.values(), *(f"{name} %" for name in names))
    speed = f"{result['pieces']:,} pieces at {result['pieces_per_second']:,.0f} pieces/s"
    kept = "model/ holds the last weights" if is_rtd else f"least held-out loss at step {result['best_step']:,}"
    note = f"{kept}; {speed}; checkpoints in {run.path}"
    return [Table("pre-training", columns, rows, note + _left_out(result))]


def _left_out(result: dict[str, Any]) -> str:
    """What was not trained on for the probes, where there are some; earlier results tell nothing of it."""
    found = result.get("left_out") or {}
    return f"; {left_out_line(found)}" if found.get("items") else ""


def _row(line: dict[str, Any], figures: dict[str, str], names: list[str]) -> tuple[object, ...]:
    probes = [line.get("probes", {}).get(name) for name in names]
    found = [100 * line[key] if shown.endswith("%") else line[key] for key, shown in figures.items()]
    shares = [None if value is None else 100 * value for value in probes]
    return line["step"], line["epoch"], line["loss"], *found, *shares


def coref_tables(document: dict[str, Any]) -> list[Table]:
    """Every objective before and after: recovered mentions and the probes, with their intervals."""
    results = document["objectives"]
    rows: list[tuple[object, ...]] = [("before", 0, *_cells(results[0]["before"]), None)]
    rows += [(each["objective"], each["steps"], *_cells(each["after"]), change(each)) for each in results]
    columns = ("objective", "steps", "recovered %", "loss at mentions", *(f"{name} (95 %)" for name in PROBES[:3]))
    told = _left_out(document)
    source = "" if told else " of held-out documents"
    note = f"{results[0]['probe_items']:,} probe items{source}; p: McNemar, strict@1 against before{told}"
    tables = [Table("entity fine-tuning", (*columns, "p"), rows, note)]
    return [*tables, pairs_table(results)] if len(results) > 1 else tables


def _cells(scores: dict[str, Any]) -> tuple[object, ...]:
    return 100 * scores["recovered"], scores["held_out_loss"], *(_share(scores, name) for name in PROBES[:3])


def _share(scores: dict[str, Any], name: str) -> str | None:
    """A score of the repeated-noun probe with its interval."""
    probe = scores.get("probe_result", {}).get("probes", {}).get("repeated", {})
    found = probe.get(name) or probe.get("scores", {}).get(name)
    if not found or found["value"] is None:
        return None
    return f"{100 * found['value']:.1f} ({100 * found['low']:.1f} – {100 * found['high']:.1f})"


def change(result: dict[str, Any], name: str = "strict@1") -> float | None:
    """McNemar's p between before and after."""
    return _paired(result["before"], result["after"], name)


def pairs_table(results: list[dict[str, Any]]) -> Table:
    """The objectives against each other on the same items."""
    rows: list[tuple[object, ...]] = []
    for position, one in enumerate(results):
        for other in results[position + 1 :]:
            for name in PROBES[:3]:
                values = [each["after"].get("probes", {}).get(name) for each in (one, other)]
                if None not in values:
                    p = _paired(one["after"], other["after"], name)
                    rows.append((one["objective"], other["objective"], name, 100 * (values[0] - values[1]), p))
    return Table("objectives against each other", ("a", "b", "score", "a - b, points", "p (McNemar)"), rows)


def _paired(a: dict[str, Any], b: dict[str, Any], name: str) -> float | None:
    from danseo.probing.score import mcnemar

    bits = [each.get("probe_result", {}).get("hits", {}).get("repeated", {}).get(name) for each in (a, b)]
    if not all(bits):
        return None
    return mcnemar(*([hit == "1" for hit in text] for text in bits))
