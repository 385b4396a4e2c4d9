"""Encoders in bytes answer after every training precision."""

import pytest

torch = pytest.importorskip("torch")

from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.registry import load_model  # noqa: E402
from danseo.training.precision import ComputeConfig  # noqa: E402
from tests.tiny import quick_config, read_split, tiny_encoder  # noqa: E402


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bytes_answer_after_a_training_in_any_precision(precision, sample, tmp_path):
    config = quick_config("ynat", tiny_encoder(tmp_path / "encoder", sample), max_train_samples=16, precision=precision)
    run = run_experiment(config, sample, tmp_path / "runs", device="cpu", quiet=True)
    examples = read_split(sample, "ynat", "dev", 8)
    exact = load_model(run, "cpu").predict(examples)
    model = load_model(run, "cpu", "int8")
    for mode in ("int8", "bf16"):  # as a benchmark that keeps the mode of the training has it
        model.mode = ComputeConfig(mode, "packed")
        for one, other in zip(model.predict(examples), exact, strict=True):
            assert one.probabilities == pytest.approx(other.probabilities, abs=0.05)
