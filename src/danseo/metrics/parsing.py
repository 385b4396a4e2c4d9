"""Scores of dependency trees: the official macro forms, and plain attachment."""

from collections.abc import Sequence

import numpy as np

from danseo.metrics.statistic import Counts, class_f1, share

Tree = Sequence[tuple[int, str]]
WRONG_HEAD = "WRONG"


def _list_heads_and_relations(trees: Sequence[Tree]) -> tuple[list[int], list[str]]:
    return [head for tree in trees for head, _ in tree], [relation for tree in trees for _, relation in tree]


def _average_classes(trees: Sequence[Tree], golds: Sequence[str], answers: Sequence[str]) -> Counts:
    sentences = np.repeat(np.arange(len(trees)), [len(tree) for tree in trees])
    return class_f1(sentences, golds, answers, len(trees))


def head_macro_f1(golds: Sequence[Tree], answers: Sequence[Tree]) -> Counts:
    """Return the official UAS: macro F1 with the head position as the class."""
    return _average_classes(
        golds,
        [str(head) for head in _list_heads_and_relations(golds)[0]],
        [str(h) for h in _list_heads_and_relations(answers)[0]],
    )


def relation_macro_f1(golds: Sequence[Tree], answers: Sequence[Tree], common: Sequence[str]) -> Counts:
    """Return the official LAS: macro F1 of relations.

    All rare relations are one class. A word with a wrong head gets the class WRONG, whose F1 is always 0.
    So a single wrong head adds a class with F1 0 to the mean.
    """
    heads, relations = _list_heads_and_relations(golds)
    other_heads, other_relations = _list_heads_and_relations(answers)
    gold = merge_rare(relations, common)
    answer = [
        relation if head == gold_head else WRONG_HEAD
        for gold_head, head, relation in zip(heads, other_heads, merge_rare(other_relations, common), strict=True)
    ]
    return _average_classes(golds, gold, answer)


def merge_rare(relations: Sequence[str], common: Sequence[str]) -> list[str]:
    """Return the relations with every rare one replaced by OTHERS."""
    kept = frozenset(common)
    return [relation if relation in kept else "OTHERS" for relation in relations]


def attachment(
    golds: Sequence[Tree], answers: Sequence[Tree], *, labelled: bool, common: Sequence[str] | None = None
) -> Counts:
    """Return the share of words with the right head (and relation); if `common` is given, others are one class."""
    hits = [_count_hits(gold, answer, labelled, common) for gold, answer in zip(golds, answers, strict=True)]
    return share(hits, [len(gold) for gold in golds])


def _count_hits(gold: Tree, answer: Tree, labelled: bool, common: Sequence[str] | None) -> int:
    relations = [[relation for _, relation in tree] for tree in (gold, answer)]
    if common is not None:
        relations = [merge_rare(names, common) for names in relations]
    right = ((g[0] == a[0], r == s) for g, a, r, s in zip(gold, answer, *relations, strict=True))
    return sum(head and (relation or not labelled) for head, relation in right)
