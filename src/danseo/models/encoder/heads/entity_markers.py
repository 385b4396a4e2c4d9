"""Entity markers: how two entities are marked in a text, and marker insertion between tokens."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from danseo.models.encoder.heads.entity_windows import MarkedSentence
from danseo.models.encoder.tokenizer import EncoderTokenizer, TokenizedText
from danseo.records import Entity, RelationExample

ADDED = ("klue", "entity_marker", "typed_entity_marker", "entity_mask")
"""Styles whose markers are added tokens; those of others are plain text."""
TYPED = ("typed_entity_marker", "typed_entity_marker_punct", "typed_punct_korean", "entity_mask")
KOREAN = {"PER": "사람", "ORG": "단체", "LOC": "장소", "DAT": "날짜", "POH": "기타", "NOH": "수량"}
ENGLISH = {"PER": "person", "ORG": "organization", "LOC": "location", "DAT": "date", "POH": "other", "NOH": "number"}
ROLES = ("주체", "대상")
"""Korean words for subject and object, from which untyped markers are initialized."""
SUBJECT_CHAR = "@"


@dataclass(frozen=True, slots=True)
class MarkerPair:
    """The texts before and after an entity; one that hides it replaces it."""

    opening: str = ""
    closing: str = ""
    hides: bool = False


@cache  # few values, used twice per example
def _form(variant: str, object_char: str, role: int, type: str) -> MarkerPair:
    char, inner = (SUBJECT_CHAR, "*") if role == 0 else (object_char, "^")
    letter, number, word = ("S", 1, "SUBJ") if role == 0 else ("O", 2, "OBJ")
    forms = {
        "klue": MarkerPair(f"<{word.lower()}>", f"</{word.lower()}>"),
        "entity_marker": MarkerPair(f"[E{number}]", f"[/E{number}]"),
        "entity_marker_punct": MarkerPair(char, char),
        "typed_entity_marker": MarkerPair(f"<{letter}:{type}>", f"</{letter}:{type}>"),
        "typed_entity_marker_punct": MarkerPair(f"{char}{inner}{ENGLISH.get(type, type.lower())}{inner}", char),
        "typed_punct_korean": MarkerPair(f"{char}{inner}{KOREAN.get(type, type)}{inner}", char),
        "entity_mask": MarkerPair(f"[{word}-{type}]", hides=True),
        "concat": MarkerPair(),
    }
    return forms[variant]


@dataclass(frozen=True, slots=True)
class MarkerStyle:
    """A style of marking entities."""

    name: str = "klue"
    object_char: str = "#"
    question: bool = False
    """Whether a question with both entities precedes the sentence."""

    def marker_pairs(self, example: RelationExample) -> tuple[MarkerPair, MarkerPair]:
        """Return the markers of the subject and of the object."""
        return self.marker_pair(0, example.subject.type), self.marker_pair(1, example.object.type)

    def marker_pair(self, role: int, type: str) -> MarkerPair:
        """Return the markers of an entity of this type as subject (0) or object (1)."""
        return _form(self.name, self.object_char, role, type)

    def list_added_tokens(self, types: Sequence[str]) -> dict[str, str]:
        """Return added token -> word for its type, or for its role."""
        if self.name not in ADDED:
            return {}
        is_typed = self.name in TYPED
        forms = [
            (self.marker_pair(role, type), KOREAN.get(type, type) if is_typed else ROLES[role])
            for role in (0, 1)
            for type in (types if is_typed else types[:1])
        ]
        return {text: word for form, word in forms for text in (form.opening, form.closing) if text}

    def mark_entity(self, entity: Entity, role: int) -> str:
        """Return an entity with its markers."""
        form = self.marker_pair(role, entity.type)
        return f"{form.opening}{'' if form.hides else entity.word}{form.closing}"

    def make_question(self, example: RelationExample) -> str:
        """Return the question: @*단체*비틀즈@와 #^사람^조지 해리슨#의 관계."""
        return f"{self.mark_entity(example.subject, 0)}와 {self.mark_entity(example.object, 1)}의 관계"

    @property
    def has_prefix(self) -> bool:
        """Whether any text precedes the sentence."""
        return self.question or self.name == "concat"

    def list_prefix_texts(self, example: RelationExample) -> list[str]:
        """Return the texts before the sentence."""
        words = [example.subject.word, example.object.word] if self.name == "concat" else []
        return [*([self.make_question(example)] if self.question else []), *words]

    def mark_sentence(self, example: RelationExample) -> str:
        """Return the sentence with its markers."""
        forms = self.marker_pairs(example)
        markers = [text for form in forms for text in (form.opening, form.closing)]
        parts, inside = [], 0
        for stretch, (_, marker) in zip(between_markers(example), [*marker_order(example), (0, None)], strict=True):
            parts.append("" if inside and forms[0].hides else stretch)
            if marker is not None:
                parts.append(markers[marker])
                inside += 1 if marker % 2 == 0 else -1
        return "".join(parts)

    def text(self, example: RelationExample) -> str:
        """Return the whole input as one text."""
        return " [SEP] ".join([*self.list_prefix_texts(example), self.mark_sentence(example)])


