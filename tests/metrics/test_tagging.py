"""Tag scores against hand-computed values, seqeval and scikit-learn."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2
from sklearn.metrics import f1_score as sklearn_f1

from danseo.metrics.statistic import micro_f1
from danseo.metrics.tagging import (
    Tagged,
    correct_leading_space,
    count_entities,
    count_entity_tokens,
    encode_characters,
    encode_tags,
    entity_counts,
    entity_precision,
    entity_recall,
    find_padded_rows,
    get_token_tags,
    list_entities,
    official_character_f1,
    sentence_accuracy,
    tag_macro_f1,
    token_length_f1,
    token_type_f1,
)
from danseo.records import Prediction, TextExample
from danseo.tasks.klue.ner import LABELS, TYPES, measure

GOLDS = [
    ["B-PS", "I-PS", "I-PS", "O", "O", "B-LC", "I-LC", "O"],
    ["O", "B-OG", "I-OG", "O", "B-DT", "I-DT", "I-DT"],
    ["O", "O", "B-QT", "I-QT", "O"],
    ["B-PS", "O", "O"],
]
ANSWERS = [
    ["B-PS", "I-PS", "I-PS", "O", "O", "B-OG", "I-OG", "O"],
    ["O", "B-OG", "I-OG", "I-OG", "B-DT", "I-DT", "I-DT"],
    ["O", "O", "B-QT", "I-QT", "O"],
    ["B-PS", "O", "I-LC"],
]
FIXTURES = Path(__file__).parents[1] / "fixtures"


def entity_f1(golds, answers, types):
    return entity_counts(Tagged.encode(golds, answers, types)).value()


def sentences(tags=LABELS):
    """Two parallel lists of sentences; most answers are like their gold, so that entities match."""
    tag = st.sampled_from(tags)
    pair = st.one_of(tag.map(lambda one: (one, one)), tag.map(lambda one: (one, one)), st.tuples(tag, tag))
    return st.lists(st.lists(pair, min_size=1, max_size=12), min_size=1, max_size=6).map(
        lambda rows: tuple([[pair[side] for pair in row] for row in rows] for side in (0, 1))
    )


def test_entity_scores_by_hand():
    tagged = Tagged.encode(GOLDS, ANSWERS, TYPES)
    assert entity_counts(tagged).value() == pytest.approx(60.0, abs=1e-6)
    assert entity_counts(tagged, micro_f1).value() == pytest.approx(66.666667, abs=1e-6)
    assert entity_precision(tagged).value() == entity_recall(tagged).value() == pytest.approx(100 * 4 / 6)


def get_word_tags(text: str, spans: list) -> list[str]:
    tags, start = [], 0
    for word in text.split():
        position = text.index(word, start)
        start = position + len(word)
        inside = next((span for span in spans or () if span[0] <= position < span[1]), None)
        tags.append("O" if not inside else f"{'B' if inside[0] == position else 'I'}-{inside[2]}")
    return tags


def test_three_levels_of_older_reports():
    """Words as tokens; a reply that could not be read counts as no entity."""
    case = json.loads((FIXTURES / "ner_replies.json").read_text("utf-8"))["three_level_metrics"]
    rows, expected = case["sentences"], case["expected"]
    golds, answers = ([get_word_tags(row["text"], row[side]) for row in rows] for side in ("gold", "pred"))
    tagged = Tagged.encode(golds, answers, ("PER", "LOC", "ORG"))
    assert sentence_accuracy(tagged).value() == pytest.approx(100 * expected["sentence"]["accuracy"], abs=1e-3)
    right, answered, gold = count_entities(tagged)
    assert (right, answered - right, gold - right) == tuple(expected["entity"][key] for key in ("tp", "fp", "fn"))
    tokens = expected["token_type_only_non_O"]
    assert count_entity_tokens(tagged) == (tokens["tp"], tokens["pred"], tokens["gold"])
    weighted = expected["token_length_weighted_entity_as_in_the_source"]
    assert token_length_f1(tagged).value() == pytest.approx(100 * weighted["f1"])


def test_a_token_has_the_tag_of_its_first_character():
    """삼성전자가 as 삼성 and 전자가: the tokens are right although the characters cannot be."""
    tags = ["B-OG", "I-OG", "I-OG", "I-OG", "O"]
    assert get_token_tags(tags, [(0, 2), (2, 5)]) == ["B-OG", "I-OG"]
    assert get_token_tags(tags, [(0, 0), (0, 2), (2, 5), (0, 0)]) == ["O", "B-OG", "I-OG", "O"]
    assert entity_f1([tags], [["B-OG", *["I-OG"] * 4]], TYPES) == 0


def test_old_reports_left_out_the_longest_sentences_of_a_batch():
    assert find_padded_rows([7, 12, 9, 12], batch=4) == [0, 2]
    assert find_padded_rows([7, 12, 9, 12], batch=3) == [0, 2]  # the last batch has one sentence, which is not kept
    assert find_padded_rows([7, 12, 9, 12], batch=1) == []


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        (["B-PS", "I-PS", "O"], [(0, 2, "PS")]),
        (["I-PS", "I-PS", "O"], []),
        (["B-PS", "I-LC", "I-PS"], [(0, 1, "PS")]),
        (["B-PS", "B-PS", "I-PS"], [(0, 1, "PS"), (1, 3, "PS")]),
        (["O", "I-LC", "B-LC"], [(2, 3, "LC")]),
        (["B-DT", "O", "I-DT"], [(0, 1, "DT")]),
        ([], []),
    ],
)
def test_spans_by_strict_iob2(tags, spans):
    assert list(list_entities(tags)) == spans
    tagged = Tagged.encode([tags], [tags], TYPES)
    assert [(s, e, TYPES[t]) for s, e, t in zip(*tagged.gold_spans, strict=True)] == spans


@settings(max_examples=150, deadline=None)
@given(sentences())
def test_entity_f1_equals_seqeval(pair):
    golds, answers = pair
    value = entity_f1(golds, answers, TYPES)
    if not any(list(list_entities(tags)) for tags in (*golds, *answers)):
        assert math.isnan(value)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        macro, micro = (
            f1_score(golds, answers, average=average, mode="strict", scheme=IOB2) for average in ("macro", "micro")
        )
    assert value == pytest.approx(100 * macro, abs=1e-9)
    assert entity_counts(Tagged.encode(golds, answers, TYPES), micro_f1).value() == pytest.approx(100 * micro, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(sentences())
def test_tag_f1_equals_scikit_learn(pair):
    golds, answers = ([tag for row in rows for tag in row] for rows in pair)
    tagged = Tagged.encode(*pair, TYPES)
    for labels in (LABELS, LABELS[:-1]):
        expected = sklearn_f1(golds, answers, labels=labels, average="macro", zero_division=1)
        assert tag_macro_f1(tagged, with_o="O" in labels).value() == pytest.approx(100 * expected, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(sentences())
def test_official_character_f1_is_that_of_the_flattened_sentences(pair):
    golds, answers = ([tag for row in rows for tag in ("O", *row, "O")] for rows in pair)
    expected = sklearn_f1(golds, answers, labels=LABELS, average="macro", zero_division=1)
    assert official_character_f1(Tagged.encode(*pair, TYPES)).value() == pytest.approx(100 * expected, abs=1e-9)


def test_flattened_sentences_by_hand():
    """[CLS] and the last position of every sentence are an O that every model gets right."""
    case = json.loads((FIXTURES / "ner_sentences.json").read_text("utf-8"))
    for side in ("golds", "answers"):
        spoken = [
            [tag for tag, character in zip(tags, text, strict=True) if character != " "]
            for tags, text in zip(case[side], case["texts"], strict=True)
        ]
        assert case[f"flattened_{side}"] == [tag for row in spoken for tag in ("O", *row, "O")]
    examples = [
        TextExample(str(k), text=text, gold=tuple(gold))
        for k, (text, gold) in enumerate(zip(case["texts"], case["golds"], strict=True))
    ]
    measured = measure(examples, [Prediction(str(k), tuple(answer)) for k, answer in enumerate(case["answers"])])
    flat = Tagged.encode([case["flattened_golds"]], [case["flattened_answers"]], TYPES)
    assert tag_macro_f1(flat, with_o=True).value() == pytest.approx(case["expected"]["ner/char_f1@official-1"])
    for id_, expected in case["expected"].items():
        assert measured[id_].value() == pytest.approx(expected, abs=1e-9), id_


@given(sentences(["O", "B-PER", "I-PER", "B-A", "I-A"]))
def test_type_names_of_any_length(pair):
    names = {"PER": "PS", "A": "LC"}
    renamed = ([[tag[:2] + names[tag[2:]] if tag != "O" else tag for tag in row] for row in rows] for rows in pair)
    expected = entity_f1(*renamed, TYPES)
    assert entity_f1(*pair, ("PER", "A")) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("tag", ["", "X", "OX", "PS", "-PS", "B-", "B-PSX", "B-XX", "E-PS", "b-ps", "B-장소", "\ud800"])
def test_unknown_tag(tag):
    with pytest.raises(KeyError):
        encode_tags([["O", "B-PS"], [tag, "O", "B-OG"]], TYPES)


def test_an_answer_of_another_length_is_refused():
    with pytest.raises(ValueError, match="as many tags"):
        Tagged.encode([["O", "O"]], [["O"]], TYPES)


def test_spaces_are_not_scored():
    """The tag of a space inside an entity plays no part."""
    gold = ["B-LC", "I-LC", "I-LC", "I-LC", "I-LC", "O"]
    answer = ["B-LC", "I-LC", "O", "I-LC", "I-LC", "O"]
    assert entity_f1([gold], [answer], TYPES) == 0
    assert entity_counts(encode_characters([gold], [answer], ["서울 역앞."], TYPES)).value() == 100


def test_a_begin_on_a_space_moves_to_the_word():
    assert correct_leading_space(["O", "B-DT", "I-DT", "I-DT"], "는 내일") == ["O", "O", "B-DT", "I-DT"]
    assert correct_leading_space(["B-DT", "I-DT", "I-DT"], "  날") == ["O", "O", "B-DT"]  # two spaces
    for tags, text in [
        (["B-DT", "I-DT", "I-DT"], "내 일"),  # a space inside
        (["O", "B-DT", "B-PS"], "는 김"),  # nothing follows the space
        (["O", "B-DT", "I-PS"], "는 김"),
        (["O", "B-DT"], "는 "),
        ([], ""),
    ]:
        assert correct_leading_space(tags, text) == tags
    gold, text = ["O", "B-DT", "I-DT", "I-DT"], "는 내일"
    assert math.isnan(entity_counts(encode_characters([gold], [gold], [text], TYPES)).value())
    corrected = [correct_leading_space(gold, text)]
    assert entity_counts(encode_characters(corrected, corrected, [text], TYPES)).value() == 100


def test_nothing_to_find_and_nothing_found():
    tagged = Tagged.encode([["O", "O"]], [["O", "O"]], TYPES)
    undefined = [
        entity_counts(tagged),
        entity_counts(tagged, micro_f1),
        entity_precision(tagged),
        token_type_f1(tagged),
    ]
    assert all(math.isnan(statistic.value()) for statistic in undefined)
    assert sentence_accuracy(tagged).value() == tag_macro_f1(tagged, with_o=True).value() == 100


def test_weights_are_repetitions():
    tagged = Tagged.encode(GOLDS, ANSWERS, TYPES)
    weights = np.array([2, 0, 1, 3])
    rows = np.repeat(np.arange(4), weights)
    repeated = Tagged.encode([GOLDS[row] for row in rows], [ANSWERS[row] for row in rows], TYPES)
    for statistic in (entity_counts, token_type_f1, token_length_f1, sentence_accuracy):
        assert statistic(tagged).values(weights[None])[0] == pytest.approx(statistic(repeated).value(), abs=1e-9)
