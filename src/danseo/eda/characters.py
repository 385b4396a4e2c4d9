"""Characters that tokenizers and eyes stumble over."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from danseo.display.table import Table
from danseo.eda.counting import percent
from danseo.eda.view import Splits, View

_EMOJI = re.compile(
    "[\U0001f000-\U0001faff⌚⌛⏩-⏬⏰⏳◽◾☔☕♈-♓♿⚓⚡⚪⚫⚽⚾⛄⛅⛎⛔⛪⛲⛳⛵⛺⛽✅✊✋✨❌❎❓-❕❗➕-➗➰➿⬛⬜⭐⭕]"
)
_RANGES = {
    "conjoining jamo": "\u1100-\u115e\u1161-\u11ff\ua960-\ua97c\ud7b0-\ud7fb",
    "compatibility jamo": "\u3131-\u3163\u3165-\u318e",
    "CJK ideographs": "\u2e80-\u2fd5\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "full- and half-width forms": "\uff01-\uff9f\uffa1-\uffef",
    "replacement character": "\ufffd",
    "private use": "\ue000-\uf8ff\U000f0000-\U0010fffd",
}
_PATTERNS = {name: re.compile(f"[{characters}]") for name, characters in _RANGES.items()}
_INVISIBLE = "\u115f\u1160\u3164\uffa0\u034f"  # Hangul fillers and the grapheme joiner: letters by name, nothing to see


def kind_of(character: str) -> str | None:
    """Which kind of unusual character this is; None for the usual ones."""
    if character.isspace():
        return None if character == " " else "white space other than U+0020"
    if character in _INVISIBLE or "\ufe00" <= character <= "\ufe0f" or unicodedata.category(character) in ("Cc", "Cf"):
        return "zero-width and control"
    if _EMOJI.match(character):
        return "emoji"
    return next((name for name, pattern in _PATTERNS.items() if pattern.match(character)), None)


KINDS = (*_RANGES, "zero-width and control", "white space other than U+0020", "emoji")


FORMS: tuple[Literal["NFC"], Literal["NFKC"]] = ("NFC", "NFKC")


def character_table(view: View, splits: Splits) -> Table:
    """Unusual characters per split: how many, in how many rows, which, and one place to look."""
    found = {split: _rows_of_split(view, split, examples) for split, examples in splits.items()}
    names = (*KINDS, *map(_change, FORMS))
    rows = [found[split][name] for name in names for split in splits if name in found[split]]
    clean = [name for name in names if not any(name in kinds for kinds in found.values())]
    columns = ("kind", "split", "characters", "rows", "rows %", "most frequent", "for example")
    return Table("Unusual characters", columns, rows, f"None: {', '.join(clean)}." if clean else "")


def _change(form: str) -> str:
    return f"{form} would change"


def _rows_of_split(view: View, split: str, examples: Sequence[Any]) -> dict[str, tuple[object, ...]]:
    """Kind -> its row; kinds that do not occur are left out."""
    texts = [" ".join(view.texts(example)) for example in examples]
    counter = Counter("".join(texts))
    kinds: dict[str, list[str]] = defaultdict(list)
    for character in counter:
        if (kind := kind_of(character)) is not None:
            kinds[kind].append(character)
    rows: dict[str, tuple[object, ...]] = {}
    for name, characters in kinds.items():
        search = re.compile(f"[{re.escape(''.join(characters))}]").search
        positions = [position for position, text in enumerate(texts) if search(text)]
        count = sum(counter[character] for character in characters)
        rows[name] = (name, split, count, *_where(positions, examples, _most(characters, counter)))
    for form in FORMS:
        if positions := [position for position, text in enumerate(texts) if not unicodedata.is_normalized(form, text)]:
            changed = [c for c in counter if not unicodedata.is_normalized(form, c)]
            rows[_change(form)] = (_change(form), split, None, *_where(positions, examples, _most(changed, counter)))
    return rows


def _where(positions: Sequence[int], examples: Sequence[Any], most: str) -> tuple[object, ...]:
    return len(positions), percent(len(positions), len(examples)), most or None, examples[positions[0]].guid


def _most(characters: Iterable[str], counter: Counter[str], limit: int = 3) -> str:
    return ", ".join(_named(character) for character in sorted(characters, key=lambda c: -counter[c])[:limit])


def _named(character: str) -> str:
    """The character itself where it can be told by its looks, its code point where not, both where looks deceive."""
    code = f"U+{ord(character):04X}"
    alone = character.isprintable() and character not in _INVISIBLE and unicodedata.category(character) != "Mn"
    if not alone or "\u1160" <= character <= "\u11ff":  # vowels and finals of a syllable hang on what stands before
        return code
    deceives = unicodedata.decomposition(character) or "\u1100" <= character <= "\u115f"
    return f"{character} {code}" if deceives else character
