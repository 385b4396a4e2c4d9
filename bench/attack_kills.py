"""Kills: every command that writes, at random moments and between two changes of the file system, then run again.

Commands run in forks of this process, which has loaded the libraries once; a kill is a SIGKILL of such a fork. What is
the same in two undisturbed runs has to be the same in one that was killed, and nothing else may lie around.
"""

import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import Limit, say

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
MEASURED = ("seconds", "wall_seconds", "peak_memory_gib")
QUICK = ["precision=fp32", "attn_implementation=eager", "num_threads=1", "batch_size=8"]
IN_BETWEEN = (".part", "checkpoint", "checkpoint.old", "checkpoint.new", "best.safetensors", "progress.json")


@dataclass(frozen=True)
class Target:
    """A command, and the folders below its own place that it writes results to."""

    name: str
    arguments: Sequence[object]
    results: Sequence[str]
    is_shared: bool = False
    """Whether the search behind it goes other ways after a kill, so that only its end can be judged."""


def settings(*chosen: str) -> list[str]:
    return [f"--set={each}" for each in (*QUICK, *chosen)]


def targets(workdir: Path) -> list[Target]:
    """What is attacked, made once."""
    tiny: Any = importlib.import_module("tests.tiny")
    coref: Any = importlib.import_module("tests.mlm.test_coref")
    conftest: Any = importlib.import_module("tests.mlm.conftest")
    from danseo.data.find import write_sample
    from danseo.experiment import run_experiment
    from danseo.models.new_encoder import EncoderSize, train_tokenizer

    write_sample(workdir / "sample")
    encoder = tiny.tiny_encoder(workdir / "tiny", workdir / "sample", dropout=0.1)
    (workdir / "text.txt").write_text(coref.documents(), "utf-8")
    tokenizer = train_tokenizer([coref.documents(200)] * 2, "bert", EncoderSize(vocabulary=300))
    for step in (10, 20):
        folder = workdir / "masked" / f"checkpoint-{step}"
        conftest.masked_model("bert", tokenizer, positions=96).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    members = [
        run_experiment(
            tiny.quick_config("ynat", model, max_train_samples=200),
            workdir / "sample",
            workdir / "members",
            quiet=True,
        )
        for model in ("majority", "linear")
    ]
    (workdir / "sweep.toml").write_text("task = 'ynat'\nmodel = 'majority'\n[grid]\nseed = [1, 2]\n")
    (workdir / "space.toml").write_text("learning_rate = [1e-3, 2e-3]\n")
    data = ["--data", workdir / "sample"]
    trained = ["ynat", "-m", encoder, *data, "--runs", "runs", "--device", "cpu"]
    short = settings("max_train_samples=24", "epochs=2", "evals_per_epoch=2")
    masked = ["--text", workdir / "text.txt", "--device", "cpu", "--out", "out"]
    pre = settings("num_hidden_layers=1", "hidden_size=32", "num_attention_heads=2", "vocab_size=300")
    pre += settings("seq_len=64", "held_out_ratio=0.2", "steps=12")
    pre += ["--set=save.every_steps=4"]
    fine = settings("min_distance=5", "held_out_ratio=0.3", "max_train_items=37", "max_held_out_items=20", "steps=8")
    fine += settings("learning_rate=3e-3")
    checkpoint = workdir / "masked" / "checkpoint-10"
    probe = ["probe", workdir / "masked", "--output-dir", "out", "--device", "cpu", "--precision", "fp32", "--quick"]
    storage = ["--storage", "sqlite:///study.db", "--study", "s", "--space", workdir / "space.toml", "--trials", 2]
    return [
        Target("train", ["train", *trained, *short, "--lr", "1e-3"], ["runs"]),
        Target("pretrain", ["pretrain", *masked, *pre], ["out"]),
        Target("coref", ["coref", checkpoint, *masked, *fine], ["out"]),
        Target("probe", probe, ["out"]),
        Target("ensemble", ["ensemble", *(run.path for run in members), *data, "--runs", "runs"], ["runs"]),
        Target("sweep", ["sweep", workdir / "sweep.toml", *data, "--runs", "runs"], ["runs"]),
        Target("tune", ["tune", "train", *trained, *short, *storage], ["runs", "tune"], is_shared=True),
    ]


# Forks


