"""Train a WordPiece vocabulary whose tokens are morphemes or parts of one; Kiwi is needed only for training."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, islice, pairwise, repeat
from typing import Any

from danseo.data.find import cache_root
from danseo.files import write_atomically
from danseo.mlm.packing import find_morpheme_cuts, find_morpheme_spans
from danseo.models.new_encoder import SPECIALS, make_bert_normalizer
from danseo.rows import read_object
from danseo.text.morphology import KiwiAnalyser

Word = tuple[str, ...]
"""A word as the surface forms of its morphemes: 한국 은."""
_BATCH_SIZE = 256
_SPARE = 1.5  # tokens that are trained for one that is kept
_ROUNDS = 3
_CROSSING = 0.05  # the share of a token's uses that may cross a morpheme boundary
_RARE = 3e-7  # of the characters of a text: a rarer syllable has no token, and words with it are unknown
_FOREIGN = 5e-6  # the same for other characters, whose words are rare anyway
_PLAIN = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" + "".join(map(chr, range(0x3131, 0x3164)))
_FIRST = 0xF0000  # added to the first character of a word, which makes it a different one while pairs are merged
_MARKABLE = 0x20000  # characters from here on are never merged


def load_morpheme_tokens(text: list[Any], texts: Iterable[str], size: int, on_note: Callable[[str], None]) -> list[str]:
    """Return the tokens of a text from the cache, or train and store them, as Kiwi takes minutes."""
    key = json.dumps([text, size, KiwiAnalyser().version])
    path = cache_root() / "morpheme_tokens" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    if path.is_file():
        return [str(token) for token in read_object(path).values["tokens"]]
    tokens = train_morpheme_tokens(texts, size, on_note)
    write_atomically(path, json.dumps({"tokens": tokens}, ensure_ascii=False, indent=0))
    return tokens


def train_morpheme_tokens(
    texts: Iterable[str], size: int, on_note: Callable[[str], None] = lambda line: None
) -> list[str]:
    """Return at most `size` tokens, sorted, without special ones and without tokens that include particles."""
    words = count_words(texts, on_note)
    letters = _choose_letters(words)
    most = size - len(SPECIALS)
    tokens = set(_merge_pairs(words, letters, round(_SPARE * most))) | letters
    for left in reversed(range(_ROUNDS)):
        uses, crossings = _count_uses(words, tokens)
        tokens -= {token for token in tokens - letters if crossings[token] > _CROSSING * uses[token]}
        if left:  # the last round only drops tokens that cross boundaries since the others were dropped
            tokens = letters | set(sorted(tokens - letters, key=lambda p: (-uses[p], p))[: max(0, most - len(letters))])
    return sorted(tokens)


def count_words(texts: Iterable[str], on_note: Callable[[str], None] = lambda line: None) -> Counter[Word]:
    """Count every word of the texts, split into its morphemes."""
    from tokenizers import pre_tokenizers

    normalizer, splitter = make_bert_normalizer(), pre_tokenizers.BertPreTokenizer()
    words: Counter[Word] = Counter()
    remaining, done = iter(texts), 0
    while batch := [normalizer.normalize_str(text) for text in islice(remaining, _BATCH_SIZE)]:
        for text, spans in zip(batch, find_morpheme_spans(batch), strict=True):
            cuts = find_morpheme_cuts(spans, len(text))
            words.update(_split_word(text, *span, cuts) for _, span in splitter.pre_tokenize_str(text))
        done += len(batch)
        on_note(f"morphemes of {done:,} documents counted")
    return words


def _split_word(text: str, start: int, end: int, cuts: Any) -> Word:
    positions = [start, *(k for k in range(start + 1, end) if cuts[k]), end]
    return tuple(text[a:b] for a, b in pairwise(positions))


def _choose_letters(words: Counter[Word]) -> set[str]:
    """Return tokens for each character that is not very rare, at the beginning of a word and inside one."""
    seen: Counter[str] = Counter()
    syllables: Counter[str] = Counter()
    for word, count in words.items():
        for position, letter in enumerate("".join(word)):
            seen[letter if position == 0 else f"##{letter}"] += count
            if _is_korean(letter):
                syllables[letter] += count
    kept = {token for token, count in seen.items() if count >= _FOREIGN * seen.total() and not _is_korean(token[-1])}
    alone = {letter for letter, count in syllables.items() if count >= _RARE * seen.total()} | set(_PLAIN)
    return kept | alone | {f"##{letter}" for letter in alone}


def _is_korean(letter: str) -> bool:
    return "가" <= letter <= "힣"


def _merge_pairs(words: Counter[Word], letters: set[str], size: int) -> Iterator[str]:
    """Yield tokens of frequent morphemes: pairs are merged inside one, and the first of a word is marked."""
    from tokenizers import Tokenizer, models, trainers

    units: Counter[str] = Counter()
    for word, count in words.items():
        for position, unit in enumerate(word):
            if _has_known_letters(unit, position == 0, letters):
                units[unit if position else chr(ord(unit[0]) + _FIRST) + unit[1:]] += count
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
    tokenizer.train_from_iterator(chain.from_iterable(repeat(unit, count) for unit, count in units.items()), trainer)
    for token in tokenizer.get_vocab():
        first = ord(token[0])
        yield chr(first - _FIRST) + token[1:] if first >= _FIRST else f"##{token}"


def _has_known_letters(unit: str, is_first: bool, letters: set[str]) -> bool:
    tokens = [letter if is_first and position == 0 else f"##{letter}" for position, letter in enumerate(unit)]
    return ord(unit[0]) < _MARKABLE and letters.issuperset(tokens)


def _count_uses(words: Counter[Word], tokens: set[str]) -> tuple[Counter[str], Counter[str]]:
    """Count how often the longest match uses each token, and how often it crosses a morpheme boundary."""
    from tokenizers import models

    model = models.WordPiece({token: k for k, token in enumerate(["[UNK]", *sorted(tokens)])}, unk_token="[UNK]")
    uses: Counter[str] = Counter()
    crossings: Counter[str] = Counter()
    for word, count in words.items():
        boundaries = list(accumulate(map(len, word[:-1])))
        position = 0
        for match in model.tokenize("".join(word)):
            end = position + len(match.value.removeprefix("##"))
            uses[match.value] += count
            if any(position < boundary < end for boundary in boundaries):
                crossings[match.value] += count
            position = end
    return uses, crossings
