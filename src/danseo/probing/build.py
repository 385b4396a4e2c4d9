"""Building a frozen set: repeated nouns from plain text, hard quotas per source, dev and test from other documents."""

import hashlib
import json
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from pathlib import Path

from danseo.errors import DataError
from danseo.probing.items import SPLITS, ProbeItem, Span
from danseo.text.documents import Document, passages, read_documents, shuffled, source_names, text_hash
from danseo.text.morphology import NOUNS, PRONOUN, Analyser, Noun

VERSION = 2  # of the rules below: a change of items is a change of this number
ENOUGH = 0.9  # of a quota
CANDIDATES = 20
GUESSES = 5


@dataclass(frozen=True)
class BuildOptions:
    """The rules of a set; without a limit and quotas everything that is found is taken."""

    min_chars: int = 100
    per_text: int = 3
    per_document: int = 12
    passage: int = 2000
    seed: int = 999
    limit: int | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)

    def hash(self) -> str:
        """Eight hex digits of the rules."""
        rules = json.dumps({**asdict(self), "version": VERSION}, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(rules.encode()).hexdigest()[:8]

    def quota(self, source: str, sources: int) -> int | None:
        """Items that a source owes to each split."""
        if source in self.quotas:
            return self.quotas[source]
        return ceil(self.limit / sources) if self.limit is not None else None


@dataclass
class Built:
    """Items per split, and what was seen on the way."""

    items: dict[str, list[ProbeItem]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    documents: dict[str, dict[str, str]] = field(default_factory=lambda: {split: {} for split in SPLITS})
    counts: Counter[str] = field(default_factory=Counter)
    nouns: Counter[str] = field(default_factory=Counter)
    texts: dict[str, set[str]] = field(default_factory=lambda: {split: set() for split in SPLITS})
    """Hashes of the documents and passages that gave items."""

    def claim(self, split: str, document: Document, text: str) -> None:
        """Remember what a split has items of."""
        self.documents[split].setdefault(document.id, document.sha256)
        self.texts[split] |= {document.sha256, text_hash(text)}

    def is_elsewhere(self, split: str, document: Document, text: str) -> bool:
        """Whether the document or its text, whatever it is called there, gave items to the other split."""
        known = [(self.documents[other], self.texts[other]) for other in SPLITS if other != split]
        hashes = {document.sha256, text_hash(text)}
        return any(document.id in names or hashes & texts for names, texts in known)


def parse_quotas(texts: Sequence[str]) -> dict[str, int]:
    """kowiki=800 as a source and its number."""
    quotas = {}
    for text in texts:
        source, _, number = text.rpartition("=")
        if not source or not number.isdigit():
            raise DataError(f"--quota {text}: write it as SOURCE=N, such as kowiki=800")
        quotas[source] = int(number)
    return quotas


def repeated_nouns(words: Sequence[Noun], length: int, options: BuildOptions) -> list[tuple[Noun, Noun]]:
    """The first and second mention of nouns that a text repeats; none where a pronoun could stand for one."""
    if length < options.min_chars or any(word.tag == PRONOUN for word in words):
        return []
    mentions: dict[str, list[Noun]] = {}
    for word in words:
        if word.tag in NOUNS and len(word.form) >= 2:
            mentions.setdefault(word.form, []).append(word)
    pairs = [(found[0], found[1]) for found in mentions.values() if len(found) > 1]
    return pairs[: options.per_text]


def build_repeated(
    paths: Sequence[Path], options: BuildOptions, analyser: Analyser, on_note: Callable[[str], None] = lambda line: None
) -> Built:
    """Repeated-noun items of all sources, shuffled and cut to the limit."""
    built = Built()
    sources = source_names(paths)
    if unknown := set(options.quotas) - set(sources):
        raise DataError(f"no source {sorted(unknown)[0]!r} for its quota; sources: {', '.join(sources)}")
    for source, path in sources.items():
        quota = options.quota(source, len(sources))
        found = _from_source(source, path, quota, options, analyser, built)
        _check_quota(source, quota, found)
        for split, items in found.items():
            built.items[split] += items
        on_note(f"{source}: " + ", ".join(f"{len(found[split])} {split}" for split in SPLITS) + " repeated-noun items")
    for split, items in built.items.items():
        random.Random(f"{options.seed} {split}").shuffle(items)
        del items[options.limit if options.limit is not None and not options.quotas else len(items) :]
    return built


def _check_quota(source: str, quota: int | None, found: Mapping[str, Sequence[ProbeItem]]) -> None:
    for split, items in found.items():
        if quota is not None and len(items) < ENOUGH * quota:
            raise DataError(
                f"{source} yields {len(items)} of the {quota} items that it owes to {split}; "
                "give it more text, or lower --limit or --quota"
            )


def _from_source(
    source: str, path: Path, quota: int | None, options: BuildOptions, analyser: Analyser, built: Built
) -> dict[str, list[ProbeItem]]:
    found: dict[str, list[ProbeItem]] = {split: [] for split in SPLITS}
    taken: Counter[str] = Counter()

    def is_open(document: Document) -> bool:
        owed = quota is None or len(found[split_of(document.id, options.seed)]) < quota
        return owed and taken[document.id] < options.per_document  # a long book is not the whole set

    texts = (
        (document, text)
        for document in shuffled(read_documents(source, path), options.seed)
        if is_open(document)
        for text in passages(document, options.passage)
    )
    for (document, text), words in analysed(texts, analyser):
        split = split_of(document.id, options.seed)
        made = _items_of(document, text, words, options, analyser.version)
        built.counts["passages"] += 1
        built.counts["passages with items"] += bool(made)
        if made and is_open(document) and _is_new(built, split, document, text):
            built.nouns.update(word.form for word in words if word.tag in NOUNS and len(word.form) >= 2)
            built.claim(split, document, text)
            room = options.per_document - taken[document.id]
            kept = made[: room if quota is None else min(room, quota - len(found[split]))]
            taken[document.id] += len(kept)
            found[split] += kept
        if quota is not None and all(len(items) >= quota for items in found.values()):
            break
    return found


def _is_new(built: Built, split: str, document: Document, text: str) -> bool:
    """A text gives items once, and only to one split; the others are counted."""
    is_copy = text_hash(text) in built.texts[split] or built.is_elsewhere(split, document, text)
    if is_copy:
        built.counts["passages that were there before"] += 1
    return not is_copy


def split_of(document: str, seed: int) -> str:
    """dev or test, by the document's name alone: whatever is made of a document stays on one side."""
    return SPLITS[hashlib.sha256(f"{seed} {document}".encode()).digest()[0] % 2]


def analysed(
    texts: Iterable[tuple[Document, str]], analyser: Analyser
) -> Iterator[tuple[tuple[Document, str], list[Noun]]]:
    """Every text with its nouns and pronouns; the analyser reads ahead as far as its workers like."""
    waiting: deque[tuple[Document, str]] = deque()

    def stream() -> Iterator[str]:
        for pair in texts:
            waiting.append(pair)
            yield pair[1]

    for words in analyser.words(stream()):
        document, text = waiting.popleft()
        yield (document, text), [word for word in words if text[word.start : word.end] == word.form]


def _items_of(
    document: Document, text: str, words: Sequence[Noun], options: BuildOptions, analyser: str
) -> list[ProbeItem]:
    return [
        repeated_item(document, text, pair, words, analyser, options.hash())
        for pair in repeated_nouns(words, len(text), options)
    ]


def repeated_item(
    document: Document, text: str, pair: tuple[Noun, Noun], words: Sequence[Noun], analyser: str, builder: str
) -> ProbeItem:
    """The item that asks for the later of two mentions of a noun."""
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
    return with_nouns(item, words)


def with_nouns(item: ProbeItem, words: Sequence[Noun]) -> ProbeItem:
    """The item with candidates and the guesses of the baselines, from the nouns outside its gap."""
    start, end = item.span
    outside = [word for word in words if word.end <= start or word.start >= end]
    others = [word for word in outside if word.tag in NOUNS and len(word.form) >= 2]
    near = sorted(others, key=lambda word: _gap_distance(word, item.span))
    candidates = list(dict.fromkeys(word.form for word in near))[:CANDIDATES]
    if item.target not in candidates:
        candidates = [*candidates[: CANDIDATES - 1], item.target]
    left = [word.form for word in reversed(others) if word.end <= start]
    baselines = {
        "nearest": tuple(dict.fromkeys(left))[:GUESSES],
        "frequent": tuple(form for form, _ in Counter(word.form for word in others).most_common(GUESSES)),
    }
    return replace(item, candidates=tuple(dict.fromkeys((*candidates, *item.given))), baselines=baselines)


def _gap_distance(word: Noun, span: Span) -> int:
    return span[0] - word.end if word.end <= span[0] else word.start - span[1]


def with_unigram(items: Iterable[ProbeItem], nouns: Counter[str]) -> list[ProbeItem]:
    """The items with the guesses of the unigram baseline: the commonest nouns of all their texts."""
    guesses = tuple(form for form, _ in nouns.most_common(GUESSES))
    return [replace(item, baselines={**item.baselines, "unigram": guesses}) for item in items]
