"""Evaluate runs on perturbed copies of dev, paired with the original examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.data.augmentation import perturb_example
from danseo.data.dev_split import split_indices
from danseo.data.find import data_root, load, sample_examples, split_sha256
from danseo.errors import DanseoError
from danseo.files import to_finite
from danseo.inference.evaluation import open_run, read_data_hashes
from danseo.language import _
from danseo.metrics.statistic import Statistic
from danseo.models.base import LoadOptions, Model
from danseo.models.registry import load_model
from danseo.records import Prediction
from danseo.runs.store import Run
from danseo.runs.stress_file import BrokenExample, PerturbedScore, StoredLine, StressResult, write_stress
from danseo.scoring.compare import OnProgress, compare
from danseo.scoring.score import measure
from danseo.tasktypes.base import Predictions, Task
from danseo.text.perturbations import PERTURBATIONS

_MAX_EXAMPLES = 5  # that broke, per perturbation
_CLEAN = "original"


@dataclass(frozen=True)
class StressSet:
    """Examples and their perturbed copies."""

    task: Task
    examples: Sequence[Any]
    copies: dict[str, list[Any]]
    """Perturbation -> the examples in their order; some are unchanged."""
    sha256: str
    limit: int
    skipped: list[str]


def parse_perturbations(text: str | None) -> list[str]:
    """Return the named perturbations; all if none is named."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()] or list(PERTURBATIONS)
    if unknown := [name for name in names if name not in PERTURBATIONS]:
        text = _("unknown perturbation: {name}; choose from {known}")
        raise DanseoError(text.format(name=unknown[0], known=", ".join(PERTURBATIONS)))
    return list(dict.fromkeys(names))


def stress_runs(
    paths: Sequence[Path],
    names: Sequence[str],
    data_dir: str | None,
    *,
    limit: int = 0,
    loading: LoadOptions | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> dict[str, StressResult]:
    """Return run -> its scores on perturbed copies of the report split of dev; store each in its run."""
    runs, loading, results = _open_runs(paths), loading or LoadOptions(), dict[str, StressResult]()
    data = make_stress_set(next(iter(runs.values())).task, names, data_dir, limit)
    for k, (name, run) in enumerate(runs.items()):
        if data.sha256 != read_data_hashes(run)[1]:
            loading.on_note(_("note: {run} was evaluated on another dev file").format(run=name))
        trust, on_note = loading.trust_remote_code, loading.on_note
        model = load_model(run, loading.device, loading.precision, trust_remote_code=trust, on_note=on_note)

        def report(done: float, total: float, first: int = k) -> None:
            on_progress(first * total + done, len(runs) * total)

        results[name] = write_stress(run, _stress_model(model, data, report))
    return results


def _open_runs(paths: Sequence[Path]) -> dict[str, Run]:
    """Return name -> finished run, all of one task."""
    has_names = len({path.name for path in paths}) == len(paths)
    runs = {path.name if has_names else str(path): open_run(path) for path in paths}
    if len({path.resolve() for path in paths}) < len(paths):
        raise DanseoError(_("the same run is named twice; compare different ones"))
    if unfinished := [name for name, run in runs.items() if not run.is_finished]:
        raise DanseoError(_("{run} is not finished; run its command again").format(run=unfinished[0]))
    if len({run.task.name for run in runs.values()}) > 1:
        raise DanseoError(_("the runs are of different tasks; name runs of one task"))
    return runs


def make_stress_set(task: Task, names: Sequence[str], data_dir: str | None, limit: int = 0) -> StressSet:
    """Return the report split of dev, or a sample of it, with perturbed copies."""
    kept, root = [name for name in names if name in task.type.perturbations], data_root(data_dir)
    if not kept:
        text = _("{task}: gold is not exact after {names}; name other perturbations or another run")
        raise DanseoError(text.format(task=task.name, names=", ".join(names)))
    dev = load(task, "dev", root)
    examples = sample_examples([dev[k] for k in split_indices(task, dev, "report")], limit, 0)
    if not examples:
        raise DanseoError(f"{task.name}: no dev example is in the report split; name a larger data set")
    copies = {name: [perturb_example(task, each, name) for each in examples] for name in kept}
    skipped = [name for name in names if name not in kept]
    return StressSet(task, examples, copies, split_sha256(task, "dev", root), limit, skipped)


def _stress_model(model: Model, data: StressSet, on_progress: OnProgress) -> StressResult:
    """Predict the examples and their changed copies, and score both."""
    total = len(data.copies) + 1
    on_progress(0, total)
    clean, scores = list(model.predict(data.examples)), dict[str, PerturbedScore]()
    for done, (name, copies) in enumerate(data.copies.items(), 1):
        on_progress(done, total)
        places = [k for k, (one, other) in enumerate(zip(data.examples, copies, strict=True)) if one != other]
        predicted = model.predict([copies[k] for k in places]) if places else []
        perturbed = dict(enumerate(clean)) | dict(zip(places, predicted, strict=True))
        scores[name] = _compare_copies(data, name, clean, [*perturbed.values()], places)
    return StressResult(
        task=data.task.name,
        metric=data.task.headline,
        data_sha256=data.sha256,
        n=len(data.examples),
        limit=data.limit,
        clean=to_finite(_measure(data.task, data.examples, clean).value()),
        perturbations=scores,
        skipped=data.skipped,
    )


def _compare_copies(
    data: StressSet, name: str, clean: Predictions, perturbed: Predictions, places: Sequence[int]
) -> PerturbedScore:
    """Return the score on copies, its paired difference from the original, and examples that broke."""
    task, copies = data.task, data.copies[name]
    skip = [id_ for id_ in task.metrics if id_ != task.headline]
    compared = compare(task, data.examples, {_CLEAN: clean, name: perturbed}, skip=skip, copies={name: copies})
    (found,) = compared.differences
    credit = task.type.credit
    gains = {k: credit(copies[k], perturbed[k].answer) - credit(data.examples[k], clean[k].answer) for k in places}
    broken = [k for k, gain in gains.items() if gain < 0]
    chosen = broken[:: max(1, len(broken) // _MAX_EXAMPLES)][:_MAX_EXAMPLES]
    return PerturbedScore(
        changed=len(places),
        score=to_finite(compared.values[task.headline][name]),
        difference=to_finite(found.value),
        low=to_finite(found.low),
        high=to_finite(found.high),
        p=to_finite(found.p),
        broken=len(broken),
        repaired=sum(gain > 0 for gain in gains.values()),
        examples=[
            BrokenExample(
                guid=data.examples[k].guid,
                before=_render(task, data.examples[k], _CLEAN, clean[k]),
                after=_render(task, copies[k], name, perturbed[k]),
            )
            for k in chosen
        ],
    )


def _measure(task: Task, examples: Sequence[Any], predictions: Predictions) -> Statistic:
    return measure(task, examples, predictions, [id_ for id_ in task.metrics if id_ != task.headline])[task.headline]


def _render(task: Task, example: Any, system: str, prediction: Prediction) -> list[StoredLine]:
    return [StoredLine.from_line(line) for line in task.type.render(task, example, {system: prediction}).lines]
