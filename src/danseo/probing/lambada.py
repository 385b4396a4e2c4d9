"""LAMBADA-style items: the last mention of the answer is the gap, from a file or from the gated set on the Hub."""

import hashlib
import os
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from danseo.errors import DanseoError, DataError, NetworkError
from danseo.files import parse_json, read_text
from danseo.hub import cached_bytes, endpoint, offline_switch, reach
from danseo.patience import watched
from danseo.probing.build import BuildOptions, Built, analysed, split_of, with_nouns
from danseo.probing.items import SPLITS, ProbeItem, Span
from danseo.rows import Row, as_row, read_rows
from danseo.text.documents import Document
from danseo.text.morphology import NOUNS, Analyser

REPOSITORY = "thunder-research-group/SNU_Ko-LAMBADA"
_BLANK = re.compile(r"(?<!_)_(?!_)")  # where Ko-LAMBADA leaves the answer out
_HUB_SPLITS = {"validation": "dev", "dev": "dev", "test": "test"}


def gap_of(text: str, answer: str) -> tuple[str, Span] | None:
    """The whole text and the span of the answer: in the blank, else its last mention; None where there is neither."""
    text, answer = text.strip(), answer.strip()
    blanks = list(_BLANK.finditer(text))
    if answer and len(blanks) == 1:
        start = blanks[0].start()
        return f"{text[:start]}{answer}{text[start + 1 :]}", (start, start + len(answer))
    start = text.rfind(answer) if answer else -1
    return (text, (start, start + len(answer))) if start >= 0 else None


def add_lambada(built: Built, rows: Sequence[Row], source: str, options: BuildOptions, analyser: Analyser) -> None:
    """Put the items of the rows behind those that are there; rows without a gap are dropped and counted."""
    items = [_item(row, source, number, options, analyser.version) for number, row in enumerate(rows)]
    kept = {item.id: item for item in items if item}
    built.counts["lambada rows"] += len(rows)
    built.counts["lambada rows without a gap"] += sum(item is None for item in items)
    texts = [(Document(item.document, item.id, item.text), item.text) for item in kept.values()]
    found: dict[str, list[ProbeItem]] = {split: [] for split in SPLITS}
    for ((document, _), words), row in zip(analysed(texts, analyser), _rows_of(kept, rows), strict=True):
        item = with_nouns(kept[document.source], words)
        split = row.values.get("split")
        chosen = split if split in SPLITS else split_of(item.document, options.seed)
        if built.is_elsewhere(chosen, document, item.text):
            built.counts["lambada rows of the other split"] += 1
            continue
        found[chosen].append(item)
        built.claim(chosen, document, item.text)
        built.nouns.update(word.form for word in words if word.tag in NOUNS and len(word.form) >= 2)
    for split, items_ in found.items():
        random.Random(f"{options.seed} {split}").shuffle(items_)
        built.items[split] += items_[: options.limit]


def _rows_of(kept: Iterable[str], rows: Sequence[Row]) -> list[Row]:
    return [rows[int(id_.rsplit(":", 1)[1])] for id_ in kept]


def _item(row: Row, source: str, number: int, options: BuildOptions, analyser: str) -> ProbeItem | None:
    text, answer = (row.text(_first(row, names)) for names in (("text", "context"), ("answer", "target")))
    found = gap_of(text, answer)
    if not found:
        return None
    whole, span = found
    target = whole[slice(*span)]
    before = whole.rfind(target, 0, span[0])
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    document = str(row.values.get("source") or row.values.get("document") or digest).split("#")[0]
    return ProbeItem(
        id=f"{source}:{digest}:{number}",
        source=source,
        document=document,
        kind="lambada",
        text=whole,
        span=span,
        target=target,
        antecedent=(before, before + len(target)) if before >= 0 else None,
        distance=span[0] - before - len(target) if before >= 0 else None,
        analyser=analyser,
        builder=options.hash(),
        given=tuple(name for name in _wrong_answers(row) if name != target),
    )


def _first(row: Row, names: Sequence[str]) -> str:
    return next((name for name in names if name in row.values), names[0])


def _wrong_answers(row: Row) -> tuple[str, ...]:
    value = row.values.get("candidate", row.values.get("candidates"))
    if isinstance(value, str):
        return (value.strip(),) if value.strip() else ()
    return tuple(str(each).strip() for each in value) if isinstance(value, list) else ()


def read_lambada(path: Path) -> list[Row]:
    """The rows of JSON lines, a JSON list or a parquet file, with text (or context) and answer (or target)."""
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
    """The rows of Ko-LAMBADA on the Hub; its terms have to be accepted there, and a token to be in the environment."""
    if switch := offline_switch():
        raise NetworkError(f"{switch} is set, so nothing is fetched; unset it, or name a file with --lambada")
    import huggingface_hub

    hub: Any = huggingface_hub
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGINGFACE_HUB_TOKEN")
    try:
        reach(hub.hf_hub_url(REPOSITORY, "README.md", repo_type="dataset", endpoint=endpoint()))
        paths = watched(lambda: _downloaded(hub, token), lambda: cached_bytes(REPOSITORY, "datasets"), REPOSITORY)
    except Exception as error:  # the library raises many kinds for the same few causes
        raise _fetch_error(error) from None
    rows = [row for path in paths for row in _with_split(read_lambada(path), path.name)]
    if not rows:
        raise DataError(f"{REPOSITORY} on the Hub holds no parquet or JSON files; name a file with --lambada")
    return rows


def _downloaded(hub: Any, token: str | None) -> list[Path]:
    names = hub.HfApi(token=token).list_repo_files(REPOSITORY, repo_type="dataset")
    wanted = [name for name in names if name.endswith((".parquet", ".jsonl", ".json"))]
    return [Path(hub.hf_hub_download(REPOSITORY, name, repo_type="dataset", token=token)) for name in wanted]


def _with_split(rows: Sequence[Row], name: str) -> list[Row]:
    split = next((ours for word, ours in _HUB_SPLITS.items() if word in name), None)
    return [replace(row, values={**row.values, "split": split}) if split else row for row in rows]


def _fetch_error(error: Exception) -> DanseoError:
    if any(word in type(error).__name__ for word in ("Gated", "RepositoryNotFound")):
        return DanseoError(f"{REPOSITORY} is gated: accept its terms on its page of the Hub, and set HF_TOKEN")
    if isinstance(error, NetworkError):
        return NetworkError(f"{error}; check the network, or name a file with --lambada")
    reason = shorten(" ".join(str(error).split()), 160, placeholder=" …")
    return NetworkError(
        f"{REPOSITORY} could not be fetched: {reason}; check the network, or name a file with --lambada"
    )
