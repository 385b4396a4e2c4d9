"""Pre-train a masked language model: text and settings in, a folder of checkpoints out."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.config.mlm import PretrainConfig
from danseo.display.plots.image_files import save_figures
from danseo.display.progress import TrainingProgress, Waiting
from danseo.errors import DanseoError
from danseo.mlm.initialization import (
    load_body,
    load_masked,
    save_masked,
    set_cooccurrence_embeddings,
    write_start_folder,
)
from danseo.mlm.masking import ReplacingMasker, TextMasker, Vocabulary
from danseo.mlm.overlap import format_left_out, hash_excluded_texts
from danseo.mlm.packing import PackedFacts, PackedRows, read_left_out
from danseo.mlm.probing.items import hash_items
from danseo.mlm.run_folder import (
    RESULT,
    TrainingJob,
    claim_run,
    compute_identity,
    make_note_printer,
    prepare_packed_rows,
    probe_headline,
    record_failure,
    save_and_probe,
)
from danseo.mlm.tables import make_training_charts
from danseo.mlm.training_length import CheckpointSteps, choose_checkpoint_steps
from danseo.runs.lock import lock_folder_on_first_process
from danseo.runs.provenance import collect_environment
from danseo.runs.store import Run
from danseo.text.documents import hash_files

if TYPE_CHECKING:
    from danseo.mlm.masked_trainer import MaskedTrainer
    from danseo.training.distributed import Workers

SETTINGS = "pretrain.toml"


@dataclass(frozen=True)
class PretrainJob(TrainingJob):
    """The inputs of a pre-training."""

    config: PretrainConfig


def pretrain(job: PretrainJob, out: Path | None = None, *, force: bool = False, wait: bool = True) -> Run:
    """Train, evaluate and save; return a finished training, and resume an incomplete one bit for bit.

    `wait` says whether to wait for another process that has the folder.
    """
    started = time.perf_counter()
    check_config(job.config)
    if job.probes and job.config.objective == "rtd":
        raise DanseoError(
            "objective = rtd trains no head that fills gaps, so it cannot be probed; leave out the probes"
        )
    with Waiting("reading the text and loading torch", quiet=job.quiet):
        from danseo.training.distributed import Workers

        inputs = {"texts": hash_files(job.texts), "probes": hash_items(job.probes)}
        inputs |= {"left_out": hash_excluded_texts(job.exclude)} if job.exclude else {}
        identity = compute_identity(job.config, **inputs)
        run, workers = Run(out or Path("runs") / _make_run_name(job.config, identity)), Workers(job.device)
    with lock_folder_on_first_process(run.path, wait=wait, on_note=make_note_printer(job.quiet)):
        if not claim_run(run, SETTINGS, job.config, identity, workers, force):
            with record_failure(run):
                _train(job, run, workers, started)
    return run


def _train(job: PretrainJob, run: Run, workers: "Workers", started: float) -> None:
    """Prepare model and text, train, and write the results."""
    format_best = "".format if job.config.objective == "rtd" else "held-out loss {:.3f}".format
    quiet = job.quiet or not workers.is_first
    with TrainingProgress(run.path.name, quiet=quiet, best=lambda best: format_best(-best)) as progress:
        model, tokenizer = _load_start(job, run.path / "start", workers, progress)
        progress.work_on("tokenizing documents")
        packed, facts = prepare_packed_rows(job.config, job.texts, job.exclude, tokenizer, workers, progress.advance)
        left_out = read_left_out(packed)
        progress.note(_summarize_text(facts))
        if job.exclude:
            progress.note(format_left_out(left_out))
        progress.work_on("preparing the model")
        rows = PackedRows(packed / "train")
        if job.config.model.embedding_init == "cooccurrence" and not job.config.checkpoint:
            set_cooccurrence_embeddings(run.path / "start", job.config, model, tokenizer, rows, workers, progress.note)
        held_out = PackedRows(packed / "held_out", job.config.text.max_held_out_sequences)
        trainer = make_trainer(job.config, model, tokenizer, workers, run, progress.note)
        progress.work_on("measuring the speed" if job.config.minutes else "planning the steps")
        evaluate = partial(_run_evaluation, job, trainer, tokenizer, held_out)
        steps = choose_checkpoint_steps(job.config, trainer, rows, evaluate, progress.note, started)
        on_evaluation = partial(save_and_probe, job, run, trainer, tokenizer, None)
        done = trainer.train(rows, held_out, steps, progress, on_evaluation)
        progress.work_on("saving the model")
        if workers.is_first:
            save_masked(run.path / "model", model, tokenizer, {"global_step": done.best_step})
    if workers.is_first:
        speed = {"tokens": done.tokens, "train_tokens_per_second": done.tokens / max(1e-9, done.seconds)}
        surroundings = collect_environment({"text": hash_files(job.texts)}, str(workers.device), done.seconds)
        run.write_json("environment.json", surroundings | speed | {"whole_seconds": time.perf_counter() - started})
        _write_result(run, done.best_step, steps, facts, {"left_out": left_out, **speed})
    workers.barrier()


def _load_start(job: PretrainJob, start: Path, workers: "Workers", progress: TrainingProgress) -> tuple[Any, Any]:
    """Write the folder of the initial model on rank 0, and load the model and its tokenizer from it everywhere."""
    config = job.config
    progress.work_on(f"loading {config.checkpoint}" if config.checkpoint else "training the tokenizer")
    if workers.is_first:
        write_start_folder(start, config, job.texts, job.exclude, progress.note)
    workers.barrier()
    workers.copy_folder(start)
    if config.objective == "rtd":
        return load_body(start, config.trust_remote_code)
    return load_masked(str(start), config.trust_remote_code, needs_head=True)


def check_config(config: PretrainConfig) -> None:
    """Raise an error if settings contradict each other."""
    if config.text.seq_len < 16:
        raise DanseoError(f"text.seq_len = {config.text.seq_len}: should be at least 16; raise it")
    highest, lowest = config.mask.max_probability, config.mask.mlm_probability
    if highest is not None and highest < lowest:
        raise DanseoError(f"mask.max_probability = {highest} is below mask.mlm_probability = {lowest}; raise it")
    if config.steps and config.minutes:
        raise DanseoError("steps and minutes are both set; choose one")
    if config.model.tokenizer == "morpheme" and config.model.architecture == "xlm-roberta" and not config.checkpoint:
        raise DanseoError(
            "model.tokenizer = morpheme is WordPiece, and xlm-roberta has unigrams; choose another architecture"
        )


def _make_run_name(config: PretrainConfig, identity: str) -> str:
    """Return a name such as pretrain--modernbert-4x256--s42--9f31c0de."""
    scratch = f"{config.model.architecture}-{config.model.num_hidden_layers}x{config.model.hidden_size}"
    start = Path(config.checkpoint).name.replace("@", "-") if config.checkpoint else scratch
    return f"pretrain--{start}--s{config.seed}--{identity}"


def _summarize_text(facts: dict[str, PackedFacts]) -> str:
    """Return one line about the sizes of the text."""
    train, held_out = facts["train"], facts["held_out"]
    return (
        f"{train.documents:,} documents in {train.rows:,} sequences, {train.tokens:,} tokens; "
        f"held out {held_out.documents:,} documents, {held_out.tokens:,} tokens"
    )


def make_trainer(
    config: PretrainConfig, model: Any, tokenizer: Any, workers: "Workers", run: Run, on_note: Callable[[str], None]
) -> "MaskedTrainer":
    """Return the trainer of a model with the objective of the settings."""
    from danseo.mlm.masked_trainer import MaskedTrainer

    make = _make_rtd if config.objective == "rtd" else _make_mlm
    network, objective, scores = make(config, model, tokenizer)
    return MaskedTrainer(network, objective, config.train, config.seed, workers, run, on_note, scores)


def _make_mlm(config: PretrainConfig, model: Any, tokenizer: Any) -> tuple[Any, Any, Any]:
    """Return network, objective and scores of masked language modelling."""
    from danseo.models.mlm.objective import MlmNetwork, MlmObjective, compute_held_out_scores

    masker = TextMasker(Vocabulary.of(tokenizer), config.mask, config.text.seq_len, config.seed)
    objective = MlmObjective(masker, masker.read_batch)
    return MlmNetwork(model, config.text.seq_len), objective, compute_held_out_scores


def _make_rtd(config: PretrainConfig, model: Any, tokenizer: Any) -> tuple[Any, Any, Any]:
    """Return network, objective and scores of replaced-token detection."""
    import torch

    from danseo.models.mlm.objective import Generator, RtdNetwork, RtdObjective, compute_detection_scores

    masker = ReplacingMasker(Vocabulary.of(tokenizer), config.mask, config.text.seq_len, config.seed)
    objective = RtdObjective(masker, masker.read_batch, weight=config.rtd.detection_weight)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        generator = Generator(model, config.rtd.generator_hidden_size, config.rtd.generator_layers)
        network = RtdNetwork(model, generator, tokenizer.all_special_ids, config.text.seq_len)
    return network, objective, compute_detection_scores


def _run_evaluation(job: PretrainJob, trainer: "MaskedTrainer", tokenizer: Any, held_out: PackedRows) -> None:
    """Evaluate once, to measure the time."""
    trainer.evaluate(held_out)
    if job.probes and trainer.workers.is_first:
        probe_headline(trainer.network.model, tokenizer, job.probes, str(trainer.workers.device))


def _write_result(
    run: Run, best_step: int, steps: CheckpointSteps, facts: dict[str, PackedFacts], more: dict[str, Any]
) -> None:
    """Write the learning curve and result.json, and remove the checkpoint for resuming."""
    log = run.read_log()
    if len(log) > 1:
        save_figures(run.path / "learning_curve.png", make_training_charts(log))
    result = {
        "run": str(run.path),
        "steps": steps.total,
        "steps_per_epoch": steps.steps_per_epoch,
        "best_step": best_step,
        "documents": {split: fact.documents for split, fact in facts.items()},
        "sequences": {split: fact.rows for split, fact in facts.items()},
        "evaluations": [{key: value for key, value in line.items() if key not in ("score", "best")} for line in log],
    }
    run.write_json(RESULT, result | more)
    run.remove_checkpoints()
