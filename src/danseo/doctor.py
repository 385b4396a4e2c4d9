"""What is installed, what is found, and whether the scorer can be trusted here."""

import math
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from danseo import __version__
from danseo.data import find
from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.extras import PACKAGES, extra_of
from danseo.hub import BOX, IN_THE_BOX
from danseo.listing import check_table
from danseo.scoring.baselines import baseline, label_shares
from danseo.scoring.score import score
from danseo.tasks import TASKS
from danseo.tasks.task import Task

SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT", "DANSEO_DATA", "DANSEO_CACHE")
_NEAR_CHANCE = 10.0
_ENOUGH = 50  # examples; of fewer, dealt-out gold may meet its own by chance


def versions() -> Table:
    """danseo, Python and every package an extra brings."""
    rows: list[tuple[object, ...]] = [("danseo", __version__, ""), ("python", platform.python_version(), "")]
    names = dict.fromkeys(name for brought in PACKAGES.values() for name in brought)  # some come with several extras
    rows += [(name, *_installed(name, extra_of(name))) for name in names]
    return Table("versions", ("package", "version", "note"), rows)


def _installed(name: str, extra: str) -> tuple[str | None, str]:
    try:
        return version(name), ""
    except PackageNotFoundError:
        return None, f"not installed; pip install 'danseo[{extra}]'" if extra else "not installed"


def machine() -> Table:
    """Cores, memory, devices, switches and where files go."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    rows: list[tuple[object, ...]] = [
        ("system", f"{platform.system()} {platform.machine()}"),
        ("cores", str(os.cpu_count())),
        ("memory", f"{memory:.1f} GiB"),
        ("devices", ", ".join(devices()) or "cpu only"),
        ("cache", cache_state(find.cache_root())),
        ("models in the box", ", ".join(f"{name} ({box_size(name):.1f} MB)" for name in IN_THE_BOX)),
    ]
    rows += [(name, os.environ[name]) for name in SWITCHES if os.environ.get(name)]
    if not any(os.environ.get(name) for name in SWITCHES[:2]):
        rows.append(("network", "the Hub is asked only by `danseo data get --from hub` and by model names"))
    return Table("machine", ("what", "value"), rows)


def box_size(name: str) -> float:
    """Megabytes of a model that comes with danseo."""
    return sum(path.stat().st_size for path in (BOX / name).iterdir()) / 1e6


def devices() -> list[str]:
    """The accelerators, as the driver's own tool lists them."""
    if not (tool := shutil.which("nvidia-smi")):
        return []
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.split(" (UUID")[0] for line in listed.splitlines() if line.startswith("GPU ")]


def cache_state(folder: Path) -> str:
    """The cache folder and whether it can be written."""
    existing = next((parent for parent in (folder, *folder.parents) if os.access(parent, os.F_OK)), folder)
    is_writable = existing.is_dir() and os.access(existing, os.W_OK)
    return f"{folder} ({'writable' if is_writable else 'NOT writable; set DANSEO_CACHE'})"


def preflight(root: Path, tasks: Sequence[Task] = tuple(TASKS.values())) -> Iterator[dict[str, Any]]:
    """For every task whose dev file is there: the gold must score 100, dealt-out gold must be near chance."""
    for task in tasks:
        try:
            if find.find_file(task, "dev", root) is None:
                continue
            examples = find.load(task, "dev", root)
        except DanseoError as error:
            yield {"task": task.name, "ok": False, "note": str(error)}
            continue
        yield {"task": task.name, **_trial(task, examples)}


def _trial(task: Task, examples: Sequence[Any]) -> dict[str, Any]:
    scores = {
        name: {s.id: s.value for s in score(task, examples, baseline(name, task, examples), rounds=0)}
        for name in ("oracle", "majority", "random")
    }
    short = [id_ for id_, value in scores["oracle"].items() if not math.isnan(value) and abs(value - 100) > 1e-6]
    headline = {name: values[task.headline] for name, values in scores.items()}
    floor = 0.0 if math.isnan(headline["majority"]) else headline["majority"]
    chance = max(floor, _chance(task, examples))
    too_good = len(examples) >= _ENOUGH and headline["random"] > chance + _NEAR_CHANCE
    note = "dealt-out gold scores too high" if too_good else ""
    if short:
        note = f"the gold does not score 100 in {', '.join(short)}"
    return {"metric": task.headline, "n": len(examples), **headline, "ok": not short and not too_good, "note": note}


def _chance(task: Task, examples: Sequence[Any]) -> float:
    """What dealt-out gold may score."""
    if task.kind == "labels":
        shares = label_shares(examples).values()
        return 100 * sum(share * share for share in shares) / max(1e-9, sum(shares))
    return 100 / len(task.labels) if task.kind == "classify" else 25.0


@dataclass(frozen=True)
class Examination:
    """All that the doctor found."""

    tables: list[Table]
    failures: list[str]

    def as_dict(self) -> dict[str, Any]:
        return {"healthy": not self.failures, "failures": self.failures, "tables": [t.as_dict() for t in self.tables]}


def examine(data_dir: str | None, own: Sequence[Task] = ()) -> Examination:
    """Versions, machine, data and preflight; what is missing is told, what is wrong is a failure."""
    root = find.data_root(data_dir)
    reports = find.check(root, list(TASKS.values()))
    trials = list(preflight(root, [*TASKS.values(), *own]))
    columns = ("task", "metric", "n", "oracle", "majority", "random", "ok", "note")
    rows: list[tuple[object, ...]] = [tuple(trial.get(column) for column in columns) for trial in trials]
    note = "gold must score 100 in every metric, and gold dealt out at random near chance"
    tables = [versions(), machine(), check_table(reports, root), Table("preflight", columns, rows, note)]
    if not trials:
        tables[-1] = Table("preflight", columns, rows, f"no dev files in {root}; try --data sample")
    failures = [f"{report.path}: {report.note}" for report in reports if report.verdict == "damaged"]
    failures += [f"preflight of {trial['task']}: {trial['note']}" for trial in trials if not trial["ok"]]
    if "NOT writable" in cache_state(find.cache_root()):
        failures.append(f"the cache {find.cache_root()} cannot be written; set DANSEO_CACHE")
    return Examination(tables, failures)
