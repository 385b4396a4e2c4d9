"""Settings that do not work with sharded training: one line each, and nothing is written."""

import pytest

from tests.models.llm.test_prompt_command import run


@pytest.mark.parametrize(
    ("model", "setting"),
    [
        ("mini", "train.optimizer=muon"),
        ("mini", "train.fgm_epsilon=1"),
        ("mini", "train.awp_epsilon=0.001"),
        ("mini", "train.precision=fp16"),
        ("linear", "seed=1"),
    ],
)
def test_what_needs_whole_weights_is_one_line(tmp_path, capsys, model, setting):
    command = ["train", "ynat", "-m", model, "--data", "sample", "--runs", tmp_path / "runs"]
    code, out, error = run(capsys, *command, "--set", "train.sharding=full", "--set", setting)
    assert (code, out) == (2, "")
    assert "does not work with train.sharding = full" in error.splitlines()[-1]
    assert not (tmp_path / "runs").exists()
