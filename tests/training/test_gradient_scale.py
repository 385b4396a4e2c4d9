"""The gradient of a step is that of the mean loss over its batch."""

import pytest

torch = pytest.importorskip("torch")

from danseo.training.optimizers import trainable_parameters  # noqa: E402
from danseo.training.training_loop import BatchPlan, train_steps  # noqa: E402


def gradient_of_one_step(model, config):
    """What plain gradient descent at rate 1 takes off the weights in the first step."""
    engine = model._engine()
    before = [weight.detach().clone() for weight in trainable_parameters(engine.network)]
    optimizer = torch.optim.SGD(trainable_parameters(engine.network), lr=1.0)
    for group in optimizer.param_groups:
        group["peak"] = 1.0
    plan = BatchPlan([len(record) for record in model.train_features], config, seed=0)
    next(train_steps(engine, model.train_features, plan, optimizer, config))
    moved = [old - new.detach() for old, new in zip(before, trainable_parameters(engine.network), strict=True)]
    return plan.batch(0), before, torch.cat([each.flatten() for each in moved])


@pytest.mark.parametrize("architecture", ["default", "official"])
@pytest.mark.parametrize("task", ["ner", "dp"])
def test_a_step_takes_the_mean_over_its_batch(prepared, task, architecture, monkeypatch):
    monkeypatch.setattr("danseo.models.encoder.heads.biaffine.LSTM_SIZE", 32)  # 768 takes seconds
    settings = {
        "max_grad_norm": 0.0,
        "warmup_ratio": 0.0,
        "parser_dropout": 0.0,
        "batch_size": 4,
        "lr_scheduler_type": "constant",
    }
    model = prepared(task, architecture=architecture, **settings)
    batch, before, moved = gradient_of_one_step(model, model.config.train)
    engine = model._engine()
    with torch.no_grad():
        for weight, old in zip(trainable_parameters(engine.network), before, strict=True):
            weight.copy_(old)
    engine.network.train()
    outputs, tensors = engine.forward([model.train_features[index] for index in batch], with_gold=True)
    loss, weight = engine.objective.loss(outputs, tensors)
    engine.network.zero_grad()
    (loss / weight).backward()
    expected = [w.grad if w.grad is not None else torch.zeros_like(w) for w in trainable_parameters(engine.network)]
    torch.testing.assert_close(moved, torch.cat([each.flatten() for each in expected]), rtol=1e-3, atol=1e-5)
