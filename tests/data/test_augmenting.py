"""Made examples: entities stay where they are said to be, labels follow, and each names its origin."""

import random
from collections import Counter

import pytest

from danseo.data.augmenting import SIGNS, augmented, inverse_of, made_counts, origin_of, with_signs
from danseo.errors import DanseoError
from danseo.records import Entity, RelationExample, TextExample
from danseo.sample.korean import final_consonant
from danseo.tasks import TASKS
from tests.tiny import read_split

RE = TASKS["re"]


def relation(guid: str, text: str, subject: str, other: str, gold: str, types: tuple[str, str]) -> RelationExample:
    entities = [
        Entity(w, text.index(w), text.index(w) + len(w), t) for w, t in zip((subject, other), types, strict=True)
    ]
    return RelationExample(guid, text, *entities, gold)


@pytest.fixture(scope="module")
def train(sample):
    return read_split(sample, "re", "train")


@pytest.mark.parametrize("way", ["aeda", "swap", "inverse"])
def test_entities_stand_where_they_are_said_to_be(train, way):
    found = augmented(RE, train, way, seed=1)
    assert found[: len(train)] == train
    made = found[len(train) :]
    assert made
    assert made_counts(found) == {way: len(made)}
    originals = {example.guid: example for example in train}
    for new in made:
        old = originals[origin_of(new.guid)]
        assert new.guid == f"{old.guid}+{way}"
        for entity in (new.subject, new.object):
            assert new.text[entity.start : entity.end] == entity.word
        assert (new.text, new.subject, new.object) != (old.text, old.subject, old.object)
    assert augmented(RE, train, way, seed=1) == found
    if way != "inverse":
        assert augmented(RE, train, way, seed=2) != found


def test_signs_stand_between_words_outside_the_entities():
    old = relation(
        "a",
        "조지 해리슨이 쓰고 비틀즈가 1969년 앨범에 담은 노래",
        "비틀즈",
        "조지 해리슨",
        "no_relation",
        ("ORG", "PER"),
    )
    for seed in range(30):
        new = with_signs(old, random.Random(seed))
        added = Counter(new.text) - Counter(old.text)
        assert 1 <= sum(added[sign] for sign in SIGNS) <= 2
        assert new.object.word in new.text
        assert "".join(c for c in new.text if c not in SIGNS + " ") == old.text.replace(" ", "")
    assert with_signs(TextExample("b", "한낱말", "사회"), random.Random(1)).text == "한낱말", "no gap, no sign"


def test_a_pair_gets_signs_too(sample):
    train = read_split(sample, "nli", "train", 5)
    made = augmented(TASKS["nli"], train, "aeda", 1)[5:]
    assert all(new.pair != old.pair for new, old in zip(made, train, strict=True))


def test_other_entities_have_the_type_and_the_ending_that_particles_need(train):
    originals = {example.guid: example for example in train}
    words = {(e.type, e.word) for example in train for e in (example.subject, example.object)}
    for new in augmented(RE, train, "swap", 1)[len(train) :]:
        old = originals[origin_of(new.guid)]
        assert new.gold == old.gold
        for now, before in ((new.subject, old.subject), (new.object, old.object)):
            assert (now.type, now.word) in words
            assert now.type == before.type
            assert bool(final_consonant(now.word)) == bool(final_consonant(before.word))


def test_the_inverse_of_a_relation():
    text = "강혜숙과 박종훈은 부부다"
    pairs = {
        "per:parents": "per:children",
        "per:children": "per:parents",
        "per:spouse": "per:spouse",
        "per:siblings": "per:siblings",
        "per:colleagues": None,
        "no_relation": None,
    }
    for label, other in pairs.items():
        assert inverse_of(relation("a", text, "강혜숙", "박종훈", label, ("PER", "PER"))) == other
    members = relation("b", "연맹에는 서울과 학교가 있다", "연맹", "서울", "org:members", ("ORG", "LOC"))
    assert inverse_of(members) is None, "a place is no subject"
    assert (
        inverse_of(relation("c", "연맹에는 학교가 있다", "연맹", "학교", "org:members", ("ORG", "ORG")))
        == "org:member_of"
    )
    one = relation("d", text, "강혜숙", "박종훈", "per:spouse", ("PER", "PER"))
    other = relation("e", text, "박종훈", "강혜숙", "per:spouse", ("PER", "PER"))
    assert augmented(RE, [one, other], "inverse", 1) == [one, other], "what is there is not made again"


@pytest.mark.parametrize(
    ("task", "text", "words"),
    [
        ("re", "eda", "'eda' is none of aeda, swap, inverse"),
        ("ynat", "aeda,swap", "ynat has no examples that it can change"),
        ("ner", "aeda", "ner has no examples"),
    ],
)
def test_a_wrong_way_is_one_line(task, text, words):
    with pytest.raises(DanseoError, match=words):
        augmented(TASKS[task], [], text, 1)


def test_a_guid_that_is_taken_is_refused(train):
    from dataclasses import replace

    taken = replace(train[1], guid=f"{train[0].guid}+aeda")
    with pytest.raises(DanseoError, match=r"is called .* already"):
        augmented(RE, [train[0], taken], "aeda", 1)
