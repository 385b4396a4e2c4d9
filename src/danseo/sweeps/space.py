"""A sweep as a TOML file: base settings, and the choices that make runs of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from danseo.config import RunConfig
from danseo.errors import DanseoError, DataError
from danseo.files import quote, read_toml
from danseo.models.families import family_of
from danseo.recipes import configured, encoder_facts
from danseo.runs.layouts.ablation import BASE as STUDY_BASE
from danseo.search.space import Space, by_full_name, leaves, read_space
from danseo.search.study import Pruner, Sampler
from danseo.settings.declaring import full_name, setting_paths
from danseo.settings.values import stated
from danseo.tasks import get_task

MOST_RUNS = 10_000
"""Of one sweep; more are a mistake in its [grid], or a case for [search]."""
_PARTS = ("grid", "runs", "search", "study", "resources")
_FIXED = ("task", "train.select_on", "train.monitor")  # with these open, trials could not be compared


@dataclass(frozen=True)
class Resources:
    """What one run needs."""

    cpus: float = 1
    """Ray: CPUs per run."""
    gpus: float = 0
    """Ray: GPUs per run; a share such as 0.5 puts two runs on one."""
    memory: float = 0
    """GiB per run; 0 asks for none."""
    files: Literal["shared", "copied"] = "shared"
    """Ray: whether all nodes see the folder of runs, or results are copied back to it."""


@dataclass(frozen=True)
class Search:
    """A search by Optuna."""

    trials: int
    """How many runs, failed and pruned ones included."""
    sampler: Sampler = "tpe"
    pruner: Pruner = "none"
    storage: str = ""
    """A file, or a database URL; by default a file in the folder of runs."""
    name: str = ""
    """The study in the storage; by default the name of the TOML file."""
    seed: int = 0
    startup: int = 10
    """Trials at random before the sampler learns, and before the median prunes."""
    space: Space = field(default_factory=dict)


@dataclass(frozen=True)
class Changes:
    """A study: the base, and one change per cell, with the same seeds in every cell."""

    seeds: list[int]
    cells: dict[str, dict[str, Any]]
    """The base first, which changes nothing."""


@dataclass(frozen=True)
class Sweep:
    """A base and its choices, checked."""

    path: Path
    """The file, or what a sweep without one is called."""
    base: dict[str, Any]
    grid: dict[str, list[Any]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    search: Search | None = None
    resources: Resources = Resources()
    study: Changes | None = None

    def cells(self, look: Callable[[str, str, bool], Any] = encoder_facts) -> dict[str, list[list[RunConfig]]]:
        """The configs of each cell of a study, seed by seed: one, or one per fold."""
        if self.study is None:
            return {}
        look, seeds = cache(look), self.study.seeds
        found = {
            cell: [self._folded(self.config({**changes, "seed": seed}, look)) for seed in seeds]
            for cell, changes in self.study.cells.items()
        }
        for cell, configs in found.items():  # a recipe may have it already
            if cell != STUDY_BASE and configs == found[STUDY_BASE]:
                raise DanseoError(f"[study.changes] {cell} changes nothing: the base's recipe has the same settings")
        return found

    def configs(self, look: Callable[[str, str, bool], Any] = encoder_facts) -> list[RunConfig]:
        """Every entry of [[runs]] with every combination of [grid], each config once, and every fold of it."""
        if self.study:
            cells = self.cells(look).values()
            by_seed = (
                folds for each in zip(*cells, strict=True) for folds in each
            )  # all have two before any has three
            return list(dict.fromkeys(config for folds in by_seed for config in folds))
        count = max(1, len(self.runs)) * prod(map(len, self.grid.values()))
        if count > MOST_RUNS:
            raise DanseoError(
                f"{count:,} runs, but a sweep has at most {MOST_RUNS:,}; shorten [grid], or use a [search]"
            )
        look = cache(look)
        found = [
            self.config(entry | dict(zip(self.grid, values, strict=True)), look)
            for entry in self.runs or [{}]
            for values in product(*self.grid.values())
        ]
        return list(dict.fromkeys(each for config in found for each in self._folded(config)))

    def _folded(self, config: RunConfig) -> list[RunConfig]:
        """A run per fold, unless the file says which."""
        named = [self.base, self.grid, *self.runs]
        if not config.folds or any("fold" in settings for settings in named):
            return [config]
        return [replace(config, fold=fold) for fold in range(config.folds)]

    def config(self, settings: Mapping[str, Any], look: Callable[[str, str, bool], Any] = encoder_facts) -> RunConfig:
        """The base with some settings changed; recipes look at the encoder."""
        chosen = {**self.base, **settings}
        missing = [name for name in ("task", "model") if name not in chosen]
        if missing:
            raise DanseoError(f"no {' and no '.join(missing)} given; set it in the file, in [grid] or in each [[runs]]")
        task, model = get_task(chosen.pop("task")).called, chosen.pop("model")
        recipe = chosen.pop("recipe", family_of(model).recipe)
        encoder = look(model, recipe, bool(chosen.get("trust_remote_code")))
        return configured(task, model, recipe, chosen, encoder)


def read_sweep(path: Path) -> Sweep:
    """The sweep of a TOML file; whatever is wrong with it is one line that names the file."""
    document = read_toml(path)
    with named_in(path):
        parts = {name: document.pop(name) for name in _PARTS if name in document}
        _check_tables(document)
        base = _settings(_joined(document.pop("base", {}), document))
        if not parts.keys() & {"grid", "runs", "search", "study"} and not base.get("folds"):
            raise DanseoError("nothing to choose; add a [grid], some [[runs]], a [search], a [study], or folds")
        if "study" in parts and parts.keys() & {"grid", "runs", "search"}:
            raise DanseoError("[study] goes alone; put what changes into [study.changes]")
        if "search" in parts and parts.keys() & {"grid", "runs"}:
            raise DanseoError("[search] goes without [grid] and [[runs]]; put what it may choose into [search.space]")
        sweep = Sweep(
            path,
            base,
            _grid(parts["grid"]) if "grid" in parts else {},
            _runs(parts["runs"]) if "runs" in parts else [],
            _search(parts["search"], base) if "search" in parts else None,
            _filled(Resources, parts.get("resources", {}), "resources"),
            _study(parts["study"], base) if "study" in parts else None,
        )
        _check_apart(sweep)
    return sweep


def _joined(base: Any, top: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of [base] and those at the top of the file."""
    if not isinstance(base, dict):
        raise DanseoError(f"base = {quote(base)}: should be a table, [base]")
    inner, outer = leaves(base), leaves(top)
    if both := sorted(inner.keys() & outer.keys()):
        raise DanseoError(f"{both[0]} stands in [base] and at the top; write it once")
    return inner | outer


