"""The protocol of models: what every family provides, and what the rest of danseo may call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, overload

from danseo.config.run import RunConfig
from danseo.data.dev_split import split_indices
from danseo.errors import DanseoError
from danseo.language import _
from danseo.records import Prediction
from danseo.runs.store import Run
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding import Arrays


@dataclass(frozen=True)
class Answers(Sequence[Prediction]):
    """The predictions of a model in the order of the examples, with what ensembles need."""

    predictions: list[Prediction]
    evidence: Arrays | None = field(default=None, compare=False)
    """Arrays that ensembles need, for predictions/<split>.npz; None if the predictions are enough."""
    tables: Sequence[Any] | None = field(default=None, compare=False)
    """Tagging: one array of characters x labels per example, for the confidence of spans."""

    @overload
    def __getitem__(self, key: int) -> Prediction: ...
    @overload
    def __getitem__(self, key: slice) -> list[Prediction]: ...
    def __getitem__(self, key: int | slice) -> Prediction | list[Prediction]:
        return self.predictions[key]

    def __len__(self) -> int:
        return len(self.predictions)

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.predictions)


@dataclass(frozen=True)
class TrainResult:
    """The answers of a trained model, and how its training went."""

    answers: Answers
    """Predictions for the `dev` of fit(): the dev set, or the held-out fold."""
    device: str = "cpu"
    seconds: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    """For environment.json: what the numbers depend on, speed and size."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Added to scores.json: best step, score on the select split, and what only this family reports."""


class Events(Protocol):
    """The run of a training, and the receiver of its events."""

    run: Run
    series: Path | None
    """A file of the sweep: its first run writes precision and attention, the others read them."""

    def note(self, line: str) -> None:
        """Report a line of text."""

    def step(self, step: Any, progress: Any) -> None:
        """Report an optimizer step."""

    def work_on(self, activity: str, total: int = 0) -> None:
        """Name what is being done now, and of how many examples."""

    def advance(self, count: int) -> None:
        """Report that so many more examples of the activity are done."""

    def report_evaluation(self, step: Any, progress: Any, score: float | None) -> None:
        """Report the score of a step on the select split; it may raise to stop."""


class Model(Protocol):
    """A model that predicts."""

    @property
    def reads_pos(self) -> bool:
        """Whether parsing examples need POS tags."""

    def predict(self, examples: Sequence[Any]) -> Answers:
        """Return one prediction per example, in order; gold answers are not needed."""


class TrainableModel(Model, Protocol):
    """A model that also trains; one that never trains predicts dev in fit()."""

    def prepare_data(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> None:
        """Tokenize and check the examples; raise an error for bad input. The run folder is not changed before this."""

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> TrainResult:
        """Train on the prepared examples, keep the best weights on the select split, and predict dev."""

    def save(self, folder: Path) -> None:
        """Save what predict needs; load() of the family reads it."""


def choose_select_positions(config: RunConfig, task: Task, dev: Sequence[Any]) -> list[int]:
    """Return the positions of the dev examples that select the best weights; raise an error if there are none."""
    positions = split_indices(task, dev, config.train.select_on)
    if not positions:
        raise DanseoError(_("no dev example is in the select split: the dev set is too small; use --select-on dev"))
    return positions


def choose_select_examples(config: RunConfig, task: Task, dev: Sequence[Any]) -> list[Any]:
    """Return the dev examples that select the best weights."""
    return [dev[position] for position in choose_select_positions(config, task, dev)]


@dataclass(frozen=True)
class FailedExample:
    """An example without a valid answer: what the model wrote, and what is wrong with it."""

    example: Any
    text: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class LoadOptions:
    """Options for loading a saved model."""

    device: str | None = None
    precision: str | None = None
    trust_remote_code: bool = False
    on_note: Callable[[str], None] = lambda line: None
    """Called with a line of text about the progress."""


def uses_sections(*sections: str) -> Callable[[str], bool]:
    """Return a function: does a setting (full name) have an effect on a family that reads these sections?

    Settings without a section, train.* and prompt.max_eval_samples (the number of dev examples) always do.
    """
    return lambda name: (
        "." not in name or name.split(".")[0] in ("train", *sections) or name == "prompt.max_eval_samples"
    )


@dataclass(frozen=True)
class Family:
    """A family of models: which names it has, what it needs, and how its models are created and loaded."""

    name: str
    matches: Callable[[str], bool]
    """Whether a model name belongs to the family."""
    required_packages: Callable[[str, str], tuple[str, ...]]
    """Packages that a model needs for a task."""
    check_config: Callable[[RunConfig, Task], None]
    """Refuse a task or settings that the family does not support; uses no network."""
    create: Callable[[RunConfig, Task, str | None], TrainableModel]
    """Create an untrained model for a config on a device."""
    load: Callable[[Run, Task, LoadOptions], Model]
    """Load the model of a run."""
    count_parameters: Callable[[str, bool, bool], float | None]
    """Estimate the number of parameters without the embeddings (model, trust_remote_code, offline); None if unknown."""
    uses_setting: Callable[[str], bool] = lambda setting: True
    """Whether a setting, by its full name, has an effect on its models."""
    trains_with_torch: bool = True
    """Whether it trains with torch (epochs, device, checkpoints); baselines, spaCy and servers do not."""
    supports_example_weights: bool = False
    """Whether its models sample training examples by weight (train.example_weights)."""
    supports_distillation: bool = False
    """Whether its models learn from soft targets (train.distill_targets)."""
    check_available: Callable[[str], object] = lambda model: None
    """Refuse a model that is neither on this machine nor, if the network may be used, on the Hub."""
    is_deterministic: bool = True
    """Whether the same model gives the same predictions again; a server may not."""
    export_formats: tuple[str, ...] = ()
    """Export formats that can contain a model of this family."""
    recipe: str = "default"
    """The recipe that its models use by default."""
    saved_in: str = "model"
    """The folder or file of a run that its models are loaded from."""
    locate_checkpoint: Callable[[str], str] = lambda model: model
    """Return the folder or Hub id of a model name."""
    max_positions: Callable[[str], int | None] = lambda model: None
    """Return the maximum input length of a model, if this machine knows it; None if there is no limit."""
    load_config: Callable[[str, bool, bool], Any] = lambda model, trust_remote_code, offline: None
    """Return the configuration of a checkpoint, for recipes; None if there is none."""
    estimate_memory: Callable[[RunConfig, Task, str | None], Any] | None = None
    """Estimate the memory of a training on a device from the model's configuration; None if it cannot."""
    list_failures: Callable[[Run, Task, Sequence[Any]], list[FailedExample]] = lambda run, task, examples: []
    """Return the examples for which a run has no valid answer."""
