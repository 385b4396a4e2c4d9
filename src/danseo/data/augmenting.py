"""Training examples made of others: signs between words, other entities of the same type, relations the other way."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from danseo.errors import DanseoError
from danseo.records import Entity, RelationExample
from danseo.sample.korean import final_consonant
from danseo.tasks.relation import INVERSES
from danseo.tasks.task import Task

SIGNS = ".;?:!,"
_WORDS_PER_SIGN = 3  # at least
_NAMED_ALIKE = "alternate_names"  # what holds of two names need not hold of two others
_FORMS = {"aeda": ("text", "pair", "relation"), "swap": ("relation",), "inverse": ("relation",)}
WAYS = tuple(_FORMS)


def ways_of(task: Task, text: str) -> list[str]:
    """The ways that a setting names, each of which the task's examples allow."""
    ways = [way.strip() for way in text.split(",") if way.strip()]
    for way in ways:
        if way not in WAYS:
            raise DanseoError(f"train.augment = {text}: {way!r} is none of {', '.join(WAYS)}")
        if task.kind != "classify" or task.form not in _FORMS[way]:
            raise DanseoError(f"train.augment = {way}: {task.name} has no examples that it can change; leave it out")
        if way == "inverse" and not {*INVERSES} & {*task.labels}:
            raise DanseoError(f"train.augment = inverse: {task.name} has no relations with an inverse; leave it out")
    return list(dict.fromkeys(ways))


def origin_of(guid: str) -> str:
    """The guid of the real example that one was made of; its own where it is real."""
    name, _, way = guid.rpartition("+")
    return name if way in WAYS else guid


def augmented(task: Task, examples: Sequence[Any], text: str, seed: int) -> list[Any]:
    """The examples, and behind them those made of them, each called after its origin: GUID+aeda."""
    makers: dict[str, Callable[[Sequence[Any], str], list[Any]]]
    makers = {"aeda": _all_with_signs, "swap": _all_swapped, "inverse": _all_inverse}
    made: list[Any] = [new for way in ways_of(task, text) for new in makers[way](examples, f"{seed} {way}")]
    taken = {example.guid for example in examples}
    if both := next((new.guid for new in made if new.guid in taken), None):
        raise DanseoError(f"train.augment: an example is called {both} already; give it another guid")
    return [*examples, *made]


def made_counts(examples: Iterable[Any]) -> dict[str, int]:
    """How many of the examples were made, by way."""
    made = Counter(example.guid.rpartition("+")[2] for example in examples if origin_of(example.guid) != example.guid)
    return dict(made.most_common())


def _called(example: Any, way: str) -> Any:
    return replace(example, guid=f"{example.guid}+{way}")


# AEDA: signs between words


def _all_with_signs(examples: Sequence[Any], seed: str) -> list[Any]:
    made = [with_signs(example, random.Random(f"{seed} {example.guid}")) for example in examples]
    return [_called(new, "aeda") for new, old in zip(made, examples, strict=True) if new != old]


def with_signs(example: Any, rng: random.Random) -> Any:
    """The example with signs at some of the gaps between words, none of them inside an entity."""
    if not isinstance(example, RelationExample):
        pair = example.pair and _punctuated(example.pair, _chosen_gaps(example.pair, (), rng), rng)
        return replace(example, text=_punctuated(example.text, _chosen_gaps(example.text, (), rng), rng), pair=pair)
    entities = (example.subject, example.object)
    gaps = _chosen_gaps(example.text, entities, rng)
    subject, other = (_moved(entity, 2 * sum(gap < entity.start for gap in gaps)) for entity in entities)
    return replace(example, text=_punctuated(example.text, gaps, rng), subject=subject, object=other)


def _chosen_gaps(text: str, entities: Sequence[Entity], rng: random.Random) -> list[int]:
    """Places of spaces between words, up to one for every three words."""
    inside = {position for entity in entities for position in range(entity.start, entity.end)}
    gaps = [position for position, character in enumerate(text.rstrip()) if character == " " and position not in inside]
    most = max(1, (len(gaps) + 1) // _WORDS_PER_SIGN)
    return sorted(rng.sample(gaps, min(len(gaps), rng.randint(1, most))))


def _punctuated(text: str, gaps: Sequence[int], rng: random.Random) -> str:
    for gap in reversed(gaps):
        text = f"{text[:gap]} {rng.choice(SIGNS)}{text[gap:]}"
    return text


def _moved(entity: Entity, by: int) -> Entity:
    return replace(entity, start=entity.start + by, end=entity.end + by)


# Other entities of the same type and role


def _all_swapped(examples: Sequence[RelationExample], seed: str) -> list[RelationExample]:
    pools: dict[tuple[str, str, str], list[str]] = {}
    for example in examples:
        for role, entity in (("subject", example.subject), ("object", example.object)):
            pools.setdefault((role, entity.type, _ending(entity.word)), []).append(entity.word)
    pools = {key: sorted(set(words)) for key, words in pools.items()}
    made = [
        swapped(example, pools, random.Random(f"{seed} {example.guid}"))
        for example in examples
        if not example.gold.endswith(_NAMED_ALIKE) and not _overlap(example)
    ]
    return [_called(new, "swap") for new in made if new is not None]


def swapped(
    example: RelationExample, pools: dict[tuple[str, str, str], list[str]], rng: random.Random
) -> RelationExample | None:
    """The example about others: words of train with the same role, type and kind of ending, so that particles fit."""
    subject, other = example.subject, example.object
    words = [
        _another(pools[role, entity.type, _ending(entity.word)], (subject.word, other.word), entity.word, rng)
        for role, entity in (("subject", subject), ("object", other))
    ]
    if words == [subject.word, other.word] or words[0] == words[1]:
        return None
    text, first, second = example.text, subject, other
    for entity, word in sorted(zip((subject, other), words, strict=True), key=lambda each: -each[0].start):
        text, grown = f"{text[: entity.start]}{word}{text[entity.end :]}", len(word) - len(entity.word)
        new = replace(entity, word=word, end=entity.start + len(word))
        first = new if entity is subject else _moved(first, grown) if first.start > entity.start else first
        second = new if entity is other else _moved(second, grown) if second.start > entity.start else second
    return replace(example, text=text, subject=first, object=second)


def _another(pool: Sequence[str], taken: tuple[str, str], word: str, rng: random.Random) -> str:
    """A word of the pool that the example does not have, else its own."""
    for _ in range(8):  # most pools are large
        found = rng.choice(pool)
        if found not in taken:
            return found
    return word


def _ending(word: str) -> str:
    """What particles look at: an open last sound, one closed by ㄹ, or closed otherwise."""
    try:
        final = final_consonant(word)
    except IndexError:  # nothing but brackets
        return ""
    return final if final in ("", "ㄹ") else "closed"


def _overlap(example: RelationExample) -> bool:
    return example.subject.start < example.object.end and example.object.start < example.subject.end


# Relations the other way


def _all_inverse(examples: Sequence[RelationExample], seed: str) -> list[RelationExample]:
    there = {(example.text, example.subject, example.object) for example in examples}
    return [
        replace(_called(example, "inverse"), subject=example.object, object=example.subject, gold=label)
        for example in examples
        if (label := inverse_of(example)) and (example.text, example.object, example.subject) not in there
    ]


def inverse_of(example: RelationExample) -> str | None:
    """What the object is to the subject, where that follows and can be asked of an entity of its type."""
    label = INVERSES.get(example.gold)
    return label if label and label.startswith(f"{example.object.type.casefold()}:") else None
