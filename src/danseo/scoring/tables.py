"""From files to results: what `danseo score` and `danseo compare` print, as tables and as JSON."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.display.table import Table, shown_interval
from danseo.errors import DanseoError
from danseo.predictions.file import read_predictions
from danseo.records import Prediction
from danseo.scoring.baselines import NAMES
from danseo.scoring.breakdown import details as detail_tables
from danseo.scoring.compare import Comparison, Difference, OnProgress, Work, compare
from danseo.scoring.resampling import as_json_number
from danseo.scoring.score import Score, baseline_scores, example_clusters, score
from danseo.tasks.task import Task

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
    """What is odd about the answers."""

    @property
    def is_partial(self) -> bool:
        return self.n < self.examples

    def tables(self) -> list[Table]:
        rows: list[tuple[object, ...]] = [
            (s.id, s.value, shown_interval(s.low, s.high), *self._floors(s.id), s.note) for s in self.scores
        ]
        columns = ("metric", "score", "95 % interval", *NAMES, "note")
        if not any(s.note for s in self.scores):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        partial = f"PARTIAL: {self.n} of {self.examples} examples have predictions; not comparable with whole scores"
        few = few_examples(self.clusters) if any(s.low == s.low for s in self.scores) else ""
        parts = (partial if self.is_partial else "", size(self.task, self.n, self.clusters), few, self.remark)
        floors = (f"{name}: {what}" for name, what in NAMES.items())
        note = "\n".join(("; ".join(filter(None, parts)), "; ".join(floors)))
        title = f"{self.task.short} ({self.task.title}): {self.predictions.name} against {self.gold.name}"
        return [Table(title, columns, rows, note), *self.details]

    def _floors(self, id_: str) -> list[float | None]:
        return [self.baselines[name].get(id_) for name in NAMES]

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
                name: {id_: as_json_number(value) for id_, value in values.items()}
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
    """Read, check and score a prediction file; details tell what the training examples have from what they have not."""
    answered = read_predictions(predictions, task, examples, partial=partial, skip=skipped_metrics(task, skip))
    chosen = only_answered(examples, answered)
    extra = _piece_scores(task, chosen, answered, tokenizer, batch) if tokenizer else {}
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
    """Score checked predictions of all examples, or of some; the paths say what they are called."""
    skipped, chosen = skipped_metrics(task, skip), only_answered(examples, answered)
    work = Work(on_progress, rounds)
    more: dict[str, Any] = {"rounds": rounds, "seed": seed, "skip": skipped, "extra": extra or {}}
    return ScoreResult(
        task,
        gold,
        predictions,
        examples=len(examples),
        n=len(chosen),
        clusters=len(set(example_clusters(task, chosen))),
        scores=score(task, chosen, answered, on_rounds=work.of(1), **more),
        baselines=baseline_scores(task, chosen, skipped, seed),
        details=detail_tables(task, chosen, answered, whole=details, errors=errors, train=train),
        remark="; ".join(filter(None, (task.remark(answered), note))),
    )


def only_answered(examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[Any]:
    """The examples that have a prediction."""
    guids = {prediction.guid for prediction in predictions}
    return [example for example in examples if example.guid in guids]


def skipped_metrics(task: Task, names: Sequence[str]) -> list[str]:
    """The ids that a metric's id, or its bare name such as auprc, stands for."""
    skipped: list[str] = []
    for name in names:
        ids = [id_ for id_ in task.metrics if name in (id_, id_.split("/")[1].split("@")[0])]
        if not ids:
            raise DanseoError(f"--skip {name}: {task.name} has no such metric; it has {', '.join(task.metrics)}")
        skipped += ids
    if len(set(skipped)) == len(task.metrics):
        raise DanseoError("--skip leaves no metric; keep at least one")
    return skipped


def left_out(task: Task, skip: Sequence[str], absent: Sequence[str] = (), *, headline_only: bool) -> list[str]:
    """The ids not to compare: those to skip, those that cannot be had, and all after the first if that is enough."""
    skipped = [*skipped_metrics(task, skip), *absent]
    kept = [id_ for id_ in task.metrics if id_ not in skipped]
    return [*skipped, *kept[1:]] if headline_only else skipped


def few_examples(clusters: int) -> str:
    """A warning where bootstrap intervals are not to be relied on."""
    return f"few independent examples ({clusters}): bootstrap intervals are rather too short" if clusters < _FEW else ""


def more_metrics(task: Task, shown: Collection[str]) -> str:
    """A word on the metrics that are not shown, for who sees only one."""
    more = len(task.metrics) - 1
    return f"--all shows {more} more metric{'s' * (more > 1)}" if len(shown) == 1 < len(task.metrics) else ""


