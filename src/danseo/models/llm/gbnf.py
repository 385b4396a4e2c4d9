"""JSON schemas as grammars of llama.cpp (GBNF), without whitespace between parts."""

import json
from collections.abc import Iterable
from typing import Any

from danseo.models.llm.formats.base import Schema, to_compact_json

_MOST_CHARACTERS = 120
"""Maximum length of a text without maxLength."""
_MOST_NUMBERS = 200
"""Ranges up to this size are listed number by number."""
_RULES = """\
character ::= [^"\\\\\\x00-\\x20\\x7F] | "\\\\" ["\\\\/bfnrt]
more ::= " "? " "? character
number ::= "-"? [0-9]{1,9} ("." [0-9]{1,4})?
"""


def write_gbnf(schema: Schema) -> str:
    """Return a grammar for compact JSON of a schema; texts have at most two spaces in a row."""
    return _Grammar().write(schema)


class _Grammar:
    """Rules by name; repeated parts are rules, since llama.cpp limits repetitions of longer ones."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def write(self, schema: Schema) -> str:
        root = self._expression(schema)
        rules = "".join(f"{name} ::= {expression}\n" for expression, name in self.names.items())
        return f"root ::= {root}\n{rules}{_RULES}"

    def _name(self, expression: str) -> str:
        return self.names.setdefault(expression, f"rule{len(self.names)}")

    def _expression(self, schema: Schema) -> str:
        if "enum" in schema:
            return _any_of(_literal(to_compact_json(value)) for value in schema["enum"])
        makers: dict[str, Any] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": _integer,
            "number": lambda schema: "number",
            "null": lambda schema: '"null"',
        }
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return _any_of(makers[name](schema) for name in types)

    def _object(self, schema: Schema) -> str:
        properties: dict[str, Schema] = schema["properties"]
        pairs = [
            f"{_literal(to_compact_json(name) + ':')} {self._expression(inner)}" for name, inner in properties.items()
        ]
        if set(schema.get("required", ())) == set(properties):
            return f'"{{" {_join_items(pairs)} "}}"'
        return f'"{{" {self._list(_any_of(pairs), 0, len(pairs))} "}}"'

    def _array(self, schema: Schema) -> str:
        if "prefixItems" in schema:
            return f'"[" {_join_items(map(self._expression, schema["prefixItems"]))} "]"'
        return f'"[" {self._list(self._expression(schema["items"]), schema.get("minItems", 0), schema["maxItems"])} "]"'

    def _list(self, item: str, least: int, most: int) -> str:
        first = self._name(item)
        further = self._name(f'"," {first}')
        items = f"{first} {further}{{{max(0, least - 1)},{most - 1}}}"
        return items if least else f"({items})?"

    def _string(self, schema: Schema) -> str:
        text = f"character more{{0,{schema.get('maxLength', _MOST_CHARACTERS) - 1}}}"
        return self._name(rf'"\"" {text if schema.get("minLength") else f"({text})?"} "\""')


def _integer(schema: Schema) -> str:
    low, high = schema.get("minimum", 0), schema.get("maximum", _MOST_NUMBERS)
    if high - low > _MOST_NUMBERS:
        return "[0-9]{1,9}"
    return _any_of(_literal(str(number)) for number in range(low, high + 1))


def _any_of(parts: Iterable[str]) -> str:
    found = list(parts)
    return f"({' | '.join(found)})" if len(found) > 1 else found[0]


def _join_items(parts: Iterable[str]) -> str:
    return ' "," '.join(parts)


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
