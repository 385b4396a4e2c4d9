"""The commands that danseo tune can tune: one trial, its value, and the scores that are reported once at the end."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from danseo.config.base import changed_settings, to_toml, update_config
from danseo.config.run import RunConfig
from danseo.data import find
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.mlm.probing.items import ProbeItem, hash_items
from danseo.models.registry import get_family
from danseo.models.run_plan import compute_identity
from danseo.runs.scores import get_headline
from danseo.runs.store import Run, find_run_path
from danseo.sweeps.optuna_study import load_optuna
from danseo.tasks import get_task
from danseo.text.documents import hash_files

OnScore = Callable[[int, float], None]
"""Called with the step and the value of every evaluation; it may raise to stop the trial."""


@dataclass(frozen=True)
class TrialResult:
    """The value of a trial, its best step, and its folder."""

    value: float
    step: int
    folder: str


class Target(Protocol):
    """A training command whose settings are searched."""

    command: str
    metric: str
    """The name of what is maximised."""
    config: Any

    @property
    def home(self) -> Path:
        """The folder of its trials."""

    def identity(self) -> dict[str, Any]:
        """Return what the trials of one study must have in common, besides the base settings."""

    def run(self, settings: Mapping[str, Any], on_score: OnScore) -> TrialResult:
        """Run one trial; the same settings resume an earlier one."""

    def report(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scores of the best trial on examples that no trial was compared on."""

    def best_config(self, settings: Mapping[str, Any]) -> str:
        """Return a TOML file that the command accepts."""


@dataclass(frozen=True)
class TrainTarget:
    """danseo train: the monitored metric on the select split; the report split is kept for the end."""

    config: RunConfig
    root: Path
    home: Path
    device: str | None = None
    command: str = "train"

    def __post_init__(self) -> None:
        if self.config.train.select_on == "dev":
            raise DanseoError("--select-on dev would tune on the reported examples; tuning needs the select split")

    @property
    def metric(self) -> str:
        metric = self.config.train.metric_for_best_model
        return f"{get_task(self.config.task).headline if metric == 'headline' else metric} on the select split of dev"

    def identity(self) -> dict[str, Any]:
        return dict(find.data_hashes(get_task(self.config.task), self.root))

    def run(self, settings: Mapping[str, Any], on_score: OnScore) -> TrialResult:
        def report(step: int, score: float | None) -> None:
            if score is not None:
                on_score(step, score)

        config = update_config(self.config, settings)
        try:
            run = run_experiment(config, self.root, self.home, device=self.device, quiet=True, on_score=report)
        except load_optuna().TrialPruned as pruned:
            identity = compute_identity(config, self.identity(), get_family(config.model))
            Run(find_run_path(self.home, config, identity)).prune(str(pruned))
            raise
        scores = run.read_json("scores.json")
        if scores.get("select_score") is None:
            raise DanseoError(
                f"{run.path}: its metric is undefined on the select split; choose another train.metric_for_best_model"
            )
        return TrialResult(scores["select_score"], scores["best_step"], str(run.path))

    def report(self, result: Mapping[str, Any]) -> dict[str, Any]:
        found = get_headline(Run(Path(result["folder"])).read_json("scores.json"), "report")
        return {"on": "the report split of dev", "scores": [found] if found else []}

    def best_config(self, settings: Mapping[str, Any]) -> str:
        own = ("task", "model", "recipe", "run_type", "seed", "max_train_samples", "trust_remote_code")
        return to_toml(update_config(self.config, settings), without=own)


