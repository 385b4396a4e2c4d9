"""Find checkpoints: single folders, Hub ids, and folders with checkpoint-<step> at any depth."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, DataError
from danseo.hub import BUNDLED_MODELS, check_folder_of_runs
from danseo.rows import read_object
from danseo.runs.naming import shorten_model

_NUMBERED = re.compile(r"checkpoint-(\d+)")
_QUIET_SECONDS = 3.0  # seconds without a change after which a checkpoint counts as written


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint to probe; the source is a folder or a Hub id."""

    source: str

    @property
    def path(self) -> Path:
        return Path(self.source)

    @property
    def name(self) -> str:
        return self.path.resolve().name if self.path.is_dir() else self.source.replace("/", "--").replace("@", "--")

    @property
    def step(self) -> int | None:
        """The step in trainer_state.json, else in the name."""
        state = self._state().get("global_step")
        match = _NUMBERED.fullmatch(self.name)
        return state if isinstance(state, int) else int(match[1]) if match else None

    @property
    def epoch(self) -> float | None:
        epoch = self._state().get("epoch")
        return float(epoch) if isinstance(epoch, int | float) else None

    def _state(self) -> dict[str, Any]:
        try:
            return dict(read_object(self.path / "trainer_state.json").values)
        except DataError:
            return {}


def format_name(source: str) -> str:
    """Return the name of a checkpoint for tables, with its parent where the folder is checkpoint-100 or model."""
    path = Path(source)
    return shorten_model(str(path.resolve()) if path.is_dir() else source)


@dataclass(frozen=True)
class StepRange:
    """The steps to probe: first and last (both included), and multiples of `every`."""

    first: int | None = None
    last: int | None = None
    every: int | None = None

    def contains(self, step: int) -> bool:
        """Return whether a step is in the range; `every` counts steps, not checkpoints."""
        return (
            (self.first is None or step >= self.first)
            and (self.last is None or step <= self.last)
            and (self.every is None or step % self.every == 0)
        )


def find_checkpoints(
    arguments: Sequence[str], steps: StepRange | None = None, allow_empty: bool = False
) -> list[Checkpoint]:
    """Return the checkpoints of the user's arguments, in that order, within a folder by step."""
    steps = steps or StepRange()
    found = [each for argument in arguments for each in _resolve_argument(argument, steps, allow_empty)]
    return list({str(each.path.resolve()) if each.path.is_dir() else each.source: each for each in found}.values())


def _resolve_argument(argument: str, steps: StepRange, allow_empty: bool) -> list[Checkpoint]:
    path = Path(argument)
    if argument in BUNDLED_MODELS:
        return [Checkpoint(argument)]
    if not path.exists():
        check_folder_of_runs(argument)
        if argument.count("/") == 1 and not argument.startswith(("/", ".", "~")):
            return [Checkpoint(argument)]  # a Hub id
        raise DanseoError(f"no such folder or Hub id: {argument}; name a folder, or an id such as klue/roberta-base")
    if not path.is_dir():
        raise DanseoError(f"{argument} is a file; name a checkpoint folder, or a folder of checkpoint-<step> folders")
    inside = find_numbered_folders(path)
    if not inside and (path / "config.json").is_file():
        return [Checkpoint(argument)]
    chosen = [Checkpoint(str(each)) for number, each in inside if steps.contains(number)]
    if not chosen and not allow_empty:
        raise DanseoError(
            f"{argument}: none of {len(inside)} checkpoints is in the range; change --from-step or --to-step"
            if inside
            else f"no checkpoint-<step> folder with a config.json in {argument}; name the folder of a training"
        )
    return chosen


def find_numbered_folders(folder: Path) -> list[tuple[int, Path]]:
    """Return the folders checkpoint-<step> with a config.json, at any depth, by step."""
    found = []
    for path in folder.rglob("checkpoint-*"):
        match = _NUMBERED.fullmatch(path.name)
        if match and (path / "config.json").is_file():
            found.append((int(match[1]), path))
    return sorted(found)


def is_written(checkpoint: Checkpoint) -> bool:
    """Return whether the weights are there and no longer change."""
    files = list(checkpoint.path.glob("*.safetensors"))
    return bool(files) and all(time.time() - file.stat().st_mtime > _QUIET_SECONDS for file in files)
