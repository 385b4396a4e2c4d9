"""An ensemble as an ordinary run: members in, a run directory out, and no model loaded."""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from danseo.config import RunConfig, TrainConfig
from danseo.data.halves import in_half
from danseo.ensembling.blend import Array, default_method, make_blend, shares
from danseo.ensembling.fitting import Judge, fitted_weights, greedy_weights, parse_weights
from danseo.ensembling.several import Several
from danseo.ensembling.spans import Spans
from danseo.ensembling.tags import Tags
from danseo.errors import DanseoError
from danseo.predictions.evidence import Arrays, packed_arrays, span_arrays, tag_arrays, tree_arrays
from danseo.records import Prediction
from danseo.runs.answers import Member, Members, headline, open_members
from danseo.runs.directory import Run
from danseo.runs.environment import environment
from danseo.runs.layouts.variants import distinct, model_names, variant_of
from danseo.runs.locks import owned
from danseo.runs.scores import finite, score_halves
from danseo.scoring.compare import compare
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Options:
    """How members become one."""

    method: str | None = None
    weights: str | None = None
    """fit, a number per member, or nothing for equal ones."""
    select: str | None = None
    """greedy, or nothing for all."""

    @property
    def is_fitted(self) -> bool:
        return self.weights == "fit" or self.select is not None


def make_ensemble(
    paths: Sequence[Path],
    data_dir: str | None,
    runs: Path,
    options: Options,
    *,
    force: bool = False,
    wait: bool = True,
    on_note: Callable[[str], None] = lambda note: None,
) -> Run:
    """The run of an ensemble; the same members and options give the same one."""
    started = time.perf_counter()
    given = open_members(paths, data_dir)
    given.require_same_halves()
    start = parse_weights(options.weights, len(given))
    members, order = given.ordered()
    start, options = start[order], replace(options, method=options.method or default_method(members))
    facts = _options(options, start)
    run = Run(runs / ensemble_name("ensemble", members.listed, facts, members.task))
    for note in counted_twice(members.listed):
        on_note(f"note: {note}")
    if run.is_finished and not force:
        return run
    blend = make_blend(members, str(options.method))  # complains before anything is removed or written
    with owned(run.path, wait=wait, on_note=on_note):
        run.sweep_out()
        if force or not run.is_finished:  # or has been finished meanwhile
            if force:
                run.remove()
            _combine(run, members, blend, options, start, facts, on_note, started)
    return run


def _combine(
    run: Run,
    members: Members,
    blend: Any,
    options: Options,
    start: Array,
    facts: dict[str, Any],
    on_note: Callable[[str], None],
    started: float,
) -> None:
    """Weights, answers, and the scores last."""
    run.start(ensemble_config(members, options), members.task)
    run.write_json("members.json", {**facts, "members": located(members.listed, run)})
    try:
        weights = _weights(members, options, start, on_note)
        predictions, kept = blend(weights)
        _write(run, members, predictions, kept, time.perf_counter() - started)
        threshold = blend.threshold if isinstance(blend, Spans | Several) else None
        fitted_on = "select" if options.is_fitted or threshold is not None else None
        scores = _scores(members, {**facts, "fitted_on": fitted_on, "threshold": threshold}, weights, predictions)
        if isinstance(blend, Tags):
            scores["ensemble"]["plain_argmax"] = _reported(members, scores["reported_on"], blend.plain(weights))
        run.write_json("scores.json", scores)
    except DanseoError as error:
        run.fail(str(error))
        raise


def _options(options: Options, start: Array) -> dict[str, Any]:
    weights = options.weights if options.weights in (None, "fit") else shares(start).round(9).tolist()
    return {"method": options.method, "weights": weights or "equal", "select": options.select or "all"}


def counted_twice(members: Sequence[Member]) -> list[str]:
    """Members that are also part of another one or its copy, as when a pattern of names catches those too."""
    records = [member.record for member in members if member.record]
    parts = {m.name: {part["run"] for part in m.record.parts} for m in members if m.record}
    notes = [
        f"{member.name} counts twice, for itself and in {whole}"
        for member in members
        for whole, within in parts.items()
        if member.name in within
    ]
    copies = distinct(records).copies
    return notes + [f"{copy.run.path.name} counts twice: it is {one.run.path.name} again" for copy, one in copies]


def ensemble_name(kind: str, members: Sequence[Member], options: dict[str, Any], task: Task) -> str:
    """ner--ensemble-prob--s1+2--0a1b2c3d: the kind, the seeds, and a fingerprint of members and options."""
    seeds = sorted({member.seed for member in members if member.seed is not None})
    shown = "+".join(map(str, seeds)) if len(seeds) <= 4 else f"{len(seeds)}seeds"
    identity = {**options, "task": task.name, "members": [(member.name, member.digest) for member in members]}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]
    label = "-".join(part for part in (kind, options.get("method")) if part)
    return f"{task.name}--{label}--s{shown}--{digest}"


