"""Results of the functions: dataclasses with to_dict(), shown as text, in a terminal and in a notebook."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.display.table import Table, print_tables
from danseo.errors import DanseoError
from danseo.runs.index import Record, read_record
from danseo.runs.store import Run
from danseo.scoring.compare import Difference
from danseo.scoring.score import Score
from danseo.tasks import get_task

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_WIDTH = 200


class DisplayableResult:
    """A result that is displayed as tables: as text, with rich, and as HTML in a notebook."""

    def tables(self) -> list[Table]:
        raise NotImplementedError

    def __str__(self) -> str:
        return self._render_text(_WIDTH)

    def _render_text(self, width: int) -> str:
        from rich.console import Console

        page = StringIO()
        print_tables(self.tables(), Console(file=page, width=width, highlight=False, no_color=True))
        return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n")

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        yield Text(self._render_text(options.max_width))

    def _repr_html_(self) -> str:
        return "\n".join(part for table in self.tables() for part in _table_to_html(table))


def _table_to_html(table: Table) -> Iterator[str]:
    """Yield a table as HTML with escaped cells."""
    sides = ["right" if is_number else "left" for is_number in table.is_numeric()]
    yield f"<table><caption>{escape(table.title)}</caption>"
    heads = "".join(
        f'<th style="text-align:{side}">{escape(name)}</th>' for name, side in zip(table.columns, sides, strict=True)
    )
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for row in table.cells():
        cells = "".join(
            f'<td style="text-align:{side}">{escape(cell)}</td>' for cell, side in zip(row, sides, strict=True)
        )
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table>"
    if table.note:
        yield f"<p><small>{escape(table.note)}</small></p>"


if TYPE_CHECKING:
    from danseo.models.base import Model
    from danseo.records import Prediction
    from danseo.scoring.compare_seeds import SeedDifference
    from danseo.scoring.tables import ComparisonResult, ScoreResult
    from danseo.tables.comparison import SeedComparisonResult


@dataclass(frozen=True)
class Scores(DisplayableResult):
    """The scores of predictions in every metric of the task, with intervals and baselines."""

    task: str
    headline: str
    """The id of the main metric."""
    n: int
    """Number of scored examples."""
    scores: dict[str, Score]
    """Scores by metric id."""
    baselines: dict[str, dict[str, float]]
    """Scores of oracle, majority and random by metric id."""
    _result: "ScoreResult" = field(repr=False, compare=False)

    @property
    def value(self) -> float:
        """The headline score, from 0 to 100."""
        return self.scores[self.headline].value

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the headline score; NaN if none was computed."""
        return self.scores[self.headline].low, self.scores[self.headline].high

    def tables(self) -> list[Table]:
        return self._result.tables()

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `danseo score --json`."""
        return self._result.as_dict()


@dataclass(frozen=True)
class SystemComparison(DisplayableResult):
    """The differences between systems on the same examples, with tests."""

    task: str
    headline: str
    differences: "Sequence[Difference] | Sequence[SeedDifference]"
    """Every pair in every metric."""
    _result: "ComparisonResult | SeedComparisonResult" = field(repr=False, compare=False)

    def tables(self) -> list[Table]:
        return self._result.tables()

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `danseo compare --json`."""
        return self._result.as_dict()


@dataclass(frozen=True)
class RunAnswer:
    """One predicted answer with its facts: entity spans, heads of words, confidence."""

    guid: str
    answer: Any
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a line of `danseo predict`."""
        return {"guid": self.guid, "answer": self.answer, **self.facts}


@dataclass(frozen=True)
class OpenRun(DisplayableResult):
    """A run directory: settings, status, scores, and its model, loaded at the first prediction."""

    path: Path
    device: str | None = None
    precision: str | None = None
    trust_remote_code: bool = False

    @cached_property
    def record(self) -> Record:
        """The record of the run directory."""
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
        """done, failed, pruned, unfinished or corrupted."""
        return self.record.status

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting by its full name."""
        return self.record.settings

    @property
    def score(self) -> float | None:
        """The headline score of the run, or None."""
        found = self.record.score()
        return found["value"] if found else None

    @cached_property
    def _model(self) -> "Model":
        from danseo.models.registry import load_model

        return load_model(Run(self.path), self.device, self.precision, trust_remote_code=self.trust_remote_code)

    def predict(self, examples: Any) -> list[RunAnswer]:
        """Predict texts, dicts with the fields of the task (as lines of `danseo predict`) or examples: many, or one."""
        from danseo.data.input_reader import InputLine, is_single, make_example
        from danseo.inference.output import predict_records

        task = Run(self.path).task
        examples = [examples] if is_single(examples) else examples
        given = [
            InputLine(number, make_example(example, task, number, with_pos=self._model.reads_pos), {})
            for number, example in enumerate(examples, 1)
        ]
        records = predict_records(self._model, task, given)
        return [RunAnswer(r.pop("guid"), r.pop("answer"), {k: v for k, v in r.items() if k != "line"}) for r in records]

    def predictions(self, examples: Sequence[Any], split: str = "dev") -> "list[Prediction]":
        """Return the saved predictions of the run, in the order of the examples."""
        from danseo.data.prediction_file import read_predictions

        task = Run(self.path).task
        return read_predictions(
            Run(self.path).predictions_path(split), task, examples, skip=list(task.needs_probabilities)
        )

    def log(self) -> list[dict[str, Any]]:
        """Return one record per evaluation during the training."""
        return Run(self.path).read_log()

    def tables(self) -> list[Table]:
        from danseo.tables.run_summary import make_run_tables
        from danseo.tables.runs import make_run_table

        return make_run_tables(Run(self.path)) if self.status == "done" else [make_run_table([self.record])]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `danseo train --json`, or the status of an unfinished run."""
        from danseo.tables.run_summary import make_run_document

        if self.status == "done":
            return make_run_document(Run(self.path))
        return {"run": str(self.path), "task": self.task, "status": self.status, "note": self.record.note}


@dataclass(frozen=True)
class RunList(DisplayableResult, Sequence[OpenRun]):
    """The runs of a folder, in order of their names."""

    listed: tuple[OpenRun, ...]

    def __len__(self) -> int:
        return len(self.listed)

    def __getitem__(self, position: Any) -> Any:
        return self.listed[position]

    def __iter__(self) -> Iterator[OpenRun]:
        return iter(self.listed)

    def best(self, task: str) -> OpenRun:
        """Return the finished run of a task with the highest headline score."""
        name = task if any(run.task == task for run in self.listed) else get_task(task).name
        done = [run for run in self.listed if run.task == name and run.score is not None]
        if not done:
            raise DanseoError(f"no finished run of {name}: {len(self)} runs here; train one with danseo.train")
        return max(done, key=lambda run: run.score or 0.0)

    def tables(self) -> list[Table]:
        from danseo.tables.runs import make_run_table

        return [make_run_table([run.record for run in self.listed])]

    def to_dict(self) -> dict[str, Any]:
        """Return the runs by the names of their directories."""
        return {
            run.path.name: {"task": run.task, "model": run.model, "status": run.status, "score": run.score}
            for run in self.listed
        }
