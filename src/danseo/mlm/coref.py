"""Fine-tune a model to recover later mentions of an entity from earlier ones, and compare objectives."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from danseo.config.base import flatten_config, update_config
from danseo.config.mlm import CorefConfig, SaveSettings
from danseo.data.find import cache_root
from danseo.display.progress import TrainingProgress, Waiting
from danseo.errors import DanseoError
from danseo.files import check_writable
from danseo.mlm.initialization import load_masked, save_masked
from danseo.mlm.masking import MentionMasker, Vocabulary
from danseo.mlm.mentions import check_dataset_writable, open_dataset, require_left_out, write_dataset
from danseo.mlm.overlap import format_left_out, hash_excluded_texts
from danseo.mlm.packing import PackedRows, read_left_out
from danseo.mlm.probing.items import ProbeItem, hash_items
from danseo.mlm.run_folder import (
    RESULT,
    TrainingJob,
    claim_run,
    compute_identity,
    make_note_printer,
    record_failure,
    save_and_probe,
)
from danseo.mlm.training_length import count_epoch_steps, plan_checkpoints
from danseo.runs.lock import lock_folder, lock_folder_on_first_process
from danseo.runs.store import Run
from danseo.text.documents import hash_files, hash_tokenizer
from danseo.text.morphology import Analyser, KiwiAnalyser

if TYPE_CHECKING:
    from danseo.mlm.masked_trainer import MaskedTrainer
    from danseo.training.distributed import Workers

SETTINGS = "coref.toml"
Objective = Literal["target", "mlm", "both"]
OBJECTIVES: tuple[Objective, ...] = ("target", "mlm", "both")


@dataclass(frozen=True)
class CorefJob(TrainingJob):
    """The inputs of an entity fine-tuning; without `probes`, items of held-out documents are probed."""

    config: CorefConfig
    dataset: Path | None = None
    save_dataset: Path | None = None
    analyser: Analyser | None = None


def coref(
    job: CorefJob,
    out: Path | None = None,
    objectives: Sequence[Objective] | None = None,
    *,
    force: bool = False,
    wait: bool = True,
) -> dict[str, Any]:
    """Fine-tune with one objective, or several for equally many steps; return the scores before and after.

    `wait` says whether to wait for another process that has the folder.
    """
    chosen = tuple(objectives or (job.config.objective,))
    require_source(job.texts, job.dataset)
    folder = out or Path("runs") / f"coref--{Path(job.config.checkpoint).name}--s{job.config.seed}"
    check_writable(folder)
    with Waiting("loading torch", quiet=job.quiet):
        from danseo.training.distributed import Workers

        workers = Workers(job.device)
    dataset, seq_len = workers.broadcast(prepare_dataset(job) if workers.is_first else None)
    workers.copy_folder(dataset)
    results: list[dict[str, Any]] = []
    for objective in chosen:
        config = update_config(job.config, {"objective": objective})
        run = Run(folder / objective if len(chosen) > 1 or out is None else folder)
        before = results[0]["before"] if results else None  # all objectives start from the same checkpoint
        with lock_folder_on_first_process(run.path, wait=wait, on_note=make_note_printer(job.quiet)):
            results.append(_train_objective(replace(job, config=config), run, dataset, seq_len, workers, force, before))
    return {"dataset": str(dataset), "seq_len": seq_len, "left_out": read_left_out(dataset), "objectives": results}


def require_source(texts: Sequence[Path], dataset: Path | None) -> None:
    """Raise an error if there is no text to train on."""
    if not texts and dataset is None:
        raise DanseoError("nothing to train on; name files with --text, or a prepared folder with --dataset")


def prepare_dataset(job: CorefJob) -> tuple[Path, int]:
    """Return the folder of the dataset and the length of its rows; write it if it is not there."""
    with TrainingProgress("coref", quiet=job.quiet) as progress:
        progress.work_on(f"loading {job.config.checkpoint}")
        model, tokenizer = load_masked(job.config.checkpoint, job.config.trust_remote_code, needs_head=True)
        seq_len = choose_row_length(job.config, job.dataset, model, tokenizer)
        if job.dataset is not None:
            require_left_out(job.dataset, job.exclude)
            return job.dataset, seq_len
        return _find_or_write_dataset(job, tokenizer, seq_len, progress), seq_len


def _find_or_write_dataset(job: CorefJob, tokenizer: Any, seq_len: int, progress: TrainingProgress) -> Path:
    """Return the dataset of the cache, or write it there or to the folder that the user named."""
    analyser = job.analyser or KiwiAnalyser()
    settings = {key: value for key, value in flatten_config(job.config).items() if key.startswith("mention.")}
    key = [hash_files(job.texts), hash_tokenizer(tokenizer), seq_len, settings, analyser.version]
    key.append(hash_excluded_texts(job.exclude))
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    folder = job.save_dataset or cache_root() / "coref" / digest
    check_dataset_writable(folder)
    if (folder / "dataset.json").is_file() and not job.save_dataset:
        return folder
    with lock_folder(folder, on_note=make_note_printer(job.quiet)):  # another process may be preparing the same
        if not (folder / "dataset.json").is_file() or job.save_dataset:
            progress.note("looking for repeated entities in the text")
            progress.work_on("reading documents")
            arguments = (folder, job.texts, tokenizer, job.config, seq_len, analyser, job.exclude)
            write_dataset(*arguments, progress.advance)
    return folder


def choose_row_length(config: CorefConfig, dataset: Path | None, model: Any, tokenizer: Any) -> int:
    """Return the length of rows: that of the dataset, as set, or the checkpoint's maximum up to 512."""
    from danseo.models.mlm.positions import choose_length

    seq_len = open_dataset(dataset, tokenizer)[0]["seq_len"] if dataset else config.mention.seq_len
    length = choose_length(model.config, tokenizer, seq_len or None)
    return length if seq_len else min(512, length)


