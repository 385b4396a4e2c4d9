"""What pre-training and entity fine-tuning share: their inputs, the claim of a run folder, checkpoints, packed text."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.config.base import changed_settings, to_toml
from danseo.config.mlm import PretrainConfig
from danseo.data.find import cache_root
from danseo.display.escaping import say
from danseo.errors import DanseoError, DataError
from danseo.files import check_writable, read_text, write_atomically
from danseo.hub import find_model_folder
from danseo.mlm.initialization import save_masked
from danseo.mlm.overlap import hash_excluded_texts
from danseo.mlm.packing import PackedFacts, check_packed, find_special_tokens, pack_texts, read_facts
from danseo.mlm.probing.items import ProbeItem
from danseo.runs.lock import lock_folder
from danseo.runs.store import Run, hash_folder
from danseo.text.documents import hash_files, hash_tokenizer
from danseo.text.morphology import KiwiAnalyser

if TYPE_CHECKING:
    from danseo.mlm.masked_trainer import MaskedTrainer
    from danseo.training.distributed import Workers

RESULT = "result.json"


@dataclass(frozen=True)
class TrainingJob:
    """The inputs of a training on text."""

    config: Any
    texts: tuple[Path, ...] = ()
    probes: tuple[ProbeItem, ...] = ()
    """Items to probe every checkpoint with."""
    device: str | None = None
    quiet: bool = False
    on_score: Callable[[int, dict[str, Any]], None] | None = None
    """Called after every evaluation with the step and its scores; it may raise to stop the training."""
    kept_out: tuple[ProbeItem, ...] = ()
    """More items whose texts are not trained on, such as those of the test split."""

    @property
    def exclude(self) -> tuple[ProbeItem, ...]:
        """Return the items whose texts are never trained on."""
        return (*self.probes, *self.kept_out)


def compute_identity(config: Any, **inputs: str) -> str:
    """Return eight hex digits of the settings and of the contents of the checkpoint and other inputs."""
    settings = changed_settings(config) | inputs
    if config.checkpoint and (folder := find_model_folder(config.checkpoint)):
        settings["checkpoint"] = hash_folder(folder)
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]


def claim_run(run: Run, settings: str, config: Any, identity: str, workers: "Workers", force: bool = False) -> bool:
    """Claim a folder for a training, or resume the same one; return whether it is finished."""
    if workers.is_first:
        if force and (run.path / "identity.txt").is_file():  # a folder without it was not written by danseo
            run.remove()
        _claim_folder(run, settings, config, identity)
    workers.barrier()
    return bool(workers.broadcast((run.path / RESULT).is_file()))


def _claim_folder(run: Run, settings: str, config: Any, identity: str) -> None:
    """Write the identity and the settings; raise an error if the folder holds something else."""
    check_writable(run.path)
    try:
        owner = read_text(run.path / "identity.txt").strip() if (run.path / "identity.txt").is_file() else None
    except DataError:
        owner = None
    if owner is None and run.path.is_dir() and any(not path.name.endswith(".part") for path in run.path.iterdir()):
        raise DanseoError(f"{run.path} is not empty and not a training of danseo; choose another --out")
    if owner not in (None, identity):
        raise DanseoError(f"{run.path} holds a training with other settings or text; choose another --out, or --force")
    run.remove_partial_files()
    write_atomically(run.path / "identity.txt", identity + "\n")  # first: it says which training owns the folder
    write_atomically(run.path / settings, to_toml(config))
    run.clear_end()


def make_note_printer(quiet: bool) -> Callable[[str], None]:
    """Return the function that prints notes before the progress bar starts."""
    return (lambda line: None) if quiet else say


@contextmanager
def record_failure(run: Run) -> Iterator[None]:
    """Record the reason of a failure in the folder; remove the folder if bad input stopped it before the first step."""
    try:
        yield
    except DanseoError as error:
        if error.exit_code == DanseoError.exit_code and not any(run.path.glob("checkpoint*")):
            with suppress(DanseoError):  # the first error is the one to report
                run.remove()  # otherwise corrected input would find the folder of another training
        else:
            run.fail(str(error))
        raise


def save_and_probe(
    job: TrainingJob,
    run: Run,
    trainer: "MaskedTrainer",
    tokenizer: Any,
    seq_len: int | None,
    step: int,
    epoch: float,
    scores: dict[str, float],
) -> dict[str, Any]:
    """Write checkpoint-<step>, probe it, call on_score, and return the probe scores."""
    model, workers, probed = trainer.network.model, trainer.workers, dict[str, Any]()
    if workers.is_first:
        state = {"global_step": step, "epoch": round(epoch, 6), **scores}
        save_masked(run.path / f"checkpoint-{step}", model, tokenizer, state)
        if job.probes:
            probed = {"probes": probe_headline(model, tokenizer, job.probes, str(workers.device), seq_len)}
        if job.on_score:
            job.on_score(step, {**scores, **probed})
    workers.barrier()
    return probed


def probe_headline(
    model: Any, tokenizer: Any, items: Sequence[ProbeItem], device: str, seq_len: int | None = None
) -> dict[str, float | None]:
    """Return the headline probe scores of a model in memory."""
    from danseo.mlm.probing.probe import ProbeOptions, probe_model
    from danseo.models.mlm.masked_model import MaskedModel

    options = ProbeOptions(seq_len=seq_len, quick=True)
    return probe_model(MaskedModel(model, tokenizer, device=device), items, options).headline()


def _is_packed(folder: Path) -> bool:
    """Return whether the rows are complete; a note names corrupted ones, which are written again."""
    if not (folder / "facts.json").is_file():
        return False
    try:
        check_packed(folder)
    except DanseoError as error:
        say(f"note: {str(error).partition('; ')[0]}; packing the text again")
        return False
    return True


def prepare_packed_rows(
    config: PretrainConfig,
    texts: Sequence[Path],
    exclude: Sequence[ProbeItem],
    tokenizer: Any,
    workers: "Workers",
    on_read: Callable[[int], None] = lambda count: None,
) -> tuple[Path, dict[str, PackedFacts]]:
    """Return the folder and sizes of the packed rows; rank 0 writes them unless they are in the cache."""
    key: list[Any] = [
        hash_files(texts),
        hash_tokenizer(tokenizer),
        hash_excluded_texts(exclude),
        find_special_tokens(tokenizer),
    ]
    units = KiwiAnalyser().version if config.mask.whole_word == "morpheme" else False
    key += [config.text.seq_len, config.text.packing, config.text.held_out_ratio, units]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    folder = cache_root() / "packed" / digest
    if workers.is_first and not _is_packed(folder):
        with lock_folder(folder, on_note=say):  # another process may be packing the same text
            if not _is_packed(folder):
                pack_texts(folder, list(texts), tokenizer, config, exclude, on_read)
    workers.barrier()
    workers.copy_folder(folder)
    return folder, read_facts(folder)
