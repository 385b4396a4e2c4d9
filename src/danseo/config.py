"""Every setting with its default and its help text; TOML files, --set and the docs all read them here."""

import ast
import inspect
import json
import math
import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from danseo.errors import DanseoError
from danseo.files import quote, read_toml


def later(default: Any) -> Any:
    """A setting that came after the first version: at its default it does not change the name of a run."""
    return field(default=default, metadata={"later": True})


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """How examples become inputs, and outputs answers."""

    architecture: Literal["default", "official"] = "default"
    """official: KLUE's own alignment, heads and decoding where they differ; they need gold POS tags for dp."""
    max_length: int = 128
    """Longest input in pieces, special ones included."""
    stride: int = 128
    """mrc: how far the next window starts behind the last one, in pieces."""
    question_length: int = 64
    """mrc: longest question in pieces; the rest is cut."""
    answer_length: int = 30
    """mrc: longest answer in pieces."""
    best: int = 20
    """mrc: how many starts and ends are combined."""
    arc_size: int = 512
    """dp: width of the layers that score heads."""
    relation_size: int = 256
    """dp: width of the layers that score relations."""
    head_dropout: float = 0.33
    """dp: dropout before and inside the scoring layers."""
    value_length: int = 10
    """wos: longest slot value in pieces."""
    teacher_forcing: float = 0.5
    """wos, official: share of the batches that read the gold value while writing it."""
    attention: Literal["bidirectional", "causal"] = later("bidirectional")
    """Decoder-only language models: whether a piece sees those behind it; causal is how they were pre-trained."""
    pooling: Literal["auto", "last", "mean"] = later("auto")
    """Decoder-only language models: whose state speaks for a text; auto is mean, and last where attention is causal."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the weights are fitted."""

    epochs: float = 3
    """Passes over the training examples."""
    batch_size: int = 32
    """Examples per optimiser step, over all processes."""
    batch_tokens: int = 8192
    """Most padded pieces at a time (on a CPU, what its caches hold); larger batches are split into parts."""
    learning_rate: float = 5e-5
    """Peak rate, reached when the warm-up ends."""
    head_learning_rate: float | None = None
    """Peak rate of the layers above the encoder; None takes learning_rate."""
    schedule: Literal["linear", "cosine", "constant", "hold"] = "linear"
    """How the rate falls after the warm-up; hold keeps it, and falls to 0 over the last fifth."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises from 0."""
    weight_decay: float = 0.01
    """Decay of weights; biases and norms have none."""
    beta2: float = 0.999
    """AdamW's memory of squared gradients."""
    clip: float = 1.0
    """Longest gradient; 0 never clips."""
    evaluations: int = 2
    """Evaluations per epoch."""
    monitor: str = "headline"
    """The metric that picks the best checkpoint, by id; headline is the task's first."""
    patience: int | None = None
    """Stop after this many evaluations without a better score; None never stops."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """auto measures on this device and remembers; for short work bf16, or fp16 without it, on GPUs, else fp32."""
    attention: Literal["auto", "eager", "sdpa"] = "auto"
    """auto measures on this device and remembers; for short work sdpa where the encoder has it."""
    freeze: str = "none"
    """none, encoder (only the head learns), embeddings, or a number: embeddings and that many lowest layers."""
    layer_decay: float = 1.0
    """Each layer's rate as a share of that of the layer above it; the top layer has the full one, as has the head."""
    gradient_checkpointing: bool = False
    """Recompute activations to save memory."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all labels."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced weighs labels by their rarity."""
    outside_weight: float = 1.0
    """ner: weight of the tag O in the loss."""
    swa_start: float | None = None
    """Average the weights from this epoch on (0 is the start); None does not."""
    swa_every: int = 0
    """Steps between the averaged weights; 0 takes those at the end of each epoch."""
    swa_learning_rate: float | None = None
    """Constant rate while averaging; None keeps the schedule."""
    swa_include: Literal["all", "encoder"] = "all"
    """What is averaged: all that learns, or the encoder without its head."""
    ema: float = 0.0
    """Share of the old average that each step keeps, such as 0.999; 0 does not average."""
    select_on: Literal["select", "dev"] = "select"
    """Which dev examples pick the best checkpoint: one half (the other is reported), or all of them."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch."""
    exact: bool = later(False)
    """GPU: matrix products of fp32 in full; else their factors are rounded to TF32, which is faster."""
    deterministic: bool = later(False)
    """GPU: only algorithms that take sums in a fixed order; slower, and an operation that has none ends the run."""
    lora: int = later(0)
    """Language models: rank of the adapters (LoRA) that learn in place of the body's weights; 0 trains these."""
    lora_alpha: int = later(32)
    """Language models: what adapters are scaled by, divided by their rank."""
    lora_dropout: float = later(0.0)
    """Language models: dropout before the adapters."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: the same settings give the same directory."""

    task: str
    """The task, by name."""
    model: str
    """Hub id, id@revision, folder, or one of majority and linear."""
    seed: int = 42
    """Seed of weights, order and dropout."""
    recipe: str = "default"
    """The settings that were started from."""
    limit: int = 0
    """Only this many training examples; 0 takes all."""
    trust_remote_code: bool = False
    """Run code that comes with the checkpoint."""
    head: HeadConfig = field(default_factory=HeadConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


TRUST = "trust_remote_code"
"""The setting that only an option of the command at hand switches on."""
FLOORS = ("majority", "linear")
"""Models that need no encoder; of the settings of training none counts for them."""
Config = TypeVar("Config")
"""RunConfig, or the config of another command that declares its settings in the same way."""
_LARGEST, _LARGEST_SEED = 10**9, 2**63 - 1  # beyond them, no computer would come to an end, or torch take it
_POSITIVE = (  # where 0 makes no sense; the configs of other commands add theirs as POSITIVE
    "train.epochs train.batch_size train.batch_tokens head.max_length head.stride head.question_length "
    "head.answer_length head.best head.arc_size head.relation_size head.value_length"
).split()
_SHARES = (
    "train.warmup train.beta2 train.layer_decay train.label_smoothing train.ema train.lora_dropout head.head_dropout "
    "head.teacher_forcing"
).split()


@cache
def setting_help(cls: type) -> dict[str, str]:
    """Field -> the text below it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for node, after in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and is_text:
            texts[node.target.id] = str(after.value.value)  # type: ignore[attr-defined]
    return texts


@cache
def setting_paths(cls: type = RunConfig) -> dict[str, tuple[type, str]]:
    """Every setting of a config by its full name, train.learning_rate, with its class and field."""
    paths: dict[str, tuple[type, str]] = {}
    for place in fields(cls):
        section = get_type_hints(cls)[place.name]
        if not is_dataclass(section):
            paths[place.name] = (cls, place.name)
            continue
        inner = (each.name for each in fields(section) if each.name not in place.metadata.get("without", ()))
        paths |= {f"{place.name}.{name}": (section, name) for name in inner}  # type: ignore[misc]
    return paths


def full_name(key: str, cls: type = RunConfig) -> str:
    """The full name of a setting; the section may be left out. An unknown key is an error naming the nearest."""
    paths = setting_paths(cls)
    matches = [path for path in paths if path == key or path.split(".")[-1] == key]
    if matches:  # of several the oldest: attention alone has always been train.attention
        return min(matches, key=lambda path: _came_later(*paths[path]))
    short = {path.split(".")[-1]: path for path in paths}
    near = get_close_matches(key, [*paths, *short], 1, cutoff=0.6)
    hint = f"did you mean {short.get(near[0], near[0])}? " if near else ""
    raise DanseoError(f"unknown setting {key!r}; {hint}`{getattr(cls, 'LISTED_BY', 'danseo settings')}` lists all")


def _came_later(cls: type, name: str) -> bool:
    return any(each.metadata.get("later", False) for each in fields(cls) if each.name == name)


def parse_setting(assignment: str, cls: type = RunConfig) -> tuple[str, Any]:
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


def checked(name: str, value: Any, cls: type = RunConfig) -> Any:
    """The value in the type and range of the setting, or an error that says what is due."""
    if isinstance(value, int) and abs(value) > (_LARGEST_SEED if name == "seed" else _LARGEST):
        raise DanseoError(f"{name} = {quote(value)}: too large a number")
    value = _typed(name, value, cls)
    if isinstance(value, int | float) and name != "seed":
        is_positive = name in _POSITIVE or name in getattr(cls, "POSITIVE", ())
        if not (math.isfinite(value) and value >= 0) or (value == 0 and is_positive):
            raise DanseoError(f"{name} = {value}: should be {'above 0' if is_positive else '0 or more'}")
        if value > 1 and (name in _SHARES or name in getattr(cls, "SHARES", ())):
            raise DanseoError(f"{name} = {value}: should be from 0 to 1")
    return value


def stated(name: str, value: Any, cls: type = RunConfig) -> Any:
    """As checked, for what a file or --set says: code of a checkpoint is for the command line alone to allow."""
    value = checked(name, value, cls)
    if name == TRUST and value:
        raise DanseoError(
            f"{TRUST} cannot be switched on here; leave it out, and add --trust-remote-code to the command"
        )
    return value


def _typed(name: str, value: Any, config: type) -> Any:
    cls, attribute = setting_paths(config)[name]
    hint = get_type_hints(cls)[attribute]
    if get_origin(hint) is Literal:
        if value is None:
            value = "none"
        if value not in get_args(hint):
            raise DanseoError(f"{name} = {quote(value)}: should be one of {', '.join(map(str, get_args(hint)))}")
        return value
    kinds = get_args(hint) or (hint,)
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
    changed: Any = config
    for key, value in settings.items():
        name = full_name(key, type(config))
        section, _, inner = name.rpartition(".")
        value = checked(name, value, type(config))
        changed = (
            replace(changed, **{section: replace(getattr(changed, section), **{inner: value})})
            if section
            else replace(changed, **{name: value})
        )
    result: Config = changed
    return result


def flat(config: Any) -> dict[str, Any]:
    """Every setting by its full name."""
    cls: Any = type(config)
    return {
        name: getattr(getattr(config, name.split(".")[0]), name.split(".")[1]) if "." in name else getattr(config, name)
        for name in setting_paths(cls)
    }


def identifying(config: Any) -> dict[str, Any]:
    """The settings that tell runs apart: all that change results, those that came later only where used."""
    cls: Any = type(config)
    settings = {name: value for name, value in flat(config).items() if name != "train.threads"}
    return {name: value for name, value in settings.items() if not _is_unused(cls, name, value)}


def _is_unused(config: type, name: str, value: Any) -> bool:
    """Whether a setting came later, alone or with its whole section, and is at its default."""
    cls, attribute = setting_paths(config)[name]
    declared = {place.name: place for place in fields(cls)}[attribute]
    section = {place.name: place for place in fields(config)}[name.split(".")[0]]
    return bool(declared.metadata.get("later") or section.metadata.get("later")) and value == declared.default


def read_settings(path: Path, cls: type = RunConfig, check: Callable[[str, Any, type], Any] = stated) -> dict[str, Any]:
    """The settings of a TOML file, by full name."""
    document = read_toml(path)
    settings: dict[str, Any] = {}
    for key, value in document.items():
        inner = value if isinstance(value, dict) else None
        for name, item in ({f"{key}.{k}": v for k, v in inner.items()} if inner is not None else {key: value}).items():
            try:
                settings[full_name(name, cls)] = check(full_name(name, cls), item, cls)
            except DanseoError as error:
                raise DanseoError(f"{path}: {error}") from None
    return settings


def to_toml(config: Any, without: Collection[str] = ()) -> str:
    """All settings, resolved, as a TOML document that reads back to the same config."""
    sections: dict[str, list[str]] = {"": []}
    for name, value in flat(config).items():
        if name in without:
            continue
        section, _, key = name.rpartition(".")
        sections.setdefault(section, []).append(f"{key} = {_toml(value)}")
    return "\n".join(
        (f"[{section}]\n" if section else "") + "\n".join(lines) + "\n" for section, lines in sections.items()
    )


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)


def read_config(path: Path) -> RunConfig:
    """The config that to_toml wrote."""
    settings = read_settings(path, check=checked)
    if missing := [name for name in ("task", "model") if name not in settings]:
        raise DanseoError(f"{path}: {' and '.join(missing)} missing; is this a run's config.toml?")
    base = RunConfig(task=settings["task"], model=settings["model"])
    return with_settings(base, settings)
