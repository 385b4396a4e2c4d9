"""danseo mine: train on all folds but one, predict that one, and find hard examples and likely label errors."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.data import find
from danseo.data.dev_split import split_fold
from danseo.data.prediction_file import read_predictions
from danseo.display.escaping import BYTE_ORDER_MARK, to_csv
from danseo.display.table import Table
from danseo.errors import DanseoError, PartlyDone
from danseo.files import check_writable, write_atomically
from danseo.records import Prediction
from danseo.runs.naming import shorten_model
from danseo.runs.store import Run
from danseo.runs.training_data import write_weights
from danseo.scoring.score import compute_headline
from danseo.sweeps.preparation import SweepOptions
from danseo.sweeps.sweep import run_sweep
from danseo.sweeps.sweep_file import Sweep
from danseo.tasktypes.base import Task


@dataclass(frozen=True)
class MiningRule:
    """Which examples are hard, and which are likely mislabelled."""

    threshold: float = 0.55
    """An example is hard if the probability of its label is below this."""
    boost: float = 2.0
    """The weight at the threshold; lower probabilities get higher weights."""
    cap: float = 4.0
    """The largest weight."""
    min_confidence: float = 0.95
    """Examples with more confidence than this in another label are to be reviewed, and get weight 1."""

    def weight(self, probability: float) -> float:
        """Return the weight of an example whose own label has this probability."""
        if probability >= self.threshold:
            return 1.0
        return min(self.cap, self.boost * self.threshold / max(probability, 1e-9))


@dataclass(frozen=True)
class JudgedExample:
    """A training example, the prediction of a model that was not trained on it, and its weight."""

    example: Any
    prediction: Prediction
    weight: float
    is_doubtful: bool
    """Whether its label is likely wrong."""

    @property
    def own(self) -> float:
        """The probability of its label."""
        return dict(self.prediction.probabilities or {}).get(self.example.gold, 0.0)

    @property
    def confidence(self) -> float:
        """The probability of the answer."""
        return dict(self.prediction.probabilities or {}).get(self.prediction.answer, 0.0)


def judge_examples(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], rule: MiningRule
) -> list[JudgedExample]:
    """Judge every example by the rule; if a task has a label for nothing, only examples with it can be hard."""
    return [_judge(task, *pair, rule) for pair in zip(examples, predictions, strict=True)]


def _judge(task: Task, example: Any, prediction: Prediction, rule: MiningRule) -> JudgedExample:
    if prediction.probabilities is None:
        raise DanseoError(f"the prediction for {example.guid} has no probabilities; mining needs them")
    if task.nothing and example.gold != task.nothing:
        return JudgedExample(example, prediction, 1.0, is_doubtful=False)
    others = dict(prediction.probabilities)
    own = others.pop(example.gold, 0.0)
    is_doubtful = max(others.values(), default=0.0) > rule.min_confidence
    return JudgedExample(example, prediction, 1.0 if is_doubtful else rule.weight(own), is_doubtful)


@dataclass(frozen=True)
class MiningResult:
    """The judged training examples, and where the files about them are."""

    task: Task
    judged: list[JudgedExample]
    rule: MiningRule
    out: Path
    score: float
    """The headline metric of the predictions for examples that their model was not trained on."""

    @property
    def doubtful(self) -> list[JudgedExample]:
        """The examples to review, the most confident predictions first."""
        return sorted((each for each in self.judged if each.is_doubtful), key=lambda each: -each.confidence)

    def as_dict(self) -> dict[str, Any]:
        relevant = [each for each in self.judged if self.task.nothing in ("", each.example.gold)]
        wrong = [each.confidence for each in relevant if each.prediction.answer != each.example.gold]
        return {
            "examples": len(self.judged),
            "looked_at": len(relevant),
            "hard": sum(each.weight > 1 for each in relevant),
            "at_the_cap": sum(each.weight >= self.rule.cap for each in relevant),
            "to_review": len(self.doubtful),
            "surest_other_label": max(wrong, default=None),
            self.task.headline: self.score,
            "weights": str(self.out / "weights.csv"),
            "review": [str(self.out / "review.csv"), str(self.out / "review.html")],
        }

    def tables(self) -> list[Table]:
        found, rule = self.as_dict(), self.rule
        which = f"labelled {self.task.nothing}" if self.task.nothing else "of any label"
        rows: list[tuple[object, ...]] = [
            ("training examples", found["examples"]),
            (f"of them {which}", found["looked_at"]),
            (
                f"hard: less than {rule.threshold:g} for their own label, weight {rule.boost:g} to {rule.cap:g}",
                found["hard"],
            ),
            (f"likely mislabelled: more than {rule.min_confidence:g} for another label, weight 1", found["to_review"]),
            (f"{self.task.headline} of the folds together", self.score),
        ]
        note = f"{found['weights']} is for --set train.example_weights=FILE; look at {found['review'][1]}"
        if not found["to_review"] and found["surest_other_label"] is not None:
            highest = f"{found['surest_other_label']:.2f}"
            note += f"\nthe highest probability of another label is {highest}; --min-confidence sets the threshold"
        return [Table(f"{self.task.name}: mined", ("what", "count"), rows, note)]


def mine(task: Task, model: str, folds: int, options: SweepOptions, out: Path | None, rule: MiningRule) -> MiningResult:
    """Run the folds as an ordinary sweep, judge all training examples, and write weights and the list to review."""
    if not task.type.has_single_label:
        raise DanseoError(f"mine is for tasks with one label per example, and {task.name} is none")
    if not 1 <= rule.boost <= rule.cap:
        raise DanseoError(
            f"--boost {rule.boost:g} and --cap {rule.cap:g}: should be 1 or more, the cap not below the boost"
        )
    out = out or Path("mined") / f"{task.name}--{short_name(model)}"
    check_writable(out)
    runs = cross_fit(task, model, folds, options)
    train = find.load(task, "train", options.root)[: runs[0].config.max_train_samples or None]
    predictions = collect_held_out(task, train, runs)
    judged, score = judge_examples(task, train, predictions, rule), compute_headline(task, train, predictions)
    mined = MiningResult(task, judged, rule, out, score)
    write_files(mined)
    return mined


def short_name(model: str) -> str:
    """Return the model's name as part of a file name."""
    return re.sub("[/:@]+", "-", shorten_model(model))


