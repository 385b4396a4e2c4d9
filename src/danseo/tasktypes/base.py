"""A task (`Task`), and all that is true of a type of tasks without any model (`TaskType`)."""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from danseo.display.table import Table
from danseo.errors import DanseoError, DataError
from danseo.files import quote
from danseo.language import _
from danseo.metrics.statistic import Metric, Statistic
from danseo.records import Prediction, TextExample
from danseo.rows import Row
from danseo.tasktypes.combination import Combiner, Members
from danseo.tasktypes.decoding import Array, Arrays
from danseo.tasktypes.description import TaskDescription
from danseo.tasktypes.inputs import Input, pair_input, read_cell, read_guid, read_optional_cell, text_input
from danseo.tasktypes.rendering import EarlierTurns, RenderedExample, RenderedLine, plain_line
from danseo.text.perturbations import PERTURBATIONS, Change

_MAX_LABELS = 1000
_MAX_ROWS = 40  # of a table of labels

Measure = Callable[[Sequence[Any], Sequence[Prediction]], dict[str, Statistic]]
IsKnown = Callable[[str], bool]
"""Whether a label is known; while labels are learned from the data, all are."""
Splits = Mapping[str, Sequence[Any]]
Examples = Sequence[Any]
Predictions = Sequence[Prediction]
Systems = Mapping[str, Prediction]
"""Name of a system -> its prediction of an example."""
Rows = Sequence[Any] | None
"""What `TaskType.unpack_arrays` returns, one row per example."""
Golds = list[Any]
Statistics = dict[str, Statistic]
OutputRow = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Everything true of a task, nothing about models."""

    name: str
    short: str
    title: str
    type: "TaskType"
    folder: str
    extension: str
    official_rows: Mapping[str, int]
    read: Callable[[Path], list[Any]]
    metrics: Mapping[str, Metric]
    """Metrics by id; the first one is the headline."""
    measure: Measure
    input: Input
    """How a user's line becomes an example."""
    remark: Callable[[Sequence[Prediction]], str] = lambda predictions: ""
    """A remark on answers that are accepted but odd; "" if there are none."""
    labels: tuple[str, ...] = ()
    rows: Callable[[Sequence[Any]], int] = len
    """How many rows of the official file the examples make up."""
    companions: Mapping[str, int] = field(default_factory=dict)
    """Other official files of the task -> how many entries they hold."""
    needs_probabilities: tuple[str, ...] = ()
    """Metrics that rank probabilities."""
    cluster: Callable[[Any], str] | None = None
    """What resampling and the dev split keep together: passage, premise, dialogue."""
    dev_sample: tuple[int, int] = (0, 0)
    """How many dev examples a run answers, and the seed that chooses them; 0 takes all."""
    scale: tuple[float, ...] = (0.0, 5.0)
    """The least and the greatest number of a regression task."""
    custom: TaskDescription | None = None
    """The description of a custom task; None for the tasks of KLUE."""
    address: str = ""
    """The task file of a custom task, as settings name it."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Column of the benchmark's table -> metric id, in the benchmark's order."""
    shown_metrics: tuple[str, ...] = ()
    """Metrics that the table of a sweep has besides those."""
    parts: tuple[str, ...] = ("text",)
    """What the texts of an example are called."""
    label_word: str = "label"
    """What a label is called."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Label or entity type -> its meaning in Korean, for prompts."""
    nothing: str = ""
    """The label for examples in which there is nothing to find."""
    extra_fields: tuple[str, ...] = ()
    """Official fields that the reader does not need; only a check of the file misses them."""

    @property
    def settings_name(self) -> str:
        """The name of the task in the settings of a run: the file of a custom task, else the task's name."""
        return self.address or self.name

    @property
    def is_pair(self) -> bool:
        """Whether an example has two texts."""
        return self.type.has_pairs and len(self.parts) == 2

    @property
    def headline(self) -> str:
        return next(iter(self.metrics))

    @property
    def table_metrics(self) -> list[str]:
        """The metrics that tables of runs show: the benchmark's, else the first two."""
        official = [id_ for id_, metric in self.metrics.items() if metric.is_official]
        return list(dict.fromkeys([*self.columns.values(), *official])) or list(self.metrics)[:2]

    def file(self, split: str) -> str:
        """Return the official name of a split's file."""
        return f"{self.folder}_{split}{self.extension}"

    def check_answer(self, example: Any, answer: Any) -> Any:
        """Return the answer in its proper form, or raise ValueError."""
        return self.type.validate(self, example, answer)


