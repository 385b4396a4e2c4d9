"""How long a step of pre-training takes, without taking that long to find out."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danseo.config import TrainConfig  # noqa: E402
from danseo.models.masked.kind import MaskedKind, MaskedNetwork  # noqa: E402
from danseo.pretraining import fit as fitting  # noqa: E402
from danseo.pretraining.fit import MaskedFit  # noqa: E402
from danseo.runs.directory import Run  # noqa: E402
from danseo.training.features import Features  # noqa: E402
from danseo.training.workers import Workers  # noqa: E402
from tests.training.test_optim import network_of  # noqa: E402

ROWS = [Features(k, np.full(16, 5), np.zeros(16), {}) for k in range(200)]


def masked(features, step):
    return SimpleNamespace(
        ids=np.full(16, 4), positions=np.array([3]), labels=np.array([7]), weights=np.array([1.0], dtype=np.float32)
    )


@pytest.mark.parametrize(("batch", "sizes"), [(3, [3]), (4, [4]), (6, [4, 6]), (100, [4, 8])])
def test_a_step_is_measured_by_small_ones(tmp_path, monkeypatch, batch, sizes):
    """Four rows are a part here; a step takes a second and half a second per row."""
    settings = {"batch_size": batch, "batch_tokens": 64, "precision": "fp32", "attention": "eager"}
    model = network_of("bert", "AutoModelForMaskedLM").model
    network, kind = MaskedNetwork(model, 16), MaskedKind(masked, 0)
    fit = MaskedFit(network, kind, TrainConfig(**settings), 1, Workers("cpu"), Run(tmp_path))
    steps, now, seen = fitting.train_steps, 0.0, []

    def timed(*arguments):
        nonlocal now
        for step in steps(*arguments):
            seen.append(step.pieces // 16)
            now += 1 + seen[-1] / 2 + (9 if len(seen) <= len(sizes) else 0)  # the first ones warm up
            yield step

    monkeypatch.setattr(fitting, "train_steps", timed)
    monkeypatch.setattr(fitting, "time", SimpleNamespace(perf_counter=lambda: now))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert fit.seconds_per_step(ROWS, 5.0) == pytest.approx(1 + batch / 2)
    assert seen == sizes * 2, "a warm-up and one round: the time is over"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
