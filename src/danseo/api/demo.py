"""The demo (`danseo demo`): train all tasks on the bundled sample, offline, with a table, a report and examples."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from danseo.config.run import RunConfig
from danseo.data.find import write_sample
from danseo.data.input_reader import InputLine, make_example
from danseo.display.table import Table, to_markdown
from danseo.experiment import run_experiment
from danseo.extras import require
from danseo.files import write_atomically
from danseo.inference.output import predict_records
from danseo.models.baselines import has_linear_model
from danseo.models.encoder.model_info import PACKAGES
from danseo.models.registry import configure_run, get_family, load_model
from danseo.report.build import write_report
from danseo.runs.scores import get_headline
from danseo.runs.store import Run
from danseo.tables.run_summary import is_better
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task

REPORT = "report.html"
ENCODER = "mini"
SETTINGS: dict[str, dict[str, Any]] = {
    "ynat": {"epochs": 3, "batch_size": 32, "optimizer": "adamw", "learning_rate": 5e-4},
    "sts": {"epochs": 4, "batch_size": 8},
    "nli": {"epochs": 4, "batch_size": 16},
    "ner": {"epochs": 3, "batch_size": 16},
    "re": {"epochs": 4, "batch_size": 16, "optimizer": "muon", "learning_rate": 1e-3},
    "dp": {"epochs": 3, "batch_size": 16, "optimizer": "adamw", "learning_rate": 5e-4},
    "mrc": {"epochs": 2, "batch_size": 4},
    "wos": {"epochs": 2, "batch_size": 4, "max_train_samples": 640, "learning_rate": 1e-3},
}
"""Settings by task that fit the size of its sample."""
QUESTIONS: dict[str, Any] = {
    "ner": "지난 3월 김서연은 부산에 있는 한빛전자에 연구원으로 들어갔다.",
    "re": {
        "sentence": "김서연은 2015년부터 한빛전자에서 일하고 있다.",
        "subject_entity": {"word": "김서연", "start_idx": 0, "end_idx": 2, "type": "PER"},
        "object_entity": {"word": "한빛전자", "start_idx": 13, "end_idx": 16, "type": "ORG"},
    },
    "mrc": {
        "title": "도서관",
        "context": "시립 도서관은 1998년 5월에 문을 열었다. 매주 월요일에 쉬고, 평일에는 밤 열 시까지 연다.",
        "question": "시립 도서관은 언제 문을 열었나?",
    },
}
"""Example inputs by task for the end of the demo."""


def run_demo(
    folder: Path,
    tasks: Sequence[Task] | None = None,
    on_note: Callable[[str], None] = lambda note: None,
    *,
    quiet: bool = False,
) -> list[Table]:
    """Write the sample, fine-tune the bundled encoder on all tasks, and compare it with the baselines."""
    tasks = [task for task in tasks or TASKS.values() if task.name in SETTINGS]
    require(*PACKAGES, "scikit-learn")
    sample = folder / "sample"
    write_sample(sample)
    rows: list[tuple[object, ...]] = []
    trained: dict[str, Run] = {}
    for number, task in enumerate(tasks, 1):
        on_note(f"[{number}/{len(tasks)}] {task.short}: {task.title}")
        trained[task.name], row = _train_task(task, sample, folder / "runs", quiet=quiet)
        rows.append(row)
    table = _make_score_table(rows)
    write_atomically(folder / "scores.md", to_markdown(table))
    on_note("writing the report")
    write_report([folder / "runs"], folder / REPORT, str(sample))
    return [table, *_make_answer_table(trained, tasks)]


def _make_score_table(rows: list[tuple[object, ...]]) -> Table:
    columns = ("task", "metric", "n", "mini", "95 % interval", "majority", "linear", "seconds", "beats both")
    note = "whole dev set of the bundled sample, checkpoint picked on its select split; scores say nothing about KLUE"
    if behind := [str(row[0]) for row in rows if not row[-1]]:
        note += f"\nWARNING: not better than the baselines: {', '.join(behind)}"
    return Table("danseo demo: the bundled encoder, fine-tuned on every task", columns, rows, note)


def _train_task(task: Task, sample: Path, runs: Path, *, quiet: bool) -> tuple[Run, tuple[object, ...]]:
    started = time.perf_counter()
    run = run_experiment(make_demo_config(task), sample, runs, quiet=quiet)
    seconds = time.perf_counter() - started
    baselines = {
        name: _read_headline(run_experiment(config, sample, runs, quiet=True))["value"]
        for name in ("majority", *(("linear",) if has_linear_model(task) else ()))
        for config in [configure_run(task.name, name, "default", {})]
    }
    found = _read_headline(run)
    low, high = found["interval"] or (float("nan"), float("nan"))
    ahead = all(is_better(found["value"], value) for value in baselines.values())
    facts = (task.short, found["id"], found["n"], found["value"], f"{low:.2f} – {high:.2f}")
    return run, (*facts, baselines["majority"], baselines.get("linear"), seconds, ahead)


def _make_answer_table(trained: dict[str, Run], tasks: Sequence[Task]) -> Iterator[Table]:
    """Yield a table of the trained models' predictions on example sentences."""
    rows: list[tuple[object, ...]] = []
    for task in tasks:
        if example := QUESTIONS.get(task.name):
            line = InputLine(1, make_example(example, task, 1), {})
            (record,) = predict_records(load_model(trained[task.name]), task, [line])
            rows.append((task.short, *_format_input(example), _format_answer(record)))
    if rows:
        note = "learned from a few hundred sentences made of templates; more and real data make better models"
        yield Table("and example about everyday Korean", ("task", "text", "example", "answer"), rows, note)


def _format_input(example: Any) -> tuple[str, str]:
    """Return a text and its second part: question, hypothesis or entities."""
    if isinstance(example, str):
        return example, "entities"
    if "question" in example:
        return example["context"], example["question"]
    return example["sentence"], f"{example['subject_entity']['word']} – {example['object_entity']['word']}"


def _format_answer(record: dict[str, Any]) -> str:
    if "spans" in record:
        return ", ".join(f"{span['text']} {span['type']}" for span in record["spans"]) or "none"
    return str(record["answer"] or "no answer")


def _read_headline(run: Run) -> dict[str, Any]:
    found = get_headline(run.read_json("scores.json"), "dev")
    assert found is not None
    return found


def make_demo_config(task: Task) -> RunConfig:
    """Return the settings of a task in the demo."""
    return configure_run(task.name, ENCODER, get_family(ENCODER).recipe, {"evals_per_epoch": 1, **SETTINGS[task.name]})
