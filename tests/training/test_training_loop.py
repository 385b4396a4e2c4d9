from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danseo.config.train import TrainSettings  # noqa: E402
from danseo.errors import WorkFailed  # noqa: E402
from danseo.models.encoder.heads.losses import compute_balanced_weights  # noqa: E402
from danseo.runs.store import Run  # noqa: E402
from danseo.training import training_loop  # noqa: E402
from danseo.training.optimizers import make_optimizer  # noqa: E402
from danseo.training.trainer import Trainer  # noqa: E402
from danseo.training.training_loop import BatchPlan, Engine, compute_outputs, train_steps  # noqa: E402
from tests.tiny import Watch  # noqa: E402


def engine_of(model, tokens: int = 8192, notes: list[str] | None = None) -> Engine:
    engine = model._engine()
    engine.max_tokens, engine.on_note = tokens, (notes if notes is not None else []).append
    return engine


def gradients_of(model, tokens: int, engine: Engine | None = None, max_grad_norm: float = 0) -> dict[str, torch.Tensor]:
    """What one step adds to the weights at rate 1 without momentum: the gradient of the whole batch."""
    engine = engine or engine_of(model, tokens)
    for module in model.network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    before = {name: parameter.detach().clone() for name, parameter in model.network.named_parameters()}
    optimizer = torch.optim.SGD([{"params": list(model.network.parameters()), "lr": 1.0, "peak": 1.0}])
    config = TrainSettings(max_grad_norm=max_grad_norm, warmup_ratio=0, batch_size=24, lr_scheduler_type="constant")
    plan = BatchPlan([len(record) for record in model.train_features], config, seed=1)
    next(train_steps(engine, model.train_features, plan, optimizer, config))
    return {name: before[name] - parameter.detach() for name, parameter in model.network.named_parameters()}


def assert_same_gradients(found, expected):
    assert max(float(gradient.abs().max()) for gradient in expected.values()) > 1e-3
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def limit_memory(monkeypatch, network, pieces: int) -> list[int]:
    """Let the network fail like a device that holds no more than so many pieces; the sizes it was asked for."""
    forward, sizes = type(network).forward, []

    def limited(self, batch):
        sizes.append(batch["input_ids"].numel())
        if sizes[-1] > pieces:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, batch)

    monkeypatch.setattr(type(network), "forward", limited)
    return sizes


# Steps


@pytest.mark.parametrize("task", ["ynat", "sts", "ner", "dp", "mrc", "wos"])
def test_a_batch_in_parts_has_the_gradient_of_the_whole(prepared, task):
    settings = {"parser_dropout": 0.0, "max_length": 96}
    whole = gradients_of(prepared(task, **settings), tokens=100_000)
    parts = prepared(task, **settings)
    widest = max(map(len, parts.train_features))
    assert_same_gradients(gradients_of(parts, tokens=2 * widest), whole)


def test_out_of_memory_halves_the_parts_and_the_step_stays_the_same(prepared, monkeypatch):
    whole = gradients_of(prepared("ynat"), tokens=100_000)
    model, notes = prepared("ynat"), []
    sizes = limit_memory(monkeypatch, model.network, 250)
    engine = engine_of(model, 1024, notes)
    assert_same_gradients(gradients_of(model, 1024, engine), whole)
    assert engine.max_tokens in (128, 256)
    assert notes[-1] == f"out of memory: batches are now split into parts of at most {engine.max_tokens} tokens"
    assert max(sizes[-2:]) <= 250 < sizes[0]


def test_training_and_prediction_go_on_after_running_out_of_memory(prepared, monkeypatch, tmp_path):
    model, steps = prepared("ynat", epochs=2), []
    events = Watch(Run(tmp_path / "run"), lambda step, _: steps.append(step.number))
    limit_memory(monkeypatch, model.network, 140)
    progress = model.train_steps(events)
    assert steps == [1, 2, 3, 4, 5, 6]
    assert events.notes
    assert len(events.scores) == len(events.run.read_log()), "an evaluation is told as one"
    assert progress.max_batch_tokens <= 128
    assert len(model.predict_dev()) == 8


def test_a_device_without_room_for_anything_ends_in_one_line(prepared, monkeypatch):
    model = prepared("ynat")
    limit_memory(monkeypatch, model.network, 1)
    with pytest.raises(WorkFailed, match="too little memory"):
        gradients_of(model, 8192)
    with pytest.raises(WorkFailed, match="too little memory"):
        compute_outputs(engine_of(model), model.dev_features)


def test_outputs_come_in_the_order_of_the_features(prepared):
    model = prepared("ynat")
    together = compute_outputs(engine_of(model), model.train_features)
    alone = [compute_outputs(engine_of(model), [record])[0] for record in model.train_features]
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one["logits"], other["logits"], rtol=1e-4, atol=1e-5)


