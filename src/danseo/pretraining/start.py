"""What a training starts from: a model and tokenizer from scratch, or a checkpoint with room for longer inputs."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danseo.errors import DanseoError, WorkFailed
from danseo.files import remedy, write_atomically
from danseo.pretraining.config import ModelConfig, PretrainConfig
from danseo.pretraining.cooccurrence import cooccurrence_vectors
from danseo.pretraining.packing import PackedRows
from danseo.pretraining.text import spread, stream
from danseo.probing.items import ProbeItem
from danseo.probing.overlap import Guard, guard_identity
from danseo.runs.directory import read_tensors
from danseo.text.identity import text_identity

if TYPE_CHECKING:
    from danseo.models.scratch import Size
    from danseo.training.workers import Workers


def start_folder(
    folder: Path,
    config: PretrainConfig,
    texts: Sequence[Path],
    exclude: Sequence[ProbeItem],
    on_note: Callable[[str], None],
) -> None:
    """Write the model and tokenizer that training starts from, unless an earlier start did."""
    if folder.is_dir():
        return
    if config.checkpoint:
        from danseo.models.masked.extending import extend

        on_head = on_note if config.objective == "mlm" else _silent
        model, tokenizer = load_masked(config.checkpoint, config.trust_remote_code, on_note=on_head)
        model, done = extend(model, config.text.seq_len)
        on_note(done)
        tokenizer.model_max_length = config.text.seq_len  # what readers of the checkpoint go by
    else:
        model, tokenizer = from_scratch(config, texts, exclude, on_note)
    save_masked(folder, model.base_model if config.objective == "rtd" else model, tokenizer, {})


def _silent(line: str) -> None:
    """No word about a head that is not used."""


def from_scratch(
    config: PretrainConfig, texts: Sequence[Path], exclude: Sequence[ProbeItem], on_note: Callable[[str], None]
) -> tuple[Any, Any]:
    """Random weights and a tokenizer trained on the text."""
    import torch

    from danseo.models.encoder.network import quiet_transformers
    from danseo.models.scratch import Size, encoder_config

    chosen, seq_len = config.model, config.text.seq_len
    if chosen.hidden % chosen.heads:
        raise DanseoError(f"model.hidden = {chosen.hidden} cannot be divided by model.heads = {chosen.heads}")
    size = Size(chosen.layers, chosen.hidden, chosen.heads, chosen.vocabulary, seq_len, chosen.dropout)
    tokenizer = trained_tokenizer(chosen, size, texts, exclude, on_note)
    on_note(f"tokenizer of {len(tokenizer):,} pieces trained on the text")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        made = encoder_config(chosen.family, size, tokenizer)
        return quiet_transformers().AutoModelForMaskedLM.from_config(made), tokenizer


def trained_tokenizer(
    config: ModelConfig,
    size: "Size",
    texts: Sequence[Path],
    exclude: Sequence[ProbeItem],
    on_note: Callable[[str], None],
) -> Any:
    """A tokenizer for the family, with the sort of pieces that the settings name."""
    from danseo.models.scratch import train_tokenizer, wordpiece_tokenizer

    some = (document.text for document in spread(stream(texts, Guard(exclude)), config.tokenizer_documents))
    if config.pieces == "word":
        return train_tokenizer(some, config.family, size)
    from danseo.pretraining.pieces import kept_pieces

    key = [text_identity(texts), guard_identity(exclude), config.tokenizer_documents]
    return wordpiece_tokenizer(kept_pieces(key, some, size.vocabulary, on_note), size.positions)


def settle_embeddings(
    start: Path,
    config: PretrainConfig,
    model: Any,
    tokenizer: Any,
    rows: PackedRows,
    workers: "Workers",
    on_note: Callable[[str], None],
) -> None:
    """Give the pieces rows by the company they keep, of the length that random ones have; counted once per folder."""
    import torch
    from safetensors.torch import save

    path = start / "cooccurrence.safetensors"
    if workers.is_first and not path.is_file():
        on_note("counting which pieces stand near each other")
        table = model.get_input_embeddings().weight
        pieces, width = table.shape
        vectors = cooccurrence_vectors(rows.ids, tokenizer.all_special_ids, pieces, width, config.seed)
        scaled = torch.from_numpy(vectors) * table.detach().norm(dim=1).median()
        write_atomically(path, save({"embeddings": scaled}))
    workers.wait()
    workers.mirror(start)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(read_tensors(path)["embeddings"])


def load_body(folder: Path, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """The body of a model that was saved without a head, and its tokenizer."""
    from danseo.models.encoder.network import load_encoder_config, loading_error, quiet_transformers, without_pooler
    from danseo.models.weights import check_whole

    transformers = quiet_transformers()
    options = {
        "trust_remote_code": trust_remote_code,
        **without_pooler(load_encoder_config(str(folder), trust_remote_code)),
    }
    try:
        model, report = transformers.AutoModel.from_pretrained(
            folder, use_safetensors=True, dtype="float32", output_loading_info=True, **options
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=True)
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
    """A masked language model and its tokenizer from a folder or the Hub; whatever cannot be one is one line."""
    from danseo.models.masked.load import check_pair, load_pair

    model, tokenizer, new = load_pair(name, trust_remote_code)
    check_pair(model, tokenizer, name)
    if tokenizer.pad_token_id is None:
        raise DanseoError(f"{name}: its tokenizer has no padding piece, so danseo cannot train it")
    if new:
        if needs_head:
            raise DanseoError(f"{name} has no masked-language-model head (without weights: {new[0]})")
        on_note(f"{name} has no masked-language-model head; a new one is learned")
    return model, tokenizer


def save_masked(folder: Path, model: Any, tokenizer: Any, state: dict[str, Any]) -> None:
    """A checkpoint folder that AutoModelForMaskedLM loads, whole or not at all, with what a trainer knows of it."""
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
        advice = remedy(error) if isinstance(error, OSError) else "free some space and run the same command again"
        raise WorkFailed(f"{folder} cannot be written: {error}; {advice}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
