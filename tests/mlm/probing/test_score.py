"""Hits, intervals and composites agree with the golden vectors."""

import pytest

from danseo.mlm.probing.items import ProbeItem
from danseo.mlm.probing.score import average_scores, compute_wilson_interval, score_guesses


def test_hit_rules(golden):
    for case in golden["hit_rule"]["cases"]:
        found = score_guesses(case["target"], [case["pred"]])
        for rule in ("strict", "lenient", "lenient_min2"):
            assert found[f"{rule}@1"] is case[rule], case


def test_ranked_guesses(golden):
    items, expected = golden["ranked"]["items"], golden["ranked"]["expected"]
    found = [score_guesses(item["target"], item["candidates"]) for item in items]
    for score in ("strict@1", "strict@5", "lenient@1", "lenient@5"):
        assert sum(each[score] for each in found) / len(items) == expected[score]


def test_wilson(golden):
    for name, bounds in golden["wilson95"].items():
        successes, total = (int(number) for number in name.split("_")[1::2])
        assert compute_wilson_interval(successes, total) == pytest.approx(bounds, abs=1e-6)
    assert compute_wilson_interval(0, 0) is None


def test_composite(golden):
    for case in golden["composite"]["cases"]:
        values = [case["real1"], case["real5"], case["lambada1"]]
        assert average_scores((0.4, 0.3, 0.3), values) == pytest.approx(case["score"], abs=1e-6)
    assert average_scores((0.4, 0.3, 0.3), [0.5, 0.5, None]) == pytest.approx(0.5)
    assert average_scores((0.4, 0.3, 0.3), [None] * 3) is None


def test_coverage(golden):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from danseo.mlm.probing.windows import WordTokenizer

    vocabulary = {token: k for k, token in enumerate(["[UNK]", *golden["coverage"]["vocab"]])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokens = WordTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]"))
    targets = golden["coverage"]["targets"]
    covered = [len(tokens.tokenize(target, inside=False)) == 1 for target in targets]
    assert sum(covered) / len(targets) == golden["coverage"]["coverage"]
    assert [len(tokens.tokenize("대한민국", inside=False)), len(tokens.tokenize("행", inside=True))] == [3, 1]
    assert tokens.tokenize("정부", inside=True) == ()  # no ##정부 here: inside a word it cannot be spelled
    item = ProbeItem("a", "s", "d", "repeated", "새정부", (1, 3), "정부", None, None, "", "")
    assert tokens.tokenize_in_gap("정부", item) == ()
