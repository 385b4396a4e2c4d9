"""Evaluate runs on several data sets: one table of runs × data sets, with label maps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from danseo.data.dev_split import split_indices
from danseo.data.find import data_root, load, require_file, sample_examples, split_sha256
from danseo.data.input_reader import make_example
from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError, DataError
from danseo.files import content_sha256
from danseo.inference.evaluation import list_undefined_metrics, open_run, read_data_hashes, read_saved
from danseo.language import _, join
from danseo.models.base import LoadOptions, Model
from danseo.models.encoder.onnx_model import SETTINGS, is_exported, load_exported
from danseo.models.registry import load_model
from danseo.records import Prediction
from danseo.runs.store import Run
from danseo.scoring.score import Score, score
from danseo.tasks import get_task
from danseo.tasktypes.base import Task

Pairs = Sequence[tuple[str, str]]
"""Pairs of a gold label and a predicted label; "" means no counterpart."""
_OWN, _TRAIN = "†", "‡"


@dataclass(frozen=True)
class DataSet:
    """A data set with gold answers."""

    name: str
    task: Task
    gold: Path
    split: str
    examples: Sequence[Any]
    sha256: str
    scored: frozenset[str]
    """The guids of the examples that are scored."""

    @property
    def heading(self) -> str:
        return f"{self.name}, {self.split}: {self.task.headline} (n = {len(self.scored):,})"


@dataclass(frozen=True)
class LabelMap:
    """What gold labels and predicted labels are called when they are compared; connected labels are one label."""

    gold: dict[str, str] = field(default_factory=dict)
    predicted: dict[str, str] = field(default_factory=dict)
    pairs: Pairs = ()

    @property
    def is_identity(self) -> bool:
        return all(name == new for names in (self.gold, self.predicted) for name, new in names.items())


@dataclass(frozen=True)
class SetScores:
    """The scores of a run on a data set."""

    run: str
    data: DataSet
    scores: list[Score]
    mark: str
    label_map: LabelMap

    @property
    def headline(self) -> Score:
        return next(each for each in self.scores if each.id == self.data.task.headline)

    def as_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "data_set": self.data.name,
            "gold": str(self.data.gold),
            "split": self.data.split,
            "trained_on": {_OWN: "this data set", _TRAIN: "these examples"}.get(self.mark, "other data"),
            "headline": self.data.task.headline,
            "label_map": [list(pair) for pair in self.label_map.pairs],
            "scores": [each.as_dict() for each in self.scores],
        }


@dataclass(frozen=True)
class CrossResult:
    """The scores of runs on data sets."""

    runs: dict[str, Path]
    sets: Sequence[DataSet]
    cells: list[SetScores]
    notes: Sequence[str] = ()

    def tables(self) -> list[Table]:
        """Return one row per run and one column per data set."""
        rows = [(run, *(_show_score(cell) for cell in self.cells if cell.run == run)) for run in self.runs]
        columns = ("run", *(data.heading for data in self.sets))
        return [Table(_("runs × data sets: score (95 % interval)"), columns, rows, self._note(), keys=1)]

    def list_table(self) -> Table:
        """Return one row per run and data set, for programs."""
        columns = ("run", "data set", "split", "metric", "score", "low", "high", "n", "trained on")
        rows = []
        for cell in self.cells:
            best, trained = cell.headline, cell.as_dict()["trained_on"]
            numbers = (best.value, best.low, best.high, best.n)
            rows.append((cell.run, cell.data.name, cell.data.split, best.id, *numbers, trained))
        return Table("runs × data sets", columns, rows)

    def _note(self) -> str:
        marks = {cell.mark for cell in self.cells}
        parts = [
            _("†: trained on the train split of this data set") if _OWN in marks else "",
            _("‡: TRAINED ON THESE EXAMPLES") if _TRAIN in marks else "",
            *self.notes,
        ]
        for cell in self.cells:
            if not cell.label_map.is_identity:
                pairs = ", ".join(f"{gold}={name}" for gold, name in cell.label_map.pairs if gold != name)
                parts.append(_("{data}, gold=predicted: {pairs}").format(data=cell.data.name, pairs=pairs))
        return join(dict.fromkeys(filter(None, parts)), "\n")

    def as_dict(self) -> dict[str, Any]:
        return {
            "runs": {name: str(path) for name, path in self.runs.items()},
            "notes": list(self.notes),
            "results": [cell.as_dict() for cell in self.cells],
        }


def _show_score(cell: SetScores) -> str:
    best = cell.headline
    interval = format_interval((best.low, best.high))
    return f"{best.value:.2f}" + (f" ({interval})" if interval else "") + (f" {cell.mark}" if cell.mark else "")


def evaluate_on(
    paths: Sequence[Path],
    on: str,
    data_dir: str | None,
    *,
    split: str = "dev",
    label_pairs: Sequence[str] = (),
    limit: int = 0,
    loading: LoadOptions | None = None,
    on_note: Callable[[str], None] = lambda line: None,
) -> CrossResult:
    """Score runs on data sets, all on the same examples; the dev set of a run is scored on its report split."""
    runs = {path: Run(path / SETTINGS) if is_exported(path) else open_run(path) for path in paths}
    if len({path.resolve() for path in paths}) < len(paths):
        raise DanseoError(_("the same run is named twice; compare different ones"))
    hashes = {path: read_data_hashes(run) for path, run in runs.items()}
    dev_hashes = {dev for _train, dev in hashes.values() if dev}
    sets = [_open_data_set(each.strip(), split, data_dir, dev_hashes, limit) for each in on.split(",")]
    given = [_parse_pair(each) for each in label_pairs]
    for run in runs.values():
        for data in sets:
            _check_type(run.task, data)
    maps = {(path, k): map_labels(run.task, data, given) for path, run in runs.items() for k, data in enumerate(sets)}
    if unused := [pair for pair in given if not any(pair in each.pairs for each in maps.values())]:
        raise DanseoError(f"--map {'='.join(unused[0])}: no data set and run have these labels; correct the names")
    names = {path: path.name if [p.name for p in paths].count(path.name) == 1 else str(path) for path in paths}
    cells = []
    for path, run in runs.items():
        model: Model | None = None
        for k, data in enumerate(sets):
            predictions = None
            if data.task.name == run.task.name and not is_exported(path) and not (loading and loading.precision):
                predictions = read_saved(run, data.sha256, data.examples)
            if predictions is None:
                on_note(f"{names[path]}: predicting {len(data.scored):,} examples of {data.name}")
                model = model or _open_model(path, run, loading or LoadOptions())
                predictions = _predict(model, run.task, [e for e in data.examples if e.guid in data.scored])
            mark = _find_mark(run, data, hashes[path])
            cells.append(SetScores(names[path], data, _score(data, predictions, maps[path, k]), mark, maps[path, k]))
    peeked = [
        names[path]
        for path, run in runs.items()
        if run.config.train.select_on == "dev" and any(data.sha256 == hashes[path][1] for data in sets)
    ]
    notes = [_("SELECTED ON THE REPORTED SET: {runs}").format(runs=", ".join(peeked))] if peeked else []
    return CrossResult({names[path]: path for path in paths}, sets, cells, notes)


def _open_data_set(text: str, split: str, data_dir: str | None, dev_hashes: set[str], limit: int) -> DataSet:
    """Read a data set: TASK, TASK=FOLDER or TASK=FILE."""
    name, _equals, place = text.partition("=")
    task = get_task(name)
    if place and Path(place).is_file():
        gold, examples, sha256, split = (
            Path(place),
            task.read(Path(place)),
            content_sha256(Path(place)),
            Path(place).name,
        )
    else:
        root = data_root(place or data_dir)
        gold, examples, sha256 = (
            require_file(task, split, root),
            load(task, split, root),
            split_sha256(task, split, root),
        )
    positions = list(range(len(examples)))
    if sha256 in dev_hashes:
        positions, split = split_indices(task, examples, "report"), _("report split of dev")
    if not positions:
        raise DanseoError(f"{task.name}: no dev example is in the report split; name a larger data set")
    scored = sample_examples([examples[k] for k in positions], limit, 0)
    return DataSet(task.name, task, gold, split, examples, sha256, frozenset(each.guid for each in scored))


def _parse_pair(text: str) -> tuple[str, str]:
    gold, equals, predicted = text.partition("=")
    if not equals or not (gold or predicted):
        raise DanseoError(f"--map {text}: should be GOLD=PREDICTED, such as not_entailment=neutral")
    return gold.strip(), predicted.strip()


def _check_type(task: Task, data: DataSet) -> None:
    """Refuse a data set that examples of the run's task are not like."""
    if data.task.type.name != task.type.name:
        raise DanseoError(
            _("{data} is of type {one}, but the run was trained for {other}; name data sets of one task type").format(
                data=data.name, one=data.task.type.name, other=task.type.name
            )
        )
    if data.task.is_pair != task.is_pair:
        raise DanseoError(
            _(
                "{data} and the run differ: one has pairs of texts, the other single texts; name another data set"
            ).format(data=data.name)
        )


