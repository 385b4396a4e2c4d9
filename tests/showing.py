"""Finished runs for tests of pages: a baseline per task, and names, facts, labels and texts that try to be HTML."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from danseo.data.schema_inference import describe_files
from danseo.experiment import run_experiment
from danseo.models.registry import configure_run

TASKS = ("ynat", "sts", "nli", "ner", "re", "dp", "mrc", "wos")
OWN = ("evil", "spans")
RUNS = len(TASKS) + 2 + len(OWN)
EVIL = "<script>alert(1)</script>"
LABELS = ("<script>alert(2)</script>", '"><img src=x onerror=alert(3)>', "'onmouseover='alert(4)")
TEXT = "한국 </script><svg onload=alert(5)> 영화 {{ 7 * 7 }}"


def make_runs(sample: Path, folder: Path) -> Path:
    """Write them into a folder of runs."""
    for task in TASKS:
        run_experiment(configure_run(task, "majority", "default", {}), sample, folder, quiet=True)
    linear = run_experiment(configure_run("ynat", "linear", "default", {}), sample, folder, quiet=True).path
    evil = folder / "ynat--<script>alert(1)<"
    shutil.copytree(linear, evil)
    config = evil / "config.toml"
    config.write_text(config.read_text().replace('model = "linear"', f'model = "{EVIL}"'))
    (evil / "environment.json").write_text(
        (evil / "environment.json").read_text().replace('"cpu"', '"<img src=x onerror=alert(1)>"')
    )
    for name, make in (("evil", _labelled), ("spans", _marked)):
        task = str(_own_task(folder.parent, name, make))
        run_experiment(configure_run(task, "majority", "default", {}), sample, folder, quiet=True)
    return folder


def _labelled(count: int) -> list[dict]:
    return [{"text": f"{TEXT} {k}", "label": LABELS[0] if k % 2 else LABELS[k % 3]} for k in range(count)]


def _marked(count: int) -> list[dict]:
    return [
        {"text": f"{TEXT} {k}", "entities": [{"start": 0, "end": 2, "label": f"<b>{k % 2}</b>"}]} for k in range(count)
    ]


def _own_task(folder: Path, name: str, make: Callable[[int], list[dict]]) -> Path:
    for split, count in (("train", 30), ("dev", 24)):
        lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in make(count))
        (folder / f"{name}_{split}.jsonl").write_text(lines + "\n", "utf-8")
    task = folder / f"{name}.toml"
    task.write_text(describe_files([folder / f"{name}_{split}.jsonl" for split in ("train", "dev")], task), "utf-8")
    return task
