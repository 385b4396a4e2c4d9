"""An encoder as a model: it fits, predicts, saves and loads, whatever the kind of task."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from danseo.config import RunConfig
from danseo.data.augmenting import origin_of
from danseo.data.halves import in_half
from danseo.data.weights import read_weights
from danseo.errors import DanseoError, DataError, WorkFailed
from danseo.models.encoder.cost import Cost, tokenizer_cost
from danseo.models.encoder.int8 import to_bytes
from danseo.models.encoder.kinds import kind_of
from danseo.models.encoder.network import Network, load_network, load_pieces, save_network
from danseo.models.encoder.trust import with_trust
from danseo.models.protocol import Answers, Events, Fitted, Loading
from danseo.records import Prediction
from danseo.runs.directory import BEST, KEPT, Run
from danseo.runs.scores import finite
from danseo.runs.shapes import number
from danseo.scoring.score import measure
from danseo.settings.values import with_settings
from danseo.tasks.task import Task
from danseo.training.batching import packed
from danseo.training.features import Features, Outputs
from danseo.training.fit import Fitting, Progress, kept_weights
from danseo.training.loop import Engine, Plan, outputs_of
from danseo.training.numbers import conditions, settle
from danseo.training.optim import freeze
from danseo.training.speed import ComputeMode, recorded_mode, settled_mode
from danseo.training.workers import Workers


class Encoder:
    """A pretrained body with a head."""

    def __init__(self, config: RunConfig, task: Task, workers: Workers, source: Path | None = None) -> None:
        self.config, self.task, self.workers, self.source = config, task, workers, source
        settle(config.train, workers.device)
        cls = kind_of(task)
        self.kind = cls(task, load_pieces(config, cls.added_pieces(config.head), source), config.head, config.train)
        if source:
            self._restore_head(source)
        torch.manual_seed(config.seed)
        self.network: Network = load_network(config, self.kind, source, workers.device)
        if config.train.gradient_checkpointing and not source:
            self.network.model.gradient_checkpointing_enable()
        if not source:
            freeze(self.network, config.train.freeze)
        self.frozen = sum(weight.numel() for weight in self.network.parameters() if not weight.requires_grad)
        self.mode: ComputeMode | None = None

    @property
    def reads_pos(self) -> bool:
        """KLUE's own parser reads gold POS tags."""
        return self.task.kind == "parse" and self.config.head.architecture == "official"

    # Fitting

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> Fitted:
        """Train, keep the best weights by the select half, and answer dev with them."""
        cost = self.prepare(train, dev)
        events.begin()
        if self.workers.is_first:
            events.run.write_json("preflight.json", cost.as_dict())
        events.note(cost.line())
        self.workers.wait()
        progress = self.train_steps(events)
        kept = self.score_kept(events.run, progress)
        answers = self.predict_dev()
        facts_of_answers = self.kind.answer_facts(self.dev)
        best = {"monitor": self.monitor, "best_step": progress.best_step, "steps": progress.step}
        loss = self.select_loss() if self.workers.is_first else None  # the others need not know
        best |= {"select_score": finite(progress.best), "select_loss": finite(loss)}
        best |= {"weights": kept} if kept else {}
        best |= facts_of_answers
        device, facts = str(self.workers.device), self.facts(progress)
        return Fitted(answers, device, progress.seconds, facts, best | {"preflight": cost.as_dict()})

    def prepare(self, train: Sequence[Any], dev: Sequence[Any]) -> Cost:
        """Encode once; the cost of the tokenizer on dev comes out."""
        self.train_features = self.kind.encode(train, with_gold=True)
        self.train_weights = self._weights(train)
        self.prepare_dev(dev)
        for examples, features in ((train, self.train_features), (self.dev, self.dev_features)):
            self.kind.check_inputs(examples, features)
        self.kind.learn_types(train)
        self.kind.prepare_loss(self.train_features)
        shown = {"train": self.kind.input_facts(train, self.train_features)}
        shown["dev"] = self.kind.input_facts(self.dev, self.dev_features)
        return replace(tokenizer_cost(self.kind, self.dev, self.dev_features), shown=shown if shown["dev"] else {})

    def _weights(self, train: Sequence[Any]) -> list[float] | None:
        """How often each of the training features is to be drawn; a made example weighs what its origin does."""
        if not self.config.train.example_weights:
            return None
        weights = read_weights(Path(self.config.train.example_weights))
        found = [weights.get(origin_of(train[record.example].guid), 1.0) for record in self.train_features]
        if not any(found):  # of a fold, or of the first few examples
            raise DanseoError(
                "train.example_weights: every example that is learned from weighs 0; raise limit, or leave some"
            )
        return found

    def prepare_dev(self, dev: Sequence[Any]) -> None:
        """Encode what predict_dev and the scores of the select half are about."""
        self.dev, self.dev_features = list(dev), self.kind.encode(dev, with_gold=True)

    def train_steps(self, events: Events) -> Progress:
        """Train on what prepare() encoded; the best weights by the select half remain."""
        pieces = self.config.train.epochs * sum(map(len, self.train_features))
        engine = self._engine(events.run, events.note, pieces, events.series)
        chosen = self._half(self.config.train.select_on)
        plan = Plan([len(record) for record in self.train_features], self.config.train, self.config.seed)
        plan.weights = self.train_weights
        fitting = Fitting(engine, self.train_features, self.config.train, self.config.seed, events.run, plan)
        return fitting.run_to_end(lambda: self._headline(engine, *chosen), events)

    def score_kept(self, run: Run, fitted: Progress) -> dict[str, dict[str, float | None]]:
        """The monitored metric of all weights that averaging kept, by half; the best ones are back at the end."""
        scores: dict[str, dict[str, float | None]] = {}
        for name in self.workers.agreed(run.kept_weights()):
            kept_weights(self.network, run, f"{KEPT}/{name}.safetensors", self.workers)
            step = fitted.kept[name][1] if name in fitted.kept else fitted.step
            scores[name] = {"step": step, **self._by_half(self.predict_dev())}
        if scores:
            kept_weights(self.network, run, BEST, self.workers)
        return scores

    def _by_half(self, predictions: Sequence[Prediction]) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for half in ("select", "report", "dev"):
            positions = in_half(self.task, self.dev, half)
            chosen = [self.dev[position] for position in positions], [predictions[position] for position in positions]
            value = measure(self.task, *chosen)[self.monitor].value() if positions else math.nan
            found[half] = value if math.isfinite(value) else None
        return found

    def facts(self, fitted: Progress) -> dict[str, Any]:
        """How the fitting went, for the record."""
        return {
            "pieces_per_second": fitted.pieces / max(1e-9, fitted.seconds),
            "padded_pieces_per_second": fitted.padded / max(1e-9, fitted.seconds),
            "padding_share": 1 - fitted.pieces / max(1, fitted.padded),
            "precision": self.mode.precision if self.mode else None,
            "attention": self.mode.attention if self.mode else None,
            **conditions(self.workers),
            "frozen_parameters": self.frozen,
            "parameters": sum(parameter.numel() for parameter in self.network.parameters()),
        }

    def _engine(
        self,
        run: Run | None = None,
        on_note: Callable[[str], None] = lambda note: None,
        pieces: float = 0,
        series: Path | None = None,
    ) -> Engine:
        """Ready to compute, for learning from so many pieces; a saved model computes as it did when it learned."""
        if self.mode is None:
            self.network.to(self.workers.device)
            if self.source:
                self.mode = recorded_mode(Run(self.source.parent), self.config.train, self.workers.device)
            train = replace(self.config.train, precision="bf16") if self._is_half else self.config.train
            arguments = (self.network, train, self.workers, run, pieces, on_note, series)
            self.mode = self.mode or settled_mode(*arguments)
        self.mode.engage(self.network)
        return Engine(self.network, self.kind, self.workers, self.mode, self.config.train.batch_tokens, on_note)

    @property
    def _is_half(self) -> bool:
        """Whether weights lie in bfloat16, so that nothing else computes with them."""
        return any(weight.dtype == torch.bfloat16 for weight in self.network.parameters())

    def _half(self, half: str) -> tuple[list[Any], list[Features]]:
        """The dev examples of a half, and their features with the positions that the examples now have."""
        positions = in_half(self.task, self.dev, half)
        if not positions:
            raise DanseoError(f"no dev example falls into the {half} half; use --select-on dev for so small a set")
        return self._chosen(positions)

    def _chosen(self, positions: Sequence[int]) -> tuple[list[Any], list[Features]]:
        renumbered = {position: number for number, position in enumerate(positions)}
        features = [
            Features(renumbered[f.example], f.ids, f.segments, f.fields)
            for f in self.dev_features
            if f.example in renumbered
        ]
        return [self.dev[position] for position in positions], features

    def _headline(self, engine: Engine, examples: list[Any], features: list[Features]) -> float:
        outputs = outputs_of(engine, features)
        self.kind.fit_decision(examples, features, outputs)
        predictions = self.kind.decode(examples, features, outputs)
        return measure(self.task, examples, predictions)[self.monitor].value()

    def select_score(self) -> float:
        """The monitored metric on the half that picks the checkpoint."""
        return self._headline(self._engine(), *self._half(self.config.train.select_on))

    def select_loss(self) -> float | None:
        """The loss on the half that picks the checkpoint; None where heads compute it only while they learn."""
        if self.task.kind == "track":
            return None
        _, features = self._half(self.config.train.select_on)
        return loss_of(self._engine(), features)

    @property
    def monitor(self) -> str:
        """The metric that picks the best checkpoint."""
        named = self.config.train.monitor
        if named != "headline" and named not in self.task.metrics:
            raise DanseoError(f"train.monitor = {named}: {self.task.name} has {', '.join(self.task.metrics)}")
        return self.task.headline if named == "headline" else named

    # Predicting

    def to_bytes(self) -> None:
        """From now on the body computes in bytes; it cannot learn any more."""
        mode = self._engine().mode
        to_bytes(self.network.model, self.workers.device)
        self.mode = ComputeMode("int8", mode.attention)

    def predict_dev(self, on_part: Callable[[int], None] = lambda count: None) -> Answers:
        """Answers to all of dev; what decoding needs is settled on the half that picks the checkpoint."""
        outputs = outputs_of(self._engine(), self.dev_features, on_part)
        positions = set(in_half(self.task, self.dev, self.config.train.select_on))
        examples, features = self._chosen(sorted(positions))
        chosen = [
            output for record, output in zip(self.dev_features, outputs, strict=True) if record.example in positions
        ]
        self.kind.fit_decision(examples, features, chosen)
        return self.kind.decode(self.dev, self.dev_features, outputs)

    def predict(self, examples: Sequence[Any]) -> Answers:
        features = self.kind.encode(examples, with_gold=False)
        outputs: list[Outputs] = outputs_of(self._engine(), features)
        return self.kind.decode(examples, features, outputs)

    # Saving

    def save(self, folder: Path) -> None:
        from safetensors import SafetensorError

        try:
            save_network(self.network, self.kind, folder)
        except (OSError, SafetensorError) as error:
            raise WorkFailed(f"{folder} cannot be written: {error}; free some space and run the same command") from None
        self.save_decision(folder)

    def save_decision(self, folder: Path) -> None:
        """What decoding needs beside the weights."""
        state = {"decision": self.kind.decision(), "state": self.kind.extra_state()}
        Run(folder.parent).write_json(f"{folder.name}/danseo.json", state)

    def _restore_head(self, source: Path) -> None:
        state = Run(source.parent).read_json(f"{source.name}/danseo.json")
        try:
            if not all(map(number, state["decision"].values())):
                raise ValueError
            self.kind.restore_decision(state["decision"])
            self.kind.restore_state(state["state"])
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            raise DataError(f"{source / 'danseo.json'} is damaged or of another version; train the run again") from None


def load_encoder(run: Run, task: Task, loading: Loading) -> Encoder:
    """The saved encoder of a run; its precision is that of its training where none is named."""
    config, precision = with_trust(run, loading.trust_remote_code), loading.precision
    config = with_settings(config, {"precision": "fp32" if precision == "int8" else precision}) if precision else config
    model = Encoder(config, task, Workers(loading.device), source=run.path / "model")
    if precision == "int8":
        model.to_bytes()
    return model


@torch.inference_mode()
def loss_of(engine: Engine, features: Sequence[Features]) -> float:
    """The mean loss over features with gold, dropout off."""
    engine.network.eval()
    total, weight = 0.0, 0.0
    for part in packed(range(len(features)), [len(record) for record in features], engine.tokens):
        outputs, batch = engine.forward([features[index] for index in part], with_gold=True)
        loss, share = engine.kind.loss(outputs, batch)
        total, weight = total + float(loss), weight + float(share)
    return total / max(weight, 1e-9)
