"""Ensembles as ordinary runs: members, weighted on the select split of dev only, are combined without a model."""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from danseo.config.run import RunConfig
from danseo.config.train import TrainSettings
from danseo.data.dev_split import take_split
from danseo.display.table import Table, format_interval
from danseo.errors import DanseoError
from danseo.files import to_finite
from danseo.records import Prediction
from danseo.runs.lock import lock_folder
from danseo.runs.predictions import MemberPredictions, MemberSet, open_members
from danseo.runs.provenance import collect_environment
from danseo.runs.scores import score_splits
from danseo.runs.store import Run
from danseo.scoring.compare import compare
from danseo.scoring.score import compute_headline
from danseo.scoring.tables import format_p
from danseo.tables.run_summary import make_run_tables
from danseo.tables.variants import drop_copies, hash_variant, make_model_names
from danseo.tasktypes.base import Task
from danseo.tasktypes.combination import Combiner, normalize_weights
from danseo.tasktypes.decoding import Array


@dataclass(frozen=True)
class EnsembleOptions:
    """How members are combined."""

    method: str | None = None
    weights: str | None = None
    """fit, a number per member, or None for equal ones."""
    select: str | None = None
    """greedy, or None for all."""

    @property
    def is_fitted(self) -> bool:
        return self.weights == "fit" or self.select is not None


def make_ensemble(
    paths: Sequence[Path],
    data_dir: str | None,
    runs: Path,
    options: EnsembleOptions,
    *,
    force: bool = False,
    wait: bool = True,
    on_note: Callable[[str], None] = lambda note: None,
) -> Run:
    """Return the run of an ensemble; the same members and options give the same one."""
    started = time.perf_counter()
    members, order = open_members(paths, data_dir).sort_by_name()
    initial_weights = parse_weights(options.weights, len(members))[order]
    options = replace(options, method=options.method or members.task.type.default_combination)
    weights = (
        options.weights if options.weights in (None, "fit") else normalize_weights(initial_weights).round(9).tolist()
    )
    facts = {"method": options.method, "weights": weights or "equal", "select": options.select or "all"}
    run = Run(runs / name_ensemble("ensemble", members.members, facts, members.task))
    for note in find_repeated_members(members.members):
        on_note(f"note: {note}")
    if run.is_finished and not force:
        return run
    combiner = members.task.type.make_combiner(members, str(options.method))  # raises before anything is removed
    with lock_folder(run.path, wait=wait, on_note=on_note):
        run.remove_partial_files()
        if force or not run.is_finished:  # another process may have finished it
            if force:
                run.remove()
            _write_ensemble(run, members, combiner, options, initial_weights, facts, on_note, started)
    return run


def _write_ensemble(
    run: Run,
    members: MemberSet,
    combiner: Combiner,
    options: EnsembleOptions,
    initial_weights: Array,
    facts: dict[str, Any],
    on_note: Callable[[str], None],
    started: float,
) -> None:
    """Find weights, combine predictions, and write the run, the scores last."""
    run.start(make_config(members, options), members.task)
    run.write_json("members.json", {**facts, "members": locate_members(members.members, run)})
    try:
        weights = _find_weights(members, options, initial_weights, on_note)
        predictions, rows = combiner(weights)
        pack = members.task.type.pack_arrays
        arrays = None if rows is None else pack(members.task, rows, combiner.token_starts)
        run.write_predictions("dev", predictions, arrays)
        run.write_json("environment.json", collect_environment(members.hashes, "cpu", time.perf_counter() - started))
        fitted_on = "select" if options.is_fitted or combiner.threshold is not None else None
        facts = {**facts, "fitted_on": fitted_on, "threshold": combiner.threshold}
        scores = score_members(members, facts, weights, predictions, members.select_on)
        scores["select_score"] = _score_split(members, "select", predictions)
        if (plain := combiner.predict_unconstrained(weights)) is not None:
            scores["ensemble"]["plain_argmax"] = _score_split(members, scores["reported_on"], plain)
        run.write_json("scores.json", scores)
    except DanseoError as error:
        run.fail(str(error))
        raise


def find_repeated_members(members: Sequence[MemberPredictions]) -> list[str]:
    """Return notes on members that are part of another member, or copies of another."""
    records = [member.record for member in members if member.record]
    parts = {m.name: {part["run"] for part in m.record.parts} for m in members if m.record}
    notes = [
        f"{member.name} counts twice, for itself and in {whole}"
        for member in members
        for whole, within in parts.items()
        if member.name in within
    ]
    copies = drop_copies(records).copies
    return notes + [
        f"{copy.run.path.name} is a copy of {one.run.path.name}, so it counts twice" for copy, one in copies
    ]