def map_labels(task: Task, data: DataSet, given: Pairs) -> LabelMap:
    """Map equal names, then the pairs of the task file and of --map; refuse labels without a counterpart."""
    type_, described = task.type, data.task.custom.label_map if data.task.custom else ()
    gold, predicted = type_.list_label_names(data.task), type_.list_label_names(task)
    occurring = {type_.show_label(name) for each in data.examples for name in type_.find_labels(each.gold)}
    if not occurring:
        return LabelMap()
    known = [("", *gold), ("", *predicted)]
    pairs = [pair for pair in (*given, *described) if pair[0] in known[0] and pair[1] in known[1]]
    stated = [{pair[side] for pair in pairs} for side in (0, 1)]
    pairs += [(name, name) for name in gold if name in predicted and name not in stated[0] | stated[1]]
    missing = [
        *(name for name in gold if name in occurring and not any(name == pair[0] for pair in pairs)),
        *(name for name in predicted if not any(name == pair[1] for pair in pairs)),
    ]
    if missing:
        raise DataError(
            _(
                "{data}: no counterpart for {missing}; gold labels: {gold}; labels of the run: {predicted}; "
                "map them with --map GOLD=PREDICTED or [label_map]"
            ).format(
                data=data.name,
                missing=", ".join(dict.fromkeys(missing)),
                gold=", ".join(gold),
                predicted=", ".join(predicted),
            )
        )
    merged, owners = {name: name for name in gold}, dict[str, str]()
    for name, label in ((name, label) for name, label in pairs if name and label):
        old, new = merged[name], merged[owners.setdefault(label, name)]
        merged = {each: new if current == old else current for each, current in merged.items()}
    return LabelMap(merged, {label: merged[name] for label, name in owners.items()}, pairs)


