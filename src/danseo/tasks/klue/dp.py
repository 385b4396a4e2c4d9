"""KLUE-DP: the head and the relation of every word of a sentence."""

from collections.abc import Sequence
from pathlib import Path

from danseo.files import infer_split, quote
from danseo.metrics.parsing import attachment, head_macro_f1, relation_macro_f1
from danseo.metrics.statistic import Metric, Statistic, index_metrics
from danseo.records import ParseExample, Prediction
from danseo.rows import Block, Row, is_parquet, read_blocks, read_rows
from danseo.tasktypes import parsing
from danseo.tasktypes.base import Task, answers_of, golds_of

COMMON = tuple("NP NP_AJT VP NP_SBJ VP_MOD NP_OBJ AP NP_CNJ NP_MOD VNP DP VP_AJT VNP_MOD NP_CMP VP_SBJ".split())
LABELS = (
    *COMMON,
    *(
        "VP_CMP VP_OBJ VNP_CMP AP_MOD X_AJT VP_CNJ VNP_AJT IP X X_SBJ VNP_OBJ VNP_SBJ X_OBJ AP_AJT L X_MOD X_CNJ "
        "VNP_CNJ X_CMP AP_CMP AP_SBJ R NP_SVJ"
    ).split(),
)
TAGS = tuple(
    (
        "NNG NNP NNB NP NR VV VA VX VCP VCN MMA MMD MMN MAG MAJ JC IC JKS JKC JKG JKO JKB JKV JKQ JX EP EF EC ETN ETM "
        "XPN XSN XSV XSA XR SF SP SS SE SO SL SH SW SN NA"
    ).split()
)
"""Parts of speech; a word has one per morpheme, joined by +."""


def read(path: Path) -> list[ParseExample]:
    if is_parquet(path):
        return [_read_hub_row(row, f"klue-dp-v1_{infer_split(path)}_{k:05d}") for k, row in enumerate(read_rows(path))]
    return [_read_block(block, path) for block in read_blocks(path, columns=6)]


def _read_block(block: Block, path: Path) -> ParseExample:
    gold = []
    for position, (number, (index, _, _, _, head, relation)) in enumerate(block.lines, 1):
        row = Row({}, f"{path}, line {number} (guid {quote(block.guid)})")
        gold.append(_read_arc(row, position, index, head, relation, len(block.lines)))
    _, words, lemmas, pos, _, _ = zip(*(fields for _, fields in block.lines), strict=True)
    return ParseExample(block.guid, words=words, gold=tuple(gold), text=block.text, lemmas=lemmas, pos=pos)


def _read_arc(row: Row, position: int, index: str, head: str, relation: str, words: int) -> tuple[int, str]:
    if index != str(position):
        raise row.error(f"word number {quote(index)} should be {position}; restore the missing or repeated line")
    if not (head.isascii() and head.isdigit()) or len(head) > 6 or not 0 <= int(head) <= words:
        raise row.error(f"head {quote(head)} is out of range; it should be from 0 (the root) to {words}")
    return int(head), row.one_of(relation, LABELS, "DEPREL")


def _read_hub_row(row: Row, guid: str) -> ParseExample:
    """Return the example of a row; the Hub stores no guid, so its position in the file makes one."""
    words, lemmas, pos, relations = (row.texts(key) for key in ("word_form", "lemma", "pos", "deprel"))
    indexes, heads = row.values.get("index"), row.values.get("head")
    if not isinstance(indexes, list) or not isinstance(heads, list):
        raise row.error("index and head should be lists; fetch the file again")
    if not len(words) == len(lemmas) == len(pos) == len(relations) == len(indexes) == len(heads) > 0:
        raise row.error("the lists of a sentence should have one entry per word; fetch the file again")
    columns = zip(indexes, heads, relations, strict=True)
    gold = tuple(_read_arc(row, k, str(i), str(h), r, len(words)) for k, (i, h, r) in enumerate(columns, 1))
    return ParseExample(guid, words=words, gold=gold, text=row.text("sentence"), lemmas=lemmas, pos=pos)


def measure(examples: Sequence[ParseExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    return {
        "dp/las@official-1": relation_macro_f1(golds, answers, COMMON),
        "dp/uas@official-1": head_macro_f1(golds, answers),
        "dp/uas@micro-1": attachment(golds, answers, labelled=False),
        "dp/las@micro-1": attachment(golds, answers, labelled=True),
        "dp/las_micro@official-1": attachment(golds, answers, labelled=True, common=COMMON),
    }


_PHRASES = {"NP": "체언구", "VP": "용언구", "VNP": "긍정 지정사구", "AP": "부사구", "DP": "관형사구", "IP": "감탄사구"}
_PHRASES |= {"X": "의사구", "L": "여는 부호", "R": "닫는 부호"}
_ROLES = {"SBJ": "주어", "OBJ": "목적어", "MOD": "관형어", "AJT": "부사어", "CMP": "보어", "CNJ": "접속어"}


def _describe_label(label: str) -> str:
    phrase, _, role = label.partition("_")
    return " ".join(filter(None, (_PHRASES.get(phrase, ""), _ROLES.get(role, ""))))


TASK = Task(
    name="dp",
    short="DP",
    title="dependency parsing",
    type=parsing.TYPE,
    folder="klue-dp-v1.1",
    extension=".tsv",
    official_rows={"train": 10000, "dev": 2000},
    read=read,
    labels=LABELS,
    meanings={label: _describe_label(label) for label in LABELS},
    metrics=index_metrics(
        Metric("dp/las@official-1", "mean F1 over relations, rare ones merged, WRONG-head class included"),
        Metric("dp/uas@official-1", "mean F1 with the head position as the class"),
        Metric("dp/uas@micro-1", "share of the words with the right head"),
        Metric("dp/las@micro-1", "share of the words with the right head and relation"),
        Metric("dp/las_micro@official-1", "the same with the 23 rare relations merged"),
    ),
    measure=measure,
    input=parsing.words_input(TAGS),
    columns={"UAS": "dp/uas@official-1", "LAS": "dp/las@official-1"},
    label_word="relation",
)
