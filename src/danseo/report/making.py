"""danseo report: runs in, one self-contained HTML file out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.files import check_writable, write_atomically
from danseo.report.collect import collect
from danseo.report.html import report_html
from danseo.report.others import other_links
from danseo.report.pages import OnNote, all_pages


def write_report(
    paths: Sequence[Path], out: Path, data_dir: str | None = None, on_note: OnNote = lambda note: None
) -> dict[str, Any]:
    """Write the report of the runs in these folders, and tell what it holds."""
    if out.suffix not in (".html", ".htm"):
        raise DanseoError(f"{out}: a report is an HTML file; end its name in .html")
    check_writable(out.parent)
    collection = collect(paths, data_dir)
    if not collection.records and not other_links(collection.folders):
        raise DanseoError(f"no runs in {', '.join(map(str, paths))}; `danseo train` makes them")
    pages = all_pages(collection, on_note)
    content = report_html(pages, f"danseo report: {', '.join(path.name or str(path) for path in paths)}").encode()
    write_atomically(out, content)
    tasks = [task.name for task in collection.tasks()]
    return {"out": str(out), "runs": len(collection.records), "tasks": tasks, "bytes": len(content)}
