"""A vocabulary of morphemes: WordPiece whose pieces are morphemes or parts of one, made by Kiwi and used without."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise, repeat
from typing import Any

from danseo.data.find import cache_root
from danseo.files import write_atomically
from danseo.models.scratch import SPECIALS, bert_normalizer
from danseo.pretraining.encoding import morpheme_cuts, morpheme_spans
from danseo.rows import read_object
from danseo.text.morphology import KiwiAnalyser

Word = tuple[str, ...]
"""A word in its morphemes as they are written: 한국 은."""
_AT_A_TIME = 256
_SPARE = 1.5  # pieces that are trained for one that is kept
_ROUNDS = 3
_CROSSING = 0.05  # the share of a piece's uses that may reach over the border of a morpheme
_RARE = 3e-7  # of the letters of a text: a rarer syllable has no piece, and words with it are unknown
_FOREIGN = 5e-6  # the same for other letters, whose words are rare anyway
_PLAIN = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" + "".join(map(chr, range(0x3131, 0x3164)))
_FIRST = 0xF0000  # added to the first letter of a word: a letter of its own while pieces are merged
_MARKABLE = 0x20000  # below this number; letters beyond stand alone anyway


def kept_pieces(text: list[Any], texts: Iterable[str], size: int, on_note: Callable[[str], None]) -> list[str]:
    """The pieces of a text that the key names: from the cache, or made and kept there, since Kiwi takes minutes."""
    key = json.dumps([text, size, KiwiAnalyser().version])
    path = cache_root() / "pieces" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    if path.is_file():
        return [str(piece) for piece in read_object(path).values["pieces"]]
    pieces = morpheme_pieces(texts, size, on_note)
    write_atomically(path, json.dumps({"pieces": pieces}, ensure_ascii=False, indent=0))
    return pieces


def morpheme_pieces(texts: Iterable[str], size: int, on_note: Callable[[str], None] = lambda line: None) -> list[str]:
    """At most that many pieces, sorted, without the special ones; a piece that swallows particles is none of them."""
    words = count_words(texts, on_note)
    letters = _letters(words)
    room = size - len(SPECIALS)
    pieces = set(_merged(words, letters, round(_SPARE * room))) | letters
    for left in reversed(range(_ROUNDS)):
        uses, crossings = _uses(words, pieces)
        pieces -= {piece for piece in pieces - letters if crossings[piece] > _CROSSING * uses[piece]}
        if left:  # the last round only drops what the cut has made cross
            pieces = letters | set(sorted(pieces - letters, key=lambda p: (-uses[p], p))[: max(0, room - len(letters))])
    return sorted(pieces)


def count_words(texts: Iterable[str], on_note: Callable[[str], None] = lambda line: None) -> Counter[Word]:
    """Every word of the texts in its morphemes, and how often it stands there."""
    from tokenizers import pre_tokenizers

    normalizer, splitter = bert_normalizer(), pre_tokenizers.BertPreTokenizer()
    words: Counter[Word] = Counter()
    waiting, done = iter(texts), 0
    while some := [normalizer.normalize_str(text) for text in islice(waiting, _AT_A_TIME)]:
        for text, spans in zip(some, morpheme_spans(some), strict=True):
            cuts = morpheme_cuts(spans, len(text))
            words.update(_cut(text, *span, cuts) for _, span in splitter.pre_tokenize_str(text))
        done += len(some)
        on_note(f"morphemes of {done:,} documents counted")
    return words


def _cut(text: str, start: int, end: int, cuts: Any) -> Word:
    positions = [start, *(k for k in range(start + 1, end) if cuts[k]), end]
    return tuple(text[a:b] for a, b in pairwise(positions))


def _letters(words: Counter[Word]) -> set[str]:
    """A piece for each letter that is not very rare, where it begins a word and where it goes on with one."""
    seen: Counter[str] = Counter()
    syllables: Counter[str] = Counter()
    for word, count in words.items():
        for position, letter in enumerate("".join(word)):
            seen[letter if position == 0 else f"##{letter}"] += count
            if _is_korean(letter):
                syllables[letter] += count
    kept = {piece for piece, count in seen.items() if count >= _FOREIGN * seen.total() and not _is_korean(piece[-1])}
    alone = {letter for letter, count in syllables.items() if count >= _RARE * seen.total()} | set(_PLAIN)
    return kept | alone | {f"##{letter}" for letter in alone}


def _is_korean(letter: str) -> bool:
    return "가" <= letter <= "힣"


def _merged(words: Counter[Word], letters: set[str], size: int) -> Iterator[str]:
    """Pieces of frequent morphemes: pairs are merged inside of one, and the first of a word is told apart."""
    from tokenizers import Tokenizer, models, trainers

    units: Counter[str] = Counter()
    for word, count in words.items():
        for position, unit in enumerate(word):
            if _is_spelled(unit, position == 0, letters):
                units[unit if position else _marked(unit)] += count
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
    tokenizer.train_from_iterator(chain.from_iterable(repeat(unit, count) for unit, count in units.items()), trainer)
    for piece in tokenizer.get_vocab():
        yield _unmarked(piece) if ord(piece[0]) >= _FIRST else f"##{piece}"


def _is_spelled(unit: str, is_first: bool, letters: set[str]) -> bool:
    pieces = [letter if is_first and position == 0 else f"##{letter}" for position, letter in enumerate(unit)]
    return ord(unit[0]) < _MARKABLE and letters.issuperset(pieces)


def _marked(unit: str) -> str:
    return chr(ord(unit[0]) + _FIRST) + unit[1:]


def _unmarked(piece: str) -> str:
    return chr(ord(piece[0]) - _FIRST) + piece[1:]


def _uses(words: Counter[Word], pieces: set[str]) -> tuple[Counter[str], Counter[str]]:
    """How often the longest match takes each piece, and how often it then reaches over the border of a morpheme."""
    from tokenizers import models

    model = models.WordPiece({piece: k for k, piece in enumerate(["[UNK]", *sorted(pieces)])}, unk_token="[UNK]")
    uses: Counter[str] = Counter()
    crossings: Counter[str] = Counter()
    for word, count in words.items():
        borders = set(_borders(word))
        position = 0
        for token in model.tokenize("".join(word)):
            end = position + len(token.value.removeprefix("##"))
            uses[token.value] += count
            if any(position < border < end for border in borders):
                crossings[token.value] += count
            position = end
    return uses, crossings


def _borders(word: Word) -> Iterator[int]:
    position = 0
    for unit in word[:-1]:
        position += len(unit)
        yield position
