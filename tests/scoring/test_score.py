"""What holds for every metric of every task, on the built-in sample."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from danseo.display.table import shown_interval
from danseo.metrics.tagging import spans_of
from danseo.records import Prediction, TextExample
from danseo.scoring.baselines import NAMES, baseline
from danseo.scoring.score import Score, example_clusters, measure, score
from danseo.scoring.subword import METRICS as SUBWORD_METRICS
from danseo.scoring.subword import subword_statistics
from danseo.tasks import TASKS
from danseo.tasks.task import Task

NAMED = pytest.mark.parametrize("name", TASKS)
RANKED = TASKS["re"].needs_probabilities


@pytest.fixture(scope="session")
def dev(sample: Path) -> dict[str, list[Any]]:
    return {name: task.read(sample / task.folder / task.file("dev")) for name, task in TASKS.items()}


def predictions_of(examples: Sequence[Any], answers: Sequence[Any], task: Task) -> list[Prediction]:
    """Answers as predictions; where probabilities are asked for, all goes to the answer."""
    return [
        Prediction(example.guid, answer, {answer: 1.0} if task.needs_probabilities else None)
        for example, answer in zip(examples, answers, strict=True)
    ]


def worse(task: Task, example: Any, rng: random.Random) -> Any:
    """A wrong answer, near the gold one where there is room for degrees."""
    gold = example.gold
    if task.kind == "classify":
        return rng.choice([label for label in task.labels if label != gold])
    if task.kind == "score":
        return 5 - gold
    if task.kind == "tag":
        return worse_tags(gold, rng)
    if task.kind == "parse":
        position = rng.randrange(len(gold))
        heads = [head for head in range(len(gold) + 1) if head != gold[position][0]]
        return (*gold[:position], (rng.choice(heads), rng.choice(task.labels)), *gold[position + 1 :])
    if task.kind == "answer":
        return rng.choice(["", gold[0][:1] + "?", "아니다"]) if gold else "아니다"
    return gold[1:] if gold and rng.random() < 0.5 else (*gold[:-1], "식당-이름-없는 집")


def worse_tags(gold: Sequence[str], rng: random.Random) -> tuple[str, ...]:
    """One entity missed, renamed or cut short; an invented one where there is none."""
    tags, spans = list(gold), list(spans_of(gold))
    if not spans:
        return ("B-PS", *tags[1:])
    start, end, name = rng.choice(spans)
    other = rng.choice([other for other in ("PS", "LC", "OG", "DT", "TI", "QT") if other != name])
    tags[start:end] = rng.choice(
        [
            ["O"] * (end - start),
            [f"B-{other}", *[f"I-{other}"] * (end - start - 1)],
            ["O", *([f"B-{name}", *[f"I-{name}"] * (end - start - 2)] if end - start > 1 else [])],
        ]
    )
    return tuple(tags)


def mixed(task: Task, examples: Sequence[Any], seed: int = 0) -> list[Prediction]:
    """Right and wrong answers; relations with probabilities of all labels."""
    rng = random.Random(seed)
    answers = [worse(task, e, rng) if rng.random() < 0.4 else a.answer for e, a in zip_oracle(task, examples)]
    predictions = predictions_of(examples, answers, task)
    if not task.needs_probabilities:
        return predictions
    rows = np.random.default_rng(seed).dirichlet(np.ones(len(task.labels)), len(examples)).round(2)
    graded = [dict(zip(task.labels, map(float, row), strict=True)) for row in rows]
    return [Prediction(p.guid, p.answer, {**g, p.answer: 0.9}) for p, g in zip(predictions, graded, strict=True)]


def zip_oracle(task: Task, examples: Sequence[Any]):
    return zip(examples, baseline("oracle", task, examples), strict=True)


def values(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
    return {id_: statistic.value() for id_, statistic in measure(task, examples, predictions).items()}


@NAMED
def test_perfect_answers_score_100_but_nobody_is_sure_of_it(dev, name):
    """In every metric, and in every resample, so that the interval is about the examples that were not seen.

    No official definition stands in the way on the sample: all 30 relations occur in it, no answer is so long that
    difflib may miss it, and without a wrong head the LAS has no WRONG class.
    """
    task, examples = TASKS[name], dev[name]
    scores = score(task, examples, baseline("oracle", task, examples), rounds=50)
    assert [s.id for s in scores] == list(task.metrics)
    clusters = len(set(example_clusters(task, examples)))
    for s in scores:
        assert (s.value, s.high) == pytest.approx((100, 100), abs=1e-9), s.id
        assert s.low < 100 * 0.025 ** (1 / clusters) + 1e-9, s.id


@NAMED
def test_one_example_says_next_to_nothing(dev, name):
    """Whatever it scores: there is nothing to resample."""
    task, examples = TASKS[name], dev[name][:1]
    for answers in (baseline("oracle", task, examples), mixed(task, examples), mixed(task, examples, seed=1)):
        for s in score(task, examples, answers, rounds=50):
            assert math.isnan(s.value) or s.high - s.low > 95, s


@NAMED
def test_order_plays_no_part(dev, name):
    task, examples = TASKS[name], dev[name]
    predictions = mixed(task, examples)
    order = random.Random(1).sample(range(len(examples)), len(examples))
    moved = values(task, [examples[k] for k in order], [predictions[k] for k in order])
    assert moved == pytest.approx(values(task, examples, predictions), abs=1e-9)


@NAMED
def test_one_weight_each_is_the_score_itself(dev, name):
    task, examples = TASKS[name], dev[name]
    for statistic in measure(task, examples, mixed(task, examples)).values():
        ones = np.ones((2, len(examples)))
        assert statistic.values(ones) == pytest.approx([statistic.value()] * 2, abs=1e-9)


@NAMED
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_repetitions(dev, name, seed):
    task, examples = TASKS[name], dev[name]
    predictions = mixed(task, examples, seed)
    weights = np.random.default_rng(seed).integers(0, 4, len(examples))
    rows = np.repeat(np.arange(len(examples)), weights)
    repeated = values(task, [examples[row] for row in rows], [predictions[row] for row in rows])
    for id_, statistic in measure(task, examples, predictions).items():
        assert statistic.values(weights[None])[0] == pytest.approx(repeated[id_], abs=1e-9, nan_ok=True), id_


@NAMED
def test_exchanged_answers_are_scored_as_such(dev, name):
    """Comparisons exchange the answers of two systems, which may have answered different labels."""
    task, examples = TASKS[name], dev[name][:60]
    systems = [baseline("oracle", task, examples), mixed(task, examples), baseline("random", task, examples)]
    swap = np.stack([np.zeros(60), np.ones(60), np.arange(60) % 2])
    for a, b in ((0, 1), (1, 2), (2, 0)):
        measured = [measure(task, examples, systems[k]) for k in (a, b)]
        changed = [
            [x if keep else y for x, y, keep in zip(systems[k], systems[j], swap[2] == 0, strict=True)]
            for k, j in ((a, b), (b, a))
        ]
        if task.name == "sts":  # standardised per system before they are exchanged
            changed = []
        expected = [values(task, examples, predictions) for predictions in changed]
        for id_, statistic in measured[0].items():
            found = statistic.exchanged(measured[1][id_], swap)
            own = [statistic.value(), measured[1][id_].value()]
            assert [side[0] for side in found] == pytest.approx(own, abs=1e-9, nan_ok=True), id_
            assert [side[1] for side in found] == pytest.approx(own[::-1], abs=1e-9, nan_ok=True), id_
            for side, exchanged in zip(found, expected, strict=False):
                assert side[2] == pytest.approx(exchanged[id_], abs=1e-9, nan_ok=True), id_


@pytest.mark.parametrize(
    "name", [name for name, task in TASKS.items() if any("@official" not in id_ for id_ in task.metrics)]
)
@pytest.mark.parametrize("seed", range(3))
def test_worse_answers_never_score_higher(dev, name, seed):
    """One right answer after another goes wrong, and no corrected metric rises on the way.

    Areas under curves may rise with a single answer, in a label that is answered worse than by chance; they are
    looked at in steps of a quarter. The official macro forms promise nothing.
    """
    task, rng = TASKS[name], random.Random(seed)
    examples = rng.sample(dev[name], 40)
    answers = [prediction.answer for prediction in baseline("oracle", task, examples)]
    corrected = [id_ for id_ in task.metrics if "@official" not in id_]
    before = dict.fromkeys(corrected, 100.0)
    for done in range(len(examples) + 1):
        now = values(task, examples, predictions_of(examples, answers, task))
        for id_ in corrected:
            if not math.isnan(now[id_]) and (id_ not in RANKED or done % 10 == 0):
                assert now[id_] <= before[id_] + 1e-9, (id_, done)
                before[id_] = now[id_]
        if done < len(examples):
            answers[done] = worse(task, examples[done], rng)
    assert all(before[id_] < 100 for id_ in corrected)


@NAMED
@pytest.mark.parametrize("floor", ["majority", "random"])
def test_floors_lie_below_the_ceiling(dev, name, floor):
    task, examples = TASKS[name], dev[name]
    assert set(NAMES) == {"oracle", "majority", "random"}
    for id_, value in values(task, examples, baseline(floor, task, examples)).items():
        assert math.isnan(value) or value < 99, id_


@NAMED
def test_intervals_hold_the_score_and_repeat(dev, name):
    task, examples = TASKS[name], dev[name]
    predictions = mixed(task, examples)
    first, second, other = (score(task, examples, predictions, rounds=200, seed=seed) for seed in (0, 0, 1))
    assert first == second != other
    for s in first:
        assert s.low <= s.value <= s.high
        assert s.n == len(examples)


@pytest.mark.parametrize(("name", "attribute"), [("mrc", "text"), ("wos", "dialogue"), ("nli", "text"), ("re", "guid")])
def test_clusters(dev, name, attribute):
    clusters = example_clusters(TASKS[name], dev[name])
    keys = [getattr(example, attribute) for example in dev[name]]
    assert len(set(clusters)) == len(set(keys)) == len(set(zip(clusters, keys, strict=True)))


def test_absent_labels_are_named(dev):
    task, examples = TASKS["re"], dev["re"][:5]
    scores = {s.id: s for s in score(task, examples, baseline("oracle", task, examples), rounds=20)}
    official = scores["re/auprc@official-1"]
    assert math.isnan(official.value)
    assert "labels do not occur in gold" in official.note
    assert official.as_dict()["value"] is official.as_dict()["interval"] is None
    assert scores["re/auprc@present-1"].value == 100


def test_one_number_for_all_has_no_correlation(dev):
    task, examples = TASKS["sts"], dev["sts"]
    pearson, f1 = score(task, examples, baseline("majority", task, examples), rounds=0)
    assert math.isnan(pearson.value)
    assert "the same number" in pearson.note
    assert not f1.note


def test_skipping_and_order(dev):
    task, examples = TASKS["re"], dev["re"]
    predictions = [Prediction(p.guid, p.answer) for p in baseline("oracle", task, examples)]
    assert [s.id for s in score(task, examples, predictions, rounds=0)] == [m for m in task.metrics if m not in RANKED]
    kept = score(task, examples, predictions, rounds=0, skip=["re/accuracy@plain-1"])
    assert "re/accuracy@plain-1" not in [s.id for s in kept]
    with pytest.raises(ValueError, match="same order"):
        score(task, examples, predictions[::-1])


def test_intervals_as_they_are_shown():
    assert shown_interval(-0.001, 3.456) == "0.00 – 3.46"
    assert shown_interval(-0.001, 3.456, signed=True) == "+0.00 … +3.46"
    assert shown_interval(math.nan, math.nan) is None


def test_a_score_as_json():
    assert Score("x/y@z-1", 50.0, 40.0, 60.0, 10).as_dict() == {
        "id": "x/y@z-1",
        "value": 50.0,
        "interval": [40.0, 60.0],
        "n": 10,
    }
    assert Score("x/y@z-1", 50.0, math.nan, math.nan, 10).as_dict()["interval"] is None


@dataclass
class Encoding:
    """What a tokenizer returns, as far as it is read."""

    offsets: list[tuple[int, int]]


class PairTokenizer:
    """Cuts a text into pieces of two characters, between two special pieces."""

    def encode(self, text: str) -> Encoding:
        pieces = [(start, min(start + 2, len(text))) for start in range(0, len(text), 2)]
        return Encoding([(0, 0), *pieces, (0, 0)])


def test_special_pieces_are_one_o_each():
    """The pieces of a blank answer: O is right for itself and for [CLS] and [SEP]."""
    task, examples = (
        TASKS["ner"],
        [
            TextExample("a", text="철수가", gold=("B-PS", "I-PS", "O")),
            TextExample("b", text="그는 간다", gold=("O",) * 5),
        ],
    )
    blank = baseline("majority", task, examples)
    extra = subword_statistics(examples, blank, PairTokenizer(), batch=2)
    expected = (
        100 * (11 + 2 * 3 / (4 + 3)) / 13
    )  # [CLS] 철수 가 [SEP]: three of four are O in gold; I-PS is no first character
    assert extra["ner/char_f1@subword-1"].value() == pytest.approx(expected)


def test_scores_on_pieces(dev):
    """A wrong tag on the second character of a piece is not seen, nor anything in the longest sentence of a batch."""
    task, examples = TASKS["ner"], sorted(dev["ner"], key=lambda example: len(example.text))
    right = baseline("oracle", task, examples)
    hidden = [
        Prediction(p.guid, tuple(tag if k % 2 == 0 else "O" for k, tag in enumerate(p.answer))) for p in right[:-1]
    ]
    blank = Prediction(right[-1].guid, ("O",) * len(right[-1].answer))
    extra = subword_statistics(examples, [*hidden, blank], PairTokenizer(), batch=len(examples))
    assert list(extra) == list(SUBWORD_METRICS)
    assert [statistic.value() for statistic in extra.values()] == pytest.approx([100, 100])
    scores = score(task, examples, [*hidden, blank], rounds=20, extra=extra)
    assert [s.id for s in scores] == [*task.metrics, *SUBWORD_METRICS]
    assert scores[0].value < 50
