"""danseo tune: trials of a training command in one Optuna study, and the results: tables, plots, the best settings."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from statistics import mean
from typing import Any

from danseo.config.base import changed_settings
from danseo.display.escaping import to_csv
from danseo.display.plots.figures import Bars, Chart, Curve
from danseo.display.plots.image_files import save_figures
from danseo.display.progress import format_duration
from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError, WorkFailed
from danseo.files import write_atomically
from danseo.runs.lock import lock_folder
from danseo.runs.schemas import has_numbers
from danseo.sweeps.optuna_study import (
    OptunaStudy,
    Pruner,
    Sampler,
    StudySpec,
    default_storage,
    load_optuna,
    prune_reason,
    trial_number,
    trial_table,
)
from danseo.sweeps.search_space import Space, format_choice, read_space_file, sample_settings
from danseo.sweeps.tuning_targets import Target, TrialResult

RESULT_COPY = ".tune.json"
"""Suffix of the copy of result.json beside the trials, where the pages about them find it."""
_PAUSE = 0.5  # seconds between two looks at a trial without an owner


@dataclass(frozen=True)
class TuneOptions:
    """The options of a search."""

    space: Path
    trials: int = 20
    storage: str = ""
    """A database URL or a file; "" is a file beside the runs."""
    study: str = ""
    """The name of the study; "" is made from settings, space and data."""
    search_seed: int = 0
    pruner: Pruner = "median"
    startup: int = 4
    """Number of random trials before the sampler learns and the median pruner prunes."""
    heartbeat: tuple[int, int] = (10, 40)
    """Seconds between two heartbeats, and of silence after which a trial is run again."""
    sampler: Sampler = "tpe"


def tune(target: Target, options: TuneOptions, on_note: Callable[[str], None] = lambda line: None) -> OptunaStudy:
    """Run trials until the study has as many as it should, and return the study."""
    space = read_space_file(options.space, type(target.config))
    study = OptunaStudy(study_spec(target, options, space), options.trials)
    while True:
        is_clear = study.retry_dead()
        if not study.is_full:
            study.run_trial(lambda trial: _run_target(study, trial, target, space, on_note))
        elif is_clear:
            return study
        else:
            time.sleep(_PAUSE)


def _run_target(study: OptunaStudy, trial: Any, target: Target, space: Space, on_note: Callable[[str], None]) -> float:
    """Run the target with the settings of a trial, and return the value that counts."""
    settings, name = sample_settings(trial, space), f"trial {trial_number(trial)}"
    chosen = ", ".join(f"{key.rsplit('.', 1)[-1]} {format_choice(value)}" for key, value in settings.items())
    on_note(f"{name} ({study.count()} of {study.n_trials}): {chosen}")

    def report(step: int, value: float) -> None:
        trial.report(value, step)
        if reason := prune_reason(trial, step, value):
            raise load_optuna().TrialPruned(reason)

    try:
        result: TrialResult = target.run(settings, report)
    except DanseoError as error:
        trial.set_user_attr("error", str(error))
        on_note(f"{name} failed: {error}")
        raise
    except load_optuna().TrialPruned as pruned:
        on_note(f"{name} {pruned}")
        raise
    except KeyboardInterrupt:
        trial.study.enqueue_trial(trial.params)  # the next start resumes it
        raise
    trial.set_user_attr("result", {"step": result.step, "folder": result.folder})
    on_note(f"{name}: {target.metric} {result.value:.4g}{_estimate_rest(study, trial)}")
    return result.value


def _estimate_rest(study: OptunaStudy, trial: Any) -> str:
    """Return how many trials are left, and how long they take one after the other."""
    left = study.n_trials - study.count()
    ended = [each.duration.total_seconds() for each in study.trials() if each.duration]
    own = (datetime.now() - trial.datetime_start).total_seconds()
    return f"; {left} to go, ETA {format_duration(left * mean([*ended, own]))}" if left > 0 else ""


def study_spec(target: Target, options: TuneOptions, space: Space) -> StudySpec:
    """Describe the study of a target; other settings, data or spaces have another name, or are refused."""
    about = {
        "command": target.command,
        "metric": target.metric,
        "base": changed_settings(target.config),
        "space": {name: repr(entry) for name, entry in space.items()},
        **target.identity(),
    }
    fingerprint = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:8]
    name = options.study or f"{target.command}-{fingerprint}"
    storage = options.storage or default_storage(target.home, name)
    return StudySpec(
        name,
        storage,
        fingerprint,
        f"the study {name!r} is about other settings, data or another space; choose another --study",
        f"--storage {storage}",
        options.sampler,
        options.pruner,
        options.search_seed,
        options.startup,
        options.heartbeat,
    )


# Results


def write_results(study: OptunaStudy, target: Target, folder: Path) -> dict[str, Any]:
    """Write best.toml, trials.csv, result.json and the plots, and return the document of result.json."""
    with lock_folder(folder, inside=True):  # processes that share a study write one after the other
        return _write_results(study, target, folder)


def _write_results(study: OptunaStudy, target: Target, folder: Path) -> dict[str, Any]:
    best, running = find_best(study), len(study.trials("RUNNING"))
    chosen = {"trial": trial_number(best), "value": best.value, "settings": best.params}
    document: dict[str, Any] = {
        "study": study.spec.name,
        "command": target.command,
        "metric": target.metric,
        "best": {**chosen, **best.user_attrs["result"]},
        "running": running,
        # Held-back scores are computed once, when no other process may still find a better trial.
        "report": dict(report_once(study, target, best)) if not running else None,
        "importance": compute_importance(study),
        "trials": study.rows(),
        "config": str(folder / "best.toml"),
    }
    write_atomically(folder / "best.toml", target.best_config(best.params))
    columns = list(dict.fromkeys(key for row in document["trials"] for key in row))
    lines = [[row.get(key, "") for key in columns] for row in document["trials"]]
    write_atomically(folder / "trials.csv", to_csv([columns, *lines]))
    save_figures(folder / "history.png", [history_chart(document["trials"], target.metric)])
    if shares := document["importance"]:
        series = {"share": [100 * share for share in shares.values()]}
        label = "share in what distinguishes the best trials, %"
        save_figures(folder / "importance.png", [Bars(list(shares), series, label, "Importance of settings")])
    text = json.dumps(document, ensure_ascii=False, indent=2, default=str) + "\n"
    write_atomically(folder / "result.json", text)
    if Path(study.spec.name).name == study.spec.name:
        write_atomically(target.home / f"{study.spec.name}{RESULT_COPY}", text)
    return document


def find_best(study: OptunaStudy) -> Any:
    """Return the best finished trial."""
    if not study.trials("COMPLETE"):
        failed = [t.user_attrs["error"] for t in study.trials() if "error" in t.user_attrs]
        raise WorkFailed(f"no trial finished; the last one failed: {failed[-1]}" if failed else "no trial finished")
    return study.study.best_trial


def report_once(study: OptunaStudy, target: Target, trial: Any) -> Mapping[str, Any]:
    """Return the held-back scores of the best trial; they are computed once per best trial and kept in the study."""
    saved: Mapping[str, Any] | None = study.study.user_attrs.get("report")
    if saved is None or saved["trial"] != trial_number(trial):
        saved = {"trial": trial_number(trial), **target.report(trial.user_attrs["result"])}
        study.study.set_user_attr("report", saved)
    return saved


def compute_importance(study: OptunaStudy) -> dict[str, float]:
    """Return the share of each setting in what distinguishes the best trials; empty below four finished trials."""
    finished = study.trials("COMPLETE")
    if len(finished) < 4 or len({trial.value for trial in finished}) < 2:
        return {}
    importance = load_optuna().importance
    evaluator = importance.PedAnovaImportanceEvaluator()
    return dict(importance.get_param_importances(study.study, evaluator=evaluator))


def study_tables(document: Mapping[str, Any]) -> list[Table]:
    """Return the trials from best to worst, and the held-back scores of the best."""
    best, rows = document["best"], document["trials"]
    ties = [row["trial"] for row in rows if row["state"] == "complete" and row["value"] == best["value"]]
    tied = f" (of trial {best['trial']}; {len(ties)} trials have the best value)" if ties[1:] else ""
    note = f"value: {document['metric']}; of a pruned trial its last one\nbest settings{tied}: {document['config']}"
    tables = [trial_table(f"study {document['study']}", rows, list(best["settings"]), note)]
    report = document["report"]
    if report is None:
        return tables
    scores: list[tuple[object, ...]] = [
        (s["id"], s["value"], _format_interval(*(s.get("interval") or (None, None))), s.get("n"))
        for s in report["scores"]
    ]
    title = f"trial {best['trial']} on {report['on']}, which no trial was judged by"
    return [*tables, Table(title, ("metric", "score", "95 % interval", "n"), scores)]


def _format_interval(low: float | None, high: float | None) -> str | None:
    return format_interval((low, high), decimals=2 if high is not None and high > 1 else 4)  # of scores, or of shares


def history_chart(trials: Sequence[Mapping[str, Any]], metric: str) -> Chart:
    """Return the value of every trial in its order, and the best so far."""
    known = [trial for trial in trials if has_numbers(trial, "trial", "value")]
    finished, pruned = (
        [(float(trial["trial"]), float(trial["value"])) for trial in known if trial.get("state") == state]
        for state in ("complete", "pruned")
    )
    best = accumulate(finished, lambda before, point: (point[0], max(before[1], point[1])))
    curves = [
        Curve("finished", finished, style="points"),
        Curve("best so far", list(best), style="steps"),
        Curve("pruned, last value", pruned, style="points"),
    ]
    return Chart([curve for curve in curves if curve.points], "trial", "value", title=f"Trials: {metric}")
