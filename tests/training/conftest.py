"""What the tests of training share: one tiny encoder and models made of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.tiny import quick_config, read_split, tiny_encoder


@pytest.fixture(scope="session")
def bert(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No dropout, so that a step is the same however its batch is divided."""
    return tiny_encoder(tmp_path_factory.mktemp("bert") / "tiny", sample)


@pytest.fixture
def prepared(sample: Path, bert: Path) -> Callable:
    """An encoder that has encoded some examples of a task, and the engine it computes with."""
    from danseo.models.encoder.model import Encoder
    from danseo.tasks import TASKS
    from danseo.training.distributed import Workers

    def make(task: str, examples: int = 24, **settings):
        config = quick_config(task, bert, **settings)
        model = Encoder(config, TASKS[task], Workers("cpu"))
        model.prepare(read_split(sample, task, "train", examples), read_split(sample, task, "dev", 8))
        return model

    return make