NO_LABEL = ""
"""The answer of a model that gave none, as when a reply of a language model cannot be read: always wrong."""


def answers_of(predictions: Sequence[Prediction]) -> list[Any]:
    """Return the answers of predictions."""
    return [prediction.answer for prediction in predictions]


def golds_of(examples: Sequence[Any]) -> list[Any]:
    """Return the gold answers of examples."""
    return [example.gold for example in examples]


def shuffle_sequences(
    rows: Sequence[Sequence[Any]], shapes: Sequence[Sequence[Any]], rng: random.Random
) -> list[tuple[Any, ...]]:
    """Return the entries of all rows, the rows in random order, as rows of the given lengths."""
    entries = iter([entry for row in rng.sample(rows, len(rows)) for entry in row])
    return [tuple(next(entries) for _ in shape) for shape in shapes]


class Confidences(NamedTuple):
    """Confidences from 0 to 1, and whether each of them belongs to a correct decision."""

    unit: str
    """What was decided: answers, characters."""
    values: Array
    correct: Array


class ErrorDescription(NamedTuple):
    """A wrong example as people read it."""

    severity: float
    """The confidence in the wrong answer, or how much is wrong."""
    parts: dict[str, str]
    """Part -> content."""


class AnswerFixer(Protocol):
    """Corrects predictions after decoding."""

    name: str

    def __call__(self, examples: Examples, predictions: Predictions) -> list[Prediction]: ...


class DataFile(Protocol):
    """A data file of a custom task."""

    @property
    def path(self) -> Path: ...
    @property
    def description(self) -> TaskDescription: ...
    def is_squad(self) -> bool:
        """Return whether the file is in SQuAD's JSON format."""
        ...

    def rows(self) -> Iterator[Row]:
        """Yield the records of a table."""
        ...

    def blocks(self) -> Iterator[tuple[int, list[str], list[tuple[int, list[str]]]]]:
        """Yield the sentences of a CoNLL file: first line number, comments, numbered lines of fields."""
        ...


