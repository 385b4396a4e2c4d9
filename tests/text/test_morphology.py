import unicodedata

import pytest

pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")

from danseo.tasks.klue.dp import TAGS
from danseo.text.morphology import get_tagger


def tag(*words: str) -> tuple[str, ...]:
    return next(get_tagger().tag_words([words]))


def test_words_have_the_tags_of_klue() -> None:
    assert tag("재판부는", "그", "두", "새", "집을", "(2채)", "지었다.") == (
        "NNG+JX", "MMD", "MMN", "MMA", "NNG+JKO", "SS+SN+NNB+SS", "VV+EP+EF+SF",
    )  # fmt: skip


def test_every_word_has_tags_that_the_parser_knows() -> None:
    signs = ("😀", "👨‍👩‍👧", "https://example.org/a", "a@example.org", "@me", "#tag", "①", "\u200b", "ﷺ", "𠮷", "漢字")
    words = (
        "가.",
        "빨리빨리",
        "ㅋㅋㅋ",
        "햌",
        "New York",
        "하닼ㅋㅋ",
        "2024-01-01",
        "010-1234-5678",
        "만둣국을",
        "그래욬",
    )
    odd = (*signs, *words)
    found = tag(*odd)
    assert len(found) == len(odd)
    assert {part for tags in found for part in tags.split("+")} <= {*TAGS}


def test_decomposed_words_have_the_same_tags() -> None:
    words = ("재판부는", "검찰의", "공정한", "수사를", "인정했다.")
    assert tag(*(unicodedata.normalize("NFD", word) for word in words)) == tag(*words)


def test_an_emoji_moves_no_tag_to_another_word() -> None:
    assert tag("😀😀😀", "학교에", "간다.")[1:] == tag("학교에", "간다.")
