"""Mentions to recover: later mentions of an entity whose first one stays in sight, as rows for the masked loop."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from danseo.errors import DanseoError, DataError
from danseo.files import check_writable, write_atomically
from danseo.pretraining.config import CorefConfig, MentionConfig
from danseo.pretraining.masking import BEGINS, KEPT, TARGET
from danseo.pretraining.packing import (
    SPLITS,
    PackedFacts,
    PackedRows,
    check_packed,
    read_facts,
    with_specials,
    write_packed,
)
from danseo.pretraining.text import in_share, stream
from danseo.probing.build import analysed, repeated_item
from danseo.probing.items import ProbeItem, Span, read_items, write_items
from danseo.probing.overlap import Guard, text_hashes
from danseo.probing.windows import Windows, clip, touching
from danseo.rows import read_object
from danseo.settings.declaring import flat
from danseo.text.documents import Document, passages
from danseo.text.identity import text_identity, tokenizer_identity
from danseo.text.morphology import Analyser, Noun

SPELLING = "natural"  # texts are cut as they stand; rows once had the mention set apart from its particle
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


class Row(NamedTuple):
    """A mention as a row: the pieces of its window, and marks that say what is recovered and what stays."""

    ids: Any
    marks: Any
    is_wider: bool
    """Whether the pieces to recover hold more than the mention, such as its particle."""


class MentionRows(Windows):
    """Cuts texts into pieces as they stand, and marks those of a mention and of the others of its entity."""

    latest: tuple[str, list[int], list[Span]] = "", [], []

    def row(self, mention: Mention) -> Row | None:
        """None where the vocabulary does not know the word, or its first mention is outside the window."""
        ids, offsets = self._cut(mention.item.text)
        target = touching(offsets, mention.item.span)
        if target is None or self.tokenizer.unk_token_id in ids[slice(*target)]:
            return None
        first, last = target
        antecedent = touching(offsets[:first], mention.item.antecedent) if mention.item.antecedent else None
        if antecedent is None or last - first > self.room // 4:
            return None
        left, right = clip(first, len(ids) - last, self.room - (last - first) + 1)
        if antecedent[0] < first - left:
            return None
        marks = np.full(len(ids), BEGINS, dtype=np.uint8)
        for other in mention.others:
            marks[slice(*touching(offsets, other) or (0, 0))] = KEPT
        marks[first:last] = TARGET
        window = slice(first - left, last + right)
        is_wider = (offsets[first][0], offsets[last - 1][1]) != mention.item.span
        return Row(*with_specials(ids[window], marks[window], (self.head, self.tail)), is_wider)

    def _cut(self, text: str) -> tuple[list[int], list[Span]]:
        """The pieces of a text and where they stand; a text has several mentions, one after the other."""
        if self.latest[0] != text:
            (cut,) = self.cutter.cut([text])
            self.latest = text, cut.ids, cut.trimmed_offsets()
        return self.latest[1:]


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
    guard, counts = Guard(exclude), Counter[str]()
    parts = _parts(stream(paths, guard), tokenizer, config, seq_len, analyser, probes, counts)
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
    told = {
        "spelling": SPELLING,
        "mentions": counts["rows"],
        "wider": counts["wider"],
        "left_out": text_hashes(exclude),
    }
    document = {**facts, "analyser": analyser.version, "settings": settings, **told}
    write_atomically(folder / "dataset.json", json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def _parts(
    documents: Iterable[Document],
    tokenizer: Any,
    config: CorefConfig,
    seq_len: int,
    analyser: Analyser,
    probes: list[ProbeItem],
    counts: Counter[str],
) -> Iterator[tuple[str, int, Any, Any]]:
    """Rows with their split; the second mentions of held-out documents are also kept as probe items."""
    maker, wanted = MentionRows(tokenizer, seq_len), config.mention
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
            counts.update((key, split, "rows", *["wider"] * row.is_wider))
            if split == "held_out" and len(probes) < wanted.held_out_items:
                probes.append(mention.item)
            yield split, number, row.ids, row.marks
        if wanted.limit and counts["train"] >= wanted.limit and counts["held_out"] >= wanted.held_out_items:
            return


def check_dataset_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written, or that holds something else: a new dataset replaces what is there."""
    check_writable(folder)
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
    if told.values.get("spelling") != SPELLING:
        raise DanseoError(f"{folder} was prepared by an earlier danseo, which spelled mentions apart; prepare it again")
    if told.text("tokenizer") != tokenizer_identity(tokenizer):
        raise DanseoError(f"{folder} was prepared with another tokenizer than this checkpoint's; prepare it again")
    probes = read_items(folder / "probes.jsonl") if (folder / "probes.jsonl").is_file() else []
    check_packed(folder)
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
    from danseo.models.masked.lengths import readable_length

    if config.mention.seq_len:
        return readable_length(model_config, tokenizer, config.mention.seq_len)
    chosen = min(512, readable_length(model_config, tokenizer))
    on_note(f"sequences of up to {chosen} pieces")
    return chosen
