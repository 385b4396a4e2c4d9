"""Find later mentions of an entity whose first mention is visible, and write them as rows to train on."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from danseo.config.base import flatten_config
from danseo.config.mlm import CorefConfig, MentionSettings
from danseo.errors import DanseoError, DataError
from danseo.files import check_writable, write_atomically
from danseo.mlm.masking import BEGINS, KEPT, TARGET
from danseo.mlm.overlap import OverlapFilter, hash_texts
from danseo.mlm.packing import (
    SPLITS,
    PackedFacts,
    PackedRows,
    add_special_tokens,
    check_packed,
    is_held_out,
    read_facts,
    stream_documents,
    write_packed,
)
from danseo.mlm.probing.items import ProbeItem, Span, read_items, write_items
from danseo.mlm.probing.repeated_nouns import analyse_texts, make_repeated_item
from danseo.mlm.probing.windows import WindowBuilder, find_tokens, fit_context
from danseo.rows import read_object
from danseo.text.documents import Document, hash_files, hash_tokenizer, split_passages
from danseo.text.morphology import Analyser, Noun

_TAGS = {"names": ("NNP",), "nouns": ("NNP", "NNG")}


@dataclass(frozen=True)
class Mention:
    """A mention to recover, and the spans of the other mentions of its entity."""

    item: ProbeItem
    others: tuple[tuple[int, int], ...]


def find_mentions(
    document: Document, text: str, words: Sequence[Noun], config: MentionSettings, analyser: str
) -> Iterator[Mention]:
    """Yield the second and later mentions of every entity, within the distance from the first that is set."""
    entities: dict[str, list[Noun]] = {}
    for word in words:
        if word.tag in _TAGS[config.tags] and len(word.form) >= 2:
            entities.setdefault(word.form, []).append(word)
    for mentions in entities.values():
        first = mentions[0]
        for mention in mentions[1 : config.max_mentions]:
            if config.min_distance <= mention.start - first.end <= config.max_distance:
                others = tuple((other.start, other.end) for other in mentions if other is not mention)
                item = make_repeated_item(document, text, (first, mention), words, analyser, "coref")
                yield Mention(item, others)


class MentionRow(NamedTuple):
    """A mention as a row: token ids of its window, and marks of what is recovered and what is kept."""

    ids: Any
    marks: Any
    is_wider: bool
    """Whether the tokens to recover contain more than the mention, such as its particle."""


class MentionRows(WindowBuilder):
    """Tokenizes texts, and marks the tokens of a mention and of the other mentions of its entity."""

    latest: tuple[str, list[int], list[Span]] = "", [], []

    def make_row(self, mention: Mention) -> MentionRow | None:
        """Return a row, or None if the word has unknown tokens or its first mention is outside the window."""
        ids, offsets = self._tokenize(mention.item.text)
        target = find_tokens(offsets, mention.item.span)
        if target is None or self.tokenizer.unk_token_id in ids[slice(*target)]:
            return None
        first, last = target
        antecedent = find_tokens(offsets[:first], mention.item.antecedent) if mention.item.antecedent else None
        if antecedent is None or last - first > self.room // 4:
            return None
        left, right = fit_context(first, len(ids) - last, self.room - (last - first) + 1)
        if antecedent[0] < first - left:
            return None
        marks = np.full(len(ids), BEGINS, dtype=np.uint8)
        for other in mention.others:
            marks[slice(*find_tokens(offsets, other) or (0, 0))] = KEPT
        marks[first:last] = TARGET
        window = slice(first - left, last + right)
        is_wider = (offsets[first][0], offsets[last - 1][1]) != mention.item.span
        return MentionRow(*add_special_tokens(ids[window], marks[window], (self.head, self.tail)), is_wider)

    def _tokenize(self, text: str) -> tuple[list[int], list[Span]]:
        """Return the token ids and offsets of a text; the latest text is kept, as it has several mentions."""
        if self.latest[0] != text:
            (encoded,) = self.text_tokenizer.tokenize([text])
            self.latest = text, encoded.ids, encoded.trimmed_offsets()
        return self.latest[1:]


def write_dataset(
    folder: Path,
    paths: Sequence[Path],
    tokenizer: Any,
    config: CorefConfig,
    seq_len: int,
    analyser: Analyser,
    exclude: Sequence[ProbeItem] = (),
    on_read: Callable[[int], None] = lambda count: None,
) -> None:
    """Analyse the text, and write a dataset: rows, held-out probe items, and the identity of the tokenizer."""
    probes: list[ProbeItem] = []
    guard, counts = OverlapFilter(exclude), Counter[str]()
    parts = _make_parts(stream_documents(paths, guard, on_read), tokenizer, config, seq_len, analyser, probes, counts)
    write_packed(folder, parts, len(tokenizer), seq_len, False, guard.as_dict)
    try:
        _read_sizes(folder)
    except DanseoError:
        shutil.rmtree(folder)
        raise
    if probes:
        write_items(folder / "probes.jsonl", probes)
    description = {
        "tokenizer": hash_tokenizer(tokenizer),
        "seq_len": seq_len,
        "text": hash_files(paths),
        "analyser": analyser.version,
        "settings": {key: value for key, value in flatten_config(config).items() if key.startswith("mention.")},
        "mentions": counts["rows"],
        "wider": counts["wider"],
        "left_out": hash_texts(exclude),
    }
    write_atomically(folder / "dataset.json", json.dumps(description, ensure_ascii=False, indent=2) + "\n")


def _make_parts(
    documents: Iterable[Document],
    tokenizer: Any,
    config: CorefConfig,
    seq_len: int,
    analyser: Analyser,
    probes: list[ProbeItem],
    counts: Counter[str],
) -> Iterator[tuple[str, int, Any, Any]]:
    """Yield rows with their split, and add the second mentions of held-out documents to the probe items."""
    builder, settings = MentionRows(tokenizer, seq_len), config.mention
    texts = ((document, text) for document in documents for text in split_passages(document, max(2000, 3 * seq_len)))

    def has_all_train_items() -> bool:
        return 0 < settings.max_train_items <= counts["train"]

    number, latest = -1, None
    for (document, text), words in analyse_texts(texts, analyser):
        number, latest = number + (document is not latest), document  # names may repeat
        split = "held_out" if is_held_out(document, settings.held_out_ratio, "coref") else "train"
        for mention in find_mentions(document, text, words, settings, analyser.version):
            key = f"{split} {mention.item.target}"
            is_full = split == "train" and has_all_train_items()
            row = builder.make_row(mention) if counts[key] < settings.max_per_entity and not is_full else None
            if row is None:
                continue
            counts.update((key, split, "rows", *["wider"] * row.is_wider))
            if split == "held_out" and len(probes) < settings.max_held_out_items:
                probes.append(mention.item)
            yield split, number, row.ids, row.marks
        if has_all_train_items() and counts["held_out"] >= settings.max_held_out_items:
            return


def check_dataset_writable(folder: Path) -> None:
    """Raise an error if a folder cannot be written or holds something else than a dataset, which is replaced."""
    check_writable(folder)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "facts.json").is_file():
        raise DanseoError(f"{folder} is not empty and not a prepared dataset; choose another folder")


def _read_sizes(folder: Path) -> dict[str, PackedFacts]:
    return read_facts(folder, "repeated entity", "mention.held_out_ratio")


def open_dataset(folder: Path, tokenizer: Any) -> tuple[dict[str, Any], dict[str, PackedFacts], list[ProbeItem]]:
    """Return the description, the sizes and the probe items of a dataset; raise an error if its tokenizer differs."""
    if not (folder / "dataset.json").is_file():
        raise DataError(f"{folder} is not a prepared dataset; make one with `danseo coref … --save-dataset {folder}`")
    document = read_object(folder / "dataset.json")
    document.integer("seq_len")
    if document.text("tokenizer") != hash_tokenizer(tokenizer):
        raise DanseoError(f"{folder} was prepared with another tokenizer than this checkpoint's; prepare it again")
    probes = read_items(folder / "probes.jsonl") if (folder / "probes.jsonl").is_file() else []
    check_packed(folder)
    for split in SPLITS:
        PackedRows(folder / split)
    return dict(document.values), _read_sizes(folder), probes


def require_left_out(folder: Path, items: Sequence[ProbeItem]) -> None:
    """Raise an error if a dataset was prepared without leaving out the texts of these items."""
    document = read_object(folder / "dataset.json")
    known = set(document.texts("left_out")) if document.values.get("left_out") else set()
    if missing := set(hash_texts(items)) - known:
        raise DanseoError(
            f"{folder} was prepared without leaving out {len(missing)} texts of the probe items; prepare it again with "
            "--text, --save-dataset and the same --probe-items"
        )
