"""Records as lines of JSON, as CSV, or as CoNLL."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from danseo.display.escaping import to_csv, to_json
from danseo.errors import DanseoError
from danseo.tasks.task import Task

Record = Mapping[str, Any]
Writer = Callable[[Iterable[Record]], str]
FORMATS = ("jsonl", "csv", "conll")
_OF_KIND = {
    "classify": ("confidence",),
    "labels": ("confidence",),
    "tag": ("spans",),
    "answer": ("start", "end", "confidence"),
}
_TEXTS = ("text", "pair", "question", "subject", "object", "turns")


def writer_of(style: str, task: Task) -> Writer:
    """What makes text of records in a format."""
    if style == "csv":
        return Csv(task)
    if style == "conll":
        if task.kind not in ("tag", "parse"):
            raise DanseoError(f"conll is for tags and parses, not for {task.name}; use --format jsonl or csv")
        return _conll_tags if task.kind == "tag" else _conll_words
    return _jsonl


def _jsonl(records: Iterable[Record]) -> str:
    return "".join(to_json(record, indent=None) + "\n" for record in records)


class Csv:
    """A header, taken from the first record, and a row per record; lists and objects are JSON in their cell."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.columns: list[str] = []

    def __call__(self, records: Iterable[Record]) -> str:
        found, rows = list(records), []
        if found and not self.columns:
            self.columns = self._columns(found[0])
            rows.append(self.columns)
        rows += [[_cell(record.get(name)) for name in self.columns] for record in found]
        return to_csv(rows)

    def _columns(self, first: Record) -> list[str]:
        """Answers of tags are their spans; a text or field of the user's stands before the answer."""
        ours = ("spans",) if self.task.kind == "tag" else ("answer", *_OF_KIND.get(self.task.kind, ()))
        hidden = {"guid", "line", "answer", "probabilities", "words", "spans", *ours, *_TEXTS}
        own = [name for name in first if name not in hidden and name != "tags"]
        texts = [name for name in _TEXTS if name in first]
        return ["guid", "line", *own, *texts, *ours, *(["tags"] if "tags" in first else [])]


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple | dict) else value


def _conll_tags(records: Iterable[Record]) -> str:
    """As the raw files of ner: a line per character with its tag."""
    return "".join(
        f"## {record['guid']}\t{record['text']}\n{_lines(zip(record['text'], record['answer'], strict=True))}\n"
        for record in records
    )


def _conll_words(records: Iterable[Record]) -> str:
    """CoNLL-U: ten columns, of which words, heads and relations are known."""
    made = []
    for record in records:
        rows = [
            (number, word["word"], "_", "_", "_", "_", word["head"], word["relation"], "_", "_")
            for number, word in enumerate(record["words"], 1)
        ]
        made.append(f"# sent_id = {record['guid']}\n# text = {record['text']}\n{_lines(rows)}\n")
    return "".join(made)


def _lines(rows: Iterable[Sequence[object]]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)
