"""How two entities of a sentence are shown to an encoder: the texts around them, by variant."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from danseo.records import Entity, RelationExample

ADDED = ("klue", "entity_marker", "typed_entity_marker", "entity_mask")
"""Variants whose markers are pieces of their own, new to the vocabulary; those of the others are plain text."""
TYPED = ("typed_entity_marker", "typed_entity_marker_punct", "typed_punct_korean", "entity_mask")
KOREAN = {"PER": "사람", "ORG": "단체", "LOC": "장소", "DAT": "날짜", "POH": "기타", "NOH": "수량"}
ENGLISH = {"PER": "person", "ORG": "organization", "LOC": "location", "DAT": "date", "POH": "other", "NOH": "number"}
ROLES = ("주체", "대상")
"""Words for who a relation is of, and to whom: what markers without a type begin as."""
SUBJECT_CHAR = "@"


@dataclass(frozen=True, slots=True)
class Form:
    """What stands before and after an entity; one that hides it stands in its place."""

    opening: str = ""
    closing: str = ""
    hides: bool = False


@cache  # there are few, and every example asks for two
def _form(variant: str, object_char: str, role: int, type: str) -> Form:
    char, inner = (SUBJECT_CHAR, "*") if role == 0 else (object_char, "^")
    letter, number, word = ("S", 1, "SUBJ") if role == 0 else ("O", 2, "OBJ")
    forms = {
        "klue": Form(f"<{word.lower()}>", f"</{word.lower()}>"),
        "entity_marker": Form(f"[E{number}]", f"[/E{number}]"),
        "entity_marker_punct": Form(char, char),
        "typed_entity_marker": Form(f"<{letter}:{type}>", f"</{letter}:{type}>"),
        "typed_entity_marker_punct": Form(f"{char}{inner}{ENGLISH.get(type, type.lower())}{inner}", char),
        "typed_punct_korean": Form(f"{char}{inner}{KOREAN.get(type, type)}{inner}", char),
        "entity_mask": Form(f"[{word}-{type}]", hides=True),
        "concat": Form(),
    }
    return forms[variant]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to show entities."""

    name: str = "klue"
    object_char: str = "#"
    question: bool = False
    """Whether a question that names both entities goes before."""

    def forms(self, example: RelationExample) -> tuple[Form, Form]:
        """What surrounds the subject, and the object."""
        return self.form(0, example.subject.type), self.form(1, example.object.type)

    def form(self, role: int, type: str) -> Form:
        """What surrounds an entity of this type as subject (0) or object (1)."""
        return _form(self.name, self.object_char, role, type)

    def added(self, types: Sequence[str]) -> dict[str, str]:
        """The pieces that are new to a vocabulary, each with the word for its type, or where it has none its role."""
        if self.name not in ADDED:
            return {}
        is_typed = self.name in TYPED
        forms = [
            (self.form(role, type), KOREAN.get(type, type) if is_typed else ROLES[role])
            for role in (0, 1)
            for type in (types if is_typed else types[:1])
        ]
        return {text: word for form, word in forms for text in (form.opening, form.closing) if text}

    def named(self, entity: Entity, role: int) -> str:
        """An entity with what surrounds it."""
        form = self.form(role, entity.type)
        return f"{form.opening}{'' if form.hides else entity.word}{form.closing}"

    def asked(self, example: RelationExample) -> str:
        """The question: @*단체*비틀즈@와 #^사람^조지 해리슨#의 관계."""
        return f"{self.named(example.subject, 0)}와 {self.named(example.object, 1)}의 관계"

    @property
    def has_front(self) -> bool:
        """Whether any text goes before the sentence."""
        return self.question or self.name == "concat"

    def fronts(self, example: RelationExample) -> list[str]:
        """The texts that go before the sentence."""
        words = [example.subject.word, example.object.word] if self.name == "concat" else []
        return [*([self.asked(example)] if self.question else []), *words]

    def marked(self, example: RelationExample) -> str:
        """The sentence as it is shown."""
        forms = self.forms(example)
        markers = [text for form in forms for text in (form.opening, form.closing)]
        shown, inside = [], 0
        for stretch, (_, marker) in zip(between_markers(example), [*marker_order(example), (0, None)], strict=True):
            shown.append("" if inside and forms[0].hides else stretch)
            if marker is not None:
                shown.append(markers[marker])
                inside += 1 if marker % 2 == 0 else -1
        return "".join(shown)

    def text(self, example: RelationExample) -> str:
        """All that is shown, as one text."""
        return " [SEP] ".join([*self.fronts(example), self.marked(example)])


def marker_order(example: RelationExample) -> list[tuple[int, int]]:
    """(character, marker) in text order: inner markers inside, and at one place closing before opening."""
    events = []
    for role, entity in enumerate((example.subject, example.object)):
        events.append(((entity.start, 1, -entity.end, role), 2 * role))
        events.append(((entity.end, 0, -entity.start, -role), 2 * role + 1))
    return [(key[0], marker) for key, marker in sorted(events)]


def between_markers(example: RelationExample) -> list[str]:
    """The five stretches of the sentence that the markers part."""
    cuts = [0, *(position for position, _ in marker_order(example)), len(example.text)]
    return [example.text[start:end] for start, end in pairwise(cuts)]
