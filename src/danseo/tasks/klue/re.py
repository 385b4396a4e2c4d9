"""KLUE-RE: the relation between two entities of a sentence."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.files import quote
from danseo.metrics.classification import (
    Ranking,
    accuracy,
    make_curves,
    relation_micro_f1,
    relation_precision,
    relation_recall,
)
from danseo.metrics.statistic import Metric, Statistic, index_metrics
from danseo.records import Entity, Prediction, RelationExample
from danseo.rows import Row, read_rows
from danseo.tasktypes import relation
from danseo.tasktypes.base import Task, answers_of, golds_of
from danseo.tasktypes.decoding import Array
from danseo.tasktypes.relation import Relation

NO_RELATION = "no_relation"
LABELS = (
    NO_RELATION,
    *(
        f"org:{name}"
        for name in (
            "dissolved founded place_of_headquarters alternate_names member_of members political/religious_affiliation "
            "product founded_by top_members/employees number_of_employees/members"
        ).split()
    ),
    *(
        f"per:{name}"
        for name in (
            "date_of_birth date_of_death place_of_birth place_of_death place_of_residence origin employee_of "
            "schools_attended alternate_names parents children siblings spouse other_family colleagues product "
            "religion title"
        ).split()
    ),
)
INVERSES = {
    "per:parents": "per:children",
    "per:children": "per:parents",
    "per:spouse": "per:spouse",
    "per:siblings": "per:siblings",
    "org:members": "org:member_of",
    "org:member_of": "org:members",
}
"""Relation of the subject to the object -> that of the object to the subject, if it follows."""
TYPES = ("PER", "ORG", "LOC", "DAT", "POH", "NOH")
# Relations by the types of subject and object: the union of three published tables for KLUE-RE.
_POSSIBLE = {
    "PER-PER": ("origin employee_of alternate_names parents children siblings spouse other_family colleagues product"),
    "PER-POH": (
        "place_of_death place_of_residence origin employee_of schools_attended alternate_names parents "
        "children siblings spouse colleagues product religion title"
    ),
    "PER-ORG": (
        "place_of_death place_of_residence origin employee_of schools_attended alternate_names colleagues "
        "product religion title"
    ),
    "PER-LOC": ("place_of_birth place_of_death place_of_residence origin employee_of schools_attended title"),
    "PER-DAT": ("date_of_birth date_of_death place_of_residence origin"),
    "PER-NOH": (""),
    "ORG-PER": ("alternate_names product founded_by top_members/employees"),
    "ORG-POH": (
        "place_of_headquarters alternate_names member_of members political/religious_affiliation product "
        "top_members/employees"
    ),
    "ORG-ORG": (
        "place_of_headquarters alternate_names member_of members political/religious_affiliation product "
        "founded_by top_members/employees"
    ),
    "ORG-LOC": (
        "place_of_headquarters alternate_names member_of members political/religious_affiliation product "
        "top_members/employees"
    ),
    "ORG-DAT": ("dissolved founded alternate_names product"),
    "ORG-NOH": ("alternate_names product number_of_employees/members"),
}


def type_pair(example: RelationExample) -> str:
    """Return the types of subject and object: "PER-LOC"."""
    return f"{example.subject.type}-{example.object.type}"


def possible_relations(pair: str) -> frozenset[str]:
    """Return the relations of a pair such as PER-ORG, without no_relation."""
    prefix = pair.split("-")[0].lower()
    return frozenset(f"{prefix}:{name}" for name in _POSSIBLE.get(pair, "").split())


def read(path: Path) -> list[RelationExample]:
    return [
        RelationExample(
            row.text("guid"),
            text=(sentence := row.text("sentence")),
            subject=_read_entity(row.child("subject_entity"), sentence),
            object=_read_entity(row.child("object_entity"), sentence),
            gold=row.label("label", LABELS, LABELS),
            source=row.optional_text("source"),
        )
        for row in read_rows(path)
    ]


def _read_entity(row: Row, sentence: str) -> Entity:
    """Return an entity; its inclusive end becomes an exclusive one."""
    word, start, end = row.text("word"), row.integer("start_idx"), row.integer("end_idx") + 1
    if not 0 <= start < end <= len(sentence) or sentence[start:end] != word:
        actual = sentence[start:end] if 0 <= start < end else ""
        raise row.error(
            f"the sentence has {quote(actual)} at {quote(start)}..{quote(end - 1)}, not {quote(word)}; "
            "correct start_idx and end_idx (the end is inclusive)"
        )
    return Entity(word, start, end, row.one_of(row.text("type"), TYPES, "field 'type'"))


def measure(examples: Sequence[RelationExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    scores: dict[str, Statistic] = {
        "re/micro_f1@official-1": relation_micro_f1(golds, answers),
        "re/accuracy@plain-1": accuracy(golds, answers),
        "re/precision@plain-1": relation_precision(golds, answers),
        "re/recall@plain-1": relation_recall(golds, answers),
    }
    probabilities = [prediction.probabilities for prediction in predictions if prediction.probabilities is not None]
    if len(probabilities) == len(predictions):
        ranked = make_curves(golds, probabilities, LABELS)
        scores["re/auprc@official-1"] = Ranking(ranked)
        scores["re/auprc@present-1"] = Ranking(ranked, only_present=True)
        scores["re/auprc@ap-1"] = Ranking(ranked, only_present=True, trapezoid=False)
    return scores


MEANINGS = {
    "no_relation": "관계 없음",
    "org:dissolved": "단체가 없어진 날짜",
    "org:founded": "단체가 세워진 날짜",
    "org:place_of_headquarters": "단체의 본부가 있는 곳",
    "org:alternate_names": "단체의 다른 이름",
    "org:member_of": "단체가 속한 더 큰 단체",
    "org:members": "단체에 속한 단체나 구성원",
    "org:political/religious_affiliation": "단체의 정치나 종교 성향",
    "org:product": "단체가 만든 제품이나 작품",
    "org:founded_by": "단체를 세운 사람이나 단체",
    "org:top_members/employees": "단체의 대표나 구성원인 사람",
    "org:number_of_employees/members": "단체의 구성원 수",
    "per:date_of_birth": "태어난 날짜",
    "per:date_of_death": "죽은 날짜",
    "per:place_of_birth": "태어난 곳",
    "per:place_of_death": "죽은 곳",
    "per:place_of_residence": "사는 곳",
    "per:origin": "출신이나 국적",
    "per:employee_of": "일하거나 속한 단체",
    "per:schools_attended": "다닌 학교",
    "per:alternate_names": "사람의 다른 이름",
    "per:parents": "부모",
    "per:children": "자녀",
    "per:siblings": "형제자매",
    "per:spouse": "배우자",
    "per:other_family": "그 밖의 가족",
    "per:colleagues": "함께 일하는 사람",
    "per:product": "사람이 만든 작품이나 제품",
    "per:religion": "종교",
    "per:title": "직책이나 직업",
    "PER": "인물",
    "ORG": "단체",
    "LOC": "장소",
    "DAT": "날짜",
    "POH": "그 밖의 고유명사",
    "NOH": "수",
}

TASK = Task(
    name="re",
    short="RE",
    title="relation extraction",
    type=relation.TYPE,
    folder="klue-re-v1.1",
    extension=".json",
    official_rows={"train": 32470, "dev": 7765},
    read=read,
    labels=LABELS,
    meanings=MEANINGS,
    companions={"relation_list.json": 30},
    metrics=index_metrics(
        Metric("re/micro_f1@official-1", "F1 pooled over the 29 relations, no_relation left out"),
        Metric("re/auprc@official-1", "mean area under 30 precision-recall curves, by trapezoids"),
        Metric("re/accuracy@plain-1", "share of right labels, no_relation included"),
        Metric("re/precision@plain-1", "share of the answered relations that are right"),
        Metric("re/recall@plain-1", "share of the gold relations that were found"),
        Metric("re/auprc@present-1", "as official, over the labels that occur in gold"),
        Metric("re/auprc@ap-1", "mean average precision over the labels that occur in gold"),
    ),
    measure=measure,
    needs_probabilities=("re/auprc@official-1", "re/auprc@present-1", "re/auprc@ap-1"),
    input=relation.relation_input(TYPES),
    columns={"F1": "re/micro_f1@official-1", "AUPRC": "re/auprc@official-1"},
    shown_metrics=("re/accuracy@plain-1",),
    parts=("sentence",),
    label_word="relation",
    nothing=NO_RELATION,
)


@dataclass(frozen=True)
class TypeMask:
    """How often each pair of entity types had each label, and which labels that allows."""

    labels: tuple[str, ...]
    nothing: str
    counts: Mapping[str, Mapping[str, int]]
    min_count: int = 1
    is_widened: bool = True
    """Whether the table of `possible_relations` allows more labels."""
    strength: float = 0.0
    """Above 0 no label is forbidden: logits get this factor times the log of the label's smoothed share."""

    def allows(self, pair: str, label: str) -> bool:
        """Return whether a pair of types can have a label."""
        if label == self.nothing or self.counts.get(pair, {}).get(label, 0) >= self.min_count:
            return True
        if self.is_widened and label in possible_relations(pair):
            return True
        return pair not in self.counts and self._fits_subject(pair.split("-")[0], label)

    def _fits_subject(self, subject: str, label: str) -> bool:
        """Return whether a label has the prefix of the subject's type; a type that train lacks fits all labels."""
        known = {name.split("-")[0] for name in self.counts}
        return subject not in known or label.split(":")[0] == subject.lower()

    def bias(self, pair: str) -> Array:
        """Return what is added to the logits of the labels: minus infinity forbids one."""
        if self.strength:
            counts = self.counts.get(pair, {})
            total = sum(counts.values()) + len(self.labels)
            return np.array([self.strength * math.log((counts.get(label, 0) + 1) / total) for label in self.labels])
        return np.array([0.0 if self.allows(pair, label) else -math.inf for label in self.labels])

    def find_forbidden(self, examples: Sequence[Any]) -> list[Any]:
        """Return the examples whose gold label is forbidden."""
        return [] if self.strength else [e for e in examples if not self.allows(type_pair(e), e.gold)]

    def apply(self, table: Array, examples: Sequence[Any]) -> Array:
        """Return the probabilities (a row per example) without forbidden labels; rows still sum to 1."""
        factors = {pair: np.exp(self.bias(pair)) for pair in {type_pair(example) for example in examples}}
        products = table * np.array([factors[type_pair(example)] for example in examples])
        totals = products.sum(axis=1, keepdims=True)
        return np.where(totals > 0, products / np.where(totals > 0, totals, 1), table)

    def as_dict(self) -> dict[str, Any]:
        return {
            "counts": {pair: dict(labels) for pair, labels in self.counts.items()},
            "min_count": self.min_count,
            "is_widened": self.is_widened,
            "strength": self.strength,
        }


def learn_type_mask(
    task: Task, train: Sequence[Any], *, min_count: int = 1, is_widened: bool = True, strength: float = 0.0
) -> TypeMask:
    """Return the mask of training examples."""
    if not isinstance(task.type, Relation):
        raise DanseoError(f"type_mask: {task.name} has no pairs of entity types; leave the setting out")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for example in train:
        counts[type_pair(example)][example.gold] += 1
    return TypeMask(task.labels, task.nothing, dict(counts), min_count, is_widened, strength)
