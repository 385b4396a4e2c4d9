"""What can be tuned: one trial of each training command, what counts in it, and what is reported once at the end."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from danseo.config import RunConfig
from danseo.errors import DanseoError
from danseo.probing.items import ProbeItem, items_hash
from danseo.runs.directory import Run, run_path
from danseo.search.study import load_optuna
from danseo.settings.declaring import flat, is_unused
from danseo.settings.values import with_settings
from danseo.settings.written import to_toml

OnScore = Callable[[int, float], None]
"""Called with the step and the value of every evaluation; it may raise to stop the trial."""


def told(config: Any) -> dict[str, Any]:
    """What a study or a folder of trials is known by: settings that came later, and are not used, do not rename it."""
    return {name: value for name, value in flat(config).items() if not is_unused(type(config), name, value)}


@dataclass(frozen=True)
class Outcome:
    """What a trial came to."""

    value: float
    step: int
    folder: str


class Target(Protocol):
    """A training command whose settings are searched."""

    command: str
    metric: str
    """What is maximised, in words."""
    config: Any

    @property
    def home(self) -> Path:
        """The folder of its trials."""

    def identity(self) -> dict[str, Any]:
        """What the trials of one study must agree in, besides the base settings."""

    def run(self, settings: Mapping[str, Any], on_score: OnScore) -> Outcome:
        """One trial; the same settings go on where an earlier start of them ended."""

    def report(self, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """The scores of the best trial on what no trial was judged by."""

    def best_config(self, settings: Mapping[str, Any]) -> str:
        """A TOML file that the command accepts."""


@dataclass(frozen=True)
class TrainTarget:
    """danseo train: the monitored metric on the select half; the report half is kept for the end."""

    config: RunConfig
    root: Path
    runs: Path
    device: str | None = None
    command: str = "train"

    def __post_init__(self) -> None:
        if self.config.train.select_on == "dev":
            raise DanseoError("--select-on dev would tune on the reported examples; tuning needs the select half")

    @property
    def home(self) -> Path:
        return self.runs

    @property
    def metric(self) -> str:
        from danseo.tasks import get_task

        named = self.config.train.monitor
        return f"{get_task(self.config.task).headline if named == 'headline' else named} on the select half of dev"

    def identity(self) -> dict[str, Any]:
        from danseo.data import find
        from danseo.tasks import get_task

        return dict(find.data_hashes(get_task(self.config.task), self.root))

    def run(self, settings: Mapping[str, Any], on_score: OnScore) -> Outcome:
        from danseo.experiment import identity_of, run_experiment

        def heard(step: int, score: float | None) -> None:
            if score is not None:
                on_score(step, score)

        config = with_settings(self.config, settings)
        try:
            run = run_experiment(config, self.root, self.runs, device=self.device, quiet=True, on_score=heard)
        except load_optuna().TrialPruned as pruned:
            Run(run_path(self.runs, config, identity_of(config, self.identity()))).prune(str(pruned))
            raise
        scores = run.read_json("scores.json")
        if scores.get("select_score") is None:
            raise DanseoError(f"{run.path}: its metric is undefined on the select half; choose another train.monitor")
        return Outcome(scores["select_score"], scores["best_step"], str(run.path))

    def report(self, outcome: Mapping[str, Any]) -> dict[str, Any]:
        from danseo.runs.scores import headline_of

        found = headline_of(Run(Path(outcome["folder"])).read_json("scores.json"), "report")
        return {"on": "the report half of dev", "scores": [found] if found else []}

    def best_config(self, settings: Mapping[str, Any]) -> str:
        own = ("task", "model", "recipe", "kind", "seed", "limit", "trust_remote_code")
        return to_toml(with_settings(self.config, settings), without=own)


@dataclass(frozen=True)
class MaskedTarget:
    """danseo pretrain and coref: a probe score on the dev items; the test items are kept for the end."""

    config: Any
    texts: tuple[Path, ...]
    items: Mapping[str, Sequence[ProbeItem]]
    """dev and test."""
    folder: Path
    score: str = "composite"
    dataset: Path | None = None
    device: str | None = None
    command: str = "pretrain"

    @property
    def home(self) -> Path:
        return self.folder

    @property
    def metric(self) -> str:
        return f"{self.score} of the dev probe"

    def check(self) -> None:
        """Refuse a checkpoint, text or dataset that every trial would fail on: failed trials count in a study."""
        from danseo.pretraining.coref import require_source, row_length
        from danseo.pretraining.mentions import require_left_out
        from danseo.pretraining.pretrain import check_config
        from danseo.pretraining.start import load_masked
        from danseo.pretraining.text import stream

        if self.command == "coref":
            require_source(self.texts, self.dataset)
            loaded = load_masked(self.config.checkpoint, self.config.trust_remote_code, needs_head=True)
            row_length(self.config, self.dataset, *loaded)
            if self.dataset is not None:
                require_left_out(self.dataset, [item for items in self.items.values() for item in items])
        else:
            check_config(self.config)
            if self.config.checkpoint:
                load_masked(self.config.checkpoint, self.config.trust_remote_code)
        for _ in stream(self.texts) if self.texts else ():
            pass  # to its end, where a file may be cut off

    def identity(self) -> dict[str, Any]:
        from danseo.text.identity import text_identity

        text = text_identity(self.texts) if self.texts else str(self.dataset)
        return {"text": text, **{split: items_hash(items) for split, items in self.items.items()}}

    def run(self, settings: Mapping[str, Any], on_score: OnScore) -> Outcome:
        config = with_settings(self.config, settings)
        about = json.dumps([told(config), self.identity()], sort_keys=True)
        named = hashlib.sha256(about.encode()).hexdigest()[:8]
        run = self._trained(config, self.folder / f"{self.command}-{named}", on_score)
        found = [(self._value(line), line["step"]) for line in run.read_log()]
        known = [(value, step) for value, step in found if value is not None]
        if not known:
            raise DanseoError(f"{run.path}: no evaluation has a {self.score}; are there probe items of its kind?")
        value, step = max(known)
        return Outcome(value, step, str(run.path))

    def _trained(self, config: Any, folder: Path, on_score: OnScore) -> Run:
        def heard(step: int, scores: dict[str, Any]) -> None:
            if (value := self._value(scores)) is not None:
                on_score(step, value)

        probes, kept = tuple(self.items["dev"]), tuple(self.items["test"])
        if self.command == "pretrain":
            from danseo.pretraining.pretrain import PretrainJob, pretrain

            job = PretrainJob(config, self.texts, probes, self.device, quiet=True, on_score=heard, kept_out=kept)
            return pretrain(job, folder)
        from danseo.pretraining.coref import CorefJob, coref

        coref(
            CorefJob(
                config,
                self.texts,
                self.dataset,
                probes=probes,
                device=self.device,
                quiet=True,
                on_score=heard,
                kept_out=kept,
            ),
            folder,
        )
        return Run(folder)

    def _value(self, scores: Mapping[str, Any]) -> float | None:
        value: float | None = (scores.get("probes") or {}).get(self.score)
        return value

    def report(self, outcome: Mapping[str, Any]) -> dict[str, Any]:
        from danseo.models.masked.load import MaskedModel
        from danseo.probing.probe import ProbeOptions, probe_model

        folder = Path(outcome["folder"]) / f"checkpoint-{outcome['step']}"
        masked = MaskedModel.load(str(folder), self.device, trust_remote_code=self.config.trust_remote_code)
        result = probe_model(masked, list(self.items["test"]), ProbeOptions())
        shares = {name: result.share("repeated", name) for name in ("strict@1", "strict@5", "choice@1")}
        scores: list[dict[str, Any]] = [
            {"id": name, "value": share["value"], "interval": [share["low"], share["high"]], "n": share["n"]}
            for name, share in shares.items()
            if share.get("n")
        ]
        scores.append({"id": "composite", "value": result.composite()})
        return {"on": "the test probe", "scores": scores, "probe": result.as_dict()}

    def best_config(self, settings: Mapping[str, Any]) -> str:
        own = ("checkpoint", "trust_remote_code")
        return to_toml(with_settings(self.config, settings), without=own)
