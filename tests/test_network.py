"""Commands contact nothing but this machine, unless they name something elsewhere: attempts are counted, and refused.

The commands run in an environment whose every Python process reports where its sockets connect to. tests/test_extras.py
runs the light commands in one.
"""

import json
import os
import re
import signal
import site
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from contextlib import suppress
from pathlib import Path

import pytest

from danseo.cli import cli
from danseo.config.run import RunConfig
from danseo.data.prediction_file import write_predictions
from danseo.experiment import run_experiment
from danseo.scoring.score import baseline
from danseo.tasks import TASKS
from tests.conftest import ROOT
from tests.connections import read_attempts, watch_connections
from tests.test_extras import WORKS, names_of
from tests.tiny import quick_config, read_split, tiny_decoder, tiny_encoder

DRIVER = """
import json, os, sys, time
from danseo.cli import main

codes = {}
for os.environ["COMMAND"] in sys.argv[1:]:
    print("$", os.environ["COMMAND"], time.ctime(), file=sys.stderr, flush=True)
    sys.argv = ["danseo", *os.environ["COMMAND"].split()]
    try:
        main()
    except SystemExit as end:
        codes[os.environ["COMMAND"]] = end.code or 0
    else:
        codes[os.environ["COMMAND"]] = 0
with open("codes.json", "w") as file:
    json.dump(codes, file)
"""
PLAIN = "--set precision=fp32 --set attn_implementation=eager --set num_threads=1"
SHORT = f"--set max_train_samples=24 --set epochs=1 --set evals_per_epoch=1 {PLAIN}"
SMALL = (
    "--set num_hidden_layers=1 --set hidden_size=32 --set num_attention_heads=2 --set vocab_size=300 "
    f"--set held_out_ratio=0.2 --set steps=2 {PLAIN}"
)
FINE = f"--set min_distance=5 --set held_out_ratio=0.3 --set max_train_items=37 --set steps=2 {PLAIN}"
SLOW = (
    f"train ynat -m encoder --data sample --runs made {SHORT}",
    "predict run1 lines.txt",
    "eval run1 --data sample",
    "stress run1 --data sample --limit 8",
    f"distill run1 -m encoder --data sample --runs made {SHORT}",
    "soup run1 run2 --data sample --runs made",
    "export run1 --to onnx --out made/onnx",
    "score ner sample/klue-ner-v1.1/klue-ner-v1.1_dev.tsv ner.jsonl --tokenizer encoder",
    "prompt ynat -m llm:decoder --data sample --runs made --limit-calls 2",
    "sweep grid.toml --data sample --runs swept",
    "mine ynat -m linear --data sample --runs mined --out mined",
    "data probes --text passages.txt --out probes --limit 10 --workers 1",
    f"pretrain --text text.txt --out trained {SMALL}",
    f"coref masked --text text.txt --out mentions {FINE}",
    "probe masked --quick --output-dir probed --precision fp32",
    f"tune train ynat -m encoder --data sample --runs tuned --space space.toml --trials 1 {SHORT}",
    f"tune pretrain --text text.txt --space space.toml --probe-items sample --trials 1 --results best {SMALL}",
    f"tune coref masked --text text.txt --space space.toml --probe-items sample --trials 1 --results named {FINE}",
    "demo ynat --folder demo",
)
OFFLINE = (
    "data get --data fetched",
    "train ynat -m klue/bert-base --data sample --runs made",
    "reproduce klue/bert-base --tasks ynat --data sample --runs made",
    "probe klue/bert-base",
)
SERVING = ("serve base1 --port 0", "board . --port 0")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """A folder with all that the commands are called with, and a Python that reports its connections."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "sample").symlink_to(sample)
    for seed in (1, 2):
        run = run_experiment(RunConfig(task="ynat", model="majority", seed=seed), sample, folder)
        run.path.rename(folder / f"base{seed}")
    (folder / "lines.txt").write_text("새 공장 착공\n")
    (folder / "grid.toml").write_text('[base]\ntask = "ynat"\nmodel = "majority"\n[grid]\nseed = [1, 2]\n')
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    packages = next((folder / "venv").glob("lib/python*/site-packages"))
    watch_connections(packages, folder)
    places = [path for path in sys.path if Path(path) in map(Path, site.getsitepackages()) or "site-packages" in path]
    (packages / "b.pth").write_text("\n".join([str(ROOT / "src"), *places]))
    return folder


@pytest.fixture(scope="module")
def trained(work: Path, sample: Path) -> Path:
    """The same, with models."""
    from danseo.mlm.probing.items import read_bundled_items
    from danseo.models.new_encoder import EncoderSize, train_tokenizer
    from tests.mlm.conftest import masked_model
    from tests.mlm.test_coref import documents

    tiny_encoder(work / "encoder", sample)
    tiny_decoder(work / "decoder", sample)
    tokenizer = train_tokenizer([documents(200)] * 2, "bert", EncoderSize(vocabulary=300))
    tokenizer.save_pretrained(work / "masked")
    masked_model("bert", tokenizer).save_pretrained(work / "masked")
    for seed in (1, 2):
        run = run_experiment(quick_config("ynat", work / "encoder", seed=seed, max_train_samples=24), sample, work)
        run.path.rename(work / f"run{seed}")
    write_predictions(work / "ner.jsonl", baseline("oracle", TASKS["ner"], read_split(sample, "ner", "dev")))
    (work / "text.txt").write_text(documents(), "utf-8")
    (work / "passages.txt").write_text("\n\n".join({item.text: None for item in read_bundled_items()}), "utf-8")
    (work / "space.toml").write_text("learning_rate = [1e-4, 1e-3]\n")
    return work


def environment(**variables: str) -> dict[str, str]:
    hidden = ("PYTHONPATH", "PYTHONHOME", "DANSEO_DATA", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return {k: v for k, v in os.environ.items() if k not in hidden} | variables


def run(work: Path, *commands: str, **variables: str) -> dict[str, int]:
    """Run commands one after another in one process; return their exit codes."""
    (work / "codes.json").unlink(missing_ok=True)
    variables = environment(DANSEO_CACHE=str(work / "cache"), HF_HOME=str(work / "hub"), **variables)
    command = [str(work / "venv/bin/python"), "-c", DRIVER, *commands]
    result = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=600, cwd=work)
    assert (work / "codes.json").exists(), result.stderr
    print(result.stderr)
    codes: dict[str, int] = json.loads((work / "codes.json").read_text())
    return codes


def test_every_command_is_counted() -> None:
    for name in names_of(cli):
        assert any(f"{command} ".startswith(f"{name} ") for command in (*WORKS, *SLOW, *OFFLINE, *SERVING)), name


def test_attempts_are_seen(work: Path) -> None:
    trial = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=1)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', {trial!r}])"
    subprocess.run([str(work / "venv/bin/python"), "-c", child], capture_output=True, env=environment(COMMAND="trial"))
    assert read_attempts(work) == ["trial socket.getaddrinfo 192.0.2.1"]


@pytest.mark.nightly
@pytest.mark.lengthy
def test_other_commands_contact_nothing(trained: Path) -> None:
    codes = run(trained, *SLOW)
    assert read_attempts(trained) == []
    assert {command: code for command, code in codes.items() if code not in (0, 3)} == {}


def test_offline_not_even_the_hub_is_contacted(work: Path) -> None:
    codes = run(work, *OFFLINE, HF_HUB_OFFLINE="1")
    assert read_attempts(work) == []
    assert 0 not in codes.values()


@pytest.mark.parametrize("command", SERVING)
def test_servers_contact_nothing(command: str, work: Path) -> None:
    process = subprocess.Popen(
        [str(work / "venv/bin/python"), "-m", "danseo", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(DANSEO_CACHE=str(work / "cache"), COMMAND=command),
        cwd=work,
    )
    try:
        assert process.stdout
        found = (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in process.stdout)
        address = next(match.group() for match in found if match)
        for _ in range(100):  # the address is printed a moment before it answers
            with suppress(urllib.error.URLError):
                assert urllib.request.urlopen(address, timeout=30).status == 200
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"{address} does not answer")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert read_attempts(work) == []


@pytest.mark.nightly
@pytest.mark.lengthy
def test_a_cluster_of_ray_stays_on_this_machine(work: Path) -> None:
    """What Ray does outside of Python is not seen here; its address decides where that listens and connects."""
    pytest.importorskip("ray")
    command = "sweep grid.toml --data sample --runs rays --executor ray"
    codes = run(work, command)
    assert read_attempts(work) == []
    assert codes == {command: 0}
