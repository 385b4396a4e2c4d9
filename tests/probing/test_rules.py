"""Hits, intervals, composites: pinned by the golden vectors."""

import pytest

from danseo.probing.items import ProbeItem
from danseo.probing.rules import cleaned, hits
from danseo.probing.score import composite, mcnemar, wilson


def test_hit_rules(golden):
    for case in golden["hit_rule"]["cases"]:
        found = hits(case["target"], [case["pred"]])
        for rule in ("strict", "lenient", "lenient_min2"):
            assert found[f"{rule}@1"] is case[rule], case


def test_ranked_guesses(golden):
    items, expected = golden["ranked"]["items"], golden["ranked"]["expected"]
    found = [hits(item["target"], item["candidates"]) for item in items]
    for score in ("strict@1", "strict@5", "lenient@1", "lenient@5"):
        assert sum(each[score] for each in found) / len(items) == expected[score]


@pytest.mark.parametrize(
    ("piece", "word"), [("##정부", "정부"), (" 정부 ", "정부"), ("▁정부", "정부"), ("정부", "정부")]
)
def test_marks_do_not_count(piece, word):
    assert cleaned(piece) == word


def test_nothing_is_no_hit():
    assert not any(hits("정부", ["", "##"]).values())


def test_wilson(golden):
    for name, bounds in golden["wilson95"].items():
        successes, total = (int(number) for number in name.split("_")[1::2])
        assert wilson(successes, total) == pytest.approx(bounds, abs=1e-6)
    assert wilson(0, 0) is None


def test_composite(golden):
    for case in golden["composite"]["cases"]:
        values = [case["real1"], case["real5"], case["lambada1"]]
        assert composite((0.4, 0.3, 0.3), values) == pytest.approx(case["score"], abs=1e-6)
    assert composite((0.4, 0.3, 0.3), [0.5, 0.5, None]) == pytest.approx(0.5)
    assert composite((0.4, 0.3, 0.3), [None] * 3) is None


def test_mcnemar_counts_only_what_differs():
    assert mcnemar([True] * 50, [True] * 50) == 1
    assert mcnemar([False] * 10 + [True] * 90, [True] * 100) == pytest.approx(2 * 0.5**10)


def test_coverage(golden):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from danseo.probing.pieces import WordPieces

    vocabulary = {piece: k for k, piece in enumerate(["[UNK]", *golden["coverage"]["vocab"]])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces = WordPieces(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]"))
    targets = golden["coverage"]["targets"]
    covered = [len(pieces.of(target, inside=False)) == 1 for target in targets]
    assert sum(covered) / len(targets) == golden["coverage"]["coverage"]
    assert [len(pieces.of("대한민국", inside=False)), len(pieces.of("행", inside=True))] == [3, 1]
    assert pieces.of("정부", inside=True) == ()  # no ##정부 here: inside a word it cannot be spelled
    item = ProbeItem("a", "s", "d", "repeated", "새정부", (1, 3), "정부", None, None, "", "")
    assert pieces.in_gap("정부", item) == ()
