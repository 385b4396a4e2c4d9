"""The TOML file of a sweep: base settings, and a grid, a list of runs, a search or a study."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from danseo.config.base import Amount, Count, PositiveCount, Section, full_name, list_settings, validate_user_value
from danseo.config.run import RunConfig
from danseo.errors import DanseoError, DataError
from danseo.files import quote, read_toml
from danseo.language import _
from danseo.models.registry import configure_run, encoder_facts, get_family
from danseo.sweeps.optuna_study import Pruner, Sampler
from danseo.sweeps.search_space import Space, flatten_table, read_space, resolve_names
from danseo.tables.ablation import BASE as STUDY_BASE
from danseo.tasks import get_task

MAX_RUNS = 10_000
"""The limit of one sweep; more are a mistake in its [grid], or a case for [search]."""
LoadFacts = Callable[[str, str, bool], Any]
"""Loads the facts of an encoder that a recipe depends on, as encoder_facts does."""
AnySection = TypeVar("AnySection", bound=Section)
_PARTS = ("grid", "runs", "search", "study", "resources", "ensemble")
_FIXED = ("task", "train.select_on", "train.metric_for_best_model")  # trials with other values cannot be compared


class Resources(Section):
    """The resources of one run."""

    cpus: Amount = 1.0
    """Ray: CPUs per run."""
    gpus: Amount = 0.0
    """Ray: GPUs per run; with 0.5, two runs share one."""
    memory: Amount = 0.0
    """GiB per run; 0 sets no limit."""
    files: Literal["shared", "copied"] = "shared"
    """Ray: all nodes see the folder of runs (shared), or results are copied to it."""


class EnsembleTable(Section):
    """One ensemble of all runs that have the same value of a setting."""

    by: str = "seed"
    """The setting that the members of an ensemble share."""
    members: list[str] = Field(default_factory=list)
    """The models of the members; empty takes all."""
    method: Literal["prob", "logprob", "logit", "vote"] | None = None
    """What to average, or vote; by default that of `danseo ensemble`."""
    weights: Literal["fit"] | None = None
    """Fit weights on the select split."""
    select: Literal["greedy"] | None = None
    """Leave out members that do not improve the score on the select split."""


class Search(Section):
    """A search by Optuna."""

    trials: PositiveCount
    """Number of runs, failed and pruned ones included."""
    sampler: Sampler = "tpe"
    pruner: Pruner = "none"
    storage: str = ""
    """A file, or a database URL; by default a file in the folder of runs."""
    name: str = ""
    """The study in the storage; by default the name of the TOML file."""
    seed: Count = 0
    startup: Count = 10
    """Number of random trials before the sampler learns and the median pruner prunes."""
    space: Space = Field(default_factory=dict)


@dataclass(frozen=True)
class Changes:
    """A study: the base, and one change per cell, with the same seeds in every cell."""

    seeds: list[int]
    cells: dict[str, dict[str, Any]]
    """Settings by cell; the first cell is the base, without changes."""


@dataclass(frozen=True)
class Sweep:
    """Base settings and what varies, validated."""

    path: Path
    """The file, or a name if there is none."""
    base: dict[str, Any]
    grid: dict[str, list[Any]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    search: Search | None = None
    resources: Resources = field(default_factory=Resources)
    study: Changes | None = None
    ensemble: EnsembleTable | None = None

    def cells(self, load_facts: LoadFacts = encoder_facts) -> dict[str, list[list[RunConfig]]]:
        """Return the configs of each cell of a study by seed: one, or one per fold."""
        if self.study is None:
            return {}
        load_facts, seeds = cache(load_facts), self.study.seeds
        cells = {
            cell: [self._expand_folds(self.config({**changes, "seed": seed}, load_facts)) for seed in seeds]
            for cell, changes in self.study.cells.items()
        }
        for cell, configs in cells.items():
            if cell != STUDY_BASE and configs == cells[STUDY_BASE]:
                raise DanseoError(f"[study.changes] {cell} changes nothing: the base's recipe has the same settings")
        return cells

    def configs(self, load_facts: LoadFacts = encoder_facts) -> list[RunConfig]:
        """Return every entry of [[runs]] with every combination of [grid] and every fold, each config once."""
        if self.study:
            by_seed = zip(*self.cells(load_facts).values(), strict=True)  # all cells of a seed before the next seed
            return list(dict.fromkeys(config for cells in by_seed for folds in cells for config in folds))
        count = max(1, len(self.runs)) * prod(map(len, self.grid.values()))
        if count > MAX_RUNS:
            raise DanseoError(
                f"{count:,} runs, but a sweep has at most {MAX_RUNS:,}; shorten [grid], or use a [search]"
            )
        load_facts = cache(load_facts)
        configs = [
            self.config(entry | dict(zip(self.grid, values, strict=True)), load_facts)
            for entry in self.runs or [{}]
            for values in product(*self.grid.values())
        ]
        return list(dict.fromkeys(each for config in configs for each in self._expand_folds(config)))

    def _expand_folds(self, config: RunConfig) -> list[RunConfig]:
        """Return one config per fold, unless the file names the fold."""
        if not config.n_folds or any("fold" in settings for settings in (self.base, self.grid, *self.runs)):
            return [config]
        return [config.model_copy(update={"fold": fold}) for fold in range(config.n_folds)]

    def config(self, settings: Mapping[str, Any], load_facts: LoadFacts = encoder_facts) -> RunConfig:
        """Return the config of the base with some settings changed."""
        chosen = {**self.base, **settings}
        missing = [name for name in ("task", "model") if name not in chosen]
        if missing:
            raise DanseoError(f"no {' and no '.join(missing)} given; set it in the file, in [grid] or in each [[runs]]")
        task, model = get_task(chosen.pop("task")).settings_name, chosen.pop("model")
        recipe = chosen.pop("recipe", get_family(model).recipe)
        encoder = load_facts(model, recipe, bool(chosen.get("trust_remote_code")))
        return configure_run(task, model, recipe, chosen, encoder)


def read_sweep(path: Path) -> Sweep:
    """Read the TOML file of a sweep; errors name the file."""
    document = read_toml(path)
    with name_file_in_errors(path):
        parts = {name: document.pop(name) for name in _PARTS if name in document}
        _check_tables(document)
        base = _read_settings(_join_base(document.pop("base", {}), document))
        if not parts.keys() & {"grid", "runs", "search", "study"} and not base.get("n_folds"):
            raise DanseoError(_("nothing to choose; add a [grid], some [[runs]], a [search], a [study], or folds"))
        if "study" in parts and parts.keys() & {"grid", "runs", "search"}:
            raise DanseoError("[study] goes alone; put what changes into [study.changes]")
        if "search" in parts and parts.keys() & {"grid", "runs"}:
            raise DanseoError("[search] goes without [grid] and [[runs]]; put what it may choose into [search.space]")
        if "ensemble" in parts and parts.keys() & {"search", "study"}:
            raise DanseoError("[ensemble] goes with [grid] or [[runs]]; combine other runs with `danseo ensemble`")
        sweep = Sweep(
            path,
            base,
            _read_grid(parts["grid"]) if "grid" in parts else {},
            _read_runs(parts["runs"]) if "runs" in parts else [],
            _read_search(parts["search"], base) if "search" in parts else None,
            _read_section(Resources, parts.get("resources", {}), "resources"),
            _read_study(parts["study"], base) if "study" in parts else None,
            _read_ensemble(parts["ensemble"]) if "ensemble" in parts else None,
        )
        for entry in sweep.runs:
            if both := sorted(entry.keys() & sweep.grid.keys()):
                raise DanseoError(f"{both[0]} is chosen in [grid] and in [[runs]]; leave it out of one of them")
    return sweep


def _join_base(base: Any, top: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of [base] and those at the top of the file."""
    if not isinstance(base, dict):
        raise DanseoError(f"base = {quote(base)}: should be a table, [base]")
    inner, outer = flatten_table(base), flatten_table(top)
    if both := sorted(inner.keys() & outer.keys()):
        raise DanseoError(f"{both[0]} is in [base] and at the top; write it once")
    return inner | outer


