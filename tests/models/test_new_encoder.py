import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from danseo.errors import DanseoError
from danseo.models.new_encoder import SPECIALS, EncoderSize, make_encoder, train_tokenizer

SMALL = EncoderSize(layers=1, hidden=32, heads=2, vocabulary=200, positions=64)
TRAIN = """
import sys
from danseo.mlm.probing.items import read_bundled_items
from danseo.models.new_encoder import EncoderSize, train_tokenizer
texts = sorted({item.text for item in read_bundled_items()})
for architecture in ("bert", "xlm-roberta"):
    print(train_tokenizer(texts, architecture, EncoderSize(vocabulary=900)).backend_tokenizer.to_str())
"""


def test_token_ids_follow_the_alphabet(tmp_path: Path) -> None:
    texts = [f"{a}{b}는 {c}에서 {b}{a}를 본다." for a in "가나다라마" for b in "바사아자" for c in ("서울", "부산")]
    tokenizer = AutoTokenizer.from_pretrained(make_encoder(tmp_path, texts, "bert", SMALL))
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    assert tokens == [*SPECIALS, *sorted(tokens[len(SPECIALS) :])]
    assert tokenizer.tokenize("가바는 서울에서 본다.")[-1] == "."


@pytest.mark.lengthy
def test_two_processes_train_the_same_tokenizers() -> None:
    printed = [subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, check=True).stdout for _ in range(2)]
    first, second = (hashlib.sha256(text).hexdigest() for text in printed)
    assert first == second


@pytest.mark.parametrize(("architecture", "word"), [("gpt", "modernbert"), ("xlm-roberta", "vocab_size")])
def test_bad_arguments_give_one_line(architecture: str, word: str) -> None:
    with pytest.raises(DanseoError, match=word):
        make_encoder(Path("never"), ["가나다라마바사"], architecture, EncoderSize(1, 32, 2, 5, 64))


def test_rare_letters_of_unigrams_are_tokens() -> None:
    tokenizer = train_tokenizer(["서울 서울 서울 부산 뷁", "서울 부산 쀍"], "xlm-roberta", SMALL)
    assert tokenizer.unk_token_id not in tokenizer("뷁쀍")["input_ids"]
