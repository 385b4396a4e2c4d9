"""KLUE-RE: the relation between two entities of a sentence."""

from collections.abc import Sequence
from pathlib import Path

from danseo.files import quote
from danseo.metrics.classification import (
    Ranking,
    accuracy,
    curves,
    relation_micro_f1,
    relation_precision,
    relation_recall,
)
from danseo.metrics.statistic import Statistic
from danseo.records import Entity, Prediction, RelationExample
from danseo.rows import Row, read_rows
from danseo.tasks.inputs import relation_input
from danseo.tasks.task import Task, answers_of, check_label, golds_of

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
TYPES = ("PER", "ORG", "LOC", "DAT", "POH", "NOH")


def read(path: Path) -> list[RelationExample]:
    return [
        RelationExample(
            row.text("guid"),
            text=(sentence := row.text("sentence")),
            subject=_entity(row.child("subject_entity"), sentence),
            object=_entity(row.child("object_entity"), sentence),
            gold=row.label("label", LABELS, LABELS),
            source=row.optional_text("source"),
        )
        for row in read_rows(path)
    ]


def _entity(row: Row, sentence: str) -> Entity:
    """The entity, its inclusive end turned into an exclusive one."""
    word, start, end = row.text("word"), row.integer("start_idx"), row.integer("end_idx") + 1
    if not 0 <= start < end <= len(sentence) or sentence[start:end] != word:
        found = sentence[start:end] if 0 <= start < end else ""
        raise row.error(
            f"the sentence has {quote(found)} at {quote(start)}..{quote(end - 1)}, not {quote(word)}; "
            "mend start_idx and end_idx (the end is inclusive)"
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
        ranked = curves(golds, probabilities, LABELS)
        scores["re/auprc@official-1"] = Ranking(ranked)
        scores["re/auprc@present-1"] = Ranking(ranked, only_present=True)
        scores["re/auprc@ap-1"] = Ranking(ranked, only_present=True, trapezoid=False)
    return scores


TASK = Task(
    name="re",
    short="RE",
    title="relation extraction",
    kind="classify",
    folder="klue-re-v1.1",
    extension=".json",
    official_rows={"train": 32470, "dev": 7765},
    read=read,
    labels=LABELS,
    companions={"relation_list.json": 30},
    metrics={
        "re/micro_f1@official-1": "F1 pooled over the 29 relations, no_relation left out",
        "re/auprc@official-1": "mean area under 30 precision-recall curves, by trapezoids",
        "re/accuracy@plain-1": "share of right labels, no_relation included",
        "re/precision@plain-1": "share of the answered relations that are right",
        "re/recall@plain-1": "share of the gold relations that were found",
        "re/auprc@present-1": "as official, over the labels that occur in gold",
        "re/auprc@ap-1": "mean average precision over the labels that occur in gold",
    },
    measure=measure,
    check_answer=check_label(LABELS),
    needs_probabilities=("re/auprc@official-1", "re/auprc@present-1", "re/auprc@ap-1"),
    form="relation",
    input=relation_input(TYPES),
    columns={"F1": "re/micro_f1@official-1", "AUPRC": "re/auprc@official-1"},
    shown_metrics=("re/accuracy@plain-1",),
    parts=("sentence",),
    label_word="relation",
    nothing=NO_RELATION,
    sample="relation",
)
