"""Whoever tells no probabilities is sure of the entities it names, and of what is none."""

from danseo.models.spans import sure_answers
from danseo.predictions.viterbi import decode_texts
from danseo.records import Prediction, TextExample
from danseo.tasks import TASKS

NER = TASKS["ner"]


def test_tags_give_the_same_answer_as_evidence():
    text = "홍길동 씨 😀 서울"
    tags = ("B-PS", "I-PS", "I-PS", "O", "O", "O", "O", "O", "B-LC", "I-LC")
    found = sure_answers(NER, [TextExample("a", text, ())], [Prediction("a", tags)])
    assert found.predictions == [Prediction("a", tags)]
    (table,) = found.tables
    covered = [not letter.isspace() for letter in text]
    assert [row.max() for row in table] == [1.0 if each else 0.0 for each in covered]  # nothing is said of spaces
    assert decode_texts([text], [table], [table.any(axis=1)], NER.labels) == [tags]
