"""Build frozen probe sets from text and LAMBADA-style files (`danseo data probes`)."""

import hashlib
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import Any

from danseo import __version__
from danseo.data.find import data_root, load, require_file
from danseo.display.table import Table
from danseo.errors import DanseoError, DataError, NetworkError
from danseo.files import check_writable, parse_json, read_text, write_atomically
from danseo.hub import count_cached_bytes, find_offline_switch, get_endpoint, request_headers
from danseo.mlm.overlap import OverlapCounter
from danseo.mlm.probing.items import PROBE_KINDS, SPLITS, ProbeItem, Span, hash_items, write_items
from danseo.mlm.probing.repeated_nouns import (
    BuildOptions,
    ItemCollection,
    add_candidates,
    add_unigram_baseline,
    analyse_texts,
    choose_split,
    collect_repeated_nouns,
)
from danseo.rows import Row, as_row, read_rows
from danseo.tasks import get_task
from danseo.text.documents import Document, name_sources, read_documents
from danseo.text.morphology import NOUNS, Analyser
from danseo.timeouts import run_with_timeout

REPOSITORY = "thunder-research-group/SNU_Ko-LAMBADA"
_BLANK = re.compile(r"(?<!_)_(?!_)")  # where Ko-LAMBADA leaves the answer out
_HUB_SPLITS = {"validation": "dev", "dev": "dev", "test": "test"}


def find_gap(text: str, answer: str) -> tuple[str, Span] | None:
    """Return the full text and the span of the answer: the blank, else its last mention; None without either."""
    text, answer = text.strip(), answer.strip()
    blanks = list(_BLANK.finditer(text))
    if answer and len(blanks) == 1:
        start = blanks[0].start()
        return f"{text[:start]}{answer}{text[start + 1 :]}", (start, start + len(answer))
    start = text.rfind(answer) if answer else -1
    return (text, (start, start + len(answer))) if start >= 0 else None


def add_lambada(
    collection: ItemCollection, rows: Sequence[Row], source: str, options: BuildOptions, analyser: Analyser
) -> None:
    """Put the items of the rows behind those that are there; rows without a gap are dropped and counted."""
    items = [_make_item(row, source, number, options, analyser.version) for number, row in enumerate(rows)]
    kept = {item.id: item for item in items if item}
    collection.counts["lambada rows"] += len(rows)
    collection.counts["lambada rows without a gap"] += sum(item is None for item in items)
    texts = [(Document(item.document, item.id, item.text), item.text) for item in kept.values()]
    by_split: dict[str, list[ProbeItem]] = {split: [] for split in SPLITS}
    for ((document, _), words), row in zip(analyse_texts(texts, analyser), _select_rows(kept, rows), strict=True):
        item = add_candidates(kept[document.source], words)
        split = row.values.get("split")
        chosen = split if split in SPLITS else choose_split(item.document, options.seed)
        if collection.is_in_other_split(chosen, document, item.text):
            collection.counts["lambada rows of the other split"] += 1
            continue
        by_split[chosen].append(item)
        collection.mark_used(chosen, document, item.text)
        collection.nouns.update(word.form for word in words if word.tag in NOUNS and len(word.form) >= 2)
    for split, part in by_split.items():
        random.Random(f"{options.seed} {split}").shuffle(part)
        collection.items[split] += part[: options.limit]


def _select_rows(kept: Iterable[str], rows: Sequence[Row]) -> list[Row]:
    return [rows[int(id_.rsplit(":", 1)[1])] for id_ in kept]


def _make_item(row: Row, source: str, number: int, options: BuildOptions, analyser: str) -> ProbeItem | None:
    text, answer = (row.text(_find_key(row, names)) for names in (("text", "context"), ("answer", "target")))
    gap = find_gap(text, answer)
    if not gap:
        return None
    full_text, span = gap
    target = full_text[slice(*span)]
    before = full_text.rfind(target, 0, span[0])
    digest = hashlib.sha256(full_text.encode()).hexdigest()[:8]
    document = str(row.values.get("source") or row.values.get("document") or digest).split("#")[0]
    return ProbeItem(
        id=f"{source}:{digest}:{number}",
        source=source,
        document=document,
        kind="lambada",
        text=full_text,
        span=span,
        target=target,
        antecedent=(before, before + len(target)) if before >= 0 else None,
        distance=span[0] - before - len(target) if before >= 0 else None,
        analyser=analyser,
        builder=options.hash(),
        given=tuple(name for name in _read_wrong_answers(row) if name != target),
    )


def _find_key(row: Row, names: Sequence[str]) -> str:
    return next((name for name in names if name in row.values), names[0])


