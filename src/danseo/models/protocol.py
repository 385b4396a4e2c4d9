"""What a model can do, whatever it is made of: answer examples, and mostly learn from some first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, overload

from danseo.config import RunConfig
from danseo.predictions.evidence import Arrays
from danseo.records import Prediction
from danseo.runs.directory import Run
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Answers(Sequence[Prediction]):
    """What a model says of examples: the predictions in their order, and what ensembles and users want besides."""

    predictions: list[Prediction]
    evidence: Arrays | None = field(default=None, compare=False)
    """What ensembles need besides the answers, for predictions/<split>.npz; None where these are enough."""
    tables: Sequence[Any] | None = field(default=None, compare=False)
    """Per example of a tagging task: characters x labels, for the confidence of spans."""

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
class Fitted:
    """How a fitting went."""

    answers: Answers
    """To all of dev."""
    device: str = "cpu"
    seconds: float = 0.0
    surroundings: Mapping[str, Any] = field(default_factory=dict)
    """For environment.json: what the numbers depend on, speed and size."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For scores.json: which weights were picked and why."""


class Events(Protocol):
    """Where a fitting keeps its state, and whom it tells how it goes."""

    run: Run
    series: Path | None
    """The file in which the runs of a sweep agree on precision and attention."""

    def begin(self) -> None:
        """All that the run starts from has proved good: what an earlier one left may go, and the work begins."""

    def note(self, line: str) -> None:
        """Something worth a line of its own."""

    def step(self, step: Any, progress: Any) -> None:
        """An optimiser step is done."""

    def evaluated(self, step: Any, progress: Any, score: float | None) -> None:
        """The weights of a step have been scored on the half that picks the checkpoint; it may raise to stop."""


class Model(Protocol):
    """Answers examples."""

    @property
    def reads_pos(self) -> bool:
        """Whether the words of a parse have to come with their POS tags."""

    def predict(self, examples: Sequence[Any]) -> Answers:
        """One prediction per example, in order; no gold is needed."""


class Trainable(Model, Protocol):
    """Learns from examples first. A family whose models never learn answers dev in fit() and saves what it was."""

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> Fitted:
        """Learn from train, keep what is best on the select half of dev, and answer all of dev."""

    def save(self, folder: Path) -> None:
        """Whatever predict needs; the family's load() takes it up."""


@dataclass(frozen=True)
class Loading:
    """How a saved model is to be opened."""

    device: str | None = None
    precision: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True)
class Family:
    """A sort of models: which names are its, what it needs, and how its models are made and opened again."""

    name: str
    claims: Callable[[str], bool]
    """Whether a model of this name is one of the family."""
    packages: Callable[[str, str], tuple[str, ...]]
    """What has to be installed for a model and a task."""
    check: Callable[[RunConfig, Task], None]
    """Refuse a task or settings that its models cannot do; asks no network."""
    make: Callable[[RunConfig, Task, str | None], Trainable]
    """A model for a config on a device, not fitted yet."""
    load: Callable[[Run, Task, Loading], Model]
    """The saved model of a run."""
    size: Callable[[str, bool, bool], float | None]
    """The weights above the embeddings, for estimates: of a model, with or without its own code, offline or not; None
    where nobody can know offline."""
    uses: Callable[[str], bool] = lambda setting: True
    """Whether a setting, by its full name, means anything to its models."""
    is_gradual: bool = True
    """Whether it learns with torch, in epochs, on a device; the others go over the examples once, on the CPU."""
    weighs: bool = False
    """Whether its models draw training examples by their weights (train.example_weights)."""
    find: Callable[[str], object] = lambda model: None
    """Refuse a model that is neither here nor, where it may be asked, on the Hub."""
    recipe: str = "default"
    """The ready settings that its models start from where none are named."""
    location: Callable[[str], str] = lambda model: model
    """The folder or Hub id behind a model's name."""
    facts: Callable[[str, bool, bool], Any] = lambda model, trust_remote_code, offline: None
    """What recipes look at: the configuration of a checkpoint; None where there is none."""