def test_a_loss_that_is_no_number_ends_in_one_line(prepared, monkeypatch):
    model = prepared("ynat")
    nothing = torch.tensor(float("nan"), requires_grad=True)
    monkeypatch.setattr(
        model.task_head, "loss", lambda outputs, batch: (nothing * outputs["logits"].sum(), nothing.detach())
    )
    with pytest.raises(WorkFailed, match=r"loss is nan at step 1; lower train\.learning_rate"):
        gradients_of(model, 8192)


def test_long_gradients_are_clipped(prepared):
    free = gradients_of(prepared("ynat"), 8192)
    length = float(torch.cat([gradient.flatten() for gradient in free.values()]).norm())
    assert_same_gradients(gradients_of(prepared("ynat"), 8192, max_grad_norm=2 * length), free)
    halved = gradients_of(prepared("ynat"), 8192, max_grad_norm=length / 2)
    assert_same_gradients({name: 2 * gradient for name, gradient in halved.items()}, free)


def test_moments_never_become_denormal(prepared, monkeypatch):
    monkeypatch.setattr(training_loop, "_DROP_TINY_EVERY", 2)
    model = prepared("ynat")
    config = TrainSettings(batch_size=12, epochs=2)
    optimizer = make_optimizer(model.network, config)
    plan = BatchPlan([len(record) for record in model.train_features], config, seed=1)
    steps = train_steps(engine_of(model), model.train_features, plan, optimizer, config)
    next(steps)
    embeddings = model.network.model.get_input_embeddings().weight
    moments = optimizer.state[embeddings]
    unseen = torch.ones(len(embeddings), dtype=torch.bool)
    unseen[[piece for record in model.train_features for piece in record.ids]] = False
    assert unseen.any()
    moments["exp_avg"][unseen], moments["exp_avg_sq"][unseen] = 1e-31, 1e-29
    weights = embeddings[unseen].detach().clone()
    next(steps)
    assert float(moments["exp_avg"][unseen].abs().max()) == 0, "this step tidies"
    assert float(moments["exp_avg_sq"][unseen].min()) > 9e-30, "and leaves what is not tiny"
    assert float(moments["exp_avg"][~unseen].abs().max()) > 1e-8
    torch.testing.assert_close(embeddings[unseen].detach(), weights, rtol=1e-3, atol=1e-6)


def test_gradient_checkpointing_gives_the_same_gradient(prepared):
    whole = gradients_of(prepared("ynat"), 8192)
    model = prepared("ynat", gradient_checkpointing=True)
    assert model.network.model.is_gradient_checkpointing
    assert_same_gradients(gradients_of(model, 8192), whole)


# Plans


def test_a_plan_evaluates_evenly_within_epochs_and_at_the_end():
    plan = BatchPlan([9] * 100, TrainSettings(batch_size=10, epochs=2.25, evals_per_epoch=4), seed=1)
    assert (plan.steps_per_epoch, plan.total) == (10, 23)
    assert [step for step in range(1, 24) if plan.is_evaluation(step)] == [2, 5, 8, 10, 12, 15, 18, 20, 22, 23]


# Trainer


