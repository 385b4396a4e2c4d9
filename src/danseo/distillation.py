"""Distillation: a finished run answers train and unlabelled text, and a student learns from its answers."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.data.find import load, split_sha256
from danseo.data.input_reader import BadLine, open_lines, read_line
from danseo.data.prediction_file import write_predictions
from danseo.display.progress import Waiting
from danseo.errors import DanseoError, DataError
from danseo.files import content_sha256, write_atomically
from danseo.inference.predict import guess_format, open_input, open_model, read_groups
from danseo.language import _
from danseo.launcher import is_first_process
from danseo.models.base import Answers, LoadOptions
from danseo.models.encoder.heads import get_head_class
from danseo.models.registry import check_family
from danseo.runs.lock import lock_folder_on_first_process
from danseo.runs.predictions import hash_predictions
from danseo.runs.soft_targets import SUMMARY, TEXT, SoftTargets, TeacherAnswer
from danseo.runs.store import Run
from danseo.tasks import get_task
from danseo.tasktypes.base import Task
from danseo.tasktypes.decoding import pack_npz
from danseo.training.processes import join_processes

PART_SIZE = 512
"""Examples per file of soft targets: what a killed teacher answers again at most."""


@dataclass(frozen=True)
class Teacher:
    """A finished run, and the task that its student learns."""

    run: Run
    task: Task
    text: Path | None = None
    """Unlabelled text for the teacher to answer."""

    def identify(self, root: Path, max_train_samples: int) -> str:
        """Return eight hex digits of a hash of what the soft targets depend on."""
        parts = {
            "teacher": hash_predictions(self.run.predictions_path("dev")),
            "task": [self.task.name, self.task.labels],
            "train": [split_sha256(self.task, "train", root), max_train_samples],
            "text": content_sha256(self.text) if self.text else "",
        }
        return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()[:8]


def open_teacher(path: Path, task: Task | None, text: Path | None) -> Teacher:
    """Return the teacher; refuse an unfinished run, and a task with another name or other labels."""
    run = Run(path)
    if not (path / "config.toml").is_file() or not run.is_finished:
        raise DanseoError(_("not a finished run: {path}; `danseo runs` lists them").format(path=path))
    own = run.task
    if own.custom and task is None:
        raise DanseoError(_("{path} is a run of a custom task; name the task file with --task").format(path=path))
    task = task or get_task(own.name)
    if (task.name, task.type, task.labels) != (own.name, own.type, own.labels):
        other = "other labels" if task.name == own.name else f"the task {own.name}"
        raise DanseoError(f"the teacher has {other}: {path}; use one of {task.name} with the same labels")
    return Teacher(run, task, text)


def prepare_distillation(
    teacher: Teacher, config: RunConfig, root: Path, runs: Path, loading: LoadOptions, *, wait: bool, quiet: bool
) -> RunConfig:
    """Return the config of a student with the soft targets of the teacher, which are computed if they are missing."""
    name = f"{teacher.run.path.resolve().name}--{teacher.identify(root, config.max_train_samples)}"
    targets = SoftTargets(runs / "targets" / name)
    config = update_config(config, {"train.distill_targets": str(targets.folder)})
    check_family(config, teacher.task)
    with lock_folder_on_first_process(targets.folder, wait=wait, on_note=loading.on_note):
        if not join_processes(loading.device).broadcast(targets.is_complete):
            train = load(teacher.task, "train", root)[: config.max_train_samples or None]
            with Waiting("answering with the teacher", quiet=quiet or not is_first_process()) as progress:
                _write_targets(teacher, targets, train, loading, progress)
    return config


def _write_targets(
    teacher: Teacher,
    targets: SoftTargets,
    train: Sequence[Any],
    loading: LoadOptions,
    on_progress: Callable[[int, int], None],
) -> None:
    """Let the teacher answer all examples, part by part; a killed command resumes with the first missing part."""
    task, is_first, workers = teacher.task, is_first_process(), join_processes(loading.device)
    if teacher.text and is_first:
        write_atomically(targets.folder / TEXT, read_text(teacher.text, task))
    workers.barrier()
    model = open_model(teacher.run.path, loading).model
    text = targets.read_text(task, with_pos=model.reads_pos)
    examples = [*train, *text]
    starts = range(0, len(examples), PART_SIZE)
    for number, start in enumerate(starts):
        path, part = targets.part_path(number), examples[start : start + PART_SIZE]
        if not workers.broadcast(path.is_file()):
            answers = model.predict(part)
            if not text:
                _require_soft_targets(teacher, answers)
            if is_first:
                if answers.evidence is not None:
                    write_atomically(path.with_suffix(".npz"), pack_npz(answers.evidence))
                write_predictions(path, answers)
        on_progress(start + len(part), len(examples))
    if is_first:
        hashes = [hash_predictions(targets.part_path(number)) for number in range(len(starts))]
        summary = {"teacher": teacher.run.path.resolve().name, "task": task.name, "labels": list(task.labels)}
        counts = {"train": len(train), "text": len(text)}
        write_atomically(targets.folder / SUMMARY, json.dumps(summary | counts | {"sha256": hashes}, indent=2) + "\n")
    workers.barrier()


def _require_soft_targets(teacher: Teacher, answers: Answers) -> None:
    """Refuse a teacher that gives only answers, if there is no text that they could label."""
    rows: Sequence[Any] = [None] * len(answers)
    if answers.evidence is not None:
        rows = teacher.task.type.unpack_arrays(teacher.task, answers.evidence)
    if not any(map(get_head_class(teacher.task).has_soft_target, map(TeacherAnswer, answers, rows))):
        raise DanseoError(
            _("{path} gives no probabilities, so train teaches nothing new; name unlabelled text with --text").format(
                path=teacher.run.path
            )
        )


def read_text(path: Path, task: Task) -> str:
    """Return the lines of a file that are not blank, in UTF-8, rows of a table as JSON; refuse a line that is none."""
    found: list[str] = []
    with open_input(str(path)) as raw:
        for group in read_groups(open_lines(raw, str(path)), PART_SIZE, task, guess_format(path), None):
            for row in group:
                line = row if isinstance(row, BadLine) else read_line(row[1], row[0], task)
                if isinstance(line, BadLine):
                    raise DataError(f"{path}, {line.reason}")
                if line and not isinstance(row, BadLine):
                    found.append(row[1].decode("utf-8-sig").rstrip("\r"))
    if not found:
        raise DataError(_("{path} has no line of text; name a file with one text per line").format(path=path))
    return "\n".join(found) + "\n"
