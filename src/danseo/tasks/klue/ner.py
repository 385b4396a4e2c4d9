"""KLUE-NER: a tag for every character of a sentence, spaces included."""

from collections.abc import Sequence
from pathlib import Path

from danseo.files import infer_split, quote
from danseo.metrics.statistic import Metric, Statistic, index_metrics, micro_f1
from danseo.metrics.tagging import (
    correct_leading_space,
    encode_characters,
    entity_counts,
    entity_precision,
    entity_recall,
    official_character_f1,
    sentence_accuracy,
    tag_macro_f1,
    token_length_f1,
    token_type_f1,
)
from danseo.records import Prediction, TextExample
from danseo.rows import Block, Row, is_parquet, read_blocks, read_rows
from danseo.tasktypes import tagging
from danseo.tasktypes.base import Task, answers_of, golds_of
from danseo.tasktypes.inputs import text_input

TYPES = ("PS", "LC", "OG", "DT", "TI", "QT")
LABELS = (*(f"{prefix}-{name}" for name in TYPES for prefix in "BI"), "O")
HUB_LABELS = (*(f"{prefix}-{name}" for name in sorted(TYPES) for prefix in "BI"), "O")


def read(path: Path) -> list[TextExample]:
    if is_parquet(path):
        return [_read_hub_row(row, f"klue-ner-v1_{infer_split(path)}_{k:05d}") for k, row in enumerate(read_rows(path))]
    return [_read_block(block, path) for block in read_blocks(path, columns=2)]


def _read_block(block: Block, path: Path) -> TextExample:
    for number, (character, tag) in block.lines:
        if len(character) != 1 or tag not in LABELS:
            row = Row({}, f"{path}, line {number} (guid {quote(block.guid)})")
            row.one_of(tag, LABELS, "tag")
            raise row.error(f"{quote(character)} should be a single character; restore the line")
    characters, tags = zip(*(fields for _, fields in block.lines), strict=True)
    return TextExample(block.guid, text="".join(characters), gold=tags)


def _read_hub_row(row: Row, guid: str) -> TextExample:
    """Return the example of a row; the Hub stores no guid, so its position in the file makes one."""
    tokens = row.texts("tokens")
    tags = row.values.get("ner_tags")
    if not isinstance(tags, list) or len(tags) != len(tokens) or any(len(token) != 1 for token in tokens):
        raise row.error("tokens and ner_tags should hold one character and one tag each; fetch the file again")
    names = [Row({"tag": tag}, row.where).label("tag", LABELS, HUB_LABELS) for tag in tags]
    return TextExample(guid, text="".join(tokens), gold=tuple(names))


def measure(examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers, texts = golds_of(examples), answers_of(predictions), [example.text for example in examples]
    official = encode_characters(golds, answers, texts, TYPES)
    mended_golds, mended_answers = (
        [correct_leading_space(tags, text) for tags, text in zip(rows, texts, strict=True)] for rows in (golds, answers)
    )
    exact = encode_characters(mended_golds, mended_answers, texts, TYPES)
    return {
        "ner/entity_f1@official-1": entity_counts(official),
        "ner/char_f1@official-1": official_character_f1(official),
        "ner/char_f1@paper-1": tag_macro_f1(official, with_o=False),
        "ner/entity_f1@micro-1": entity_counts(official, micro_f1),
        "ner/entity_f1@mended-1": entity_counts(exact),
        "ner/entity_f1@particle-lenient-1": tagging.forgive_particles(official, texts),
        "ner/entity_precision@micro-1": entity_precision(official),
        "ner/entity_recall@micro-1": entity_recall(official),
        "ner/sentence_accuracy@all-1": sentence_accuracy(official),
        "ner/token_f1@type-1": token_type_f1(official),
        "ner/token_f1@length-1": token_length_f1(official),
    }


MEANINGS = {
    "PS": "인물 (사람 이름)",
    "LC": "지역 (나라, 도시, 산, 강 등의 이름)",
    "OG": "기관 (회사, 단체, 정부 기관 등의 이름)",
    "DT": "날짜 (연도, 월, 일, 요일, 기간)",
    "TI": "시간 (시각과 시간의 길이)",
    "QT": "수량 (나이, 금액, 횟수, 순위 등의 수)",
}

TASK = Task(
    name="ner",
    short="NER",
    title="named entity recognition",
    type=tagging.TYPE,
    folder="klue-ner-v1.1",
    extension=".tsv",
    official_rows={"train": 21008, "dev": 5000},
    read=read,
    labels=LABELS,
    meanings=MEANINGS,
    metrics=index_metrics(
        Metric("ner/entity_f1@official-1", "mean F1 over entity types, strict IOB2, spaces removed"),
        Metric("ner/char_f1@official-1", "mean F1 over all 13 tags, O and the O around each sentence included"),
        Metric("ner/char_f1@paper-1", "mean F1 over the 12 tags without O"),
        Metric("ner/entity_f1@micro-1", "F1 of all entities pooled"),
        Metric("ner/entity_f1@mended-1", "as official, after moving a B- from a space to its word"),
        Metric(
            "ner/entity_f1@particle-lenient-1", "as official, if a particle more or less at the end does not matter"
        ),
        Metric("ner/entity_precision@micro-1", "share of the answered entities that are right"),
        Metric("ner/entity_recall@micro-1", "share of the gold entities that were found"),
        Metric("ner/sentence_accuracy@all-1", "share of the sentences with exactly the gold entities"),
        Metric("ner/token_f1@type-1", "F1 of characters inside entities, by type"),
        Metric("ner/token_f1@length-1", "entity F1 weighted by entity length"),
    ),
    measure=measure,
    input=text_input("text", "sentence"),
    columns={"ent": "ner/entity_f1@official-1", "char": "ner/char_f1@official-1"},
    parts=("sentence",),
    label_word="type",
)
