import json
from pathlib import Path

import pytest

from ...conftest import ROOT
from .tiny import save_pair, tiny_pair


@pytest.fixture(scope="session")
def golden():
    return json.loads((ROOT / "tests" / "fixtures" / "probing.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def pair():
    return tiny_pair()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory, pair) -> Path:
    """A folder of two checkpoints."""
    folder = tmp_path_factory.mktemp("training")
    for step, seed in ((20, 0), (100, 1)):
        checkpoint = save_pair(folder / f"checkpoint-{step}", pair if not seed else tiny_pair(seed=seed))
        (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": step / 40}))
    return folder
