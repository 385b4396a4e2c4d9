"""Entity fine-tuning: a later mention is recovered from an earlier one; each objective against the others."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from danseo.data.find import cache_root
from danseo.display.progress import TrainingProgress
from danseo.errors import DanseoError
from danseo.files import check_writable
from danseo.hub import folder_of
from danseo.pretraining.config import CorefConfig, SaveConfig
from danseo.pretraining.folders import RESULT, claim, quiet_or_said, reported
from danseo.pretraining.masker import MentionMasker
from danseo.pretraining.masking import Vocabulary
from danseo.pretraining.mentions import (
    SPELLING,
    check_dataset_writable,
    dataset_seq_len,
    open_dataset,
    require_left_out,
    write_dataset,
)
from danseo.pretraining.packing import PackedRows, read_left_out
from danseo.pretraining.pretrain import probe_headline
from danseo.pretraining.schedule import Schedule, epoch_steps, planned
from danseo.pretraining.start import load_masked, save_masked
from danseo.probing.items import ProbeItem, items_hash
from danseo.probing.overlap import guard_identity, left_out_line
from danseo.runs.directory import Run, folder_identity
from danseo.runs.locks import owned, owned_by_first
from danseo.settings.declaring import flat, identifying
from danseo.text.identity import text_identity, tokenizer_identity
from danseo.text.morphology import Analyser, KiwiAnalyser

if TYPE_CHECKING:
    from danseo.pretraining.fit import MaskedFit
    from danseo.training.workers import Workers

SETTINGS = "coref.toml"
Objective = Literal["target", "mlm", "both"]
OBJECTIVES: tuple[Objective, ...] = ("target", "mlm", "both")


@dataclass(frozen=True)
class CorefJob:
    """All that an entity fine-tuning starts from."""

    config: CorefConfig
    texts: tuple[Path, ...] = ()
    dataset: Path | None = None
    save_dataset: Path | None = None
    probes: tuple[ProbeItem, ...] = ()
    """Other items to probe before and after than those of the held-out documents."""
    device: str | None = None
    quiet: bool = False
    analyser: Analyser | None = None
    on_score: Callable[[int, dict[str, Any]], None] | None = None
    """Called after every evaluation with the step and its scores; it may raise to stop the training."""
    kept_out: tuple[ProbeItem, ...] = ()
    """More items that are not to be trained on, such as those of the test split."""

    @property
    def exclude(self) -> tuple[ProbeItem, ...]:
        """The items whose texts are never trained on."""
        return (*self.probes, *self.kept_out)


def coref(
    job: CorefJob,
    out: Path | None = None,
    objectives: Sequence[Objective] | None = None,
    *,
    force: bool = False,
    wait: bool = True,
) -> dict[str, Any]:
    """Fine-tune with one objective, or with several for equally many steps; what each came to, before and after.

    A folder that another process has is waited for, or not.
    """
    chosen = tuple(objectives or (job.config.objective,))
    require_source(job.texts, job.dataset)
    folder = out or Path("runs") / f"coref--{Path(job.config.checkpoint).name}--s{job.config.seed}"
    check_writable(folder)
    from danseo.training.workers import Workers

    workers = Workers(job.device)
    dataset, seq_len = workers.agreed(prepared_dataset(job) if workers.is_first else None)
    workers.mirror(dataset)
    results: list[dict[str, Any]] = []
    for objective in chosen:
        config = replace(job.config, objective=objective)
        run = Run(folder / objective if len(chosen) > 1 or out is None else folder)
        before = results[0]["before"] if results else None  # all objectives start from the same checkpoint
        with owned_by_first(run.path, wait=wait, on_note=quiet_or_said(job.quiet)):
            results.append(_one(replace(job, config=config), run, dataset, seq_len, workers, force, before))
    return {"dataset": str(dataset), "seq_len": seq_len, "left_out": read_left_out(dataset), "objectives": results}


def require_source(texts: Sequence[Path], dataset: Path | None) -> None:
    """Refuse a fine-tuning without text."""
    if not texts and dataset is None:
        raise DanseoError("nothing to train on; name files with --text, or a prepared folder with --dataset")


def prepared_dataset(job: CorefJob) -> tuple[Path, int]:
    """The folder of rows: given, or made of the text and kept in the cache or where it is to be saved."""
    model, tokenizer = load_masked(job.config.checkpoint, job.config.trust_remote_code, needs_head=True)
    seq_len = row_length(job.config, job.dataset, model, tokenizer)
    if job.dataset is not None:
        require_left_out(job.dataset, job.exclude)
        return job.dataset, seq_len
    analyser = job.analyser or KiwiAnalyser()
    settings = {key: value for key, value in flat(job.config).items() if key.startswith("mention.")}
    key = [text_identity(job.texts), tokenizer_identity(tokenizer), seq_len, settings, analyser.version]
    key += [guard_identity(job.exclude), SPELLING]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    folder = job.save_dataset or cache_root() / "coref" / digest
    check_dataset_writable(folder)
    if (folder / "dataset.json").is_file() and not job.save_dataset:
        return folder, seq_len
    with owned(folder, on_note=quiet_or_said(job.quiet)):  # others may be preparing the same
        if not (folder / "dataset.json").is_file() or job.save_dataset:
            with TrainingProgress("coref", quiet=job.quiet) as progress:
                progress.note("looking for repeated entities in the text")
                write_dataset(folder, job.texts, tokenizer, job.config, seq_len, analyser, job.exclude)
    return folder, seq_len


def row_length(config: CorefConfig, dataset: Path | None, model: Any, tokenizer: Any) -> int:
    """The length of rows; a dataset of another tokenizer, or with longer rows than the checkpoint reads, is refused."""
    if dataset is not None:
        told, _, _ = open_dataset(dataset, tokenizer)
        config = replace(config, mention=replace(config.mention, seq_len=told["seq_len"]))
    return dataset_seq_len(config, model.config, tokenizer, _silent)


def _silent(line: str) -> None:
    """No word about a length that was chosen before."""


def _one(
    job: CorefJob,
    run: Run,
    dataset: Path,
    seq_len: int,
    workers: "Workers",
    force: bool,
    before: dict[str, Any] | None,
) -> dict[str, Any]:
    """One objective from beginning to end; a finished one is returned."""
    if not claim(run, SETTINGS, job.config, _identity(job, dataset), workers, force):
        if before and workers.is_first:
            run.write_json("before.json", before)
        with reported(run):
            _train(job, run, dataset, seq_len, workers)
    result: dict[str, Any] = workers.agreed(run.read_json(RESULT) if workers.is_first else None)
    return result


def _identity(job: CorefJob, dataset: Path) -> str:
    settings = identifying(job.config)
    if folder := folder_of(job.config.checkpoint):
        settings["checkpoint"] = folder_identity(folder)
    settings |= {"dataset": (dataset / "dataset.json").read_text("utf-8"), "probes": items_hash(job.probes)}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]


def _train(job: CorefJob, run: Run, dataset: Path, seq_len: int, workers: "Workers") -> None:
    from danseo.models.masked.kind import MaskedKind, MaskedNetwork, recovery_scores
    from danseo.pretraining.fit import MaskedFit
    from danseo.training.fit import load_weights, weights_of

    config = job.config
    model, tokenizer = load_masked(config.checkpoint, config.trust_remote_code, needs_head=True)
    told, facts, own_probes = open_dataset(dataset, tokenizer)
    probes = job.probes or tuple(own_probes)
    rows, held_out = PackedRows(dataset / "train"), PackedRows(dataset / "held_out", config.mention.held_out_items)
    kind = MaskedKind(MentionMasker(Vocabulary.of(tokenizer), config), tokenizer.pad_token_id)
    shown = f"{config.objective}: loss at held-out mentions {{:.3f}}".format
    with TrainingProgress(run.path.name, quiet=job.quiet or not workers.is_first, best=lambda b: shown(-b)) as progress:
        progress.note(f"{facts['train'].rows:,} mentions to learn from, {facts['held_out'].rows:,} held out")
        wider = 100 * told["wider"] / max(1, told["mentions"])
        progress.note(f"in {wider:.0f} % of them a piece holds more than the mention, and is recovered whole")
        if job.exclude:
            progress.note(left_out_line(read_left_out(dataset)))
        schedule = _schedule(config, len(rows))
        arguments = (MaskedNetwork(model, seq_len), kind, config.train, config.seed, workers, run)
        pieces = schedule.total / schedule.steps_per_epoch * facts["train"].pieces
        fit = MaskedFit(*arguments, progress.note, recovery_scores, pieces=pieces)
        before = _before(run, workers, lambda: _scores(fit, tokenizer, held_out, probes, seq_len))
        on_evaluation = _on_evaluation(job, run, fit, tokenizer, seq_len)
        fitted = fit.fit(rows, held_out, schedule, progress, on_evaluation)
    if workers.is_first:
        save_masked(run.path / "model", model, tokenizer, {"global_step": fitted.best_step})
    trusted, saved = config.trust_remote_code, str(run.path / f"checkpoint-{fitted.step}")
    last = load_masked(saved, trusted, needs_head=True)[0] if workers.is_first else None
    load_weights(model, workers.shared(last and weights_of(last)))  # equal steps are compared, not picked ones
    after = _scores(fit, tokenizer, held_out, probes, seq_len)
    if workers.is_first:
        run.write_json(RESULT, _result(run, config, fitted.step, before, after, len(probes)))
        run.tidy()
    workers.wait()


def _on_evaluation(
    job: CorefJob, run: Run, fit: "MaskedFit", tokenizer: Any, seq_len: int
) -> Callable[[int, float, dict[str, float]], dict[str, Any]]:
    """What follows an evaluation: a checkpoint, the probes where there are some, and a word to whoever listens."""
    model, workers = fit.network.model, fit.workers

    def evaluated(step: int, epoch: float, scores: dict[str, float]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if workers.is_first:
            state = {"global_step": step, "epoch": round(epoch, 6), **scores}
            save_masked(run.path / f"checkpoint-{step}", model, tokenizer, state)
            if job.probes:
                found = {"probes": probe_headline(model, tokenizer, job.probes, str(workers.device), seq_len)}
            if job.on_score:
                job.on_score(step, {**scores, **found})
        workers.wait()
        return found

    return evaluated


def _schedule(config: CorefConfig, rows: int) -> Schedule:
    per_epoch = epoch_steps(rows, config.train.batch_size)
    return planned(
        per_epoch, config.steps or max(1, round(per_epoch * config.train.epochs)), SaveConfig(every_epochs=1)
    )


def _before(run: Run, workers: "Workers", scores: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The scores of the checkpoint itself, from the first start of the run."""
    is_known = workers.is_first and (run.path / "before.json").is_file()
    known: dict[str, Any] | None = workers.agreed(run.read_json("before.json") if is_known else None)
    if known is not None:
        return known
    found = scores()
    if workers.is_first:
        run.write_json("before.json", found)
    return found


def _scores(
    fit: Any, tokenizer: Any, held_out: PackedRows, probes: Sequence[ProbeItem], seq_len: int
) -> dict[str, Any]:
    """Recovery of held-out mentions, and the probes with their intervals."""
    from danseo.models.masked.load import MaskedModel
    from danseo.probing.probe import ProbeOptions, probe_model

    found: dict[str, Any] = fit.evaluate(held_out)
    if probes and fit.workers.is_first:
        masked = MaskedModel(fit.network.model, tokenizer, device=str(fit.workers.device))
        result = probe_model(masked, list(probes), ProbeOptions(seq_len=seq_len))
        found["probes"] = dict(result.headline())
        # without its times, so that a fine-tuning that was killed ends with the same bytes as another
        found["probe_result"] = {key: value for key, value in result.as_dict().items() if key != "seconds"}
    return found


def _result(
    run: Run, config: CorefConfig, steps: int, before: dict[str, Any], after: dict[str, Any], probes: int
) -> dict[str, Any]:
    return {
        "run": str(run.path),
        "objective": config.objective,
        "checkpoint": config.checkpoint,
        "steps": steps,
        "probe_items": probes,
        "before": before,
        "after": after,
        "evaluations": run.read_log(),
    }