def cross_fit(task: Task, model: str, folds: int, options: SweepOptions) -> list[Run]:
    """Train one run per fold."""
    base = {"task": task.settings_name, "model": model, "n_folds": folds}
    outcome = run_sweep(Sweep(Path(f"mine-{task.name}-{short_name(model)}"), base), options)
    if outcome.failed_runs:
        raise PartlyDone(f"{len(outcome.failed_runs)} of {folds} folds failed; the same command tries them again")
    return [record.run for record in outcome.records]


def collect_held_out(task: Task, train: Sequence[Any], runs: Sequence[Run]) -> list[Prediction]:
    """Return the prediction for each training example by the run that was not trained on it."""
    found: dict[str, Prediction] = {}
    for run in runs:
        _, held = split_fold(task, train, run.config.n_folds, run.config.fold)
        answers = read_predictions(run.predictions_path("fold"), task, held, skip=task.needs_probabilities)
        found |= {answer.guid: answer for answer in answers}
    if missing := next((example.guid for example in train if example.guid not in found), None):
        raise DanseoError(f"no fold has predicted {missing}; leave fold out of the settings")
    return [found[example.guid] for example in train]


def write_files(mined: MiningResult) -> None:
    """Write the weights of all examples, and the list of likely label errors as CSV."""
    weights = {each.example.guid: round(each.weight, 4) for each in mined.judged}
    write_weights(mined.out / "weights.csv", weights)
    write_atomically(mined.out / "review.csv", BYTE_ORDER_MARK + review_csv(mined.task, mined.doubtful))


def _input_texts(task: Task, judged: JudgedExample) -> dict[str, str]:
    """Return the input texts of an example by name: text or pair, choices, entities."""
    example = judged.example
    if hasattr(example, "subject"):
        entities = {"subject": example.subject, "object": example.object}
        return {"sentence": example.text} | {role: f"{e.word} ({e.type})" for role, e in entities.items()}
    pair = getattr(example, "pair", None)
    choices = {"choices": " / ".join(example.choices)} if hasattr(example, "choices") else {}
    texts = (example.text,) if pair is None else (example.text, pair)
    return dict(zip(task.parts, texts, strict=False)) | choices


def review_csv(task: Task, doubtful: Sequence[JudgedExample]) -> str:
    """Return one row per example: its label, the prediction with its confidence, and the input texts."""
    texts = [_input_texts(task, each) for each in doubtful]
    named = list(texts[0]) if texts else list(task.parts)
    header = ["guid", "gold", "answer", "confidence", "of_gold", *named]
    rows = [
        [e.example.guid, e.example.gold, e.prediction.answer, round(e.confidence, 4), round(e.own, 4), *parts.values()]
        for e, parts in zip(doubtful, texts, strict=True)
    ]
    return to_csv([header, *rows])
