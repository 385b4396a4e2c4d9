"""All pages of a collection."""

from collections.abc import Callable

from danseo.report.blocks import Page
from danseo.report.collect import Collection
from danseo.report.comparing import ROUNDS, compare_task
from danseo.report.others import other_pages
from danseo.report.overview import overview_page
from danseo.report.run_page import run_page
from danseo.report.task_page import task_page

_MISTAKES, _SHARED = 12, 400  # mistakes of a run, and of all runs together: a report stays small
OnNote = Callable[[str], None]


def mistakes_per_run(runs: int) -> int:
    """How many mistakes a run's page shows when there are so many runs."""
    return max(2, min(_MISTAKES, _SHARED // max(1, runs)))


def all_pages(collection: Collection, on_note: OnNote = lambda note: None, rounds: int = ROUNDS) -> list[Page]:
    """Overview, tasks, runs, and what else lies in the folders."""
    compared = {}
    for task in collection.tasks():
        on_note(f"comparing the runs of {task.name}")
        compared[task.name] = compare_task(collection, task, collection.done(task), rounds)
    tasks = [task_page(collection, task, compared[task.name], _MISTAKES) for task in collection.tasks()]
    most = mistakes_per_run(len(collection.records))
    others = other_pages(collection.folders, collection.data_dir, collection)
    runs = []
    for number, record in enumerate(collection.records, 1):
        on_note(f"[{number}/{len(collection.records)}] {record.run.path.name}")
        runs.append(run_page(collection, record, most))
    first = [overview_page(collection, compared)] if collection.records or not others else []
    return [*first, *tasks, *others, *runs]
