import errno
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from danseo import files  # noqa: E402
from danseo.config.base import (  # noqa: E402
    flatten_config,
    setting_choices,
    update_config,
)
from danseo.config.run import RunConfig  # noqa: E402
from danseo.errors import DanseoError, WorkFailed  # noqa: E402
from danseo.records import Prediction  # noqa: E402
from danseo.runs import store  # noqa: E402
from danseo.runs.store import BEST, Run, compute_fingerprint, hash_folder, make_run_name  # noqa: E402
from tests.damage import as_dangling_link, as_folder, as_pipe, put_in_place  # noqa: E402

CONFIG = RunConfig(task="ner", model="klue/roberta-base")
DATA = {"klue-ner-v1.1_train.tsv": "aa", "klue-ner-v1.1_dev.tsv": "bb"}


def checkpoint(number: int) -> tuple[dict, dict]:
    return {"network.weight": torch.full((3, 2), float(number))}, {"step": number, "best": None}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path / "runs" / "one")
    made.start(CONFIG)
    return made


def saved_step(run: Run) -> int | None:
    """The step of the checkpoint that a rerun goes on from, validate_value to be whole."""
    found = run.load_checkpoint()
    if found is None:
        return None
    tensors, state = found
    assert torch.equal(tensors["network.weight"], torch.full((3, 2), float(state["step"])))
    return state["step"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the run's own code handles it."""


def killing(monkeypatch, owner, name: str, at: int) -> None:
    """Die instead of the n-th call of a function."""
    original, calls = getattr(owner, name), []

    def call(*arguments, **options):
        calls.append(arguments)
        if len(calls) == at:
            raise Killed
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


# Checkpoints


def test_a_checkpoint_comes_back_as_it_was(run):
    assert run.load_checkpoint() is None
    for number in (1, 2):
        run.save_checkpoint(*checkpoint(number))
        assert saved_step(run) == number
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoint", "checkpoint.old", "config.toml"]


@pytest.mark.parametrize(
    ("owner", "name", "at", "step"),
    [
        (store, "_write_synced", 1, 1),  # before the tensors
        (store, "_write_synced", 2, 1),  # between tensors and state
        (Path, "rename", 1, 1),  # before the old one moves away
        (Path, "rename", 2, 1),  # between the renamings: only the old one is whole
        (store, "_write_synced", 3, 1),  # before the seal
        (shutil, "rmtree", 2, 1),  # before the one before it is deleted
    ],
)
def test_a_kill_at_any_moment_leaves_a_complete_checkpoint(run, monkeypatch, owner, name, at, step):
    run.save_checkpoint(*checkpoint(1))
    with monkeypatch.context() as patched:
        killing(patched, owner, name, at)
        with pytest.raises(Killed):
            run.save_checkpoint(*checkpoint(2))
    assert saved_step(run) == step
    run.save_checkpoint(*checkpoint(3))
    assert saved_step(run) == 3


@pytest.mark.parametrize("deleted", ["state.json", "state.safetensors", None])
def test_two_kills_in_a_row_leave_a_complete_checkpoint(run, monkeypatch, deleted):
    """The first comes between the renamings, the second while the one before is deleted to make room."""
    run.save_checkpoint(*checkpoint(1))
    with monkeypatch.context() as patched:
        killing(patched, Path, "rename", 2)
        with pytest.raises(Killed):
            run.save_checkpoint(*checkpoint(2))

    make = Path.mkdir

    def half_removed(path, **options):
        """A deletion that dies halfway."""
        if Path(path).exists():
            if deleted:
                (Path(path) / deleted).unlink(missing_ok=True)
            if not Path(path).name.endswith(".new"):
                raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", half_removed)
        patched.setattr(Path, "mkdir", lambda self, **options: make(self, parents=True, exist_ok=True))
        run.save_checkpoint(*checkpoint(2))
        with pytest.raises(Killed):
            run.save_checkpoint(*checkpoint(3))
    assert saved_step(run) == 2


def test_a_full_disk_is_one_line_and_keeps_the_last_checkpoint(run, monkeypatch):
    run.save_checkpoint(*checkpoint(1))

    def full(path, content):
        path.write_bytes(content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(store, "_write_synced", full)
        with pytest.raises(WorkFailed, match="No space left on device; free") as caught:
            run.save_checkpoint(*checkpoint(2))
    assert "\n" not in str(caught.value)
    assert saved_step(run) == 1
    assert not (run.path / "checkpoint.new").exists()


def test_whatever_else_is_written_fails_in_one_line_too(run, monkeypatch):
    run.save_weights(BEST, {"weight": torch.zeros(2)})
    run.log({"step": 1})
    run.write_predictions("dev", [Prediction("a", "O")])

    def full(self, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    for write in (
        lambda: run.save_weights(BEST, {"weight": torch.ones(2)}),
        lambda: run.write_json("scores.json", {}),
        lambda: run.write_predictions("dev", [Prediction("b", "O")]),
        lambda: run.truncate_log(0),
    ):
        with pytest.raises(WorkFailed, match=r"No space left on device.*are complete"):
            write()
    run.fail("the disk is full")  # which it cannot say
    assert float(run.load_weights(BEST)["weight"].sum()) == 0
    assert run.predictions_path("dev").read_text("utf-8") == '{"guid": "a", "answer": "O"}\n'
    assert run.read_log() == [{"step": 1}]
    assert not run.is_finished


_REAL_DISK = """
import sys, torch
from functools import partial
from pathlib import Path
from danseo.errors import WorkFailed
from danseo.runs.store import Run
run = Run(Path(sys.argv[1]))
for number, size in ((1, 10), (2, 10**6)):
    try:
        run.save_checkpoint({"network.weight": torch.full((size,), float(number))}, {"step": number})
    except WorkFailed as error:
        print(error)
print(run.load_checkpoint()[1]["step"], len(run.load_checkpoint()[0]["network.weight"]))
"""


def test_a_real_small_disk(tmp_path):
    """A disk of one megabyte, where this machine lets us make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0
    if not mounted or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=False).returncode:
        pytest.skip("only root may make a small disk")
    try:
        command = [sys.executable, "-c", _REAL_DISK, str(disk / "run")]
        words = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    finally:
        subprocess.run(["umount", disk], check=True)
    assert len(words) == 2
    assert "No space left on device; free some space and run the same command again" in words[0]
    assert words[1] == "1 10"


def test_a_place_where_nothing_can_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(WorkFailed, match="cannot be written") as caught:
        Run(tmp_path / "file" / "run").start(CONFIG)
    assert "\n" not in str(caught.value)


# The log, errors, settings


def test_the_log_is_cut_to_what_the_checkpoint_knew(run):
    for step in (1, 2, 3):
        run.log({"step": step})
    with (run.path / "log.jsonl").open("a") as file:
        file.write('{"step": 4, "los')  # a kill in the middle of a line
    run.truncate_log(2)
    assert run.read_log() == [{"step": 1}, {"step": 2}]
    run.truncate_log(5)
    assert run.read_log() == [{"step": 1}, {"step": 2}]
    run.truncate_log(0)
    assert run.read_log() == []


def test_an_error_stays_until_the_next_start(run):
    run.fail("the loss is nan")
    assert (run.path / "error.txt").read_text() == "the loss is nan\n"
    assert (run.status, run.reason) == ("failed", "the loss is nan")
    run.start(CONFIG)
    assert not (run.path / "error.txt").exists()


def test_a_pruned_run_has_not_failed(run):
    assert (run.status, run.reason) == ("unfinished", "")
    run.prune("pruned at step 3 with 0.2")
    assert (run.status, run.reason) == ("pruned", "pruned at step 3 with 0.2")
    assert not (run.path / "error.txt").exists()
    run.start(CONFIG)
    assert run.status == "unfinished"
    run.fail("pruned trees are no pruned runs")
    assert run.status == "failed"


def test_tidying_leaves_what_a_finished_run_needs(run):
    run.save_checkpoint(*checkpoint(1))
    run.save_weights(BEST, {"weight": torch.zeros(2)})
    run.write_json("scores.json", {"task": "ner"})
    assert run.is_finished
    run.remove_checkpoints()
    assert sorted(path.name for path in run.path.iterdir()) == ["config.toml", "scores.json"]
    run.remove()
    assert not run.path.exists()


# Names


def test_every_setting_but_incidental_ones_changes_the_fingerprint():
    first = compute_fingerprint(CONFIG, DATA)
    changes = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v / 2 + 0.1, type(None): lambda v: 3}
    for name, value in flatten_config(CONFIG).items():
        words = setting_choices(name, RunConfig) or ("other",)
        changed = (
            next(word for word in words if word != value) if isinstance(value, str) else changes[type(value)](value)
        )
        same = compute_fingerprint(update_config(CONFIG, {name: changed}), DATA) == first
        assert same == (name in ("train.num_threads", "train.sharding", "prompt.url")), name


def test_other_data_change_the_fingerprint():
    assert compute_fingerprint(CONFIG, DATA) == compute_fingerprint(CONFIG, dict(reversed(DATA.items())))
    assert compute_fingerprint(CONFIG, DATA) != compute_fingerprint(CONFIG, {**DATA, "klue-ner-v1.1_dev.tsv": "cc"})


def test_the_content_of_a_model_counts_and_not_where_it_lies(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    config = update_config(CONFIG, {"model": str(folder)})
    first = make_run_name(config, {**DATA, "model": hash_folder(folder)})
    (folder / "notes.md").write_text("no part of the model")
    moved = shutil.copytree(folder, tmp_path / "elsewhere" / "model")
    elsewhere = update_config(CONFIG, {"model": str(moved)})
    assert compute_fingerprint(elsewhere, {**DATA, "model": hash_folder(moved)}) == first[-8:]
    (folder / "model.safetensors").write_bytes(b"others")
    assert make_run_name(config, {**DATA, "model": hash_folder(folder)}) != first


@pytest.mark.parametrize(
    ("model", "start"),
    [
        ("klue/roberta-base", "ner--klue-roberta-base--s42--"),
        ("klue/roberta-base@v1", "ner--klue-roberta-base-v1--s42--"),
    ],
)
def test_names_can_be_read(model, start):
    name = make_run_name(update_config(CONFIG, {"model": model}), DATA)
    assert name.startswith(start)
    assert len(name) == len(start) + 8


@pytest.mark.parametrize("name", ["state.json", "state.safetensors", "sha256.txt"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-2]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-3] + b"~" + path.read_bytes()[-2:]),
        *(partial(put_in_place, odd=odd) for odd in (as_pipe, as_folder, as_dangling_link)),
    ],
    ids=["cut", "empty", "flipped", "pipe", "folder", "dangling"],
)
def test_a_corrupted_checkpoint_is_named_and_the_previous_one_is_used(run, name, damage):
    for number in (1, 2):
        run.save_checkpoint(*checkpoint(number))
    damage(run.path / "checkpoint" / name)
    notes: list[str] = []
    found = run.load_checkpoint(notes.append)
    assert found
    assert found[1]["step"] == 1
    assert str(run.path / "checkpoint") in notes[0]
    assert notes[1] == "note: resuming from the checkpoint before it"
    shutil.rmtree(run.path / "checkpoint.old")
    notes.clear()
    assert run.load_checkpoint(notes.append) is None
    assert "starting from the beginning" in notes[-1]
    assert not any("\n" in note for note in notes)


def test_json_is_written_atomically(run, monkeypatch):
    run.write_json("environment.json", {"a": 1})
    with pytest.raises(ValueError):
        run.write_json("environment.json", {"a": float("nan")})
    with monkeypatch.context() as patched:
        killing(patched, files.Path, "replace", 1)
        with pytest.raises(Killed):
            run.write_json("environment.json", {"a": 2})
    assert json.loads((run.path / "environment.json").read_text()) == {"a": 1}


def test_what_a_kill_leaves_is_swept_out(tmp_path):
    run = Run(tmp_path / "run")
    for name in (
        "checkpoint/state.json",
        BEST,
        ".scores.json.123.part",
        "predictions/.dev.jsonl.123.part",
        "log.jsonl",
    ):
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_text("{}")
    run.remove_partial_files()
    assert {path.name for path in run.path.iterdir()} == {"checkpoint", BEST, "predictions", "log.jsonl"}, "goes on"
    (run.path / "scores.json").write_text("{}")
    run.remove_partial_files()
    assert {path.name for path in run.path.iterdir()} == {"predictions", "log.jsonl", "scores.json"}
    assert not list((run.path / "predictions").iterdir())
    assert not run.find_partial_files()


def test_what_lies_behind_a_link_is_not_removed(run, tmp_path):
    (tmp_path / "link").symlink_to(run.path)
    with pytest.raises(DanseoError, match=r"link is a link to .*one; remove it, or name that folder"):
        Run(tmp_path / "link").remove()
    assert run.config == CONFIG
