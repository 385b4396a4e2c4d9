"""Predicted labels and probabilities as a CSV file (id, pred_label, probs), as solutions of KLUE-RE submit them."""

import json
from collections.abc import Iterator
from typing import Any

from danseo.data.prediction_file import read_records
from danseo.display.escaping import to_csv
from danseo.errors import DanseoError, PredictionError
from danseo.export.base import ExportFormat, ExportRequest
from danseo.files import quote, write_atomically
from danseo.runs.index import Record


def make_rows(record: Record) -> Iterator[tuple[str, str, str]]:
    """Yield the guid, the label and the list of probabilities of every dev example."""
    task = record.run.task
    if not task.type.has_label_probabilities:
        raise DanseoError(
            f"{task.name} has no label probabilities, which a CSV has; use --to bundle, or danseo predict"
        )
    for where, found in read_records(record.run.predictions_path("dev")):
        if not (isinstance(found, dict) and isinstance(found.get("guid"), str) and "answer" in found):
            raise PredictionError(f"{where}: no guid and answer in {quote(found)}; train the run again")
        if found.get("probabilities") is None:
            raise PredictionError(f"{where}: no probabilities, which a CSV has; export a run whose model gives them")
        try:
            probabilities = task.type.validate_probabilities(task, found["probabilities"])
        except ValueError as error:
            raise PredictionError(f"{where}: {error}") from None
        answer = (
            found["answer"] if isinstance(found["answer"], str) else json.dumps(found["answer"], ensure_ascii=False)
        )
        yield found["guid"], answer, json.dumps([probabilities.get(label, 0.0) for label in task.labels])


def write_csv(request: ExportRequest) -> dict[str, Any]:
    """Write the CSV file of a run."""
    path, record = request.path(".csv"), request.record
    rows = list(make_rows(record))
    write_atomically(path, to_csv([("id", "pred_label", "probs"), *rows]))
    return {"out": str(path), "rows": len(rows), "labels": list(record.run.task.labels)}


FORMAT = ExportFormat("csv", "id, pred_label and probs of every dev example, in the order of the labels", write_csv)
