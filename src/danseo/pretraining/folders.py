"""Where a training lives: its own folder, taken once, and the rows of its text in the cache."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.data.find import cache_root
from danseo.display.escaping import say
from danseo.errors import DanseoError, DataError
from danseo.files import check_writable, read_text, write_atomically
from danseo.pretraining.config import PretrainConfig
from danseo.pretraining.encoding import pack_texts, specials_around
from danseo.pretraining.packing import PackedFacts, check_packed, read_facts
from danseo.probing.items import ProbeItem
from danseo.probing.overlap import guard_identity
from danseo.runs.directory import Run
from danseo.runs.locks import owned
from danseo.settings.written import to_toml
from danseo.text.identity import text_identity, tokenizer_identity
from danseo.text.morphology import KiwiAnalyser

if TYPE_CHECKING:
    from danseo.training.workers import Workers

RESULT = "result.json"


def claim(run: Run, settings: str, config: Any, identity: str, workers: "Workers", force: bool = False) -> bool:
    """Take a folder for a training, or go on with the same one; another's is refused. Whether it is finished."""
    if workers.is_first:
        if force and (run.path / "identity.txt").is_file():  # whatever else is there is not ours to remove
            run.remove()
        _claim(run, settings, config, identity)
    workers.wait()
    return bool(workers.agreed((run.path / RESULT).is_file()))


def _claim(run: Run, settings: str, config: Any, identity: str) -> None:
    check_writable(run.path)
    try:
        found = read_text(run.path / "identity.txt").strip() if (run.path / "identity.txt").is_file() else None
    except DataError:
        found = None
    if found is None and run.path.is_dir() and any(not path.name.endswith(".part") for path in run.path.iterdir()):
        raise DanseoError(f"{run.path} is not empty and no training of danseo; choose another --out")
    if found not in (None, identity):
        raise DanseoError(f"{run.path} holds a training with other settings or text; choose another --out, or --force")
    run.sweep_out()
    write_atomically(run.path / "identity.txt", identity + "\n")  # first: by it the folder is known as this training's
    write_atomically(run.path / settings, to_toml(config))
    run.forget_end()


def quiet_or_said(quiet: bool) -> Callable[[str], None]:
    """Where notes go that come before the bar of a training."""
    return (lambda line: None) if quiet else say


@contextmanager
def reported(run: Run) -> Iterator[None]:
    """A failure inside leaves its reason in the folder; bad input that shows before any training leaves no folder."""
    try:
        yield
    except DanseoError as error:
        if error.exit_code == DanseoError.exit_code and not any(run.path.glob("checkpoint*")):
            with suppress(DanseoError):  # what it failed of is said, not that a link stays
                run.remove()  # or the same command with better input would meet another training's folder
        else:
            run.fail(str(error))
        raise


def _is_packed(folder: Path) -> bool:
    """Whether the rows are there as they were written; damaged ones are named, and made again."""
    if not (folder / "facts.json").is_file():
        return False
    try:
        check_packed(folder)
    except DanseoError as error:
        say(f"note: {str(error).partition('; ')[0]}; packing the text again")
        return False
    return True


def packed_folder(
    config: PretrainConfig, texts: Sequence[Path], exclude: Sequence[ProbeItem], tokenizer: Any, workers: "Workers"
) -> tuple[Path, dict[str, PackedFacts]]:
    """The rows of the text, made by the first process unless they are in the cache."""
    key: list[Any] = [
        text_identity(texts),
        tokenizer_identity(tokenizer),
        guard_identity(exclude),
        specials_around(tokenizer),
    ]
    units = KiwiAnalyser().version if config.mask.whole_words == "morpheme" else False
    key += [config.text.seq_len, config.text.pack, config.text.held_out, units]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    folder = cache_root() / "packed" / digest
    if workers.is_first and not _is_packed(folder):
        with owned(folder, on_note=say):  # others may be packing the same text for a training of theirs
            if not _is_packed(folder):
                pack_texts(folder, list(texts), tokenizer, config, exclude)
    workers.wait()
    workers.mirror(folder)
    return folder, read_facts(folder)
