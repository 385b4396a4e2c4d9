"""Mentions to recover: later mentions of an entity whose first one stays in sight, as rows for the masked loop."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from danseo.config import flat
from danseo.errors import DanseoError, DataError
from danseo.pretraining.config import CorefConfig, MentionConfig
from danseo.pretraining.masking import BEGINS, KEPT, SPECIAL, TARGET
from danseo.pretraining.packing import SPLITS, PackedFacts, PackedRows, read_facts, write_packed
from danseo.pretraining.text import in_share, stream, text_identity, tokenizer_identity
from danseo.probing.build import analysed, repeated_item
from danseo.probing.items import ProbeItem, read_items, write_items
from danseo.probing.nouns import Analyser, Noun
from danseo.probing.overlap import Guard, text_hashes
from danseo.probing.pieces import WordPieces
from danseo.probing.texts import Document, passages
from danseo.probing.windows import Window, Windows
from danseo.reading import check_place, read_object, write_atomically

_TAGS = {"names": ("NNP",), "nouns": ("NNP", "NNG")}


@dataclass(frozen=True)
class Mention:
    """A mention to recover in its text, and where the others of the same entity are."""

    item: ProbeItem
    others: tuple[tuple[int, int], ...]


def mentions_of(
    document: Document, text: str, words: Sequence[Noun], config: MentionConfig, analyser: str
) -> Iterator[Mention]:
    """The second and later mentions of every entity of a text, as far from the first as the settings allow."""
    found: dict[str, list[Noun]] = {}
    for word in words:
        if word.tag in _TAGS[config.tags] and len(word.form) >= 2:
            found.setdefault(word.form, []).append(word)
    for mentions in found.values():
        first = mentions[0]
        for mention in mentions[1 : config.mentions]:
            if config.nearest <= mention.start - first.end <= config.farthest:
                others = tuple((other.start, other.end) for other in mentions if other is not mention)
                item = repeated_item(document, text, (first, mention), words, analyser, "coref")
                yield Mention(item, others)


class MentionRows(Windows):
    """Mentions as rows: the ids of the whole window, and marks that say what is recovered and what stays."""

    def __init__(self, tokenizer: Any, seq_len: int) -> None:
        super().__init__(tokenizer, seq_len)
        self.pieces = WordPieces(tokenizer)

    def row(self, mention: Mention) -> tuple[Any, Any] | None:
        """None where the word is not in the vocabulary, or its first mention outside the window."""
        item = mention.item
        word = self.pieces.in_gap(item.target, item)
        text = self.masked_text(item)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        window = self._window(item, encoded["input_ids"], encoded["offset_mapping"])
        if not word or not window.antecedent_in_window or len(word) > self.room // 4:
            return None
        ids, start = window.filled(word)
        marks = np.full(len(ids), BEGINS, dtype=np.uint8)
        marks[: window.frame[0]] = marks[len(ids) - window.frame[1] :] = SPECIAL
        marks[start : start + len(word)] = TARGET
        for place in self._kept(mention, encoded["offset_mapping"], encoded["input_ids"], window):
            there = place + (start - window.place) + (len(word) - 1 if place > window.place else 0)
            if window.frame[0] <= there < len(ids) - window.frame[1] and marks[there] == BEGINS:
                marks[there] = KEPT
        return np.array(ids), marks

    def _kept(self, mention: Mention, offsets: list[Any], ids: list[int], window: Window) -> Iterator[int]:
        """The places in the window whose pieces touch another mention of the entity."""
        gap, item = ids.index(self.tokenizer.mask_token_id), mention.item
        shift = len(self.tokenizer.mask_token) - len(item.target)
        for start, end in mention.others:
            moved = shift if start >= item.span[1] else 0
            for place, (first, last) in enumerate(offsets):
                if first < end + moved and last > start + moved and place != gap:
                    yield place - gap + window.place


def write_dataset(
    folder: Path,
    paths: Sequence[Path],
    tokenizer: Any,
    config: CorefConfig,
    seq_len: int,
    analyser: Analyser,
    exclude: Sequence[ProbeItem] = (),
) -> None:
    """Analyse the text and write a dataset: rows, held-out probe items, and whose pieces they are."""
    probes: list[ProbeItem] = []
    guard = Guard(exclude)
    parts = _parts(stream(paths, guard), tokenizer, config, seq_len, analyser, probes)
    write_packed(folder, parts, len(tokenizer), seq_len, False, guard.as_dict)
    try:
        _facts(folder)
    except DanseoError:
        shutil.rmtree(folder)
        raise
    if probes:
        write_items(folder / "probes.jsonl", probes)
    facts = {"tokenizer": tokenizer_identity(tokenizer), "seq_len": seq_len, "text": text_identity(paths)}
    settings = {key: value for key, value in flat(config).items() if key.startswith("mention.")}
    document = {**facts, "analyser": analyser.version, "settings": settings, "left_out": text_hashes(exclude)}
    write_atomically(folder / "dataset.json", json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def _parts(
    documents: Iterable[Document],
    tokenizer: Any,
    config: CorefConfig,
    seq_len: int,
    analyser: Analyser,
    probes: list[ProbeItem],
) -> Iterator[tuple[str, int, Any, Any]]:
    """Rows with their split; the second mentions of held-out documents are also kept as probe items."""
    maker, wanted, counts = MentionRows(tokenizer, seq_len), config.mention, Counter[str]()
    texts = ((document, text) for document in documents for text in passages(document, max(2000, 3 * seq_len)))
    number, latest = -1, None
    for (document, text), words in analysed(texts, analyser):
        number, latest = number + (document is not latest), document  # names may repeat
        split = "held_out" if in_share(document, wanted.held_out, "coref") else "train"
        for mention in mentions_of(document, text, words, wanted, analyser.version):
            key = f"{split} {mention.item.target}"
            full = split == "train" and wanted.limit and counts["train"] >= wanted.limit
            row = maker.row(mention) if counts[key] < wanted.per_entity and not full else None
            if row is None:
                continue
            counts.update((key, split))
            if split == "held_out" and len(probes) < wanted.held_out_items:
                probes.append(mention.item)
            yield split, number, *row
        if wanted.limit and counts["train"] >= wanted.limit and counts["held_out"] >= wanted.held_out_items:
            return


def check_dataset_place(folder: Path) -> None:
    """Refuse a folder that cannot be written, or that holds something else: a new dataset replaces what is there."""
    check_place(folder)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "facts.json").is_file():
        raise DanseoError(f"{folder} is not empty and no prepared dataset; choose another place")


def _facts(folder: Path) -> dict[str, PackedFacts]:
    return read_facts(folder, "repeated entity", "mention.held_out")


def open_dataset(folder: Path, tokenizer: Any) -> tuple[dict[str, Any], dict[str, PackedFacts], list[ProbeItem]]:
    """What a dataset says of itself, its sizes and its probe items; another tokenizer's is refused."""
    if not (folder / "dataset.json").is_file():
        raise DataError(f"{folder} is not a prepared dataset; make one with `danseo coref … --save-dataset {folder}`")
    told = read_object(folder / "dataset.json")
    told.integer("seq_len")
    if told.text("tokenizer") != tokenizer_identity(tokenizer):
        raise DanseoError(f"{folder} was prepared with another tokenizer than this checkpoint's; prepare it again")
    probes = read_items(folder / "probes.jsonl") if (folder / "probes.jsonl").is_file() else []
    for split in SPLITS:
        PackedRows(folder / split)
    return dict(told.values), _facts(folder), probes


def require_left_out(folder: Path, items: Sequence[ProbeItem]) -> None:
    """Refuse a dataset that was prepared without leaving out what these items ask for."""
    told = read_object(folder / "dataset.json")
    known = set(told.texts("left_out")) if told.values.get("left_out") else set()
    if absent := [text for text in text_hashes(items) if text not in known]:
        raise DanseoError(
            f"{folder} was prepared without leaving out {len(absent)} texts of the probe items; prepare it again with "
            "--text, --save-dataset and the same --probe-items"
        )


def dataset_seq_len(config: CorefConfig, model_config: Any, tokenizer: Any, on_note: Callable[[str], None]) -> int:
    """The length of rows: as set, else what the checkpoint reads, up to 512."""
    from danseo.probing.lengths import readable_length

    if config.mention.seq_len:
        return readable_length(model_config, tokenizer, config.mention.seq_len)
    chosen = min(512, readable_length(model_config, tokenizer))
    on_note(f"sequences of up to {chosen} pieces")
    return chosen