def _check_tables(document: Mapping[str, Any]) -> None:
    """Refuse a mistyped table, which would be read as a section of settings."""
    sections = {path.split(".")[0] for path in list_settings(RunConfig) if "." in path}
    for name, value in document.items():
        near = get_close_matches(name, ("base", *_PARTS), 1)
        is_table = isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict))
        if is_table and name not in sections and name != "base" and near:
            raise DanseoError(f"unknown table [{name}]; did you mean [{near[0]}]?")


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Add the file to errors inside the block, except for data errors, which name their own file."""
    try:
        yield
    except DataError:
        raise
    except DanseoError as error:
        raise type(error)(f"{path}: {error}") from None


def _read_settings(table: Mapping[str, Any]) -> dict[str, Any]:
    named = resolve_names(flatten_table(table), lambda key: full_name(key, RunConfig))
    return {name: validate_user_value(name, value, RunConfig) for name, value in named.items()}


def _read_grid(table: Any) -> dict[str, list[Any]]:
    if not isinstance(table, dict) or not table:
        raise DanseoError(_("[grid] is empty; give it lists, such as seed = [1, 2, 3]"))
    grid: dict[str, list[Any]] = {}
    for name, values in resolve_names(flatten_table(table), _resolve_plural).items():
        if not isinstance(values, list) or not values:
            raise DanseoError(f"[grid] {name} = {quote(values)}: should be a list with at least one value")
        grid[name] = [validate_user_value(name, value, RunConfig) for value in values]
    return grid


def _resolve_plural(key: str) -> str:
    """Return the setting of a list of choices; plurals work too: seeds, learning_rates."""
    known = {path.split(".")[-1] for path in list_settings(RunConfig)}
    singular = key not in known and key[:-1] in known and key.endswith("s")
    return full_name(key[:-1] if singular else key, RunConfig)


def _read_runs(entries: Any) -> list[dict[str, Any]]:
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise DanseoError("runs should be written as [[runs]] tables, at least one")
    return [_read_settings(entry) for entry in entries]


def _read_study(table: Any, base: Mapping[str, Any]) -> Changes:
    table = dict(table) if isinstance(table, dict) else {}
    seeds, changes = table.pop("seeds", None), table.pop("changes", None)
    if table:
        raise DanseoError(f"[study]: unknown key {min(table)!r}; it has seeds and changes")
    if not isinstance(seeds, list) or len(set(map(str, seeds))) < 2:
        raise DanseoError("[study] needs seeds, two at least and three better: without them an effect has no interval")
    if not isinstance(changes, dict) or not changes or not all(isinstance(each, dict) for each in changes.values()):
        raise DanseoError('[study.changes] needs tables, such as focal = {loss = "focal"}')
    cells: dict[str, dict[str, Any]] = {STUDY_BASE: {}}
    cells |= {str(name): _read_settings(each) for name, each in changes.items()}
    for name, each in cells.items():
        if odd := sorted(each.keys() & {"seed", "task", "fold"}):
            raise DanseoError(f"[study.changes] {name}: {odd[0]} cannot be a change; every cell has the same")
        if name != STUDY_BASE and all(base.get(key) == value for key, value in each.items()):
            raise DanseoError(f"[study.changes] {name} changes nothing; give it a setting that the base has not")
    if base.keys() & {"fold"}:
        raise DanseoError("[study] takes all folds of a cell, as an ensemble per seed; leave fold out")
    return Changes([validate_user_value("seed", seed, RunConfig) for seed in seeds], cells)


def _read_ensemble(table: Any) -> EnsembleTable:
    ensemble = _read_section(EnsembleTable, table, "ensemble")
    return ensemble.model_copy(update={"by": full_name(ensemble.by, RunConfig)})


def _read_search(table: Any, base: Mapping[str, Any]) -> Search:
    table = dict(table) if isinstance(table, dict) else {}
    space = read_space(table.pop("space", {}))
    if fixed := [name for name in _FIXED if name in space]:
        raise DanseoError(f"[search.space] {fixed[0]}: trials must agree in it to be compared; set it at the top")
    require_select(base)
    return _read_section(Search, table, "search", space=space)


def require_select(base: Mapping[str, Any]) -> None:
    """Refuse a search on the examples that are reported."""
    if base.get("train.select_on") == "dev":
        raise DanseoError("select_on = dev would search on the reported examples; a search needs select_on = select")


def _read_section(cls: type[AnySection], table: Any, name: str, **values: Any) -> AnySection:
    """Return a table as a section of settings; the first error is one line."""
    if not isinstance(table, dict):
        raise DanseoError(f"[{name}] should be a table, not {quote(table)}")
    try:
        return cls(**table, **values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key, reason = str(first["loc"][0]), first["msg"].replace("Input should", "should")
    if first["type"] == "extra_forbidden":
        raise DanseoError(f"[{name}]: unknown key {quote(key)}; it has {', '.join(sorted(cls.model_fields))}")
    if first["type"] == "missing":
        raise DanseoError(f"[{name}] needs {key}")
    raise DanseoError(f"[{name}] {key} = {quote(first['input'])}: {reason}")
