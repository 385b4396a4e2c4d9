"""Finding checkpoints: single folders, Hub ids, and folders that hold checkpoint-<step> at any depth."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, DataError
from danseo.hub import IN_THE_BOX
from danseo.rows import read_object
from danseo.runs.naming import model_name

_NUMBERED = re.compile(r"checkpoint-(\d+)")
_SETTLED = 3.0  # seconds without a change after which a checkpoint counts as written


@dataclass(frozen=True)
class Checkpoint:
    """Something to probe; the source is a folder or a Hub id."""

    source: str

    @property
    def path(self) -> Path:
        return Path(self.source)

    @property
    def name(self) -> str:
        return self.path.resolve().name if self.path.is_dir() else self.source.replace("/", "--").replace("@", "--")

    @property
    def step(self) -> int | None:
        """From trainer_state.json, else from the name."""
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


def shown_name(source: str) -> str:
    """What a checkpoint is called; its folder alone is often checkpoint-100, or model."""
    path = Path(source)
    return model_name(str(path.resolve()) if path.is_dir() else source)


@dataclass(frozen=True)
class Range:
    """Which steps to take: from, to (both included), and every so many of them."""

    first: int | None = None
    last: int | None = None
    every: int | None = None

    def holds(self, step: int) -> bool:
        """Whether a step is inside; `every` counts steps, not checkpoints."""
        return (
            (self.first is None or step >= self.first)
            and (self.last is None or step <= self.last)
            and (self.every is None or step % self.every == 0)
        )


def find_checkpoints(arguments: Sequence[str], steps: Range | None = None, empty: bool = False) -> list[Checkpoint]:
    """The checkpoints behind what a user named: in the order of the arguments, within a folder by number."""
    steps = steps or Range()
    found = [each for argument in arguments for each in _behind(argument, steps, empty)]
    return list({str(each.path.resolve()) if each.path.is_dir() else each.source: each for each in found}.values())


def _behind(argument: str, steps: Range, empty: bool) -> list[Checkpoint]:
    path = Path(argument)
    if argument in IN_THE_BOX:
        return [Checkpoint(argument)]
    if not path.exists():
        if argument.count("/") == 1 and not argument.startswith(("/", ".", "~")):
            return [Checkpoint(argument)]  # a Hub id
        raise DanseoError(f"{argument}: no such folder, and no Hub id either (those look like klue/roberta-base)")
    if not path.is_dir():
        raise DanseoError(f"{argument} is a file; name a checkpoint folder, or a folder of checkpoint-<step> folders")
    inside = numbered(path)
    if not inside and (path / "config.json").is_file():
        return [Checkpoint(argument)]
    chosen = [Checkpoint(str(each)) for number, each in inside if steps.holds(number)]
    if not chosen and not empty:
        raise DanseoError(
            f"{argument} holds {len(inside)} checkpoint-<step> folders with a config.json"
            + (", none of them in the range" if inside else "; is it the folder of a training?")
        )
    return chosen


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """The folders named checkpoint-<step> with a config.json, at any depth, by number."""
    found = []
    for path in folder.rglob("checkpoint-*"):
        match = _NUMBERED.fullmatch(path.name)
        if match and (path / "config.json").is_file():
            found.append((int(match[1]), path))
    return sorted(found)


def is_settled(checkpoint: Checkpoint) -> bool:
    """Whether the weights are there and nobody is still writing them."""
    files = list(checkpoint.path.glob("*.safetensors"))
    return bool(files) and all(time.time() - file.stat().st_mtime > _SETTLED for file in files)
