"""Particles after nouns, and the correction of boundaries with and without Kiwi."""

from unicodedata import normalize

import pytest

from danseo.text import particles
from danseo.text.particles import ParticleFixer, split_particles


@pytest.mark.parametrize(
    ("noun", "text", "expected"),
    [
        ("김철수", "는", ("는",)),
        ("서울", "에서만은", ("에서", "만", "은")),
        ("서울", "로부터", ("로", "부터")),
        ("부산", "으로", ("으로",)),
        ("NATO", "은", ("은",)),
        ("NATO", "는", ("는",)),
        ("최수", "아", ()),  # 아 follows consonants
        ("김철수", "은", ()),
        ("서울", "으로", ()),
        ("부산", "로", ()),
        ("경기", "도의", ()),  # nothing follows 도
        ("서울", "에 서", ()),
        ("서울", "시는", ()),
        ("서울", "", ()),
        (" ", "은", ()),
    ],
)
def test_particles_have_an_order_and_forms(noun: str, text: str, expected: tuple[str, ...]) -> None:
    assert split_particles(noun, text) == expected


def fix(fixer: ParticleFixer, text: str, entity: str) -> str:
    start = text.index(entity)
    ((end,),) = fixer.find_ends([text], [[(start, start + len(entity))]])
    return text[start:end]


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> ParticleFixer:
    monkeypatch.setattr(particles, "is_installed", lambda package: False)
    return ParticleFixer()


@pytest.fixture(scope="module")
def kiwi() -> ParticleFixer:
    pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")
    return ParticleFixer()


NAMES = [
    "배우 최수아 씨가 왔다.",
    "최수아는 왔다.",
    "박지은 감독은 말했다.",
    "김정은 위원장이 왔다.",
    "제주도에서 만났다.",
    "벨기에의 수도",
    "종로를 걸었다.",
]


@pytest.mark.parametrize("text", NAMES)
@pytest.mark.parametrize("way", ["rules", "kiwi"])
def test_names_that_end_like_particles_survive(way: str, text: str, request: pytest.FixtureRequest) -> None:
    fixer = request.getfixturevalue(way)
    assert fixer.name == way
    name = next(n for n in ("최수아", "박지은", "김정은", "제주도", "벨기에", "종로") if n in text)
    assert fix(fixer, text, name) == name


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("way", ["rules", "kiwi"])
def test_a_particle_is_removed(way: str, form: str, request: pytest.FixtureRequest) -> None:
    fixer = request.getfixturevalue(way)
    text, entity, expected = (normalize(form, each) for each in ("😀 이번에 서울에서는 비가 왔다.", "서울에서", "서울"))
    assert fix(fixer, text, entity) == expected
    assert fix(fixer, text, normalize(form, "서울에서는")) == expected


def test_kiwi_knows_more(kiwi: ParticleFixer, rules: ParticleFixer) -> None:
    text = "미국 워싱턴DC의 의사당"
    assert fix(kiwi, text, "워싱턴DC의") == "워싱턴DC"
    assert fix(rules, text, "워싱턴DC의") == "워싱턴DC의"  # 의 ends too many nouns, such as 회의
    assert fix(kiwi, "최수아는 왔다.", "최수") == "최수아"  # 아는 is no particle
    assert fix(kiwi, "전남도가 밝혔다.", "전남") == "전남도"
    assert fix(kiwi, "제주도 갔다.", "제주") == "제주"  # 도 may be one


def test_odd_texts_are_left_alone(kiwi: ParticleFixer) -> None:
    for text in ("\ud800에서", "는", " 에서", "ᄏᄏ는"):
        assert list(kiwi.find_ends([text], [[(0, 1)]])) == [[1]]