class TaskType(ABC):
    """Everything danseo knows about one type of task, without any model; a type overrides what is special."""

    name: ClassVar[str]

    # Facts

    resampling_unit: ClassVar[str] = "cluster"
    """What the bootstrap draws if examples share something."""
    row_unit: ClassVar[str] = "rows"
    """What the rows of a data file are."""
    row_note: ClassVar[str] = ""
    length_unit: ClassVar[str] = "characters"
    has_pairs: ClassVar[bool] = False
    """Whether an example may have two texts."""
    has_single_label: ClassVar[bool] = False
    """Whether the answer is one of the task's labels."""
    has_label_probabilities: ClassVar[bool] = False
    """Whether probabilities are those of the task's labels."""
    related: ClassVar[str] = ""
    """The type whose recipes also serve this type; "" for its own."""
    augmentations: ClassVar[tuple[str, ...]] = ()
    """The ways of data augmentation that its examples allow."""
    perturbations: ClassVar[tuple[str, ...]] = tuple(PERTURBATIONS)
    """The perturbations after which gold is still exact."""
    hub_pipeline: ClassVar[str | None] = None
    """The name of the task on the Hugging Face Hub."""

    def measure_length(self, example: Any) -> int:
        """Return the length of an example in `length_unit`."""
        return len(example.text) + len(getattr(example, "pair", None) or "")

    def make_example(self, task: Task, guid: str, text: str) -> Any:
        """Return an example without gold that holds the text, to trace a network with."""
        raise NotImplementedError

    def request_fields(self, task: Task) -> dict[str, Any]:
        """Return part of an example -> its field in a request, if these have to be named."""
        return {}

    # Prediction files

    @abstractmethod
    def validate(self, task: Task, example: Any, answer: Any) -> Any:
        """Return the answer in its proper form; raise ValueError if it is none."""

    def validate_probabilities(self, task: Task, value: Any) -> Any:
        """Return the probabilities of a prediction; raise ValueError if they are malformed."""
        if not isinstance(value, dict) or not value:
            raise ValueError(f"probabilities should be an object label -> probability, not {quote(value)}")
        for label, probability in value.items():
            if self.has_label_probabilities and label not in task.labels:
                raise ValueError(f"probability of the unknown label {quote(label)}; known: {', '.join(task.labels)}")
            is_number = isinstance(probability, int | float) and not isinstance(probability, bool)
            if not is_number or not 0 <= probability <= 1 + 1e-6:
                raise ValueError(
                    f"probability of {quote(label)} should be a number from 0 to 1, not {quote(probability)}"
                )
        return value

    # Baselines

    def gold_answer(self, example: Any) -> Any:
        """Return the gold as an answer."""
        return example.gold

    def with_answer(self, task: Task, example: Any, answer: Any) -> Any | None:
        """Return the example with an answer as its gold; None if the answer cannot be gold."""
        return None if self.has_single_label and answer not in task.labels else replace(example, gold=answer)

    def most_frequent(self, golds: Sequence[Any]) -> Any:
        """Return what `majority_answer` needs from the golds: the most frequent label, or the mean; None if nothing."""
        return None

    def majority_answer(self, example: Any, most_frequent: Any) -> Any:
        """Return the answer that ignores the input."""
        return most_frequent

    def is_most_frequent(self, task: Task, value: Any) -> bool:
        """Return whether a value read from a file is one that `most_frequent` returns."""
        return value is None

    def shuffle_answers(self, examples: Sequence[Any], rng: random.Random) -> list[Any]:
        """Return the gold answers shuffled over the examples."""
        answers = [self.gold_answer(example) for example in examples]
        return rng.sample(answers, len(answers))

    def chance_level(self, task: Task, examples: Sequence[Any]) -> float:
        """Return the headline that shuffled gold answers reach at most."""
        return 25.0

    # Breakdown, slices, calibration

    @abstractmethod
    def breakdown(self, task: Task, examples: Examples, predictions: Predictions) -> list[Table]:
        """Return tables of where the score comes from."""

    has_seen_slices: ClassVar[bool] = False
    """Whether `breakdown_by_seen` distinguishes entities of train from others."""

    def breakdown_by_seen(
        self, task: Task, train: Examples, examples: Examples, predictions: Predictions
    ) -> Table | None:
        """Return the scores of entities that train has and of others; None for types without entities."""
        return None

    def confidences(self, task: Task, examples: Examples, predictions: Predictions, rows: Rows) -> Confidences | None:
        """Return the confidences of the answers; None if there are none. rows are those of `unpack_arrays`."""
        return None

    # Errors

    error_order: ClassVar[str] = _("most mistakes first")
    ranks_by_confidence: ClassVar[bool] = False
    """Whether errors are ordered by confidence, which needs probabilities."""
    legend: ClassVar[str] = ""
    """What the marks of a rendered example mean."""
    credit_note: ClassVar[str] = ""
    """What counts as correct, if that is not obvious."""
    partial_credit_unit: ClassVar[str] = ""
    """What `credit` counts, if an answer can be partly correct."""

    @abstractmethod
    def describe_error(self, task: Task, example: Any, prediction: Prediction) -> ErrorDescription | None:
        """Describe a wrong example; return None if the answer is correct."""

    def is_correct(self, example: Any, answer: Any) -> bool:
        """Return whether an answer is as expected."""
        return bool(answer == example.gold)

    def credit(self, example: Any, answer: Any) -> float:
        """Return how correct an answer is, from 0 to 1."""
        return float(self.is_correct(example, answer))

    # Rendering

    @abstractmethod
    def render(self, task: Task, example: Any, answers: Systems, earlier: EarlierTurns = ()) -> RenderedExample:
        """Return an example with the answers of one or more systems (name -> prediction) for a page."""

    def measure_width(self, example: Any) -> int:
        """Return how many words wide the drawing of an example is; 0 if it has none."""
        return 0

    def find_earlier(self, examples: Sequence[Any], position: int) -> range:
        """Return the positions of the earlier turns of the same dialogue."""
        return range(0)

    # Ensembles

    default_combination: ClassVar[str] = "prob"

    @abstractmethod
    def make_combiner(self, members: Members, method: str) -> Combiner:
        """Return a function from the members' weights to combined predictions."""

    def pack_arrays(self, task: Task, rows: Sequence[Any], token_starts: Sequence[Array] | None = None) -> Arrays:
        """Return the arrays for predictions/dev.npz: what ensembles need besides the answers, one row per example."""
        raise NotImplementedError

    def unpack_arrays(self, task: Task, arrays: Arrays) -> list[Any]:
        """Return the rows that `pack_arrays` packed; raise KeyError, ValueError or IndexError if they are malformed."""
        raise KeyError(self.name)

    def fits_example(self, row: Any, example: Any) -> bool:
        """Return whether a row of `unpack_arrays` has the size of its example."""
        return True

    def unpack_token_starts(self, arrays: Arrays) -> list[Array] | None:
        """Return for each character whether a token starts there; None if that is not known."""
        return None

    def read_inline_rows(self, task: Task, predictions: Sequence[Prediction]) -> list[Any] | None:
        """Return the rows that the probabilities of a prediction file hold; None if they hold none."""
        return None

    # Output of `danseo predict`

    csv_columns: ClassVar[tuple[str, ...]] = ("answer",)

    def to_row(
        self, task: Task, example: Any, prediction: Prediction, table: Any = None, with_tags: bool = False
    ) -> OutputRow:
        """Return the answer, with confidences and character offsets if the type has them."""
        return {"answer": prediction.answer}

    has_conll: ClassVar[bool] = False

    def to_conll(self, row: Mapping[str, Any]) -> str:
        """Return an output row as a block of CoNLL lines, if the type has such a format."""
        raise NotImplementedError

    def make_particle_fixer(self, task: Task) -> AnswerFixer:
        """Return what corrects the boundaries of answers at Korean particles; raise if they have none."""
        raise DanseoError(_("--fix-particles: the answers of {task} are not tags; leave it out").format(task=task.name))

    # Prompts

    def group_shots(self, example: Any) -> str:
        """Return what few-shot examples should differ in."""
        return ""

    # Custom tasks: a task file and data files of a user

    is_custom: ClassVar[bool] = True
    """Whether users can have tasks of this type."""
    custom_title: ClassVar[str] = ""
    custom_metrics: ClassVar[Mapping[str, Metric]] = {}
    """Metrics by id."""
    custom_label_word: ClassVar[str] = "label"
    required_columns: ClassVar[tuple[str, ...]] = ()
    learns_labels: ClassVar[bool] = True
    is_numbered: ClassVar[bool] = True
    """Whether examples without an id column are numbered."""

    def check_description(self, description: TaskDescription) -> str:
        """Return what is wrong with a task file; "" if nothing is."""
        missing = next((key for key in self.required_columns if not getattr(description, key)), "")
        return f"{missing} is missing; name the column that holds it" if missing else ""

    def custom_parts(self, description: TaskDescription) -> tuple[str, ...]:
        """Return what the texts of an example are called."""
        return tuple(filter(None, (description.text or "text", description.pair)))

    def custom_cluster(self, description: TaskDescription) -> Callable[[Any], str] | None:
        """Return what resampling and splits keep together."""
        return (lambda example: str(example.source or example.guid)) if description.group else None

    def custom_input(self, description: TaskDescription) -> Input:
        """Return how a user's line becomes an example."""
        raise NotImplementedError

    def read_custom(self, file: DataFile, is_known: IsKnown) -> Iterator[Any]:
        """Yield the examples of a data file."""
        for number, row in enumerate(file.rows(), 1):
            yield self.read_row(row, number, file.description, is_known)

    def read_row(self, row: Row, number: int, description: TaskDescription, is_known: IsKnown) -> Any:
        """Return the example of a row of a table."""
        raise NotImplementedError

    def measure_custom(self, custom: TaskDescription, examples: Examples, golds: Golds, answers: Golds) -> Statistics:
        """Return the statistics of `custom_metrics`."""
        raise NotImplementedError

    def find_labels(self, gold: Any) -> Iterable[str]:
        """Return the labels of a gold answer."""
        return ()

    def stratify(self, gold: Any) -> str:
        """Return what a held-out share of train keeps the proportions of."""
        return ""

    def learn_labels(self, description: TaskDescription, splits: Splits) -> TaskDescription:
        """Return the description with the labels of the data."""
        counts = self._count_labels(splits)
        train = counts["train"]
        names = sorted(train) + sorted(set(counts.get("dev", ())) - set(train))
        if not names or not train:
            raise DataError(f"{description.train}: there are no labels in it; check type and columns in the task file")
        self.check_labels(names, train, description)
        if len(names) > _MAX_LABELS:
            raise DataError(
                f"{description.train}: column {description.label!r} has {len(names):,} different labels, but at most "
                f"{_MAX_LABELS:,} make sense; is it the right column? numbers are type = regression"
            )
        return replace(description, labels=self.expand_labels(names))

    def _count_labels(self, splits: Splits) -> dict[str, Counter[str]]:
        return {
            split: Counter(name for example in examples for name in self.find_labels(example.gold))
            for split, examples in splits.items()
        }

    def check_labels(self, names: Sequence[str], train: Counter[str], description: TaskDescription) -> None:
        """Raise DataError if these labels cannot be learned."""

    def expand_labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the labels of the task from those that the data has."""
        return tuple(names)

    # Checks of custom data, statistics of data

    def describe_columns(self, description: TaskDescription) -> list[tuple[object, ...]]:
        """Return rows for `danseo data check` on columns that only this type has."""
        return []

    def count_oddities(self, splits: Splits) -> list[tuple[object, ...]]:
        """Return rows for `danseo data check`: what is odd, and how often it occurs in each split."""
        return []

    def label_counts(self, task: Task, splits: Splits) -> Table:
        """Return the table of labels for `danseo data check`."""
        counts = self._count_labels(splits)
        names = sorted(set().union(*counts.values()), key=lambda name: -counts["train"][name])
        absent = [name for name in names if not counts["train"][name]]
        rows: list[tuple[object, ...]] = [
            (self.show_label(name), counts["train"][name], counts["dev"][name]) for name in names[:_MAX_ROWS]
        ]
        note = f"{len(names) - _MAX_ROWS} rarer ones are not shown" if len(names) > _MAX_ROWS else ""
        if absent:
            note = f"WARNING: dev has labels that train lacks and no model can learn: {', '.join(absent[:10])}"
        return Table("labels", (task.label_word, "train", "dev"), rows, note)

    def show_label(self, label: str) -> str:
        """Return a label as tables show it."""
        return label

    # Perturbed and other data sets

    def change_texts(self, example: Any, change: Change) -> Any:
        """Return the example with changed texts and the gold that belongs to them; unchanged if that is not exact."""
        return example

    def list_label_names(self, task: Task) -> list[str]:
        """Return the labels as people name them."""
        return list(task.labels)

    def rename_labels(self, answer: Any, names: Mapping[str, str]) -> Any:
        """Return an answer or a gold answer with other label names; a label without a new name becomes no label."""
        return answer


class TextTaskType(TaskType):
    """A type of tasks whose input is a text or a pair of texts; a type says how it reads the gold answer."""

    has_pairs = True

    def make_example(self, task: Task, guid: str, text: str) -> Any:
        return TextExample(guid, text, None, pair=text)

    def change_texts(self, example: Any, change: Change) -> Any:
        pair = change(example.pair, ()).text if example.pair else example.pair
        return replace(example, text=change(example.text, ()).text, pair=pair)

    def list_texts(self, task: Task, example: Any) -> list[tuple[str, str]]:
        """Return the text, or the two texts, of an example with their names."""
        names = task.parts if task.is_pair else ("text",)
        return list(zip(names, (example.text, example.pair), strict=False))

    def render_texts(self, task: Task, example: Any) -> list[RenderedLine]:
        """Return the texts of an example as lines."""
        return [plain_line(name, text) for name, text in self.list_texts(task, example)]

    def custom_input(self, description: TaskDescription) -> Input:
        text = description.text or "text"
        return pair_input(text, description.pair) if description.pair else text_input(text)

    def read_gold(self, row: Row, description: TaskDescription, is_known: IsKnown) -> Any:
        """Return the gold answer of a row."""
        raise NotImplementedError

    def read_row(self, row: Row, number: int, description: TaskDescription, is_known: IsKnown) -> Any:
        return TextExample(
            read_guid(row, number, description),
            text=read_cell(row, description.text),
            pair=read_optional_cell(row, description.pair),
            gold=self.read_gold(row, description, is_known),
            source=read_optional_cell(row, description.group),
        )
