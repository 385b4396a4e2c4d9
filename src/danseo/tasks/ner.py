"""KLUE-NER: a tag for every character of a sentence, spaces included."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.errors import DataError
from danseo.files import quote, split_of
from danseo.metrics.statistic import Statistic, micro_f1
from danseo.metrics.tagging import (
    entity_counts,
    entity_precision,
    entity_recall,
    mend_leading_space,
    official_character_f1,
    sentence_accuracy,
    tag_macro_f1,
    token_length_f1,
    token_type_f1,
    without_spaces,
)
from danseo.records import Prediction, TextExample
from danseo.rows import Block, Row, is_parquet, read_blocks, read_rows
from danseo.tasks.inputs import text_input
from danseo.tasks.task import Task, answers_of, golds_of

TYPES = ("PS", "LC", "OG", "DT", "TI", "QT")
LABELS = (*(f"{prefix}-{name}" for name in TYPES for prefix in "BI"), "O")
HUB_LABELS = (*(f"{prefix}-{name}" for name in sorted(TYPES) for prefix in "BI"), "O")


def read(path: Path) -> list[TextExample]:
    if is_parquet(path):
        return [_from_hub(row, f"klue-ner-v1_{split_of(path)}_{k:05d}") for k, row in enumerate(read_rows(path))]
    return [_from_block(block, path) for block in read_blocks(path, columns=2)]


def _from_block(block: Block, path: Path) -> TextExample:
    for number, (character, tag) in block.lines:
        if len(character) != 1 or tag not in LABELS:
            what = (
                f"unknown tag {quote(tag)}; known: {', '.join(LABELS)}"
                if len(character) == 1
                else (f"{quote(character)} should be a single character; restore the line")
            )
            raise DataError(f"{path}, line {number} (guid {quote(block.guid)}): {what}")
    characters, tags = zip(*(fields for _, fields in block.lines), strict=True)
    return TextExample(block.guid, text="".join(characters), gold=tags)


def _from_hub(row: Row, guid: str) -> TextExample:
    """The Hub keeps no guid: the place in the file makes one."""
    tokens = row.texts("tokens")
    tags = row.values.get("ner_tags")
    if not isinstance(tags, list) or len(tags) != len(tokens) or any(len(token) != 1 for token in tokens):
        raise row.error("tokens and ner_tags should hold one character and one tag each; fetch the file again")
    names = [Row({"tag": tag}, row.where).label("tag", LABELS, HUB_LABELS) for tag in tags]
    return TextExample(guid, text="".join(tokens), gold=tuple(names))


def check_answer(example: TextExample, answer: Any) -> tuple[str, ...]:
    if not isinstance(answer, list | tuple):
        raise ValueError("the answer should be a list of tags, one per character line of the raw file")
    if len(answer) != len(example.gold):
        raise ValueError(f"{len(answer)} tags for {len(example.gold)} characters (spaces count)")
    if unknown := [tag for tag in answer if not isinstance(tag, str) or tag not in _KNOWN]:
        raise ValueError(f"unknown tag {quote(unknown[0])}; known: {', '.join(LABELS)}")
    return tuple(answer)


_KNOWN = frozenset(LABELS)


def measure(examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers, texts = golds_of(examples), answers_of(predictions), [example.text for example in examples]
    official = without_spaces(golds, answers, texts, TYPES)
    mended_golds, mended_answers = (
        [mend_leading_space(tags, text) for tags, text in zip(rows, texts, strict=True)] for rows in (golds, answers)
    )
    exact = without_spaces(mended_golds, mended_answers, texts, TYPES)
    return {
        "ner/entity_f1@official-1": entity_counts(official),
        "ner/char_f1@official-1": official_character_f1(official),
        "ner/char_f1@paper-1": tag_macro_f1(official, with_o=False),
        "ner/entity_f1@micro-1": entity_counts(official, micro_f1),
        "ner/entity_f1@mended-1": entity_counts(exact),
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
    kind="tag",
    folder="klue-ner-v1.1",
    extension=".tsv",
    official_rows={"train": 21008, "dev": 5000},
    read=read,
    labels=LABELS,
    meanings=MEANINGS,
    metrics={
        "ner/entity_f1@official-1": "mean F1 over entity types, strict IOB2, spaces removed",
        "ner/char_f1@official-1": "mean F1 over all 13 tags, O and the O around each sentence included",
        "ner/char_f1@paper-1": "mean F1 over the 12 tags without O",
        "ner/entity_f1@micro-1": "F1 of all entities pooled",
        "ner/entity_f1@mended-1": "as official, after moving a B- from a space to its word",
        "ner/entity_precision@micro-1": "share of the answered entities that are right",
        "ner/entity_recall@micro-1": "share of the gold entities that were found",
        "ner/sentence_accuracy@all-1": "share of the sentences with exactly the gold entities",
        "ner/token_f1@type-1": "F1 of characters inside entities, by type",
        "ner/token_f1@length-1": "entity F1 weighted by entity length",
    },
    measure=measure,
    check_answer=check_answer,
    form="text",
    input=text_input("text", "sentence"),
    columns={"ent": "ner/entity_f1@official-1", "char": "ner/char_f1@official-1"},
    parts=("sentence",),
    label_word="type",
    sample="ner",
)
