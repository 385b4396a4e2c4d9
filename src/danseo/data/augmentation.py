"""Make training examples from others: perturb texts, insert punctuation (AEDA), swap entities, invert relations."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from danseo.errors import DanseoError
from danseo.records import Entity, RelationExample
from danseo.tasks.klue.re import INVERSES
from danseo.tasktypes.base import Task
from danseo.text.morphology import particle_class
from danseo.text.perturbations import PERTURBATIONS, make_change

PUNCTUATION = ".;?:!,"
_WORDS_PER_MARK = 3  # at least
_SAME_ENTITY = "alternate_names"  # does not hold for two other names
_ANY = "noise"  # one of the perturbations for each example
_METHODS = ("aeda", "swap", "inverse", _ANY, *PERTURBATIONS)


def parse_augmentations(task: Task, text: str) -> list[str]:
    """Return the methods that a setting names; raise an error if the task's examples do not allow one."""
    methods = [method.strip() for method in text.split(",") if method.strip()]
    for method in methods:
        if method not in _METHODS:
            raise DanseoError(f"train.augment = {text}: unknown method {method!r}; known: {', '.join(_METHODS)}")
        perturbations = task.type.perturbations and (_ANY, *task.type.perturbations)
        if method not in (*task.type.augmentations, *perturbations):
            raise DanseoError(f"train.augment = {method}: not possible with examples of {task.name}; leave it out")
        if method == "inverse" and not {*INVERSES} & {*task.labels}:
            raise DanseoError(f"train.augment = inverse: {task.name} has no relations with an inverse; leave it out")
    return list(dict.fromkeys(methods))


def get_origin(guid: str) -> str:
    """Return the guid of the example that an augmented one was made from; that of a real example is unchanged."""
    name, _, method = guid.rpartition("+")
    return name if method in _METHODS else guid


def augment_examples(task: Task, examples: Sequence[Any], text: str, seed: int) -> list[Any]:
    """Return the examples followed by augmented ones, whose guids name the origin and the method: GUID+aeda."""
    makers: dict[str, Callable[[Sequence[Any], str], list[Any]]]
    makers = {"aeda": _punctuate_all, "swap": _swap_all, "inverse": _invert_all}
    augmented = [
        replace(new, guid=f"{new.guid}+{method}")
        for method in parse_augmentations(task, text)
        for new in (
            makers[method](examples, f"{seed} {method}")
            if method in makers
            else _perturb_all(task, examples, method, str(seed))
        )
    ]
    guids = {example.guid for example in examples}
    if repeated := next((new.guid for new in augmented if new.guid in guids), None):
        raise DanseoError(f"train.augment: the data already has the guid {repeated}; rename it")
    return [*examples, *augmented]


def count_augmented(examples: Iterable[Any]) -> dict[str, int]:
    """Return method -> the number of augmented examples."""
    counts = Counter(
        example.guid.rpartition("+")[2] for example in examples if get_origin(example.guid) != example.guid
    )
    return dict(counts.most_common())


# Perturbed texts


def perturb_example(task: Task, example: Any, name: str, seed: str = "0") -> Any:
    """Return the example with its texts changed by a perturbation; its guid and the seed decide how."""
    return task.type.change_texts(example, make_change(name, f"{seed} {example.guid}"))


def _perturb_all(task: Task, examples: Sequence[Any], method: str, seed: str) -> list[Any]:
    """Return the examples that the perturbation, or one of all for each example, changes."""
    names = [
        random.Random(f"{seed} {each.guid}").choice(task.type.perturbations) if method == _ANY else method
        for each in examples
    ]
    perturbed = [perturb_example(task, each, name, seed) for each, name in zip(examples, names, strict=True)]
    return [new for new, old in zip(perturbed, examples, strict=True) if new != old]


# AEDA: punctuation between words


def _punctuate_all(examples: Sequence[Any], seed: str) -> list[Any]:
    punctuated = [insert_punctuation(example, random.Random(f"{seed} {example.guid}")) for example in examples]
    return [new for new, old in zip(punctuated, examples, strict=True) if new != old]


