"""Pre-training: text and settings in, a folder of checkpoints out; the story on one screen."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.config import flat, to_toml
from danseo.data import cache_root
from danseo.errors import DanseoError, DataError
from danseo.experiment import environment
from danseo.pretraining.config import PretrainConfig
from danseo.pretraining.encoding import pack_texts, specials_around
from danseo.pretraining.masker import TextMasker
from danseo.pretraining.masking import Vocabulary
from danseo.pretraining.packing import PackedFacts, PackedRows, read_facts
from danseo.pretraining.schedule import Schedule, epoch_steps, planned
from danseo.pretraining.start import load_masked, save_masked, start_folder
from danseo.pretraining.text import text_identity, tokenizer_identity
from danseo.probing.items import ProbeItem, items_hash
from danseo.progress import TrainingProgress
from danseo.reading import read_text
from danseo.runs.directory import Run, folder_identity

if TYPE_CHECKING:
    from danseo.training.masked_fit import MaskedFit
    from danseo.training.workers import Workers

SETTINGS, RESULT, SCHEDULE = "pretrain.toml", "result.json", "schedule.json"


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
    kept_out: frozenset[str] = frozenset()
    """More documents that are never trained on, by id."""

    @property
    def exclude(self) -> frozenset[str]:
        """Documents that the probes were made of, and others: they are never trained on."""
        return self.kept_out | {item.document for item in self.probes}


def pretrain(job: PretrainJob, out: Path | None = None, *, force: bool = False) -> Run:
    """Train, evaluate, save; a finished training is returned, an unfinished one goes on bit for bit."""
    from danseo.training.workers import Workers

    check_config(job.config)
    identity = identity_of(job)
    run, workers = Run(out or Path("runs") / name_of(job.config, identity)), Workers(job.device)
    if claim(run, SETTINGS, job.config, identity, workers, force):
        return run
    try:
        _train(job, run, workers)
    except DanseoError as error:
        run.fail(str(error))
        raise
    return run


def _train(job: PretrainJob, run: Run, workers: "Workers") -> None:
    started = time.perf_counter()
    shown = "held-out loss {:.3f}".format
    with TrainingProgress(run.path.name, quiet=job.quiet or not workers.is_first, best=lambda b: shown(-b)) as progress:
        if workers.is_first:
            start_folder(run.path / "start", job.config, job.texts, job.exclude, progress.note)
        workers.wait()
        model, tokenizer = load_masked(str(run.path / "start"))
        packed, facts = packed_folder(job, tokenizer, workers)
        progress.note(summary(facts))
        rows = PackedRows(packed / "train")
        held_out = PackedRows(packed / "held_out", job.config.text.held_out_rows)
        fit = masked_fit(job.config, model, tokenizer, workers, run, progress.note)
        schedule = settled_schedule(job.config, fit, rows, held_out, run, progress.note)
        fitted = fit.fit(rows, held_out, schedule, progress.step, lambda *at: _evaluated(job, run, fit, tokenizer, *at))
    if workers.is_first:
        save_masked(run.path / "model", model, tokenizer, {"global_step": fitted.best_step})
        speed = {"pieces": fitted.pieces, "pieces_per_second": fitted.pieces / max(1e-9, fitted.seconds)}
        surroundings = environment({"text": text_identity(job.texts)}, str(workers.device), fitted.seconds)
        run.write_json("environment.json", surroundings | speed | {"whole_seconds": time.perf_counter() - started})
        run.write_json(RESULT, result_of(run, fitted.best_step, schedule, facts) | speed)
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


def identity_of(job: PretrainJob) -> str:
    """Eight hex digits of the settings and of what text, checkpoint and probes hold."""
    settings = {key: value for key, value in flat(job.config).items() if key != "train.threads"}
    folder = Path(job.config.checkpoint) if job.config.checkpoint else None
    if folder and folder.is_dir():
        settings["checkpoint"] = folder_identity(folder)
    settings |= {"texts": text_identity(job.texts), "probes": items_hash(job.probes)}
    settings |= {"kept_out": sorted(job.kept_out)} if job.kept_out else {}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]


def name_of(config: PretrainConfig, identity: str) -> str:
    """pretrain--modernbert-4x256--s42--9f31c0de."""
    scratch = f"{config.model.family}-{config.model.layers}x{config.model.hidden}"
    start = Path(config.checkpoint).name.replace("@", "-") if config.checkpoint else scratch
    return f"pretrain--{start}--s{config.seed}--{identity}"


def claim(run: Run, settings: str, config: Any, identity: str, workers: "Workers", force: bool = False) -> bool:
    """Take a folder for a training, or go on with the same one; another's is refused. Whether it is finished."""
    if workers.is_first:
        if force:
            run.remove()
        _claim(run, settings, config, identity)
    workers.wait()
    return bool(workers.agreed((run.path / RESULT).is_file()))


