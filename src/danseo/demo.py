"""The main job end to end on the built-in sample, offline."""

from pathlib import Path

from danseo import data
from danseo.baselines import NAMES, baseline
from danseo.reading import write_atomically
from danseo.scoring import score
from danseo.tables import Table, to_markdown
from danseo.tasks import TASKS


def run_demo(folder: Path) -> Table:
    """Write the sample, check it, score the baselines of all eight tasks, and keep the table as Markdown."""
    from danseo.sample import write_sample

    write_sample(folder / "sample")
    rows: list[tuple[object, ...]] = []
    for task in TASKS.values():
        examples = data.load(task, "dev", folder / "sample")
        scored = {name: score(task, examples, baseline(name, task, examples))[0] for name in NAMES}
        shown = [f"{s.value:.2f} [{s.low:.2f}, {s.high:.2f}]" if s.value == s.value else None for s in scored.values()]
        rows.append((task.short, task.headline, len(examples), *shown))
    table = Table("the built-in sample, dev", ("task", "metric", "n", *NAMES), rows, "95 % intervals in brackets")
    write_atomically(folder / "scores.md", to_markdown(table))
    return table