def _read_wrong_answers(row: Row) -> tuple[str, ...]:
    value = row.values.get("candidate", row.values.get("candidates"))
    if isinstance(value, str):
        return (value.strip(),) if value.strip() else ()
    return tuple(str(each).strip() for each in value) if isinstance(value, list) else ()


def read_lambada(path: Path) -> list[Row]:
    """Read rows with text (or context) and answer (or target) from JSON lines, a JSON list or a parquet file."""
    if path.suffix in (".json", ".parquet"):
        return read_rows(path)
    lines = [(number, line) for number, line in enumerate(read_text(path).split("\n"), 1) if line.strip()]
    return [
        as_row(
            parse_json(line, path, number),
            f"{path}, line {number}",
            "rows have text (or context) and answer (or target)",
        )
        for number, line in lines
    ]


def fetch_lambada() -> list[Row]:
    """Download the rows of Ko-LAMBADA from the Hub; this needs accepted terms and a token in the environment."""
    if switch := find_offline_switch():
        raise NetworkError(f"{switch} is set: Ko-LAMBADA cannot be downloaded; unset it, or name a file with --lambada")
    import huggingface_hub

    hub: Any = huggingface_hub
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGINGFACE_HUB_TOKEN")
    try:
        request_headers(hub.hf_hub_url(REPOSITORY, "README.md", repo_type="dataset", endpoint=get_endpoint()))
        paths = run_with_timeout(
            lambda: _download_files(hub, token), lambda: count_cached_bytes(REPOSITORY, "datasets"), REPOSITORY
        )
    except Exception as error:  # the library raises many types for the same few causes
        raise _make_fetch_error(error) from None
    rows = [row for path in paths for row in _add_split(read_lambada(path), path.name)]
    if not rows:
        raise DataError(f"{REPOSITORY} on the Hub holds no parquet or JSON files; name a file with --lambada")
    return rows


def _download_files(hub: Any, token: str | None) -> list[Path]:
    names = hub.HfApi(token=token).list_repo_files(REPOSITORY, repo_type="dataset")
    wanted = [name for name in names if name.endswith((".parquet", ".jsonl", ".json"))]
    return [Path(hub.hf_hub_download(REPOSITORY, name, repo_type="dataset", token=token)) for name in wanted]


def _add_split(rows: Sequence[Row], name: str) -> list[Row]:
    split = next((ours for word, ours in _HUB_SPLITS.items() if word in name), None)
    return [replace(row, values={**row.values, "split": split}) if split else row for row in rows]


def _make_fetch_error(error: Exception) -> DanseoError:
    if any(word in type(error).__name__ for word in ("Gated", "RepositoryNotFound")):
        return DanseoError(f"{REPOSITORY} is gated: accept its terms on its page of the Hub, and set HF_TOKEN")
    if isinstance(error, NetworkError):
        return NetworkError(f"{error}; check the network, or name a file with --lambada")
    reason = shorten(" ".join(str(error).split()), 160, placeholder=" …")
    return NetworkError(
        f"{REPOSITORY} could not be downloaded: {reason}; check the network, or name a file with --lambada"
    )


KLUE = "klue:"


def read_klue_documents(names: Sequence[str], root: Path) -> dict[str, list[Document]]:
    """Return the texts of KLUE's train files by source, such as klue:ner; each text once, and nothing of dev."""
    sources = {}
    for task in {task.name: task for task in map(get_task, names)}.values():
        texts: dict[str, Document] = {}
        for example in load(task, "train", root):
            if not hasattr(example, "text"):
                raise DataError(f"--text {KLUE}{task.name}: its examples are dialogues; use tasks with texts: ner, mrc")
            name = getattr(example, "title", None) or example.guid  # passages of one article stay in one split
            document = Document(str(name), f"{KLUE}{task.name}", example.text or " ".join(example.words))
            texts.setdefault(document.sha256, document)  # many questions share a passage
        sources[f"{KLUE}{task.name}"] = list(texts.values())
    return sources


MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ProbeSets:
    """Frozen probe sets with their manifest."""

    folder: Path
    items: dict[str, list[ProbeItem]]
    manifest: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        manifest = {key: value for key, value in self.manifest.items() if key != "documents"}
        return {"folder": str(self.folder), **manifest}

    def tables(self) -> list[Table]:
        rows: list[tuple[object, ...]] = []
        for split, items in self.items.items():
            for kind in PROBE_KINDS:
                part = [item for item in items if item.kind == kind]
                documents = len({item.document for item in part})
                distances = sorted(item.distance for item in part if item.distance is not None)
                middle = distances[len(distances) // 2] if distances else None
                rows.append((split, kind, len(part), documents, middle, self.manifest["sets"][split]["hash"]))
        columns = ("split", "probe", "items", "documents", "median distance (characters)", "hash of the set")
        tables = [Table(f"Probe sets in {self.folder}", columns, rows, _format_counts(self.manifest))]
        overlap = self.manifest.get("overlap", {})
        lines: list[tuple[object, ...]] = []
        for split, items in self.items.items():
            for source, count in Counter(item.source for item in items).items():
                shared = overlap[split]["by_source"][source] if overlap else None
                lines.append((split, source, count, shared, None if shared is None else 100 * shared / count))
        note = "shared: items with 13 words in a row of the training text" if overlap else ""
        by_source = Table("Items by source", ("split", "source", "items", "shared", "%"), lines, note)
        return [*tables, by_source.without_empty()]


def _format_counts(manifest: dict[str, Any]) -> str:
    return f"{manifest['analyser']}; " + "; ".join(f"{name} {count}" for name, count in manifest["counts"].items())


def build_sets(
    paths: Sequence[Path],
    folder: Path,
    options: BuildOptions,
    analyser: Analyser,
    lambada: str | None = None,
    against: Sequence[Path] = (),
    on_note: Callable[[str], None] = lambda line: None,
    data_dir: str | None = None,
) -> ProbeSets:
    """Build the dev and test sets; write them and their manifest. A path klue:ner,mrc names texts of KLUE."""
    if not paths and not lambada:
        raise DataError("no text to build from; name files with --text, or a LAMBADA-style file with --lambada")
    check_writable(folder)
    named = [name for path in paths if str(path).startswith(KLUE) for name in str(path).removeprefix(KLUE).split(",")]
    paths = [path for path in paths if not str(path).startswith(KLUE)]
    root = data_root(data_dir) if named else Path()
    klue = read_klue_documents(named, root)
    rows = fetch_lambada() if lambada == "hub" else read_lambada(Path(lambada)) if lambada else []
    collection = ItemCollection()
    if paths or klue:
        collection = collect_repeated_nouns(paths, options, analyser, on_note, klue)
    if lambada:
        source = "Ko-LAMBADA" if lambada == "hub" else next(iter(name_sources([Path(lambada)])))
        add_lambada(collection, rows, source, options, analyser)
        on_note(f"{source}: {len(rows)} rows, {collection.counts['lambada rows without a gap']} without a gap")
    items = {split: add_unigram_baseline(collection.items[split], collection.nouns) for split in SPLITS}
    if empty := [split for split, part in items.items() if not part]:
        raise DataError(
            f"no items for the {empty[0]} split: no passage without pronouns repeats a noun; give more text"
        )
    manifest = _make_manifest(collection, items, options, analyser, paths)
    for source in klue:
        task = get_task(source.removeprefix(KLUE))
        manifest["sources"][source] = str(require_file(task, "train", root))
    if against:
        manifest["overlap"] = measure_overlap(items, against)
    for split, part in items.items():
        write_items(folder / f"{split}.jsonl", part)
    write_atomically(folder / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=1) + "\n")
    return ProbeSets(folder, items, manifest)


def _make_manifest(
    collection: ItemCollection,
    items: dict[str, list[ProbeItem]],
    options: BuildOptions,
    analyser: Analyser,
    paths: Sequence[Path],
) -> dict[str, Any]:
    return {
        "danseo": __version__,
        "analyser": analyser.version,
        "builder": options.hash(),
        "options": {**asdict(options), "quotas": dict(options.quotas)},
        "sources": {name: str(path) for name, path in name_sources(paths).items()},
        "counts": dict(collection.counts),
        "sets": {split: {"items": len(part), "hash": hash_items(part)} for split, part in items.items()},
        "documents": collection.documents,
    }


def measure_overlap(items: dict[str, list[ProbeItem]], paths: Sequence[Path]) -> dict[str, Any]:
    """Count the items of each split that share a 13-gram with training text, in one pass."""
    counters = {split: OverlapCounter(part) for split, part in items.items()}
    documents = (read_documents(name, path) for name, path in name_sources(paths).items())
    for document in chain.from_iterable(documents):
        for counter in counters.values():
            counter.match(document.text)
    return {
        split: {**counter.as_dict(), "by_source": _count_by_source(items[split], counter)}
        for split, counter in counters.items()
    }


def _count_by_source(items: Sequence[ProbeItem], counter: OverlapCounter) -> dict[str, int]:
    counts = dict.fromkeys((item.source for item in items), 0)
    for item, is_met in zip(items, counter.met, strict=True):
        counts[item.source] += bool(is_met)
    return counts
