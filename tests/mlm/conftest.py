"""What the tests of pre-training share: a small text, tokenizers of every family, and tiny models."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from danseo.models.new_encoder import EncoderSize, make_encoder_config, train_tokenizer
from tests.tiny import FAMILIES, read_split

TINY = (
    "num_hidden_layers=1",
    "hidden_size=32",
    "num_attention_heads=2",
    "vocab_size=800",
    "seq_len=64",
    "held_out_ratio=0.2",
    "tokenizer_documents=100",
)
PLAIN = ("precision=fp32", "attn_implementation=eager", "num_threads=1", "batch_size=8")


def masked_model(family: str, tokenizer, positions: int = 96, **measures):
    """Random weights of a family with its masked-language-model head, no dropout."""
    from transformers import AutoModelForMaskedLM

    size = EncoderSize(2, 32, 2, 800, positions, 0.0)
    torch.manual_seed(1)
    config = make_encoder_config(family, size, tokenizer)
    for name, value in measures.items():
        setattr(config, name, value)
    return AutoModelForMaskedLM.from_config(config).eval()


@pytest.fixture(scope="session")
def passages(sample: Path) -> list[str]:
    return list(dict.fromkeys(example.text for example in read_split(sample, "mrc", "train")))


@pytest.fixture(scope="session")
def tokenizers(passages: list[str]) -> dict:
    made = {name: train_tokenizer(passages, name, EncoderSize(vocabulary=800)) for name in ("bert", "xlm-roberta")}
    return {family: made["xlm-roberta" if family == "xlm-roberta" else "bert"] for family in FAMILIES}


@pytest.fixture(scope="session")
def text_file(passages: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About a hundred short documents with blank lines between them."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(passages) + "\n", "utf-8")
    return path
