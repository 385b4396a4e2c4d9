"""Perturbed texts: every span has its new place, and equal seeds change texts in the same way."""

from random import Random
from unicodedata import normalize

import pytest

from danseo.text.perturbations import (
    PERTURBATIONS,
    Edit,
    add_slang,
    apply_edits,
    change_endings,
    change_spans,
    join_syllable,
    make_change,
    mistype,
    split_syllable,
)

TEXT = '구글은 "서울에서 감사하다"라고 3.5배 늘었다. 미국 대통령이 왔습니다'


def test_spans_follow_edits_before_after_and_inside():
    text = "가나 다라 마바"
    changed = apply_edits(text, [Edit(0, 1, "GGG"), Edit(2, 3, ""), Edit(5, 5, "!"), Edit(7, 8, "xy")])
    assert changed.text == "GGG나다라! 마xy"
    places = {(0, 2): "GGG나", (3, 5): "다라", (0, 5): "GGG나다라", (6, 8): "마xy", (2, 5): "다라"}
    for span, expected in places.items():
        start, end = changed.map_span(span)
        assert changed.text[start:end] == expected


def test_edits_across_a_border_and_symbols_inside_are_left_out():
    edits = [Edit(1, 3, "X"), Edit(4, 4, "😀"), Edit(5, 5, " ")]
    assert apply_edits("가나다라마바사", edits, [(2, 7)]).text == "가나다라마 바사"
    assert apply_edits("가나다라마바사", edits, [(3, 4)]).text == "가X라😀마 바사"


def test_a_span_is_never_deleted():
    text, spans = change_spans("가 ? 나", [(2, 3)], lambda text, spans: apply_edits(text, [Edit(2, 3, "")], spans))
    assert (text, spans) == ("가 ? 나", [(2, 3)])


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_perturbations_change_the_text_and_depend_on_the_seed_only(name):
    spans = [(0, 2), (5, 7), (TEXT.index("대통령"), TEXT.index("대통령") + 3)]
    first = make_change(name, "1")(TEXT, spans)
    assert first.text != TEXT
    assert make_change(name, "1")(TEXT, spans) == first
    places = [first.map_span(span) for span in spans]
    assert all(start < end for start, end in places)
    assert places == sorted(places)
    for blank in ("", "...", " "):
        assert bool(make_change(name, "1")(blank, ()).text.strip()) >= bool(blank.strip())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no_spaces", '구글은"서울에서감사하다"라고3.5배늘었다.미국대통령이왔습니다'),
        ("latin", TEXT.replace("구글", "Google").replace("서울", "Seoul").replace("미국", "USA")),
        ("hanja", TEXT.replace("미국", "美").replace("대통령", "大統領")),
        ("nfd", normalize("NFD", TEXT)),
    ],
)
def test_changes_without_chance(name, expected):
    assert make_change(name, "1")(TEXT, ()).text == expected


def test_slang_thanks_nobody_in_the_names_of_auditors():
    text = apply_edits("감사원과 감사관실, 감사합니다", add_slang("감사원과 감사관실, 감사합니다", Random(1))).text
    assert text.startswith("감사원과 감사관실, ㄱㅅ합니다")


def test_typos_are_on_neighbouring_keys():
    found = {mistype("간", Random(seed))[0].new for seed in range(200)}
    assert {"산", "단", "긴", "건"} <= found
    assert not {"한", "칸"} & found
    assert all(join_syllable(*split_syllable(each)) == each for each in "가힣뷁")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("밥을 먹는다.", {"먹습니다."}),
        ("학교에 간다", {"갑니다"}),
        ("늦게 왔다!", {"왔습니다!", "왔어요!"}),
        ("그것이 사실이다.", {"사실입니다.", "사실이에요."}),
        ("가능합니다", {"가능해요"}),
        ("푸른 바다", {"바다"}),
    ],
)
def test_endings_of_politeness(text, expected):
    found = {apply_edits(text, change_endings(text, Random(seed))).text.split(" ")[-1] for seed in range(20)}
    assert found == expected
