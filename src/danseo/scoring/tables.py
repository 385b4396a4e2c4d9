"""Results of `danseo score` and `danseo compare`, as tables and as JSON."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.data.prediction_file import read_predictions
from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError
from danseo.files import to_finite
from danseo.language import Message, _, join, ngettext
from danseo.records import Prediction
from danseo.scoring.breakdown import details as detail_tables
from danseo.scoring.compare import Comparison, Difference, OnProgress, Paired, compare, count_work
from danseo.scoring.score import NAMES, Score, baseline_scores, example_clusters, score
from danseo.tasktypes.base import Task

_FEW = 20  # independent examples; with fewer, bootstrap intervals cover too little


@dataclass(frozen=True)
class ScoreResult:
    """The scores of one prediction file, with the baselines on the same examples."""

    task: Task
    gold: Path
    predictions: Path
    examples: int
    n: int
    clusters: int
    """Examples, passages or dialogues that are resampled."""
    scores: list[Score]
    baselines: dict[str, dict[str, float]]
    details: list[Table] = field(default_factory=list)
    remark: str = ""
    """A remark on answers that are odd."""

    @property
    def is_partial(self) -> bool:
        return self.n < self.examples

    def tables(self) -> list[Table]:
        rows: list[tuple[object, ...]] = [
            (
                s.id,
                s.value,
                format_interval((s.low, s.high)),
                *(self.baselines[name].get(s.id) for name in NAMES),
                s.note,
            )
            for s in self.scores
        ]
        columns = ("metric", "score", "95 % interval", *NAMES, "note")
        if not any(s.note for s in self.scores):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        partial = _("PARTIAL: {n} of {all} examples have predictions; not comparable with full scores")
        partial = partial.format(n=self.n, all=self.examples)
        few = warn_few_examples(self.clusters) if any(s.low == s.low for s in self.scores) else ""
        parts = (partial if self.is_partial else "", describe_size(self.task, self.n, self.clusters), few, self.remark)
        baselines = [join([f"{name}:", what]) for name, what in NAMES.items()]
        note = join([join(filter(None, parts), "; "), join(baselines, "; ")], "\n")
        title = _("{task} ({title}): {predictions} against {gold}").format(
            task=self.task.short, title=Message(self.task.title), predictions=self.predictions.name, gold=self.gold.name
        )
        return [Table(title, columns, rows, note), *self.details]

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.task.name,
            "gold": str(self.gold),
            "predictions": str(self.predictions),
            "examples": self.examples,
            "n": self.n,
            "partial": self.is_partial,
            "headline": self.task.headline,
            **({"remark": self.remark} if self.remark else {}),
            "scores": [s.as_dict() for s in self.scores],
            "baselines": {
                name: {id_: to_finite(value) for id_, value in values.items()}
                for name, values in self.baselines.items()
            },
            **({"details": [table.as_dict() for table in self.details]} if self.details else {}),
        }


def score_file(
    task: Task,
    examples: Sequence[Any],
    gold: Path,
    predictions: Path,
    *,
    details: bool = False,
    errors: int = 0,
    partial: bool = False,
    skip: Sequence[str] = (),
    rounds: int = 1000,
    seed: int = 0,
    tokenizer: Path | None = None,
    batch: int = 32,
    on_progress: OnProgress | None = None,
    train: Sequence[Any] = (),
) -> ScoreResult:
    """Read, check and score a prediction file; with train, details distinguish entities that it has from others."""
    answered = read_predictions(predictions, task, examples, partial=partial, skip=find_skipped_metrics(task, skip))
    chosen = select_answered(examples, answered)
    extra = _measure_tokens(task, chosen, answered, tokenizer, batch) if tokenizer else {}
    options: dict[str, Any] = {"details": details, "errors": errors, "skip": skip, "rounds": rounds, "seed": seed}
    options["train"] = train
    return score_answers(task, examples, answered, gold, predictions, extra=extra, on_progress=on_progress, **options)


def score_answers(
    task: Task,
    examples: Sequence[Any],
    answered: Sequence[Prediction],
    gold: Path,
    predictions: Path,
    *,
    details: bool = False,
    errors: int = 0,
    skip: Sequence[str] = (),
    rounds: int = 1000,
    seed: int = 0,
    extra: dict[str, Any] | None = None,
    note: str = "",
    on_progress: OnProgress | None = None,
    train: Sequence[Any] = (),
) -> ScoreResult:
    """Score checked predictions of all examples, or of some; the paths are only shown."""
    skipped, chosen = find_skipped_metrics(task, skip), select_answered(examples, answered)
    more: dict[str, Any] = {"rounds": rounds, "seed": seed, "skip": skipped, "extra": extra or {}}
    return ScoreResult(
        task,
        gold,
        predictions,
        examples=len(examples),
        n=len(chosen),
        clusters=len(set(example_clusters(task, chosen))),
        scores=score(task, chosen, answered, on_rounds=count_work(on_progress, rounds), **more),
        baselines=baseline_scores(task, chosen, skipped, seed),
        details=detail_tables(task, chosen, answered, whole=details, errors=errors, train=train),
        remark="; ".join(filter(None, (task.remark(answered), note))),
    )


def select_answered(examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[Any]:
    """Return the examples that have a prediction."""
    guids = {prediction.guid for prediction in predictions}
    return [example for example in examples if example.guid in guids]


def find_skipped_metrics(task: Task, names: Sequence[str]) -> list[str]:
    """Return the ids of metrics given by id, or by name such as auprc."""
    skipped: list[str] = []
    for name in names:
        ids = [id_ for id_, metric in task.metrics.items() if name in (id_, metric.name)]
        if not ids:
            raise DanseoError(f"--skip {name}: {task.name} has no such metric; it has {', '.join(task.metrics)}")
        skipped += ids
    if len(set(skipped)) == len(task.metrics):
        raise DanseoError("--skip leaves no metric; keep at least one")
    return skipped


def find_uncompared_metrics(
    task: Task, skip: Sequence[str], absent: Sequence[str] = (), *, headline_only: bool
) -> list[str]:
    """Return the ids that are not compared: skipped, absent, and all but the first if only the headline is wanted."""
    skipped = [*find_skipped_metrics(task, skip), *absent]
    kept = [id_ for id_ in task.metrics if id_ not in skipped]
    return [*skipped, *kept[1:]] if headline_only else skipped


def warn_few_examples(clusters: int) -> str:
    """Return a warning if bootstrap intervals are not reliable."""
    warning = _("few independent examples ({n}): bootstrap intervals are rather too short").format(n=clusters)
    return warning if clusters < _FEW else ""


def note_more_metrics(task: Task, shown: Collection[str]) -> str:
    """Return a note on the metrics that are not shown, if only one is."""
    more = len(task.metrics) - 1
    note = ngettext("--all shows {n} more metric", "--all shows {n} more metrics", more)
    return note if len(shown) == 1 < len(task.metrics) else ""


def _measure_tokens(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], tokenizer: Path, batch: int
) -> dict[str, Any]:
    from danseo.scoring.breakdown import load_tokenizer, measure_tokens
    from danseo.tasks.klue.ner import TASK

    if task.name != TASK.name:
        raise DanseoError(f"--tokenizer is for {TASK.name}; {task.name} has no scores on tokens")
    return dict(measure_tokens(examples, predictions, load_tokenizer(tokenizer), max(batch, 1)))


FAILED = "failed %"
"""Column: percent of dev examples without a valid answer."""


@dataclass(frozen=True)
class ComparisonResult:
    """The comparison of several prediction files."""

    task: Task
    gold: Path
    examples: int
    files: dict[str, Path]
    comparison: Comparison
    on: str = ""
    """The split of dev on which runs are compared."""
    note: str = ""
    failed: dict[str, float] = field(default_factory=dict)
    """System -> percent of failed examples, if its family reports them."""

    @property
    def differences(self) -> list[Difference]:
        """Every pair in every metric."""
        return self.comparison.differences

    def tables(self) -> list[Table]:
        return [self._systems(), *map(self._differences, self.comparison.values)]

    def _systems(self) -> Table:
        rows: list[tuple[object, ...]] = []
        for id_, values in self.comparison.values.items():
            groups = self.comparison.groups(id_)
            rows += [(id_, name, values[name], self.failed.get(name), letters) for name, letters in groups.items()]
        n, clusters = self.comparison.n, self.comparison.clusters
        partial = _("PARTIAL: {n} of {all} examples are answered by every file").format(n=n, all=self.examples)
        parts = [describe_size(self.task, n, clusters), partial if n < self.examples else ""]
        parts += [_("report split of dev") if self.on == "report" else "", self.note, warn_few_examples(clusters)]
        note = join(filter(None, [*parts, note_more_metrics(self.task, self.comparison.values)]), "; ")
        return make_systems_table(self.task, ("metric", "system", "score", FAILED, "group"), rows, note)

    def _differences(self, id_: str) -> Table:
        rows: list[tuple[object, ...]] = [
            (*make_difference_cells(d), format_p(d.mcnemar), d.detectable, d.verdict)
            for d in self.comparison.differences
            if d.metric == id_
        ]
        columns = (*DIFFERENCE, "McNemar", "detectable", "differs")
        note = _("detectable: the smallest true difference that is significant in four of five sets of this size")
        is_first = id_ == next(iter(self.comparison.values))
        return make_differences_table(id_, columns, rows, note if is_first else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.task.name,
            "gold": str(self.gold),
            "files": {name: str(path) for name, path in self.files.items()},
            "examples": self.examples,
            "n": self.comparison.n,
            "clusters": self.comparison.clusters,
            "partial": self.comparison.n < self.examples,
            "headline": self.task.headline,
            "scores": {
                id_: {name: to_finite(value) for name, value in values.items()}
                for id_, values in self.comparison.values.items()
            },
            "groups": {id_: self.comparison.groups(id_) for id_ in self.comparison.values},
            **({"on": self.on, "note": self.note} if self.on else {}),
            **({"failed_percent": self.failed} if self.failed else {}),
            "differences": [difference.as_dict() for difference in self.comparison.differences],
        }


DIFFERENCE = ("systems", "difference", "95 % interval", "p", "p (Holm)")


def make_difference_cells(difference: Paired) -> tuple[object, ...]:
    """Return the first cells of a row of differences: systems, difference, interval, p values."""
    interval = format_interval((difference.low, difference.high), signed=True)
    systems = f"{difference.b} − {difference.a}"
    return systems, difference.value, interval, format_p(difference.p), format_p(difference.p_holm)


def make_differences_table(id_: str, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]], note: str) -> Table:
    """Return a table of pairs of systems without empty columns; one test needs no correction."""
    empty = [all(row[position] is None for row in rows) for position in range(len(columns))]
    empty[columns.index("p (Holm)")] |= len(rows) == 1
    kept = [position for position, is_empty in enumerate(empty) if not is_empty]
    return Table(id_, tuple(columns[k] for k in kept), [tuple(row[k] for k in kept) for row in rows], note)


def describe_size(task: Task, n: int, clusters: int) -> str:
    """Return the number of examples, and of the clusters that are resampled if these are fewer."""
    if clusters == n:
        return f"n = {n:,}"
    unit = task.type.resampling_unit
    text = _("n = {n:,} in {clusters:,} {units}; the bootstrap draws whole {all_units}")
    all_units = Message(f"{unit}s")
    return text.format(n=n, clusters=clusters, units=all_units if clusters > 1 else Message(unit), all_units=all_units)


def make_systems_table(task: Task, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]], note: str) -> Table:
    """Return systems with their letters; the only metric is in the title, failures are shown if there are any."""
    metrics = {row[0] for row in rows}
    has_one = len(metrics) == 1
    name = f"{task.short}, {metrics.pop()}" if has_one else task.short
    title = _("{name}: best first; systems with the same letter do not differ significantly (α = 5 %)").format(
        name=name
    )
    position = columns.index(FAILED)
    is_empty = all(row[position] is None for row in rows)
    kept = [k for k in range(has_one, len(columns)) if k != position or not is_empty]
    return Table(title, tuple(columns[k] for k in kept), [tuple(row[k] for k in kept) for row in rows], note)


def format_p(value: float | None) -> str | None:
    """Return a p value as text."""
    if value is None or value != value:
        return None
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def compare_files(
    task: Task,
    examples: Sequence[Any],
    gold: Path,
    predictions: Sequence[Path],
    *,
    partial: bool = False,
    skip: Sequence[str] = (),
    headline_only: bool = False,
    rounds: int = 2000,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> ComparisonResult:
    """Read, check and compare prediction files on the same examples."""
    files = name_systems(predictions)
    skipped = find_uncompared_metrics(task, skip, headline_only=headline_only)
    systems = {n: read_predictions(p, task, examples, partial=partial, skip=skipped) for n, p in files.items()}
    return compare_answers(
        task, examples, systems, gold, files, skip=skipped, rounds=rounds, seed=seed, on_progress=on_progress
    )


def compare_answers(
    task: Task,
    examples: Sequence[Any],
    systems: Mapping[str, Sequence[Prediction]],
    gold: Path,
    files: dict[str, Path],
    *,
    skip: Sequence[str] = (),
    rounds: int = 2000,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> ComparisonResult:
    """Compare checked predictions on the examples that all of them answer; skip has ids."""
    common = set.intersection(*({p.guid for p in answered} for answered in systems.values()))
    if not common:
        raise DanseoError("the prediction files have no example in common; compare answers to the same examples")
    shared = {name: [p for p in answered if p.guid in common] for name, answered in systems.items()}
    chosen = [example for example in examples if example.guid in common]
    comparison = compare(task, chosen, shared, rounds=rounds, seed=seed, skip=skip, on_progress=on_progress)
    return ComparisonResult(task, gold, len(examples), files, comparison)


def name_systems(paths: Sequence[Path]) -> dict[str, Path]:
    """Return a short name per file: its stem, with as much of its path as makes it unique."""
    if len(paths) < 2:
        raise DanseoError(_("name at least two prediction files to compare"))
    if len({path.resolve() for path in paths}) < len(paths):
        raise DanseoError(_("the same prediction file is named twice; compare different ones"))
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join((*path.parts[-depth:-1], path.stem)) for path in paths]
        if len(set(names)) == len(paths):
            return dict(zip(names, paths, strict=True))
    return {str(path): path for path in paths}
