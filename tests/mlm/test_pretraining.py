"""Pre-training from end to end: killed and resumed, on two processes, and from a checkpoint."""

import gzip
import json
import os
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from danseo.config.base import parse_assignment, update_config  # noqa: E402
from danseo.config.mlm import PretrainConfig  # noqa: E402
from danseo.errors import DanseoError, WorkFailed  # noqa: E402
from danseo.mlm import run_folder as folders  # noqa: E402
from danseo.mlm.initialization import load_masked  # noqa: E402
from danseo.mlm.packing import check_packed  # noqa: E402
from danseo.mlm.pretraining import PretrainJob, check_config, pretrain  # noqa: E402
from danseo.mlm.run_folder import claim_run, prepare_packed_rows  # noqa: E402
from danseo.runs.lock import lock_folder  # noqa: E402
from danseo.runs.store import Run  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from tests.mlm.conftest import PLAIN, TINY, masked_model  # noqa: E402
from tests.mlm.processes import kill_when, run_two_processes, weights  # noqa: E402

RTD = ("objective=rtd", "generator_hidden_size=16", "generator_layers=1")
STEPS = ("steps=24", "every_steps=4", "learning_rate=3e-3", "max_held_out_sequences=20")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path_factory.mktemp("cache")))


def make_config(*settings: str) -> PretrainConfig:
    chosen = [parse_assignment(each, PretrainConfig) for each in (*TINY, *PLAIN, *STEPS, *settings)]
    return update_config(PretrainConfig(), dict(chosen))


def train(text: Path, out: Path, *settings: str, **options):
    return pretrain(PretrainJob(make_config(*settings), (text,), device="cpu", quiet=True, **options), out)


def command(text: Path, out: Path, *settings: str) -> list[str]:
    chosen = dict(each.split("=", 1) for each in (*TINY, *PLAIN, *STEPS, *settings))
    listed = [f"--set={key}={value}" for key, value in chosen.items()]
    return ["-m", "danseo", "pretrain", "--text", str(text), "--out", str(out), "--device", "cpu", "--json", *listed]


def assert_same_weights(folder: Path, expected: Path) -> None:
    mine, theirs = weights(folder), weights(expected)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs), folder


