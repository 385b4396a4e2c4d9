"""What combiners promise: identity, no order, weights that count, and the numbers worked out by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from danseo.data.dev_split import split_indices
from danseo.runs.predictions import MemberSet, open_members
from danseo.scoring.score import measure
from danseo.tasks import TASKS
from danseo.tasktypes.combination import Combiner
from danseo.tasktypes.decoding import compute_character_probabilities
from danseo.tasktypes.parsing import vote_tree
from danseo.tasktypes.question_answering import pool_candidates
from danseo.tasktypes.tagging import arithmetic_mean

from ..conftest import ROOT

METHODS = ("prob", "logprob", "logit", "vote")
CASES = [(task, method) for task in TASKS for method in METHODS if task != "wos" or method == "vote"]
GOLDEN = ROOT / "tests" / "fixtures" / "ner_golden.json"


@pytest.fixture(scope="module")
def members(three, sample: Path) -> dict[str, MemberSet]:
    return {task: open_members(paths, str(sample)) for task, paths in three.items()}


def make_combiner(members: MemberSet, method: str) -> Combiner:
    return members.task.type.make_combiner(members, method)


def only(members: MemberSet, *positions: int) -> MemberSet:
    return replace(members, members=[members.members[position] for position in positions])


def state(prediction):
    """States are sets; other answers are what they are."""
    return (
        sorted(prediction.answer)
        if isinstance(prediction.answer, tuple) and prediction.guid.startswith("wos")
        else prediction.answer
    )


@pytest.mark.parametrize(("task", "method"), CASES)
def test_a_run_with_itself_changes_nothing(members, task, method):
    one = only(members[task], 0)
    combined, _ = make_combiner(only(members[task], 0, 0, 0), method)(np.ones(3))
    assert list(map(state, combined)) == list(map(state, one.members[0].predictions))
    for ours, theirs in zip(combined, one.members[0].predictions, strict=True):
        for key, value in (theirs.probabilities or {}).items():
            assert ours.probabilities[key] == pytest.approx(value, abs=5e-6)


@pytest.mark.parametrize("method", ["prob", "logprob", "logit"])
def test_the_threshold_of_no_answer_is_settled_on_the_select_half(members, method):
    """MemberSet that are far too shy, each in its own way: their average is not."""
    found, task = members["mrc"], TASKS["mrc"]
    shy = [
        replace(member, rows=[[*spans, ("", bar + 2 * (1 + position))] for *spans, (_, bar) in member.rows])
        for position, member in enumerate(found.members)
    ]
    usual, shifted = make_combiner(found, method), make_combiner(replace(found, members=shy), method)
    answers, kept = shifted(np.ones(3))
    assert shifted.threshold > 1
    values = [
        measure(task, found.examples, combiner(np.ones(3))[0])[task.headline].value() for combiner in (usual, shifted)
    ]
    silent = [replace(prediction, answer="") for prediction in answers]
    assert values[1] > max(values[0] - 10, measure(task, found.examples, silent)[task.headline].value() + 10)
    for prediction, (best, *_, none) in zip(answers, kept, strict=True):
        assert (prediction.answer == "") == (none[1] > best[1]), "what is kept has the threshold in it"
    select = set(split_indices(task, found.examples, "select"))
    other = [e if k in select else replace(e, gold=("다른 답",), starts=(0,)) for k, e in enumerate(found.examples)]
    again = make_combiner(replace(found, examples=other, members=shy), method)
    assert again(np.ones(3))[0] == answers, "the report split has no say"


@pytest.mark.parametrize(("task", "method"), CASES)
def test_weights_of_one_and_nothing_give_the_first(members, task, method):
    combined, _ = make_combiner(members[task], method)(np.array([1.0, 0.0, 0.0]))
    assert list(map(state, combined)) == list(map(state, members[task].members[0].predictions))


@pytest.mark.parametrize(("task", "method"), CASES)
def test_the_order_of_members_changes_nothing(members, task, method):
    weights = np.array([1.0, 2.0, 4.0])
    combined, _ = make_combiner(members[task], method)(weights)
    for order in ([2, 0, 1], [1, 0, 2]):
        other, _ = make_combiner(only(members[task], *order), method)(weights[order])
        assert list(map(state, other)) == list(map(state, combined))


@pytest.mark.parametrize(("task", "method"), CASES)
def test_three_are_better_than_one(members, task, method):
    """The made-up members err independently, so that any combiner should help."""
    found = members[task]
    combined, _ = make_combiner(found, method)(np.ones(3))
    score = measure(found.task, found.examples, combined)[found.task.headline].value()
    own = [measure(found.task, found.examples, m.predictions)[found.task.headline].value() for m in found.members]
    assert score > np.mean(own)
    for example, prediction in zip(found.examples, combined, strict=True):
        found.task.check_answer(example, prediction.answer)


def test_characters_of_two_tokenizers():
    """The golden vector: two models whose tokens differ, averaged on characters."""
    case = json.loads(GOLDEN.read_text(encoding="utf-8"))["char_level_ensemble_two_tokenizers"]
    labels, tables, voting = tuple(case["labels"]), [], []
    for model in case["models"]:
        logits = np.array(model["logits"])
        tokens = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        table, covered, _ = compute_character_probabilities(
            tokens, np.array(model["offsets"]), case["text_length"], labels
        )
        tables.append(table)
        voting.append(covered)
    mean, covered = arithmetic_mean(tables, voting, np.array([0.5, 0.5]))
    assert mean == pytest.approx(np.array(case["avg_char_probs"]), abs=1e-6)
    assert covered.all()
    assert [labels[position] for position in mean.argmax(axis=1)] == case["argmax"]


def test_span_probabilities_of_the_same_text_add_up():
    log = np.log
    members = [({"서울": log(0.5), "부산": log(0.4), "": log(0.1)}, 0.5), ({"부산": log(0.5), "": log(0.5)}, 0.5)]
    found = dict(pool_candidates(members, "prob"))
    assert {text: round(float(np.exp(score)), 6) for text, score in found.items()} == {
        "부산": 0.45,
        "서울": 0.25,
        "": 0.3,
    }
    assert list(found) == ["부산", "서울", ""]


def test_votes_for_heads_make_a_tree():
    """The majority of heads is a tree, or where it would be a cycle 1 -> 2 -> 1, the best tree there is."""
    trees = tuple(np.array(tree) for tree in ([(2, 0), (0, 1)], [(2, 0), (0, 1)], [(0, 2), (1, 3)]))
    assert vote_tree(trees, np.ones(3)).tolist() == [[2, 0], [0, 1]]
    cycle = (np.array([(2, 0), (1, 0), (0, 0)]), np.array([(2, 0), (1, 0), (0, 0)]), np.array([(3, 1), (1, 0), (0, 0)]))
    heads = vote_tree(cycle, np.ones(3))[:, 0].tolist()
    assert heads == [3, 1, 0]


def tagger(found: MemberSet, *sizes: int, rows: list[list[float]]) -> Any:
    """A member whose tokens have these sizes and distributions over B-PS, I-PS and O, for the first example."""
    labels, ends = found.task.labels, np.cumsum(sizes)
    tokens = np.zeros((len(sizes), len(labels)))
    tokens[:, [labels.index(tag) for tag in ("B-PS", "I-PS", "O")]] = rows
    offsets = np.stack([ends - sizes, ends], axis=1)
    table, _, starts = compute_character_probabilities(tokens, offsets, int(ends[-1]), labels)
    return replace(found.members[0].select([0]), rows=[table], token_starts=[starts])


@pytest.mark.parametrize("method", ["prob", "logprob"])
def test_members_with_the_same_tokens_are_decoded_on_tokens(members, method):
    """Else on characters, where a long token has the say of all of its characters."""
    found = members["ner"]
    example = replace(found.examples[0], text="김철수씨", gold=("O",) * 4)
    found = replace(found, examples=[example])
    same = tagger(found, 3, 1, rows=[[0.4, 0, 0.6], [0, 0.75, 0.25]])
    other = tagger(found, 3, 1, rows=[[0.41, 0, 0.59], [0, 0.74, 0.26]])
    split = tagger(found, 2, 1, 1, rows=[[0.4, 0, 0.6], [0, 0.4, 0.6], [0, 0.75, 0.25]])
    entity, none = ("B-PS", "I-PS", "I-PS", "I-PS"), ("O",) * 4
    without = replace(other, token_starts=None)  # a run from before they were kept, or another sort of model
    for second, expected in ((other, entity), (split, none), (without, none)):
        combiner = make_combiner(replace(found, members=[same, second]), method)
        predictions, _ = combiner(np.ones(2))
        assert predictions[0].answer == expected
        assert combiner.token_starts[0].all() == (expected == none)
