"""The language of pages, tables and errors: the source has English texts, gettext catalogues have the others.

A `Message` is English for everyone who reads it as a str: files, JSON and logs never change with the language. Only
the code that prints a text or renders a page calls `translate`.
"""

import gettext
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

LANGUAGES = {"en": "English", "ko": "한국어"}
"""Code -> name of each language, in that language."""
VARIABLE = "DANSEO_LANG"
_LOCALE = Path(__file__).parent / "locale"


class Message(str):
    """An English text that can be translated: an entry of the catalogue with its values, or several texts in a row."""

    _template: str
    _values: dict[str, object]
    _parts: tuple[str, ...]

    def __new__(
        cls, text: str, template: str = "", values: dict[str, object] | None = None, parts: tuple[str, ...] = ()
    ) -> "Message":
        message = super().__new__(cls, text)
        message._template, message._values, message._parts = template or text, values or {}, parts
        return message

    def format(self, *args: object, **values: object) -> "Message":
        """Return the message with its values; those that are messages are translated, too."""
        return Message(str(self).format(**values), self._template, values)

    def __add__(self, other: str) -> "Message":
        return join([self, other], "")

    def translate_to(self, language: str) -> str:
        """Return the text in a language."""
        if self._parts:
            return "".join(str(translate_message(part, language)) for part in self._parts)
        values = {name: translate_message(value, language) for name, value in self._values.items()}
        text = _look_up(self._template, language) or self._template
        return text.format(**values) if values else text


def _(text: str) -> Message:
    """Mark a text for the catalogue; call .format for its values."""
    return Message(text)


def ngettext(one: str, many: str, n: int) -> Message:
    """Mark a text with a number: its form for 1, and for all others."""
    return Message(one if n == 1 else many).format(n=n)


def join(texts: Iterable[str], separator: str = " ") -> Message:
    """Join texts; the messages among them stay translatable."""
    parts: list[str] = []
    for text in texts:
        parts += [separator, text] if parts and separator else [text]
    return Message("".join(parts), parts=tuple(parts))


def get_language() -> str:
    """Return the language of the process: that of $DANSEO_LANG, else of the locale; English if it is not known."""
    for variable in (VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG"):
        if name := os.environ.get(variable):
            return _find_language(name) or "en"
    return "en"


def choose_page_language(requested: str | None, accepted: str = "") -> str:
    """Return the language of a live page: chosen on the page, else $DANSEO_LANG, else that of the browser."""
    for name in (requested, os.environ.get(VARIABLE)):
        if found := _find_language(name or ""):
            return found
    ranges = (part.partition(";") for part in accepted.split(","))
    known = [(_read_quality(quality), found) for name, _, quality in ranges if (found := _find_language(name))]
    return max(known, key=lambda each: each[0], default=(0.0, "en"))[1]


def translate_message(value: object, language: str | None = None) -> object:
    """Return a message in a language; return any other value unchanged."""
    return value.translate_to(language or get_language()) if isinstance(value, Message) else value


def translate(text: str, language: str | None = None) -> str:
    """Return a message, or a label such as the name of a column, in a language; keep a text without entry."""
    language = language or get_language()
    if isinstance(text, Message):
        return text.translate_to(language)
    return _look_up(text, language) or _look_up(text[:1].lower() + text[1:], language) or text


def list_script_words(script: str, language: str) -> dict[str, str]:
    """Return the texts that a script of a page marks as _("text"), in a language."""
    return {text: translate(text, language) for text in re.findall(r'_\("([^"]+)"\)', script)}


def translate_libraries() -> None:
    """Let click, which uses gettext's global functions, find its texts in the catalogue of danseo."""
    if (language := get_language()) != "en":
        os.environ["LANGUAGE"] = language
    gettext.bindtextdomain("danseo", str(_LOCALE))
    gettext.textdomain("danseo" if language != "en" else "messages")


@cache
def _open_catalogue(language: str) -> gettext.NullTranslations:
    return gettext.translation("danseo", _LOCALE, [language], fallback=True)


def _look_up(text: str, language: str) -> str:
    """Return the entry of a text; "" if there is none."""
    found = _open_catalogue(language).gettext(text) if text and language != "en" else text
    return "" if found == text else found


def _find_language(name: str) -> str:
    """Return the code of a language, given as ko, ko_KR.UTF-8 or ko-KR; "" if it is not one of danseo's."""
    code = name.strip().lower().replace("-", "_").partition("_")[0].partition(".")[0]
    return code if code in LANGUAGES else ""


def _read_quality(text: str) -> float:
    """Return the weight of an entry of Accept-Language, such as q=0.8."""
    try:
        return float(text.strip().removeprefix("q=") or 1)
    except ValueError:
        return 0.0
