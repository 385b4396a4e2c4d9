"""Scores as a results file of lm-evaluation-harness."""

import json
from typing import Any

from danseo.export.base import ExportFormat, ExportRequest
from danseo.files import write_atomically
from danseo.runs.index import Record
from danseo.runs.provenance import get_dataset


def make_results(record: Record) -> dict[str, Any]:
    """Return the results document: scores from 0 to 1, standard errors as N/A."""
    split = record.scores["reported_on"]
    listed = [s for s in record.scores["scores"][split] if s["value"] is not None]
    dataset = get_dataset(record)
    name = f"{'klue' if dataset == 'klue/klue' else 'own' if record.run.task.custom else 'sample'}_{record.task}"
    values: dict[str, Any] = {"alias": name}
    for score in listed:
        key = score["id"].split("/", 1)[1]
        values[f"{key},none"] = score["value"] / 100
        values[f"{key}_stderr,none"] = "N/A"
        if score["interval"]:
            values[f"{key}_interval95,none"] = [end / 100 for end in score["interval"]]
    n, parameters = listed[0]["n"] if listed else 0, record.surroundings.get("parameters")
    protocol = {
        "scored_on": split,
        "selected_on": record.scores["selected_on"],
        "data": record.surroundings.get("data", {}),
        "danseo": record.surroundings.get("danseo"),
    }
    return {
        "results": {name: values},
        "group_subtasks": {name: []},
        "configs": {name: {"task": name, "dataset_path": dataset, "dataset_name": record.task, "metadata": protocol}},
        "versions": {name: "danseo"},
        "n-shot": {name: 0},
        "higher_is_better": {name: {score["id"].split("/", 1)[1]: True for score in listed}},
        "n-samples": {name: {"original": n, "effective": n}},
        "config": {
            "model": "danseo",
            "model_args": f"pretrained={record.model}",
            "model_num_parameters": int(parameters) if isinstance(parameters, int | float) else None,
        },
        "git_hash": record.surroundings.get("commit"),
        "model_name": record.model,
        "total_evaluation_time_seconds": record.surroundings.get("seconds"),
    }


def write_results(request: ExportRequest) -> dict[str, Any]:
    """Write the results file."""
    path, document = request.path(".lm-eval.json"), make_results(request.record)
    write_atomically(path, json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
    return {
        "out": str(path),
        "metrics": sum(key.endswith("_stderr,none") for v in document["results"].values() for key in v),
    }


FORMAT = ExportFormat("lm-eval", "scores as a results file of lm-evaluation-harness", write_results)
