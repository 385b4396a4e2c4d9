"""Values of settings: read from a command line or a file, checked against type and bounds, put into a config."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from danseo.errors import DanseoError
from danseo.files import quote
from danseo.settings.declaring import Bounds, declared, full_name, setting_paths

TRUST = "trust_remote_code"
"""The setting that only an option of the command at hand switches on."""
Config = TypeVar("Config")
"""A config that declares its settings as RunConfig does."""


def parse_setting(assignment: str, cls: type) -> tuple[str, Any]:
    """A --set key=value as full name and value."""
    key, equals, text = assignment.partition("=")
    if not equals:
        raise DanseoError(f"--set {assignment}: write key=value, such as learning_rate=3e-5")
    name = full_name(key.strip(), cls)
    return name, stated(name, _literal(text.strip()), cls)


def _literal(text: str) -> Any:
    """A number, true, false or none where the text is one; else the text itself."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.casefold() in words:
        return words[text.casefold()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def checked(name: str, value: Any, cls: type) -> Any:
    """The value in the type and bounds of the setting, or an error that says what is due."""
    bounds: Bounds = declared(cls)[name].metadata.get("bounds") or Bounds()
    if isinstance(value, int) and abs(value) > max(bounds.high, 10**9):  # before its digits are printed, or made float
        raise DanseoError(f"{name} = {quote(value)}: too large a number")
    value = _typed(name, value, cls)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and (complaint := bounds.complaint(value)):
        raise DanseoError(f"{name} = {value}: {complaint}")
    return value


def stated(name: str, value: Any, cls: type) -> Any:
    """As checked, for what a file or --set says: some things are for the command line alone to say."""
    value = checked(name, value, cls)
    declaration = declared(cls)[name]
    if declaration.metadata.get("by_command") and value != declaration.default:
        raise DanseoError(f"{name} cannot be set; the command at hand says it")
    if name == TRUST and value:
        raise DanseoError(
            f"{TRUST} cannot be switched on here; leave it out, and add --trust-remote-code to the command"
        )
    return value


@cache
def _hint(name: str, config: type) -> tuple[bool, tuple[Any, ...]]:
    """Whether a setting takes one of some words, and these or its types; looking that up takes longest in reading."""
    cls, attribute = setting_paths(config)[name]
    hint = get_type_hints(cls)[attribute]
    return get_origin(hint) is Literal, get_args(hint) or (hint,)


def _typed(name: str, value: Any, config: type) -> Any:
    is_word, kinds = _hint(name, config)
    if is_word:
        value = "none" if value is None else value
        if value not in kinds:
            raise DanseoError(f"{name} = {quote(value)}: should be one of {', '.join(map(str, kinds))}")
        return value
    if str in kinds:
        return "none" if value is None else str(value)
    if value in (None, "none") and type(None) in kinds:
        return None  # TOML has no null
    if float in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if any(type(value) is kind for kind in kinds):
        return value
    due = " or ".join("none" if kind is type(None) else kind.__name__ for kind in kinds)
    raise DanseoError(f"{name} = {quote(value)}: should be {due}")


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """The config with some settings changed, by full or short name."""
    cls: Any = type(config)
    named = ((full_name(key, cls), value) for key, value in settings.items())
    return put_in(config, {name: checked(name, value, cls) for name, value in named})


def put_in(config: Config, settings: Mapping[str, Any]) -> Config:
    """The config with settings that are checked already, by full name; every section is made once."""
    changed: Any = config
    sections: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        section, _, inner = name.rpartition(".")
        sections.setdefault(section, {})[inner] = value
    whole = sections.pop("", {})
    inner_ones = {section: replace(getattr(changed, section), **values) for section, values in sections.items()}
    result: Config = replace(changed, **whole, **inner_ones)
    return result
