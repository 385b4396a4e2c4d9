"""Scores of dialogue states by hand and against sets."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danseo.metrics.dialogue_state import joint_goal, pooled_f1, turn_f1

VALUES = ["식당-종류-한식당", "식당-지역-서울 중앙", "숙소-가격대-dontcare", "택시-종류-", "관광-이름-남산-타워"]
STATES = st.lists(st.tuples(*[st.lists(st.sampled_from(VALUES), unique=True)] * 2), min_size=1, max_size=12)


def test_empty_states():
    assert turn_f1([[]], [[]]).value() == 100
    assert turn_f1([[]], [VALUES[:1]]).value() == turn_f1([VALUES[:1]], [[]]).value() == 0
    assert math.isnan(pooled_f1([[]], [[]]).value())


def test_repeated_value():
    """A right one counts once, a wrong one each time, as in the official code."""
    right, wrong = VALUES[:2]
    assert turn_f1([[right]], [[right, right]]).value() == joint_goal([[right]], [[right, right]]).value() == 100
    assert turn_f1([[right]], [[right, wrong, wrong]]).value() == pytest.approx(50)


@given(STATES)
def test_scores_equal_sets(states):
    golds, answers = zip(*states, strict=True)
    sides = [(set(gold), set(answer)) for gold, answer in states]
    per_turn = [2 * len(g & a) / (len(g) + len(a)) if g or a else 1.0 for g, a in sides]
    assert joint_goal(golds, answers).value() == pytest.approx(100 * sum(g == a for g, a in sides) / len(sides))
    assert turn_f1(golds, answers).value() == pytest.approx(100 * sum(per_turn) / len(sides))
    if total := sum(len(g) + len(a) for g, a in sides):
        pooled = 200 * sum(len(g & a) for g, a in sides) / total
        assert pooled_f1(golds, answers).value() == pytest.approx(pooled)
