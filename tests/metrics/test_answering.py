"""Answer scores: normal forms of the official code, and the overlap against difflib."""

import re
import string
from difflib import SequenceMatcher

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danseo.metrics.answering import (
    best_overlap,
    exact_match,
    longest_common_substring,
    normalise,
    normalise_brackets,
    official_common_substring,
    overlap,
    rouge_w,
)

SHORT = st.text("가나다라 ab1", max_size=12)
LONG = st.lists(st.text("가나다라마바사아자차", min_size=1, max_size=8), min_size=40, max_size=60).map("".join)


def difflib_size(answer: str, gold: str) -> int:
    return SequenceMatcher(None, answer, gold).find_longest_match(0, len(answer), 0, len(gold)).size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('  "Abbey  Road" ', "abbey road"),
        ("《토지》", "《토지》"),
        ("<토지>", "토지"),
        ("‘토지’", "‘토지’"),
        ("A.B-C", "abc"),
        ("3.5%", "35"),
        ("'\"()‘’", ""),
        ("「토지」", "「토지」"),
        ("서울　중앙", "서울 중앙"),
        ('"()‘’x', "x"),
        ("(주)카카오", "주카카오"),
        ("서울", "서울"),
        ("KBS", "kbs"),
        ("", ""),
        ("...", ""),
    ],
)
def test_the_official_normal_form(text, expected):
    assert normalise(text) == expected


@given(st.text("가나Ab1 \t\u3000.,'\"()‘’《》İΣß"))
def test_a_normal_form_by_the_book(text):
    """The official steps in their plainest form; most texts take a shorter way."""
    kept = re.sub("['\"《》<>〈〉]\\(\\)‘’", "", text).lower()
    expected = " ".join("".join(c for c in kept if c not in string.punctuation).split())
    assert normalise(text) == expected


def test_brackets_go_where_they_were_meant_to():
    assert normalise_brackets("《토지》") == normalise_brackets("‘토지’") == normalise_brackets("「 토지 」") == "토지"


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        ("가나다", "가나다", 1.0),
        ("가나", "가나다라", 2 / 3),
        ("abc", "", 0.0),
        ("", "", 1.0),
        ("", "abc", 0.0),
        ("김가철수", "김철수", 4 / 7),
        ("가 나", "가나", 0.4),
    ],
)
def test_overlap_of_the_official_code(answer, gold, expected):
    assert overlap(answer, gold) == pytest.approx(expected)
    assert best_overlap([gold] if gold else [], answer) == pytest.approx(expected)


@settings(max_examples=300)
@given(SHORT, SHORT)
def test_common_substring_equals_difflib(answer, gold):
    assert (
        official_common_substring(answer, gold) == longest_common_substring(answer, gold) == difflib_size(answer, gold)
    )


@settings(max_examples=60, deadline=None)
@given(LONG, LONG, st.integers(0, 40), st.integers(1, 250))
def test_common_substring_of_long_golds(gold, other, start, length):
    """From 200 characters on difflib may miss the longest stretch: the official score follows it."""
    for answer in (gold, other, gold[start : start + length], other[:20] + gold[start : start + length]):
        found, true = official_common_substring(answer, gold), longest_common_substring(answer, gold)
        assert found <= true
        assert found == difflib_size(answer, gold) or len(gold) < 200
        matcher = SequenceMatcher(None, answer, gold, autojunk=False)
        assert true == matcher.find_longest_match(0, len(answer), 0, len(gold)).size


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.one_of(SHORT, LONG), max_size=3), st.one_of(SHORT, LONG)), min_size=1, max_size=5)
)
def test_rouge_w_equals_difflib(questions):
    golds, answers = zip(*questions, strict=True)
    expected = 0.0
    for gold, answer in questions:
        pairs = [(normalise(answer), normalise(text)) for text in gold or [""]]
        expected += max(2 * difflib_size(a, g) / (len(a) + len(g)) if a and g else float(a == g) for a, g in pairs)
    assert rouge_w(golds, answers).value() == pytest.approx(100 * expected / len(questions), abs=1e-9)


def test_the_heuristic_of_difflib_can_miss_everything():
    """All characters of the gold are frequent, so none is a seed, and the first ones differ."""
    gold = "가나" * 105
    assert rouge_w([[gold]], [gold[1:]]).value() == 0
    assert rouge_w([[gold]], [gold[1:]], longest_common_substring).value() == pytest.approx(100 * 418 / 419)
    assert rouge_w([[gold]], [gold]).value() == 100


def test_the_best_accepted_answer_counts():
    golds = [["1998년", "1998"], ["서울"], []]
    assert exact_match(golds, ["1998", "서울시", ""]).value() == pytest.approx(100 * 2 / 3)
    assert rouge_w(golds, ["1998", "서울시", ""]).value() == pytest.approx(100 * (1 + 0.8 + 1) / 3)


def test_an_answer_of_punctuation_is_no_answer():
    assert exact_match([[]], ["..."]).value() == rouge_w([[]], ["..."]).value() == 100


def test_exact_match_with_brackets():
    golds, answers = [["《토지》"], ["‘토지’"]], ["토지", "토지"]
    assert exact_match(golds, answers).value() == 0
    assert exact_match(golds, answers, normalise_brackets).value() == 100
