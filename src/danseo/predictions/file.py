"""Prediction files: the narrow waist between models and everything that reads their answers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from danseo.errors import DataError, PredictionError
from danseo.files import parse_json, quote, read_text, write_atomically
from danseo.records import Prediction
from danseo.tasks.task import Task


def read_predictions(
    path: Path, task: Task, examples: Sequence[Any], *, partial: bool = False, skip: Sequence[str] = ()
) -> list[Prediction]:
    """The predictions in the order of the examples, each checked against its example.

    With partial, examples without a prediction are left out; metrics named in skip may lack probabilities.
    """
    lines = ((number, line) for number, line in enumerate(read_text(path).split("\n"), 1) if line.strip())
    records = ((f"{path}, line {number}", _record(line, path, number)) for number, line in lines)
    return _matched(records, str(path), task, examples, partial=partial, skip=skip)


def given_predictions(
    given: Sequence[Any], task: Task, examples: Sequence[Any], *, partial: bool = False, skip: Sequence[str] = ()
) -> list[Prediction]:
    """As read_predictions, of values: predictions, records with guid and answer, or one bare answer per example."""
    if not all(isinstance(each, Prediction) or (isinstance(each, dict) and "guid" in each) for each in given):
        if len(given) != len(examples):
            raise PredictionError(f"{len(given)} answers to {len(examples)} examples; give one each, or name the guids")
        given = [Prediction(example.guid, answer) for example, answer in zip(examples, given, strict=True)]
    records = [
        {"guid": each.guid, "answer": each.answer, "probabilities": each.probabilities}
        if isinstance(each, Prediction)
        else each
        for each in given
    ]
    named = ((f"prediction {number}", record) for number, record in enumerate(records, 1))
    return _matched(named, "the predictions", task, examples, partial=partial, skip=skip)


def _matched(
    records: Iterable[tuple[str, Any]],
    source: str,
    task: Task,
    examples: Sequence[Any],
    *,
    partial: bool,
    skip: Sequence[str],
) -> list[Prediction]:
    """Records, each with where it stands, as predictions in the order of the examples."""
    wanted = {example.guid: example for example in examples}
    needs_probabilities = any(metric not in skip for metric in task.needs_probabilities)
    found: dict[str, Prediction] = {}
    for where, record in records:
        prediction = _prediction(record, where, task, wanted, needs_probabilities)
        if prediction.guid in found:
            raise PredictionError(f"{where}: guid {quote(prediction.guid)} is answered twice; keep one")
        found[prediction.guid] = prediction
    missing = [guid for guid in wanted if guid not in found]
    if missing and not (partial and found):
        raise PredictionError(
            f"{source}: {len(missing)} of {len(wanted)} examples have no prediction, the first is guid "
            f"{quote(missing[0])}; add them (`danseo score --partial` scores what is there)"
        )
    return [found[guid] for guid in wanted if guid in found]


def _record(line: str, path: Path, number: int) -> Any:
    """What one line of a prediction file says."""
    where = f"{path}, line {number}"
    try:
        record = parse_json(line, path, number, "one JSON object per line is due")
    except DataError as error:
        raise PredictionError(str(error)) from None
    if not _is_prediction(record):
        raise PredictionError(f'{where}: should be {{"guid": …, "answer": …}}, not {quote(line.strip())}')
    if "\\u" in line and not _is_text(record):
        raise PredictionError(f"{where}: half a surrogate pair, which is no character; mend the \\u escapes")
    return record


def _is_prediction(record: Any) -> bool:
    return isinstance(record, dict) and isinstance(record.get("guid"), str) and "answer" in record


def _prediction(
    record: Any, where: str, task: Task, wanted: Mapping[str, Any], needs_probabilities: bool
) -> Prediction:
    """One record, checked against its example."""
    if not _is_prediction(record):
        raise PredictionError(f'{where}: should be {{"guid": …, "answer": …}}, not {quote(record)}')
    guid = record["guid"]
    if guid not in wanted:
        raise PredictionError(f"{where}: guid {quote(guid)} is not in the gold file; are these the right examples?")
    try:
        answer = task.check_answer(wanted[guid], record["answer"])
        probabilities = _probabilities(record.get("probabilities"), task)
        if needs_probabilities and probabilities is None:
            raise ValueError(
                f"no probabilities, which {task.needs_probabilities[0]} needs; add them or use --skip auprc"
            )
    except ValueError as error:
        raise PredictionError(f"{where} (guid {quote(guid)}): {error}") from None
    return Prediction(guid, answer, probabilities)


def _is_text(record: Any) -> bool:
    """Whether all that the record says can be written again."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _probabilities(value: Any, task: Task) -> Any:
    """Label probabilities, checked; those of tags come per character and are kept as they are."""
    if value is None or task.kind == "tag":
        return value
    if not isinstance(value, dict) or not value:
        raise ValueError(f"probabilities should be an object label -> probability, not {quote(value)}")
    for label, probability in value.items():
        if task.kind in ("classify", "labels") and label not in task.labels:
            raise ValueError(f"probability of the unknown label {quote(label)}; known: {', '.join(task.labels)}")
        is_number = isinstance(probability, int | float) and not isinstance(probability, bool)
        if not is_number or not 0 <= probability <= 1 + 1e-6:
            raise ValueError(f"probability of {quote(label)} should be a number from 0 to 1, not {quote(probability)}")
    return value


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write a prediction file, whole or not at all."""
    write_atomically(path, "".join(_line(prediction) for prediction in predictions))


def _line(prediction: Prediction) -> str:
    record: dict[str, Any] = {"guid": prediction.guid, "answer": prediction.answer}
    if prediction.probabilities is not None:
        record["probabilities"] = prediction.probabilities
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
