"""Entity fine-tuning on the command line: killed at any moment it ends the same, and two processes are as one."""

import json
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")

from danseo.cli import main  # noqa: E402
from danseo.models.new_encoder import EncoderSize, train_tokenizer  # noqa: E402
from tests.mlm.conftest import PLAIN, masked_model  # noqa: E402
from tests.mlm.processes import kill_when, run_two_processes, weights  # noqa: E402
from tests.mlm.test_coref import documents  # noqa: E402

pytestmark = pytest.mark.lengthy

STEPS = (5, 10, 15, 18)  # at the end of every epoch, and at the end
SETTINGS = (
    *PLAIN,
    "min_distance=5",
    "held_out_ratio=0.3",
    "max_train_items=37",
    "max_held_out_items=20",
    "steps=18",
    "learning_rate=3e-3",
)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text and a checkpoint."""
    folder = tmp_path_factory.mktemp("coref")
    (folder / "text.txt").write_text(documents(), "utf-8")
    tokenizer = train_tokenizer([documents(200)] * 2, "bert", EncoderSize(vocabulary=300))
    masked_model("bert", tokenizer, positions=96).save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    return folder


def command(workdir: Path, out: Path) -> list[str]:
    chosen = [f"--set={each}" for each in SETTINGS]
    paths = [str(workdir / "tiny"), "--text", str(workdir / "text.txt"), "--out", str(out)]
    return ["coref", *paths, "--device", "cpu", "--json", *chosen]


def finished(workdir: Path, out: Path) -> Path:
    """Run to the end in this process."""
    with pytest.raises(SystemExit) as ended:
        main(command(workdir, out))
    assert ended.value.code == 0
    return out


@pytest.fixture(autouse=True)
def cache(workdir, monkeypatch):
    monkeypatch.setenv("DANSEO_CACHE", str(workdir / "cache"))


@pytest.fixture(scope="module")
def whole(workdir: Path) -> Path:
    """One fine-tuning without interruption."""
    os.environ["DANSEO_CACHE"] = str(workdir / "cache")
    return finished(workdir, workdir / "whole")


def result(run: Path) -> dict:
    return {**json.loads((run / "result.json").read_text("utf-8")), "run": None}


def files(run: Path) -> dict[str, bytes]:
    """All but the result, which names its folder, and tokenizer_config.json, which tells whether the Hub was off."""
    found = [path for path in run.rglob("*") if path.is_file()]
    kept = [path for path in found if path.name not in ("result.json", "tokenizer_config.json")]
    return {str(path.relative_to(run)): path.read_bytes() for path in kept}


def test_killed_twice_and_resumed_byte_for_byte(workdir, whole, tmp_path, monkeypatch):
    """First in the midst of training and with a cold cache, then when only the last scores were missing."""
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "killed"
    line = ["-m", "danseo", *command(workdir, out)]
    kill_when((out / "checkpoint-10").is_dir, line)
    assert not (out / "checkpoint-18").exists()
    kill_when((out / "model").is_dir, line)
    assert not (out / "result.json").exists()
    finished(workdir, out)
    mine, theirs = files(out), files(whole)
    assert {f"checkpoint-{step}/model.safetensors" for step in STEPS} < mine.keys()
    assert sorted(mine) == sorted(theirs)
    assert [name for name in theirs if mine[name] != theirs[name]] == []
    assert result(out) == result(whole)


def numbers(document, name: str = ""):
    """Every number of a document with its place."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from numbers(value, f"{name}/{key}")
    elif isinstance(document, list):
        for workdir, value in enumerate(document):
            yield from numbers(value, f"{name}/{workdir}")
    elif isinstance(document, float):
        yield name, document


@pytest.mark.nightly
def test_two_processes_train_as_one(workdir, whole, tmp_path):
    ended = run_two_processes(["-m", "danseo", *command(workdir, tmp_path / "two")])
    assert json.loads(ended.stdout)["objectives"][0]["steps"] == 18
    one, two = (dict(numbers(result(run))) for run in (whole, tmp_path / "two"))
    assert one.keys() == two.keys()
    assert two == pytest.approx(one, abs=2e-3)
    mine, theirs = (weights(run / "checkpoint-18") for run in (tmp_path / "two", whole))
    for name in theirs:
        torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=2e-3)
