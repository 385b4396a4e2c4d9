"""Build the pages of a report (`danseo report`): runs in, one self-contained HTML file out."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.files import check_writable, find_own_files, write_atomically
from danseo.language import _
from danseo.mlm.probing.results import SUMMARY
from danseo.report.collection import Collection, collect_runs
from danseo.report.comparison import ROUNDS, compare_task
from danseo.report.html import Page, render_report
from danseo.report.mlm_page import SETTINGS, TITLE, find_work_files, make_mlm_pages
from danseo.report.overview import make_overview_page
from danseo.report.run_page import make_run_page
from danseo.report.sweeps_page import make_sweeps_pages, read_search
from danseo.report.task_page import make_task_page
from danseo.sweeps.plan import SWEEP_LOG
from danseo.sweeps.tuning import RESULT_COPY
from danseo.tables.ablation import ENDING

OTHER_PAGES = {"sweeps": "Sweeps", "masked": TITLE}
"""Key -> title of the pages that are not about runs."""
OnNote = Callable[[str], None]
_MAX_MISTAKES, _MAX_ALL_MISTAKES = 12, 400  # of a run, and of all runs together


def write_report(
    paths: Sequence[Path],
    out: Path,
    data_dir: str | None = None,
    on_note: OnNote = lambda note: None,
    language: str | None = None,
) -> dict[str, Any]:
    """Write the report of the runs in these folders; return its path, size, runs and tasks."""
    if out.suffix not in (".html", ".htm"):
        raise DanseoError(_("{out}: a report is an HTML file; end its name in .html").format(out=out))
    check_writable(out.parent)
    collection = collect_runs(paths, data_dir)
    if not collection.records and not list_other_links(collection.folders):
        raise DanseoError(_("no runs in {names}; `danseo train` makes them").format(names=", ".join(map(str, paths))))
    pages = make_pages(collection, on_note)
    title = f"danseo report: {', '.join(path.name or str(path) for path in paths)}"
    content = render_report(pages, title, language).encode()
    write_atomically(out, content)
    tasks = [task.name for task in collection.tasks()]
    return {"out": str(out), "runs": len(collection.records), "tasks": tasks, "bytes": len(content)}


def make_pages(collection: Collection, on_note: OnNote = lambda note: None, rounds: int = ROUNDS) -> list[Page]:
    """Return the pages of a report: overview, tasks, sweeps, masked language models and runs."""
    compared = {}
    for task in collection.tasks():
        on_note(f"comparing the runs of {task.name}")
        compared[task.name] = compare_task(collection, task, collection.done(task), rounds)
    tasks = [make_task_page(collection, task, compared[task.name], _MAX_MISTAKES) for task in collection.tasks()]
    most = max(2, min(_MAX_MISTAKES, _MAX_ALL_MISTAKES // max(1, len(collection.records))))
    others = make_other_pages(collection.folders, collection.data_dir, collection)
    runs = []
    for number, record in enumerate(collection.records, 1):
        on_note(f"[{number}/{len(collection.records)}] {record.run.path.name}")
        runs.append(make_run_page(collection, record, most))
    first = [make_overview_page(collection, compared)] if collection.records or not others else []
    return [*first, *tasks, *others, *runs]


def make_other_pages(
    folders: Sequence[Path], data_dir: str | None = None, runs: Collection | None = None
) -> list[Page]:
    """Return the pages about sweeps and masked language models, if there are any."""
    found = [path for folder in folders for path in find_work_files(folder)]
    return [*make_sweeps_pages(folders, _find_tune_results(found), data_dir, runs), *make_mlm_pages(folders, found)]


def _find_tune_results(found: Sequence[Path]) -> list[Path]:
    """Return the files that `danseo tune` may have written; the result of a training is none."""
    trainings = {path.parent for path in found if path.name in SETTINGS}
    return [p for p in found if p.name.endswith(RESULT_COPY) or (p.name == "result.json" and p.parent not in trainings)]


def list_other_links(folders: Sequence[Path], run_folders: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return the keys and titles of these pages without making them; known runs are not opened."""
    files = [path for folder in folders for path in find_work_files(folder, set(run_folders))]
    has_mlm = {path.name for path in files} & {*SETTINGS, SUMMARY}
    is_swept = any(find_own_files(folder, f"*{suffix}") for folder in folders for suffix in (SWEEP_LOG, ENDING))
    is_tuned = any(read_search(path) for path in _find_tune_results(files))
    return [
        *([("sweeps", OTHER_PAGES["sweeps"])] if is_swept or is_tuned else []),
        *([("masked", OTHER_PAGES["masked"])] if has_mlm else []),
    ]
