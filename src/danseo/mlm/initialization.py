"""Make the model and tokenizer that a training starts from: from scratch, or from an extended checkpoint."""

import json
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from danseo.config.mlm import ModelSettings, PretrainConfig
from danseo.errors import DanseoError, WorkFailed
from danseo.files import suggest_remedy, write_atomically
from danseo.mlm.corpus import sample_evenly, stream_documents
from danseo.mlm.overlap import OverlapFilter, hash_excluded_texts
from danseo.mlm.packing import PackedRows
from danseo.mlm.probing.items import ProbeItem
from danseo.runs.store import read_tensors
from danseo.text.documents import hash_files

if TYPE_CHECKING:
    from danseo.models.new_encoder import EncoderSize
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
    from danseo.models.new_encoder import EncoderSize, make_encoder_config

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
    size: "EncoderSize",
    texts: Sequence[Path],
    exclude: Sequence[ProbeItem],
    on_note: Callable[[str], None],
) -> Any:
    """Train a tokenizer for the architecture, on words or morphemes."""
    from danseo.models.new_encoder import make_wordpiece_tokenizer, train_tokenizer

    documents = sample_evenly(stream_documents(texts, OverlapFilter(exclude)), config.tokenizer_documents)
    sample = (document.text for document in documents)
    if config.tokenizer == "word":
        return train_tokenizer(sample, config.architecture, size)
    from danseo.mlm.morpheme_vocabulary import load_morpheme_tokens

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
