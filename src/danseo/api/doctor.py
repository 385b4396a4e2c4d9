"""Check the installation (`danseo doctor`): versions, machine, data, and the scores of gold answers."""

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
from danseo.api.listings import make_check_table
from danseo.data import find
from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.extras import PACKAGES, find_extra
from danseo.hub import BUNDLED_MODEL_FOLDER, BUNDLED_MODELS
from danseo.scoring.score import baseline, score
from danseo.tasks import TASKS
from danseo.tasktypes.base import Task

SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT", "DANSEO_DATA", "DANSEO_CACHE")
_NEAR_CHANCE = 10.0
_ENOUGH = 50  # examples; with fewer, shuffled gold may be right by chance


def list_versions() -> Table:
    """Return a table of the versions of danseo, Python and the packages of all extras."""
    rows: list[tuple[object, ...]] = [("danseo", __version__, ""), ("python", platform.python_version(), "")]
    names = dict.fromkeys(name for brought in PACKAGES.values() for name in brought)  # some are in several extras
    rows += [(name, *_describe_package(name, find_extra(name))) for name in names]
    return Table("versions", ("package", "version", "note"), rows)


def _describe_package(name: str, extra: str) -> tuple[str | None, str]:
    try:
        return version(name), ""
    except PackageNotFoundError:
        return None, f"not installed; pip install 'danseo[{extra}]'" if extra else "not installed"


def describe_machine() -> Table:
    """Return a table of cores, memory, devices, environment variables and folders."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    rows: list[tuple[object, ...]] = [
        ("system", f"{platform.system()} {platform.machine()}"),
        ("cores", str(os.cpu_count())),
        ("memory", f"{memory:.1f} GiB"),
        ("devices", ", ".join(list_devices()) or "cpu only"),
        ("cache", describe_cache(find.cache_root())),
        ("bundled models", ", ".join(f"{name} ({measure_bundled_model(name):.1f} MB)" for name in BUNDLED_MODELS)),
    ]
    rows += [(name, os.environ[name]) for name in SWITCHES if os.environ.get(name)]
    if not any(os.environ.get(name) for name in SWITCHES[:2]):
        rows.append(("network", "the Hub is asked only by `danseo data get --from hub` and by model names"))
    return Table("machine", ("what", "value"), rows)


def measure_bundled_model(name: str) -> float:
    """Return the megabytes of a bundled model."""
    return sum(path.stat().st_size for path in (BUNDLED_MODEL_FOLDER / name).iterdir()) / 1e6


def list_devices() -> list[str]:
    """Return the accelerators that the driver's tool lists."""
    if not (tool := shutil.which("nvidia-smi")):
        return []
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.split(" (UUID")[0] for line in listed.splitlines() if line.startswith("GPU ")]


def describe_cache(folder: Path) -> str:
    """Return the cache folder and whether it can be written."""
    existing = next((parent for parent in (folder, *folder.parents) if os.access(parent, os.F_OK)), folder)
    is_writable = existing.is_dir() and os.access(existing, os.W_OK)
    return f"{folder} ({'writable' if is_writable else 'NOT writable; set DANSEO_CACHE'})"


def check_scoring(root: Path, tasks: Sequence[Task] = tuple(TASKS.values())) -> Iterator[dict[str, Any]]:
    """Check every task that has a dev file: gold answers must score 100, shuffled ones about as much as chance."""
    for task in tasks:
        try:
            if find.find_file(task, "dev", root) is None:
                continue
            examples = find.load(task, "dev", root)
        except DanseoError as error:
            yield {"task": task.name, "ok": False, "note": str(error)}
            continue
        yield {"task": task.name, **_check_task(task, examples)}


def _check_task(task: Task, examples: Sequence[Any]) -> dict[str, Any]:
    scores = {
        name: {s.id: s.value for s in score(task, examples, baseline(name, task, examples), rounds=0)}
        for name in ("oracle", "majority", "random")
    }
    short = [id_ for id_, value in scores["oracle"].items() if not math.isnan(value) and abs(value - 100) > 1e-6]
    headline = {name: values[task.headline] for name, values in scores.items()}
    majority = 0.0 if math.isnan(headline["majority"]) else headline["majority"]
    chance = max(majority, task.type.chance_level(task, examples))
    too_good = len(examples) >= _ENOUGH and headline["random"] > chance + _NEAR_CHANCE
    note = "shuffled gold answers score too high" if too_good else ""
    if short:
        note = f"the gold does not score 100 in {', '.join(short)}"
    return {"metric": task.headline, "n": len(examples), **headline, "ok": not short and not too_good, "note": note}


@dataclass(frozen=True)
class Examination:
    """The tables and failures of `danseo doctor`."""

    tables: list[Table]
    failures: list[str]

    def as_dict(self) -> dict[str, Any]:
        return {"healthy": not self.failures, "failures": self.failures, "tables": [t.as_dict() for t in self.tables]}


def examine_installation(data_dir: str | None, own: Sequence[Task] = ()) -> Examination:
    """Check versions, machine, data and scoring; missing data is a note, an error is a failure."""
    root = find.data_root(data_dir)
    reports = find.check_files(root, list(TASKS.values()))
    trials = list(check_scoring(root, [*TASKS.values(), *own]))
    columns = ("task", "metric", "n", "oracle", "majority", "random", "ok", "note")
    rows: list[tuple[object, ...]] = [tuple(trial.get(column) for column in columns) for trial in trials]
    note = "gold answers must score 100 in every metric; gold answers shuffled over the examples must score much lower"
    tables = [
        list_versions(),
        describe_machine(),
        make_check_table(reports, root),
        Table("preflight", columns, rows, note),
    ]
    if not trials:
        tables[-1] = Table("preflight", columns, rows, f"no dev files in {root}; try --data sample")
    failures = [f"{report.path}: {report.note}" for report in reports if report.verdict == "corrupted"]
    failures += [f"preflight of {trial['task']}: {trial['note']}" for trial in trials if not trial["ok"]]
    if "NOT writable" in describe_cache(find.cache_root()):
        failures.append(f"the cache {find.cache_root()} cannot be written; set DANSEO_CACHE")
    return Examination(tables, failures)
