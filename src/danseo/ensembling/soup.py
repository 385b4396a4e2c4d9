"""A soup: the mean of the weights of runs of one architecture, as a new run with a model of its own."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from danseo.config import RunConfig
from danseo.ensembling.blend import Array, shares
from danseo.ensembling.compatible import check_same_shape, first_difference, model_folder
from danseo.ensembling.fitting import only, parse_weights
from danseo.ensembling.making import counted_twice, ensemble_name, gains, located, member_facts, member_models
from danseo.errors import DanseoError
from danseo.extras import require
from danseo.models.encoder.facts import PACKAGES
from danseo.models.encoder.trust import with_trust
from danseo.models.weights import refuse_odd
from danseo.predictions.evidence import packed_arrays
from danseo.runs.answers import Members, open_members
from danseo.runs.directory import Run, folder_identity
from danseo.runs.environment import environment
from danseo.runs.locks import owned
from danseo.runs.scores import finite, score_halves


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
    """The run of a soup; the same members and weights give the same one."""
    if weights == "fit":
        raise DanseoError("--weights fit: a soup takes numbers, or --select greedy")
    require(*PACKAGES)
    members, order = open_members(paths, data_dir).ordered()
    members.require_same_halves()
    start = parse_weights(weights, len(members))[order]
    check_same_shape(members.listed)
    for note in counted_twice(members.listed):
        on_note(f"note: {note}")
    models = [folder_identity(model_folder(member)) for member in members.listed]
    shown = "equal" if weights is None else shares(start).round(9).tolist()
    options = {"weights": shown, "select": select or "all", "models": models}
    run = Run(runs / ensemble_name("soup", members.listed, options, members.task))
    if force or not run.is_finished:
        _check_device(device)  # before anything is removed
        for member in members.listed:
            with_trust(Run(member.path), trust_remote_code)
        with owned(run.path, wait=wait, on_note=on_note):
            run.sweep_out()
            if force:
                run.remove()
            if not run.is_finished:  # nor has been meanwhile
                _write(SoupMaker(run, members, device, trust_remote_code), start, select, options)
    return run


def _write(maker: "SoupMaker", start: Array, select: str | None, options: dict[str, Any]) -> None:
    try:
        maker.write(start, select, options)
    except DanseoError as error:
        maker.run.fail(str(error))
        raise


def _check_device(device: str | None) -> None:
    from danseo.training.workers import Workers

    Workers(device)


def average_weights(folders: Sequence[Path], weights: Array, target: Path) -> None:
    """A model folder with the files of the first one and the mean of all weights."""
    from safetensors.torch import load_file, save_file

    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folders[0], target, ignore=shutil.ignore_patterns("*.safetensors"))
    names = [sorted(path.name for path in folder.glob("*.safetensors")) for folder in folders]
    for name in names[0]:
        tensors = mean_tensors([(load_file(f / name), w, f) for f, w in zip(folders, weights.tolist(), strict=True)])
        save_file(tensors, target / name, metadata={"format": "pt"})


def mean_tensors(members: Sequence[tuple[dict[str, Any], float, Path]]) -> dict[str, Any]:
    """The weighted mean of every tensor, in double precision on the way."""
    first, _, folder = members[0]
    for tensors, _, path in members:
        refuse_odd(path, tensors.items())
    for tensors, _, other in members[1:]:
        shapes = [{key: list(tensor.shape) for key, tensor in side.items()} for side in (first, tensors)]
        if difference := first_difference(*shapes):
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
    """Averages weights, and scores the averages on the select half."""

    run: Run
    members: Members
    device: str | None
    trust_remote_code: bool = False

    def write(self, start: Array, select: str | None, options: dict[str, Any]) -> None:
        """Average, predict dev, write the run; scores last."""
        started = time.perf_counter()
        config = self._config()
        self.run.start(config, self.members.task)
        self.run.write_json("members.json", {**options, "members": located(self.members.listed, self.run)})
        weights = shares(self._greedy(start) if select else start)
        model = self._encoder(weights)
        predictions = model.predict_dev()
        model.save_decision(self.run.path / "model")
        if predictions.evidence is not None:
            self.run.write_bytes("predictions/dev.npz", packed_arrays(predictions.evidence))
        facts = environment(self.members.hashes, str(model.workers.device), time.perf_counter() - started)
        parameters = sum(parameter.numel() for parameter in model.network.parameters())
        self.run.write_predictions("dev", predictions)
        self.run.write_json("environment.json", facts | {"parameters": parameters})
        scores = score_halves(self.members.task, self.members.examples, predictions, config.train.select_on)
        half = self.members.half(scores["reported_on"])
        rows = [
            {**member_facts(m), "weight": float(w), "select_score": finite(m.select_score), **gain}
            for m, w, gain in zip(self.members.listed, weights, gains(half, predictions), strict=True)
        ]
        soup = {"kind": "soup", "weights": options["weights"], "select": options["select"], "members": rows}
        soup |= {"fitted_on": "select" if select else None}
        self.run.write_json("scores.json", scores | {"select_score": finite(model.select_score()), "ensemble": soup})

    def _config(self) -> RunConfig:
        """The settings of the first member, under the name of the soup."""
        first = self.members.listed[0].record
        assert first is not None
        config = first.run.config
        seeds = [member.seed for member in self.members.listed if member.seed is not None]
        select_on = "dev" if self.members.select_on == "dev" else "select"
        return replace(
            config,
            model=f"soup of {member_models(self.members.listed)}",
            seed=min(seeds),
            kind="soup",
            trust_remote_code=self.trust_remote_code,
            train=replace(config.train, select_on=select_on),  # type: ignore[arg-type]
        )

    def _encoder(self, weights: Array) -> Any:
        """The encoder with averaged weights, ready for dev."""
        from danseo.models.encoder.model import Encoder
        from danseo.training.workers import Workers

        chosen = np.flatnonzero(weights).tolist()
        folders = [model_folder(self.members.listed[position]) for position in chosen]
        average_weights(folders, shares(weights[chosen]), self.run.path / "model")
        model = Encoder(self._config(), self.members.task, Workers(self.device), source=self.run.path / "model")
        model.prepare_dev(self.members.examples)
        return model

    def _select_score(self, weights: Array) -> float:
        score: float = self._encoder(weights).select_score()
        return score

    def _greedy(self, start: Array) -> Array:
        """From the best member down, each stays in if the soup is no worse with it on the select half."""
        scores = [np.nan_to_num(member.select_score, nan=-np.inf) for member in self.members.listed]
        order = sorted(np.flatnonzero(start).tolist(), key=lambda position: -scores[position])
        chosen, best = order[:1], self._select_score(only(start, order[:1]))
        for position in order[1:]:
            score = self._select_score(only(start, [*chosen, position]))
            if score >= best:
                chosen, best = [*chosen, position], score
        return only(start, chosen)
