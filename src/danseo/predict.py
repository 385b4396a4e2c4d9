"""Answer a stream of lines: what `danseo predict` does, a few lines at a time."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from danseo.data.lines import BadLine, lines_in, read_line, unpacked
from danseo.display.escaping import say, to_json
from danseo.errors import DanseoError, DataError, PartlyDone
from danseo.evaluate import open_run
from danseo.metrics.tagging import spans_of
from danseo.models.families import load_model
from danseo.models.protocol import Model
from danseo.records import Prediction
from danseo.tasks.task import Task


def predict_lines(
    path: Path,
    file: str,
    output: Path | None,
    *,
    batch: int = 512,
    device: str | None = None,
    precision: str | None = None,
    trust_remote_code: bool = False,
) -> None:
    """Read, answer and write; bad lines are named on stderr, the others go on, and the end tells (exit 3)."""
    run = open_run(path)
    task = run.task
    model = load_model(run, device, precision, trust_remote_code=trust_remote_code)
    bad = done = 0
    with opened(file) as raw, target(output, file) as sink:
        source = unpacked(raw, "standard input" if file == "-" else file)
        for group in lines_in(source, batch):
            found = [read_line(line, number, task, with_pos=model.reads_pos) for number, line in group]
            for line in (item for item in found if isinstance(item, BadLine)):
                say(f"danseo: {line.reason}")
                bad += 1
            good = [item for item in found if item is not None and not isinstance(item, BadLine)]
            for record in answered(model, task, good):
                sink.write(to_json(record, indent=None) + "\n")
            sink.flush()
            done += len(good)
    if bad and not done:
        raise DataError(f"{bad} of {bad} lines could not be read; nothing is answered")
    if bad:
        raise PartlyDone(f"{bad} of {bad + done} lines could not be read; the other {done} are answered")


def opened(file: str) -> AbstractContextManager[BinaryIO]:
    """A file, or standard input for "-"."""
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise DataError(
            f"{file} cannot be read: {error.strerror}; name a file of lines, or - for standard input"
        ) from None


def target(output: Path | None, file: str) -> AbstractContextManager[TextIO]:
    """A file, or standard output; never the file that is read."""
    if output is None:
        return nullcontext(sys.stdout)
    try:
        if file != "-" and output.exists() and output.samefile(file):
            raise DanseoError(f"{output} is what is read; write the answers to another file")
        return output.open("w", encoding="utf-8")
    except OSError as error:
        raise DanseoError(f"{output} cannot be written: {error.strerror}") from None


def answered(model: Model, task: Task, numbered: list[tuple[int, Any]]) -> Iterator[dict[str, Any]]:
    """One record per example: its line, its answer, and what the answer covers."""
    if not numbered:
        return
    examples = [example for _, example in numbered]
    answers = model.predict(examples)
    tables = answers.tables or [None] * len(examples)
    for (number, example), prediction, table in zip(numbered, answers, tables, strict=True):
        yield {"guid": example.guid, "line": number, **described(task, example, prediction, table)}


def described(task: Task, example: Any, prediction: Prediction, table: Any) -> dict[str, Any]:
    """The answer with spans in characters and confidences, as far as the task has them."""
    record: dict[str, Any] = {"answer": prediction.answer}
    if task.kind == "classify" and prediction.probabilities:
        record |= {
            "confidence": max(prediction.probabilities.values()),
            "probabilities": dict(prediction.probabilities),
        }
    if task.kind == "tag":
        record["spans"] = [
            _span(example.text, span, prediction.answer, table, task) for span in spans_of(prediction.answer)
        ]
    if task.kind == "parse":
        columns = zip(example.words, prediction.answer, strict=True)
        record["words"] = [{"word": word, "head": head, "relation": relation} for word, (head, relation) in columns]
    if task.kind == "answer":
        if prediction.span:
            record["start"], record["end"] = prediction.span
        if prediction.probabilities:
            none = prediction.probabilities.get("", 0.0)
            record["confidence"] = round(1 - none if prediction.answer else none, 6)
    return record


def _span(text: str, span: tuple[int, int, str], tags: Any, table: Any, task: Task) -> dict[str, Any]:
    start, end, kind = span
    found: dict[str, Any] = {"start": start, "end": end, "type": kind, "text": text[start:end]}
    if table is not None:
        chosen = [float(table[k, task.labels.index(tags[k])]) for k in range(start, end) if table[k].any()]
        found["confidence"] = round(min(chosen), 4) if chosen else None
    return found
