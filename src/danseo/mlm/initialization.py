"""Make the model and tokenizer that a training starts from: from scratch, or from an extended checkpoint."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config.mlm import ModelSettings, PretrainConfig
from danseo.data.find import cache_root
from danseo.errors import DanseoError, WorkFailed
from danseo.files import suggest_remedy, write_atomically
from danseo.mlm.overlap import OverlapFilter, hash_excluded_texts
from danseo.mlm.packing import PackedRows, find_morpheme_cuts, find_morpheme_spans, sample_evenly, stream_documents
from danseo.mlm.probing.items import ProbeItem
from danseo.models.new_encoder import (
    SPECIALS,
    EncoderSize,
    make_bert_normalizer,
    make_encoder_config,
    make_wordpiece_tokenizer,
    train_tokenizer,
)
from danseo.rows import read_object
from danseo.runs.store import read_tensors
from danseo.text.documents import hash_files
from danseo.text.morphology import KiwiAnalyser

if TYPE_CHECKING:
    from danseo.training.distributed import Workers


_WINDOW = 5  # tokens to each side; distant ones count less
_MAX_COUNTED = 20_000_000  # tokens; more change little
_SMOOTHING = 0.75  # exponent of the neighbours' frequencies, so that rare ones count less


def compute_cooccurrence_vectors(ids: Any, special: Collection[int], vocabulary: int, width: int, seed: int) -> Any:
    """Return a vector of length 1 per token from a truncated SVD of the positive mutual information of neighbours."""
    from sklearn.utils.extmath import randomized_svd

    left, strengths, _ = randomized_svd(
        compute_mutual_information(ids, special, vocabulary), width, n_iter=2, random_state=seed
    )
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((width, width)))[0]  # no column matters more than another
    vectors = left * np.sqrt(strengths) @ rotation
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    chance = rng.standard_normal((vocabulary, width)) / np.sqrt(width)  # for tokens that the text does not have
    return np.where(lengths > 1e-6, vectors / np.maximum(lengths, 1e-6), chance).astype(np.float32)


def compute_mutual_information(ids: Any, special: Collection[int], vocabulary: int) -> Any:
    """Return the positive pointwise mutual information of neighbouring tokens as a sparse symmetric matrix."""
    counts = _count_neighbours(np.asarray(ids[:_MAX_COUNTED], dtype=np.int64), special, vocabulary)
    counts = (counts + counts.T).tocoo()
    totals = np.asarray(counts.sum(axis=1)).ravel()
    chances = totals**_SMOOTHING / (totals**_SMOOTHING).sum()
    information = np.log(counts.data / (totals[counts.row] * chances[counts.col]))
    counts.data = np.maximum(information, 0).astype(np.float32)
    return counts.tocsr()


def _count_neighbours(ids: Any, special: Collection[int], vocabulary: int) -> Any:
    """Count how often a token precedes another, weighted by 1 / distance, without special tokens."""
    from scipy.sparse import csr_array

    total = csr_array((vocabulary, vocabulary), dtype=np.float32)
    for distance in range(1, _WINDOW + 1):
        pairs, counts = np.unique(ids[:-distance] * vocabulary + ids[distance:], return_counts=True)
        positions = np.stack([pairs // vocabulary, pairs % vocabulary])
        counted = ~np.isin(positions, list(special)).any(axis=0)
        entries = (counts[counted] / distance).astype(np.float32), tuple(positions[:, counted])
        total = total + csr_array(entries, shape=total.shape)
    return total


def write_start_folder(
    folder: Path,
    config: PretrainConfig,
    texts: Sequence[Path],
    exclude: Sequence[ProbeItem],
    on_note: Callable[[str], None],
) -> None:
    """Write the initial model and tokenizer to a folder, unless an earlier start did."""
    if folder.is_dir():
        return
    if config.checkpoint:
        from danseo.models.mlm.positions import extend_positions

        on_head = on_note if config.objective == "mlm" else lambda line: None  # rtd uses no head
        model, tokenizer = load_masked(config.checkpoint, config.trust_remote_code, on_note=on_head)
        model, description = extend_positions(model, config.text.seq_len)
        on_note(description)
        tokenizer.model_max_length = config.text.seq_len  # transformers reads the length from it
    else:
        model, tokenizer = make_from_scratch(config, texts, exclude, on_note)
    save_masked(folder, model.base_model if config.objective == "rtd" else model, tokenizer, {})


def make_from_scratch(
    config: PretrainConfig, texts: Sequence[Path], exclude: Sequence[ProbeItem], on_note: Callable[[str], None]
) -> tuple[Any, Any]:
    """Return a model with random weights, and a tokenizer trained on the text."""
    import torch

    from danseo.models.checkpoint import quiet_transformers

    settings, seq_len = config.model, config.text.seq_len
    width, heads = settings.hidden_size, settings.num_attention_heads
    if width % heads:
        raise DanseoError(f"model.hidden_size = {width} cannot be divided by model.num_attention_heads = {heads}")
    size = EncoderSize(settings.num_hidden_layers, width, heads, settings.vocab_size, seq_len, settings.dropout)
    tokenizer = train_text_tokenizer(settings, size, texts, exclude, on_note)
    on_note(f"tokenizer of {len(tokenizer):,} tokens trained on the text")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        encoder_config = make_encoder_config(settings.architecture, size, tokenizer)
        return quiet_transformers().AutoModelForMaskedLM.from_config(encoder_config), tokenizer


def train_text_tokenizer(
    config: ModelSettings,
    size: EncoderSize,
    texts: Sequence[Path],
    exclude: Sequence[ProbeItem],
    on_note: Callable[[str], None],
) -> Any:
    """Train a tokenizer for the architecture, on words or morphemes."""
    documents = sample_evenly(stream_documents(texts, OverlapFilter(exclude)), config.tokenizer_documents)
    sample = (document.text for document in documents)
    if config.tokenizer == "word":
        return train_tokenizer(sample, config.architecture, size)

    key = [hash_files(texts), hash_excluded_texts(exclude), config.tokenizer_documents]
    return make_wordpiece_tokenizer(load_morpheme_tokens(key, sample, size.vocabulary, on_note), size.positions)


def set_cooccurrence_embeddings(
    start: Path,
    config: PretrainConfig,
    model: Any,
    tokenizer: Any,
    rows: PackedRows,
    workers: "Workers",
    on_note: Callable[[str], None],
) -> None:
    """Set the token embeddings to co-occurrence vectors with the length of random ones; counted once per folder."""
    import torch
    from safetensors.torch import save

    path = start / "cooccurrence.safetensors"
    if workers.is_first and not path.is_file():
        on_note("counting which tokens occur near each other")
        table = model.get_input_embeddings().weight
        tokens, width = table.shape
        vectors = compute_cooccurrence_vectors(rows.ids, tokenizer.all_special_ids, tokens, width, config.seed)
        scaled = torch.from_numpy(vectors) * table.detach().norm(dim=1).median()
        write_atomically(path, save({"embeddings": scaled}))
    workers.barrier()
    workers.copy_folder(start)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(read_tensors(path)["embeddings"])


def load_body(folder: Path, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """Load a model that was saved without a head, and its tokenizer."""
    from danseo.models.checkpoint import check_whole, load_tokenizer, load_weights
    from danseo.models.encoder.network import load_encoder_config, loading_error, without_pooler

    options = {"dtype": "float32", **without_pooler(load_encoder_config(str(folder), trust_remote_code))}
    try:
        model, report = load_weights("AutoModel", str(folder), trust_remote_code, **options)
        tokenizer = load_tokenizer(str(folder), trust_remote_code, use_fast=True)
    except Exception as error:  # the library raises many kinds for the same few causes
        raise loading_error(str(folder), error) from None
    check_whole(str(folder), model, report)
    return model, tokenizer


def load_masked(
    name: str,
    trust_remote_code: bool = False,
    *,
    needs_head: bool = False,
    on_note: Callable[[str], None] = lambda line: None,
) -> tuple[Any, Any]:
    """Load a masked language model and its tokenizer from a folder or the Hub."""
    from danseo.models.mlm.masked_model import check_masked_pair, load_masked_pair

    model, tokenizer, new = load_masked_pair(name, trust_remote_code)
    check_masked_pair(model, tokenizer, name)
    if tokenizer.pad_token_id is None:
        raise DanseoError(f"{name}: its tokenizer has no padding token; train a checkpoint whose tokenizer has one")
    if new:
        if needs_head:
            raise DanseoError(
                f"{name} has no masked-language-model head (no weights for {new[0]}); choose another checkpoint"
            )
        on_note(f"{name} has no masked-language-model head; a new one is learned")
    return model, tokenizer


def save_masked(folder: Path, model: Any, tokenizer: Any, state: dict[str, Any]) -> None:
    """Write a checkpoint folder for AutoModelForMaskedLM, completely or not at all, with its trainer state."""
    from safetensors import SafetensorError

    fresh = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        model.save_pretrained(fresh, safe_serialization=True)
        tokenizer.save_pretrained(fresh)
        if state:
            (fresh / "trainer_state.json").write_text(json.dumps(state, indent=2) + "\n", "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    except (OSError, SafetensorError) as error:
        advice = (
            suggest_remedy(error) if isinstance(error, OSError) else "free some space and run the same command again"
        )
        raise WorkFailed(f"{folder} cannot be written: {error}; {advice}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


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
