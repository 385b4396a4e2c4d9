"""What the functions return: plain dataclasses, each with to_dict() and a face for people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.api.shown import Shown
from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.runs.directory import Run
from danseo.runs.index import Record, read_record
from danseo.scoring.compare import Difference
from danseo.scoring.score import Score
from danseo.tasks import get_task

if TYPE_CHECKING:
    from danseo.models.protocol import Model
    from danseo.records import Prediction
    from danseo.runs.compare import SeedComparisonResult
    from danseo.scoring.over_seeds import SeedDifference
    from danseo.scoring.tables import ComparisonResult, ScoreResult


@dataclass(frozen=True)
class Scores(Shown):
    """The scores of predictions: every metric of the task with its interval, beside what floors score."""

    task: str
    headline: str
    """The id of the metric that counts first."""
    n: int
    """Examples that were scored."""
    scores: dict[str, Score]
    """By id."""
    baselines: dict[str, dict[str, float]]
    """oracle, majority and random: their scores by id."""
    _result: "ScoreResult" = field(repr=False, compare=False)

    @property
    def value(self) -> float:
        """The headline score, from 0 to 100."""
        return self.scores[self.headline].value

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the headline score; NaN where none was computed."""
        return self.scores[self.headline].low, self.scores[self.headline].high

    def tables(self) -> list[Table]:
        return self._result.tables()

    def to_dict(self) -> dict[str, Any]:
        """What `danseo score --json` prints."""
        return self._result.as_dict()


@dataclass(frozen=True)
class Comparison(Shown):
    """Systems on the same examples: how they differ, and how sure that is."""

    task: str
    headline: str
    differences: "Sequence[Difference] | Sequence[SeedDifference]"
    """Every pair in every metric."""
    _result: "ComparisonResult | SeedComparisonResult" = field(repr=False, compare=False)

    def tables(self) -> list[Table]:
        return self._result.tables()

    def to_dict(self) -> dict[str, Any]:
        """What `danseo compare --json` prints."""
        return self._result.as_dict()


@dataclass(frozen=True)
class Answer:
    """One answer, with what it covers: the spans of entities, the heads of words, the confidence."""

    guid: str
    answer: Any
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As a line of `danseo predict`."""
        return {"guid": self.guid, "answer": self.answer, **self.facts}


@dataclass(frozen=True)
class OpenRun(Shown):
    """A run directory: what it was, how it stands, its scores, and its model, which is loaded when first asked."""

    path: Path
    device: str | None = None
    precision: str | None = None
    trust_remote_code: bool = False

    @cached_property
    def record(self) -> Record:
        """All that the directory says."""
        return read_record(Run(self.path))

    @property
    def task(self) -> str:
        return self.record.task

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.record.model

    @property
    def status(self) -> str:
        """done, failed, pruned, unfinished or damaged."""
        return self.record.status

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting by its full name."""
        return self.record.settings

    @property
    def score(self) -> float | None:
        """The headline score on the examples that the run reports; None where it has none."""
        found = self.record.score()
        return found["value"] if found else None

    @cached_property
    def _model(self) -> "Model":
        from danseo.models.families import load_model

        return load_model(Run(self.path), self.device, self.precision, trust_remote_code=self.trust_remote_code)

    def predict(self, examples: Sequence[Any]) -> list[Answer]:
        """Answers to texts, to dicts with the fields of the task (as lines of `danseo predict`), or to examples."""
        from danseo.data.lines import Line, given_example
        from danseo.predict.records import answered

        task = Run(self.path).task
        given = [
            Line(number, given_example(example, task, number, with_pos=self._model.reads_pos), {})
            for number, example in enumerate(examples, 1)
        ]
        records = answered(self._model, task, given)
        return [Answer(r.pop("guid"), r.pop("answer"), {k: v for k, v in r.items() if k != "line"}) for r in records]

    def predictions(self, examples: Sequence[Any], split: str = "dev") -> "list[Prediction]":
        """The predictions that the run saved, in the order of the examples that they answer."""
        from danseo.predictions.file import read_predictions

        task = Run(self.path).task
        return read_predictions(
            Run(self.path).predictions_path(split), task, examples, skip=list(task.needs_probabilities)
        )

    def log(self) -> list[dict[str, Any]]:
        """One record per evaluation of the training."""
        return Run(self.path).read_log()

    def tables(self) -> list[Table]:
        from danseo.runs.layouts.listing import run_table
        from danseo.runs.layouts.single import run_tables

        return run_tables(Run(self.path)) if self.status == "done" else [run_table([self.record])]

    def to_dict(self) -> dict[str, Any]:
        """What `danseo train --json` prints; of a run that is not done, what it is and why."""
        from danseo.runs.layouts.single import run_document

        if self.status == "done":
            return run_document(Run(self.path))
        return {"run": str(self.path), "task": self.task, "status": self.status, "note": self.record.note}


@dataclass(frozen=True)
class RunList(Shown, Sequence[OpenRun]):
    """The runs of a folder, in order of their names."""

    listed: tuple[OpenRun, ...]

    def __len__(self) -> int:
        return len(self.listed)

    def __getitem__(self, position: Any) -> Any:
        return self.listed[position]

    def __iter__(self) -> Iterator[OpenRun]:
        return iter(self.listed)

    def best(self, task: str) -> OpenRun:
        """The finished run of a task with the highest headline score."""
        name = task if any(run.task == task for run in self.listed) else get_task(task).name
        done = [run for run in self.listed if run.task == name and run.score is not None]
        if not done:
            raise DanseoError(f"no finished run of {name} among {len(self)} runs")
        return max(done, key=lambda run: run.score or 0.0)

    def tables(self) -> list[Table]:
        from danseo.runs.layouts.listing import run_table

        return [run_table([run.record for run in self.listed])]

    def to_dict(self) -> dict[str, Any]:
        """The runs by the names of their directories."""
        return {
            run.path.name: {"task": run.task, "model": run.model, "status": run.status, "score": run.score}
            for run in self.listed
        }
