"""Pre-training from end to end: on from a kill, on two processes, from a checkpoint, and what it refuses."""

import gzip
import json
import os
import shutil
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from danseo.errors import DanseoError, WorkFailed  # noqa: E402
from danseo.pretraining import folders  # noqa: E402
from danseo.pretraining.config import PretrainConfig  # noqa: E402
from danseo.pretraining.folders import claim, packed_folder  # noqa: E402
from danseo.pretraining.packing import check_packed  # noqa: E402
from danseo.pretraining.pretrain import PretrainJob, check_config, pretrain  # noqa: E402
from danseo.pretraining.start import load_masked  # noqa: E402
from danseo.runs.directory import Run  # noqa: E402
from danseo.runs.locks import owned  # noqa: E402
from danseo.settings.values import parse_setting, with_settings  # noqa: E402
from danseo.training.workers import Workers  # noqa: E402
from tests.pretraining.conftest import PLAIN, TINY, masked_model  # noqa: E402
from tests.pretraining.processes import killed_when, two_processes, weights  # noqa: E402

STEPS = ("steps=24", "every_steps=4", "learning_rate=3e-3", "held_out_rows=20")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path_factory.mktemp("cache")))


def configured(*settings: str) -> PretrainConfig:
    chosen = [parse_setting(each, PretrainConfig) for each in (*TINY, *PLAIN, *STEPS, *settings)]
    return with_settings(PretrainConfig(), dict(chosen))


def trained(text: Path, out: Path, *settings: str, **options):
    return pretrain(PretrainJob(configured(*settings), (text,), device="cpu", quiet=True, **options), out)


def command(text: Path, out: Path, *settings: str) -> list[str]:
    chosen = dict(each.split("=", 1) for each in (*TINY, *PLAIN, *STEPS, *settings))
    listed = [f"--set={key}={value}" for key, value in chosen.items()]
    return ["-m", "danseo", "pretrain", "--text", str(text), "--out", str(out), "--device", "cpu", "--json", *listed]


