"""What a study came to: tables, plots, and the best settings as a file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danseo.display.escaping import to_csv
from danseo.display.table import Table, as_typed, shown_interval
from danseo.files import write_atomically
from danseo.plots.studies import draw_history, draw_importance
from danseo.search.study import trial_number
from danseo.tuning.study import best_of, report_once
from danseo.tuning.targets import Target

BESIDE = ".tune.json"
"""How the copy of result.json ends that lies beside the trials, where the pages about them find it."""


def write_results(study: Any, target: Target, folder: Path) -> dict[str, Any]:
    """best.toml, trials.csv, result.json and the plots; the document comes back."""
    best = best_of(study)
    chosen = {"trial": trial_number(best), "value": best.value, "settings": best.params}
    running = sum(trial.state.name == "RUNNING" for trial in study.get_trials(deepcopy=False))
    document: dict[str, Any] = {
        "study": study.study_name,
        "command": target.command,
        "metric": target.metric,
        "best": {**chosen, **best.user_attrs["outcome"]},
        "running": running,
        # Held-back scores are looked at once, when no other process may still find a better trial.
        "report": dict(report_once(study, target, best)) if not running else None,
        "importance": importance(study),
        "trials": [_row(trial) for trial in study.get_trials(deepcopy=False)],
        "config": str(folder / "best.toml"),
    }
    write_atomically(folder / "best.toml", target.best_config(best.params))
    write_atomically(folder / "trials.csv", _csv(document["trials"]))
    draw_history(document["trials"], target.metric, folder / "history.png")
    if document["importance"]:
        draw_importance(document["importance"], folder / "importance.png")
    text = json.dumps(document, ensure_ascii=False, indent=2, default=str) + "\n"
    write_atomically(folder / "result.json", text)
    if Path(study.study_name).name == study.study_name:
        write_atomically(target.home / f"{study.study_name}{BESIDE}", text)
    return document


def importance(study: Any) -> dict[str, float]:
    """How much of the spread of the values each setting explains; empty for fewer than four finished trials."""
    import optuna

    finished = [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    if len(finished) < 4 or len({trial.value for trial in finished}) < 2:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def _row(trial: Any) -> dict[str, Any]:
    seconds = (trial.datetime_complete - trial.datetime_start).total_seconds() if trial.datetime_complete else None
    return {
        "trial": trial_number(trial),
        "state": trial.state.name.lower(),
        "value": trial.value if trial.value is not None else _last(trial.intermediate_values),
        "seconds": seconds,
        **trial.params,
        "error": trial.user_attrs.get("error"),
    }


def _last(values: Mapping[int, float]) -> float | None:
    return values[max(values)] if values else None


def _csv(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return to_csv([columns, *([row.get(key, "") for key in columns] for row in rows)])


def study_tables(document: Mapping[str, Any]) -> list[Table]:
    """The trials from best to worst, and the held-back scores of the best."""
    names = list(document["best"]["settings"])
    order = sorted(document["trials"], key=lambda row: (row["state"] != "complete", -(row["value"] or 0)))
    rows: list[tuple[object, ...]] = [
        (
            as_typed(row["trial"]),
            row["state"],
            row["value"],
            *(_short(row.get(name)) for name in names),
            row["seconds"],
            row["error"],
        )
        for row in order
    ]
    columns = ("trial", "state", "value", *(name.rsplit(".", 1)[-1] for name in names), "seconds", "error")
    ties = [row["trial"] for row in order if row["state"] == "complete" and row["value"] == document["best"]["value"]]
    tied = f" (of trial {document['best']['trial']}; {len(ties)} trials have the best value)" if ties[1:] else ""
    note = f"value: {document['metric']}; of a pruned trial its last one\nbest settings{tied}: {document['config']}"
    tables = [Table(f"study {document['study']}", columns, rows, note, keys=1)]
    report = document["report"]
    if report is None:
        return tables
    scores: list[tuple[object, ...]] = [
        (s["id"], s["value"], _ends(*(s.get("interval") or (None, None))), s.get("n")) for s in report["scores"]
    ]
    title = f"trial {document['best']['trial']} on {report['on']}, which no trial was judged by"
    return [*tables, Table(title, ("metric", "score", "95 % interval", "n"), scores)]


def _short(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) else value


def _ends(low: float | None, high: float | None) -> str | None:
    return shown_interval(low, high, decimals=2 if high is not None and high > 1 else 4)  # of scores, or of shares
