"""The metrics of users' own tasks, by kind; ids never change their meaning."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from danseo.metrics.answering import exact_match, normalise, rouge_w
from danseo.metrics.classification import accuracy, label_macro_f1, relation_counts, set_counts
from danseo.metrics.parsing import attachment
from danseo.metrics.regression import pearson
from danseo.metrics.statistic import Counts, Statistic, mean, micro_f1, micro_f1_or_zero
from danseo.metrics.tagging import entity_counts, entity_precision, entity_recall, sentence_accuracy, without_spaces
from danseo.records import Prediction
from danseo.tasks.own.description import Description
from danseo.tasks.task import answers_of, golds_of

Measure = Callable[[Sequence[Any], Sequence[Prediction]], dict[str, Statistic]]

METRICS: Mapping[str, Mapping[str, str]] = {
    "classify": {
        "classify/macro_f1@1": "mean F1 over the labels that occur",
        "classify/accuracy@1": "share of right labels",
    },
    "labels": {
        "labels/micro_f1@1": "F1 pooled over all labels",
        "labels/macro_f1@1": "mean F1 over the labels that occur",
        "labels/subset_accuracy@1": "share of the texts with exactly the gold labels",
    },
    "choose": {
        "choose/accuracy@1": "share of right choices",
        "choose/macro_f1@1": "mean F1 over the places of the candidates",
    },
    "relation": {
        "relation/micro_f1@1": "F1 pooled over the relations, the label for none left out",
        "relation/macro_f1@1": "mean F1 over the labels that occur",
        "relation/accuracy@1": "share of right labels, none included",
    },
    "score": {
        "score/pearson@1": "correlation with the gold numbers, times 100",
        "score/spearman@1": "correlation of the ranks, times 100; intervals keep the ranks of the whole file",
    },
    "tag": {
        "tag/entity_f1@strict-1": "F1 of all entities pooled: right type and borders, spaces removed",
        "tag/entity_macro_f1@strict-1": "mean of that F1 over the types",
        "tag/entity_precision@strict-1": "share of the answered entities that are right",
        "tag/entity_recall@strict-1": "share of the gold entities that were found",
        "tag/sentence_accuracy@1": "share of the texts with exactly the gold entities",
    },
    "parse": {
        "parse/las@1": "share of the words with the right head and relation, punctuation included",
        "parse/uas@1": "share of the words with the right head, punctuation included",
    },
    "answer": {
        "answer/char_f1@1": "mean over questions of the best F1 in characters, as KorQuAD counts it",
        "answer/exact_match@1": "share of the answers that equal an accepted one",
        "answer/rouge_w@1": "mean F1 of the longest common substring",
    },
}


def measure_of(description: Description) -> Measure:
    """The function that measures a kind."""
    makers: dict[str, Callable[[Description, Sequence[Any], list[Any], list[Any]], dict[str, Statistic]]] = {
        "classify": _labels,
        "labels": _several,
        "choose": _choices,
        "relation": _relations,
        "score": _numbers,
        "tag": _tags,
        "parse": _trees,
        "answer": _answers,
    }
    make = makers[description.kind]
    return lambda examples, predictions: make(description, examples, golds_of(examples), answers_of(predictions))


def _labels(
    description: Description, examples: Sequence[Any], golds: list[Any], answers: list[Any]
) -> dict[str, Statistic]:
    return {
        "classify/macro_f1@1": label_macro_f1(golds, answers),
        "classify/accuracy@1": accuracy(golds, answers),
    }


def _several(
    description: Description, examples: Sequence[Any], golds: list[Any], answers: list[Any]
) -> dict[str, Statistic]:
    counts = set_counts(golds, answers, description.labels)
    return {
        "labels/micro_f1@1": Counts(counts.table, micro_f1_or_zero),
        "labels/macro_f1@1": counts,
        "labels/subset_accuracy@1": mean([set(g) == set(a) for g, a in zip(golds, answers, strict=True)]),
    }


def _choices(
    description: Description, examples: Sequence[Any], golds: list[Any], answers: list[Any]
) -> dict[str, Statistic]:
    return {"choose/accuracy@1": accuracy(golds, answers), "choose/macro_f1@1": label_macro_f1(golds, answers)}


def _relations(
    description: Description, examples: Sequence[Any], golds: list[Any], answers: list[Any]
) -> dict[str, Statistic]:
    return {
        "relation/micro_f1@1": Counts(relation_counts(golds, answers, description.none), micro_f1_or_zero),
        "relation/macro_f1@1": label_macro_f1(golds, answers),
        "relation/accuracy@1": accuracy(golds, answers),
    }


def _numbers(
    description: Description, examples: Sequence[Any], golds: list[Any], answers: list[Any]
) -> dict[str, Statistic]:
    from scipy.stats import rankdata

    ranks = [np.asarray(rankdata(side)).tolist() for side in (golds, answers)]
    return {"score/pearson@1": pearson(golds, answers), "score/spearman@1": pearson(ranks[0], ranks[1])}


def _tags(
    description: Description, examples: Sequence[Any], golds: list[Any], answers: list[Any]
) -> dict[str, Statistic]:
    types = types_of(description.labels)
    tagged = without_spaces(golds, answers, [example.text for example in examples], types)
    return {
        "tag/entity_f1@strict-1": entity_counts(tagged, micro_f1),
        "tag/entity_macro_f1@strict-1": entity_counts(tagged),
        "tag/entity_precision@strict-1": entity_precision(tagged),
        "tag/entity_recall@strict-1": entity_recall(tagged),
        "tag/sentence_accuracy@1": sentence_accuracy(tagged),
    }


def types_of(labels: Sequence[str]) -> tuple[str, ...]:
    """The entity types among tags."""
    return tuple(dict.fromkeys(label[2:] for label in labels if label != "O"))


def _trees(
    description: Description, examples: Sequence[Any], golds: list[Any], answers: list[Any]
) -> dict[str, Statistic]:
    return {
        "parse/las@1": attachment(golds, answers, labelled=True),
        "parse/uas@1": attachment(golds, answers, labelled=False),
    }


def _answers(
    description: Description, examples: Sequence[Any], golds: list[Any], answers: list[Any]
) -> dict[str, Statistic]:
    best = [
        max(character_f1(text, answer) for text in gold or ("",)) for gold, answer in zip(golds, answers, strict=True)
    ]
    return {
        "answer/char_f1@1": mean(best),
        "answer/exact_match@1": exact_match(golds, answers),
        "answer/rouge_w@1": rouge_w(golds, answers),
    }


def character_f1(gold: str, answer: str) -> float:
    """F1 of the characters that both have, whatever their order; punctuation and blanks left out."""
    from collections import Counter

    one, two = (Counter(normalise(text).replace(" ", "")) for text in (gold, answer))
    if not one or not two:
        return float(one == two)
    both = (one & two).total()
    return 2 * both / (one.total() + two.total())