def read_log(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def whole(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One training without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    os.environ["DANSEO_CACHE"] = str(folder / "cache")
    return train(text_file, folder / "run").path


def test_loss_falls_and_checkpoints_are_written(whole):
    log = read_log(whole)
    assert [line["step"] for line in log] == [4, 8, 12, 16, 20, 24]
    assert log[-1]["held_out_loss"] < log[0]["held_out_loss"] - 0.1
    folders = sorted(path.name for path in whole.glob("checkpoint-*"))
    assert folders == sorted(f"checkpoint-{step}" for step in (4, 8, 12, 16, 20, 24))
    state = json.loads((whole / "checkpoint-8" / "trainer_state.json").read_text("utf-8"))
    assert state["global_step"] == 8
    steps = json.loads((whole / "checkpoint_steps.json").read_text())["steps_per_epoch"]
    assert state["epoch"] == pytest.approx(8 / steps, abs=1e-6)
    assert state["held_out_loss"] == log[1]["held_out_loss"]
    assert not (whole / "checkpoint").exists()
    assert (whole / "learning_curve.png").stat().st_size > 5000


def test_checkpoint_loads_with_transformers_and_differs_from_the_start(whole):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(whole / "checkpoint-24")
    model = AutoModelForMaskedLM.from_pretrained(whole / "checkpoint-24")
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer.model_max_length == 64
    before, after = weights(whole / "start"), weights(whole / "checkpoint-24")
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_finished_training_is_returned_and_other_settings_are_refused(whole, text_file):
    stamp = (whole / "result.json").stat().st_mtime_ns
    train(text_file, whole)
    assert (whole / "result.json").stat().st_mtime_ns == stamp
    with pytest.raises(DanseoError, match="other settings"):
        train(text_file, whole, "seed=7")


def test_killed_and_resumed_bit_for_bit(whole, text_file, tmp_path):
    out = tmp_path / "killed"
    kill_when((out / "checkpoint-8").is_dir, command(text_file, out))
    assert not (out / "result.json").exists()
    assert not (out / "checkpoint-24").exists()
    train(text_file, out)
    for step in (4, 8, 12, 16, 20, 24):
        assert_same_weights(out / f"checkpoint-{step}", whole / f"checkpoint-{step}")
    assert read_log(out) == read_log(whole)


@pytest.mark.parametrize(
    "settings", [("optimizer=muon", "embedding_init=cooccurrence", "steps=12"), (*RTD, "steps=12")], ids=["muon", "rtd"]
)
def test_stopped_and_resumed_bit_for_bit(settings, text_file, tmp_path):
    expected = train(text_file, tmp_path / "expected", *settings).path

    def stop(step: int, scores: dict) -> None:
        if step == 8:
            raise KeyboardInterrupt

    out = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        train(text_file, out, *settings, on_score=stop)
    assert read_log(out)[-1]["step"] == 4
    train(text_file, out, *settings)
    assert_same_weights(out / "checkpoint-12", expected / "checkpoint-12")
    assert read_log(out) == read_log(expected)


@pytest.mark.parametrize(
    ("architecture", "objective"),
    [*((each, ()) for each in ("bert", "roberta", "xlm-roberta")), ("electra", RTD), ("deberta-v2", RTD)],
)
def test_every_architecture_trains_from_scratch(architecture, objective, text_file, tmp_path):
    from transformers import AutoConfig

    run = train(text_file, tmp_path / "run", *objective, f"architecture={architecture}", "steps=2")
    assert AutoConfig.from_pretrained(run.path / "checkpoint-2").model_type == architecture


@pytest.mark.lengthy
def test_two_processes_train_as_one(whole, text_file, tmp_path):
    ended = run_two_processes(command(text_file, tmp_path / "two"))
    assert json.loads(ended.stdout)["steps"] == 24
    one, two = read_log(whole), read_log(tmp_path / "two")
    for name in ("loss", "held_out_loss"):
        assert [line[name] for line in two] == pytest.approx([line[name] for line in one], abs=2e-3)


# Two nodes with nothing in common but the text: their folders, their clocks and the caches of their processors differ.
NODES = """
import os, sys, time
os.environ["LOCAL_RANK"], node = "0", os.environ["RANK"]
os.environ["DANSEO_CACHE"] = os.path.join(sys.argv[1], node, "cache")
if node == "1":
    clock = time.perf_counter
    time.perf_counter = lambda: 100 * clock()
    from danseo.training.training_loop import Engine
    Engine._cache = property(lambda self: 128)
from danseo.cli import main
main([argument.replace("NODE", node) for argument in sys.argv[2:]])
"""


@pytest.mark.nightly
@pytest.mark.lengthy
def test_minutes_of_two_nodes_that_share_no_folder(text_file, tmp_path):
    """Each would leave the measuring by its own clock, with steps of its own size, and miss what the other wrote."""
    script = tmp_path / "nodes.py"
    script.write_text(NODES, "utf-8")
    minutes = (
        "steps=0",
        "minutes=0.05",
        "every_steps=0",
        "checkpoints=2",
        "max_held_out_sequences=5",
        "batch_size=100",
    )
    line = command(text_file, tmp_path / "NODE" / "run", *minutes)[2:]
    ended = run_two_processes([str(script), str(tmp_path), *line])
    assert json.loads(ended.stdout)["steps"] >= 2
    assert len(list((tmp_path / "0" / "run").glob("checkpoint-*"))) == 2
    assert [path.name for path in (tmp_path / "1" / "run").iterdir()] == ["start"]


def test_memory_does_not_grow_with_a_gzipped_text(passages, tmp_path):
    """Of a whole training, tokenizer included; after one that has loaded what stays."""
    peaks = []
    for number, copies in enumerate((1, 3, 9)):
        text = tmp_path / f"{copies}.txt.gz"
        with gzip.open(text, "wt", encoding="utf-8") as file:
            for copy in range(copies):
                file.writelines(f"{passage} {copy}\n\n" for passage in passages[:30])
        if number:
            tracemalloc.start()
        train(text, tmp_path / f"run{number}", "steps=1", "tokenizer_documents=20", "held_out_ratio=0.05")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert 0 < peaks[2] < 1.2 * peaks[1], peaks


def test_minutes_become_steps_once(text_file, tmp_path):
    class Enough(Exception):
        pass

    def stop(step, scores):
        raise Enough

    settings = ("steps=0", "minutes=0.05", "every_steps=2")
    with pytest.raises(Enough):
        train(text_file, tmp_path / "run", *settings, on_score=stop)
    planned = json.loads((tmp_path / "run" / "checkpoint_steps.json").read_text())
    assert planned["total"] > 2
    (tmp_path / "run" / "checkpoint_steps.json").write_text(json.dumps({**planned, "total": 5, "marks": [2, 4, 5]}))
    assert [line["step"] for line in read_log(train(text_file, tmp_path / "run", *settings).path)] == [2, 4, 5]


def test_checkpoint_is_continued_with_longer_sequences(tokenizers, text_file, tmp_path):
    model = masked_model("bert", tokenizers["bert"], positions=32)
    model.save_pretrained(tmp_path / "old")
    tokenizers["bert"].save_pretrained(tmp_path / "old")
    settings = (f"checkpoint={tmp_path / 'old'}", "seq_len=96", "steps=3", "whole_word=eojeol", "max_probability=0.4")
    run = train(text_file, tmp_path / "new", *settings)
    longer, tokenizer = load_masked(str(run.path / "checkpoint-3"))
    assert longer.config.max_position_embeddings == 96 == tokenizer.model_max_length
    rows = longer.bert.embeddings.position_embeddings.weight
    assert rows.shape[0] == 96
    started = weights(run.path / "start")["bert.embeddings.position_embeddings.weight"]
    old = model.bert.embeddings.position_embeddings.weight
    torch.testing.assert_close(started[:32], old.detach(), rtol=0, atol=0)
    torch.testing.assert_close(started[32:64], old.detach(), rtol=0, atol=0)


def test_bundled_settings_are_valid_and_names_are_unique():
    from danseo.config.base import list_settings, read_settings, setting_help
    from danseo.config.mlm import CorefConfig
    from danseo.config.recipes import find_configs_folder

    for name, vocabulary in (("small", 16000), ("mini", 12000)):
        settings = read_settings(find_configs_folder() / "pretrain" / f"{name}.toml", PretrainConfig)
        assert (settings["model.num_hidden_layers"], settings["model.hidden_size"], settings["model.vocab_size"]) == (
            4,
            256,
            vocabulary,
        )
        check_config(update_config(PretrainConfig(), settings))
    for cls in (PretrainConfig, CorefConfig):
        paths = list_settings(cls)
        short = [path.split(".")[-1] for path in paths]
        assert len(short) == len(set(short)), "a short name means one setting"
        assert all(setting_help(name, cls) for name in paths)


def test_locked_folder_is_not_written(text_file, tmp_path):
    out = tmp_path / "out"
    with lock_folder(out), pytest.raises(WorkFailed, match="another process"):
        pretrain(PretrainJob(make_config(), (text_file,), device="cpu", quiet=True), out, wait=False)
    assert not out.exists()


def test_two_trainings_pack_the_same_text_once(text_file, tokenizers, tmp_path, monkeypatch):
    """Two trainings on the same text at once pack it once."""
    config, packs, began = make_config(), [], threading.Event()
    pack = folders.pack_texts

    def slow(*arguments):
        packs.append(1)
        began.set()
        time.sleep(0.3)
        pack(*arguments)

    monkeypatch.setattr(folders, "pack_texts", slow)
    arguments = (config, (text_file,), (), tokenizers["bert"], Workers("cpu"))
    first = threading.Thread(target=prepare_packed_rows, args=arguments)
    first.start()
    assert began.wait(30)
    assert prepare_packed_rows(*arguments)[1]["train"].rows
    first.join()
    assert packs == [1]


def test_corrupted_packed_text_is_packed_again(text_file, tokenizers, capsys):
    arguments = (make_config(), (text_file,), (), tokenizers["bert"], Workers("cpu"))
    folder, _ = prepare_packed_rows(*arguments)
    file = folder / "train" / "ids.bin"
    whole = file.read_bytes()
    file.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(DanseoError, match=r"train/ids\.bin"):
        check_packed(folder)
    prepare_packed_rows(*arguments)
    assert "packing the text again" in capsys.readouterr().err
    assert file.read_bytes() == whole
    prepare_packed_rows(*arguments)
    assert not capsys.readouterr().err, "once"


def test_folder_of_a_killed_start_can_be_claimed(tmp_path, monkeypatch):
    run, write = Run(tmp_path / "out"), folders.write_atomically

    def killed(path, content):
        if path.name == "pretrain.toml":
            raise KeyboardInterrupt
        write(path, content)

    run.path.mkdir()
    (run.path / ".identity.txt.123.part").write_text("")
    with monkeypatch.context() as patched:
        patched.setattr(folders, "write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            claim_run(run, "pretrain.toml", make_config(), "1234", Workers("cpu"))
    assert not claim_run(run, "pretrain.toml", make_config(), "1234", Workers("cpu"))
    assert sorted(path.name for path in run.path.iterdir()) == ["identity.txt", "pretrain.toml"]
