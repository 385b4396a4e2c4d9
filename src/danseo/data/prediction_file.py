"""Read and write prediction files, the only connection between models and everything that reads answers."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from danseo.errors import DataError, PredictionError, get_message
from danseo.files import parse_json, quote, read_text, write_atomically
from danseo.language import _, join
from danseo.records import Prediction
from danseo.rows import is_prediction_file
from danseo.tasks.klue import recognise_task
from danseo.tasktypes.base import Task


def read_predictions(
    path: Path, task: Task, examples: Sequence[Any], *, partial: bool = False, skip: Sequence[str] = ()
) -> list[Prediction]:
    """Return the predictions in the order of the examples, each checked against its example.

    With partial, examples may lack a prediction; metrics in skip need no probabilities.
    """
    if not is_prediction_file(path):
        _refuse_gold(path, task)
    return _match_records(read_records(path), str(path), task, examples, partial=partial, skip=skip)


def read_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the records of a prediction file, each with its location."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", _parse_record(line, path, number)


def _refuse_gold(path: Path, task: Task) -> None:
    """Refuse a file with gold answers, of this task or another, in place of predictions."""
    is_gold = False
    with suppress(DataError):
        is_gold = bool(task.read(path))
    if name := task.name if is_gold else recognise_task(path):
        remedy = _("the gold file comes first, then the predictions")
        raise PredictionError(
            _("{path} contains gold answers of the task {name}, not predictions; {remedy}").format(
                path=path, name=name, remedy=remedy
            )
        )


def match_predictions(
    given: Sequence[Any], task: Task, examples: Sequence[Any], *, partial: bool = False, skip: Sequence[str] = ()
) -> list[Prediction]:
    """Do as read_predictions with values: predictions, records with guid and answer, or one answer per example."""
    if not all(isinstance(each, Prediction) or (isinstance(each, dict) and "guid" in each) for each in given):
        if len(given) != len(examples):
            raise PredictionError(
                _("{n} answers for {all} examples; give one each, or add the guids").format(
                    n=len(given), all=len(examples)
                )
            )
        given = [Prediction(example.guid, answer) for example, answer in zip(examples, given, strict=True)]
    records = [
        {"guid": each.guid, "answer": each.answer, "probabilities": each.probabilities}
        if isinstance(each, Prediction)
        else each
        for each in given
    ]
    numbered = ((f"prediction {number}", record) for number, record in enumerate(records, 1))
    return _match_records(numbered, "the predictions", task, examples, partial=partial, skip=skip)


def _match_records(
    records: Iterable[tuple[str, Any]],
    source: str,
    task: Task,
    examples: Sequence[Any],
    *,
    partial: bool,
    skip: Sequence[str],
) -> list[Prediction]:
    """Return the predictions of records, each with its location, in the order of the examples."""
    by_guid = {example.guid: example for example in examples}
    needs_probabilities = any(metric not in skip for metric in task.needs_probabilities)
    predictions: dict[str, Prediction] = {}
    for where, record in records:
        prediction = _check_record(record, where, task, by_guid, needs_probabilities)
        if prediction.guid in predictions:
            raise PredictionError(
                _("{where}: guid {guid} is answered twice; keep one").format(where=where, guid=quote(prediction.guid))
            )
        predictions[prediction.guid] = prediction
    missing = [guid for guid in by_guid if guid not in predictions]
    if missing and not (partial and predictions):
        raise PredictionError(
            _(
                "{source}: {n} of {all} examples have no prediction, the first is guid {guid}; add them, "
                "or score the others with `danseo score --partial`"
            ).format(source=source, n=len(missing), all=len(by_guid), guid=quote(missing[0]))
        )
    return [predictions[guid] for guid in by_guid if guid in predictions]


def _parse_record(line: str, path: Path, number: int) -> Any:
    """Return the record of a line of a prediction file."""
    where = f"{path}, line {number}"
    try:
        record = parse_json(line, path, number, _EXPECTED)
    except DataError as error:
        raise PredictionError(get_message(error)) from None
    if "\\u" in line and not _is_text(record):
        raise PredictionError(f"{where}: half a surrogate pair, which is no character; correct the \\u escapes")
    return record


_EXPECTED = _("write one JSON object per line, as `danseo predict -o FILE.jsonl` writes it")


def _check_record(
    record: Any, where: str, task: Task, by_guid: Mapping[str, Any], needs_probabilities: bool
) -> Prediction:
    """Return the prediction of a record, checked against its example."""
    if not (isinstance(record, dict) and isinstance(record.get("guid"), str) and "answer" in record):
        raise PredictionError(
            _('{where}: should be {{"guid": …, "answer": …}}, not {record}').format(where=where, record=quote(record))
        )
    guid = record["guid"]
    if guid not in by_guid:
        first = quote(next(iter(by_guid), ""))
        raise PredictionError(
            _(
                "{where}: guid {guid} is not in the gold file, whose first is {first}; name the gold file of "
                "these answers"
            ).format(where=where, guid=quote(guid), first=first)
        )
    try:
        answer = task.check_answer(by_guid[guid], record["answer"])
        probabilities = record.get("probabilities")
        if probabilities is not None:
            probabilities = task.type.validate_probabilities(task, probabilities)
        if needs_probabilities and probabilities is None:
            raise ValueError(f"no probabilities for {task.needs_probabilities[0]}; add them or use --skip auprc")
    except ValueError as error:
        raise PredictionError(join([f"{where} (guid {quote(guid)}):", get_message(error)])) from None
    return Prediction(guid, answer, probabilities)


def _is_text(record: Any) -> bool:
    """Return whether all texts of a record can be encoded."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write a prediction file atomically."""
    write_atomically(path, "".join(_format_line(prediction) for prediction in predictions))


def _format_line(prediction: Prediction) -> str:
    record: dict[str, Any] = {"guid": prediction.guid, "answer": prediction.answer}
    if prediction.probabilities is not None:
        record["probabilities"] = prediction.probabilities
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