def _piece_scores(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], tokenizer: Path, batch: int
) -> dict[str, Any]:
    from danseo.scoring.subword import METRICS, load_tokenizer, subword_statistics

    if not any(id_.startswith(f"{task.name}/") for id_ in METRICS):
        raise DanseoError(f"--tokenizer is for ner; {task.name} has no scores on model pieces")

    return dict(subword_statistics(examples, predictions, load_tokenizer(tokenizer), max(batch, 1)))


FAILED = "failed %"
"""The column of language models' replies that could not be read, of all of dev."""


@dataclass(frozen=True)
class ComparisonResult:
    """The comparison of several prediction files."""

    task: Task
    gold: Path
    examples: int
    files: dict[str, Path]
    comparison: Comparison
    on: str = ""
    """The half of dev, where runs are compared."""
    note: str = ""
    failed: dict[str, float] = field(default_factory=dict)
    """System -> percent of its replies that failed, where it is a language model that answers in words."""

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
        note = size(self.task, n, clusters)
        if n < self.examples:
            note += f"; PARTIAL: {n} of {self.examples} examples are answered by every file"
        half = f"{self.on} half of dev" if self.on == "report" else ""
        more = more_metrics(self.task, self.comparison.values)
        note += "".join(f"; {extra}" for extra in (half, self.note, few_examples(clusters), more) if extra)
        return systems_table(self.task, ("metric", "system", "score", FAILED, "group"), rows, note)

    def _differences(self, id_: str) -> Table:
        rows: list[tuple[object, ...]] = [
            (
                *difference_cells(d),
                shown_p(d.mcnemar),
                d.detectable,
                d.verdict,
            )
            for d in self.comparison.differences
            if d.metric == id_
        ]
        columns = (*DIFFERENCE, "McNemar", "detectable", "differs")
        note = "detectable: the smallest true difference that examples of this number show in four of five cases"
        is_first = id_ == next(iter(self.comparison.values))
        return differences_table(id_, columns, rows, note if is_first else "")

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
                id_: {name: as_json_number(value) for name, value in values.items()}
                for id_, values in self.comparison.values.items()
            },
            "groups": {id_: self.comparison.groups(id_) for id_ in self.comparison.values},
            **({"on": self.on, "note": self.note} if self.on else {}),
            **({"failed_percent": self.failed} if self.failed else {}),
            "differences": [difference.as_dict() for difference in self.comparison.differences],
        }


DIFFERENCE = ("systems", "difference", "95 % interval", "p", "p (Holm)")


def difference_cells(found: Any) -> tuple[object, ...]:
    """Which systems, how far they are apart, and how sure that is: what all tables of differences begin with."""
    interval = shown_interval(found.low, found.high, signed=True)
    return f"{found.b} − {found.a}", found.value, interval, shown_p(found.p), shown_p(found.p_holm)


def differences_table(id_: str, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]], note: str) -> Table:
    """Pairs of systems, without columns that say nothing; one test needs no correction."""
    silent = [all(row[position] is None for row in rows) for position in range(len(columns))]
    silent[columns.index("p (Holm)")] |= len(rows) == 1
    kept = [position for position, is_silent in enumerate(silent) if not is_silent]
    return Table(id_, tuple(columns[k] for k in kept), [tuple(row[k] for k in kept) for row in rows], note)


def size(task: Task, n: int, clusters: int) -> str:
    """How many examples there are, and what is resampled if that is not the same."""
    unit = {"answer": "passage", "track": "dialogue"}.get(task.kind, "cluster") + "s" * (clusters > 1)
    return f"n = {n:,}" + (f" in {clusters:,} {unit}, resampled whole" if clusters < n else "")


def systems_table(task: Task, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]], note: str) -> Table:
    """Systems with their letters; a metric that is the only one stands in the title, and failures where replies may."""
    metrics = {row[0] for row in rows}
    cut = len(metrics) == 1
    name = f"{task.short}, {metrics.pop()}" if cut else task.short
    title = f"{name}: best first; systems that share a letter are not told apart at 5 %"
    position = columns.index(FAILED)
    is_silent = all(row[position] is None for row in rows)
    kept = [k for k in range(cut, len(columns)) if k != position or not is_silent]
    return Table(title, tuple(columns[k] for k in kept), [tuple(row[k] for k in kept) for row in rows], note)


def shown_p(value: float | None) -> str | None:
    """A p value as people read it."""
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
    files = system_names(predictions)
    skipped = left_out(task, skip, headline_only=headline_only)
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


def system_names(paths: Sequence[Path]) -> dict[str, Path]:
    """A short name per file: its stem, or as much of its path as it takes to tell the files apart."""
    if len(paths) < 2:
        raise DanseoError("name at least two prediction files to compare")
    if len({path.resolve() for path in paths}) < len(paths):
        raise DanseoError("the same prediction file is named twice; compare different ones")
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join((*path.parts[-depth:-1], path.stem)) for path in paths]
        if len(set(names)) == len(paths):
            return dict(zip(names, paths, strict=True))
    return {str(path): path for path in paths}
