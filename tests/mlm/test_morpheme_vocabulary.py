"""A vocabulary of morphemes: no token includes a particle, and Kiwi is not needed to tokenize."""

from collections import Counter

import pytest

pytest.importorskip("torch")
pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")

from danseo.config.base import parse_assignment, update_config
from danseo.config.mlm import PretrainConfig
from danseo.mlm import initialization
from danseo.mlm.initialization import count_words, train_morpheme_tokens
from danseo.mlm.pretraining import PretrainJob, pretrain
from danseo.models.new_encoder import SPECIALS, make_wordpiece_tokenizer

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


def test_no_token_includes_a_particle(monkeypatch):
    """With the words of a text whose particles are more frequent than any noun."""
    monkeypatch.setattr(initialization, "count_words", lambda texts, on_note: make_word_counts())
    tokens = train_morpheme_tokens([], 400)
    tokenizer = make_wordpiece_tokenizer(tokens, 64)
    assert tokenizer.tokenize("한국은 대학교에서 자동차를") == [
        *("한국", "##은"),
        *("대학교", "##에서"),
        *("자동차", "##를"),
    ]
    assert not any(token.endswith(noun + "은") for noun in NOUNS for token in tokens)
    assert tokens == sorted(tokens)
    assert not set(SPECIALS) & set(tokens)


def make_word_counts() -> Counter[tuple[str, ...]]:
    return Counter({(noun, particle): 50 for noun in NOUNS for particle in PARTICLES})


def test_token_that_crosses_morphemes_is_dropped(monkeypatch):
    """Five letters are a word of their own, and far more often the beginning of another with a particle."""
    words = Counter({("나이",): 3, ("나", "이"): 300, ("나", "를"): 300, ("다이",): 300, ("다", "를"): 300})
    monkeypatch.setattr(initialization, "count_words", lambda texts, on_note: words)
    tokens = train_morpheme_tokens([], 400)
    assert "나이" not in tokens
    assert "다이" in tokens


def make_config(*settings: str) -> PretrainConfig:
    chosen = (
        "num_hidden_layers=1",
        "hidden_size=16",
        "num_attention_heads=2",
        "seq_len=32",
        "held_out_ratio=0.3",
        "steps=1",
        "precision=fp32",
        "num_threads=1",
    )
    return update_config(
        PretrainConfig(), dict(parse_assignment(each, PretrainConfig) for each in (*chosen, *settings))
    )


def test_training_with_morpheme_tokens(tmp_path, monkeypatch):
    from transformers import AutoTokenizer

    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(SENTENCES), "utf-8")
    config = make_config("model.tokenizer=morpheme", "vocab_size=400")
    run = pretrain(PretrainJob(config, (text,), device="cpu", quiet=True), tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(run.path / "model")
    assert len(tokenizer) <= 400
    assert tokenizer.tokenize("부산에서 도서관까지") == ["부산", "##에서", "도서관", "##까지"]
