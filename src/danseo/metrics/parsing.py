"""Scores of dependency trees: the official macro forms, and plain attachment."""

from collections.abc import Sequence

import numpy as np

from danseo.metrics.statistic import Array, Counts, class_f1, share

Tree = Sequence[tuple[int, str]]
WRONG_HEAD = "WRONG"


def _flat(trees: Sequence[Tree]) -> tuple[list[int], list[str]]:
    return [head for tree in trees for head, _ in tree], [relation for tree in trees for _, relation in tree]


def _sentences(trees: Sequence[Tree]) -> Array:
    return np.repeat(np.arange(len(trees)), [len(tree) for tree in trees])


def _macro(trees: Sequence[Tree], golds: Sequence[str], answers: Sequence[str]) -> Counts:
    return class_f1(_sentences(trees), golds, answers, len(trees))


def head_macro_f1(golds: Sequence[Tree], answers: Sequence[Tree]) -> Counts:
    """Macro F1 with the head position as the class: the official UAS."""
    return _macro(golds, [str(head) for head in _flat(golds)[0]], [str(head) for head in _flat(answers)[0]])


def relation_macro_f1(golds: Sequence[Tree], answers: Sequence[Tree], common: Sequence[str]) -> Counts:
    """Macro F1 of relations: the official LAS.

    Relations that are not common count as one, and a word with a wrong head as the class WRONG, whose F1 is
    always 0: with one wrong head in the whole corpus the mean loses a full class.
    """
    heads, relations = _flat(golds)
    other_heads, other_relations = _flat(answers)
    gold = merged(relations, common)
    answer = [
        relation if head == gold_head else WRONG_HEAD
        for gold_head, head, relation in zip(heads, other_heads, merged(other_relations, common), strict=True)
    ]
    return _macro(golds, gold, answer)


def merged(relations: Sequence[str], common: Sequence[str]) -> list[str]:
    """The relations with every rare one replaced by OTHERS."""
    kept = frozenset(common)
    return [relation if relation in kept else "OTHERS" for relation in relations]


def attachment(
    golds: Sequence[Tree], answers: Sequence[Tree], *, labelled: bool, common: Sequence[str] | None = None
) -> Counts:
    """Share of the words with the right head (and relation); with common given, rare relations are one."""
    hits = [_hits(gold, answer, labelled, common) for gold, answer in zip(golds, answers, strict=True)]
    return share(hits, [len(gold) for gold in golds])


def _hits(gold: Tree, answer: Tree, labelled: bool, common: Sequence[str] | None) -> int:
    relations = [[relation for _, relation in tree] for tree in (gold, answer)]
    if common is not None:
        relations = [merged(names, common) for names in relations]
    right = ((g[0] == a[0], r == s) for g, a, r, s in zip(gold, answer, *relations, strict=True))
    return sum(head and (relation or not labelled) for head, relation in right)
