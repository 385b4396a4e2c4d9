from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danseo.config.train import TrainSettings  # noqa: E402
from danseo.mlm import masked_trainer  # noqa: E402
from danseo.mlm.masked_trainer import MaskedTrainer  # noqa: E402
from danseo.models.mlm.objective import MlmNetwork, MlmObjective  # noqa: E402
from danseo.runs.store import Run  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from danseo.training.features import Features  # noqa: E402
from tests.training.test_optimizers import network_of  # noqa: E402

ROWS = [Features(k, np.full(16, 5), np.zeros(16), {}) for k in range(200)]


def masked(features, step):
    return SimpleNamespace(
        ids=np.full(16, 4), positions=np.array([3]), labels=np.array([7]), weights=np.array([1.0], dtype=np.float32)
    )


@pytest.mark.parametrize(("batch", "sizes"), [(3, [3]), (4, [4]), (6, [4, 6]), (100, [4, 8])])
def test_time_of_a_step_is_estimated_from_smaller_ones(tmp_path, monkeypatch, batch, sizes):
    """Four rows are a part here; a step takes a second and half a second per row."""
    settings = {"batch_size": batch, "max_batch_tokens": 64, "precision": "fp32", "attn_implementation": "eager"}
    model = network_of("bert", "AutoModelForMaskedLM").model
    network, objective = MlmNetwork(model, 16), MlmObjective(masked)
    trainer = MaskedTrainer(network, objective, TrainSettings(**settings), 1, Workers("cpu"), Run(tmp_path))
    steps, now, seen = masked_trainer.train_steps, 0.0, []

    def timed(*arguments):
        nonlocal now
        for step in steps(*arguments):
            seen.append(step.tokens // 16)
            now += 1 + seen[-1] / 2 + (9 if len(seen) <= len(sizes) else 0)  # the first ones warm up
            yield step

    monkeypatch.setattr(masked_trainer, "train_steps", timed)
    monkeypatch.setattr(masked_trainer, "time", SimpleNamespace(perf_counter=lambda: now))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert trainer.measure_step(ROWS, 5.0) == pytest.approx(1 + batch / 2)
    assert seen == sizes * 2, "a warm-up and one round: the time is over"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
