"""The table of NER systems on the same sentences: three levels, failures and types of errors."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from danseo.data.find import data_root, load, split_sha256
from danseo.data.prediction_file import read_predictions
from danseo.display.table import Table, as_typed
from danseo.errors import DanseoError
from danseo.language import _, join
from danseo.metrics.tagging import (
    count_entities,
    count_entity_tokens,
    encode_characters,
    sentence_accuracy,
    token_length_f1,
)
from danseo.models.registry import get_family
from danseo.runs.index import Record
from danseo.runs.provenance import describe_split, list_run_labels
from danseo.tables.variants import make_model_names
from danseo.tasktypes.base import Task
from danseo.tasktypes.tagging import ENTITY_ERRORS, Tagging, count_errors, get_entity_types

_LEVELS = (
    "sentence %", "entity P (micro)", "entity R (micro)", "entity F1 (micro)", "particle-lenient F1 (micro)",
    "token P", "token R", "token F1", "length F1",
)  # fmt: skip
_COUNTS = ("total", "correct", "FP", "FN")
_COUNT_COLUMNS = (
    "sentences",
    "correct sentences",
    *(f"{level} {name}" for level in ("entity", "token") for name in _COUNTS),
)
"""The counts in the table for programs; on a screen they are a second table."""
NOTE = _(
    "all systems on the same sentences, the whole dev set; entity: exact boundary and type, pooled over types (the "
    "official entity F1 is the mean over types); particle-lenient: a particle more or less at the end of an entity "
    "does not matter; token: characters inside entities, right if the type is; length F1 "
    "weights entities by length; invalid items (not in the text, unknown type, repeated, crossing) count as "
    "wrong entities in entity P and F1"
)
COUNT_NOTE = _(
    "sentence: all entities of a sentence are right, and the precision is the accuracy; entity: exact boundary and "
    "type; token: characters inside entities; total: in gold; FP: answered but wrong, with invalid items; FN: in gold "
    "but not found"
)


class LevelCounts(NamedTuple):
    """The counts of one level; sentences have neither false positives nor false negatives."""

    total: int
    correct: int
    false_positives: int | None = None
    false_negatives: int | None = None

    @classmethod
    def of(cls, right: float, answered: float, gold: float) -> "LevelCounts":
        return cls(int(gold), int(right), int(answered - right), int(gold - right))

    def rates(self) -> tuple[float | None, float | None, float | None]:
        """Return precision, recall and F1; None if undefined. The precision of sentences is their accuracy."""
        if self.false_positives is None or self.false_negatives is None:
            return 100 * self.correct / self.total if self.total else None, None, None
        answered, gold = self.correct + self.false_positives, self.total
        return (
            100 * self.correct / answered if answered else None,
            100 * self.correct / gold if gold else None,
            200 * self.correct / (answered + gold) if answered + gold else None,
        )


def make_systems_tables(
    records: Sequence[Record],
    data_dir: str | None,
    task_name: str = "ner",
    *,
    with_paths: bool = False,
    in_one: bool = False,
) -> list[Table]:
    """Return one row per finished run of a tagging task, and its counts: in the same table, or in a second one."""
    done = [record for record in records if record.status == "done" and record.task == task_name]
    if not done:
        raise DanseoError(
            _("no finished run of {task} here; `danseo runs` lists the runs, --task chooses a task").format(
                task=task_name
            )
        )
    task = done[0].run.task
    if not isinstance(task.type, Tagging):
        raise DanseoError(f"--table ner-systems: {task_name} is not a tagging task; choose one with --task")
    done, others, examples = _choose_same_examples(task, done, data_dir)
    rows: list[tuple[object, ...]] = []
    counts: list[tuple[object, ...]] = []
    for record, name in zip(done, make_model_names(done), strict=True):
        row, levels = _make_row(record, task, examples)
        start = (*([str(record.run.path)] if with_paths else []), name)
        flat = (*levels["sentence"][:2], *levels["entity"], *levels["token"])
        rows.append((*start, *row, *(flat if in_one else ())))
        counts += [(*start, as_typed(record.seed), level, *found, *found.rates()) for level, found in levels.items()]
    about = ("seed", "system", "parameters", "seconds", "deterministic")
    columns = ("model", *about, *_LEVELS, "failed %", "invalid items", *ENTITY_ERRORS, "trained and scored on")
    paths, title = ("run",) if with_paths else (), "NER" if task_name == "ner" else task_name
    title = _("{task} systems, whole dev set: {n:,} sentences").format(task=title, n=len(examples))
    columns = (*paths, *columns, *(_COUNT_COLUMNS if in_one else ()))
    systems = Table(
        title, columns, rows, _make_note(others), keys=2 if with_paths else 1, once=("trained and scored on",)
    )
    if in_one:
        return [systems]
    names = (*paths, "model", "seed", "level", *_COUNTS, "precision", "recall", "F1")
    return [systems, Table(_("counts by level"), names, counts, COUNT_NOTE, keys=4 if with_paths else 3)]


def _make_note(others: Sequence[Record]) -> str:
    """Return the note of the table, with the runs that are not in it."""
    if not others:
        return NOTE
    names = [f"{r.model} ({describe_split(r)})" for r in others]
    return join([NOTE, _("left out, scored on other sentences: {runs}").format(runs=", ".join(names))], "; ")


def _choose_same_examples(
    task: Task, records: Sequence[Record], data_dir: str | None
) -> tuple[list[Record], list[Record], list[Any]]:
    """Return the runs that answered all of the dev file found here, else the same part; the others; the examples."""
    root = data_root(data_dir)
    for each in (replace(task, dev_sample=(0, 0)), task):
        found = split_sha256(each, "dev", root)
        same, others = ([r for r in records if (r.dev_sha256 == found) == is_same] for is_same in (True, False))
        if same:
            return same, others, load(each, "dev", root)
    raise DanseoError(f"the dev file of {task.name} found here is not the one the runs used; give theirs with --data")


def _make_row(record: Record, task: Task, examples: Sequence[Any]) -> tuple[tuple[object, ...], dict[str, LevelCounts]]:
    """Return the row of a run, and its counts by level."""
    predictions = read_predictions(record.run.predictions_path("dev"), task, examples)
    golds, answers = [e.gold for e in examples], [p.answer for p in predictions]
    types = sorted(get_entity_types(task.labels))
    tagged = encode_characters(golds, answers, [e.text for e in examples], tuple(types))
    invalid = record.scores.get("invalid_items")
    right, answered, gold = count_entities(tagged)
    mistakes: Counter[str] = count_errors(examples, predictions)
    accuracy = sentence_accuracy(tagged)
    forgiven = mistakes["particle included"] + mistakes["particle left out"]
    levels = {
        "sentence": LevelCounts(len(examples), int(accuracy.table[:, 0].sum())),
        "entity": LevelCounts.of(right, answered + (invalid or 0), gold),
        "token": LevelCounts.of(*count_entity_tokens(tagged)),
    }
    row = (
        as_typed(record.seed),
        _describe_system(record),
        record.surroundings.get("parameters"),
        record.surroundings.get("seconds"),
        _describe_determinism(record),
        levels["sentence"].rates()[0],
        *levels["entity"].rates(),
        LevelCounts.of(right + forgiven, answered + (invalid or 0), gold).rates()[2],
        *levels["token"].rates(),
        token_length_f1(tagged).value(),
        record.failed_percent,
        invalid,
        *(mistakes[name] for name in ENTITY_ERRORS),
        join(["dev", *list_run_labels(record)], ", "),
    )
    return row, levels


def _describe_system(record: Record) -> str:
    """Return the type of the system."""
    run_type = str(record.settings.get("run_type", "training"))
    family = str(record.surroundings.get("family", "encoder"))
    if run_type == "prompt":
        shots = record.settings.get("prompt.shots", 0)
        return f"prompted {family}" + (f", {shots} shots" if shots else "")
    if run_type != "training":
        return run_type
    return f"fine-tuned {family}" if "best_step" in record.scores else family


def _describe_determinism(record: Record) -> str:
    """Return whether the same run gives the same predictions; servers and some GPU runs do not."""
    if not record.is_made_of_runs and not get_family(record.model_path).is_deterministic:
        return _("no")
    is_gpu = not str(record.surroundings.get("device", "cpu")).startswith("cpu")
    return _("almost") if is_gpu and not record.settings.get("train.full_determinism") else _("yes")
