"""Soups: the mean of the weights of runs of one architecture, as a new run with its own model."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.ensembling.ensemble import (
    find_repeated_members,
    keep_weights,
    locate_members,
    name_ensemble,
    name_models,
    parse_weights,
    score_members,
)
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.files import read_json, to_finite
from danseo.models.checkpoint import apply_trust, refuse_nonfinite
from danseo.models.encoder.model_info import PACKAGES
from danseo.runs.lock import lock_folder
from danseo.runs.predictions import MemberPredictions, MemberSet, open_members
from danseo.runs.provenance import collect_environment
from danseo.runs.store import Run, hash_folder
from danseo.tasktypes.combination import normalize_weights
from danseo.tasktypes.decoding import Array

_IRRELEVANT = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")  # keys of config.json
_LEARNING = {  # encoder settings that only change training: members may differ in them
    *("label_smoothing", "class_weights", "loss", "focal_gamma", "class_balanced_beta", "ldam_margin", "ldam_scale"),
    *("logit_adjustment_tau", "rdrop_alpha", "outside_weight", "hard_negative_ratio"),
}


def check_same_shape(members: Sequence[MemberPredictions]) -> None:
    """Refuse runs whose weights cannot be averaged; name the first difference."""
    for member in members:
        if not (member.model_folder / "config.json").is_file():
            raise DanseoError(f"{member.path} has no encoder to average; a soup is made of fine-tuned runs")
    first, *others = members
    for other in others:
        for what, read in (
            ("config.json", _read_config),
            ("tokenizer.json", _read_tokenizer),
            ("settings", _read_encoder_settings),
        ):
            if difference := find_first_difference(read(first), read(other)):
                key, one, two = difference
                raise DanseoError(
                    f"{first.name} and {other.name} differ in {what}: {key} is {one} in one and {two} in the other; "
                    "a soup needs one architecture and tokenizer (an ensemble does not)"
                )


def _read_config(member: MemberPredictions) -> dict[str, Any]:
    config = _read_json(member.model_folder / "config.json")
    return {key: value for key, value in config.items() if key not in _IRRELEVANT}


def _read_tokenizer(member: MemberPredictions) -> dict[str, Any]:
    """Return what the tokens of a text depend on."""
    tokenizer = _read_json(member.model_folder / "tokenizer.json")
    parts = {key: tokenizer.get(key) for key in ("normalizer", "pre_tokenizer", "added_tokens", "post_processor")}
    vocabulary = (tokenizer.get("model") or {}).get("vocab", ())
    return {"the number of tokens": len(vocabulary), "vocab": vocabulary, **parts}


def _read_encoder_settings(member: MemberPredictions) -> dict[str, Any]:
    """Return the encoder settings that a model depends on."""
    assert member.record is not None
    settings = {name.partition("."): value for name, value in member.record.settings.items()}
    return {
        f"encoder.{key}": value
        for (section, _, key), value in settings.items()
        if section == "encoder" and key not in _LEARNING
    }


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(path) if path.is_file() else {}
    return content


def find_first_difference(one: dict[str, Any], two: dict[str, Any]) -> tuple[str, str, str] | None:
    """Return the first key with different values, and these values shortened; None if there is none."""
    for key in dict.fromkeys((*one, *two)):
        if one.get(key) != two.get(key):
            short = [json.dumps(side.get(key), ensure_ascii=False)[:40] for side in (one, two)]
            return key, short[0], short[1] if short[0] != short[1] else "different after 40 characters"
    return None


def make_soup(
    paths: Sequence[Path],
    data_dir: str | None,
    runs: Path,
    weights: str | None,
    select: str | None,
    *,
    device: str | None = None,
    trust_remote_code: bool = False,
    force: bool = False,
    wait: bool = True,
    on_note: Callable[[str], None] = lambda note: None,
) -> Run:
    """Return the run of a soup; the same members and weights give the same one."""
    if weights == "fit":
        raise DanseoError("--weights fit: a soup takes numbers, or --select greedy")
    require(*PACKAGES)
    from danseo.training.distributed import Workers

    members, order = open_members(paths, data_dir).sort_by_name()
    initial_weights = parse_weights(weights, len(members))[order]
    check_same_shape(members.members)
    for note in find_repeated_members(members.members):
        on_note(f"note: {note}")
    models = [hash_folder(member.model_folder) for member in members.members]
    named = "equal" if weights is None else normalize_weights(initial_weights).round(9).tolist()
    options = {"weights": named, "select": select or "all", "models": models}
    run = Run(runs / name_ensemble("soup", members.members, options, members.task))
    if force or not run.is_finished:
        Workers(device)  # raises before anything is removed
        for member in members.members:
            apply_trust(Run(member.path), trust_remote_code)
        with lock_folder(run.path, wait=wait, on_note=on_note):
            run.remove_partial_files()
            if force:
                run.remove()
            if not run.is_finished:  # another process may have finished it
                try:
                    SoupMaker(run, members, device, trust_remote_code).write(initial_weights, select, options)
                except DanseoError as error:
                    run.fail(str(error))
                    raise
    return run


def average_weights(folders: Sequence[Path], weights: Array, target: Path) -> None:
    """Write a model folder with the files of the first one and the mean of all weights."""
    from safetensors.torch import load_file, save_file

    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folders[0], target, ignore=shutil.ignore_patterns("*.safetensors"))
    names = [sorted(path.name for path in folder.glob("*.safetensors")) for folder in folders]
    for name in names[0]:
        tensors = mean_tensors([(load_file(f / name), w, f) for f, w in zip(folders, weights.tolist(), strict=True)])
        save_file(tensors, target / name, metadata={"format": "pt"})


def mean_tensors(members: Sequence[tuple[dict[str, Any], float, Path]]) -> dict[str, Any]:
    """Return the weighted mean of every tensor, computed in double precision."""
    first, _, folder = members[0]
    for tensors, _, path in members:
        refuse_nonfinite(path, tensors.items())
    for tensors, _, other in members[1:]:
        shapes = [{key: list(tensor.shape) for key, tensor in side.items()} for side in (first, tensors)]
        if difference := find_first_difference(*shapes):
            key, one, two = difference
            raise DanseoError(f"{folder} and {other}: the weight {key} is {one} in one and {two} in the other")
    means = {}
    for key, tensor in first.items():
        if tensor.is_floating_point():
            total = sum(tensors[key].double() * weight for tensors, weight, _ in members)
            means[key] = total.to(tensor.dtype).contiguous()
        else:
            means[key] = tensor
    return means


@dataclass
class SoupMaker:
    """Averages weights, and scores the averages on the select split."""

    run: Run
    members: MemberSet
    device: str | None
    trust_remote_code: bool = False

    def write(self, initial_weights: Array, select: str | None, options: dict[str, Any]) -> None:
        """Average the weights, predict dev, and write the run, the scores last."""
        started = time.perf_counter()
        config = self._config()
        self.run.start(config, self.members.task)
        self.run.write_json("members.json", {**options, "members": locate_members(self.members.members, self.run)})
        weights = normalize_weights(self._select_greedily(initial_weights) if select else initial_weights)
        model = self._load_encoder(weights)
        predictions = model.predict_dev()
        model.save_decoding(self.run.path / "model")
        facts = collect_environment(self.members.hashes, str(model.workers.device), time.perf_counter() - started)
        parameters = sum(parameter.numel() for parameter in model.network.parameters())
        self.run.write_predictions("dev", predictions, predictions.evidence)
        self.run.write_json("environment.json", facts | {"parameters": parameters})
        soup = {"kind": "soup", "weights": options["weights"], "select": options["select"]}
        soup |= {"fitted_on": "select" if select else None}
        scores = score_members(self.members, soup, weights, predictions, config.train.select_on)
        self.run.write_json("scores.json", scores | {"select_score": to_finite(model.select_score())})

    def _config(self) -> RunConfig:
        """Return the settings of the first member, with the name of the soup."""
        first = self.members.members[0].record
        assert first is not None
        config = first.run.config
        seeds = [member.seed for member in self.members.members if member.seed is not None]
        select_on = "dev" if self.members.select_on == "dev" else "select"
        return update_config(
            config,
            {
                "model": f"soup of {name_models(self.members.members)}",
                "seed": min(seeds),
                "run_type": "soup",
                "trust_remote_code": self.trust_remote_code,
                "train.select_on": select_on,
            },
        )

    def _load_encoder(self, weights: Array) -> Any:
        """Return the encoder with averaged weights, ready for dev."""
        from danseo.models.encoder.model import Encoder
        from danseo.training.distributed import Workers

        chosen = np.flatnonzero(weights).tolist()
        folders = [self.members.members[position].model_folder for position in chosen]
        average_weights(folders, normalize_weights(weights[chosen]), self.run.path / "model")
        model = Encoder(self._config(), self.members.task, Workers(self.device), source=self.run.path / "model")
        model.prepare_dev(self.members.examples)
        return model

    def _select_score(self, weights: Array) -> float:
        score: float = self._load_encoder(weights).select_score()
        return score

    def _select_greedily(self, initial_weights: Array) -> Array:
        """Try the members, best first; keep each with which the score on the select split does not fall.

        Return the weights of the kept members.
        """
        scores = [np.nan_to_num(member.select_score, nan=-np.inf) for member in self.members.members]
        order = sorted(np.flatnonzero(initial_weights).tolist(), key=lambda position: -scores[position])
        chosen, best = order[:1], self._select_score(keep_weights(initial_weights, order[:1]))
        for position in order[1:]:
            score = self._select_score(keep_weights(initial_weights, [*chosen, position]))
            if score >= best:
                chosen, best = [*chosen, position], score
        return keep_weights(initial_weights, chosen)
