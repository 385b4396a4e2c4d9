"""Is a bundle what it says? Its hashes, the data it answers, and its scores, computed again."""

import hashlib
import json
import math
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from danseo.data.find import data_root, require_file
from danseo.data.halves import in_half
from danseo.display.table import Table, shown_interval
from danseo.errors import DanseoError, PredictionError
from danseo.exports.bundle import FILES, MANIFEST
from danseo.files import content_sha256, parse_json, write_atomically
from danseo.predictions.file import read_predictions
from danseo.runs.directory import OWN_TASK, Run
from danseo.scoring.score import measure
from danseo.tasks.task import Task

_MOST = 1 << 28  # bytes of one file of a bundle, unpacked; predictions of KLUE have a tenth of it
_NEAR = 1e-6  # what another processor may round differently


@dataclass(frozen=True)
class Verdict:
    """A bundle that was verified."""

    bundle: Path
    gold: Path
    manifest: dict[str, Any]
    claimed: dict[str, list[dict[str, Any]]]
    """Split -> the scores that the bundle claims."""

    def tables(self) -> list[Table]:
        rows: list[tuple[object, ...]] = [
            (split, s["id"], s["value"], shown_interval(*s["interval"]) if s["interval"] else None, s["n"])
            for split, listed in self.claimed.items()
            for s in listed
        ]
        picked = "all of dev" if self.manifest["selected_on"] == "dev" else "the select half of dev"
        note = (
            f"verified: hashes of {len(FILES)} files, the dev file {self.gold}, and {len(rows)} scores computed again; "
            f"checkpoint picked on {picked}"
        )
        title = f"{self.bundle.name}: {self.manifest['run']}"
        return [Table(title, ("scored on", "metric", "score", "95 % interval", "n"), rows, note)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "bundle": str(self.bundle),
            "gold": str(self.gold),
            "verified": True,
            **self.manifest,
            "scores": self.claimed,
        }


def verify_bundle(path: Path, data_dir: str | None) -> Verdict:
    """The verdict on a bundle; what is not as it says is one line that names it."""
    files = _unpacked(path)
    manifest = _manifest(files, path)
    for name in files.keys() - {MANIFEST}:
        if hashlib.sha256(files[name]).hexdigest() != manifest["files"].get(name):
            raise DanseoError(f"{path}: {name} is not what the manifest says (its hash differs); get the bundle again")
    with tempfile.TemporaryDirectory() as folder:
        return _verified(path, manifest, files, Path(folder), data_dir)


def _verified(
    path: Path, manifest: dict[str, Any], files: dict[str, bytes], folder: Path, data_dir: str | None
) -> Verdict:
    """The verdict on a bundle whose hashes are right; its files are laid out as a run for that."""
    for name, content in files.items():
        write_atomically(folder / name, content)
    task = Run(folder).task  # with dev parted as it was
    if task.name != manifest["task"]:
        raise DanseoError(f"{path}: config.toml and {MANIFEST} name different tasks; export the run again")
    gold = require_file(task, "dev", data_root(data_dir))
    if content_sha256(gold) != manifest["dev_sha256"]:
        raise DanseoError(f"{gold} is not the dev file that {path.name} answers; name its folder with --data")
    scores = _object(files["scores.json"], path, "scores.json")
    task = replace(task, halves=2 if scores.get("halves") == 2 else 1)
    claimed = scores.get("scores")
    if (
        not isinstance(claimed, dict)
        or not claimed
        or not set(claimed) <= {"report", "dev"}
        or scores.get("task") != task.name
    ):
        raise DanseoError(f"{path}: scores.json is not what danseo writes; export the run again")
    _check_scores(task, gold, folder, claimed, path)
    return Verdict(path, gold, manifest, claimed)


def _unpacked(path: Path) -> dict[str, bytes]:
    """The files of a bundle: exactly those that danseo writes, none of them too large to hold."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
            names = {MANIFEST, *FILES}
            if set(sizes) - {OWN_TASK} != names or len(archive.infolist()) != len(sizes):
                raise DanseoError(f"{path} is no bundle: it should hold {', '.join(sorted(names))} and nothing else")
            if max(sizes.values()) > _MOST:
                raise DanseoError(f"{path} holds more than {_MOST >> 20} MiB in one file, which no bundle does")
            return {name: archive.open(name).read(_MOST) for name in sizes}
    except FileNotFoundError:
        raise DanseoError(f"{path} is missing; check the path") from None
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, EOFError) as error:
        raise DanseoError(f"{path} is not a readable zip file ({error}); get it again") from None


def _object(content: bytes, path: Path, name: str) -> dict[str, Any]:
    try:
        document = parse_json(content.decode("utf-8"), path / name)
    except UnicodeDecodeError:
        raise DanseoError(f"{path}: {name} is not UTF-8; export the run again") from None
    if not isinstance(document, dict):
        raise DanseoError(f"{path}: {name} should be a JSON object; export the run again")
    return document


def _manifest(files: dict[str, bytes], path: Path) -> dict[str, Any]:
    manifest = _object(files[MANIFEST], path, MANIFEST)
    due = {"run": str, "task": str, "dev_sha256": str, "selected_on": str, "files": dict}
    if wrong := [name for name, kind in due.items() if not isinstance(manifest.get(name), kind)]:
        raise DanseoError(f"{path}: {MANIFEST} lacks {', '.join(wrong)}; export the run again")
    return manifest


def _check_scores(task: Task, gold: Path, folder: Path, claimed: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Compute every claimed score again from the predictions."""
    examples = task.read(gold)
    answers = folder / "predictions" / "dev.jsonl"
    try:
        predictions = read_predictions(answers, task, examples, skip=task.needs_probabilities)
    except PredictionError as error:
        raise DanseoError(str(error).replace(str(answers), f"{path}: predictions/dev.jsonl")) from None
    for split, listed in claimed.items():
        positions = in_half(task, examples, split)
        found = measure(task, [examples[k] for k in positions], [predictions[k] for k in positions])
        for score in listed:
            known = found[score["id"]].value() if score.get("id") in found else None
            if known is None or not _is_same(score.get("value"), known):
                raise DanseoError(
                    f"{path}: {json.dumps(score.get('id'))} on {split} is claimed to be {score.get('value')}, "
                    f"but its predictions score {known}; do not trust it"
                )


def _is_same(claimed: Any, computed: float) -> bool:
    if claimed is None:
        return math.isnan(computed)
    return isinstance(claimed, int | float) and abs(claimed - computed) <= _NEAR
