"""Entity spans become tags and tables, and label names are parsed."""

from danseo.models.entity_spans import EntitySpan, drop_overlaps, make_certain_answers
from danseo.records import Prediction, TextExample
from danseo.tasks import TASKS
from danseo.tasktypes.decoding import decode_texts

NER = TASKS["ner"]


def test_tags_give_the_same_answer_as_evidence():
    text = "홍길동 씨 😀 서울"
    tags = ("B-PS", "I-PS", "I-PS", "O", "O", "O", "O", "O", "B-LC", "I-LC")
    found = make_certain_answers(NER, [TextExample("a", text, ())], [Prediction("a", tags)])
    assert found.predictions == [Prediction("a", tags)]
    (table,) = found.tables
    covered = [not letter.isspace() for letter in text]
    assert [row.max() for row in table] == [1.0 if each else 0.0 for each in covered]  # spaces have no probabilities
    assert decode_texts([text], [table], [table.any(axis=1)], NER.labels) == [tags]


def test_of_overlapping_spans_the_higher_score_stays():
    spans = [EntitySpan(0, 3, "PS", 0.6), EntitySpan(2, 5, "LC", 0.9), EntitySpan(5, 7, "DT", 0.5)]
    assert drop_overlaps(spans, "가나다라마바 ") == [EntitySpan(2, 5, "LC", 0.9), EntitySpan(5, 6, "DT", 0.5)]