def marker_order(example: RelationExample) -> list[tuple[int, int]]:
    """Return (character, marker) in text order; at one position closing before opening."""
    events = []
    for role, entity in enumerate((example.subject, example.object)):
        events.append(((entity.start, 1, -entity.end, role), 2 * role))
        events.append(((entity.end, 0, -entity.start, -role), 2 * role + 1))
    return [(key[0], marker) for key, marker in sorted(events)]


def between_markers(example: RelationExample) -> list[str]:
    """Return the five parts of the sentence between markers."""
    cuts = [0, *(position for position, _ in marker_order(example)), len(example.text)]
    return [example.text[start:end] for start, end in pairwise(cuts)]


Boundary = tuple[int, int | None]
"""A boundary between tokens: before this token, or inside it at this character."""

CLOSING = (1, 3)
_WORD_MARKS = ("▁", "Ġ")


@dataclass(frozen=True, slots=True)
class TokenPart:
    """A part of a token that crosses an entity boundary; only a first part may begin a word."""

    text: str
    begins_word: bool


class TokenizedSentence:
    """The tokens of an unmarked sentence and its entity boundaries."""

    def __init__(self, cut: TokenizedText, example: RelationExample, prefix: str, *, whole: bool = False) -> None:
        self.ids, self.tokens, self.offsets, self.prefix = cut.ids, cut.tokens, cut.offsets, prefix
        self.text, self.order = example.text, marker_order(example)
        ends = [end for _, end in self.offsets]
        self.edges = [self._find_boundary(bisect_right(ends, position), position) for position, _ in self.order]
        if whole:  # no markers, so no token is split
            self.edges = self._expand_boundaries()

    def _expand_boundaries(self) -> list[Boundary]:
        """Return the boundaries moved outwards to token boundaries."""
        edges, least = list[Boundary](), 0
        for (token, inside), (_, marker) in zip(self.edges, self.order, strict=True):
            least = max(least, token + (inside is not None and marker in CLOSING))
            edges.append((least, None))
        return edges

    def _find_boundary(self, token: int, position: int) -> Boundary:
        """Return the first token that ends after the position; inside it if its text begins before."""
        if token < len(self.offsets) and self.text[self.offsets[token][0] : position].strip():
            return token, position
        return token, None

    def list_split_parts(self) -> list[TokenPart]:
        """Return the token parts that must be tokenized again."""
        if all(position is None for _, position in self.edges):
            return []
        return [part for stretch in self._intervals() for part in self._parts(*stretch) if isinstance(part, TokenPart)]

    def insert_markers(
        self, markers: Sequence[Sequence[int]], sides: dict[TokenPart, list[int]], *, hides: bool = False
    ) -> MarkedSentence:
        """Return all ids with markers inserted; without the entities if the markers hide them."""
        ids, positions, inside = list[int](), [0] * len(markers), 0
        for number, stretch in enumerate(self._intervals()):
            for part in self._parts(*stretch) if not (inside and hides) else ():
                ids += sides[part] if isinstance(part, TokenPart) else self.ids[part]
            if number < len(markers):
                marker = self.order[number][1]
                positions[marker] = len(ids)
                ids += markers[marker]
                inside += -1 if marker in CLOSING else 1
        return MarkedSentence(ids, positions, [len(marker) for marker in markers])

    def _intervals(self) -> Iterable[tuple[Boundary, Boundary]]:
        edges = [(0, None), *self.edges, (len(self.ids), None)]
        return pairwise(edges)

    def _parts(self, first: Boundary, last: Boundary) -> list[TokenPart | slice]:
        """Return the tokens between two boundaries, and the parts of split tokens."""
        (start, inside), (stop, until) = first, last
        if first == last:
            return []
        if inside is not None and until is not None and start == stop:
            return [TokenPart(self.text[inside:until], False)]
        parts: list[TokenPart | slice] = [slice(start, stop)]
        if inside is not None:
            parts = [TokenPart(self.text[inside : self.offsets[start][1]], False), slice(start + 1, stop)]
        if until is not None:
            begins = begins_word(self.tokens[stop], self.prefix)
            parts.append(TokenPart(self.text[self.offsets[stop][0] : until].strip(), begins))
        return parts