def insert_punctuation(example: Any, rng: random.Random) -> Any:
    """Return the example with punctuation between some of its words, but not inside of entities."""
    if not isinstance(example, RelationExample):
        pair = example.pair and _punctuate(example.pair, _choose_gaps(example.pair, (), rng), rng)
        return replace(example, text=_punctuate(example.text, _choose_gaps(example.text, (), rng), rng), pair=pair)
    entities = (example.subject, example.object)
    gaps = _choose_gaps(example.text, entities, rng)
    subject, object_ = (_shift(entity, 2 * sum(gap < entity.start for gap in gaps)) for entity in entities)
    return replace(example, text=_punctuate(example.text, gaps, rng), subject=subject, object=object_)


def _choose_gaps(text: str, entities: Sequence[Entity], rng: random.Random) -> list[int]:
    """Return positions of spaces outside of entities, at most one for three words."""
    inside = {position for entity in entities for position in range(entity.start, entity.end)}
    gaps = [position for position, character in enumerate(text.rstrip()) if character == " " and position not in inside]
    max_marks = max(1, (len(gaps) + 1) // _WORDS_PER_MARK)
    return sorted(rng.sample(gaps, min(len(gaps), rng.randint(1, max_marks))))


def _punctuate(text: str, gaps: Sequence[int], rng: random.Random) -> str:
    for gap in reversed(gaps):
        text = f"{text[:gap]} {rng.choice(PUNCTUATION)}{text[gap:]}"
    return text


def _shift(entity: Entity, by: int) -> Entity:
    return replace(entity, start=entity.start + by, end=entity.end + by)


# Other entities of the same type and role


def _swap_all(examples: Sequence[RelationExample], seed: str) -> list[RelationExample]:
    pools: dict[tuple[str, str, str], list[str]] = {}
    for example in examples:
        for role, entity in (("subject", example.subject), ("object", example.object)):
            pools.setdefault((role, entity.type, particle_class(entity.word)), []).append(entity.word)
    pools = {key: sorted(set(words)) for key, words in pools.items()}
    swapped = [
        swap_entities(example, pools, random.Random(f"{seed} {example.guid}"))
        for example in examples
        if not example.gold.endswith(_SAME_ENTITY) and not _have_overlap(example.subject, example.object)
    ]
    return [example for example in swapped if example is not None]


def swap_entities(
    example: RelationExample, pools: dict[tuple[str, str, str], list[str]], rng: random.Random
) -> RelationExample | None:
    """Return the example with other words of the same role, type and particle class; None if there are none."""
    subject, object_ = example.subject, example.object
    words = [
        _choose_other(pools[role, entity.type, particle_class(entity.word)], (subject.word, object_.word), entity, rng)
        for role, entity in (("subject", subject), ("object", object_))
    ]
    if words == [subject.word, object_.word] or words[0] == words[1]:
        return None
    text, first, second = example.text, subject, object_
    for entity, word in sorted(zip((subject, object_), words, strict=True), key=lambda each: -each[0].start):
        text, growth = f"{text[: entity.start]}{word}{text[entity.end :]}", len(word) - len(entity.word)
        new = replace(entity, word=word, end=entity.start + len(word))
        first = new if entity is subject else _shift(first, growth) if first.start > entity.start else first
        second = new if entity is object_ else _shift(second, growth) if second.start > entity.start else second
    return replace(example, text=text, subject=first, object=second)


def _choose_other(pool: Sequence[str], excluded: tuple[str, str], entity: Entity, rng: random.Random) -> str:
    """Return a word of the pool that the example does not have, else the word of the entity."""
    for _ in range(8):  # most pools are large
        word = rng.choice(pool)
        if word not in excluded:
            return word
    return entity.word


def _have_overlap(a: Entity, b: Entity) -> bool:
    return a.start < b.end and b.start < a.end


# Inverse relations


def _invert_all(examples: Sequence[RelationExample], seed: str) -> list[RelationExample]:
    known = {(example.text, example.subject, example.object) for example in examples}
    return [
        replace(example, subject=example.object, object=example.subject, gold=label)
        for example in examples
        if (label := find_inverse(example)) and (example.text, example.object, example.subject) not in known
    ]


def find_inverse(example: RelationExample) -> str | None:
    """Return the relation of the object to the subject, if it follows and fits the object's type."""
    label = INVERSES.get(example.gold)
    return label if label and label.startswith(f"{example.object.type.casefold()}:") else None