def name_ensemble(kind: str, members: Sequence[MemberPredictions], options: dict[str, Any], task: Task) -> str:
    """Return a name such as ner--ensemble-prob--s1+2--0a1b2c3d: type, seeds, hash of members and options."""
    seeds = sorted({member.seed for member in members if member.seed is not None})
    shown = "+".join(map(str, seeds)) if len(seeds) <= 4 else f"{len(seeds)}seeds"
    identity = {**options, "task": task.name, "members": [(member.name, member.digest) for member in members]}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]
    label = "-".join(part for part in (kind, options.get("method")) if part)
    return f"{task.name}--{label}--s{shown}--{digest}"


def make_config(members: MemberSet, options: EnsembleOptions) -> RunConfig:
    """Return the settings that tables show; the options of the ensemble are in members.json."""
    weights = {None: None, "fit": "fit"}.get(options.weights, "weighted")
    label = "-".join(part for part in ("ensemble", options.method, weights, options.select) if part)
    seeds = [member.seed for member in members.members if member.seed is not None]
    return RunConfig(
        task=members.task.name,
        model=f"{label} of {name_models(members.members)}",
        seed=min(seeds),
        run_type="ensemble",
        train=TrainSettings(select_on="dev" if members.select_on == "dev" else "select"),
    )


def name_models(members: Sequence[MemberPredictions]) -> str:
    """Return the models of members, whatever their seeds: roberta-base + roberta-large×2."""
    records = [member.record for member in members if member.record]
    names = dict(zip((record.run.path for record in records), make_model_names(records), strict=True))
    counts = Counter(names[member.record.run.path] if member.record else member.model for member in members)
    return " + ".join(name if count == 1 else f"{name}×{count}" for name, count in sorted(counts.items()))


def describe_member(member: MemberPredictions) -> dict[str, Any]:
    """Return the facts that identify a member."""
    variant = hash_variant(member.record) if member.record else member.digest
    names = {"run": member.name, "model": member.model, "seed": member.seed}
    return {**names, "sha256": member.digest, "variant": variant}


def locate_members(members: Sequence[MemberPredictions], run: Run) -> list[dict[str, Any]]:
    """Return the facts of members, with their paths relative to the run."""
    positions = (os.path.relpath(member.path.resolve(), run.path.resolve()) for member in members)
    return [{**describe_member(member), "path": position} for member, position in zip(members, positions, strict=True)]


def _find_weights(
    members: MemberSet, options: EnsembleOptions, initial_weights: Array, on_note: Callable[[str], None]
) -> Array:
    """Return the given weights, or those fitted on the select split."""
    if not options.is_fitted:
        return normalize_weights(initial_weights)
    scorer = WeightScorer(members, str(options.method), on_note)
    weights = select_greedily(scorer, initial_weights) if options.select else initial_weights
    return fit_weights(scorer, weights) if options.weights == "fit" else normalize_weights(weights)


def score_members(
    members: MemberSet, facts: dict[str, Any], weights: Array, predictions: Sequence[Prediction], select_on: str
) -> dict[str, Any]:
    """Return the scores of predictions, and how much better they are than each member, on the reported split."""
    scores = score_splits(members.task, members.examples, predictions, select_on)
    reported = members.select_split(scores["reported_on"]) if scores["scores"].get("report") else members
    rows = [
        {**describe_member(member), "weight": float(weight), "select_score": to_finite(member.select_score), **gain}
        for member, weight, gain in zip(members.members, weights, measure_gains(reported, predictions), strict=True)
    ]
    return scores | {"ensemble": {**facts, "members": rows}}


def _score_split(members: MemberSet, split: str, predictions: Sequence[Prediction]) -> float | None:
    """Return the headline of predictions on the select or report split."""
    return to_finite(compute_headline(members.task, *take_split(members.task, members.examples, predictions, split)))


