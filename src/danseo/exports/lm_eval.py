"""Scores in the form in which lm-evaluation-harness writes its results."""

import json
from typing import Any

from danseo.exports.format import Format, Request
from danseo.files import write_atomically
from danseo.runs.index import Record
from danseo.runs.origin import dataset_of


def results(record: Record) -> dict[str, Any]:
    """The document; values go from 0 to 1 there, and errors that were not measured are N/A."""
    split = record.scores["reported_on"]
    listed = [s for s in record.scores["scores"][split] if s["value"] is not None]
    dataset = dataset_of(record)
    name = f"{'klue' if dataset == 'klue/klue' else 'own' if record.run.task.own else 'sample'}_{record.task}"
    values: dict[str, Any] = {"alias": name}
    for score in listed:
        key = score["id"].split("/", 1)[1]
        values[f"{key},none"] = score["value"] / 100
        values[f"{key}_stderr,none"] = "N/A"
        if score["interval"]:
            values[f"{key}_interval95,none"] = [end / 100 for end in score["interval"]]
    n = listed[0]["n"] if listed else 0
    return {
        "results": {name: values},
        "group_subtasks": {name: []},
        "configs": {
            name: {
                "task": name,
                "dataset_path": dataset,
                "dataset_name": record.task,
                "metadata": _protocol(record),
            }
        },
        "versions": {name: "danseo"},
        "n-shot": {name: 0},
        "higher_is_better": {name: {score["id"].split("/", 1)[1]: True for score in listed}},
        "n-samples": {name: {"original": n, "effective": n}},
        "config": {
            "model": "danseo",
            "model_args": f"pretrained={record.model}",
            "model_num_parameters": _parameters(record),
        },
        "git_hash": record.surroundings.get("commit"),
        "model_name": record.model,
        "total_evaluation_time_seconds": record.surroundings.get("seconds"),
    }


def _protocol(record: Record) -> dict[str, Any]:
    return {
        "scored_on": record.scores["reported_on"],
        "selected_on": record.scores["selected_on"],
        "data": record.surroundings.get("data", {}),
        "danseo": record.surroundings.get("danseo"),
    }


def _parameters(record: Record) -> int | None:
    found = record.surroundings.get("parameters")
    return int(found) if isinstance(found, int | float) else None


def write(request: Request) -> dict[str, Any]:
    """Write the results file."""
    path, document = request.path(".lm-eval.json"), results(request.record)
    write_atomically(path, json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
    return {
        "out": str(path),
        "metrics": sum(key.endswith("_stderr,none") for v in document["results"].values() for key in v),
    }


FORMAT = Format("lm-eval", "scores as the results file of lm-evaluation-harness", write)
