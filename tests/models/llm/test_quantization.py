"""Quantized language models: adapters learn on 4 and 8 bits, are saved for peft, and are merged into bf16."""

import json

import pytest
import torch

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.experiment import run_experiment
from danseo.models.registry import load_model
from danseo.runs.store import Run
from danseo.training import optimizers
from tests.models.llm.test_prompt_command import run, small  # noqa: F401
from tests.models.llm.test_tuned_model import QUICK
from tests.tiny import assert_same_answers, read_split, tiny_decoder


def test_a_missing_package_is_one_line(small, tmp_path, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr("danseo.extras.is_installed", lambda package: package != "bitsandbytes")
    command = ["train", "ynat", "-m", f"llm:{small / 'tiny'}", "--data", small / "data", "--runs", tmp_path]
    code, out, error = run(capsys, *command, "--set", "llm.quantization=nf4")
    assert (code, out) == (2, "")
    assert error.splitlines()[-1] == "danseo: bitsandbytes is not installed; run: pip install 'danseo[llm]'"
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def qwen(tmp_path_factory, sample):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: pip install 'danseo[llm]'")
    folder = tiny_decoder(tmp_path_factory.mktemp("qwen") / "tiny", sample, "qwen2")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 4096}))
    return folder


def config(qwen, **settings) -> RunConfig:
    base = RunConfig(task="ynat", model=f"llm:{qwen}", recipe="llm")
    return update_config(base, {**QUICK, "max_train_samples": 16, "llm.quantization": "nf4", **settings})


def test_all_weights_of_a_quantized_model_cannot_learn(qwen, small, tmp_path, capsys):  # noqa: F811
    command = ["train", "ynat", "-m", f"llm:{qwen}", "--data", small / "data", "--runs", tmp_path]
    code, _, error = run(capsys, *command, "--set", "llm.quantization=nf4", "--set", "llm.lora_rank=0")
    assert code == 2
    assert "llm.lora_rank=16" in error.splitlines()[-1]


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_adapters_learn_on_quantized_weights(qwen, small, tmp_path, capsys, quantization):  # noqa: F811
    import peft
    from transformers import AutoModelForCausalLM

    made = run_experiment(
        config(qwen, epochs=4, **{"llm.quantization": quantization}), small / "data", tmp_path, quiet=True
    )
    log = made.read_log()
    assert log[-1]["loss"] < log[0]["loss"]
    assert made.read_json("environment.json")["learning_parameters"] > 0
    model = load_model(made, "cpu")
    layer = model.backend.model.model.layers[0].self_attn.q_proj.get_base_layer()
    stored = {"nf4": torch.uint8, "int8": torch.int8}[quantization]
    assert layer.weight.dtype == stored
    if quantization == "nf4":
        assert layer.weight.quant_state.nested, "the scales are quantized, too"
    examples = read_split(small / "data", "ynat", "dev")[:4]
    again = load_model(made, "cpu").predict(examples)
    assert_same_answers(list(model.predict(examples)), list(again))

    plain = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(qwen), made.path / "model")
    assert sum(weight.numel() for name, weight in plain.named_parameters() if ".lora_" in name) > 0

    out = tmp_path / "merged"
    code, text, error = run(
        capsys, "export", made.path, "--to", "merged", "--out", out, "--data", small / "data", "--json"
    )
    assert code == 0, error
    facts = json.loads(text)
    assert {"scored", "rescored", "changed_answers"} <= facts.keys()
    merged = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    assert merged.dtype == torch.bfloat16
    assert getattr(merged, "hf_quantizer", None) is None
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        torch.testing.assert_close(merged.float()(ids).logits, plain(ids).logits, rtol=0.05, atol=0.02)


def test_a_killed_training_with_8_bit_moments_resumes(qwen, small, tmp_path, monkeypatch):  # noqa: F811
    """GPUs have these moments; bitsandbytes also computes them on a CPU."""
    is_quantized = lambda network, device: network.model.quantization_method == "bitsandbytes"  # noqa: E731
    monkeypatch.setattr(optimizers, "uses_8bit_moments", is_quantized)
    settings = config(qwen, epochs=2, evals_per_epoch=1, **{"llm.lora_rank": 128})  # small tensors have none of 8 bits
    whole = run_experiment(settings, small / "data", tmp_path / "whole", quiet=True)
    evaluations = []

    def stop(step, score):
        evaluations.append(step)
        if len(evaluations) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(settings, small / "data", tmp_path / "killed", quiet=True, on_score=stop)
    (killed,) = (Run(path) for path in (tmp_path / "killed").glob("ynat--*"))
    tensors, _ = killed.load_checkpoint()
    assert torch.uint8 in {value.dtype for key, value in tensors.items() if key.endswith(".state1")}
    assert all(".lora_" in key for key in tensors if key.startswith("network.")), "no quantized weights"
    resumed = run_experiment(settings, small / "data", tmp_path / "killed", quiet=True)
    weights = [(each.path / "model" / "adapter_model.safetensors").read_bytes() for each in (whole, resumed)]
    assert weights[0] == weights[1]
