"""What blends promise: identity, no order, weights that count, and the numbers worked out by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from danseo.data.halves import in_half
from danseo.ensembling.blend import METHODS, make_blend
from danseo.ensembling.numbers import median
from danseo.ensembling.spans import pooled
from danseo.ensembling.tags import average, geometric
from danseo.ensembling.trees import voted
from danseo.predictions.viterbi import character_probabilities
from danseo.runs.answers import Members, open_members
from danseo.scoring.score import measure
from danseo.tasks import TASKS

from ..conftest import ROOT

CASES = [(task, method) for task in TASKS for method in METHODS if task != "wos" or method == "vote"]
GOLDEN = ROOT / "tests" / "fixtures" / "ner_golden.json"


@pytest.fixture(scope="module")
def members(three, sample: Path) -> dict[str, Members]:
    return {task: open_members(paths, str(sample)) for task, paths in three.items()}


def only(members: Members, *positions: int) -> Members:
    return replace(members, listed=[members.listed[position] for position in positions])


def state(prediction):
    """States are sets; other answers are what they are."""
    return (
        sorted(prediction.answer)
        if isinstance(prediction.answer, tuple) and prediction.guid.startswith("wos")
        else prediction.answer
    )


@pytest.mark.parametrize(("task", "method"), CASES)
@pytest.mark.parametrize("copies", [2, 3])
def test_a_run_with_itself_changes_nothing(members, task, method, copies):
    one = only(members[task], 0)
    blended, _ = make_blend(only(members[task], *[0] * copies), method)(np.ones(copies))
    assert list(map(state, blended)) == list(map(state, one.listed[0].predictions))
    for ours, theirs in zip(blended, one.listed[0].predictions, strict=True):
        for key, value in (theirs.probabilities or {}).items():
            assert ours.probabilities[key] == pytest.approx(value, abs=5e-6)


@pytest.mark.parametrize("method", ["prob", "logprob", "logit"])
def test_the_threshold_of_no_answer_is_settled_on_the_select_half(members, method):
    """Members that are far too shy, each in its own way: their average is not."""
    found, task = members["mrc"], TASKS["mrc"]
    shy = [
        replace(member, kept=[[*spans, ("", bar + 2 * (1 + position))] for *spans, (_, bar) in member.kept])
        for position, member in enumerate(found.listed)
    ]
    usual, shifted = make_blend(found, method), make_blend(replace(found, listed=shy), method)
    answers, kept = shifted(np.ones(3))
    assert shifted.threshold > 1
    values = [measure(task, found.examples, blend(np.ones(3))[0])[task.headline].value() for blend in (usual, shifted)]
    silent = [replace(prediction, answer="") for prediction in answers]
    assert values[1] > max(values[0] - 10, measure(task, found.examples, silent)[task.headline].value() + 10)
    for prediction, (best, *_, none) in zip(answers, kept, strict=True):
        assert (prediction.answer == "") == (none[1] > best[1]), "what is kept has the threshold in it"
    select = set(in_half(task, found.examples, "select"))
    other = [e if k in select else replace(e, gold=("다른 답",), starts=(0,)) for k, e in enumerate(found.examples)]
    again = make_blend(replace(found, examples=other, listed=shy), method)
    assert again(np.ones(3))[0] == answers, "the report half has no say"


@pytest.mark.parametrize("method", ["prob", "logprob", "logit"])
def test_probabilities_of_sure_members_keep_their_order(members, method):
    """Nothing is rounded, so that areas under curves can tell one sure answer from another."""
    one = members["re"].listed[0]
    wanted = [10.0 ** -(9 + k % 20) for k in range(len(one.predictions))]
    rows = [
        replace(p, probabilities={**dict.fromkeys(TASKS["re"].labels, least), p.answer: 1.0})
        for p, least in zip(one.predictions, wanted, strict=True)
    ]
    twice = replace(members["re"], listed=[replace(one, predictions=rows)] * 2)
    blended, _ = make_blend(twice, method)(np.ones(2))
    assert [min(p.probabilities.values()) / least for p, least in zip(blended, wanted, strict=True)] == pytest.approx(
        [1.0] * len(wanted), rel=1e-6
    )


@pytest.mark.parametrize(("task", "method"), CASES)
def test_weights_of_one_and_nothing_give_the_first(members, task, method):
    blended, _ = make_blend(members[task], method)(np.array([1.0, 0.0, 0.0]))
    assert list(map(state, blended)) == list(map(state, members[task].listed[0].predictions))


@pytest.mark.parametrize(("task", "method"), CASES)
def test_the_order_of_members_changes_nothing(members, task, method):
    weights = np.array([1.0, 2.0, 4.0])
    blended, _ = make_blend(members[task], method)(weights)
    for order in ([2, 0, 1], [1, 0, 2]):
        other, _ = make_blend(only(members[task], *order), method)(weights[order])
        assert list(map(state, other)) == list(map(state, blended))


@pytest.mark.parametrize(("task", "method"), CASES)
def test_three_are_better_than_one(members, task, method):
    """The made-up members err independently, so that any blend should help."""
    found = members[task]
    blended, _ = make_blend(found, method)(np.ones(3))
    score = measure(found.task, found.examples, blended)[found.task.headline].value()
    own = [measure(found.task, found.examples, m.predictions)[found.task.headline].value() for m in found.listed]
    assert score > np.mean(own)
    for example, prediction in zip(found.examples, blended, strict=True):
        found.task.check_answer(example, prediction.answer)


def test_what_is_kept_makes_ensembles_of_ensembles(members):
    """The kept part of a blend with itself is the kept part of the member."""
    for task in ("ner", "dp", "mrc"):
        member = members[task].listed[0]
        _, kept = make_blend(only(members[task], 0, 0), "logit")(np.ones(2))
        first, before = kept[0], member.kept[0]
        if task == "mrc":
            assert dict(first) == pytest.approx(dict(before))
        elif task == "dp":
            assert np.allclose(first[0], before[0], atol=0.01)
            assert (first[1] == before[1]).all()
        else:
            assert np.allclose(first, before, atol=2e-3)


def test_characters_of_two_tokenizers():
    """The golden vector: two models whose pieces differ, averaged on characters."""
    case = json.loads(GOLDEN.read_text(encoding="utf-8"))["char_level_ensemble_two_tokenizers"]
    labels, tables, voting = tuple(case["labels"]), [], []
    for model in case["models"]:
        logits = np.array(model["logits"])
        pieces = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        table, covered = character_probabilities(pieces, np.array(model["offsets"]), case["text_length"], labels)
        tables.append(table)
        voting.append(covered)
    mean, covered = average(tables, voting, np.array([0.5, 0.5]))
    assert mean == pytest.approx(np.array(case["avg_char_probs"]), abs=1e-6)
    assert covered.all()
    assert [labels[position] for position in mean.argmax(axis=1)] == case["argmax"]


def test_who_does_not_cover_a_character_has_no_vote():
    one, two = np.array([[0.8, 0.2], [0.0, 0.0]]), np.array([[0.4, 0.6], [0.5, 0.5]])
    voting = [table.any(axis=1) for table in (one, two)]
    table, covered = average([one, two], voting, np.array([0.25, 0.75]))
    assert table == pytest.approx(np.array([[0.5, 0.5], [0.5, 0.5]]))
    table, covered = geometric([one, two], voting, np.array([0.5, 0.5]))
    assert table[0, 0] / table[0, 1] == pytest.approx(np.sqrt(0.8 * 0.4 / (0.2 * 0.6)))
    assert covered.all()
    nobody, covered = average([one[1:]], [voting[0][1:]], np.array([1.0]))
    assert not covered.any()
    assert not nobody.any()


def test_averages_of_logits_and_of_probabilities_differ():
    """An over-confident member weighs more in logits: 0.99 against 0.3 and 0.3, by hand."""
    tables = [np.array([[p, 1 - p]]) for p in (0.99, 0.3, 0.3)]
    voting, weights = [np.array([True])] * 3, np.full(3, 1 / 3)
    assert average(tables, voting, weights)[0][0, 0] == pytest.approx(0.53)
    odds = (99 * (3 / 7) ** 2) ** (1 / 3)
    assert geometric(tables, voting, weights)[0][0, 0] == pytest.approx(odds / (1 + odds))


def test_weighted_median():
    table = np.array([[1.0, 5.0], [2.0, 1.0], [4.0, 3.0]])
    assert median(table, np.full(3, 1 / 3)).tolist() == [2.0, 3.0]
    assert median(table[:2], np.array([0.5, 0.5])).tolist() == [1.5, 3.0]
    assert median(table, np.array([0.0, 1.0, 0.0])).tolist() == [2.0, 1.0]
    assert median(table, np.array([0.2, 0.2, 0.6])).tolist() == [4.0, 3.0]


def test_span_probabilities_of_the_same_text_add_up():
    log = np.log
    members = [({"서울": log(0.5), "부산": log(0.4), "": log(0.1)}, 0.5), ({"부산": log(0.5), "": log(0.5)}, 0.5)]
    found = dict(pooled(members, "prob"))
    assert {text: round(float(np.exp(score)), 6) for text, score in found.items()} == {
        "부산": 0.45,
        "서울": 0.25,
        "": 0.3,
    }
    assert list(found) == ["부산", "서울", ""]


def test_votes_for_heads_make_a_tree():
    """The majority of heads is a tree, or where it would be a cycle 1 -> 2 -> 1, the best tree there is."""
    trees = tuple(np.array(tree) for tree in ([(2, 0), (0, 1)], [(2, 0), (0, 1)], [(0, 2), (1, 3)]))
    assert voted(trees, np.ones(3)).tolist() == [[2, 0], [0, 1]]
    cycle = (np.array([(2, 0), (1, 0), (0, 0)]), np.array([(2, 0), (1, 0), (0, 0)]), np.array([(3, 1), (1, 0), (0, 0)]))
    heads = voted(cycle, np.ones(3))[:, 0].tolist()
    assert heads == [3, 1, 0]
