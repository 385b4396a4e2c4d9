"""Pieces of morphemes: none swallows a particle, longest match keeps to their borders, and Kiwi is not needed again."""

from collections import Counter

import pytest

pytest.importorskip("torch")
pytest.importorskip("kiwipiepy")

from danseo.errors import DanseoError
from danseo.models.scratch import SPECIALS, wordpiece_tokenizer
from danseo.pretraining import pieces
from danseo.pretraining.config import PretrainConfig
from danseo.pretraining.pieces import count_words, kept_pieces, morpheme_pieces
from danseo.pretraining.pretrain import PretrainJob, pretrain
from danseo.settings.values import parse_setting, with_settings

NOUNS = ("한국", "서울", "부산", "대학교", "도서관", "자동차", "바다", "학생")
PARTICLES = ("은", "는", "이", "가", "을", "를", "에서", "의", "까지")
SENTENCES = [f"{noun}{particle} {other}의 {noun}" for noun in NOUNS for particle in PARTICLES for other in NOUNS]


def test_words_are_counted_in_their_morphemes():
    words = count_words(["서울의 하늘은 아름다운 빛이다.", "서울의 2024년"])
    assert words["서울", "의"] == 2
    assert words["아름다운",] == 1, "two morphemes that share a syllable are one"
    assert words["빛", "이", "다"] == 1
    assert words["2024", "년"] == 1
    assert words[".",] == 1


def test_no_piece_swallows_a_particle(monkeypatch):
    """With the words of a text whose particles are more frequent than any noun."""
    monkeypatch.setattr(pieces, "count_words", lambda texts, on_note: given())
    found = morpheme_pieces([], 400)
    tokenizer = wordpiece_tokenizer(found, 64)
    assert tokenizer.tokenize("한국은 대학교에서 자동차를") == [
        *("한국", "##은"),
        *("대학교", "##에서"),
        *("자동차", "##를"),
    ]
    assert not any(piece.endswith(noun + "은") for noun in NOUNS for piece in found)
    assert found == sorted(found)
    assert not set(SPECIALS) & set(found)


def given() -> Counter[tuple[str, ...]]:
    return Counter({(noun, particle): 50 for noun in NOUNS for particle in PARTICLES})


def test_a_piece_that_crosses_borders_is_dropped(monkeypatch):
    """Five letters are a word of their own, and far more often the beginning of another with a particle."""
    words = Counter({("나이",): 3, ("나", "이"): 300, ("나", "를"): 300, ("다이",): 300, ("다", "를"): 300})
    monkeypatch.setattr(pieces, "count_words", lambda texts, on_note: words)
    found = morpheme_pieces([], 400)
    assert "나이" not in found
    assert "다이" in found


def test_at_most_so_many_and_every_syllable_both_ways():
    found = morpheme_pieces(SENTENCES, 400)
    assert len(found) + len(SPECIALS) <= 400
    for letter in "한국서울부산는에9zㅋ":
        assert {letter, f"##{letter}"} <= set(found)


def test_more_letters_than_room_leave_only_letters():
    assert all(len(piece.removeprefix("##")) == 1 for piece in morpheme_pieces(SENTENCES, 20))


def test_kiwi_runs_once_per_text(tmp_path, monkeypatch):
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path))
    notes: list[str] = []
    first = kept_pieces(["text"], SENTENCES[:50], 400, notes.append)
    assert notes == ["morphemes of 50 documents counted"]
    assert kept_pieces(["text"], (), 400, notes.append) == first
    assert len(notes) == 1
    assert kept_pieces(["other text"], SENTENCES[50:], 400, notes.append) != first


def configured(*settings: str) -> PretrainConfig:
    chosen = (
        "layers=1",
        "hidden=16",
        "heads=2",
        "seq_len=32",
        "held_out=0.3",
        "steps=1",
        "precision=fp32",
        "threads=1",
    )
    return with_settings(PretrainConfig(), dict(parse_setting(each, PretrainConfig) for each in (*chosen, *settings)))


def test_a_training_with_pieces_of_morphemes(tmp_path, monkeypatch):
    from transformers import AutoTokenizer

    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(SENTENCES), "utf-8")
    config = configured("model.pieces=morpheme", "vocabulary=400")
    run = pretrain(PretrainJob(config, (text,), device="cpu", quiet=True), tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(run.path / "model")
    assert len(tokenizer) <= 400
    assert tokenizer.tokenize("부산에서 도서관까지") == ["부산", "##에서", "도서관", "##까지"]


def test_unigrams_have_no_such_pieces(tmp_path):
    config = configured("model.pieces=morpheme", "family=xlm-roberta")
    with pytest.raises(DanseoError, match="xlm-roberta has unigrams"):
        pretrain(PretrainJob(config, (tmp_path / "text.txt",)), tmp_path / "run")
