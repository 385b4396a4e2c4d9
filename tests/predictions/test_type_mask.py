import json
from pathlib import Path

import numpy as np
import pytest

from danseo.errors import DanseoError
from danseo.metrics.classification import curves
from danseo.predictions.priors import estimated_prior, label_prior, reweighted
from danseo.predictions.type_mask import TypeMask, learned_mask, type_pair
from danseo.records import Entity, RelationExample
from danseo.tasks import TASKS

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
    mask = TypeMask(RE.labels, RE.nothing, {pair.replace("_", "-"): {} for pair in golden["by_pair"]}, least=1)
    assert len(mask.outside(examples)) == golden["gold_outside_wide"]


def test_what_train_has_is_allowed_and_the_table_only_widens():
    examples = golden_examples()
    assert learned_mask(RE, examples).outside(examples) == []
    rare = learned_mask(RE, examples, least=2, is_widened=False)
    assert {type_pair(e) for e in rare.outside(examples)} == {"ORG-DAT", "ORG-PER", "PER-ORG"}
    assert len(rare.outside(examples)) > len(learned_mask(RE, examples, least=2).outside(examples))


def test_unseen_pairs_allow_what_fits_the_subject_and_unseen_subjects_everything():
    mask = learned_mask(RE, golden_examples(), is_widened=False)
    assert mask.allows("PER-NOH", "per:title")
    assert not mask.allows("PER-NOH", "org:members")
    assert all(mask.allows("LOC-DAT", label) for label in RE.labels)


def test_a_soft_mask_forbids_nothing():
    mask = learned_mask(RE, golden_examples(), strength=1.0)
    bias = mask.bias("ORG-PER")
    assert np.isfinite(bias).all()
    assert bias[RE.labels.index("org:top_members/employees")] == bias.max()
    assert mask.outside(golden_examples()) == []


def test_masked_areas_are_those_of_the_golden_file():
    """One gold label behind the mask: 85.83 becomes 61.56."""
    metrics, effect = GOLDEN["metrics"], GOLDEN["mask_effect"]
    logits = np.array(metrics["logits"])
    logits = np.where(np.array(effect["allowed"]) == 1, logits, -np.inf)
    table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    names = tuple("abcd")
    golds = [names[k] for k in metrics["labels"]]
    from danseo.metrics.classification import Ranking

    area = Ranking(curves(golds, [dict(zip(names, row, strict=True)) for row in table], names)).value()
    assert area == pytest.approx(effect["auprc_macro"], abs=1e-4)


def test_a_mask_needs_types():
    with pytest.raises(DanseoError, match="needs the types of two entities, which nli has not"):
        learned_mask(TASKS["nli"], [])


# Priors


def drawn(rng, prior, n=4000):
    """Examples of two labels whose one feature tells them apart, more or less, and what a model says of them."""
    labels = rng.choice(2, size=n, p=prior)
    return labels, rng.normal(size=n) + 1.5 * labels


def posterior(feature, prior):
    odds = np.exp(1.5 * feature - 1.125) * prior[1] / prior[0]
    return np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1)


def test_em_finds_the_prior_of_the_examples():
    rng = np.random.default_rng(0)
    source, true = np.array([0.8, 0.2]), np.array([0.3, 0.7])
    labels, feature = drawn(rng, true)
    table = posterior(feature, source)
    found = estimated_prior(table, source)
    assert found == pytest.approx(true, abs=0.03)
    before, after = (np.mean(t.argmax(axis=1) == labels) for t in (table, reweighted(table, source, found)))
    assert after > before + 0.05


def test_reweighting_to_the_same_prior_changes_nothing():
    table = np.array([[0.2, 0.8], [0.6, 0.4]])
    assert reweighted(table, np.array([0.5, 0.5]), np.array([0.5, 0.5])) == pytest.approx(table)
    prior = label_prior([example("PER", "ORG", "per:title")], RE.labels)
    assert prior.sum() == pytest.approx(1)
    assert prior.argmax() == RE.labels.index("per:title")