def losses(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def whole(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One training without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    os.environ["DANSEO_CACHE"] = str(folder / "cache")
    return trained(text_file, folder / "run").path


def test_the_loss_falls_and_checkpoints_are_where_they_should(whole):
    log = losses(whole)
    assert [line["step"] for line in log] == [4, 8, 12, 16, 20, 24]
    assert log[-1]["held_out_loss"] < log[0]["held_out_loss"] - 0.1
    folders = sorted(path.name for path in whole.glob("checkpoint-*"))
    assert folders == sorted(f"checkpoint-{step}" for step in (4, 8, 12, 16, 20, 24))
    state = json.loads((whole / "checkpoint-8" / "trainer_state.json").read_text("utf-8"))
    assert state["global_step"] == 8
    steps = json.loads((whole / "schedule.json").read_text())["steps_per_epoch"]
    assert state["epoch"] == pytest.approx(8 / steps, abs=1e-6)
    assert state["held_out_loss"] == log[1]["held_out_loss"]
    assert not (whole / "checkpoint").exists()
    assert (whole / "learning_curve.png").stat().st_size > 5000


def test_a_checkpoint_loads_plainly_and_differs_from_the_start(whole):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(whole / "checkpoint-24")
    model = AutoModelForMaskedLM.from_pretrained(whole / "checkpoint-24")
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer.model_max_length == 64
    before, after = weights(whole / "start"), weights(whole / "checkpoint-24")
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_same_again_returns_and_other_settings_are_refused(whole, text_file):
    stamp = (whole / "result.json").stat().st_mtime_ns
    trained(text_file, whole)
    assert (whole / "result.json").stat().st_mtime_ns == stamp
    with pytest.raises(DanseoError, match="holds a training with other settings"):
        trained(text_file, whole, "seed=7")


def begun(whole: Path, out: Path) -> Path:
    """A training that has made its tokenizer and weights and nothing more: tokenizer training may break ties anew."""
    out.mkdir()
    shutil.copytree(whole / "start", out / "start")
    for name in ("identity.txt", "pretrain.toml"):
        shutil.copy(whole / name, out / name)
    return out


def test_killed_and_resumed_bit_for_bit(whole, text_file, tmp_path):
    out = begun(whole, tmp_path / "killed")
    killed_when((out / "checkpoint-8").is_dir, command(text_file, out))
    assert not (out / "result.json").exists()
    assert not (out / "checkpoint-24").exists()
    trained(text_file, out)
    for step in (4, 8, 12, 16, 20, 24):
        mine, theirs = weights(out / f"checkpoint-{step}"), weights(whole / f"checkpoint-{step}")
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs), step
    assert losses(out) == losses(whole)


def test_muon_from_company_goes_on_bit_for_bit(text_file, tmp_path):
    settings = ("optimizer=muon", "embeddings=cooccurrence", "steps=12")
    whole = trained(text_file, tmp_path / "whole", *settings).path
    out = begun(whole, tmp_path / "stopped")

    def stop(step: int, scores: dict) -> None:
        if step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(text_file, out, *settings, on_score=stop)
    assert losses(out)[-1]["step"] == 4
    trained(text_file, out, *settings)
    mine, theirs = weights(out / "checkpoint-12"), weights(whole / "checkpoint-12")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert losses(out) == losses(whole)


@pytest.mark.lengthy
def test_two_processes_train_as_one(whole, text_file, tmp_path):
    ended = two_processes(command(text_file, begun(whole, tmp_path / "two")))
    assert json.loads(ended.stdout)["steps"] == 24
    one, two = losses(whole), losses(tmp_path / "two")
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
    from danseo.training.loop import Engine
    Engine._cache = property(lambda self: 128)
from danseo.cli import main
main([argument.replace("NODE", node) for argument in sys.argv[2:]])
"""


@pytest.mark.lengthy
def test_minutes_of_two_nodes_that_share_no_folder(text_file, tmp_path):
    """Each would leave the measuring by its own clock, with steps of its own size, and miss what the other wrote."""
    script = tmp_path / "nodes.py"
    script.write_text(NODES, "utf-8")
    minutes = ("steps=0", "minutes=0.05", "every_steps=0", "checkpoints=2", "held_out_rows=5", "batch_size=100")
    line = command(text_file, tmp_path / "NODE" / "run", *minutes)[2:]
    ended = two_processes([str(script), str(tmp_path), *line])
    assert json.loads(ended.stdout)["steps"] >= 2
    assert len(list((tmp_path / "0" / "run").glob("checkpoint-*"))) == 2
    assert [path.name for path in (tmp_path / "1" / "run").iterdir()] == ["start"]


def test_memory_does_not_grow_with_a_gzipped_text(passages, tmp_path):
    """Of a whole training, tokenizer included; after one that has loaded what stays."""
    peaks = []
    for number, copies in enumerate((1, 6, 24)):
        text = tmp_path / f"{copies}.txt.gz"
        with gzip.open(text, "wt", encoding="utf-8") as file:
            for copy in range(copies):
                file.writelines(f"{passage} {copy}\n\n" for passage in passages[:50])
        if number:
            tracemalloc.start()
        trained(text, tmp_path / f"run{number}", "steps=1", "tokenizer_documents=20", "held_out=0.05")
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
        trained(text_file, tmp_path / "run", *settings, on_score=stop)
    planned = json.loads((tmp_path / "run" / "schedule.json").read_text())
    assert planned["total"] > 2
    (tmp_path / "run" / "schedule.json").write_text(json.dumps({**planned, "total": 5, "marks": [2, 4, 5]}))
    assert [line["step"] for line in losses(trained(text_file, tmp_path / "run", *settings).path)] == [2, 4, 5]


def test_further_from_a_checkpoint_with_longer_sequences(tokenizers, text_file, tmp_path):
    model = masked_model("bert", tokenizers["bert"], positions=32)
    model.save_pretrained(tmp_path / "old")
    tokenizers["bert"].save_pretrained(tmp_path / "old")
    settings = (f"checkpoint={tmp_path / 'old'}", "seq_len=96", "steps=3", "whole_words=eojeol", "maximum=0.4")
    run = trained(text_file, tmp_path / "new", *settings)
    longer, tokenizer = load_masked(str(run.path / "checkpoint-3"))
    assert longer.config.max_position_embeddings == 96 == tokenizer.model_max_length
    rows = longer.bert.embeddings.position_embeddings.weight
    assert rows.shape[0] == 96
    started = weights(run.path / "start")["bert.embeddings.position_embeddings.weight"]
    old = model.bert.embeddings.position_embeddings.weight
    torch.testing.assert_close(started[:32], old.detach(), rtol=0, atol=0)
    torch.testing.assert_close(started[32:64], old.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("family", ["roberta", "electra", "deberta-v2", "xlm-roberta"])
def test_every_family_trains_from_scratch(family, text_file, tmp_path):
    run = trained(text_file, tmp_path / "run", f"family={family}", "steps=2")
    assert load_masked(str(run.path / "checkpoint-2"))[0].config.model_type == family


# What is refused


def saved(folder: Path, model, tokenizer) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_wrong_checkpoints_are_one_line(tokenizers, tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    tokenizer, model = tokenizers["bert"], masked_model("bert", tokenizers["bert"])
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=1))
    with pytest.raises(DanseoError, match="causal language model"):
        load_masked(str(saved(tmp_path / "gpt", gpt, tokenizer)))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    maskless = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **names)
    with pytest.raises(DanseoError, match="no mask token"):
        load_masked(str(saved(tmp_path / "maskless", model, maskless)))
    wide = masked_model("bert", tokenizer, vocab_size=2 * len(tokenizer) + 2)
    with pytest.raises(DanseoError, match=r"are vocab\.txt or tokenizer\.json there"):
        load_masked(str(saved(tmp_path / "wide", wide, tokenizer)))
    narrow = masked_model("bert", tokenizer, vocab_size=len(tokenizer) - 10)
    with pytest.raises(DanseoError, match="not of one checkpoint"):
        load_masked(str(saved(tmp_path / "narrow", narrow, tokenizer)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--text", "EMPTY"], "holds no text"),
        (["--text", "NOWHERE"], "nowhere.txt cannot be read: No such file or directory; check the path"),
        ([], "no text; name files or folders with --text"),
        (
            ["--text", "TEXT", "--set", "learning_rat=1"],
            "unknown setting 'learning_rat'; did you mean train.learning_rat",
        ),
        (["--text", "TEXT", "--set", "select_on=dev"], "unknown setting 'select_on'"),
        (["--text", "TEXT", "--steps", "2", "--minutes", "1"], "choose one"),
        (["--text", "TEXT", "--set", "maximum=0.1"], "is below mask.probability"),
        (["--text", "TEXT", "--from", "/no/where"], "no such folder"),
        (["--text", "TEXT", "--out", "FULL"], "is not empty and no training of danseo"),
        (["--text", "TEXT", "--out", "FULL", "--force"], "is not empty and no training of danseo"),
        (["--text", "TEXT", "--set", "hidden=33"], "cannot be divided by model.heads"),
        (["--text", "TEXT", "--config", "NOWHERE"], "no such file"),
    ],
)
def test_bad_input_is_one_line(arguments, words, text_file, tmp_path, capsys, monkeypatch):
    from danseo.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    paths = {"EMPTY": "empty.txt", "NOWHERE": "nowhere.txt", "TEXT": str(text_file), "FULL": "full"}
    with pytest.raises(SystemExit) as ended:
        main(["pretrain", *(paths.get(each, each) for each in arguments)])
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.out == ""
    lines = [line for line in printed.err.splitlines() if line.startswith("danseo: ")]
    assert len(lines) == 1
    assert words in lines[0]
    assert "Traceback" not in printed.err
    assert (tmp_path / "full" / "thesis.txt").is_file(), "what is not ours is never removed"


def test_the_shipped_settings_load_and_all_are_listed():
    from danseo.pretraining.config import CorefConfig
    from danseo.recipes import recipe_folder
    from danseo.settings.declaring import setting_help, setting_paths
    from danseo.settings.written import read_settings

    for name, vocabulary in (("small", 16000), ("mini", 12000)):
        settings = read_settings(recipe_folder() / "pretrain" / f"{name}.toml", PretrainConfig)
        assert (settings["model.layers"], settings["model.hidden"], settings["model.vocabulary"]) == (
            4,
            256,
            vocabulary,
        )
        check_config(with_settings(PretrainConfig(), settings))
    for cls in (PretrainConfig, CorefConfig):
        paths = setting_paths(cls)
        short = [path.split(".")[-1] for path in paths]
        assert len(short) == len(set(short)), "a short name means one setting"
        assert all(setting_help(owner)[field] for owner, field in paths.values())


def test_what_a_kill_left_half_written_goes_when_the_training_goes_on(tmp_path):
    run, config = Run(tmp_path / "run"), PretrainConfig()
    workers = Workers("cpu")
    claim(run, "pretrain.toml", config, "same", workers, force=False)
    draft = run.path / ".best.safetensors.1.part"
    draft.write_bytes(b"half")
    claim(run, "pretrain.toml", config, "same", workers, force=False)
    assert not draft.exists()


def test_a_folder_that_another_process_trains_in_is_left_to_it(text_file, tmp_path):
    out = tmp_path / "out"
    with owned(out), pytest.raises(WorkFailed, match="is being written by another process"):
        pretrain(PretrainJob(configured(), (text_file,), device="cpu", quiet=True), out, wait=False)
    assert not out.exists()


def test_text_that_another_process_packs_is_waited_for(text_file, tokenizers, tmp_path, monkeypatch):
    """Two trainings on the same text at once pack it once."""
    config, packs, began = configured(), [], threading.Event()
    pack = folders.pack_texts

    def slow(*arguments):
        packs.append(1)
        began.set()
        time.sleep(0.3)
        pack(*arguments)

    monkeypatch.setattr(folders, "pack_texts", slow)
    arguments = (config, (text_file,), (), tokenizers["bert"], Workers("cpu"))
    first = threading.Thread(target=packed_folder, args=arguments)
    first.start()
    assert began.wait(30)
    assert packed_folder(*arguments)[1]["train"].rows
    first.join()
    assert packs == [1]


def test_packed_text_with_a_flipped_bit_is_packed_again(text_file, tokenizers, capsys):
    arguments = (configured(), (text_file,), (), tokenizers["bert"], Workers("cpu"))
    folder, _ = packed_folder(*arguments)
    file = folder / "train" / "ids.bin"
    whole = file.read_bytes()
    file.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(DanseoError, match=r"train/ids\.bin is damaged"):
        check_packed(folder)
    packed_folder(*arguments)
    assert "ids.bin is damaged; packing the text again" in capsys.readouterr().err
    assert file.read_bytes() == whole
    packed_folder(*arguments)
    assert not capsys.readouterr().err, "once"


def test_a_kill_before_anything_is_whole_leaves_a_folder_that_can_be_taken(tmp_path, monkeypatch):
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
            claim(run, "pretrain.toml", configured(), "1234", Workers("cpu"))
    assert not claim(run, "pretrain.toml", configured(), "1234", Workers("cpu"))
    assert sorted(path.name for path in run.path.iterdir()) == ["identity.txt", "pretrain.toml"]
