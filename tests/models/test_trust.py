"""What comes with data is never trusted by itself: code runs only if this command says so, weights must be there."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from danseo.config.base import parse_assignment, update_config
from danseo.config.run import RunConfig
from danseo.ensembling.soup import make_soup
from danseo.errors import DanseoError, WorkFailed
from danseo.experiment import run_experiment
from danseo.inference.evaluation import evaluate_run
from danseo.models.encoder.network import load_network
from danseo.models.mlm.masked_model import load_masked_pair
from danseo.models.registry import configure_run, load_model
from danseo.runs.store import Run
from danseo.sweeps.preparation import SweepOptions, prepare
from danseo.sweeps.search_space import read_space
from danseo.sweeps.sweep_file import read_sweep

from ..tiny import FAMILIES, quick_config, read_split, tiny_encoder


@pytest.fixture(scope="module")
def encoder(sample, tmp_path_factory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder") / "tiny", sample)


@pytest.fixture(scope="module")
def runs(encoder, sample, tmp_path_factory) -> dict[str, Path]:
    """A run with a stock head, and one with a head of our own."""
    root = tmp_path_factory.mktemp("runs")
    settings = {"max_train_samples": 16, "evals_per_epoch": 1, "arc_hidden_size": 16, "relation_hidden_size": 16}
    return {
        task: run_experiment(quick_config(task, encoder, **settings), sample, root, quiet=True).path
        for task in ("ynat", "dp")
    }


@pytest.fixture
def coded(encoder, tmp_path) -> tuple[Path, Path]:
    """A checkpoint that needs code of its own, and the file which that code leaves behind."""
    folder, trace = tmp_path / "coded", tmp_path / "it-ran"
    shutil.copytree(encoder, folder)
    told = json.loads((folder / "config.json").read_text())
    told |= {"model_type": "unheard-of", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
    (folder / "config.json").write_text(json.dumps(told))
    (folder / "own.py").write_text(
        "from pathlib import Path\n"
        "from transformers import BertConfig, BertModel\n"
        f"Path({str(trace)!r}).touch()\n"
        "class OwnConfig(BertConfig):\n    model_type = 'unheard-of'\n"
        "class OwnModel(BertModel):\n    config_class = OwnConfig\n"
        "    def __init__(self, config):\n        super().__init__(config, add_pooling_layer=False)\n"
    )
    return folder, trace


def changed(folder: Path, target: Path, change, name: str = "model.safetensors") -> Path:
    """A copy of a folder with other weights."""
    shutil.copytree(folder, target)
    tensors = load_file(target / name)
    save_file({key: value.contiguous() for key, value in change(tensors).items()}, target / name, {"format": "pt"})
    return target


def test_a_run_trained_with_code_asks_again(runs, coded, sample, tmp_path, invoke, monkeypatch):
    folder, trace = coded
    run = tmp_path / "run"
    shutil.copytree(runs["dp"], run)
    for file in ("config.json", "own.py"):
        shutil.copy(folder / file, run / "model" / file)
    settings = (run / "config.toml").read_text()
    (run / "config.toml").write_text(settings.replace("trust_remote_code = false", "trust_remote_code = true"))
    lines = tmp_path / "lines.txt"
    lines.write_text("나는 학교에 간다\n")
    asking = pytest.raises(DanseoError, match=r"was trained with code that came with its .* add --trust-remote-code")
    with asking:
        evaluate_run(run, "train", None, str(sample))
    with asking:
        make_soup([run, run], str(sample), tmp_path, None, None)
    result = invoke("predict", run, lines)
    assert result.code == 2
    assert "was trained with code that came with its checkpoint" in result.complaint
    assert not trace.exists()
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    allowed = invoke("predict", run, lines, "--trust-remote-code")
    assert allowed.code == 0, allowed.err
    assert trace.exists()


def test_code_that_was_not_allowed_does_not_run(coded, sample, tmp_path):
    folder, trace = coded
    with pytest.raises(DanseoError, match="allow it with --trust-remote-code"):
        load_masked_pair(str(folder))
    with pytest.raises(DanseoError, match="allow it with --trust-remote-code"):
        run_experiment(quick_config("dp", folder, max_train_samples=8), sample, tmp_path / "runs", quiet=True)
    assert not trace.exists()


def test_no_file_and_no_setting_allows_code(tmp_path):
    refused = pytest.raises(DanseoError, match="add --trust-remote-code to the command")
    with refused:
        parse_assignment("trust_remote_code=true", RunConfig)
    recipe = tmp_path / "mine.toml"
    recipe.write_text("trust_remote_code = true\n")
    with refused:
        configure_run("ynat", "some/model", str(recipe), {})
    with refused:
        read_space({"trust_remote_code": [True, False]})
    for text in ("trust_remote_code = true\n[grid]\nseed = [1]", "[grid]\ntrust_remote_code = [true]"):
        recipe.write_text(f"task = 'ynat'\nmodel = 'majority'\n{text}\n")
        with refused:
            read_sweep(recipe)


def test_a_sweep_is_allowed_by_its_command(sample, tmp_path):
    file = tmp_path / "some.toml"
    file.write_text("task = 'ynat'\nmodel = 'majority'\n[grid]\nseed = [1]\n")
    for trusted in (False, True):
        points = prepare(file, SweepOptions(sample, tmp_path, trust_remote_code=trusted)).points
        assert [point.config.trust_remote_code for point in points] == [trusted]


# Weights


def test_a_checkpoint_without_some_weights_is_refused(encoder, sample, tmp_path):
    lost = changed(encoder, tmp_path / "lost", lambda t: {k: v for k, v in t.items() if "layer.1.output" not in k})
    with pytest.raises(DanseoError, match=r"lacks 4 weights \((bert\.)?encoder.layer.1.output.LayerNorm.bias, "):
        run_experiment(quick_config("ynat", lost, max_train_samples=8), sample, tmp_path / "runs", quiet=True)
    assert not list((tmp_path / "runs").glob("*"))
    renamed = changed(encoder, tmp_path / "renamed", lambda t: {k.replace("query", "asked"): v for k, v in t.items()})
    with pytest.raises(DanseoError, match=r"lacks 4 weights .*query.*, while 6 weights .*asked.* have no place in it"):
        load_masked_pair(str(renamed))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_may_be_new_as_a_whole_only(sample, tmp_path, family):
    folder = tiny_encoder(tmp_path / "body", sample, family)
    model, tokenizer, new = load_masked_pair(str(folder))
    assert new, "the body came without a head"
    model.save_pretrained(tmp_path / "whole")
    tokenizer.save_pretrained(tmp_path / "whole")
    assert load_masked_pair(str(tmp_path / "whole"))[2] == []
    half = changed(tmp_path / "whole", tmp_path / "half", lambda t: {k: v for k, v in t.items() if k != _norm(t, new)})
    with pytest.raises(DanseoError, match="lacks 1 weight "):
        load_masked_pair(str(half))


def _norm(tensors: dict[str, torch.Tensor], new: list[str]) -> str:
    return next(key for key in new if key in tensors and "orm.weight" in key)


def test_a_finished_run_without_its_head_does_not_answer(runs, sample, tmp_path):
    def without(*words):
        return lambda tensors: {k: v for k, v in tensors.items() if not any(word in k for word in words)}

    def broken(task: str, change, name: str) -> Run:
        shutil.copytree(runs[task], tmp_path / "broken", dirs_exist_ok=True)
        shutil.rmtree(tmp_path / "broken" / "model")
        changed(runs[task] / "model", tmp_path / "broken" / "model", change, name)
        return Run(tmp_path / "broken")

    with pytest.raises(DanseoError, match=r"lacks 2 weights \(classifier.bias, classifier.weight\)"):
        load_model(broken("ynat", without("classifier"), "model.safetensors"), "cpu")
    shutil.rmtree(tmp_path / "broken")
    head = broken("dp", lambda tensors: dict(list(tensors.items())[1:]), "head.safetensors")
    with pytest.raises(DanseoError, match=r"head.safetensors lacks 1 weight "):
        load_model(head, "cpu")
    path = head.path / "model" / "head.safetensors"
    save_file({key: value / 0 for key, value in load_file(runs["dp"] / "model" / path.name).items()}, path)
    with pytest.raises(DanseoError, match=r"head.safetensors: .* with NaN or infinite numbers"):
        load_model(head, "cpu")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DanseoError, match=r"head.safetensors is corrupted: "):
        load_model(head, "cpu")
    path.unlink()
    with pytest.raises(DanseoError, match=r"head.safetensors is missing"):
        load_model(head, "cpu")
    with pytest.raises(DanseoError, match=r"lacks|is missing|has no|differ"):
        make_soup([head.path, runs["dp"]], str(sample), tmp_path / "soups", None, None, device="cpu")


def test_no_answer_is_nan(runs, sample):
    model = load_model(Run(runs["ynat"]), "cpu")
    for weights in model.network.parameters():
        weights.data *= 1e30
    with pytest.raises(WorkFailed, match="computes NaN or infinite numbers"):
        model.predict(read_split(sample, "ynat", "dev", 3))


def test_a_masked_checkpoint_has_no_pooling_layer_and_that_is_right(encoder, tmp_path):
    model, tokenizer, _ = load_masked_pair(str(encoder))
    model.save_pretrained(tmp_path / "masked")
    tokenizer.save_pretrained(tmp_path / "masked")
    from danseo.models.encoder.heads.classification import ClassificationHead
    from danseo.models.encoder.network import load_encoder_tokenizer
    from danseo.tasks import TASKS

    config = update_config(RunConfig(task="ynat", model=str(tmp_path / "masked")), {})
    kind = ClassificationHead(TASKS["ynat"], load_encoder_tokenizer(config), config.encoder, config.train)
    assert load_network(config, kind).model.config.num_labels == 7
