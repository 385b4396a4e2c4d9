"""danseo mine: train on all folds but one, ask about that one, and see which examples are hard or mislabelled."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.data import find
from danseo.data.folds import parted
from danseo.data.weights import write_weights
from danseo.display.table import Table
from danseo.errors import DanseoError, PartlyDone
from danseo.files import check_writable, write_atomically
from danseo.mining.review import review_csv, review_page
from danseo.mining.rule import Judged, Rule, judged
from danseo.predictions.file import read_predictions
from danseo.records import Prediction
from danseo.runs.directory import Run
from danseo.runs.naming import model_name
from danseo.scoring.score import measure
from danseo.sweeps.preparing import Options
from danseo.sweeps.space import Sweep
from danseo.sweeps.sweep import run_sweep
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Mined:
    """What mining came to."""

    task: Task
    judged: list[Judged]
    rule: Rule
    out: Path
    score: float
    """The headline of answers to examples that their model did not learn from."""

    @property
    def doubtful(self) -> list[Judged]:
        """Labels to look at, the surest answers first."""
        return sorted((each for each in self.judged if each.is_doubtful), key=lambda each: -each.confidence)

    def as_dict(self) -> dict[str, Any]:
        asked = [each for each in self.judged if self.task.nothing in ("", each.example.gold)]
        return {
            "examples": len(self.judged),
            "looked_at": len(asked),
            "hard": sum(each.weight > 1 for each in asked),
            "at_the_cap": sum(each.weight >= self.rule.cap for each in asked),
            "to_review": len(self.doubtful),
            "surest_other_label": max((each.confidence for each in asked if self._is_other(each)), default=None),
            self.task.headline: self.score,
            "weights": str(self.out / "weights.csv"),
            "review": [str(self.out / "review.csv"), str(self.out / "review.html")],
        }

    def _is_other(self, each: Judged) -> bool:
        return bool(each.prediction.answer != each.example.gold)

    def tables(self) -> list[Table]:
        found, rule = self.as_dict(), self.rule
        which = f"labelled {self.task.nothing}" if self.task.nothing else "of any label"
        rows: list[tuple[object, ...]] = [
            ("training examples", found["examples"]),
            (f"of them {which}", found["looked_at"]),
            (
                f"hard: less than {rule.threshold:g} for their own label, weigh {rule.boost:g} to {rule.cap:g}",
                found["hard"],
            ),
            (f"likely mislabelled: more than {rule.sure:g} for another label, weigh 1", found["to_review"]),
            (f"{self.task.headline} of the folds together", self.score),
        ]
        note = f"{found['weights']} is for --set train.example_weights=FILE; look at {found['review'][1]}"
        if not found["to_review"] and found["surest_other_label"] is not None:
            note += f"\nthe surest answer with another label has {found['surest_other_label']:.2f}; --sure sets the bar"
        return [Table(f"{self.task.name}: mined", ("what", "count"), rows, note)]


def mine(task: Task, model: str, folds: int, options: Options, out: Path | None, rule: Rule) -> Mined:
    """Run a fold each as an ordinary sweep, judge all training examples, and write weights and what to look at."""
    if task.kind != "classify":
        raise DanseoError(f"mine is for tasks with one label per example, and {task.name} is none")
    check_rule(rule)
    out = out or Path("mined") / f"{task.name}--{short_name(model)}"
    check_writable(out)
    runs = cross_fit(task, model, folds, options)
    train = find.load(task, "train", options.root)[: runs[0].config.limit or None]
    predictions = held_out_answers(task, train, runs)
    mined = Mined(task, judged(task, train, predictions, rule), rule, out, headline_of(task, train, predictions))
    write(mined, model, folds)
    return mined


def short_name(model: str) -> str:
    """The model's name as a part of a file's."""
    return re.sub("[/:@]+", "-", model_name(model))


def check_rule(rule: Rule) -> None:
    """Refuse numbers that make no sense together."""
    if not 1 <= rule.boost <= rule.cap:
        raise DanseoError(
            f"--boost {rule.boost:g} and --cap {rule.cap:g}: should be 1 or more, the cap not below the boost"
        )


def cross_fit(task: Task, model: str, folds: int, options: Options) -> list[Run]:
    """A run per fold, as a sweep makes them."""
    base = {"task": task.called, "model": model, "folds": folds}
    outcome = run_sweep(Sweep(Path(f"mine-{task.name}-{short_name(model)}"), base), options)
    if outcome.failed:
        raise PartlyDone(f"{len(outcome.failed)} of {folds} folds failed; the same command tries them again")
    return [record.run for record in outcome.records]


def held_out_answers(task: Task, train: Sequence[Any], runs: Sequence[Run]) -> list[Prediction]:
    """The answer to each training example of the run that did not learn from it."""
    found: dict[str, Prediction] = {}
    for run in runs:
        _, held = parted(task, train, run.config.folds, run.config.fold)
        answers = read_predictions(run.predictions_path("fold"), task, held, skip=task.needs_probabilities)
        found |= {answer.guid: answer for answer in answers}
    if missing := next((example.guid for example in train if example.guid not in found), None):
        raise DanseoError(f"no fold has answered {missing}; leave fold out of the settings")
    return [found[example.guid] for example in train]


def headline_of(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> float:
    others = [id_ for id_ in task.metrics if id_ != task.headline]
    return measure(task, examples, predictions, others)[task.headline].value()


def write(mined: Mined, model: str, folds: int) -> None:
    """The weights of all examples, and the list to look at as CSV and HTML."""
    task, doubtful, out = mined.task, mined.doubtful, mined.out
    write_weights(out / "weights.csv", {each.example.guid: round(each.weight, 4) for each in mined.judged})
    write_atomically(out / "review.csv", review_csv(task, doubtful))
    lead = (
        f"{model}, {folds} folds, each answered by a model that did not learn from it: "
        f"more than {mined.rule.sure:g} sure of another label than the one in the data. Either can be wrong."
    )
    write_atomically(out / "review.html", review_page(task, doubtful, f"{task.name}: labels to look at", lead))