class Scores:
    """Evaluations with given results."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def __call__(self) -> float:
        return self.values.pop(0)


def fitted(model, tmp_path: Path, scores: Scores):
    run = Run(tmp_path / "run")
    trainer = Trainer(model._engine(run), model.train_features, model.config.train, 1, run)
    return trainer.train(scores, Watch()), run


@pytest.mark.parametrize(("patience", "steps"), [(None, 9), (3, 5), (2, 4), (1, 3), (0, 3)])
def test_training_stops_after_patience_evaluations_without_a_better_score(prepared, tmp_path, patience, steps):
    model = prepared("ynat", epochs=3, evals_per_epoch=3, patience=patience)
    scores = Scores(50, 60, 59, 60, 58, 57, 56, 55, 54)
    progress, run = fitted(model, tmp_path, scores)
    assert (progress.step, progress.best, progress.best_step) == (steps, 60, 2)
    assert len(run.read_log()) == steps


@pytest.mark.parametrize(("threshold", "steps"), [(0.0, 9), (0.5, 6), (1.5, 3)])
def test_a_small_improvement_is_kept_but_does_not_reset_patience(prepared, tmp_path, threshold, steps):
    model = prepared("ynat", epochs=3, evals_per_epoch=3, patience=2, early_stopping_threshold=threshold)
    progress, _ = fitted(model, tmp_path, Scores(50, 51, 51.2, 52, 52.1, 52.4, 52.8, 53, 53.4))
    assert (progress.step, progress.best_step) == (steps, steps)


def test_a_score_that_is_no_number_never_wins(prepared, tmp_path):
    progress, run = fitted(prepared("ynat", evals_per_epoch=3), tmp_path, Scores(float("nan"), 10, float("nan")))
    assert (progress.best, progress.best_step) == (10, 2)
    assert [line["score"] for line in run.read_log()] == [None, 10, None]


@pytest.mark.parametrize("average", [{"ema_decay": 0.5}, {"swa_start_epoch": 0, "swa_every_steps": 1}])
def test_a_score_that_is_no_number_is_no_number_of_an_average_either(prepared, tmp_path, average):
    nothing = float("nan")
    model = prepared("ynat", evals_per_epoch=3, **average)
    progress, run = fitted(model, tmp_path, Scores(nothing, nothing, nothing, 10, 20, nothing))
    assert (progress.best, progress.best_step) == (10, 2)
    assert [line["raw_score"] for line in run.read_log()] == [None, None, 20]
    assert [line["score"] for line in run.read_log()] == [None, 10, None]
    assert run.load_checkpoint()[1]["kept"] == {"best_raw": [20, 3], "best_swa": [10, 2]}


def test_the_best_weights_are_those_of_the_average_once_there_is_one(prepared, tmp_path):
    """Two snapshots: after epoch 2 and after epoch 3; their mean scores best and is what remains."""
    model = prepared("ynat", epochs=3, evals_per_epoch=1, swa_start_epoch=1, swa_lr=1e-3)
    snapshots, rates = [], []
    run = Run(tmp_path / "run")
    trainer = Trainer(model._engine(run), model.train_features, model.config.train, 1, run)

    def keep(step, progress):
        rates.append(step.rate)
        if step.number in (6, 9):
            snapshots.append({n: p.detach().clone() for n, p in model.network.named_parameters()})

    trainer.train(Scores(10, 9, 20, 8, 30), Watch(look=keep))  # raw; raw, average; raw, average
    assert rates[3:] == [1e-3] * 6
    assert rates[2] != 1e-3
    log = run.read_log()
    assert [line["score"] for line in log] == [10, 20, 30]
    assert [line.get("averaged") for line in log] == [None, 1, 2]
    for name, parameter in model.network.named_parameters():
        torch.testing.assert_close(parameter.detach(), (snapshots[0][name] + snapshots[1][name]) / 2)

    assert run.list_weights() == ["best_raw", "best_swa", "final_swa", "last"]
    last, raw = (run.load_weights(f"weights/{name}.safetensors") for name in ("last", "best_raw"))
    for name, weights in snapshots[1].items():
        torch.testing.assert_close(last[name], weights)
    assert any(not torch.equal(raw[name], last[name]) for name in last)  # the best raw ones are those of epoch 1
    assert trainer.progress.kept == {"best_raw": (10, 3), "best_swa": (30, 9)}


# Losses


def test_balanced_weights_are_those_of_scikit_learn():
    labels = np.array([0, 0, 0, 0, 0, 0, 2, 2, 3])
    utils = pytest.importorskip("sklearn.utils")
    expected = utils.compute_class_weight("balanced", classes=np.unique(labels), y=labels)
    assert compute_balanced_weights(labels, 4).tolist() == pytest.approx([expected[0], 1.0, *expected[1:]])


def loss_of(model) -> float:
    model.network.eval()
    with torch.no_grad():
        outputs, batch = engine_of(model).forward(model.train_features, with_gold=True)
        loss, weight = model.task_head.loss(outputs, batch)
    return float(loss / weight)


def logits_and_labels(model):
    with torch.no_grad():
        outputs, batch = engine_of(model).forward(model.train_features, with_gold=True)
    return outputs["logits"].flatten(0, -2), batch["labels" if "labels" in batch else "label"].flatten()


@pytest.mark.parametrize("task", ["ynat", "ner"])
def test_class_weights_and_smoothing_reach_the_loss(prepared, task):
    plain = prepared(task)
    logits, labels = logits_and_labels(plain)
    kept = labels[labels != -100].tolist()
    cross_entropy = torch.nn.functional.cross_entropy
    weights = compute_balanced_weights(kept, logits.shape[1])
    assert loss_of(plain) == pytest.approx(float(cross_entropy(logits, labels)), rel=1e-5)
    balanced = loss_of(prepared(task, class_weights="balanced"))
    assert balanced == pytest.approx(float(cross_entropy(logits, labels, weight=weights)), rel=1e-5)
    smoothed = loss_of(prepared(task, label_smoothing=0.2))
    assert smoothed == pytest.approx(float(cross_entropy(logits, labels, label_smoothing=0.2)), rel=1e-5)
    assert len({round(value, 6) for value in (loss_of(plain), balanced, smoothed)}) == 3


def test_the_outside_weight_is_the_weight_of_the_tag_o(prepared):
    model, plain = prepared("ner", outside_weight=0.3), prepared("ner")
    for each in (model, plain):  # both fond of O: a random network gives every tag the same loss
        (bias,) = [p for p in each.network.parameters() if p.shape == (len(model.task.labels),)]
        bias.data[model.task.labels.index("O")] = 3.0
    logits, labels = logits_and_labels(model)
    weights = torch.tensor([0.3 if label == "O" else 1.0 for label in model.task.labels])
    expected = torch.nn.functional.cross_entropy(logits, labels, weight=weights)
    assert loss_of(model) == pytest.approx(float(expected), rel=1e-5)
    assert loss_of(model) != pytest.approx(loss_of(plain), rel=0.1)
