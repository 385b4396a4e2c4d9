"""What the tests of pre-training share: a small text, tokenizers of every family, and tiny models."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from danseo.models.scratch import Size, encoder_config, train_tokenizer
from tests.tiny import FAMILIES, read_split

TINY = ("layers=1", "hidden=32", "heads=2", "vocabulary=800", "seq_len=64", "held_out=0.2", "tokenizer_documents=100")
PLAIN = ("precision=fp32", "attention=eager", "threads=1", "batch_size=8")


def masked_model(family: str, tokenizer, positions: int = 96, **measures):
    """Random weights of a family with its masked-language-model head, no dropout."""
    from transformers import AutoModelForMaskedLM

    size = Size(2, 32, 2, 800, positions, 0.0)
    torch.manual_seed(1)
    config = encoder_config(family, size, tokenizer)
    for name, value in measures.items():
        setattr(config, name, value)
    return AutoModelForMaskedLM.from_config(config).eval()


@pytest.fixture(scope="session")
def passages(sample: Path) -> list[str]:
    return list(dict.fromkeys(example.text for example in read_split(sample, "mrc", "train")))


@pytest.fixture(scope="session")
def tokenizers(passages: list[str]) -> dict:
    made = {name: train_tokenizer(passages, name, Size(vocabulary=800)) for name in ("bert", "xlm-roberta")}
    return {family: made["xlm-roberta" if family == "xlm-roberta" else "bert"] for family in FAMILIES}


@pytest.fixture(scope="session")
def text_file(passages: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About a hundred short documents with blank lines between them."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(passages) + "\n", "utf-8")
    return path
