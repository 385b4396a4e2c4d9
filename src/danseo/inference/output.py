"""The record of a prediction, described by answer.schema.json, and its formats: JSON lines, CSV and CoNLL."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from danseo.data.input_reader import InputLine
from danseo.display.escaping import to_csv, to_json
from danseo.errors import DanseoError
from danseo.language import _
from danseo.models.base import Model
from danseo.tasktypes.base import AnswerFixer, Task

RESERVED_FIELDS = frozenset(
    (
        "guid line text pair question subject object turns answer confidence probabilities spans tags words pos_tagger "
        "fixed_by start end"
    ).split()
)
"""Field names of danseo; a user's field with such a name gets the prefix input_."""


@dataclass(frozen=True)
class RecordOptions:
    """Optional fields of a record."""

    text: bool = False
    tags: bool = False
    fixer: AnswerFixer | None = None
    """Corrects the answers; its name is in the record."""


ANSWER_ONLY = RecordOptions()


def read_record_schema() -> dict[str, Any]:
    """Return the JSON schema of a record."""
    schema: dict[str, Any] = json.loads(files(__package__).joinpath("answer.schema.json").read_text("utf-8"))
    return schema


def predict_records(
    model: Model, task: Task, lines: Sequence[InputLine], options: RecordOptions = ANSWER_ONLY
) -> list[dict[str, Any]]:
    """Return one record per example, in order."""
    if not lines:
        return []
    answers = model.predict([line.example for line in lines])
    fixer, tables = options.fixer, answers.tables or [None] * len(lines)
    predictions = fixer([line.example for line in lines], answers) if fixer else answers
    return [
        {
            "guid": line.example.guid,
            "line": line.number,
            **rename_user_fields(line.extra),
            **(get_texts(line.example) if options.text else {}),
            **task.type.to_row(task, line.example, prediction, table, with_tags=options.tags),
            **({"fixed_by": fixer.name} if fixer else {}),
        }
        for line, prediction, table in zip(lines, predictions, tables, strict=True)
    ]


def rename_user_fields(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's fields; reserved names get the prefix input_."""
    return {
        f"input_{name}" if name in RESERVED_FIELDS else name: value for name, value in own.items() if name != "guid"
    }


def get_texts(example: Any) -> dict[str, Any]:
    """Return the texts of an example."""
    texts: dict[str, Any] = {
        name: getattr(example, name)
        for name in ("text", "pair", "question", "turns")
        if getattr(example, name, None) is not None
    }
    entities = ((name, getattr(example, name, None)) for name in ("subject", "object"))
    return texts | {name: asdict(entity) for name, entity in entities if entity is not None}


Record = Mapping[str, Any]
Writer = Callable[[Iterable[Record]], str]
_TEXTS = ("text", "pair", "question", "subject", "object", "turns")


def get_writer(style: str, task: Task) -> Writer:
    """Return the function that writes records in a format."""
    if style == "csv":
        return CsvWriter(task)
    if style == "conll":
        if not task.type.has_conll:
            raise DanseoError(
                _("conll is for tags and parses, not for {task}; use --format jsonl or csv").format(task=task.name)
            )
        return lambda records: "".join(map(task.type.to_conll, records))
    return _to_jsonl


def _to_jsonl(records: Iterable[Record]) -> str:
    return "".join(to_json(record, indent=None) + "\n" for record in records)


class CsvWriter:
    """Writes a header from the first record, and a row per record; lists and objects become JSON."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.columns: list[str] = []
        custom = task.custom
        self.names = {"text": custom.text, "pair": custom.pair, "question": custom.question} if custom else {}
        """The names of the columns of the texts in a custom task."""

    def __call__(self, records: Iterable[Record]) -> str:
        listed, rows = list(records), []
        if listed and not self.columns:
            self.columns = self._choose_columns(listed[0])
            rows.append([self.names.get(name) or name for name in self.columns])
        rows += [[_format_cell(record.get(name)) for name in self.columns] for record in listed]
        return to_csv(rows)

    def _choose_columns(self, first: Record) -> list[str]:
        """Return the columns: fields of the user and texts come before the answer."""
        ours = self.task.type.csv_columns
        hidden = {"guid", "line", "answer", "probabilities", "words", "spans", *ours, *_TEXTS}
        own = [name for name in first if name not in hidden and name != "tags"]
        texts = [name for name in _TEXTS if name in first]
        return ["guid", "line", *own, *texts, *ours, *(["tags"] if "tags" in first else [])]


def _format_cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple | dict) else value
