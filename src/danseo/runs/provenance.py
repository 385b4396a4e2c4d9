"""Which examples a run was trained and scored on, and which runs are comparable."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from danseo import __version__
from danseo.language import _, join
from danseo.runs.index import Record

SAMPLE = "danseo-sample"


def get_dataset(record: Record) -> str:
    """Return the data set as the Hub calls it; the bundled sample and custom tasks are not there."""
    if record.run.task.custom:
        return record.task
    return SAMPLE if is_of_sample(record) else "klue/klue"


def is_of_sample(record: Record) -> bool:
    """Return whether the run answered the bundled sample, by the id of its first example."""
    return "-sample_" in next(_read_guids(record), "")


def describe_part_of_dev(record: Record) -> str:
    """Describe how much of KLUE's dev set was answered if it was not all; dialogues are not counted."""
    task, answered = record.run.task, sum(1 for _ in _read_guids(record))
    official = task.official_rows.get("dev") if task.rows is len else None
    return f"{answered:,} of {official:,} examples of dev" if official and answered and answered < official else ""


def answered_whole_dev(record: Record) -> bool:
    """Return whether the run answered all of KLUE's dev set; dialogues are counted by their first turn."""
    task, score = record.run.task, record.score(split="dev")
    official = task.official_rows.get("dev")
    if not official or not score or score["n"] < official or is_of_sample(record):
        return False
    answered = score["n"] if task.rows is len else sum(guid.endswith("-0") for guid in _read_guids(record))
    return bool(answered == official)


def describe_split(record: Record, dev_set: str = "") -> str | None:
    """Name the split that was scored, and what makes the run special: selected on it, sample, fold, limit."""
    if not record.scores:
        return None
    is_selected_on = record.scores["selected_on"] == "dev"
    names = {"report": _("report split"), "dev": _("dev split")}
    split = _("dev (SELECTED ON THE REPORTED SET)") if is_selected_on else names[record.scores["reported_on"]]
    labels = list_run_labels(record)
    return join([split, *([dev_set] if dev_set and dev_set not in labels else []), *labels], ", ")


def list_run_labels(record: Record) -> list[str]:
    """List what a reader must know before comparing the run with others: sample, fold, limited train or dev set."""
    labels: list[str] = [_("sample")] if is_of_sample(record) else []
    if record.settings.get("n_folds"):
        labels.append(_("fold {k} of {n}").format(k=record.settings["fold"], n=record.settings["n_folds"]))
    if record.settings.get("max_train_samples"):
        labels.append(_("limit {n:,}").format(n=record.settings["max_train_samples"]))
    if samples := record.settings.get("prompt.max_eval_samples"):
        labels.append(_("{n:,} dev examples").format(n=samples))
    return labels


def is_fold(record: Record) -> bool:
    """Return whether the run left a fold of train out; such runs are parts of a study and never the best of a task."""
    return bool(record.settings.get("n_folds"))


def get_dev_set(record: Record) -> tuple[str, str]:
    """Return the task and the hash of the dev file."""
    return record.task, record.dev_sha256


def get_scored_set(record: Record) -> tuple[object, ...]:
    """Return what two runs must share before one of them may be called better: the dev set, and how much of it."""
    return *get_dev_set(record), (record.score() or {}).get("n")


def name_dev_sets(records: Sequence[Record]) -> dict[tuple[str, str], str]:
    """Name every dev set; "" for the only one of its task that is not the sample."""
    firsts: dict[tuple[str, str], Record] = {}
    for record in records:
        if record.scores and not record.settings.get("prompt.max_eval_samples"):  # a label tells how many
            firsts.setdefault(get_dev_set(record), record)
    names: dict[tuple[str, str], str] = {
        dev_set: _("sample") for dev_set, record in firsts.items() if is_of_sample(record)
    }
    for task in {dev_set[0] for dev_set in firsts}:
        others = [dev_set for dev_set in firsts if dev_set[0] == task and dev_set not in names]
        names |= {
            dev_set: _("dev set {k}").format(k=k) if len(others) > 1 else "" for k, dev_set in enumerate(others, 1)
        }
    return names


def _read_guids(record: Record) -> Iterator[str]:
    """Yield the ids of the examples that were answered, as far as the file can be read."""
    path, errors = record.run.path / "predictions" / "dev.jsonl", (OSError, ValueError, LookupError, TypeError)
    if not path.is_file():  # reading a pipe would block
        return
    with suppress(*errors, RecursionError), path.open(encoding="utf-8") as file:
        for line in file:
            yield str(json.loads(line)["guid"])


_PACKAGES = ("numpy", "torch", "transformers", "accelerate", "tokenizers", "safetensors", "scikit-learn")


def collect_environment(hashes: dict[str, str], device: str, seconds: float) -> dict[str, Any]:
    """Return versions, commit, data hashes, device, threads, time and memory."""
    peak = get_peak_memory()
    versions = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "danseo": __version__,
        "commit": _get_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions,
        "data": hashes,
        "device": device,
        "threads": sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None,
        "seconds": round(seconds, 3),
        "peak_memory_gib": None if peak is None else round(peak / 2**30, 3),
    }


def get_peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None on Windows, which does not count it this way."""
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _get_commit() -> str | None:
    """Return the commit of danseo's checkout, if it runs from one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
