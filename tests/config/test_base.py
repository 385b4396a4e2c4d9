"""Settings as pydantic models, shown on a small config."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field

from danseo.config.base import (
    BY_COMMAND,
    INCIDENTAL,
    SCHEMA,
    Amount,
    Config,
    Count,
    PositiveCount,
    Ratio,
    Section,
    Text,
    changed_settings,
    full_name,
    incidental_names,
    read_saved_settings,
    read_settings,
    update_config,
    validate_user_value,
    validate_value,
)
from danseo.errors import DanseoError


class Inner(Section):
    """A section."""

    pace: Amount = 1.0
    """How fast."""
    width: PositiveCount = 4
    """How wide,
    in two lines."""
    share: Ratio | None = None
    """Part of it."""


class Other(Section):
    """A section with a name that the first has, too."""

    width: PositiveCount = 4
    """How wide."""


class Small(Config):
    """A config with all there is."""

    name: Text
    """What it is called."""
    shade: Literal["none", "plain", "dark"] = "plain"
    """How dark."""
    made_by: Annotated[Literal["hand", "command"], BY_COMMAND] = "hand"
    """How it was made."""
    threads: Annotated[Count, INCIDENTAL] = 0
    """Number of threads."""
    few: Annotated[int, Field(gt=2, le=8)] = 3
    """A number between."""
    inner: Inner = Inner(width=5)
    other: Other = Other()

    HINTS: ClassVar[Mapping[str, str]] = {"num_shades": "set shade"}


BASE = Small(name="x")


def test_a_section_may_be_left_out_unless_two_have_the_name() -> None:
    assert full_name("pace", Small) == full_name("inner.pace", Small) == "inner.pace"
    with pytest.raises(DanseoError, match=r"width may be inner\.width or other\.width; write one of them"):
        full_name("width", Small)
    assert full_name("other.width", Small) == "other.width"


def test_a_new_setting_changes_no_name_until_it_is_used() -> None:
    """Only what differs from its default identifies a run, and what changes no result never does."""
    assert changed_settings(BASE) == {"name": "x"}
    assert incidental_names(Small) == ("threads",)
    changed = update_config(BASE, {"threads": 3, "shade": "dark", "inner.width": 4})
    assert changed_settings(changed) == {"name": "x", "shade": "dark", "inner.width": 4}


def test_settings_of_the_command_are_refused_in_files() -> None:
    assert validate_user_value("made_by", "hand", Small) == "hand"
    with pytest.raises(DanseoError, match="made_by cannot be set"):
        validate_user_value("made_by", "command", Small)
    assert validate_value("made_by", "command", Small) == "command"


@pytest.mark.parametrize("schema", ["", "schema = 1\n", "schema = 3\n", 'schema = "two"\n', "schema = true\n"])
def test_a_run_with_another_schema_is_one_line(tmp_path: Path, schema: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'{schema}name = "x"\n')
    with pytest.raises(DanseoError) as caught:
        read_saved_settings(path, Small)
    assert str(caught.value).startswith(f"{path}: written with")
    assert f"reads schema {SCHEMA};" in str(caught.value)
    if schema:
        with pytest.raises(DanseoError, match="reads schema"):
            read_settings(path, Small)
    else:
        assert read_settings(path, Small) == {"name": "x"}, "a user's file needs no number"
