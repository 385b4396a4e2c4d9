"""An ensemble as a model: its members predict, and their answers are combined with the saved weights."""

import gc
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from danseo.config.run import RunConfig
from danseo.errors import DanseoError, DataError
from danseo.models.base import Answers, LoadOptions, Model
from danseo.models.registry import load_model
from danseo.runs.predictions import MemberPredictions, hash_predictions, read_finished_record
from danseo.runs.store import Run
from danseo.tasktypes.base import Task

_ROOM = 1.5  # free memory per byte of weights that a member needs to stay loaded
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Member:
    run: Run
    weight: float
    select_score: float
    sha256: str
    """The hash of the predictions that were combined."""


@dataclass(frozen=True)
class _AnsweredMembers:
    """The members of an ensemble with their answers to new examples, which fit no threshold."""

    task: Task
    examples: list[Any]
    members: list[MemberPredictions]
    select_positions: list[int] = field(default_factory=list)


def check_ensemble(config: RunConfig, task: Task) -> None:
    """Refuse to train an ensemble."""
    raise DanseoError(f"{config.model}: an ensemble is not trained; make one with `danseo ensemble RUN RUN`")


def load_ensemble(run: Run, task: Task, loading: LoadOptions) -> "EnsembleModel":
    """Load the members of an ensemble that have a weight; check all of them before the first is loaded."""
    check_members(run, task)
    return EnsembleModel(run, task, loading)


class EnsembleModel:
    """Predicts with each member and combines the answers as the run of the ensemble did.

    All members stay loaded if the memory is enough, else each is loaded again for every call of predict.
    """

    def __init__(self, run: Run, task: Task, loading: LoadOptions) -> None:
        self.task, self.loading = task, loading
        self.method, self.threshold, self.members = _read_ensemble(run)
        self.is_kept, self.loaded = True, dict[int, Model]()
        for position, member in enumerate(self.members):
            self.is_kept = self.is_kept and (not position or self._has_room(member))
            if self.is_kept:
                self._use(position, lambda model: model)
        if not self.is_kept:
            self.loaded.clear()
            loading.on_note("memory is short: the members are loaded one after another, again for each batch")

    def _has_room(self, member: _Member) -> bool:
        return _ROOM * measure_weights(member.run) <= read_free_memory(self.loading.device)

    def _use(self, position: int, function: Callable[[Model], Result]) -> Result:
        """Return what a function returns for the model of a member; load the model if it is not loaded."""
        if position in self.loaded:
            return function(self.loaded[position])
        run, loading = self.members[position].run, self.loading
        loading.on_note(f"loading member {position + 1} of {len(self.members)}: {run.path.name}")
        gc.collect()  # before another model needs the memory of the last one
        model = load_model(
            run, loading.device, loading.precision, trust_remote_code=loading.trust_remote_code, on_note=loading.on_note
        )
        if self.is_kept:
            self.loaded[position] = model
        return function(model)

    @cached_property
    def reads_pos(self) -> bool:
        return any(self._use(position, lambda model: model.reads_pos) for position in range(len(self.members)))

    def predict(self, examples: Sequence[Any]) -> Answers:
        """Return the combined answers of the members."""
        if not examples:
            return Answers([])
        answered = [self._predict_member(position, examples) for position in range(len(self.members))]
        combiner = self.task.type.make_combiner(_AnsweredMembers(self.task, list(examples), answered), self.method)
        combiner.threshold = self.threshold
        predictions, rows = combiner(np.array([member.weight for member in self.members]))
        if rows is None:
            return Answers(predictions)
        return Answers(predictions, self.task.type.pack_arrays(self.task, rows, combiner.token_starts), rows)

    def _predict_member(self, position: int, examples: Sequence[Any]) -> MemberPredictions:
        member, type_ = self.members[position], self.task.type
        answers = self._use(position, lambda model: model.predict(examples))
        arrays = answers.evidence
        return MemberPredictions(
            member.run.path.name,
            member.run.path,
            answers.predictions,
            type_.unpack_arrays(self.task, arrays) if arrays else type_.read_inline_rows(self.task, answers),
            digest="",
            select_score=member.select_score,
            token_starts=type_.unpack_token_starts(arrays) if arrays else None,
        )


def _read_ensemble(run: Run) -> tuple[str, float | None, list[_Member]]:
    """Return the method, the threshold, and the members that have a weight."""
    try:
        facts, located = run.read_json("scores.json")["ensemble"], run.read_json("members.json")["members"]
        members = [
            _Member(
                Run((run.path / place["path"]).resolve()),
                float(scored["weight"]),
                math.nan if scored["select_score"] is None else float(scored["select_score"]),
                str(place["sha256"]),
            )
            for scored, place in zip(facts["members"], located, strict=True)
        ]
        threshold = None if facts["threshold"] is None else float(facts["threshold"])
        chosen = [member for member in members if member.weight > 0]
        if not chosen or not all(math.isfinite(member.weight) for member in chosen):
            raise ValueError("weights")
        return str(facts["method"]), threshold, chosen
    except (LookupError, TypeError, ValueError):
        raise DataError(f"members.json and scores.json do not fit: {run.path}; make the ensemble again") from None


def check_members(run: Run, task: Task, above: tuple[Path, ...] = ()) -> None:
    """Refuse a member that is missing, changed, of another task, or the ensemble itself; also inside of members."""
    for member in _read_ensemble(run)[2]:
        path = member.run.path
        if path in above or path == run.path.resolve():
            raise DataError(f"an ensemble contains itself: {path}; make it again")
        if path.is_file():
            raise DanseoError(f"{path} is a prediction file without a model: {run.path} answers only its dev set")
        if not path.is_dir():
            raise DanseoError(f"a member of {run.path} is missing: {path}; put it back, or make the ensemble again")
        record = read_finished_record(path)
        if record.task != task.name:
            raise DanseoError(f"{path.name} is a run of {record.task}, not {task.name}; make {run.path} again")
        if member.sha256 != hash_predictions(member.run.predictions_path("dev")):
            raise DanseoError(f"{path} has changed since the ensemble was made; make {run.path} again")
        if member.run.config.run_type == "ensemble":
            check_members(member.run, task, (*above, run.path.resolve()))


def measure_weights(run: Run) -> float:
    """Return about how many bytes the weights of a run need: those of its files, or two per parameter."""
    files = sum(path.stat().st_size for path in (run.path / "model").rglob("*") if path.is_file())
    parameters = run.read_json("environment.json").get("parameters")
    return max(files, 2 * float(parameters or 0))


def read_free_memory(device: str | None) -> float:
    """Return the free bytes of the GPU or the machine; infinity if they are not known."""
    torch = sys.modules.get("torch")
    if torch and device != "cpu" and torch.cuda.is_available():
        return float(torch.cuda.mem_get_info(device or "cuda")[0])
    with suppress(OSError, ValueError, LookupError):
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text("utf-8").splitlines())
        return 1024 * float(lines["MemAvailable"].split()[0])
    return math.inf
