"""Encoders from nothing."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from danseo.errors import DanseoError
from danseo.models.scratch import SPECIALS, Size, make_encoder

SMALL = Size(layers=1, hidden=32, heads=2, vocabulary=200, positions=64)


def test_pieces_are_numbered_by_name(tmp_path: Path) -> None:
    """The trainer numbers pieces at random; sorted, the same pieces make the same checkpoint."""
    texts = [
        f"{a}{b}는 {c}에서 {b}{a}를 본다." for a in "가나다라마" for b in "바사아자" for c in ("서울", "부산", "제주")
    ]
    tokenizer = AutoTokenizer.from_pretrained(make_encoder(tmp_path, texts, "bert", SMALL))
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    assert pieces == [*SPECIALS, *sorted(pieces[len(SPECIALS) :])]
    assert tokenizer.tokenize("가바는 서울에서 본다.")[-1] == "."


def test_an_unknown_family_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DanseoError, match="no encoder family 'gpt'; known: bert, roberta"):
        make_encoder(tmp_path, ["가나다"], "gpt", SMALL)
