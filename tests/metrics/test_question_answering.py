"""Answer scores: normal forms of the official code, and the overlap against difflib."""

import re
import string
from difflib import SequenceMatcher

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danseo.metrics.question_answering import (
    exact_match,
    longest_common_substring,
    normalize,
    normalize_brackets,
    official_common_substring,
    rouge_w,
)

SHORT = st.text("가나다라 ab1", max_size=12)
LONG = st.lists(st.text("가나다라마바사아자차", min_size=1, max_size=8), min_size=40, max_size=60).map("".join)


def difflib_size(answer: str, gold: str, **options: bool) -> int:
    return SequenceMatcher(None, answer, gold, **options).find_longest_match(0, len(answer), 0, len(gold)).size


@given(st.text("가나Ab1 \t\u3000.,'\"()‘’《》<>「」İΣß"))
def test_normal_form_equals_the_official_steps(text):
    kept = re.sub("['\"《》<>〈〉]\\(\\)‘’", "", text).lower()
    assert normalize(text) == " ".join("".join(c for c in kept if c not in string.punctuation).split())


def test_normal_form_of_brackets():
    assert [normalize(text) for text in ("《토지》", "<토지>", "'\"()‘’")] == ["《토지》", "토지", ""]
    assert normalize_brackets("《토지》") == normalize_brackets("‘토지’") == normalize_brackets("「 토지 」") == "토지"


@settings(max_examples=150)
@given(SHORT, SHORT)
def test_common_substring_equals_difflib(answer, gold):
    assert (
        official_common_substring(answer, gold) == longest_common_substring(answer, gold) == difflib_size(answer, gold)
    )


@settings(max_examples=25, deadline=None)
@given(LONG, LONG, st.integers(0, 40), st.integers(1, 250))
def test_common_substring_of_long_golds(gold, other, start, length):
    """From 200 characters on difflib may miss the longest common substring: the official score follows it."""
    for answer in (gold, other, gold[start : start + length], other[:20] + gold[start : start + length]):
        official, longest = official_common_substring(answer, gold), longest_common_substring(answer, gold)
        assert official <= longest == difflib_size(answer, gold, autojunk=False)
        assert official == difflib_size(answer, gold) or len(gold) < 200


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.one_of(SHORT, LONG), max_size=3), st.one_of(SHORT, LONG)), min_size=1, max_size=5)
)
def test_rouge_w_equals_difflib(questions):
    golds, answers = zip(*questions, strict=True)
    expected = 0.0
    for gold, answer in questions:
        pairs = [(normalize(answer), normalize(text)) for text in gold or [""]]
        expected += max(2 * difflib_size(a, g) / (len(a) + len(g)) if a and g else float(a == g) for a, g in pairs)
    assert rouge_w(golds, answers).value() == pytest.approx(100 * expected / len(questions), abs=1e-9)


def test_difflib_heuristic_can_miss_everything():
    """All characters of the gold are frequent, so none is a seed, and the first ones differ."""
    gold = "가나" * 105
    assert rouge_w([[gold]], [gold[1:]]).value() == 0
    assert rouge_w([[gold]], [gold[1:]], longest_common_substring).value() == pytest.approx(100 * 418 / 419)
    assert rouge_w([[gold]], [gold]).value() == 100


def test_best_accepted_answer_counts():
    golds = [["1998년", "1998"], ["서울"], []]
    assert exact_match(golds, ["1998", "서울시", "..."]).value() == pytest.approx(100 * 2 / 3)
    assert rouge_w(golds, ["1998", "서울시", "..."]).value() == pytest.approx(100 * (1 + 0.8 + 1) / 3)


def test_exact_match_with_brackets():
    golds, answers = [["《토지》"], ["‘토지’"]], ["토지", "토지"]
    assert exact_match(golds, answers).value() == 0
    assert exact_match(golds, answers, normalize_brackets).value() == 100
