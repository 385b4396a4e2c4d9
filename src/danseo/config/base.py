"""Settings as pydantic models: full names, values of `--set` and TOML files, and errors of one line."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from danseo.errors import DanseoError
from danseo.files import quote, read_toml
from danseo.language import _

SCHEMA = 2
"""The number in every config.toml. A changed default or meaning raises it; a new setting does not."""
TRUST = "trust_remote_code"
"""The setting that only an option of the command line switches on."""
LARGEST = 10**9
"""The default upper limit of numbers."""


INCIDENTAL = object()
"""Marks a setting that changes no result: runs that differ only in it are the same run."""
BY_COMMAND = object()
"""Marks a setting that the command sets itself, never --set or a file."""


Seed = Annotated[int, Field(ge=-(2**63) + 1, le=2**63 - 1)]  # what torch accepts
Count = Annotated[int, Field(ge=0, le=LARGEST)]
PositiveCount = Annotated[int, Field(gt=0, le=LARGEST)]
Amount = Annotated[float, Field(ge=0, le=LARGEST)]
PositiveAmount = Annotated[float, Field(gt=0, le=LARGEST)]
Ratio = Annotated[float, Field(ge=0, le=1)]
PositiveRatio = Annotated[float, Field(gt=0, le=1)]
Text = Annotated[str, BeforeValidator(lambda value: "none" if value is None else str(value))]  # freeze = 2


class Section(BaseModel):
    """Settings that belong together; the text below a field is its meaning."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, strict=True, allow_inf_nan=False
    )


class Config(Section):
    """All settings of one command: single fields and sections."""

    LISTED_BY: ClassVar[str] = "danseo settings"
    """The command that lists the settings."""
    HINTS: ClassVar[Mapping[str, str]] = {}
    """Names that other libraries use, and what to set instead."""


AnyConfig = TypeVar("AnyConfig", bound=Config)


# Names


@cache
def list_settings(cls: type[Config]) -> dict[str, FieldInfo]:
    """Return the field of every setting by its full name, such as train.learning_rate."""
    return _join_sections(
        {name: getattr(field.annotation, "model_fields", field) for name, field in cls.model_fields.items()}
    )


