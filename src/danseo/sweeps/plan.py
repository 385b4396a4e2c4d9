"""What a sweep comes to: its run directories, and what is done already."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from danseo.config import RunConfig, flat
from danseo.data import find
from danseo.errors import DanseoError
from danseo.experiment import identity_of
from danseo.files import content_sha256
from danseo.models.floor import FLOORS, make_floor
from danseo.runs.directory import Run, run_path
from danseo.runs.index import Record, find_runs, read_record
from danseo.tasks import get_task

_FLOOR_PARAMETERS = {"majority": 1e3, "linear": 1e5}
_BASE = {"hidden_size": 768, "num_hidden_layers": 12}
_LEARNING = 3  # a way forward, and twice that back


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    config: RunConfig
    run: Run
    work: float
    """Examples that the encoder reads, over all epochs and evaluations; one that it learns from counts three times."""
    parameters: float
    model: str
    """What the model's folder holds, as a hash, or which Hub id it is."""

    @property
    def name(self) -> str:
        return self.run.path.name


class Planner:
    """Turns configs into points; data files and models are looked at once each, and the Hub only where it may be."""

    def __init__(self, root: Path, runs: Path, *, offline: bool = False) -> None:
        self.root, self.runs, self.offline = root.resolve(), runs.resolve(), offline
        self.hashes: dict[str, dict[str, str]] = {}
        self.examples: dict[str, dict[str, int]] = {}
        """Task -> split -> how many there are."""
        self.parameters: dict[str, float] = {}
        self.unseen: list[str] = []
        """Models of the Hub that are not on this machine, so that their size is not known."""
        self._identities: dict[tuple[str, str], dict[str, str]] = {}

    def point(self, config: RunConfig) -> Point:
        """The run directory of a config, checked: the data, the model, and who else uses the directory."""
        self._read_data(config.task)
        if config.model not in self.parameters:
            self.parameters[config.model] = self._size(config)
        _check_fit(config)
        identity = self._identity(config)
        run = Run(run_path(self.runs, config, identity))
        model = identity.get("model", config.model)
        point = Point(config, run, self.work(flat(config)), self.parameters[config.model], model)
        _check_directory(point)
        return point

    def work(self, settings: Mapping[str, Any]) -> float:
        """How many examples a run of these settings reads; a floor goes over them once."""
        counts, limit = self.examples[settings["task"]], settings["limit"]
        train = min(limit or counts["train"], counts["train"])
        if settings["model"] in FLOORS:
            return train + counts["dev"]
        epochs = settings["train.epochs"]
        judged = counts["dev"] / (1 if settings["train.select_on"] == "dev" else 2)
        return float(_LEARNING * train * epochs + judged * max(1, settings["train.evaluations"] * epochs))

    def _size(self, config: RunConfig) -> float:
        """The parameters of a model; offline one of the Hub is looked for on this machine alone."""
        if not self.offline or config.model in FLOORS or Path(config.model).is_dir():
            return parameters_of(config.model, config.trust_remote_code)
        _check_id(config.model)
        facts = kept_facts(config.model)
        if facts is None:
            self.unseen.append(config.model)
        return _above_embeddings(facts or _BASE)

    def _read_data(self, name: str) -> None:
        if name in self.hashes:
            return
        task = get_task(name)
        files = {split: find.require_file(task, split, self.root) for split in ("train", "dev")}
        counts = {split: len(task.read(path)) for split, path in files.items()}
        self.hashes[name] = {path.name: content_sha256(path) for path in files.values()}
        self.examples[name] = counts

    def _identity(self, config: RunConfig) -> dict[str, str]:
        key = config.task, config.model
        if key not in self._identities:
            self._identities[key] = identity_of(config, self.hashes[config.task])
        return self._identities[key]


def parameters_of(model: str, trust_remote_code: bool = False) -> float:
    """The weights above the embeddings, from the configuration alone; an unknown model is an error."""
    if model in FLOORS:
        return _FLOOR_PARAMETERS[model]
    folder = Path(model)
    if folder.is_dir():
        facts = read_facts(folder / "config.json")
        if not any(folder.glob("*.safetensors")):
            raise DanseoError(f"model {model} has no safetensors weights; convert them (danseo never loads pickles)")
    else:
        _check_id(model)
        from danseo.models.encoder.network import load_encoder_config

        facts = load_encoder_config(model, trust_remote_code).to_dict()
    return _above_embeddings(facts)


def _check_id(model: str) -> None:
    """Refuse what is neither a folder nor an id of the Hub."""
    if near := get_close_matches(model, FLOORS, 1, cutoff=0.7):
        raise DanseoError(f"no model named {model!r}; did you mean {near[0]!r}?")
    if model.startswith(("/", ".", "~")):
        raise DanseoError(f"model {model}: no such folder")


def _above_embeddings(facts: Mapping[str, Any]) -> float:
    hidden, layers = facts.get("hidden_size") or 768, facts.get("num_hidden_layers") or 12
    return float(12 * hidden * hidden * layers)


def kept_facts(model: str) -> dict[str, Any] | None:
    """The configuration of a Hub model that is on this machine already; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    name, _, revision = model.partition("@")
    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision or None)
    except ValueError:
        raise DanseoError(f"model {model}: neither a folder nor an id of the Hub such as klue/roberta-base") from None
    return read_facts(Path(found)) if isinstance(found, str) else None


def read_facts(path: Path) -> dict[str, Any]:
    """The configuration of a checkpoint folder."""
    try:
        facts = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise DanseoError(f"model {path.parent} is not a checkpoint folder: no readable config.json") from None
    return facts if isinstance(facts, dict) else {}


def _check_fit(config: RunConfig) -> None:
    task = get_task(config.task)
    if config.model in FLOORS:
        make_floor(config.model, task)  # refuses what it cannot do
    if config.train.monitor not in ("headline", *task.metrics):
        raise DanseoError(f"train.monitor = {config.train.monitor}: {task.name} has {', '.join(task.metrics)}")


def _check_directory(point: Point) -> None:
    """Refuse a directory that holds another run, under whatever name it came there."""
    path = point.run.path
    if path.exists() and not path.is_dir():
        raise DanseoError(f"{path} is a file where a run directory is due; move it away")
    if not (path / "config.toml").is_file():
        return
    own, there = flat(point.config), flat(point.run.config)
    differing = [name for name in own if own[name] != there[name] and name not in ("train.threads", "model")]
    if differing:
        name = differing[0]
        raise DanseoError(
            f"{path} holds another run ({name} = {there[name]}, not {own[name]}); move it away, or use another --runs"
        )


def records_of(runs: Path) -> list[Record]:
    """The runs of a folder that may not be there yet."""
    return find_runs(runs) if runs.is_dir() else []


def state_of(point: Point) -> str:
    """done, failed, pruned, unfinished or new."""
    return read_record(point.run).status if (point.run.path / "config.toml").is_file() else "new"


def read_evaluations(path: Path) -> list[dict[str, Any]]:
    """The evaluations that a running run has logged; a line that is being written does not count."""
    try:
        lines = path.read_text("utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return []