def _claim(run: Run, settings: str, config: Any, identity: str) -> None:
    try:
        found = read_text(run.path / "identity.txt").strip() if (run.path / "identity.txt").is_file() else None
    except DataError:
        found = None
    if found is None and run.path.is_dir() and any(run.path.iterdir()):
        raise DanseoError(f"{run.path} is not empty and no training of danseo; choose another --out")
    if found not in (None, identity):
        raise DanseoError(f"{run.path} holds a training with other settings or text; choose another --out, or --force")
    run.write_bytes(settings, to_toml(config).encode())
    run.write_bytes("identity.txt", (identity + "\n").encode())
    (run.path / "error.txt").unlink(missing_ok=True)


def packed_folder(job: PretrainJob, tokenizer: Any, workers: "Workers") -> tuple[Path, dict[str, PackedFacts]]:
    """The rows of the text, made by the first process unless they are in the cache."""
    config = job.config
    key: list[Any] = [
        text_identity(job.texts),
        tokenizer_identity(tokenizer),
        sorted(job.exclude),
        specials_around(tokenizer),
    ]
    key += [config.text.seq_len, config.text.pack, config.text.held_out, config.mask.whole_words == "morpheme"]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    folder = cache_root() / "packed" / digest
    if workers.is_first and not (folder / "facts.json").is_file():
        pack_texts(folder, list(job.texts), tokenizer, config, job.exclude)
    workers.wait()
    return folder, read_facts(folder)


def summary(facts: dict[str, PackedFacts]) -> str:
    """One line about the text."""
    train, held = facts["train"], facts["held_out"]
    return (
        f"{train.documents:,} documents in {train.rows:,} sequences, {train.pieces:,} pieces; "
        f"held out {held.documents:,} documents, {held.pieces:,} pieces"
    )


def masked_fit(
    config: PretrainConfig, model: Any, tokenizer: Any, workers: "Workers", run: Run, on_note: Callable[[str], None]
) -> "MaskedFit":
    """The model with ordinary masking, ready to be fitted."""
    from danseo.models.masked import MaskedKind
    from danseo.training.masked_fit import MaskedFit

    masker = TextMasker(Vocabulary.of(tokenizer), config.mask, config.text.seq_len, config.seed)
    kind = MaskedKind(masker, tokenizer.pad_token_id, masker.read_batch)
    return MaskedFit(model, kind, config.train, config.seed, workers, run, config.text.seq_len, on_note)


def settled_schedule(
    config: PretrainConfig,
    fit: "MaskedFit",
    rows: PackedRows,
    held_out: PackedRows,
    run: Run,
    on_note: Callable[[str], None],
) -> Schedule:
    """The schedule of an earlier start, else from the settings; minutes become steps once, and are kept."""
    if (run.path / SCHEDULE).is_file():
        kept = run.read_json(SCHEDULE)
        return Schedule(kept["steps_per_epoch"], kept["total"], tuple(kept["marks"]))
    per_epoch = epoch_steps(len(rows), config.train.batch_size)
    total = config.steps or max(1, round(per_epoch * config.train.epochs))
    if config.minutes:
        total = _steps_in(config, per_epoch, fit, rows, held_out)
        on_note(f"{config.minutes:g} minutes are {total:,} steps here ({total / per_epoch:.2f} epochs)")
    schedule = planned(per_epoch, total, config.save)
    fit.workers.wait()
    if fit.workers.is_first:
        run.write_json(SCHEDULE, schedule.as_dict())
    return schedule


def _steps_in(config: PretrainConfig, per_epoch: int, fit: "MaskedFit", rows: PackedRows, held_out: PackedRows) -> int:
    """How many steps fit into the minutes, evaluations included."""
    seconds = 60 * config.minutes
    step = fit.seconds_per_step(rows, seconds / 20)
    started = time.perf_counter()
    fit.evaluate(held_out)
    evaluation = fit.workers.agreed(time.perf_counter() - started)
    if config.save.checkpoints:
        return max(1, int((seconds - config.save.checkpoints * evaluation) / step))
    interval = config.save.every_steps or config.save.every_epochs * per_epoch
    return max(1, int(seconds / (step + evaluation / interval)))


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


def probe_headline(
    model: Any, tokenizer: Any, items: Sequence[ProbeItem], device: str, seq_len: int | None = None
) -> dict[str, float | None]:
    """The headline scores of a model in memory."""
    from danseo.probing.masked import MaskedModel
    from danseo.probing.probe import ProbeOptions, probe_model

    options = ProbeOptions(seq_len=seq_len, quick=True)
    return dict(probe_model(MaskedModel(model, tokenizer, device=device), list(items), options).headline())


def result_of(run: Run, best_step: int, schedule: Schedule, facts: dict[str, PackedFacts]) -> dict[str, Any]:
    """What the training came to."""
    log = run.read_log()
    return {
        "run": str(run.path),
        "steps": schedule.total,
        "steps_per_epoch": schedule.steps_per_epoch,
        "best_step": best_step,
        "documents": {split: fact.documents for split, fact in facts.items()},
        "sequences": {split: fact.rows for split, fact in facts.items()},
        "evaluations": [{key: value for key, value in line.items() if key not in ("score", "best")} for line in log],
    }
