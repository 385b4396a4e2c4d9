"""The main job end to end on the built-in sample: eight tasks, one table, one report, a few answers, offline."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from danseo.config import RunConfig
from danseo.data.lines import Line, given_example
from danseo.display.table import Table, to_markdown
from danseo.experiment import run_experiment
from danseo.extras import require
from danseo.files import write_atomically
from danseo.models.encoder.facts import packages_of
from danseo.models.families import family_of, load_model
from danseo.predict.records import answered
from danseo.recipes import configured
from danseo.report.making import write_report
from danseo.runs.directory import Run
from danseo.runs.layouts.single import beats
from danseo.runs.scores import headline_of
from danseo.sample import sample_module, tasks_with_sample, write_sample
from danseo.tasks.task import Task

REPORT = "report.html"
ENCODER = "mini"
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
"""Everyday Korean that the demo ends with, for those of the tasks that it trained."""


def run_demo(
    folder: Path,
    tasks: Sequence[Task] | None = None,
    on_note: Callable[[str], None] = lambda note: None,
    *,
    quiet: bool = False,
) -> list[Table]:
    """Write the sample, fine-tune the encoder in the box on all tasks, show it beside floors, and ask it a little."""
    tasks = [task for task in tasks or tasks_with_sample() if task.sample]
    require(*{package: None for task in tasks for package in packages_of(ENCODER, task.name)}, "scikit-learn")
    sample = folder / "sample"
    write_sample(sample)
    rows: list[tuple[object, ...]] = []
    trained: dict[str, Run] = {}
    for number, task in enumerate(tasks, 1):
        on_note(f"[{number}/{len(tasks)}] {task.short}: {task.title}")
        trained[task.name], row = _trained(task, sample, folder / "runs", quiet=quiet)
        rows.append(row)
    table = _score_table(rows)
    write_atomically(folder / "scores.md", to_markdown(table))
    on_note("writing the report")
    write_report([folder / "runs"], folder / REPORT, str(sample))
    return [table, *_answer_table(trained, tasks)]


def _score_table(rows: list[tuple[object, ...]]) -> Table:
    columns = ("task", "metric", "n", "mini", "95 % interval", "majority", "linear", "seconds", "beats both")
    note = "all of dev of the built-in sample, checkpoint picked on its select half; scores say nothing about KLUE"
    if behind := [str(row[0]) for row in rows if not row[-1]]:
        note += f"\nWARNING: not better than the floors: {', '.join(behind)}"
    return Table("danseo demo: the encoder in the box, fine-tuned on every task", columns, rows, note)


def _trained(task: Task, sample: Path, runs: Path, *, quiet: bool) -> tuple[Run, tuple[object, ...]]:
    started = time.perf_counter()
    run = run_experiment(demo_config(task), sample, runs, quiet=quiet)
    seconds = time.perf_counter() - started
    floors = {
        name: _headline(run_experiment(configured(task.name, name, "default", {}), sample, runs, quiet=True))["value"]
        for name in ("majority", *(("linear",) if task.kind in ("classify", "score") else ()))
    }
    found = _headline(run)
    low, high = found["interval"] or (float("nan"), float("nan"))
    ahead = all(beats(found["value"], value) for value in floors.values())
    facts = (task.short, found["id"], found["n"], found["value"], f"{low:.2f} – {high:.2f}")
    return run, (*facts, floors["majority"], floors.get("linear"), seconds, ahead)


def _answer_table(trained: dict[str, Run], tasks: Sequence[Task]) -> Iterator[Table]:
    """What the trained models say of everyday sentences."""
    rows: list[tuple[object, ...]] = []
    for task in tasks:
        if asked := QUESTIONS.get(task.name):
            line = Line(1, given_example(asked, task, 1), {})
            (record,) = answered(load_model(trained[task.name]), task, [line])
            rows.append((task.short, *_shown(asked), _said(record)))
    if rows:
        note = "learned from a few hundred sentences made of templates; more and real data make better models"
        yield Table("and asked about everyday Korean", ("task", "text", "asked", "answer"), rows, note)


def _shown(asked: Any) -> tuple[str, str]:
    """A text, and what is asked about it."""
    if isinstance(asked, str):
        return asked, "entities"
    if "question" in asked:
        return asked["context"], asked["question"]
    return asked["sentence"], f"{asked['subject_entity']['word']} – {asked['object_entity']['word']}"


def _said(record: dict[str, Any]) -> str:
    if "spans" in record:
        return ", ".join(f"{span['text']} {span['type']}" for span in record["spans"]) or "none"
    return str(record["answer"] or "no answer")


def _headline(run: Run) -> dict[str, Any]:
    found = headline_of(run.read_json("scores.json"), "dev")
    assert found is not None
    return found


def demo_config(task: Task) -> RunConfig:
    """The settings of a task in the demo."""
    return configured(task.name, ENCODER, family_of(ENCODER).recipe, {"evaluations": 1, **sample_module(task).DEMO})


def texts_of(example: Any) -> Iterator[str]:
    """The texts of an example, of a dialogue only the latest turns: the earlier ones are in other examples."""
    for name in ("text", "pair", "question"):
        if text := getattr(example, name, None):
            yield text
    yield from getattr(example, "turns", ())[-2:]