def measure_gains(members: MemberSet, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Return per member its headline, the gain of the predictions, its interval and p value."""
    task, by_guid = members.task, {prediction.guid: prediction for prediction in predictions}
    combined = [by_guid[example.guid] for example in members.examples]
    others = [id_ for id_ in task.metrics if id_ != task.headline]
    gains = []
    for member in members.members:
        systems = {"member": member.predictions, "ensemble": combined}
        comparison = compare(task, members.examples, systems, rounds=1000, skip=others)
        facts = comparison.differences[0].as_dict()
        score = to_finite(comparison.values[task.headline]["member"])
        gains.append({"score": score, **{key: facts[key] for key in ("difference", "interval", "p_permutation")}})
    return gains


def make_ensemble_tables(run: Run) -> list[Table]:
    """Return a table of members with their weights, scores and gains, and the scores of the run."""
    scores = run.read_json("scores.json")
    return [_make_members_table(scores), *make_run_tables(run)]


def _make_members_table(scores: dict[str, Any]) -> Table:
    facts = scores["ensemble"]
    listed = scores["scores"].get(scores["reported_on"]) or scores["scores"]["dev"]
    own = next(score["value"] for score in listed if score["id"] == scores["headline"])
    rows: list[tuple[object, ...]] = [
        (
            member["run"],
            member["weight"],
            member["score"],
            member["difference"],
            format_interval(member["interval"], signed=True),
            format_p(member["p_permutation"]),
        )
        for member in facts["members"]
    ]
    rows.append((facts.get("kind", "ensemble").upper(), None, own, None, None, None))
    where = "the report split of dev" if scores["reported_on"] == "report" else "the whole dev set"
    mark = " (SELECTED ON THE REPORTED SET)" if scores["selected_on"] == "dev" else ""
    columns = ("run", "weight", "score", "gain", "95 % interval", "p")
    return Table(f"{scores['headline']} on {where}{mark}", columns, rows, "; ".join(_describe_combination(facts)))


def _describe_combination(facts: dict[str, Any]) -> Iterator[str]:
    if facts.get("method"):
        yield f"method: {facts['method']}"
    yield f"weights: {facts['weights'] if isinstance(facts['weights'], str) else 'given'}"
    yield f"members: {facts['select']}"
    yield "fitted on the select split of dev" if facts["fitted_on"] else "nothing fitted"
    if facts.get("threshold") is not None:
        yield f"no-answer threshold shifted by {facts['threshold']:+.2f}"
    if facts.get("plain_argmax") is not None:
        yield f"tags decoded with Viterbi; without it the score would be {facts['plain_argmax']:.2f}"


_STEPS = (0.0, 0.25, 0.5, 2.0, 4.0)  # times the present weight; 0 leaves the member out
_PASSES = 3
_BETTER = 1e-9


class WeightScorer:
    """Returns the headline of weights on the select split; each set of weights is combined once."""

    def __init__(self, members: MemberSet, method: str, on_note: Callable[[str], None] = lambda note: None) -> None:
        self.select = members.select_split("select")
        if not self.select.examples:
            raise DanseoError("no dev example is in the select split, so nothing can be fitted; give weights")
        self.combiner = members.task.type.make_combiner(self.select, method)
        self.seen: dict[tuple[float, ...], float] = {}
        self.best, self.on_note = -np.inf, on_note

    def __call__(self, weights: Array) -> float:
        key = tuple((weights / weights.sum()).round(9).tolist())
        if key not in self.seen:
            score = compute_headline(self.select.task, self.select.examples, self.combiner(weights)[0])
            self.seen[key] = -np.inf if np.isnan(score) else score
            if self.seen[key] > self.best:
                self.best = self.seen[key]
                self.on_note(
                    f"fitting: {score:.2f} on the select split with weights {', '.join(f'{w:.2f}' for w in key)}"
                )
        return self.seen[key]


def fit_weights(scorer: WeightScorer, start: Array) -> Array:
    """Return weights found by coordinate ascent from the start; a change must be strictly better."""
    weights, best = start.copy(), scorer(start)
    for _ in range(_PASSES):
        before = best
        for position in np.flatnonzero(start).tolist():
            for step in _STEPS:
                tried = weights.copy()
                tried[position] = (weights[position] or start[position]) * step
                if tried.any() and scorer(tried) > best + _BETTER:
                    weights, best = tried, scorer(tried)
        if best <= before + _BETTER:
            break
    return normalize_weights(weights)


def select_greedily(scorer: WeightScorer, start: Array) -> Array:
    """Return the weights of the best member and of those that, added one by one, improve the score most."""
    chosen: list[int] = []
    best, others = -np.inf, list(range(len(start)))
    while others:
        scores = [scorer(keep_weights(start, [*chosen, position])) for position in others]
        position = others[int(np.argmax(scores))]
        if max(scores) <= best + _BETTER:
            break
        best = max(scores)
        chosen.append(position)
        others.remove(position)
    return keep_weights(start, chosen)


def keep_weights(weights: Array, positions: Sequence[int]) -> Array:
    """Return the weights of some members, 0 for the others."""
    kept = np.zeros_like(weights)
    kept[list(positions)] = weights[list(positions)]
    return kept


def parse_weights(text: str | None, members: int) -> Array:
    """Return weights such as 1,2 as numbers, one per member; equal weights for None and "fit"."""
    if text in (None, "fit"):
        return np.ones(members)
    try:
        weights = np.array([float(part) for part in str(text).split(",")])
    except ValueError:
        raise DanseoError(f"--weights {text}: write fit, or a number per run, such as 1,2") from None
    if len(weights) != members:
        raise DanseoError(f"--weights {text}: {len(weights)} numbers for {members} runs; write one per run")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise DanseoError(f"--weights {text}: weights should be 0 or more, and not all 0")
    return weights
