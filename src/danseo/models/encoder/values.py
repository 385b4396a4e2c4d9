"""Pieces of slot values back to text: as it was in training, as somebody said it, or as the tokenizer spells it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from unicodedata import normalize

from danseo.models.encoder.pieces import Pieces

GATES = ("none", "dontcare", "ptr", "yes", "no")
"""What is said of a slot; ptr means that its value is written."""
PTR = GATES.index("ptr")
Ids = tuple[int, ...]


class Values:
    """The value texts of every slot seen in training, most frequent first, found by their pieces."""

    def __init__(self, pieces: Pieces, texts: Mapping[int, Sequence[str]] | None = None) -> None:
        self.texts = {slot: list(values) for slot, values in (texts or {}).items()}
        unique = sorted({value for values in self.texts.values() for value in values})
        ids = {value: tuple(code.ids) for value, code in zip(unique, pieces.cut(unique), strict=True)}
        self._of_slot: dict[tuple[int, Ids], str] = {}
        self._of_any: dict[Ids, str] = {}
        for slot, values in self.texts.items():
            for value in values:
                self._of_slot.setdefault((slot, ids[value]), value)
                self._of_any.setdefault(ids[value], value)

    def find(self, slot: int, ids: Ids) -> str | None:
        """The text with these pieces: that of the slot itself, or else of another slot."""
        return self._of_slot.get((slot, ids)) or self._of_any.get(ids)


def count_values(states: Iterable[Mapping[int, str]]) -> dict[int, list[str]]:
    """Slot -> its values, most frequent first."""
    counts = Counter((slot, value) for state in states for slot, value in state.items())
    texts: dict[int, list[str]] = {}
    for slot, value in sorted(counts, key=lambda key: (key[0], -counts[key], key[1])):
        texts.setdefault(slot, []).append(value)
    return texts


@dataclass(frozen=True, slots=True)
class Utterance:
    """What was said, searchable by pieces."""

    text: str
    code: str
    """A character per piece, so that str.find finds pieces."""
    offsets: list[tuple[int, int]]


class Said:
    """All utterances of some dialogues, cut once."""

    def __init__(self, pieces: Pieces, turns: Iterable[str]) -> None:
        self._utterances = {
            cut.text: Utterance(cut.text, _code(cut.ids), cut.trimmed_offsets())
            for cut in pieces.cut(list(dict.fromkeys(turns)))
        }

    def find(self, ids: Ids, turns: Sequence[str]) -> str | None:
        """The words of the last turn that has these pieces in a row, composed as the values of training are."""
        code = _code(ids)
        for turn in reversed(turns):
            utterance = self._utterances[turn]
            position = utterance.code.find(code)
            if position >= 0:
                positions = [span for span in utterance.offsets[position : position + len(ids)] if span[0] < span[1]]
                return normalize("NFC", utterance.text[positions[0][0] : positions[-1][1]]) if positions else None
        return None


def _code(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def spelled(ids: Ids, pieces: Pieces) -> str:
    """The text of pieces as KLUE's code writes it: no spaces around colons, one after a comma; unknown ones go."""
    text: str = pieces.backend.decode(list(ids), skip_special_tokens=True)
    return text.replace(" : ", ":").replace(" , ", ", ").replace("##", "").strip()
