"""The soft targets of a distillation: a folder with the answers of a teacher to train and to unlabelled text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from danseo.data.input_reader import InputLine, read_line
from danseo.data.prediction_file import match_predictions, read_records
from danseo.errors import DanseoError, DataError
from danseo.files import read_bytes, read_json
from danseo.records import Prediction
from danseo.runs.predictions import hash_predictions
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding import read_npz

SUMMARY, TEXT = "targets.json", "text.jsonl"


class TeacherAnswer(NamedTuple):
    """The answer of a teacher to one example."""

    prediction: Prediction
    row: Any
    """What `TaskType.unpack_arrays` returns for the example; None if there are no arrays."""


@dataclass(frozen=True)
class SoftTargets:
    """A folder of soft targets; targets.json is written last, so a folder with it is complete."""

    folder: Path

    @property
    def is_complete(self) -> bool:
        return (self.folder / SUMMARY).is_file()

    def part_path(self, number: int) -> Path:
        """Return the prediction file of a part; arrays are in the npz file beside it."""
        return self.folder / f"part-{number:05}.jsonl"

    def read_summary(self, task: Task) -> dict[str, Any]:
        """Return the teacher and the hashes of the parts; refuse targets that are incomplete or of another task."""
        if not self.is_complete:
            raise DanseoError(f"no soft targets: {self.folder} has no {SUMMARY}; `danseo distill` makes such a folder")
        summary = read_json(self.folder / SUMMARY)
        try:
            name, labels = summary["task"], summary["labels"]
            found = {"teacher": str(summary["teacher"]), "sha256": [str(each) for each in summary["sha256"]]}
        except (LookupError, TypeError):
            raise DataError(f"not the list of soft targets: {self.folder / SUMMARY}; run `danseo distill`") from None
        if (name, labels) != (task.name, list(task.labels)):
            other = "other labels" if name == task.name else f"the task {name}"
            raise DanseoError(f"the soft targets in {self.folder} have {other}; name those of {task.name}")
        return found

    def read_text(self, task: Task, *, with_pos: bool = False) -> list[Any]:
        """Return the examples of the unlabelled text, without gold."""
        path = self.folder / TEXT
        lines = read_bytes(path).split(b"\n") if path.is_file() else []
        found = [read_line(line, number, task, with_pos=with_pos) for number, line in enumerate(lines, 1)]
        return [replace(item.example, guid=f"text:{item.number}") for item in found if isinstance(item, InputLine)]

    def read_answers(self, task: Task, examples: Sequence[Any]) -> dict[str, TeacherAnswer]:
        """Return guid -> answer, for those of the examples that the teacher answered."""
        by_guid, answers = {example.guid: example for example in examples}, dict[str, TeacherAnswer]()
        for number, sha256 in enumerate(self.read_summary(task)["sha256"]):
            path = self.part_path(number)
            if not path.is_file() or hash_predictions(path) != sha256:
                raise DataError(f"missing or changed: {path}; remove {self.folder} and run `danseo distill` again")
            records, arrays = [record for _, record in read_records(path)], read_npz(path.with_suffix(".npz"))
            rows = task.type.unpack_arrays(task, arrays) if arrays else [None] * len(records)
            for record, row in zip(records, rows, strict=True):
                if example := by_guid.get(record["guid"]):
                    matched = match_predictions([record], task, [example], skip=task.needs_probabilities)
                    answers[example.guid] = TeacherAnswer(matched[0], row)
        return answers

    def label_text(self, task: Task) -> list[Any]:
        """Return the examples of the text with the teacher's answers as gold, without answers that cannot be gold."""
        text = self.read_text(task)
        answers = self.read_answers(task, text)
        labelled = [task.type.with_answer(task, each, answers[each.guid].prediction.answer) for each in text]
        return [example for example in labelled if example is not None]