def _open_model(path: Path, run: Run, loading: LoadOptions) -> Model:
    if is_exported(path):
        return load_exported(path, loading)[0]
    trust, on_note = loading.trust_remote_code, loading.on_note
    return load_model(run, loading.device, loading.precision, trust_remote_code=trust, on_note=on_note)


def _predict(model: Model, task: Task, examples: Sequence[Any]) -> list[Prediction]:
    ready = [make_example(each, task, k, with_pos=model.reads_pos) for k, each in enumerate(examples, 1)]
    return list(model.predict(ready))


def _score(data: DataSet, predictions: Sequence[Prediction], label_map: LabelMap) -> list[Score]:
    """Score predictions under the label map; a changed label has no probability."""
    examples = [each for each in data.examples if each.guid in data.scored]
    answered = [each for each in predictions if each.guid in data.scored]
    if label_map.pairs and not label_map.is_identity:
        rename = data.task.type.rename_labels
        examples = [replace(each, gold=rename(each.gold, label_map.gold)) for each in examples]
        answered = [Prediction(each.guid, rename(each.answer, label_map.predicted)) for each in answered]
    return score(data.task, examples, answered, skip=list_undefined_metrics(data.task, answered))


def _find_mark(run: Run, data: DataSet, hashes: tuple[str | None, str | None]) -> str:
    """Return whether the run was trained on this data set, or on these examples."""
    if data.sha256 == hashes[0]:
        return _TRAIN
    return _OWN if data.sha256 == hashes[1] or data.task.name == run.task.name else ""
