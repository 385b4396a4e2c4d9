import json
from pathlib import Path

import numpy as np
import pytest

from danseo.metrics.classification import make_curves
from danseo.records import Entity, RelationExample
from danseo.tasks import TASKS
from danseo.tasks.klue.re import TypeMask, learn_type_mask, type_pair

RE = TASKS["re"]
GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "relations.json").read_text("utf-8"))


def example(subject: str, object: str, gold: str) -> RelationExample:
    return RelationExample("x", "가나", Entity("가", 0, 1, subject), Entity("나", 1, 2, object), gold)


def golden_examples() -> list[RelationExample]:
    return [
        example(*pair.split("_"), label)
        for pair, labels in GOLDEN["type_pair_counts_partial_train"].items()
        for label, count in labels.items()
        for _ in range(count)
    ]


def test_the_wide_table_forbids_as_few_as_the_golden_file_says():
    """Without counts: 23 of 18,011 golds lie outside."""
    examples = golden_examples()
    golden = GOLDEN["mask_cost_on_partial_train"]
    assert len(examples) == golden["total"]
    mask = TypeMask(RE.labels, RE.nothing, {pair.replace("_", "-"): {} for pair in golden["by_pair"]}, min_count=1)
    assert len(mask.find_forbidden(examples)) == golden["gold_outside_wide"]


def test_what_train_has_is_allowed_and_the_table_only_widens():
    examples = golden_examples()
    assert learn_type_mask(RE, examples).find_forbidden(examples) == []
    rare = learn_type_mask(RE, examples, min_count=2, is_widened=False)
    assert {type_pair(e) for e in rare.find_forbidden(examples)} == {"ORG-DAT", "ORG-PER", "PER-ORG"}
    assert len(rare.find_forbidden(examples)) > len(learn_type_mask(RE, examples, min_count=2).find_forbidden(examples))


def test_unseen_pairs_allow_what_fits_the_subject_and_unseen_subjects_everything():
    mask = learn_type_mask(RE, golden_examples(), is_widened=False)
    assert mask.allows("PER-NOH", "per:title")
    assert not mask.allows("PER-NOH", "org:members")
    assert all(mask.allows("LOC-DAT", label) for label in RE.labels)


def test_a_soft_mask_forbids_nothing():
    mask = learn_type_mask(RE, golden_examples(), strength=1.0)
    bias = mask.bias("ORG-PER")
    assert np.isfinite(bias).all()
    assert bias[RE.labels.index("org:top_members/employees")] == bias.max()
    assert mask.find_forbidden(golden_examples()) == []


def test_masked_areas_are_those_of_the_golden_file():
    """One gold label behind the mask: 85.83 becomes 61.56."""
    metrics, effect = GOLDEN["metrics"], GOLDEN["mask_effect"]
    logits = np.array(metrics["logits"])
    logits = np.where(np.array(effect["allowed"]) == 1, logits, -np.inf)
    table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    names = tuple("abcd")
    golds = [names[k] for k in metrics["labels"]]
    from danseo.metrics.classification import Ranking

    area = Ranking(make_curves(golds, [dict(zip(names, row, strict=True)) for row in table], names)).value()
    assert area == pytest.approx(effect["auprc_macro"], abs=1e-4)
