"""Settings come, go, move and change their defaults; files of every age are read, and no run is renamed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from danseo.config import RunConfig, read_config
from danseo.errors import DanseoError
from danseo.settings.declaring import flat, full_name, identifying, later, later_section, setting
from danseo.settings.history import Removed, Renamed
from danseo.settings.values import checked, with_settings
from danseo.settings.written import read_kept, read_settings, to_toml


@dataclass(frozen=True, kw_only=True)
class First:
    """The first version of a config."""

    seed: int = 42
    speed: float = 1.0
    shade: str = "plain"


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A section that came later."""

    pace: float = 1.0
    width: int = setting(4, above=0)


@dataclass(frozen=True, kw_only=True)
class Today:
    """What has become of it: speed has moved, shade is gone, rule has come, and its default has changed since."""

    seed: int = 42
    rule: int = later(2, first=1)
    inner: Inner = field(default_factory=Inner)

    CHANGES: ClassVar[tuple[Any, ...]] = (
        Renamed("speed", "tempo"),
        Removed("shade", "plain", "all runs are plain"),
        Renamed("tempo", "inner.pace"),
    )


@dataclass(frozen=True, kw_only=True)
class Grown:
    """A config with a whole section that came later."""

    seed: int = 42
    more: Inner = later_section(Inner)


def kept(tmp_path: Path, text: str) -> Today:
    (tmp_path / "config.toml").write_text(text)
    return with_settings(Today(), read_kept(tmp_path / "config.toml", Today))


def test_a_file_of_the_first_version_means_what_it_meant(tmp_path: Path) -> None:
    found = kept(tmp_path, 'seed = 1\nspeed = 2.5\nshade = "plain"\n')
    assert flat(found) == {"seed": 1, "rule": 1, "inner.pace": 2.5, "inner.width": 4}


def test_a_file_between_them_is_changed_from_there_on(tmp_path: Path) -> None:
    found = kept(tmp_path, "schema = 3\nseed = 1\ntempo = 2.5\nrule = 2\n")
    assert flat(found) == {"seed": 1, "rule": 2, "inner.pace": 2.5, "inner.width": 4}


def test_todays_file_reads_back(tmp_path: Path) -> None:
    config = with_settings(Today(), {"pace": 3.0, "width": 9})
    assert to_toml(config).startswith("schema = 4\n")
    assert kept(tmp_path, to_toml(config)) == config


def test_runs_keep_their_names() -> None:
    today = with_settings(Today(), {"rule": 1, "pace": 2.5, "seed": 1})
    first = identifying(First(seed=1, speed=2.5))
    assert identifying(today) == {**first, "inner.width": 4}, "under the names of then; a first section counts whole"
    assert identifying(with_settings(today, {"rule": 2}))["rule"] == 2, "the new default is another run than the old"


def test_a_section_that_came_later_counts_where_it_is_used() -> None:
    assert identifying(Grown()) == {"seed": 42}
    assert identifying(with_settings(Grown(), {"width": 5})) == {"seed": 42, "more.width": 5}


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DanseoError, match=r"config.toml: written by a newer danseo \(schema 5, this one knows 4\)"):
        kept(tmp_path, "schema = 5\nseed = 1\n")
    with pytest.raises(DanseoError, match="should be a whole number"):
        kept(tmp_path, 'schema = "two"\nseed = 1\n')


@pytest.mark.parametrize(
    ("key", "told"),
    [("speed", "it is called tempo now"), ("tempo", "it is called inner.pace now"), ("shade", "removed: all runs are")],
)
def test_whoever_uses_an_old_name_is_told(tmp_path: Path, key: str, told: str) -> None:
    with pytest.raises(DanseoError, match=told):
        full_name(key, Today)
    (tmp_path / "mine.toml").write_text(f"{key} = 1\n")
    with pytest.raises(DanseoError, match=told):
        read_settings(tmp_path / "mine.toml", Today)


def test_ensembles_of_the_first_version_are_known_by_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('task = "ner"\nmodel = "ensemble of x"\nrecipe = "ensemble"\n')
    assert (read_config(path).kind, read_config(path).recipe) == ("ensemble", "default")
    path.write_text(to_toml(RunConfig(task="ner", model="x", kind="soup")))
    assert read_config(path).kind == "soup"


@pytest.mark.parametrize(
    ("field_", "value", "complaint"),
    [
        (setting(1, above=0), 0, "should be above 0"),
        (setting(1), -1, "should be 0 or more"),
        (setting(1, most=1), 2, "should be from 0 to 1"),
        (setting(1, above=2, most=8), 2, "should be above 2"),
        (setting(1, above=2, most=8), 9, "should be from 2 to 8"),
        (later(1, above=0), 0, "should be above 0"),
        (setting(1), 10**10, "too large a number"),
    ],
)
def test_bounds_stand_beside_the_setting(field_: Any, value: int, complaint: str) -> None:
    from dataclasses import make_dataclass

    cls = make_dataclass("Bounded", [("number", int, field_)], kw_only=True)
    with pytest.raises(DanseoError, match=f"number = {value}: {complaint}"):
        checked("number", value, cls)
    assert checked("number", 1 if field_.metadata["bounds"].low < 1 else 3, cls) in (1, 3)