@dataclass(frozen=True)
class MaskedTarget:
    """danseo pretrain and coref: a probe score on the dev items; the test items are kept for the end."""

    config: Any
    texts: tuple[Path, ...]
    items: Mapping[str, Sequence[ProbeItem]]
    """dev and test."""
    home: Path
    score: str = "composite"
    dataset: Path | None = None
    device: str | None = None
    command: str = "pretrain"

    @property
    def metric(self) -> str:
        return f"{self.score} of the dev probe"

    def check(self) -> None:
        """Refuse a checkpoint, text or dataset with which every trial would fail, because failed trials count."""
        from danseo.mlm.coref import choose_row_length, require_source
        from danseo.mlm.initialization import load_masked
        from danseo.mlm.mentions import require_left_out
        from danseo.mlm.packing import stream_documents
        from danseo.mlm.pretraining import check_config

        if self.command == "coref":
            require_source(self.texts, self.dataset)
            loaded = load_masked(self.config.checkpoint, self.config.trust_remote_code, needs_head=True)
            choose_row_length(self.config, self.dataset, *loaded)
            if self.dataset is not None:
                require_left_out(self.dataset, [item for items in self.items.values() for item in items])
        else:
            check_config(self.config)
            if self.config.checkpoint:
                load_masked(self.config.checkpoint, self.config.trust_remote_code)
        for _ in stream_documents(self.texts) if self.texts else ():
            pass  # read all text, because a file may be cut off

    def identity(self) -> dict[str, Any]:
        text = hash_files(self.texts) if self.texts else str(self.dataset)
        return {"text": text, **{split: hash_items(items) for split, items in self.items.items()}}

    def run(self, settings: Mapping[str, Any], on_score: OnScore) -> TrialResult:
        config = update_config(self.config, settings)
        identity = json.dumps([changed_settings(config), self.identity()], sort_keys=True)
        fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:8]
        run = self._train(config, self.home / f"{self.command}-{fingerprint}", on_score)
        evaluations = [(self._value(line), line["step"]) for line in run.read_log() if "step" in line]
        scored = [(value, step) for value, step in evaluations if value is not None]
        if not scored:
            raise DanseoError(f"no evaluation has a {self.score}: {run.path}; add probe items that it needs")
        value, step = max(scored)
        return TrialResult(value, step, str(run.path))

    def _train(self, config: Any, folder: Path, on_score: OnScore) -> Run:
        def report(step: int, scores: dict[str, Any]) -> None:
            if (value := self._value(scores)) is not None:
                on_score(step, value)

        probes, kept = tuple(self.items["dev"]), tuple(self.items["test"])
        if self.command == "pretrain":
            from danseo.mlm.pretraining import PretrainJob, pretrain

            job = PretrainJob(config, self.texts, probes, self.device, quiet=True, on_score=report, kept_out=kept)
            return pretrain(job, folder)
        from danseo.mlm.coref import CorefJob, coref

        coref(CorefJob(config, self.texts, probes, self.device, True, report, kept, self.dataset), folder)
        return Run(folder)

    def _value(self, scores: Mapping[str, Any]) -> float | None:
        value: float | None = (scores.get("probes") or {}).get(self.score)
        return value

    def report(self, result: Mapping[str, Any]) -> dict[str, Any]:
        from danseo.mlm.probing.probe import ProbeOptions, probe_model
        from danseo.models.mlm.masked_model import MaskedModel

        folder = Path(result["folder"]) / f"checkpoint-{result['step']}"
        masked = MaskedModel.load(str(folder), self.device, trust_remote_code=self.config.trust_remote_code)
        probe = probe_model(masked, list(self.items["test"]), ProbeOptions())
        shares = {name: probe.share("repeated", name) for name in ("strict@1", "strict@5", "choice@1")}
        scores: list[dict[str, Any]] = [
            {"id": name, "value": share["value"], "interval": [share["low"], share["high"]], "n": share["n"]}
            for name, share in shares.items()
            if share.get("n")
        ]
        scores.append({"id": "composite", "value": probe.composite()})
        return {"on": "the test probe", "scores": scores, "probe": probe.as_dict()}

    def best_config(self, settings: Mapping[str, Any]) -> str:
        own = ("checkpoint", "trust_remote_code")
        return to_toml(update_config(self.config, settings), without=own)