def _join_sections(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a document by name; those of a section have its name before theirs."""
    joined: dict[str, Any] = {}
    for key, value in document.items():
        joined |= {f"{key}.{inner}": each for inner, each in value.items()} if isinstance(value, dict) else {key: value}
    return joined


def setting_help(name: str, cls: type[Config]) -> str:
    """Return the meaning of a setting, on one line."""
    return " ".join((list_settings(cls)[name].description or "").split())


@cache
def value_schemas(name: str, cls: type[Config]) -> list[dict[str, Any]]:
    """Return the JSON schemas of a setting's values; an optional setting also has {"type": "null"}."""
    schema = _adapter(name, cls).json_schema()
    schemas: list[dict[str, Any]] = schema.get("anyOf", [schema])
    return schemas


def setting_types(name: str, cls: type[Config]) -> list[type]:
    """Return the types that a setting accepts: [float, NoneType]; str for choices."""
    types = {"integer": int, "number": float, "boolean": bool, "string": str, "null": NoneType}
    return [types[schema["type"]] for schema in value_schemas(name, cls)]


def setting_choices(name: str, cls: type[Config]) -> list[str]:
    """Return the choices of a setting; none if it takes any text, or is a number."""
    return list(value_schemas(name, cls)[0].get("enum", ()))


def value_names(name: str, cls: type[Config]) -> str:
    """Return the choices of a setting, or its type in capitals, as --help shows them."""
    if choices := setting_choices(name, cls):
        return f"[{'|'.join(choices)}]"
    return {int: "INTEGER", float: "FLOAT", bool: "[true|false]"}.get(setting_types(name, cls)[0], "TEXT")


def setting_bounds(name: str, cls: type[Config]) -> str:
    """Return the bounds of a number, such as > 0 or 0 … 1; nothing if only the largest numbers are refused."""
    low, is_open, high = _bounds(name, cls)
    if high is not None and high < LARGEST:
        return f"> {low:g}, ≤ {high:g}" if is_open else f"{low:g} … {high:g}"
    return "> 0" if is_open else "≥ 0" if low == 0 and high is not None else ""


def _bounds(name: str, cls: type[Config]) -> tuple[float, bool, float | None]:
    """Return the lower limit of a number, whether the limit itself is refused, and the upper limit."""
    schema = value_schemas(name, cls)[0]
    is_open = "exclusiveMinimum" in schema
    return schema.get("exclusiveMinimum" if is_open else "minimum", 0), is_open, schema.get("maximum")


@cache
def incidental_names(cls: type[Config]) -> tuple[str, ...]:
    """Return the full names of the settings that change no result."""
    return tuple(name for name, field in list_settings(cls).items() if INCIDENTAL in field.metadata)


@cache
def default_values(cls: type[Config]) -> dict[str, Any]:
    """Return the default of every setting that has one, by full name."""
    return flatten_config(cls.model_construct())


@cache
def full_name(key: str, cls: type[Config]) -> str:
    """Return the full name of a setting, whose section may be left out; an unknown name is an error with a hint."""
    paths = list_settings(cls)
    matches = [path for path in paths if path == key or path.split(".")[-1] == key]
    if len(matches) > 1 and key not in matches:
        raise DanseoError(f"{key} may be {' or '.join(matches)}; write one of them")
    if matches:
        return key if key in matches else matches[0]
    raise DanseoError(
        _("unknown setting {key}; {hint}`{command}` lists all").format(
            key=quote(key), hint=_hint(key, cls), command=cls.LISTED_BY
        )
    )


def _hint(key: str, cls: type[Config]) -> str:
    last = key.split(".")[-1]
    if last in cls.HINTS:
        return f"{cls.HINTS[last]}; "
    by_last: dict[str, list[str]] = {}
    for path in list_settings(cls):
        by_last.setdefault(path.split(".")[-1], []).append(path)
    names = [*list_settings(cls), *by_last]
    near = by_last.get(last) or _find_with_words(key, cls) or get_close_matches(key, names, 1, cutoff=0.6)
    paths = [path for each in near for path in by_last.get(each, [each])]
    return _("did you mean {names}? ").format(names=" or ".join(paths)) if paths else ""


def _find_with_words(key: str, cls: type[Config]) -> list[str]:
    """Return up to three settings whose names have all words of a key: save_every -> save.every_steps."""
    words = set(re.split(r"[._]", key))
    return [path for path in list_settings(cls) if len(words) > 1 and words <= set(re.split(r"[._]", path))][:3]


# Values


@cache
def _adapter(name: str, cls: type[Config]) -> TypeAdapter[Any]:
    """Return the validator of one setting; "none" is None, which TOML does not have, or one of the choices."""
    field = list_settings(cls)[name]
    hint: Any = Annotated[field.annotation, None, *field.metadata]  # None: Annotated needs an entry
    if NoneType in get_args(field.annotation):
        hint = Annotated[hint, BeforeValidator(lambda value: None if value == "none" else value)]
    elif "none" in get_args(field.annotation):
        hint = Annotated[hint, BeforeValidator(lambda value: "none" if value is None else value)]
    return TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False))


def validate_value(name: str, value: Any, cls: type[Config]) -> Any:
    """Return the value in the type of the setting; one of another type or out of bounds is an error."""
    if isinstance(value, int) and abs(value) > 2**63:  # its digits could fill the screen
        raise DanseoError(_("{name} = {value}: too large a number").format(name=name, value=quote(value)))
    try:
        return _adapter(name, cls).validate_python(value)
    except ValidationError as error:
        reason = _explain(error.errors(include_url=False)[0]["type"], name, cls)
        raise DanseoError(f"{name} = {quote(value)}: {reason}") from None


def _explain(error: str, name: str, cls: type[Config]) -> str:
    """Return what a value should be, by the type of pydantic's first error."""
    low, is_open, high = _bounds(name, cls)
    match error:
        case "literal_error":
            return f"should be one of {', '.join(setting_choices(name, cls))}"
        case "less_than_equal":
            return f"should be from {low:g} to {high:g}" if high and high < LARGEST else "too large a number"
        case "greater_than" | "greater_than_equal" | "finite_number":
            return f"should be above {low:g}" if is_open else f"should be {low:g} or more"
    return f"should be {' or '.join(_name_type(each) for each in setting_types(name, cls))}"


def _name_type(type_: type) -> str:
    return "none" if type_ is NoneType else type_.__name__


def validate_user_value(name: str, value: Any, cls: type[Config]) -> Any:
    """Validate a value of a file or of --set; some settings are for the command line alone."""
    value = validate_value(name, value, cls)
    field = list_settings(cls)[name]
    if BY_COMMAND in field.metadata and value != field.default:
        raise DanseoError(f"{name} cannot be set; the command sets it")
    if name == TRUST and value:
        raise DanseoError(
            f"{TRUST} cannot be switched on here; leave it out, and add --trust-remote-code to the command"
        )
    return value


def parse_assignment(assignment: str, cls: type[Config]) -> tuple[str, Any]:
    """Return the full name and the value of a --set KEY=VALUE."""
    key, equals, text = assignment.partition("=")
    if not equals:
        raise DanseoError(
            _("--set {assignment}: write key=value, such as learning_rate=3e-5").format(assignment=assignment)
        )
    name = full_name(key.strip(), cls)
    return name, validate_user_value(name, parse_literal(text.strip()), cls)