def _check_tables(document: Mapping[str, Any]) -> None:
    """A mistyped table would otherwise be taken for a section of settings."""
    sections = {path.split(".")[0] for path in setting_paths(RunConfig) if "." in path}
    for name, value in document.items():
        near = get_close_matches(name, ("base", *_PARTS), 1)
        is_table = isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict))
        if is_table and name not in sections and name != "base" and near:
            raise DanseoError(f"unknown table [{name}]; did you mean [{near[0]}]?")


def _check_apart(sweep: Sweep) -> None:
    """What an entry of [[runs]] says must not be overruled in silence."""
    for entry in sweep.runs:
        if both := sorted(entry.keys() & sweep.grid.keys()):
            raise DanseoError(f"{both[0]} is chosen in [grid] and in [[runs]]; leave it out of one of them")


@contextmanager
def named_in(path: Path) -> Iterator[None]:
    """Complaints inside the block name the file, except those about files that they name themselves."""
    try:
        yield
    except DataError:
        raise
    except DanseoError as error:
        raise type(error)(f"{path}: {error}") from None


def _settings(table: Mapping[str, Any]) -> dict[str, Any]:
    named = by_full_name(leaves(table), lambda key: full_name(key, RunConfig))
    return {name: stated(name, value, RunConfig) for name, value in named.items()}


def _grid(table: Any) -> dict[str, list[Any]]:
    if not isinstance(table, dict) or not table:
        raise DanseoError("[grid] is empty; give it lists, such as seed = [1, 2, 3]")
    grid: dict[str, list[Any]] = {}
    for name, values in by_full_name(leaves(table), _chosen_name).items():
        if not isinstance(values, list) or not values:
            raise DanseoError(f"[grid] {name} = {quote(values)}: should be a list with at least one value")
        grid[name] = [stated(name, value, RunConfig) for value in values]
    return grid


