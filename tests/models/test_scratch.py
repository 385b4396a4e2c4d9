"""Encoders from nothing: the same texts give the same checkpoint, in any process."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from danseo.errors import DanseoError
from danseo.models.scratch import Size, make_encoder

SMALL = Size(layers=1, hidden=32, heads=2, vocabulary=200, positions=64)
CODE = """
import sys
from pathlib import Path
from danseo.models.scratch import Size, make_encoder
texts = [f"{a}{b}는 {c}에서 {b}{a}를 본다." for a in "가나다라마" for b in "바사아자" for c in ("서울", "부산", "제주")]
make_encoder(Path(sys.argv[1]), texts, "bert", Size(layers=1, hidden=32, heads=2, vocabulary=60, positions=64))
"""


def test_two_processes_make_the_same_encoder(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        subprocess.run([sys.executable, "-c", CODE, str(tmp_path / name)], check=True, timeout=120)
        files = ("tokenizer.json", "model.safetensors")
        digests.append([hashlib.sha256((tmp_path / name / file).read_bytes()).hexdigest() for file in files])
    assert digests[0] == digests[1]


def test_an_unknown_family_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DanseoError, match="no encoder family 'gpt'; known: bert, roberta"):
        make_encoder(tmp_path, ["가나다"], "gpt", SMALL)
