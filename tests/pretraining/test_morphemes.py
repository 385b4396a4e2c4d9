"""Whole morphemes with the real analyser: found at the right letters, masked together, never a half."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("kiwipiepy")

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from danseo.models.encoder.pieces import Pieces
from danseo.models.scratch import SPECIALS
from danseo.pretraining.config import PretrainConfig
from danseo.pretraining.encoding import encoded, morpheme_spans, pack_texts, unit_marks
from danseo.pretraining.folders import packed_folder
from danseo.pretraining.masker import TextMasker
from danseo.pretraining.masking import CONTINUES, SPECIAL, Vocabulary, chosen, step_generator
from danseo.pretraining.packing import PackedRows
from danseo.settings.values import with_settings
from danseo.text.documents import Document
from danseo.training.workers import Workers

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
    """A tokenizer with a piece for every letter, so that units can be read."""
    letters = sorted({letter for text in TEXTS for letter in text if not letter.isspace()})
    pieces = [*SPECIALS, *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(models.WordPiece({piece: k for k, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", mask_token="[MASK]")


@pytest.fixture(scope="module")
def byte_pieces():
    """A tokenizer whose pieces may be a third of a syllable or a quarter of an emoji."""
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
    ((_, ids, marks),) = encoded(documents([text]), syllables, "morpheme")
    pieces = [piece.removeprefix("##") for piece in syllables.convert_ids_to_tokens(ids.tolist())]
    units = "".join((" " if mark != CONTINUES else "") + piece for piece, mark in zip(pieces, marks, strict=True))
    assert units.strip() == UNITS[text]


def halves(tokenizer, text: str, masked: set[int]) -> list[str]:
    """The morphemes of which some pieces are masked and others are not."""
    (encoding,), (spans,) = Pieces(tokenizer, 0).cut([text]), morpheme_spans([text])
    torn = []
    for start, end in spans:
        touching = {k for k, (first, last) in enumerate(encoding.offsets) if first < end and last > start}
        if touching & masked and touching - masked:
            torn.append(text[start:end])
    return torn


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "syllables", "byte_pieces"])
def test_never_half_a_morpheme(name, tokenizers, request):
    tokenizer = tokenizers[name] if name in tokenizers else request.getfixturevalue(name)
    several = 0
    for document, _, marks in encoded(documents(), tokenizer, "morpheme"):
        for step in range(20):
            positions = set(chosen(marks, 0.15, step_generator(1, step, 0), whole=True).tolist())
            assert not halves(tokenizer, document.text, positions), document.text
        several += int((marks == CONTINUES).sum())
    assert several > 20, "else nothing could be torn"


def test_pieces_alone_would_tear_morphemes(tokenizers):
    """What the test above forbids does happen without whole words, so it can fail."""
    torn = 0
    for document, _, marks in encoded(documents(), tokenizers["bert"], "morpheme"):
        positions = set(chosen(marks, 0.3, step_generator(1, 0, 0), whole=False).tolist())
        torn += len(halves(tokenizers["bert"], document.text, positions))
    assert torn > 5


def test_morphemes_are_smaller_than_eojeols_and_spaces_part_both(tokenizers):
    for text in TEXTS:
        encoding = Pieces(tokenizers["bert"], 0).cut([text])[0]
        (spans,) = morpheme_spans([text])
        eojeols, morphemes = unit_marks(text, encoding.offsets), unit_marks(text, encoding.offsets, spans)
        assert morphemes.sum() >= eojeols.sum() - sum(" " in text[start:end] for start, end in spans)


def test_the_share_of_masked_pieces_is_near_fifteen_percent(tokenizers, text_file, tmp_path):
    config = with_settings(PretrainConfig(), {"seq_len": 128, "held_out": 0.1, "whole_words": "morpheme"})
    pack_texts(tmp_path / "p", [text_file], tokenizers["bert"], config)
    masker = TextMasker(Vocabulary.of(tokenizers["bert"]), config.mask, 128, 42)
    masked = pieces = 0
    for row in PackedRows(tmp_path / "p" / "train"):
        positions = masker(row, 3).positions
        assert (row.fields["marks"][positions] != SPECIAL).all()
        masked, pieces = masked + len(positions), pieces + int((row.fields["marks"] != SPECIAL).sum())
    assert 0.148 < masked / pieces < 0.165


def test_a_unit_that_was_cut_does_not_reach_into_the_document_before_it():
    marks = np.array([SPECIAL, 1, 1, 1, SPECIAL, SPECIAL, CONTINUES, CONTINUES, SPECIAL])
    for step in range(20):
        positions = set(chosen(marks, 0.2, step_generator(1, step, 0), whole=True).tolist())
        assert positions in ({1}, {2}, {3}, {6, 7})


def test_rows_of_another_analyser_are_made_anew(tokenizers, tmp_path, monkeypatch):
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path))
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(TEXTS), "utf-8")
    config = with_settings(PretrainConfig(), {"seq_len": 64, "held_out": 0.5, "whole_words": "morpheme"})
    rest = config, [text], frozenset[str](), tokenizers["bert"], Workers("cpu")
    first, _ = packed_folder(*rest)
    assert packed_folder(*rest)[0] == first
    monkeypatch.setattr("danseo.text.morphology.KiwiAnalyser.version", "kiwipiepy 0")
    assert packed_folder(*rest)[0] != first
