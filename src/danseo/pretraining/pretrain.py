"""Pre-training: text and settings in, a folder of checkpoints out; the story on one screen."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.display.progress import TrainingProgress
from danseo.errors import DanseoError
from danseo.hub import folder_of
from danseo.plots.losses import draw_losses
from danseo.pretraining.budget import planned_pieces, settled_schedule
from danseo.pretraining.config import PretrainConfig
from danseo.pretraining.folders import RESULT, claim, packed_folder, quiet_or_said, reported
from danseo.pretraining.masker import ReplacingMasker, TextMasker
from danseo.pretraining.masking import Vocabulary
from danseo.pretraining.packing import PackedFacts, PackedRows, read_left_out
from danseo.pretraining.schedule import Schedule
from danseo.pretraining.start import load_body, load_masked, save_masked, settle_embeddings, start_folder
from danseo.probing.items import ProbeItem, items_hash
from danseo.probing.overlap import guard_identity, left_out_line
from danseo.runs.directory import Run, folder_identity
from danseo.runs.environment import environment
from danseo.runs.locks import owned_by_first
from danseo.settings.declaring import identifying
from danseo.text.identity import text_identity

if TYPE_CHECKING:
    from danseo.pretraining.fit import MaskedFit
    from danseo.training.workers import Workers

SETTINGS = "pretrain.toml"


@dataclass(frozen=True)
class PretrainJob:
    """All that a pre-training starts from."""

    config: PretrainConfig
    texts: tuple[Path, ...]
    probes: tuple[ProbeItem, ...] = ()
    device: str | None = None
    quiet: bool = False
    on_score: Callable[[int, dict[str, Any]], None] | None = None
    """Called after every evaluation with the step and its scores; it may raise to stop the training."""
    kept_out: tuple[ProbeItem, ...] = ()
    """More items that are not to be trained on, such as those of the test split."""

    @property
    def exclude(self) -> tuple[ProbeItem, ...]:
        """The items whose texts are never trained on."""
        return (*self.probes, *self.kept_out)


def pretrain(job: PretrainJob, out: Path | None = None, *, force: bool = False, wait: bool = True) -> Run:
    """Train, evaluate, save; a finished training is returned, an unfinished one goes on bit for bit.

    A folder that another process has is waited for, or not.
    """
    from danseo.training.workers import Workers

    check_config(job.config)
    if job.probes and job.config.objective == "rtd":
        raise DanseoError(
            "objective = rtd trains no head that fills gaps, so it cannot be probed; leave out the probes"
        )
    identity = identity_of(job)
    run, workers = Run(out or Path("runs") / name_of(job.config, identity)), Workers(job.device)
    with owned_by_first(run.path, wait=wait, on_note=quiet_or_said(job.quiet)):
        if not claim(run, SETTINGS, job.config, identity, workers, force):
            with reported(run):
                _train(job, run, workers)
    return run


def _train(job: PretrainJob, run: Run, workers: "Workers") -> None:
    started = time.perf_counter()
    start, is_rtd = run.path / "start", job.config.objective == "rtd"
    shown = "".format if is_rtd else "held-out loss {:.3f}".format
    with TrainingProgress(run.path.name, quiet=job.quiet or not workers.is_first, best=lambda b: shown(-b)) as progress:
        if workers.is_first:
            start_folder(start, job.config, job.texts, job.exclude, progress.note)
        workers.wait()
        workers.mirror(start)
        trusted = job.config.trust_remote_code
        model, tokenizer = load_body(start, trusted) if is_rtd else load_masked(str(start), trusted, needs_head=True)
        packed, facts = packed_folder(job.config, job.texts, job.exclude, tokenizer, workers)
        left_out = read_left_out(packed)
        progress.note(summary(facts))
        if job.exclude:
            progress.note(left_out_line(left_out))
        rows = PackedRows(packed / "train")
        if job.config.model.embeddings == "cooccurrence" and not job.config.checkpoint:
            settle_embeddings(start, job.config, model, tokenizer, rows, workers, progress.note)
        held_out = PackedRows(packed / "held_out", job.config.text.held_out_rows)
        pieces = planned_pieces(job.config, facts["train"].pieces)
        fit = text_fit(job.config, model, tokenizer, workers, run, progress.note, pieces)
        schedule = settled_schedule(
            job.config, fit, rows, lambda: _measured(job, fit, tokenizer, held_out), progress.note
        )
        fitted = fit.fit(rows, held_out, schedule, progress, lambda *at: _evaluated(job, run, fit, tokenizer, *at))
    if workers.is_first:
        save_masked(run.path / "model", model, tokenizer, {"global_step": fitted.best_step})
        speed = {"pieces": fitted.pieces, "pieces_per_second": fitted.pieces / max(1e-9, fitted.seconds)}
        surroundings = environment({"text": text_identity(job.texts)}, str(workers.device), fitted.seconds)
        run.write_json("environment.json", surroundings | speed | {"whole_seconds": time.perf_counter() - started})
        draw_losses(run.read_log(), run.path / "learning_curve.png")
        run.write_json(RESULT, result_of(run, fitted.best_step, schedule, facts, left_out) | speed)
        run.tidy()
    workers.wait()


def check_config(config: PretrainConfig) -> None:
    """Refuse settings that contradict each other."""
    if config.text.seq_len < 16:
        raise DanseoError(f"text.seq_len = {config.text.seq_len}: should be at least 16")
    if config.mask.maximum is not None and config.mask.maximum < config.mask.probability:
        raise DanseoError(f"mask.maximum = {config.mask.maximum} is below mask.probability = {config.mask.probability}")
    if config.steps and config.minutes:
        raise DanseoError("steps and minutes are both set; choose one")
    if config.model.pieces == "morpheme" and config.model.family == "xlm-roberta" and not config.checkpoint:
        raise DanseoError("model.pieces = morpheme is WordPiece, and xlm-roberta has unigrams; choose another family")


def identity_of(job: PretrainJob) -> str:
    """Eight hex digits of the settings and of what text, checkpoint and probes hold."""
    settings = identifying(job.config)
    if job.config.checkpoint and (folder := folder_of(job.config.checkpoint)):
        settings["checkpoint"] = folder_identity(folder)
    settings |= {"texts": text_identity(job.texts), "probes": items_hash(job.probes)}
    settings |= {"left_out": guard_identity(job.exclude)} if job.exclude else {}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]


def name_of(config: PretrainConfig, identity: str) -> str:
    """pretrain--modernbert-4x256--s42--9f31c0de."""
    scratch = f"{config.model.family}-{config.model.layers}x{config.model.hidden}"
    start = Path(config.checkpoint).name.replace("@", "-") if config.checkpoint else scratch
    return f"pretrain--{start}--s{config.seed}--{identity}"


def summary(facts: dict[str, PackedFacts]) -> str:
    """One line about the text."""
    train, held = facts["train"], facts["held_out"]
    return (
        f"{train.documents:,} documents in {train.rows:,} sequences, {train.pieces:,} pieces; "
        f"held out {held.documents:,} documents, {held.pieces:,} pieces"
    )


def text_fit(
    config: PretrainConfig,
    model: Any,
    tokenizer: Any,
    workers: "Workers",
    run: Run,
    on_note: Callable[[str], None],
    pieces: float = math.inf,
) -> "MaskedFit":
    """The model with its objective, ready to be fitted on so many pieces."""
    from danseo.pretraining.fit import MaskedFit

    make = _replaced if config.objective == "rtd" else _masked
    network, kind, scores = make(config, model, tokenizer)
    return MaskedFit(network, kind, config.train, config.seed, workers, run, on_note, scores, pieces)


def _masked(config: PretrainConfig, model: Any, tokenizer: Any) -> tuple[Any, Any, Any]:
    """Ordinary masking: what was there?"""
    from danseo.models.masked.kind import MaskedKind, MaskedNetwork, held_out_scores

    masker = TextMasker(Vocabulary.of(tokenizer), config.mask, config.text.seq_len, config.seed)
    kind = MaskedKind(masker, tokenizer.pad_token_id, masker.read_batch)
    return MaskedNetwork(model, config.text.seq_len), kind, held_out_scores


def _replaced(config: PretrainConfig, model: Any, tokenizer: Any) -> tuple[Any, Any, Any]:
    """Replaced-token detection: is this what was there?"""
    import torch

    from danseo.models.masked.replaced import Generator, ReplacedKind, ReplacedNetwork, detection_scores

    masker = ReplacingMasker(Vocabulary.of(tokenizer), config.mask, config.text.seq_len, config.seed)
    kind = ReplacedKind(masker, tokenizer.pad_token_id, masker.read_batch, weight=config.rtd.weight)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        generator = Generator(model, config.rtd.generator_width, config.rtd.generator_layers)
        network = ReplacedNetwork(model, generator, tokenizer.all_special_ids, config.text.seq_len)
    return network, kind, detection_scores


def _evaluated(
    job: PretrainJob, run: Run, fit: "MaskedFit", tokenizer: Any, step: int, epoch: float, scores: dict[str, float]
) -> dict[str, Any]:
    """Write checkpoint-<step> and probe it."""
    found: dict[str, Any] = {}
    if fit.workers.is_first:
        state = {"global_step": step, "epoch": round(epoch, 6), **scores}
        save_masked(run.path / f"checkpoint-{step}", fit.network.model, tokenizer, state)
        if job.probes:
            found = {"probes": probe_headline(fit.network.model, tokenizer, job.probes, str(fit.workers.device))}
        if job.on_score:
            job.on_score(step, {**scores, **found})
    fit.workers.wait()
    return found


def _measured(job: PretrainJob, fit: "MaskedFit", tokenizer: Any, held_out: PackedRows) -> None:
    """An evaluation for its time alone."""
    fit.evaluate(held_out)
    if job.probes and fit.workers.is_first:
        probe_headline(fit.network.model, tokenizer, job.probes, str(fit.workers.device))


def probe_headline(
    model: Any, tokenizer: Any, items: Sequence[ProbeItem], device: str, seq_len: int | None = None
) -> dict[str, float | None]:
    """The headline scores of a model in memory."""
    from danseo.models.masked.load import MaskedModel
    from danseo.probing.probe import ProbeOptions, probe_model

    options = ProbeOptions(seq_len=seq_len, quick=True)
    return dict(probe_model(MaskedModel(model, tokenizer, device=device), list(items), options).headline())


def result_of(
    run: Run, best_step: int, schedule: Schedule, facts: dict[str, PackedFacts], left_out: dict[str, Any]
) -> dict[str, Any]:
    """What the training came to."""
    log = run.read_log()
    return {
        "run": str(run.path),
        "steps": schedule.total,
        "steps_per_epoch": schedule.steps_per_epoch,
        "best_step": best_step,
        "documents": {split: fact.documents for split, fact in facts.items()},
        "sequences": {split: fact.rows for split, fact in facts.items()},
        "left_out": left_out,
        "evaluations": [{key: value for key, value in line.items() if key not in ("score", "best")} for line in log],
    }