def parse_literal(text: str) -> Any:
    """Return a number, true, false or none where the text is one; else the text itself."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.casefold() in words:
        return words[text.casefold()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def parse_assignments(assignments: Sequence[str], cls: type[Config]) -> dict[str, Any]:
    """Return every --set by full name; the same setting twice with different values is an error."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        add_once(settings, *parse_assignment(assignment, cls), where="--set: ")
    return settings


def add_once(settings: dict[str, Any], name: str, value: Any, where: str = "") -> None:
    """Add a setting; one that is there already must have the same value."""
    if name in settings and settings[name] != value:
        raise DanseoError(f"{where}{name} is set twice, to {settings[name]} and to {value}; name it once")
    settings[name] = value


def resolve_overrides(
    cls: type[Config], *, options: Mapping[str, Any], assignments: Sequence[str], file: Path | None
) -> dict[str, Any]:
    """Return the settings of a command line by full name: an option beats --set, which beats the file.

    Options that were not given are None.
    """
    named = {full_name(key, cls): value for key, value in options.items() if value is not None}
    return {
        **(read_settings(file, cls) if file else {}),
        **parse_assignments(assignments, cls),
        **{name: validate_value(name, value, cls) for name, value in named.items()},
    }


# Configs


def flatten_config(config: Config) -> dict[str, Any]:
    """Return every setting of a config by its full name."""
    return _join_sections(config.model_dump())


def changed_settings(config: Config) -> dict[str, Any]:
    """Return the settings that identify a run: those without a default, and those that differ from it."""
    defaults, ignored = default_values(type(config)), incidental_names(type(config))
    return {
        name: value
        for name, value in flatten_config(config).items()
        if name not in ignored and (name not in defaults or value != defaults[name])
    }


def update_config(config: AnyConfig, settings: Mapping[str, Any]) -> AnyConfig:
    """Return the config with some settings changed, by full or short name."""
    cls = type(config)
    named = ((full_name(key, cls), value) for key, value in settings.items())
    return replace_nested(config, {name: validate_value(name, value, cls) for name, value in named})


def replace_nested(config: AnyConfig, settings: Mapping[str, Any]) -> AnyConfig:
    """Return the config with settings that are validated already, by full name."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        section, _, inner = name.rpartition(".")
        sections.setdefault(section, {})[inner] = value
    changed = sections.pop("", {})
    for section, values in sections.items():
        changed[section] = getattr(config, section).model_copy(update=values)
    return config.model_copy(update=changed)


# TOML files


def read_settings(path: Path, cls: type[Config]) -> dict[str, Any]:
    """Return the settings of a user's TOML file by full name; a run's config.toml is one, too."""
    return _read_toml_settings(path, cls, validate_user_value, is_saved=False)


def read_saved_settings(path: Path, cls: type[Config]) -> dict[str, Any]:
    """Return the settings of a file that danseo wrote by full name; one of another schema is an error."""
    return _read_toml_settings(path, cls, validate_value, is_saved=True)


def _read_toml_settings(path: Path, cls: type[Config], validate: Any, *, is_saved: bool) -> dict[str, Any]:
    document = read_toml(path)
    settings: dict[str, Any] = {}
    try:
        _check_schema(document.pop("schema", None if is_saved else SCHEMA))
        for key, value in _join_sections(document).items():
            name = full_name(key, cls)
            add_once(settings, name, validate(name, value, cls))
    except DanseoError as error:
        raise DanseoError(f"{path}: {error}") from None
    return settings


def _check_schema(schema: object) -> None:
    if type(schema) is not int or schema != SCHEMA:
        written = "without a schema number" if schema is None else f"with schema {quote(schema)}"
        raise DanseoError(
            f"written {written}, and this version of danseo reads schema {SCHEMA}; use the version that wrote it, "
            "or run its command again"
        )


def to_toml(config: Config, without: Collection[str] = ()) -> str:
    """Write all settings as a TOML document that reads back to the same config."""
    sections: dict[str, list[str]] = {"": [f"schema = {SCHEMA}"]}
    for name, value in flatten_config(config).items():
        if name in without:
            continue
        section, _, key = name.rpartition(".")
        sections.setdefault(section, []).append(f"{key} = {_to_toml_value(value)}")
    return "\n".join(
        (f"[{section}]\n" if section else "") + "\n".join(lines) + "\n" for section, lines in sections.items()
    )


def _to_toml_value(value: Any) -> str:
    if value is None:
        return '"none"'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)
