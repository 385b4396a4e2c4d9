"""The three levels at which older reports score entities, pinned by values computed by hand."""

import json
from pathlib import Path

import pytest

from danseo.metrics.tagging import Tagged, entity_tally, sentence_accuracy, token_length_f1, token_type_tally

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "ner_replies.json").read_text("utf-8"))


def word_tags(text: str, spans: list) -> list[str]:
    """A tag per whitespace token."""
    tags, start = [], 0
    for word in text.split():
        position = text.index(word, start)
        start = position + len(word)
        inside = next((s for s in spans or () if s[0] <= position < s[1]), None)
        tags.append("O" if not inside else f"{'B' if inside[0] == position else 'I'}-{inside[2]}")
    return tags


def test_three_levels():
    case = GOLDEN["three_level_metrics"]
    rows = case["sentences"]
    golds, answers = ([word_tags(row["text"], row[side]) for row in rows] for side in ("gold", "pred"))
    tagged, due = Tagged.of(golds, answers, ("PER", "LOC", "ORG")), case["expected"]
    assert sentence_accuracy(tagged).value() == pytest.approx(100 * due["sentence"]["accuracy"], abs=1e-3)
    right, answered, gold = entity_tally(tagged)
    assert (right, answered - right, gold - right) == tuple(due["entity"][key] for key in ("tp", "fp", "fn"))
    tokens = due["token_type_only_non_O"]
    assert token_type_tally(tagged) == (tokens["tp"], tokens["pred"], tokens["gold"])
    weighted = due["token_length_weighted_entity_as_in_the_source"]
    assert token_length_f1(tagged).value() == pytest.approx(100 * weighted["f1"])
