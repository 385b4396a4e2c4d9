"""Count characters that tokenizers and readers have trouble with."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from danseo.data.stats.view import View, percent
from danseo.display.table import Table
from danseo.tasktypes.base import Splits

_EMOJI = (
    "\U0001f000-\U0001faff⌚⌛⏩-⏬⏰⏳◽◾"
    "☔☕♈-♓♿⚓⚡⚪⚫⚽⚾⛄⛅⛎⛔⛪⛲⛳⛵⛺⛽✅✊✋✨❌❎❓-❕❗➕-➗➰➿⬛⬜⭐⭕"
)
_RANGES = {
    "emoji": _EMOJI,
    "conjoining jamo": "\u1100-\u115e\u1161-\u11ff\ua960-\ua97c\ud7b0-\ud7fb",
    "compatibility jamo": "\u3131-\u3163\u3165-\u318e",
    "CJK ideographs": "\u2e80-\u2fd5\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "full- and half-width forms": "\uff01-\uff9f\uffa1-\uffef",
    "replacement character": "\ufffd",
    "private use": "\ue000-\uf8ff\U000f0000-\U0010fffd",
}
_PATTERNS = {name: re.compile(f"[{characters}]") for name, characters in _RANGES.items()}
_INVISIBLE = "\u115f\u1160\u3164\uffa0\u034f"  # Hangul fillers and the grapheme joiner, which are letters by category
_WHITE_SPACE, _CONTROL = "white space other than U+0020", "zero-width and control"
_NORMAL_FORMS: tuple[Literal["NFC"], Literal["NFKC"]] = ("NFC", "NFKC")


def classify_character(character: str) -> str | None:
    """Return the class of an unusual character; None for usual ones."""
    if character.isspace():
        return None if character == " " else _WHITE_SPACE
    if character in _INVISIBLE or "\ufe00" <= character <= "\ufe0f" or unicodedata.category(character) in ("Cc", "Cf"):
        return _CONTROL
    return next((name for name, pattern in _PATTERNS.items() if pattern.match(character)), None)


def character_table(view: View, splits: Splits) -> Table:
    """Return the unusual characters of each split: how many, in how many rows, which, and one example."""
    by_split = {split: _count_split(view, split, examples) for split, examples in splits.items()}
    names = (*_RANGES, _CONTROL, _WHITE_SPACE, *(f"{form} would change" for form in _NORMAL_FORMS))
    rows = [by_split[split][name] for name in names for split in splits if name in by_split[split]]
    absent = [name for name in names if not any(name in each for each in by_split.values())]
    columns = ("kind", "split", "characters", "rows", "rows %", "most frequent", "for example")
    return Table("Unusual characters", columns, rows, f"None: {', '.join(absent)}." if absent else "")


def _count_split(view: View, split: str, examples: Sequence[Any]) -> dict[str, tuple[object, ...]]:
    """Return class of characters -> its row; classes that do not occur are left out."""
    texts = [" ".join(view.texts(example)) for example in examples]
    counter = Counter("".join(texts))
    classes: dict[str, list[str]] = defaultdict(list)
    for character in counter:
        if (name := classify_character(character)) is not None:
            classes[name].append(character)
    rows: dict[str, tuple[object, ...]] = {}

    def add_row(name: str, count: int | None, positions: Sequence[int], characters: Iterable[str]) -> None:
        top = ", ".join(map(_show_character, sorted(characters, key=lambda c: -counter[c])[:3])) or None
        share, guid = percent(len(positions), len(examples)), examples[positions[0]].guid
        rows[name] = (name, split, count, len(positions), share, top, guid)

    for name, characters in classes.items():
        search = re.compile(f"[{re.escape(''.join(characters))}]").search
        positions = [position for position, text in enumerate(texts) if search(text)]
        add_row(name, sum(counter[character] for character in characters), positions, characters)
    for form in _NORMAL_FORMS:
        if positions := [position for position, text in enumerate(texts) if not unicodedata.is_normalized(form, text)]:
            changed = [c for c in counter if not unicodedata.is_normalized(form, c)]
            add_row(f"{form} would change", None, positions, changed)
    return rows


def _show_character(character: str) -> str:
    """Return the character if it is visible, its code point if not, and both if it looks like another."""
    code = f"U+{ord(character):04X}"
    is_visible = character.isprintable() and character not in _INVISIBLE and unicodedata.category(character) != "Mn"
    if not is_visible or "\u1160" <= character <= "\u11ff":  # vowels and finals attach to the character before
        return code
    is_ambiguous = unicodedata.decomposition(character) or "\u1100" <= character <= "\u115f"
    return f"{character} {code}" if is_ambiguous else character
