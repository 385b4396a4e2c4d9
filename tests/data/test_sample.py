"""The built-in sample: correct, and in two parts that share no example."""

import pytest

from tests.tiny import read_split


@pytest.mark.parametrize("name", ["sts", "nli", "ynat", "ner", "re", "mrc"])
def test_no_text_is_in_both_splits(sample, name):
    def seen(split):
        examples = read_split(sample, name, split)
        return {
            tuple(getattr(e, part, None) for part in ("text", "pair", "question", "subject", "object"))
            for e in examples
        }

    assert not seen("train") & seen("dev")


def test_answers_stand_where_they_are_said_to(sample):
    questions = read_split(sample, "mrc", "train") + read_split(sample, "mrc", "dev")
    for example in questions:
        for answer, start in zip(example.gold, example.starts, strict=True):
            assert example.text[start : start + len(answer)] == answer
    assert 0.15 < sum(not example.gold for example in questions) / len(questions) < 0.35