def start(target: Target, workdir: Path, counter: "Counter | None" = None) -> int:
    """The command in a fork, in a place of its own and in a group of its own."""
    workdir.mkdir(parents=True, exist_ok=True)
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    os.chdir(workdir)
    os.environ["DANSEO_CACHE"] = str(workdir / "cache")
    words = os.open(workdir / "words.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(words, 1)
    os.dup2(words, 2)
    from danseo.cli import main

    code = 70
    try:
        if counter:
            sys.addaudithook(counter.heard)
        main(list(map(str, target.arguments)))
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        if counter and counter.last is None:
            (workdir / "count").write_text(str(counter.count))
            (workdir / "modules").write_text("\n".join(name for name in sys.modules if not name.startswith("__")))
        os._exit(code)


def ended(pid: int, seconds: float = 240) -> int:
    """The exit code of a fork; one that hangs is killed, which is no end to be content with."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    kill(pid)
    return -1


def kill(pid: int) -> None:
    """The fork and the workers it has started, without a word."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has no group of its own yet
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def killed_after(target: Target, workdir: Path, seconds: float) -> bool:
    """Whether the command was still at work when the kill came."""
    pid, until = start(target, workdir), time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        time.sleep(0.001)
    kill(pid)
    return True


class Counter:
    """Counts changes of the file system in this process, and ends it before the one that is wanted."""

    def __init__(self, workdir: Path, last: int | None = None) -> None:
        self.workdir, self.last, self.count = str(workdir), last, 0

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_open = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not (is_open or event in CHANGES) or not str(arguments[0]).startswith(
            (self.workdir, "runs", "out", ".locks")
        ):
            return
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def count_changes(target: Target, workdir: Path) -> int:
    """How many changes an undisturbed command makes."""
    code = ended(start(target, workdir, Counter(workdir)))
    assert code == 0, (target.name, code, (workdir / "words.txt").read_text()[-500:])
    return int((workdir / "count").read_text())


def load_modules(workdir: Path) -> None:
    """What the undisturbed command has loaded is loaded here, so that no fork has to do it again."""
    for name in (workdir / "modules").read_text().split():
        with suppress(Exception):  # parts of packages that cannot be named
            importlib.import_module(name)


def killed_at(target: Target, workdir: Path, change: int) -> bool:
    """Whether the command came to the change, before which it is killed; then its workers are, too."""
    pid = start(target, workdir, Counter(workdir, change))
    code = ended(pid)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return code == -signal.SIGKILL


# Judging


def contents(target: Target, workdir: Path) -> dict[str, str]:
    """Every file of the results with the hash of what it holds; locks and the cache are no results."""
    return {
        path.relative_to(workdir).as_posix(): hashlib.sha256(_without_measurements(path)).hexdigest()
        for folder in target.results
        for path in (workdir / folder).rglob("*")
        if path.is_file() and ".locks" not in path.parts
    }


def _without_measurements(path: Path) -> bytes:
    """Return a file's bytes; environment.json without times and memory, which two runs share only by chance."""
    if path.name != "environment.json":
        return path.read_bytes()
    found = json.loads(path.read_bytes())
    return json.dumps({key: found[key] for key in found if key not in MEASURED}).encode()


def leftovers(workdir: Path) -> list[str]:
    """What only unfinished work has."""
    drafts = [path.name for path in workdir.rglob("draft-*")]
    return drafts + [
        path.name for path in workdir.rglob("*") if path.name.endswith(IN_BETWEEN) and "cache" not in path.parts
    ]


@dataclass(frozen=True)
class Reference:
    """What an undisturbed command comes to."""

    names: set[str]
    same: dict[str, str]
    seconds: float
    changes: int

    def fault(self, target: Target, workdir: Path, code: int) -> str:
        """What is wrong with a command that was killed and run again; nothing where all is well."""
        found = contents(target, workdir)
        if code:
            return f"exit {code}: {(workdir / 'words.txt').read_text()[-200:]!r}"
        if left := leftovers(workdir):
            return f"left behind: {left[:3]}"
        if target.is_shared:
            return "" if any(name.endswith("best.toml") for name in found) else "no best settings"
        if set(found) != self.names:
            return f"other files: {sorted(set(found) ^ self.names)[:3]}"
        other = [name for name, sha in self.same.items() if found[name] != sha]
        return f"other content: {other[:3]}" if other else ""


def reference(target: Target, workdir: Path) -> Reference:
    """Two undisturbed runs: what is the same in both is what a killed one is held to."""
    changes = count_changes(target, workdir / "one")
    load_modules(workdir / "one")
    began = time.monotonic()
    code = ended(start(target, workdir / "two"))
    assert code == 0, (workdir / "two" / "words.txt").read_text()[-500:]
    seconds = time.monotonic() - began
    first, second = (contents(target, workdir / part) for part in ("one", "two"))
    same = {name: sha for name, sha in first.items() if second.get(name) == sha}
    return Reference(set(first), same, seconds, changes)


def attack(target: Target, workdir: Path, known: Reference, rng: random.Random, number: int, exact: bool) -> str:
    """Up to three kills of one piece of work, then the same command to its end; the fault, if there is one."""
    done = 0
    for _ in range(number):
        if exact:
            done += killed_at(target, workdir, rng.randint(1, known.changes))
        else:
            done += killed_after(target, workdir, rng.uniform(0, known.seconds))
    fault = known.fault(target, workdir, ended(start(target, workdir)))
    return f"{done} {fault}".strip()


def kills(workdir: Path, size: float, seed: int, limit: Limit, *, exact: bool) -> list[dict[str, object]]:
    """A row per command."""
    import torch
    import transformers

    torch.set_num_threads(1)
    del transformers
    rng, rows = random.Random(seed), list[dict[str, object]]()
    wanted = max(1, round((5 if exact else 9) * size))
    kind = "kills between two changes of the file system" if exact else "kills at random moments"
    listed = targets(workdir / "given")
    for number, target in enumerate(listed):
        own = limit.share(1 / (len(listed) - number))
        if limit.is_over:
            break
        known, killed, faults, rounds = reference(target, workdir / target.name), 0, list[str](), 0
        while killed < wanted and rounds < 3 * wanted and not (own.is_over and rounds):
            folder = workdir / target.name / f"round-{rounds}"
            said = attack(target, folder, known, rng, min(3, wanted - killed), exact)
            count, _, fault = said.partition(" ")
            killed, rounds = killed + int(count), rounds + 1
            faults += [fault] if fault else []
            shutil.rmtree(folder)
        note = f"{len(known.same)} of {len(known.names)} files are the same in every run" if not faults else faults[0]
        rows.append({"attack": f"{target.name}: {kind}", "tries": killed, "held": killed - len(faults), "note": note})
        say(f"{rows[-1]}")
    return rows
