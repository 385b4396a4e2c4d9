import numpy as np
import pytest

from danseo.config.base import update_config
from danseo.config.mlm import PretrainConfig
from danseo.errors import DanseoError
from danseo.mlm.masking import BEGINS, CONTINUES, SPECIAL
from danseo.mlm.packing import (
    PackedRows,
    encode_documents,
    find_special_tokens,
    mark_units,
    pack_texts,
    read_facts,
    split_into_parts,
    stream_documents,
    write_packed,
)
from danseo.text.documents import Document


def parts(lengths: list[int], splits: list[str] | None = None):
    """Yield documents of one part each, whose tokens are their number."""
    for number, length in enumerate(lengths):
        ids = np.full(length, number + 10)
        marks = np.full(length, BEGINS)
        marks[[0, -1]] = SPECIAL
        yield (splits or ["train"] * len(lengths))[number], number, ids, marks


@pytest.mark.parametrize("pack", [True, False])
def test_every_part_is_in_exactly_one_row(tmp_path, pack):
    lengths = np.random.default_rng(3).integers(3, 65, 400).tolist()
    write_packed(tmp_path / "p", parts(lengths), 1000, 64, pack)
    rows = PackedRows(tmp_path / "p" / "train")
    seen = []
    for row in rows:
        assert len(row) <= 64
        start = 0
        for length in row.fields["parts"]:
            part = row.ids[start : start + length]
            assert len(set(part)) == 1, "a part holds one document"
            seen.append((int(part[0]) - 10, int(length)))
            start += length
        assert start == len(row)
        assert len(row.fields["marks"]) == len(row)
    assert sorted(seen) == sorted(enumerate(lengths))
    assert rows.lengths().tolist() == [len(row) for row in rows]
    if pack:
        assert len(rows) < 1.1 * sum(lengths) / 64 + 32
    else:
        assert len(rows) == 400


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_special_tokens_in_text_are_text(tokenizers, family):
    document = Document("a:1", "a", "서울 [MASK] 안[SEP]녕 [PAD][CLS]")
    ((_, ids, _),) = encode_documents([document], tokenizers[family], "none")
    tokenizer = tokenizers[family]
    assert not set(ids.tolist()) & (set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})


def test_failure_leaves_no_folder(tmp_path):
    def broken():
        yield from parts([5, 6])
        raise DanseoError("no")

    with pytest.raises(DanseoError):
        write_packed(tmp_path / "p", broken(), 1000, 64, True)
    assert list(tmp_path.iterdir()) == []


def test_documents_are_split_before_a_word():
    marks = np.array([BEGINS, CONTINUES, CONTINUES, BEGINS, CONTINUES, BEGINS, CONTINUES, CONTINUES, BEGINS])
    cut = [part.tolist() for part, _ in split_into_parts(np.arange(9), marks, 4)]
    assert cut == [[0, 1, 2], [3, 4], [5, 6, 7, 8]]
    endless = [len(part) for part, _ in split_into_parts(np.arange(10), np.zeros(10), 4)]
    assert endless == [4, 4, 2]


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_eojeols_begin_after_spaces(tokenizers, family):
    text = "서울은 대한민국의 수도(首都)이다.\n한강이 흐른다"
    tokenizer = tokenizers[family]
    encoding = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    marks = mark_units(text, encoding.offsets)
    begun = [text[start:].lstrip()[:2] for (start, _), mark in zip(encoding.offsets, marks, strict=True) if mark]
    assert begun == ["서울", "대한", "수도", "한강", "흐른"]
    with_morphemes = mark_units(text, encoding.offsets, [(0, 2), (2, 3), (4, 8), (8, 9)])
    assert with_morphemes.sum() >= marks.sum()


def test_special_tokens_surround_every_part(tokenizers, tmp_path, text_file):
    config = update_config(PretrainConfig(), {"seq_len": 32, "held_out_ratio": 0.3})
    tokenizer = tokenizers["bert"]
    pack_texts(tmp_path / "p", [text_file], tokenizer, config)
    assert find_special_tokens(tokenizer) == ([2], [3])
    for split in ("train", "held_out"):
        for row in PackedRows(tmp_path / "p" / split, 20):
            start = 0
            for length in row.fields["parts"]:
                part = row.ids[start : start + length]
                assert (part[0], part[-1]) == (2, 3)
                assert not {2, 3} & set(part[1:-1].tolist())
                start += length
            assert ((row.fields["marks"] == SPECIAL) == np.isin(row.ids, (2, 3))).all()


def test_splits_share_no_document(tokenizers, tmp_path, text_file):
    config = update_config(PretrainConfig(), {"seq_len": 512, "held_out_ratio": 0.3, "packing": False})
    documents = list(stream_documents([text_file]))
    pack_texts(tmp_path / "p", [text_file], tokenizers["bert"], config)
    facts = read_facts(tmp_path / "p")
    assert facts["train"].documents + facts["held_out"].documents == len(documents)
    rows = {split: {tuple(row.ids) for row in PackedRows(tmp_path / "p" / split)} for split in ("train", "held_out")}
    assert not rows["train"] & rows["held_out"]