def ensemble_config(members: Members, options: Options) -> RunConfig:
    """Settings that tables can show; what made the run stands in members.json."""
    given = {None: None, "fit": "fit"}.get(options.weights, "weighted")
    extra = [word for word in (given, options.select) if word]
    label = "-".join(["ensemble", str(options.method), *extra])
    seeds = [member.seed for member in members.listed if member.seed is not None]
    (rule,) = members.rules
    return RunConfig(
        task=members.task.name,
        model=f"{label} of {member_models(members.listed)}",
        seed=min(seeds),
        kind="ensemble",
        train=TrainConfig(select_on="dev" if members.select_on == "dev" else "select", halves=rule),
    )


def member_models(members: Sequence[Member]) -> str:
    """roberta-base + roberta-large×2: whose runs these are, whatever their seeds."""
    records = [member.record for member in members if member.record]
    names = dict(zip((record.run.path for record in records), model_names(records), strict=True))
    counts = Counter(names[member.record.run.path] if member.record else member.model for member in members)
    return " + ".join(name if count == 1 else f"{name}×{count}" for name, count in sorted(counts.items()))


def member_facts(member: Member) -> dict[str, Any]:
    """Who the member is."""
    variant = variant_of(member.record) if member.record else member.digest
    return {
        "run": member.name,
        "model": member.model,
        "seed": member.seed,
        "sha256": member.digest,
        "variant": variant,
    }


def located(members: Sequence[Member], run: Run) -> list[dict[str, Any]]:
    """Who the members are, and where they were as seen from the run."""
    positions = (os.path.relpath(member.path.resolve(), run.path.resolve()) for member in members)
    return [{**member_facts(member), "path": position} for member, position in zip(members, positions, strict=True)]


def _weights(members: Members, options: Options, start: Array, on_note: Callable[[str], None]) -> Array:
    """The weights as given, or as the select half has them."""
    if not options.is_fitted:
        return shares(start)
    judge = Judge(members, str(options.method), on_note)
    weights = greedy_weights(judge, start) if options.select else start
    return fitted_weights(judge, weights) if options.weights == "fit" else shares(weights)


def _write(
    run: Run, members: Members, predictions: Sequence[Prediction], kept: list[Any] | None, seconds: float
) -> None:
    if kept is not None:
        run.write_bytes("predictions/dev.npz", packed_arrays(_arrays(members.task, kept)))
    run.write_predictions("dev", predictions)
    run.write_json("environment.json", environment(members.hashes, "cpu", seconds))


def _arrays(task: Task, kept: list[Any]) -> Arrays:
    if task.kind == "tag":
        return tag_arrays(kept, task.labels)
    return tree_arrays(kept, task.labels) if task.kind == "parse" else span_arrays(kept)


def _scores(
    members: Members, facts: dict[str, Any], weights: Array, predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """The scores of the run, and what the ensemble gains over each member on the reported examples."""
    task, examples = members.task, members.examples
    scores = score_halves(task, examples, predictions, members.select_on)
    compared = gains(members.half(scores["reported_on"]) if scores["scores"].get("report") else members, predictions)
    rows = [
        {**member_facts(member), "weight": float(weight), "select_score": finite(member.select_score), **gain}
        for member, weight, gain in zip(members.listed, weights, compared, strict=True)
    ]
    return scores | {"select_score": _reported(members, "select", predictions), "ensemble": {**facts, "members": rows}}


def _reported(members: Members, half: str, predictions: Sequence[Prediction]) -> float | None:
    """The headline of other answers on the reported examples."""
    positions = in_half(members.task, members.examples, half)
    chosen = [members.examples[k] for k in positions], [predictions[k] for k in positions]
    return finite(headline(members.task, *chosen))


def gains(members: Members, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Per member its headline, by how much the ensemble is better, the paired interval and p."""
    task, answered = members.task, {prediction.guid: prediction for prediction in predictions}
    ours = [answered[example.guid] for example in members.examples]
    others = [id_ for id_ in task.metrics if id_ != task.headline]
    found = []
    for member in members.listed:
        systems = {"member": member.predictions, "ensemble": ours}
        comparison = compare(task, members.examples, systems, rounds=1000, skip=others)
        (difference,) = comparison.differences
        facts = difference.as_dict()
        score = finite(comparison.values[task.headline]["member"])
        kept = {key: facts[key] for key in ("difference", "interval", "p_permutation")}
        found.append({"score": score, **kept})
    return found
