"""The main job end to end on the built-in sample: eight tasks, one table, one report, offline."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from danseo.config import RunConfig
from danseo.data import find
from danseo.display.table import Table, to_markdown
from danseo.experiment import run_experiment
from danseo.extras import require
from danseo.files import write_atomically
from danseo.models.encoder.facts import packages_of
from danseo.recipes import configured
from danseo.report.making import write_report
from danseo.runs.directory import Run
from danseo.runs.layouts.single import beats
from danseo.runs.scores import headline_of
from danseo.sample import sample_module, tasks_with_sample, write_sample
from danseo.tasks.task import Task

# A small encoder with random weights has to learn everything, so it learns faster and longer than a pretrained one.
REPORT = "report.html"
_COMMON = {"learning_rate": 1e-3, "evaluations": 1, "warmup": 0.1, "weight_decay": 0.01}


def run_demo(
    folder: Path, tasks: Sequence[Task] | None = None, on_note: Callable[[str], None] = lambda note: None
) -> Table:
    """Write the sample, make a small encoder, fine-tune it on all tasks, and put it beside its floors."""
    tasks = [task for task in tasks or tasks_with_sample() if task.sample]
    require(*{package: None for task in tasks for package in packages_of("encoder", task.name)}, "scikit-learn")
    sample = folder / "sample"
    write_sample(sample)
    encoder = demo_encoder(folder / "encoder", sample)
    rows: list[tuple[object, ...]] = []
    for number, task in enumerate(tasks, 1):
        on_note(f"[{number}/{len(tasks)}] {task.short}: {task.title}")
        rows.append(_row(task, encoder, sample, folder / "runs"))
    columns = ("task", "metric", "n", "encoder", "95 % interval", "majority", "linear", "seconds", "beats majority")
    note = "all of dev of the built-in sample, checkpoint picked on its select half; scores say nothing about KLUE"
    if behind := [str(row[0]) for row in rows if not row[-1]]:
        note += f"\nWARNING: not better than the most frequent answer whatever the input: {', '.join(behind)}"
    table = Table("danseo demo: a small encoder from scratch", columns, rows, note)
    write_atomically(folder / "scores.md", to_markdown(table))
    on_note("writing the report")
    write_report([folder / "runs"], folder / REPORT, str(sample))
    return table


def _row(task: Task, encoder: Path, sample: Path, runs: Path) -> tuple[object, ...]:
    started = time.perf_counter()
    run = run_experiment(demo_config(task, encoder), sample, runs, quiet=True)
    seconds = time.perf_counter() - started
    floors = {
        name: _headline(run_experiment(configured(task.name, name, "default", {}), sample, runs, quiet=True))["value"]
        for name in ("majority", *(("linear",) if task.kind in ("classify", "score") else ()))
    }
    found = _headline(run)
    low, high = found["interval"] or (float("nan"), float("nan"))
    interval = f"{low:.2f} – {high:.2f}"
    return (
        task.short,
        found["id"],
        found["n"],
        found["value"],
        interval,
        floors["majority"],
        floors.get("linear"),
        seconds,
        beats(found["value"], floors["majority"]),
    )


def _headline(run: Run) -> dict[str, Any]:
    found = headline_of(run.read_json("scores.json"), "dev")
    assert found is not None
    return found


def demo_config(task: Task, encoder: Path) -> RunConfig:
    """The settings of a task in the demo."""
    return configured(task.name, str(encoder), "default", {**_COMMON, "epochs": sample_module(task).EPOCHS})


def demo_encoder(folder: Path, sample: Path) -> Path:
    """A small encoder with random weights and a tokenizer trained on the sample's training texts."""
    from danseo.models.scratch import Size, make_encoder

    # On a CPU attention with dropout takes the slow way: without it MRC takes two thirds of the time.
    size = Size(layers=2, hidden=128, heads=4, vocabulary=1500, positions=512, dropout=0.0)
    if not (folder / "model.safetensors").is_file():
        texts = (
            text
            for task in tasks_with_sample()
            for example in find.load(task, "train", sample)
            for text in texts_of(example)
        )
        make_encoder(folder, texts, "modernbert", size)
    return folder


def texts_of(example: Any) -> Iterator[str]:
    """The texts of an example, of a dialogue only the latest turns: the earlier ones are in other examples."""
    for name in ("text", "pair", "question"):
        if text := getattr(example, name, None):
            yield text
    yield from getattr(example, "turns", ())[-2:]
