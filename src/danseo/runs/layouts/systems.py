"""All systems that were asked for the entities of the same sentences: three levels, failures and kinds of mistakes."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.data.find import data_root, require_file
from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.files import content_sha256
from danseo.metrics.tagging import entity_tally, sentence_accuracy, token_length_f1, token_type_tally, without_spaces
from danseo.predictions.file import read_predictions
from danseo.runs.answers import dev_hash
from danseo.runs.index import Record
from danseo.runs.layouts.variants import model_names
from danseo.scoring.breakdown import ENTITY_ERRORS, entity_mistakes
from danseo.tasks import get_task
from danseo.tasks.ner import TYPES

_LEVELS = ("sentence %", "entity P", "entity R", "entity F1", "token P", "token R", "token F1", "length F1")
NOTE = (
    "every system on the same sentences; entities by exact borders and type, pooled; tokens are the characters inside "
    "entities, right when the type is; length F1 weighs entities by their length; invalid items of replies (not in the "
    "text, unknown types, repeated, crossing) count as wrong entities in entity P and F1"
)


def systems_tables(records: Sequence[Record], data_dir: str | None, *, with_paths: bool = False) -> list[Table]:
    """One row per finished NER run."""
    done = [record for record in records if record.status == "done" and record.task == "ner"]
    if not done:
        raise DanseoError("no finished run of ner here; `danseo runs` lists what there is")
    task, gold = get_task("ner"), _same_sentences(done, data_dir)
    examples = task.read(gold)
    rows = [
        (*([str(record.run.path)] if with_paths else []), name, *_row(record, task, examples))
        for record, name in zip(done, model_names(done), strict=True)
    ]
    about = ("system", "parameters", "seconds", "deterministic")
    columns = ("model", *about, *_LEVELS, "failed %", "invalid items", *ENTITY_ERRORS)
    paths = ("run",) if with_paths else ()
    return [
        Table(f"NER systems, {len(examples)} sentences", (*paths, *columns), rows, NOTE, keys=2 if with_paths else 1)
    ]


def _same_sentences(records: Sequence[Record], data_dir: str | None) -> Path:
    """The dev file that all runs answered; anything else cannot stand in one table."""
    hashes = {record.run.path.name: dev_hash(record) for record in records}
    if len(set(hashes.values())) > 1:
        first, other = next(iter(hashes)), next(name for name in hashes if hashes[name] != next(iter(hashes.values())))
        raise DanseoError(f"{first} and {other} answered different sentences; tables compare systems on the same ones")
    gold = require_file(get_task("ner"), "dev", data_root(data_dir))
    if content_sha256(gold) not in hashes.values():
        raise DanseoError(f"{gold} is not what the runs answered; name their data with --data")
    return gold


def _row(record: Record, task: Any, examples: Sequence[Any]) -> tuple[object, ...]:
    predictions = read_predictions(record.run.predictions_path("dev"), task, examples)
    golds, answers = [e.gold for e in examples], [p.answer for p in predictions]
    tagged = without_spaces(golds, answers, [e.text for e in examples], TYPES)
    replies = record.scores.get("replies") or {}
    invalid = sum(replies.get("classes", {}).get(name, 0) for name in _INVALID)
    right, answered, gold = entity_tally(tagged)
    mistakes: Counter[str] = entity_mistakes(examples, answers)
    return (
        _kind(record),
        record.surroundings.get("parameters"),
        record.surroundings.get("seconds"),
        _is_deterministic(record),
        sentence_accuracy(tagged).value(),
        *_shares(right, answered + invalid, gold),
        *_shares(*token_type_tally(tagged)),
        token_length_f1(tagged).value(),
        record.failed_percent,
        invalid if replies else None,
        *(mistakes[name] for name in ENTITY_ERRORS),
    )


_INVALID = ("not_in_text", "occ_out_of_range", "unknown_type", "duplicate", "type_conflict", "overlap")


def _shares(right: float, answered: float, gold: float) -> tuple[float | None, float | None, float | None]:
    """Precision, recall and F1; none where there is nothing on either side."""
    return (
        100 * right / answered if answered else None,
        100 * right / gold if gold else None,
        200 * right / (answered + gold) if answered + gold else None,
    )


def _kind(record: Record) -> str:
    """What sort of system it is."""
    kind, family = str(record.settings.get("kind", "training")), str(record.surroundings.get("family", "encoder"))
    if kind == "prompt":
        shots = record.settings.get("prompt.shots", 0)
        return f"prompted {family}" + (f", {shots} shots" if shots else "")
    return (
        f"fine-tuned {family}" if kind == "training" and family != "floor" else (kind if kind != "training" else family)
    )


def _is_deterministic(record: Record) -> str:
    """Whether the same run gives the same answers: servers promise nothing, GPUs only on request."""
    if str(record.settings.get("model", "")).startswith("server:"):
        return "no"
    is_gpu = not str(record.surroundings.get("device", "cpu")).startswith("cpu")
    return "almost" if is_gpu and not record.settings.get("train.deterministic") else "yes"
