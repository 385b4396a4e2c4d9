"""Augmented examples: entities have the right positions, labels follow, and each guid names its origin."""

import random
from collections import Counter

import pytest

from danseo.data.augmentation import (
    PUNCTUATION,
    augment_examples,
    count_augmented,
    find_inverse,
    get_origin,
    insert_punctuation,
)
from danseo.errors import DanseoError
from danseo.records import Entity, RelationExample, TextExample
from danseo.tasks import TASKS
from danseo.text.morphology import particle_class
from tests.tiny import read_split

RE = TASKS["re"]


def relation(guid, text, subject, object_, gold, types):
    words = zip((subject, object_), types, strict=True)
    return RelationExample(guid, text, *(Entity(w, text.index(w), text.index(w) + len(w), t) for w, t in words), gold)


@pytest.fixture(scope="module")
def train(sample):
    return read_split(sample, "re", "train")


@pytest.mark.parametrize("method", ["aeda", "swap", "inverse"])
def test_entities_have_the_right_positions(train, method):
    examples = augment_examples(RE, train, method, seed=1)
    assert examples[: len(train)] == train
    augmented = examples[len(train) :]
    assert augmented
    assert count_augmented(examples) == {method: len(augmented)}
    originals = {example.guid: example for example in train}
    for new in augmented:
        old = originals[get_origin(new.guid)]
        assert new.guid == f"{old.guid}+{method}"
        for entity in (new.subject, new.object):
            assert new.text[entity.start : entity.end] == entity.word
        assert (new.text, new.subject, new.object) != (old.text, old.subject, old.object)
    assert augment_examples(RE, train, method, seed=1) == examples
    if method != "inverse":
        assert augment_examples(RE, train, method, seed=2) != examples


def test_punctuation_is_between_words_outside_of_entities():
    text = "조지 해리슨이 쓰고 비틀즈가 1969년 앨범에 담은 노래"
    old = relation("a", text, "비틀즈", "조지 해리슨", "no_relation", ("ORG", "PER"))
    for seed in range(30):
        new = insert_punctuation(old, random.Random(seed))
        added = Counter(new.text) - Counter(old.text)
        assert 1 <= sum(added[mark] for mark in PUNCTUATION) <= 2
        assert new.object.word in new.text
        assert "".join(c for c in new.text if c not in PUNCTUATION + " ") == old.text.replace(" ", "")
    assert insert_punctuation(TextExample("b", "한낱말", "사회"), random.Random(1)).text == "한낱말"


def test_swapped_entities_have_the_same_type_and_particle_class(train):
    originals = {example.guid: example for example in train}
    words = {(e.type, e.word) for example in train for e in (example.subject, example.object)}
    for new in augment_examples(RE, train, "swap", 1)[len(train) :]:
        old = originals[get_origin(new.guid)]
        assert new.gold == old.gold
        for now, before in ((new.subject, old.subject), (new.object, old.object)):
            assert (now.type, now.word) in words
            assert now.type == before.type
            assert particle_class(now.word) == particle_class(before.word)


def test_the_inverse_of_a_relation():
    text = "강혜숙과 박종훈은 부부다"
    inverses = {"per:parents": "per:children", "per:children": "per:parents", "per:spouse": "per:spouse"}
    for label in (*inverses, "per:colleagues", "no_relation"):
        example = relation("a", text, "강혜숙", "박종훈", label, ("PER", "PER"))
        assert find_inverse(example) == inverses.get(label)
    for type_, inverse in {"LOC": None, "ORG": "org:member_of"}.items():  # a place is no subject
        example = relation("b", "연맹에는 서울과 학교가 있다", "연맹", "서울", "org:members", ("ORG", type_))
        assert find_inverse(example) == inverse
    one = relation("d", text, "강혜숙", "박종훈", "per:spouse", ("PER", "PER"))
    other = relation("e", text, "박종훈", "강혜숙", "per:spouse", ("PER", "PER"))
    assert augment_examples(RE, [one, other], "inverse", 1) == [one, other], "both are known"


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [("re", "eda", "unknown method"), ("ynat", "aeda,swap", "examples of ynat"), ("ner", "aeda", "examples of ner")],
)
def test_wrong_methods(task, text, message):
    with pytest.raises(DanseoError, match=message):
        augment_examples(TASKS[task], [], text, 1)
