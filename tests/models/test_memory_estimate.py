"""The memory estimate: the bytes that a real training has, without loading a weight."""

import json
import shutil

import pytest
import torch

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.extras import is_installed
from danseo.models import memory_estimate
from danseo.models.encoder.model import Encoder
from danseo.models.llm.tuned_model import TunedModel
from danseo.models.registry import configure_run, estimate_memory
from danseo.tasks import TASKS
from danseo.training.distributed import Workers
from danseo.training.optimizers import allocate_moments, make_optimizer
from tests.models.llm.test_prompt_command import run, small  # noqa: F401
from tests.tiny import tiny_encoder


@pytest.fixture(scope="module")
def bert(sample, tmp_path_factory):
    return tiny_encoder(tmp_path_factory.mktemp("bert") / "tiny", sample)


CPU_OF_TWO = {"device": torch.device("cpu"), "world": 2, "rank": 0}


def count_bytes(tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def count_state(network, config) -> int:
    """The bytes of the moments of a real optimizer."""
    optimizer = make_optimizer(network, config.train)
    allocate_moments(optimizer)
    return count_bytes(v for state in optimizer.state.values() for k, v in state.items() if k != "step")


@pytest.mark.parametrize("task", ["ynat", "ner", "dp", "wos"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_an_encoder_has_the_estimated_bytes(bert, task, optimizer):
    settings = {"precision": "fp32", "max_length": 64, "optimizer": optimizer}
    config = configure_run(task, str(bert), "default", settings)
    found = estimate_memory(config, TASKS[task], "cpu")
    network = Encoder(config, TASKS[task], Workers("cpu")).network
    assert found.weights == pytest.approx(count_bytes(network.parameters()), rel=0.02)  # added tokens
    assert found.gradients == pytest.approx(count_bytes(network.parameters()), rel=0.02)
    assert found.optimizer == pytest.approx(count_state(network, config), rel=0.02)
    ids = torch.zeros(found.tokens // 64, 64, dtype=torch.long)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        network.model.base_model.train()(input_ids=ids)
    own = {weight.untyped_storage().data_ptr() for weight in network.parameters()}
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    real = sum(size for address, size in storages.items() if address not in own)
    assert found.activations == pytest.approx(real, rel=0.02)


def make_config(small, **settings) -> RunConfig:  # noqa: F811
    base = RunConfig(task="ynat", model=f"llm:{small / 'tiny'}", recipe="llm")
    return update_config(base, {"train.precision": "fp32", "train.max_length": 256, **settings})


@pytest.mark.parametrize("rank", [0, 4])
def test_a_language_model_has_the_estimated_bytes(small, rank):  # noqa: F811
    config = make_config(small, **{"llm.lora_rank": rank})
    found = estimate_memory(config, TASKS["ynat"], "cpu")
    model = TunedModel(config, TASKS["ynat"], "cpu").model
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    assert found.weights == count_bytes(model.parameters())
    assert found.gradients == count_bytes(learning)
    assert found.optimizer == 2 * count_bytes(learning)


def test_settings_that_save_memory_lower_their_part(small):  # noqa: F811
    plain, recomputed, quantized, shorter = (
        estimate_memory(make_config(small, **{"llm.lora_rank": 4, **more}), TASKS["ynat"], "cpu")
        for more in (
            {},
            {"train.gradient_checkpointing": True},
            {"llm.quantization": "nf4"} if is_installed("bitsandbytes") else {"llm.lora_rank": 2},
            {"train.max_batch_tokens": 256},
        )
    )
    assert recomputed.activations < plain.activations
    assert recomputed.weights == plain.weights
    assert quantized.weights < plain.weights
    assert shorter.activations < plain.activations


def test_sharding_divides_gradients_and_moments(small, monkeypatch):  # noqa: F811
    monkeypatch.setattr(memory_estimate.Workers, "__init__", lambda self, device: vars(self).update(CPU_OF_TWO))
    whole, divided = (
        estimate_memory(make_config(small, **{"train.sharding": each}), TASKS["ynat"], "cpu")
        for each in ("none", "full")
    )
    assert divided.optimizer == whole.optimizer / 2
    assert divided.gradients < whole.gradients / 2  # no buffer for sums
    assert divided.weights == whole.weights * 1.5, "a part for the steps, all for evaluations"


def test_the_command_reads_no_weights_and_names_the_setting_to_change(small, tmp_path, capsys, monkeypatch):  # noqa: F811
    folder = tmp_path / "empty"
    folder.mkdir()
    shutil.copy(small / "tiny" / "config.json", folder)
    command = ["train", "ynat", "-m", f"llm:{folder}", "--runs", tmp_path / "runs", "--dry-run", "--device", "cpu"]
    code, out, error = run(capsys, *command, "--json")
    assert code == 0, error
    found = json.loads(out)
    assert found["fits"]
    assert found["total"] == sum(found[part] for part in ("weights", "gradients", "optimizer", "activations"))
    monkeypatch.setattr(memory_estimate, "read_memory", lambda device: found["total"] - 1)
    code, out, error = run(capsys, *command)
    assert code == 2
    assert "activations" in out
    (line,) = error.strip().splitlines()[-1:]
    assert "too little memory" in line
    assert "--set train." in line
    monkeypatch.setattr(memory_estimate, "read_memory", lambda device: 1)
    code, _, error = run(capsys, *command)
    assert code == 2
    assert "smaller model" in error
    assert not (tmp_path / "runs").exists()


def test_a_family_without_an_estimate_is_one_line(capsys):
    code, out, error = run(capsys, "train", "ynat", "-m", "linear", "--dry-run")
    assert (code, out) == (2, "")
    assert "--dry-run" in error.splitlines()[-1]