def _train_objective(
    job: CorefJob, run: Run, dataset: Path, seq_len: int, workers: "Workers", force: bool, before: dict[str, Any] | None
) -> dict[str, Any]:
    """Train one objective, unless it is finished, and return its result."""
    description = (dataset / "dataset.json").read_text("utf-8")
    identity = compute_identity(job.config, dataset=description, probes=hash_items(job.probes))
    if not claim_run(run, SETTINGS, job.config, identity, workers, force):
        if before and workers.is_first:
            run.write_json("before.json", before)
        with record_failure(run):
            _train(job, run, dataset, seq_len, workers)
    result: dict[str, Any] = workers.broadcast(run.read_json(RESULT) if workers.is_first else None)
    return result


def _train(job: CorefJob, run: Run, dataset: Path, seq_len: int, workers: "Workers") -> None:
    """Train one objective, and write its result."""
    from danseo.mlm.masked_trainer import MaskedTrainer
    from danseo.models.mlm.objective import MlmNetwork, MlmObjective, compute_recovery_scores

    config = job.config
    format_best = f"{config.objective}: loss at held-out mentions {{:.3f}}".format
    quiet = job.quiet or not workers.is_first
    with TrainingProgress(run.path.name, quiet=quiet, best=lambda best: format_best(-best)) as progress:
        progress.work_on(f"loading {config.checkpoint}")
        model, tokenizer = load_masked(config.checkpoint, config.trust_remote_code, needs_head=True)
        description, facts, dataset_probes = open_dataset(dataset, tokenizer)
        probes = job.probes or tuple(dataset_probes)
        progress.note(f"{facts['train'].rows:,} mentions to learn from, {facts['held_out'].rows:,} held out")
        wider = 100 * description["wider"] / max(1, description["mentions"])
        progress.note(f"in {wider:.0f} % of them a token contains more than the mention, and is recovered completely")
        if job.exclude:
            progress.note(format_left_out(read_left_out(dataset)))
        rows = PackedRows(dataset / "train")
        held_out = PackedRows(dataset / "held_out", config.mention.max_held_out_items)
        objective = MlmObjective(MentionMasker(Vocabulary.of(tokenizer), config))
        options = (config.train, config.seed, workers, run, progress.note, compute_recovery_scores)
        trainer = MaskedTrainer(MlmNetwork(model, seq_len), objective, *options)
        evaluate = partial(_evaluate_checkpoint, trainer, tokenizer, held_out, probes, seq_len, progress)
        before = _score_before(run, workers, evaluate)
        on_evaluation = partial(save_and_probe, job, run, trainer, tokenizer, seq_len)
        per_epoch = count_epoch_steps(len(rows), config.train.batch_size)
        total = config.steps or max(1, round(per_epoch * config.train.epochs))
        steps = plan_checkpoints(per_epoch, total, SaveSettings(every_epochs=1))
        done = trainer.train(rows, held_out, steps, progress, on_evaluation)
        progress.work_on("saving the model")
        if workers.is_first:
            save_masked(run.path / "model", model, tokenizer, {"global_step": done.best_step})
        _load_last_weights(model, run.path / f"checkpoint-{done.step}", config, workers)
        after = evaluate()
    if workers.is_first:
        run.write_json(RESULT, _make_result(run, config, done.step, before, after, len(probes)))
        run.remove_checkpoints()
    workers.barrier()


def _load_last_weights(model: Any, checkpoint: Path, config: CorefConfig, workers: "Workers") -> None:
    """Load the weights of the last step, so that all objectives are compared after equally many steps."""
    from danseo.training.trainer import copy_weights, load_weights

    last = None
    if workers.is_first:
        last = copy_weights(load_masked(str(checkpoint), config.trust_remote_code, needs_head=True)[0])
    load_weights(model, workers.broadcast_tensors(last))


def _score_before(run: Run, workers: "Workers", evaluate: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the scores of the checkpoint before training, computed at the first start of the run."""
    is_known = workers.is_first and (run.path / "before.json").is_file()
    known: dict[str, Any] | None = workers.broadcast(run.read_json("before.json") if is_known else None)
    if known is not None:
        return known
    scores = evaluate()
    if workers.is_first:
        run.write_json("before.json", scores)
    return scores


def _evaluate_checkpoint(
    trainer: "MaskedTrainer",
    tokenizer: Any,
    held_out: PackedRows,
    probes: Sequence[ProbeItem],
    seq_len: int,
    progress: TrainingProgress,
) -> dict[str, Any]:
    """Return the recovery of held-out mentions, and the probes with their intervals."""
    from danseo.mlm.probing.probe import ProbeOptions, probe_model
    from danseo.models.mlm.masked_model import MaskedModel

    progress.work_on(f"evaluating on {len(held_out):,} held-out mentions", len(held_out))
    scores: dict[str, Any] = dict(trainer.evaluate(held_out, progress.advance))
    if probes and trainer.workers.is_first:
        progress.work_on(f"probing with {len(probes):,} items")
        masked = MaskedModel(trainer.network.model, tokenizer, device=str(trainer.workers.device))
        result = probe_model(masked, probes, ProbeOptions(seq_len=seq_len))
        scores["probes"] = result.headline()
        # without its times, so that a training that was killed ends with the same bytes as another
        scores["probe_result"] = {key: value for key, value in result.as_dict().items() if key != "seconds"}
    return scores


def _make_result(
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
