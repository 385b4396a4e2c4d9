"""Morphemes of the real analyser: found at the right letters and masked completely."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from danseo.config.base import update_config
from danseo.config.mlm import PretrainConfig
from danseo.mlm.masking import CONTINUES, SPECIAL, choose_positions, make_step_generator
from danseo.mlm.packing import encode_documents, find_morpheme_spans
from danseo.mlm.run_folder import prepare_packed_rows
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.models.new_encoder import SPECIALS
from danseo.text.documents import Document
from danseo.training.distributed import Workers

UNITS = {
    "서울의 하늘은 아름다운 빛이었다.": "서울 의 하늘 은 아름다운 빛 이 었 다 .",
    "😀 오늘은 🎉🎉 축하를 받았다!": "😀 오늘 은 🎉 🎉 축하 를 받 았 다 !",
    "조선(朝鮮)의 수도는 한양(漢陽)이다.": "조선 ( 朝鮮 ) 의 수도 는 한양 ( 漢陽 ) 이 다 .",
    "우리는 Python으로 2024년에 3.5배 빠른 server를 만들었다.": (
        "우리 는 Python 으로 2024 년 에 3.5 배 빠른 server 를 만들 었 다 ."
    ),
    "학교에  갔다가\n집에\t돌아왔다": "학교 에 갔 다가 집 에 돌아왔 다",
    "날이 추워서 도서관을 나섰다": "날 이 추워서 도서관 을 나섰 다",
    "가수 조지 칼린의 공연": "가수 조지칼린 의 공연",
}
TEXTS = (
    *UNITS,
    "아침에 눈을 뜨니 창밖에는 밤새 내린 눈이 소복이 쌓여 있었고, 멀리 북한산(北漢山) 봉우리가 하얗게 빛났다.",
    "새로운 스마트폰은 AI 기능을 갖췄지만 값이 120만 원이나 되어서 😅 선뜻 사지 못하는 사람이 많았다고 한다.",
    "그는 어려운 문제를 풀어 보려고 애썼으나, 도와줄 사람을 구하지 못해 결국 https://example.com/help 를 열었다.",
    "할머니께서 끓여 주신 된장찌개 냄새가 온 집 안에 퍼지자 아이들은 밥상으로 달려와 둘러앉았다.",
)


@pytest.fixture(scope="module")
def syllables():
    """A tokenizer with a token for every letter, so that units can be read."""
    letters = sorted({letter for text in TEXTS for letter in text if not letter.isspace()})
    tokens = [*SPECIALS, *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(models.WordPiece({token: k for k, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", mask_token="[MASK]")


@pytest.fixture(scope="module")
def byte_tokenizer():
    """A tokenizer whose tokens may be a third of a syllable or a quarter of an emoji."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    names = {"vocab_size": 340, "special_tokens": list(SPECIALS), "show_progress": False, "initial_alphabet": alphabet}
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(**names))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", mask_token="[MASK]")


def documents(texts=TEXTS) -> list[Document]:
    return [Document(str(number), "s", text) for number, text in enumerate(texts)]


@pytest.mark.parametrize("text", UNITS)
def test_units_are_the_morphemes_of_the_text(syllables, text):
    """Two that share a syllable (아름답 + 은 in 아름다운), or a name with a space, are one."""
    ((_, ids, marks),) = encode_documents(documents([text]), syllables, "morpheme")
    tokens = [token.removeprefix("##") for token in syllables.convert_ids_to_tokens(ids.tolist())]
    units = "".join((" " if mark != CONTINUES else "") + token for token, mark in zip(tokens, marks, strict=True))
    assert units.strip() == UNITS[text]


def find_torn_morphemes(tokenizer, text: str, masked: set[int]) -> list[str]:
    """The morphemes of which some tokens are masked and others are not."""
    (encoding,), (spans,) = EncoderTokenizer(tokenizer, 0).tokenize([text]), find_morpheme_spans([text])
    torn = []
    for start, end in spans:
        touching = {k for k, (first, last) in enumerate(encoding.offsets) if first < end and last > start}
        if touching & masked and touching - masked:
            torn.append(text[start:end])
    return torn


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "syllables", "byte_tokenizer"])
def test_morphemes_are_masked_completely(name, tokenizers, request):
    tokenizer = tokenizers[name] if name in tokenizers else request.getfixturevalue(name)
    several = 0
    for document, _, marks in encode_documents(documents(), tokenizer, "morpheme"):
        for step in range(20):
            positions = set(choose_positions(marks, 0.15, make_step_generator(1, step, 0), whole=True).tolist())
            assert not find_torn_morphemes(tokenizer, document.text, positions), document.text
        several += int((marks == CONTINUES).sum())
    assert several > 20, "else nothing could be torn"


def test_split_unit_ends_at_the_document():
    marks = np.array([SPECIAL, 1, 1, 1, SPECIAL, SPECIAL, CONTINUES, CONTINUES, SPECIAL])
    for step in range(20):
        positions = set(choose_positions(marks, 0.2, make_step_generator(1, step, 0), whole=True).tolist())
        assert positions in ({1}, {2}, {3}, {6, 7})


def test_cache_depends_on_the_analyser(tokenizers, tmp_path, monkeypatch):
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path))
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(TEXTS), "utf-8")
    config = update_config(PretrainConfig(), {"seq_len": 64, "held_out_ratio": 0.5, "whole_word": "morpheme"})
    arguments = config, [text], frozenset[str](), tokenizers["bert"], Workers("cpu")
    first, _ = prepare_packed_rows(*arguments)
    assert prepare_packed_rows(*arguments)[0] == first
    monkeypatch.setattr("danseo.text.morphology.KiwiAnalyser.version", "kiwipiepy 0")
    assert prepare_packed_rows(*arguments)[0] != first
