"""Repeated-noun items from plain text, with quotas per source; dev and test share no document."""

import hashlib
import json
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import ceil
from pathlib import Path

from danseo.errors import DataError
from danseo.mlm.overlap import OverlapCounter
from danseo.mlm.probing.items import SPLITS, ProbeItem
from danseo.text.documents import Document, hash_text, name_sources, read_documents, shuffle_documents, split_passages
from danseo.text.morphology import NOUNS, PRONOUN, Analyser, Noun

VERSION = 2  # of the rules below: a change of items is a change of this number
MIN_QUOTA_SHARE = 0.9  # of a quota
CANDIDATES = 20
GUESSES = 5


@dataclass(frozen=True)
class BuildOptions:
    """The rules of a set; without a limit and quotas it takes every item."""

    min_chars: int = 100
    per_text: int = 3
    per_document: int = 12
    passage: int = 2000
    seed: int = 999
    limit: int | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)

    def hash(self) -> str:
        """Return 8 hex digits of the rules."""
        rules = json.dumps({**asdict(self), "version": VERSION}, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(rules.encode()).hexdigest()[:8]

    def quota(self, source: str, sources: int) -> int | None:
        """Return how many items a source must give to each split."""
        if source in self.quotas:
            return self.quotas[source]
        return ceil(self.limit / sources) if self.limit is not None else None


@dataclass
class ItemCollection:
    """Items per split with their documents, nouns and counts."""

    items: dict[str, list[ProbeItem]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    documents: dict[str, dict[str, str]] = field(default_factory=lambda: {split: {} for split in SPLITS})
    counts: Counter[str] = field(default_factory=Counter)
    nouns: Counter[str] = field(default_factory=Counter)
    texts: dict[str, set[str]] = field(default_factory=lambda: {split: set() for split in SPLITS})
    """Hashes of the documents and passages that gave items."""

    def mark_used(self, split: str, document: Document, text: str) -> None:
        """Record that a split has items of a document and text."""
        self.documents[split].setdefault(document.id, document.sha256)
        self.texts[split] |= {document.sha256, hash_text(text)}

    def is_in_other_split(self, split: str, document: Document, text: str) -> bool:
        """Return whether the other split has items of the document or of the same text."""
        known = [(self.documents[other], self.texts[other]) for other in SPLITS if other != split]
        hashes = {document.sha256, hash_text(text)}
        return any(document.id in names or hashes & texts for names, texts in known)


def parse_quotas(texts: Sequence[str]) -> dict[str, int]:
    """Parse quotas such as kowiki=800."""
    quotas = {}
    for text in texts:
        source, _, number = text.rpartition("=")
        if not source or not number.isdigit():
            raise DataError(f"--quota {text}: write it as SOURCE=N, such as kowiki=800")
        quotas[source] = int(number)
    return quotas


def find_repeated_nouns(words: Sequence[Noun], length: int, options: BuildOptions) -> list[tuple[Noun, Noun]]:
    """Return the first and second mention of each repeated noun; none if the text has a pronoun."""
    if length < options.min_chars or any(word.tag == PRONOUN for word in words):
        return []
    mentions: dict[str, list[Noun]] = {}
    for word in words:
        if word.tag in NOUNS and len(word.form) >= 2:
            mentions.setdefault(word.form, []).append(word)
    pairs = [(first, second) for first, second, *_ in (nouns for nouns in mentions.values() if len(nouns) > 1)]
    return pairs[: options.per_text]


def collect_repeated_nouns(
    paths: Sequence[Path],
    options: BuildOptions,
    analyser: Analyser,
    on_note: Callable[[str], None] = lambda line: None,
    others: Mapping[str, Sequence[Document]] | None = None,
) -> ItemCollection:
    """Collect repeated-noun items of all sources, shuffled and limited; others are sources that are no text files."""
    collection = ItemCollection()
    readers = {name: partial(read_documents, name, path) for name, path in name_sources(paths).items()}
    sources: dict[str, Callable[[], Iterable[Document]]] = {**readers}
    sources |= {name: partial(iter, documents) for name, documents in (others or {}).items()}
    if unknown := set(options.quotas) - set(sources):
        raise DataError(f"no source {sorted(unknown)[0]!r} for its quota; sources: {', '.join(sources)}")
    for source, read in sources.items():
        quota = options.quota(source, len(sources))
        by_split = _collect_from_source(read(), quota, options, analyser, collection)
        for split, items in by_split.items():
            if quota is not None and len(items) < MIN_QUOTA_SHARE * quota:
                raise DataError(
                    f"{source} yields {len(items)} of {quota} items for {split}; "
                    "give it more text, or lower --limit or --quota"
                )
            collection.items[split] += items
        if others:
            _drop_shared_items(collection, source)
        counts = ", ".join(f"{len(items)} {split}" for split, items in by_split.items())
        on_note(f"{source}: {counts} repeated-noun items")
    for split, items in collection.items.items():
        random.Random(f"{options.seed} {split}").shuffle(items)
        del items[options.limit if options.limit is not None and not options.quotas else len(items) :]
    return collection


def _drop_shared_items(collection: ItemCollection, source: str) -> None:
    """Drop items of a source that share 13 words in a row with an item of the other split, such as a cited article."""
    for split, other in (SPLITS, SPLITS[::-1]):
        items, counter = collection.items[split], OverlapCounter(collection.items[other])
        kept = [item for item in items if item.source != source or not counter.match(item.text)]
        collection.counts["items with text of the other split"] += len(items) - len(kept)
        items[:] = kept


def _collect_from_source(
    documents: Iterable[Document],
    quota: int | None,
    options: BuildOptions,
    analyser: Analyser,
    collection: ItemCollection,
) -> dict[str, list[ProbeItem]]:
    """Return the items of one source per split, at most its quota and a few of each document."""
    by_split: dict[str, list[ProbeItem]] = {split: [] for split in SPLITS}
    per_document: Counter[str] = Counter()

    def is_open(document: Document) -> bool:
        is_wanted = quota is None or len(by_split[choose_split(document.id, options.seed)]) < quota
        return is_wanted and per_document[document.id] < options.per_document  # a long book is not the whole set

    texts = (
        (document, text)
        for document in shuffle_documents(documents, options.seed)
        if is_open(document)
        for text in split_passages(document, options.passage)
    )
    for (document, text), words in analyse_texts(texts, analyser):
        split = choose_split(document.id, options.seed)
        items = [
            make_repeated_item(document, text, pair, words, analyser.version, options.hash())
            for pair in find_repeated_nouns(words, len(text), options)
        ]
        collection.counts["passages"] += 1
        collection.counts["passages with items"] += bool(items)
        if items and is_open(document) and _is_new(collection, split, document, text):
            collection.nouns.update(word.form for word in words if word.tag in NOUNS and len(word.form) >= 2)
            collection.mark_used(split, document, text)
            most = options.per_document - per_document[document.id]
            new = items[: most if quota is None else min(most, quota - len(by_split[split]))]
            per_document[document.id] += len(new)
            by_split[split] += new
        if quota is not None and all(len(part) >= quota for part in by_split.values()):
            break
    return by_split


def _is_new(collection: ItemCollection, split: str, document: Document, text: str) -> bool:
    """Return whether a text has no items yet in any split; count the others."""
    is_copy = hash_text(text) in collection.texts[split] or collection.is_in_other_split(split, document, text)
    if is_copy:
        collection.counts["repeated passages"] += 1
    return not is_copy


def choose_split(document: str, seed: int) -> str:
    """Return dev or test by the document's name, so that all items of a document are in one split."""
    return SPLITS[hashlib.sha256(f"{seed} {document}".encode()).digest()[0] % 2]


def analyse_texts(
    texts: Iterable[tuple[Document, str]], analyser: Analyser
) -> Iterator[tuple[tuple[Document, str], list[Noun]]]:
    """Yield every text with its nouns and pronouns; the analyser reads ahead for its workers."""
    waiting: deque[tuple[Document, str]] = deque()

    def stream() -> Iterator[str]:
        for pair in texts:
            waiting.append(pair)
            yield pair[1]

    for words in analyser.find_nouns(stream()):
        document, text = waiting.popleft()
        yield (document, text), [word for word in words if text[word.start : word.end] == word.form]


def make_repeated_item(
    document: Document, text: str, pair: tuple[Noun, Noun], words: Sequence[Noun], analyser: str, builder: str
) -> ProbeItem:
    """Return the item whose gap is the later of two mentions of a noun."""
    first, later = pair
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    item = ProbeItem(
        id=f"{document.source}:{document.id}:{digest}:{later.start}",
        source=document.source,
        document=document.id,
        kind="repeated",
        text=text,
        span=(later.start, later.end),
        target=later.form,
        antecedent=(first.start, first.end),
        distance=later.start - first.end,
        analyser=analyser,
        builder=builder,
    )
    return add_candidates(item, words)


def add_candidates(item: ProbeItem, words: Sequence[Noun]) -> ProbeItem:
    """Return the item with candidates and baseline guesses from the nouns outside its gap."""
    start, end = item.span
    outside = [word for word in words if word.end <= start or word.start >= end]
    others = [word for word in outside if word.tag in NOUNS and len(word.form) >= 2]
    near = sorted(others, key=lambda word: start - word.end if word.end <= start else word.start - end)
    candidates = list(dict.fromkeys(word.form for word in near))[:CANDIDATES]
    if item.target not in candidates:
        candidates = [*candidates[: CANDIDATES - 1], item.target]
    left = [word.form for word in reversed(others) if word.end <= start]
    baselines = {
        "nearest": tuple(dict.fromkeys(left))[:GUESSES],
        "frequent": tuple(form for form, _ in Counter(word.form for word in others).most_common(GUESSES)),
    }
    return replace(item, candidates=tuple(dict.fromkeys((*candidates, *item.given))), baselines=baselines)


def add_unigram_baseline(items: Iterable[ProbeItem], nouns: Counter[str]) -> list[ProbeItem]:
    """Return the items with the guesses of the unigram baseline: the most frequent nouns of all texts."""
    guesses = tuple(form for form, _ in nouns.most_common(GUESSES))
    return [replace(item, baselines={**item.baselines, "unigram": guesses}) for item in items]