def continuation_prefix(tokenizer: EncoderTokenizer) -> str:
    """Return WordPiece's continuation prefix; "" if the tokenizer marks the start of words."""
    return getattr(tokenizer.backend.model, "continuing_subword_prefix", None) or ""


def begins_word(token: str, prefix: str) -> bool:
    """Return whether a token begins a word."""
    return not token.startswith(prefix) if prefix else token.startswith(_WORD_MARKS)


def tokenize_parts(sides: set[TokenPart], tokenizer: EncoderTokenizer) -> dict[TokenPart, list[int]]:
    """Tokenize token parts; one that does not begin a word becomes a continuation."""
    ordered = sorted(sides, key=lambda side: (side.text, side.begins_word))
    encodings = tokenizer.tokenize([f" {side.text}" if side.begins_word else side.text for side in ordered])
    return {
        side: encoding.ids if side.begins_word else continue_word(encoding.ids, encoding.tokens, tokenizer)
        for side, encoding in zip(ordered, encodings, strict=True)
    }


def continue_word(ids: list[int], tokens: list[str], tokenizer: EncoderTokenizer) -> list[int]:
    """Return the ids with the first token as a continuation: ##가 for 가, 가 for ▁가."""
    if not ids or ids[0] == tokenizer.unk_id:
        return ids
    form = tokens[0][1:] if tokens[0].startswith(_WORD_MARKS) else tokens[0]
    if not form:  # only a word mark
        return ids[1:]
    found = tokenizer.token_id(continuation_prefix(tokenizer) + form)
    return ids if found == tokenizer.unk_id else [found, *ids[1:]]


def insert_markers_officially(
    stretches: Sequence[TokenizedText],
    example: RelationExample,
    markers: Sequence[Sequence[int]],
    tokenizer: EncoderTokenizer,
) -> MarkedSentence:
    """Insert markers as KLUE's code: tokenize between markers; Hangul after a closing one is a continuation."""
    ids, positions = stretches[0].ids, [0] * len(markers)
    for (_, marker), stretch in zip(marker_order(example), stretches[1:], strict=True):
        positions[marker] = len(ids)
        first, rest = stretch.ids[:1], stretch.ids[1:]
        if first and marker in CLOSING and not stretch.text[0].isspace():
            first = _official_form(first[0], stretch.tokens[0], tokenizer)
        ids = [*ids, *markers[marker], *first, *rest]
    return MarkedSentence(ids, positions, [len(marker) for marker in markers])


def _official_form(id: int, token: str, tokenizer: EncoderTokenizer) -> list[int]:
    """Return a token as KLUE writes it after a closing marker, which may be unknown."""
    if token.startswith("▁"):
        return [tokenizer.token_id(token[1:])] if token != "▁" else []
    if "가" <= token[0] <= "힣" and (prefix := continuation_prefix(tokenizer)):
        return [tokenizer.token_id(prefix + token)]
    return [id]