def _chosen_name(key: str) -> str:
    """The setting of a list of choices; its plural is understood: seeds, learning_rates."""
    known = {path.split(".")[-1] for path in setting_paths(RunConfig)}
    singular = key not in known and key[:-1] in known and key.endswith("s")
    return full_name(key[:-1] if singular else key, RunConfig)


def _runs(entries: Any) -> list[dict[str, Any]]:
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise DanseoError("runs should be written as [[runs]] tables, at least one")
    return [_settings(entry) for entry in entries]


def _study(table: Any, base: Mapping[str, Any]) -> Changes:
    table = dict(table) if isinstance(table, dict) else {}
    seeds, changes = table.pop("seeds", None), table.pop("changes", None)
    if table:
        raise DanseoError(f"[study]: unknown key {min(table)!r}; it has seeds and changes")
    if not isinstance(seeds, list) or len(set(map(str, seeds))) < 2:
        raise DanseoError("[study] needs seeds, two at least and three better: without them an effect has no interval")
    if not isinstance(changes, dict) or not changes or not all(isinstance(each, dict) for each in changes.values()):
        raise DanseoError('[study.changes] needs tables, such as focal = {loss = "focal"}')
    cells: dict[str, dict[str, Any]] = {STUDY_BASE: {}}
    cells |= {str(name): _settings(each) for name, each in changes.items()}
    for name, each in cells.items():
        if odd := sorted(each.keys() & {"seed", "task", "fold"}):
            raise DanseoError(f"[study.changes] {name}: {odd[0]} cannot be a change; every cell has the same")
        if name != STUDY_BASE and all(base.get(key) == value for key, value in each.items()):
            raise DanseoError(f"[study.changes] {name} changes nothing; give it a setting that the base has not")
    if base.keys() & {"fold"}:
        raise DanseoError("[study] takes all folds of a cell, as an ensemble per seed; leave fold out")
    return Changes([stated("seed", seed, RunConfig) for seed in seeds], cells)


def _search(table: Any, base: Mapping[str, Any]) -> Search:
    table = dict(table) if isinstance(table, dict) else {}
    space = read_space(table.pop("space", {}))
    if "trials" not in table:
        raise DanseoError("[search] needs trials, the number of runs")
    if fixed := [name for name in _FIXED if name in space]:
        raise DanseoError(f"[search.space] {fixed[0]}: trials must agree in it to be compared; set it at the top")
    require_select(base)
    found: Search = _filled(Search, table, "search", space=space)
    if found.trials < 1:
        raise DanseoError(f"[search] trials = {found.trials}: should be 1 or more")
    return found


def require_select(base: Mapping[str, Any]) -> None:
    """A search may not go by the examples that are reported."""
    if base.get("train.select_on") == "dev":
        raise DanseoError("select_on = dev would search on the reported examples; a search needs select_on = select")


def _filled(cls: type, table: Any, part: str, **more: Any) -> Any:
    """A small record from a table, every key and type checked."""
    known = {each.name for each in fields(cls)} - more.keys()
    if not isinstance(table, dict) or (unknown := sorted(table.keys() - known)):
        what = f"unknown key {unknown[0]!r}" if isinstance(table, dict) else "not a table"
        raise DanseoError(f"[{part}]: {what}; it has {', '.join(sorted(known))}")
    hints = get_type_hints(cls)
    for key, value in table.items():
        _check_kind(f"[{part}] {key}", value, hints[key])
    return cls(**table, **more)


def _check_kind(name: str, value: Any, hint: Any) -> None:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise DanseoError(f"{name} = {quote(value)}: should be one of {', '.join(get_args(hint))}")
        return
    kinds = (int, float) if hint is float else (hint,)
    if isinstance(value, bool) or not isinstance(value, kinds) or (isinstance(value, int | float) and value < 0):
        due = {int: "a whole number", float: "a number, 0 or more", str: "a text"}[hint]
        raise DanseoError(f"{name} = {quote(value)}: should be {due}")
