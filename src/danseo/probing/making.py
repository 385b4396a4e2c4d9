"""danseo data probes: from files to frozen sets with their provenance, and what they overlap with."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from danseo import __version__
from danseo.display.table import Table
from danseo.errors import DataError
from danseo.files import check_writable, write_atomically
from danseo.probing.build import BuildOptions, Built, build_repeated, with_unigram
from danseo.probing.items import KINDS, SPLITS, ProbeItem, items_hash, write_items
from danseo.probing.lambada import add_lambada, fetch_lambada, read_lambada
from danseo.probing.overlap import Overlap
from danseo.text.documents import read_documents, source_names
from danseo.text.morphology import Analyser

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Sets:
    """Frozen sets and how they came about."""

    folder: Path
    items: dict[str, list[ProbeItem]]
    manifest: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        shown = {key: value for key, value in self.manifest.items() if key != "documents"}
        return {"folder": str(self.folder), **shown}

    def tables(self) -> list[Table]:
        rows: list[tuple[object, ...]] = []
        for split, items in self.items.items():
            for kind in KINDS:
                part = [item for item in items if item.kind == kind]
                documents = len({item.document for item in part})
                distances = sorted(item.distance for item in part if item.distance is not None)
                middle = distances[len(distances) // 2] if distances else None
                rows.append((split, kind, len(part), documents, middle, self.manifest["sets"][split]["hash"]))
        columns = ("split", "probe", "items", "documents", "median distance (characters)", "hash of the set")
        tables = [Table(f"Probe sets in {self.folder}", columns, rows, _counts_note(self.manifest))]
        if overlap := self.manifest.get("overlap"):
            lines: list[tuple[object, ...]] = [
                (split, found["items"], found["overlapping"], 100 * found["rate"]) for split, found in overlap.items()
            ]
            tables.append(Table("Runs of 13 words shared with training text", ("split", "items", "shared", "%"), lines))
        return tables


def _counts_note(manifest: dict[str, Any]) -> str:
    return f"{manifest['analyser']}; " + "; ".join(f"{name} {count}" for name, count in manifest["counts"].items())


def make_sets(
    paths: Sequence[Path],
    folder: Path,
    options: BuildOptions,
    analyser: Analyser,
    lambada: str | None = None,
    against: Sequence[Path] = (),
    on_note: Callable[[str], None] = lambda line: None,
) -> Sets:
    """Build dev and test, write them and their manifest."""
    if not paths and not lambada:
        raise DataError("no text to build from; name files with --text, or a LAMBADA-style file with --lambada")
    check_writable(folder)
    rows = fetch_lambada() if lambada == "hub" else read_lambada(Path(lambada)) if lambada else []
    built = build_repeated(paths, options, analyser, on_note) if paths else Built()
    if lambada:
        source = "Ko-LAMBADA" if lambada == "hub" else next(iter(source_names([Path(lambada)])))
        add_lambada(built, rows, source, options, analyser)
        on_note(f"{source}: {len(rows)} rows, {built.counts['lambada rows without a gap']} without a gap")
    items = {split: with_unigram(built.items[split], built.nouns) for split in SPLITS}
    if empty := [split for split, found in items.items() if not found]:
        raise DataError(
            f"no items for {empty[0]}: the text repeats no noun in passages without pronouns; give more text"
        )
    manifest = _manifest(built, items, options, analyser, paths)
    if against:
        manifest["overlap"] = measure_overlap(items, against)
    for split, found in items.items():
        write_items(folder / f"{split}.jsonl", found)
    write_atomically(folder / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=1) + "\n")
    return Sets(folder, items, manifest)


def _manifest(
    built: Built, items: dict[str, list[ProbeItem]], options: BuildOptions, analyser: Analyser, paths: Sequence[Path]
) -> dict[str, Any]:
    return {
        "danseo": __version__,
        "analyser": analyser.version,
        "builder": options.hash(),
        "options": {**asdict(options), "quotas": dict(options.quotas)},
        "sources": {name: str(path) for name, path in source_names(paths).items()},
        "counts": dict(built.counts),
        "sets": {split: {"items": len(found), "hash": items_hash(found)} for split, found in items.items()},
        "documents": built.documents,
    }


def measure_overlap(items: dict[str, list[ProbeItem]], paths: Sequence[Path]) -> dict[str, Any]:
    """How many items of each split share a run of words with training text; one pass for both."""
    found = {split: Overlap(part) for split, part in items.items()}
    documents = (read_documents(name, path) for name, path in source_names(paths).items())
    for document in chain.from_iterable(documents):
        for overlap in found.values():
            overlap.read([document.text])
    return {split: overlap.as_dict() for split, overlap in found.items()}
