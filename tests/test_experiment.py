"""Whole runs: the same twice, the same after a kill, for every family and kind, and their ways to fail."""

import errno
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from danseo.data.dev_split import split_indices  # noqa: E402
from danseo.errors import DanseoError, WorkFailed  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.encoder import model as encoder_model  # noqa: E402
from danseo.models.encoder.model import Encoder  # noqa: E402
from danseo.models.encoder.network import make_padded_batch  # noqa: E402
from danseo.models.registry import configure_run, get_family, load_model  # noqa: E402
from danseo.runs.scores import get_headline  # noqa: E402
from danseo.runs.store import Run  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from danseo.training.precision import ComputeConfig, quantize_to_int8  # noqa: E402
from tests.tiny import FAMILIES, QUICK, Watch, assert_same_answers, quick_config, read_split, tiny_encoder  # noqa: E402


@pytest.fixture(scope="session")
def encoder(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny encoder of a family, made once."""
    folder, made = tmp_path_factory.mktemp("encoders"), {}

    def find(family: str) -> Path:
        if family not in made:
            made[family] = tiny_encoder(folder / family, sample, family, layers=1, dropout=0.1)
        return made[family]

    return find


@pytest.fixture(scope="session")
def small(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginning of the sample, so that whole runs take a moment."""
    folder = tmp_path_factory.mktemp("small")
    for task in TASKS.values():
        (folder / task.folder).mkdir()
        for split in ("train", "dev"):
            source = sample / task.folder / task.file(split)
            (folder / task.folder / task.file(split)).write_text(shortened(source, 40), "utf-8")
    shutil.copy(sample / TASKS["wos"].folder / "ontology.json", folder / TASKS["wos"].folder)
    return folder


def shortened(path: Path, count: int) -> str:
    """The first entries of a raw file."""
    text = path.read_text("utf-8")
    if path.suffix == ".tsv":
        return "\n\n".join(text.strip().split("\n\n")[: count + 1]) + "\n\n"  # a header may come first
    document = json.loads(text)
    if isinstance(document, dict):
        return json.dumps({**document, "data": document["data"][: count // 4]}, ensure_ascii=False)
    return json.dumps(document[: count // 4 if "dialogue" in document[0] else count], ensure_ascii=False)


def results(run: Run) -> dict[str, bytes]:
    """What a run is about, byte for byte."""
    names = ("predictions/dev.jsonl", "predictions/dev.npz", "scores.json", "log.jsonl", "model/model.safetensors")
    return {name: (run.path / name).read_bytes() for name in names if (run.path / name).exists()}


# Determinism


@pytest.mark.parametrize("task", ["ynat", "sts", "ner", "dp", "mrc", "wos"])
def test_the_same_settings_twice_give_the_same_bytes(small, encoder, tmp_path, task):
    config = quick_config(task, encoder("bert"), max_train_samples=24)
    first, second = (run_experiment(config, small, tmp_path / part, quiet=True) for part in "ab")
    assert first.path.name == second.path.name
    assert results(first) == results(second)
    assert ("predictions/dev.npz" in results(first)) == (task in ("ner", "dp", "mrc"))


INSTRUCTIONS = {  # of other processors: those of ATen, oneDNN and MKL
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "default": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="these are instructions of x86")
@pytest.mark.lengthy
@pytest.mark.parametrize("capability", INSTRUCTIONS)
def test_other_processors_repeat_resume_and_reload_alike(tmp_path, capability):
    """Some tests of this file once more, in a process that does without the newer instructions."""
    chosen = (
        "test_the_same_settings_twice_give_the_same_bytes[ner]",
        "test_a_run_resumes_from_its_checkpoint",
        "test_every_family_and_every_task_type_is_trained_saved_and_loaded[roberta-mrc]",
    )
    code = (
        f"import sys, torch, pytest; assert torch.backends.cpu.get_cpu_capability() == {capability.upper()!r}; "
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    arguments = ["-n", "0", f"--basetemp={tmp_path / 'other'}", "-p", "no:cacheprovider"]
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments, *(f"{__file__}::{name}" for name in chosen)],
        env={**os.environ, **INSTRUCTIONS[capability], "ATEN_CPU_CAPABILITY": capability},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_a_finished_run_is_returned_without_work(small, encoder, tmp_path, monkeypatch):
    config = quick_config("ynat", encoder("bert"), max_train_samples=16)
    run = run_experiment(config, small, tmp_path, quiet=True)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    with monkeypatch.context() as patched:
        patched.setattr(encoder_model.Encoder, "__init__", lambda *arguments: pytest.fail("should not work again"))
        assert run_experiment(config, small, tmp_path, quiet=True) == run
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
    run_experiment(config, small, tmp_path, quiet=True, force=True)
    assert (run.path / "scores.json").stat().st_mtime_ns > before[run.path / "scores.json"]


# Kills

KILLED = {
    **QUICK,
    "max_train_samples": 48,
    "epochs": 4,
    "evals_per_epoch": 2,
    "learning_rate": 2e-3,
    "swa_start_epoch": 1,
    "swa_every_steps": 2,
    "patience": 100,
}


def state_of(run: Path) -> dict | None:
    path = run / "checkpoint" / "state.json"
    return json.loads(path.read_text()) if path.exists() else None


def lines_of(run: Path) -> int:
    path = run / "log.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "at the start of training": lambda run: (run / "compute.json").exists() and not lines_of(run),
    "after a line of the log, before its checkpoint": lambda run: (
        lines_of(run) > 0 and lines_of(run) > (state_of(run) or {"log_lines": 0})["log_lines"]
    ),
    "during the write of a checkpoint": lambda run: (
        (run / "checkpoint.new" / "state.safetensors").exists() and state_of(run) is not None
    ),
    "between evaluations": lambda run: (
        not (run / "checkpoint.new").exists()
        and (state := state_of(run)) is not None
        and 3 <= state["log_lines"] == lines_of(run) < 8
    ),
    "during the saving of the model": lambda run: (run / "model").exists(),
}


def kill_at(process: subprocess.Popen, run: Path, is_moment: Callable[[Path], bool]) -> bool:
    """Stop the process as soon as the moment has come, make sure that it has, and kill; False when it ended first."""
    began = time.time_ns()
    while process.poll() is None and not has_changed(run / "config.toml", began):
        time.sleep(0.02)  # leaves the processor to the imports
    while process.poll() is None:
        if is_moment_now(run, is_moment):
            process.send_signal(signal.SIGSTOP)
            if is_moment_now(run, is_moment):
                process.send_signal(signal.SIGKILL)
                process.wait()
                return True
            process.send_signal(signal.SIGCONT)
        time.sleep(0.0002)
    return False


def has_changed(path: Path, since: int) -> bool:
    return path.exists() and path.stat().st_mtime_ns > since


def is_moment_now(run: Path, is_moment: Callable[[Path], bool]) -> bool:
    try:
        return is_moment(run)
    except (OSError, ValueError):
        return False  # looked while something moved


@pytest.mark.lengthy
def test_a_run_killed_at_five_moments_ends_as_if_nothing_had_happened(sample, small, tmp_path, encoder):
    """One run directory, five real processes killed one after the other, and a sixth that ends it."""
    folder = tiny_encoder(tmp_path / "tiny", sample, hidden=128, layers=2, dropout=0.1)
    whole = run_experiment(configure_run("ner", str(folder), "default", KILLED), small, tmp_path / "whole", quiet=True)
    run = tmp_path / "killed" / whole.path.name
    settings = [f"--set={key}={value}" for key, value in KILLED.items()]
    command = ["train", "ner", "-m", folder, "--data", small, "--runs", run.parent, *settings]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DANSEO_CACHE": str(tmp_path / "cache")}

    def start() -> subprocess.Popen:
        arguments = [sys.executable, "-m", "danseo", *map(str, command)]
        with (tmp_path / "words.txt").open("w") as words:
            return subprocess.Popen(arguments, stdout=words, stderr=words, env=variables)

    for name, is_moment in MOMENTS.items():
        assert kill_at(start(), run, is_moment), f"{name}: too late; {(tmp_path / 'words.txt').read_text()}"
        assert not Run(run).is_finished
    assert start().wait(timeout=600) == 0, (tmp_path / "words.txt").read_text()
    assert results(Run(run)) == results(whole)
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in whole.path.iterdir())


def test_a_run_resumes_from_its_checkpoint(small, encoder, tmp_path, monkeypatch):
    """In one process: an error in the middle, then the same command."""
    config = quick_config("ner", encoder("bert"), max_train_samples=32, epochs=2, evals_per_epoch=2, ema_decay=0.5)
    whole = run_experiment(config, small, tmp_path / "whole", quiet=True)
    saved = Run.save_checkpoint

    def failing(self, tensors, state):
        if state["step"] == 6:
            raise WorkFailed("no room")
        saved(self, tensors, state)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "save_checkpoint", failing)
        with pytest.raises(WorkFailed):
            run_experiment(config, small, tmp_path / "cut", quiet=True)
    (cut,) = (tmp_path / "cut").glob("ner--*")
    assert (cut / "error.txt").read_text() == "no room\n"
    assert state_of(cut)["step"] == 4
    steps = []
    monkeypatch.setattr(Run, "save_checkpoint", lambda self, tensors, state: steps.append(state["step"]))
    assert results(run_experiment(config, small, tmp_path / "cut", quiet=True)) == results(whole)
    assert steps == [6, 8]
    assert not (cut / "error.txt").exists()


@pytest.mark.parametrize(
    ("damaged", "said", "first"),
    [
        (["checkpoint/state.safetensors"], "resuming from the checkpoint before it", 8),
        (["checkpoint/state.safetensors", "checkpoint.old/state.json"], "starting from the beginning", 2),
        (["best.safetensors"], "starting from the beginning", 2),
    ],
)
def test_a_corrupted_checkpoint_changes_no_result(small, encoder, tmp_path, monkeypatch, capsys, damaged, said, first):
    config = quick_config("ynat", encoder("bert"), max_train_samples=32, epochs=2, evals_per_epoch=2)
    whole = run_experiment(config, small, tmp_path / "whole", quiet=True)
    with monkeypatch.context() as patched:
        patched.setattr(Run, "write_predictions", failing)
        with pytest.raises(WorkFailed):
            run_experiment(config, small, tmp_path / "cut", quiet=True)
    (cut,) = (tmp_path / "cut").glob("ynat--*")
    for name in damaged:
        (cut / name).write_bytes((cut / name).read_bytes()[:-1])
    steps, saved = [], Run.save_checkpoint

    def noting(self, tensors, state):
        steps.append(state["step"])
        saved(self, tensors, state)

    monkeypatch.setattr(Run, "save_checkpoint", noting)
    again = run_experiment(config, small, tmp_path / "cut")
    assert said in capsys.readouterr().err
    assert steps[0] == first
    assert results(again) == results(whole)


def failing(*arguments: object) -> None:
    raise WorkFailed("no room")


# Splits and scores


@pytest.mark.parametrize("select_on", ["select", "dev"])
def test_scores_name_the_split_of_selection_and_of_the_report(small, encoder, tmp_path, select_on):
    config = quick_config("ynat", encoder("bert"), max_train_samples=16, select_on=select_on)
    run = run_experiment(config, small, tmp_path, quiet=True)
    scores, task, dev = run.read_json("scores.json"), TASKS["ynat"], read_split(small, "ynat", "dev")
    assert (scores["task"], scores["headline"], scores["monitor"]) == ("ynat", task.headline, task.headline)
    assert (scores["selected_on"], scores["reported_on"]) == (select_on, "dev" if select_on == "dev" else "report")
    assert scores["steps"] == 2
    assert 0 < scores["best_step"] <= 2
    counts = {split: {score["n"] for score in listed} for split, listed in scores["scores"].items()}
    assert counts == {"report": {len(split_indices(task, dev, "report"))}, "dev": {len(dev)}}
    assert [score["id"] for score in scores["scores"]["dev"]] == list(task.metrics)
    assert get_headline(scores) in scores["scores"][scores["reported_on"]]
    assert scores["preflight"]["examples"] == len(dev)
    facts = run.read_json("environment.json")
    assert {"versions", "commit", "data", "device", "threads", "seconds", "peak_memory_gib"} <= facts.keys()
    assert {"train_tokens_per_second", "processes"} <= facts.keys()
    assert (facts["device"], facts["precision"], facts["attention"]) == ("cpu", "fp32", "packed")
    assert set(facts["data"]) == {task.file("train"), task.file("dev")}
    assert facts["wall_seconds"] >= facts["seconds"], "starting, predicting and scoring included"
    assert len(facts["model"]["sha256"]) == 16
    assert not (run.path / "progress.json").exists(), "only while it goes on"


def test_a_checkpoint_picked_on_all_of_dev_is_marked(small, encoder, tmp_path, invoke):
    settings = [f"--set={key}={value}" for key, value in QUICK.items()]
    command = ("train", "ynat", "-m", encoder("bert"), "--data", small, "--limit", 16, *settings)
    result = invoke(*command, "--select-on", "dev")
    assert result.code == 0, result.err
    assert "SELECTED ON THE REPORTED SET" in result.out


# Every family and kind

TASK_OF_KIND = ("ynat", "re", "sts", "ner", "dp", "mrc", "wos")
STOCK = {
    "ynat": "AutoModelForSequenceClassification",
    "re": "AutoModelForSequenceClassification",
    "sts": "AutoModelForSequenceClassification",
    "ner": "AutoModelForTokenClassification",
    "mrc": "AutoModelForQuestionAnswering",
}


def fitted(task: str, folder: Path, sample: Path, root: Path, **settings) -> tuple[Encoder, Run, list]:
    """A model after three steps, its saved run, and the dev examples."""
    config = quick_config(task, folder, **{"max_length": 128, "evals_per_epoch": 1, **settings})
    run, dev = Run(root / "run"), read_split(sample, task, "dev", 30 if task == "wos" else 10)  # several dialogues
    model = Encoder(config, TASKS[task], Workers("cpu"))
    model.prepare(read_split(sample, task, "train", 24), dev)
    run.start(config)
    model.train_steps(Watch(run))
    return model, run, dev


@pytest.mark.parametrize(
    ("family", "task"), [*(("bert", t) for t in TASK_OF_KIND), *((f, t) for f in FAMILIES[1:] for t in ("ynat", "mrc"))]
)
def test_every_family_and_every_task_type_is_trained_saved_and_loaded(sample, encoder, tmp_path, family, task):
    model, run, dev = fitted(task, encoder(family), sample, tmp_path)
    predictions = model.predict_dev()
    model.save(run.path / "model")
    assert_same_answers(load_model(run, "cpu").predict(dev), predictions)
    assert not list((run.path / "model").glob("*.bin"))
    if task in STOCK:
        auto = getattr(transformers, STOCK[task])
        stock, report = auto.from_pretrained(run.path / "model", output_loading_info=True)
        assert not report["missing_keys"], "a stock class finds all of its weights"
        assert not report["unexpected_keys"]
        for name, weights in model.network.model.state_dict().items():
            assert torch.equal(weights, stock.state_dict()[name]), name


@pytest.mark.parametrize("family", ["roberta", "electra"])
def test_the_official_dialogue_tracker_comes_back(sample, encoder, tmp_path, family):
    """Its pooling layer is the body's or its own."""
    model, run, dev = fitted("wos", encoder(family), sample, tmp_path, architecture="official")
    predictions = model.predict_dev()
    model.save(run.path / "model")
    assert_same_answers(load_model(run, "cpu").predict(dev), predictions)


def test_a_saved_model_computes_as_it_did_when_it_learned(sample, encoder, tmp_path):
    model, run, dev = fitted("ynat", encoder("bert"), sample, tmp_path, precision="auto", attn_implementation="auto")
    mode = run.read_json("compute.json")
    assert (mode["precision"], mode["attention"], mode["device"]) == ("fp32", "packed", "cpu")
    model.predict_dev()
    model.save(run.path / "model")
    run.write_json("compute.json", {"precision": "bf16", "attention": "eager", "device": "cpu"})
    again = load_model(run, "cpu")
    assert len(again.predict(dev)) == len(dev)
    assert again.mode == ComputeConfig("bf16", "eager")
    asked = load_model(run, "cpu", "fp32")
    asked.predict(dev[:1])
    assert asked.mode == ComputeConfig("fp32", "packed")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_predicts_in_int8(sample, encoder, tmp_path, family):
    model, run, dev = fitted("ynat", encoder(family), sample, tmp_path)
    model.predict_dev()
    model.save(run.path / "model")
    exact = load_model(run, "cpu").predict(dev)
    rough = load_model(run, "cpu", "int8")
    assert rough.mode.precision == "int8"
    assert not [m for m in rough.network.model.base_model.modules() if isinstance(m, torch.nn.Linear)]
    pairs = zip(exact, rough.predict(dev), strict=True)
    errors = [abs(a.probabilities[k] - b.probabilities[k]) for a, b in pairs for k in a.probabilities]
    assert 0 < max(errors) < 0.02, "rounded, but to about the same"


def test_int8_needs_a_cpu_and_a_model_with_weights(small, tmp_path):
    run = run_experiment(configure_run("ynat", "majority", "default", {}, None), small, tmp_path)
    with pytest.raises(DanseoError, match="is a majority model, which has no precision"):
        load_model(run, "cpu", "int8")
    with pytest.raises(DanseoError, match="int8 is for CPUs, and this is cuda"):
        quantize_to_int8(None, torch.device("cuda"))


# KLUE's own checkpoints


def test_a_roberta_with_a_bert_tokenizer_gets_no_segment_ids(sample, encoder, tmp_path):
    """KLUE's RoBERTa: BERT's tokenizer says segment 1 for a second text, but the body has one segment only."""
    folder = shutil.copytree(encoder("roberta"), tmp_path / "klue-roberta")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids", "token_type_ids"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n", "utf-8")
    assert json.loads((folder / "config.json").read_text())["type_vocab_size"] == 1
    model, _, dev = fitted("sts", folder, sample, tmp_path)
    assert type(model.network.model).__name__ == "RobertaForSequenceClassification"
    assert "BertTokenizer" in type(model.task_head.tokenizer.hf_tokenizer).__name__
    assert {1} <= set(model.dev_features[0].segments), "the pieces do have segments"
    batch = model.network.collate(model.dev_features[:4], model.task_head, with_gold=False)
    assert "segments" not in batch
    assert len(model.predict_dev()) == len(dev)


@pytest.mark.parametrize(("family", "task"), [*((family, "ner") for family in FAMILIES), ("roberta", "re")])
def test_a_tokenizer_with_another_pad_id_than_the_model(sample, encoder, tmp_path, family, task):
    """KLUE's first uploads of RoBERTa: positions are counted from the model's id, before and after saving."""
    folder = shutil.copytree(encoder(family), tmp_path / "checkpoint")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "pad_token_id": 1}))  # the tokenizer says 0
    model, run, dev = fitted(task, folder, sample, tmp_path)
    assert (model.task_head.tokenizer.pad_id, model.network.model.config.pad_token_id) == (0, 1)
    model.predict_dev()
    model.save(run.path / "model")
    again = load_model(run, "cpu")
    assert again.task_head.max_length == model.task_head.max_length
    assert_same_answers(again.predict(dev), model.predict(dev))
    stock = getattr(transformers, STOCK[task]).from_pretrained(run.path / "model").eval()
    batch = model.network.collate(model.dev_features[:4], model.task_head, with_gold=False)
    padded = make_padded_batch(model.network, model.task_head, model.dev_features[:4])
    names = {"input_ids": "input_ids", "attention_mask": "attention_mask", "segments": "token_type_ids"}
    with torch.no_grad():
        ours = model.network.eval()(batch)["logits"]
        theirs = stock(**{names[name]: padded[name] for name in names if name in padded}).logits
    there = padded["attention_mask"].bool() if task == "ner" else slice(None)
    torch.testing.assert_close(theirs[there], ours, atol=1e-4, rtol=1e-4)


