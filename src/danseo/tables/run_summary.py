"""The tables of a finished run: its scores and baselines, and the examples of selection and report."""

from dataclasses import replace
from typing import Any

from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError
from danseo.language import _, join
from danseo.runs.scores import read_extra_tables
from danseo.runs.store import OWN_TASK, Run, get_task_name

_NAMES = {"report": _("report split of dev"), "dev": _("whole dev set")}
_SELECTED_ON = {"dev": _("the whole dev set"), "fold": _("the fold of train that was left out")}


def make_run_tables(run: Run) -> list[Table]:
    """Return the scores on the report split and on the whole dev set."""
    scores = run.read_json("scores.json")
    selection, baselines = _describe_selection(scores), find_baselines(run, scores)
    tables = []
    for split, listed in scores["scores"].items():
        rows = [
            (
                s["id"],
                s["value"],
                format_interval(s["interval"]),
                s["n"],
                *(by.get(s["id"]) for by in baselines[split].values()),
            )
            for s in listed
        ]
        is_selected_on = split == scores["selected_on"] == "dev"
        note = selection + (_("; SELECTED ON THE REPORTED SET") if is_selected_on and selection else "")
        tables.append(Table(_NAMES[split], ("metric", "score", "95 % interval", "n", *baselines[split]), rows, note))
    if "weights" in scores:
        tables.append(_make_weights_table(scores))
    tables += read_extra_tables(scores)
    facts = run.read_json("environment.json")
    notes = [
        tables[-1].note,
        _("{run} ({seconds:.1f} s on {device})").format(run=run.path, seconds=facts["seconds"], device=facts["device"]),
        *list_warnings(run, scores),
    ]
    tables[-1] = replace(tables[-1], note=join(filter(None, notes), "\n"))
    return tables


def _describe_selection(scores: dict[str, Any]) -> str:
    """Name the examples on which the checkpoint was selected; a baseline has none."""
    if "ensemble" not in scores and "best_step" not in scores:
        return ""
    text = _("checkpoint selected on {split}")
    text = _("checkpoints of the members selected on {split}") if "ensemble" in scores else text
    return text.format(split=_SELECTED_ON.get(scores["selected_on"], _("the select split of dev")))


def find_baselines(run: Run, scores: dict[str, Any]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return split -> baseline -> metric -> score: constant answers, and a linear run on the same data."""
    linear = _find_linear_run(run)
    baselines = {}
    for split in scores["scores"]:
        baselines[split] = dict(scores.get("baselines", {}).get(split, {}))
        if linear and split in linear["scores"]:
            baselines[split]["linear"] = {s["id"]: s["value"] for s in linear["scores"][split]}
    return baselines


def _have_same_task(run: Run, other: Run) -> bool:
    """Return whether both runs have the same custom task, or none."""
    texts = [path.read_bytes() if (path := each.path / OWN_TASK).is_file() else b"" for each in (run, other)]
    return texts[0] == texts[1]


def _find_linear_run(run: Run) -> dict[str, Any] | None:
    """Return the scores of a finished linear run in the same folder on the same data."""
    config, facts = run.config, run.read_json("environment.json")
    for path in sorted(run.path.parent.glob(f"{get_task_name(config.task)}--linear--*/scores.json")):
        other = Run(path.parent)
        try:
            known: dict[str, Any] = other.read_json("scores.json")
            is_comparable = (
                _have_same_task(run, other)
                and other.config.max_train_samples == config.max_train_samples
                and not other.config.train.augment
                and other.read_json("environment.json")["data"] == facts["data"]
            )
        except (DanseoError, KeyError):
            continue  # a corrupted run is no baseline
        if is_comparable and other.config.model == "linear" and other.path.resolve() != run.path.resolve():
            return known
    return None


def list_warnings(run: Run, scores: dict[str, Any]) -> list[str]:
    """Return warnings about the score."""
    split = scores["reported_on"] if scores["reported_on"] in scores["scores"] else "dev"
    baselines = scores.get("baselines", {}).get(split, {})
    score = next((s["value"] for s in scores["scores"][split] if s["id"] == scores["headline"]), None)
    baseline = baselines.get("majority", {}).get(scores["headline"])
    if not baselines or run.config.model == "majority" or is_better(score, baseline):
        return []
    text = _(
        "WARNING: {metric} on the {split} is {score}, not better than the most frequent answer whatever the input "
        "({baseline:.2f})"
    )
    value = _("undefined") if score is None else f"{score:.2f}"
    return [text.format(metric=scores["headline"], split=_NAMES[split], score=value, baseline=baseline or 0)]


def is_better(score: float | None, baseline: float | None) -> bool:
    """Return whether a score is better than a baseline; an undefined correlation counts as 0."""
    return (score or 0.0) > (baseline or 0.0)


def _make_weights_table(scores: dict[str, Any]) -> Table:
    """Return the scores of the last and best weights, raw and averaged."""
    rows = [
        (name, kept["step"], *(kept[split] for split in ("select", "report", "dev")))
        for name, kept in scores["weights"].items()
    ]
    columns = ("weights", "step", "select split", "report split", "whole dev set")
    title = _("{metric} of the weights kept in weights/").format(metric=scores["monitor"])
    return Table(title, columns, rows)


def make_run_document(run: Run) -> dict[str, Any]:
    """Return the run as one JSON document."""
    scores = run.read_json("scores.json")
    return {
        "run": str(run.path),
        **scores,
        "baselines": find_baselines(run, scores),
        "warnings": list_warnings(run, scores),
        "environment": run.read_json("environment.json"),
    }
