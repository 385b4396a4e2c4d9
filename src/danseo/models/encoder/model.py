"""The encoder model: training, prediction, saving and loading, for every task type."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.data.augmentation import get_origin
from danseo.data.dev_split import split_indices, take_split
from danseo.errors import DanseoError, DataError, WorkFailed
from danseo.files import to_finite
from danseo.models.base import Answers, Events, LoadOptions, TrainResult, choose_select_positions
from danseo.models.checkpoint import apply_trust
from danseo.models.encoder.distillation import Distillation
from danseo.models.encoder.heads import get_head_class
from danseo.models.encoder.heads.base import TaskHead
from danseo.models.encoder.network import Network, load_encoder_tokenizer, load_network, save_network
from danseo.models.encoder.tokenizer_report import TokenizerReport, make_tokenizer_report
from danseo.records import Prediction
from danseo.runs.schemas import is_number
from danseo.runs.store import BEST, WEIGHTS, Run
from danseo.runs.training_data import read_weights
from danseo.scoring.score import measure
from danseo.tasktypes.base import Task
from danseo.training.distributed import Workers
from danseo.training.features import Features, Outputs
from danseo.training.optimizers import freeze
from danseo.training.precision import (
    ComputeConfig,
    choose_compute_config,
    configure_torch,
    describe_conditions,
    quantize_to_int8,
    read_compute_config,
)
from danseo.training.trainer import Progress, Trainer, restore_weights
from danseo.training.training_loop import BatchPlan, Engine, compute_outputs


class Encoder:
    """A pretrained body with a task head."""

    def __init__(self, config: RunConfig, task: Task, workers: Workers, source: Path | None = None) -> None:
        self.config, self.task, self.workers, self.source = config, task, workers, source
        configure_torch(config.train, workers.device)
        cls = get_head_class(task)
        self.task_head = cls(
            task, load_encoder_tokenizer(config, cls.added_tokens(config.encoder), source), config.encoder, config.train
        )
        if source:
            self._restore_head(source)
        torch.manual_seed(config.seed)
        self.network: Network = load_network(config, self.task_head, source, workers.device)
        if config.train.gradient_checkpointing and not source:
            self.network.model.gradient_checkpointing_enable()
        if not source:
            freeze(self.network, config.train.freeze)
        self.frozen = sum(weight.numel() for weight in self.network.parameters() if not weight.requires_grad)
        self.mode: ComputeConfig | None = None
        self.objective: TaskHead | Distillation = self.task_head

    @property
    def reads_pos(self) -> bool:
        return self.task_head.reads_pos

    # Training

    def prepare_data(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> None:
        """Tokenize and check the examples."""
        events.work_on(f"tokenizing {len(train):,} training and {len(dev):,} dev examples")
        self.cost = self.prepare(train, dev)

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> TrainResult:
        """Train, keep the best weights by the select split, and answer dev with them."""
        cost = self.cost
        if self.workers.is_first:
            events.run.write_json("preflight.json", cost.as_dict())
        events.note(cost.line())
        if isinstance(self.objective, Distillation):
            events.note(self.objective.line())
        self.workers.barrier()
        progress = self.train_steps(events)
        events.work_on("scoring the averaged weights")
        kept = self.score_kept(events.run, progress)
        events.work_on(f"predicting {len(self.dev):,} dev examples", len(self.dev_features))
        answers = self.predict_dev(events.advance)
        events.work_on("computing the loss on dev")
        facts_of_answers = self.task_head.describe_predictions(self.dev)
        best = {"monitor": self.monitor, "best_step": progress.best_step, "steps": progress.step}
        loss = self.select_loss() if self.workers.is_first else None  # the others need not know
        best |= {"select_score": to_finite(progress.best), "select_loss": to_finite(loss)}
        best |= {"weights": kept} if kept else {}
        best |= facts_of_answers
        device, facts = str(self.workers.device), self.facts(progress)
        return TrainResult(answers, device, progress.seconds, facts, best | {"preflight": cost.as_dict()})

    def prepare(self, train: Sequence[Any], dev: Sequence[Any]) -> TokenizerReport:
        """Encode train and dev once; return the tokenizer report."""
        self.train_features = self.task_head.encode(train, with_gold=True)
        self.train_weights = self._weights(train)
        if self.config.train.distill_targets:
            self.objective = Distillation(self.task_head, self.config.train)
            self.objective.add_soft_targets(train, self.train_features)
        self.prepare_dev(dev)
        for examples, features in ((train, self.train_features), (self.dev, self.dev_features)):
            self.task_head.check_inputs(examples, features)
        self.task_head.learn_constraints(train)
        self.task_head.prepare_loss(self.train_features)
        shown = {"train": self.task_head.describe_inputs(train, self.train_features)}
        shown["dev"] = self.task_head.describe_inputs(self.dev, self.dev_features)
        return replace(
            make_tokenizer_report(self.task_head, self.dev, self.dev_features), shown=shown if shown["dev"] else {}
        )

    def _weights(self, train: Sequence[Any]) -> list[float] | None:
        """Return the sampling weight of each training record; an augmented example has that of its origin."""
        if not self.config.train.example_weights:
            return None
        weights = read_weights(Path(self.config.train.example_weights))
        found = [weights.get(get_origin(train[record.example].guid), 1.0) for record in self.train_features]
        if not any(found):  # of a fold, or of the first few examples
            raise DanseoError(
                "train.example_weights: all training examples have weight 0; raise max_train_samples or change weights"
            )
        return found

    def prepare_dev(self, dev: Sequence[Any]) -> None:
        """Encode the dev examples."""
        self.dev, self.dev_features = list(dev), self.task_head.encode(dev, with_gold=True)

    def train_steps(self, events: Events) -> Progress:
        """Train on the encoded examples; keep the best weights on the select split."""
        events.work_on("choosing the precision")
        engine = self._engine(events.run, events.note, events.series)
        chosen = self._select_split()
        plan = BatchPlan([len(record) for record in self.train_features], self.config.train, self.config.seed)
        plan.weights = self.train_weights
        trainer = Trainer(engine, self.train_features, self.config.train, self.config.seed, events.run, plan)
        return trainer.train(lambda: self._fit_and_score(engine, *chosen), events)

    def score_kept(self, run: Run, fitted: Progress) -> dict[str, dict[str, float | None]]:
        """Return the monitored metric of all averaged weights, by split; restore the best weights."""
        scores: dict[str, dict[str, float | None]] = {}
        for name in self.workers.broadcast(run.list_weights()):
            restore_weights(self.network, run, f"{WEIGHTS}/{name}.safetensors", self.workers)
            step = fitted.kept[name][1] if name in fitted.kept else fitted.step
            scores[name] = {"step": step, **self._score_by_split(self.predict_dev())}
        if scores:
            restore_weights(self.network, run, BEST, self.workers)
        return scores

    def _score_by_split(self, predictions: Sequence[Prediction]) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for split in ("select", "report", "dev"):
            chosen = take_split(self.task, self.dev, predictions, split)
            found[split] = to_finite(measure(self.task, *chosen)[self.monitor].value()) if chosen[0] else None
        return found

    def facts(self, fitted: Progress) -> dict[str, Any]:
        """Return facts about the training for environment.json."""
        return {
            "train_tokens_per_second": fitted.tokens / max(1e-9, fitted.seconds),
            "precision": self.mode.precision if self.mode else None,
            "attention": self.mode.attention if self.mode else None,
            **describe_conditions(self.workers),
            "frozen_parameters": self.frozen,
            **({"distillation": self.objective.summary} if isinstance(self.objective, Distillation) else {}),
            "parameters": sum(parameter.numel() for parameter in self.network.parameters()),
        }

    def _engine(
        self, run: Run | None = None, on_note: Callable[[str], None] = lambda note: None, series: Path | None = None
    ) -> Engine:
        """Return the engine; a saved model computes with the precision and attention that it learned with."""
        if self.mode is None:
            self.network.to(self.workers.device)
            if self.source:
                self.mode = read_compute_config(Run(self.source.parent), self.config.train, self.workers.device)
            train = self.config.train
            if any(weight.dtype == torch.bfloat16 for weight in self.network.parameters()):
                train = train.model_copy(update={"precision": "bf16"})
            self.mode = self.mode or choose_compute_config(self.network, train, self.workers, run, on_note, series)
        self.mode.apply_to(self.network)
        tokens, alpha = self.config.train.max_batch_tokens, self.config.encoder.rdrop_alpha
        return Engine(self.network, self.objective, self.workers, self.mode, tokens, on_note, alpha)

    def _select_split(self) -> tuple[list[Any], list[Features]]:
        """Return the dev examples that select the checkpoint and their features, renumbered."""
        return self._select_dev(choose_select_positions(self.config, self.task, self.dev))

    def _select_dev(self, positions: Sequence[int]) -> tuple[list[Any], list[Features]]:
        renumbered = {position: number for number, position in enumerate(positions)}
        features = [
            Features(renumbered[f.example], f.ids, f.segments, f.fields)
            for f in self.dev_features
            if f.example in renumbered
        ]
        return [self.dev[position] for position in positions], features

    def _fit_and_score(self, engine: Engine, examples: list[Any], features: list[Features]) -> float:
        """Fit the thresholds on examples, and return the monitored metric of their predictions."""
        outputs = compute_outputs(engine, features)
        self.task_head.fit_thresholds(examples, features, outputs)
        predictions = self.task_head.decode(examples, features, outputs)
        return measure(self.task, examples, predictions)[self.monitor].value()

    def select_score(self) -> float:
        """Return the monitored metric on the split that selects the checkpoint."""
        return self._fit_and_score(self._engine(), *self._select_split())

    def select_loss(self) -> float | None:
        """Return the loss on the split that selects the checkpoint; None if heads have no evaluation loss."""
        if not self.task_head.has_eval_loss:
            return None
        _, features = self._select_split()
        return loss_of(self._engine(), features)

    @property
    def monitor(self) -> str:
        """The metric that selects the best checkpoint."""
        named = self.config.train.metric_for_best_model
        if named != "headline" and named not in self.task.metrics:
            raise DanseoError(
                f"train.metric_for_best_model = {named}: {self.task.name} has {', '.join(self.task.metrics)}"
            )
        return self.task.headline if named == "headline" else named

    # Predicting

    def quantize_to_int8(self) -> None:
        """Quantize the body to int8; it cannot be trained any more."""
        mode = self._engine().mode
        quantize_to_int8(self.network.model, self.workers.device)
        self.mode = ComputeConfig("int8", mode.attention)

    def predict_dev(self, on_part: Callable[[int], None] = lambda count: None) -> Answers:
        """Predict dev; thresholds are fitted on the split that selects the checkpoint."""
        outputs = compute_outputs(self._engine(), self.dev_features, on_part)
        positions = set(split_indices(self.task, self.dev, self.config.train.select_on))
        examples, features = self._select_dev(sorted(positions))
        chosen = [
            output for record, output in zip(self.dev_features, outputs, strict=True) if record.example in positions
        ]
        self.task_head.fit_thresholds(examples, features, chosen)
        return self.task_head.decode(self.dev, self.dev_features, outputs)

    def predict(self, examples: Sequence[Any]) -> Answers:
        features = self.task_head.encode(examples, with_gold=False)
        outputs: list[Outputs] = compute_outputs(self._engine(), features)
        return self.task_head.decode(examples, features, outputs)

    # Saving

    def save(self, folder: Path) -> None:
        from safetensors import SafetensorError

        try:
            save_network(self.network, self.task_head, folder)
        except (OSError, SafetensorError) as error:
            raise WorkFailed(f"{folder} cannot be written: {error}; free some space and run the same command") from None
        self.save_decoding(folder)

    def save_decoding(self, folder: Path) -> None:
        """Save what decoding needs besides the weights."""
        state = {"decision": self.task_head.get_thresholds(), "state": self.task_head.get_state()}
        Run(folder.parent).write_json(f"{folder.name}/danseo.json", state)

    def _restore_head(self, source: Path) -> None:
        state = Run(source.parent).read_json(f"{source.name}/danseo.json")
        try:
            if not all(map(is_number, state["decision"].values())):
                raise ValueError
            self.task_head.restore_thresholds(state["decision"])
            self.task_head.restore_state(state["state"])
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            raise DataError(f"{source / 'danseo.json'} is damaged or of another version; train the run again") from None


def load_encoder(run: Run, task: Task, loading: LoadOptions) -> Encoder:
    """Load the encoder of a run; its precision is that of its training by default."""
    config, precision = apply_trust(run, loading.trust_remote_code), loading.precision
    config = update_config(config, {"precision": "fp32" if precision == "int8" else precision}) if precision else config
    model = Encoder(config, task, Workers(loading.device), source=run.path / "model")
    if precision == "int8":
        model.quantize_to_int8()
    return model


@torch.inference_mode()
def loss_of(engine: Engine, features: Sequence[Features]) -> float:
    """Return the mean loss over features with gold, without dropout."""
    engine.network.eval()
    total, weight = 0.0, 0.0
    for part in engine.split(range(len(features)), [len(record) for record in features], engine.max_tokens):
        outputs, batch = engine.forward([features[index] for index in part], with_gold=True)
        loss, share = engine.objective.loss(outputs, batch)
        total, weight = total + float(loss), weight + float(share)
    return total / max(weight, 1e-9)