def test_a_bert_gets_its_segment_ids(sample, encoder, tmp_path):
    model, *_ = fitted("sts", encoder("bert"), sample, tmp_path)
    batch = model.network.collate(model.dev_features[:4], model.task_head, with_gold=False)
    assert set(batch["segments"].unique().tolist()) == {0, 1}
    other = {**batch, "segments": torch.zeros_like(batch["segments"])}
    model.network.eval()
    with torch.no_grad():
        assert not torch.equal(model.network(batch)["logits"], model.network(other)["logits"])


# Failures in one line


def complaint_of(small: Path, tmp_path: Path, model: object, **options) -> str:
    with pytest.raises(DanseoError) as caught:
        run_experiment(
            quick_config("ynat", model, max_train_samples=16), small, tmp_path / "runs", quiet=True, **options
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists(), "what never started leaves nothing behind"
    return str(caught.value)


def test_pickled_weights_are_never_loaded(small, encoder, tmp_path):
    folder = shutil.copytree(encoder("bert"), tmp_path / "old")
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings": torch.zeros(1)}, folder / "pytorch_model.bin")
    complaint = complaint_of(small, tmp_path, folder)
    assert complaint.startswith(f"{folder} has no safetensors weights;")
    assert f"`danseo export {folder} --to safetensors`" in complaint


def test_a_model_that_is_nowhere(small, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "no/such-model" in complaint_of(small, tmp_path, "no/such-model")
    assert "nowhere" in complaint_of(small, tmp_path, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "not a checkpoint folder" in complaint_of(small, tmp_path, tmp_path / "empty")


def test_a_device_that_is_not_there(small, encoder, tmp_path):
    assert "device banana cannot be used" in complaint_of(small, tmp_path, encoder("bert"), device="banana")


def test_a_disk_that_fills_up_while_the_model_is_saved(small, encoder, tmp_path, monkeypatch):
    config = quick_config("ynat", encoder("bert"), max_train_samples=16)

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(encoder_model, "save_network", full)
        with pytest.raises(WorkFailed, match="No space left on device") as caught:
            run_experiment(config, small, tmp_path, quiet=True)
    assert "\n" not in str(caught.value)
    assert run_experiment(config, small, tmp_path, quiet=True).is_finished


def test_a_setting_that_names_no_metric(small, encoder, tmp_path):
    config = quick_config("ynat", encoder("bert"), max_train_samples=16, metric_for_best_model="ynat/f2")
    with pytest.raises(DanseoError, match=r"train\.metric_for_best_model = ynat/f2: ynat has ynat/macro_f1"):
        run_experiment(config, small, tmp_path, quiet=True)


def test_checking_a_model_is_never_silent_for_long(small, tmp_path, monkeypatch, capsys):
    """The Hub may answer slowly."""
    monkeypatch.setattr("danseo.display.progress.MOST_SILENT", 0.1)
    lines: list[str] = []

    def check_slowly(model: str) -> None:
        end = time.monotonic() + 20
        while not any(line.startswith("checking") for line in lines) and time.monotonic() < end:
            time.sleep(0.05)
            lines.extend(capsys.readouterr().err.splitlines())

    family = replace(get_family("majority"), check_available=check_slowly)
    run_experiment(configure_run("ynat", "majority", "default", {}), small, tmp_path, family=family)
    assert any(line.startswith("checking majority: ") for line in lines)
