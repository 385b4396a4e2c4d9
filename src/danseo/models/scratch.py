"""Small encoders from nothing: a tokenizer trained on given texts and random weights, as a checkpoint folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Size:
    """The measures of an encoder."""

    layers: int = 4
    hidden: int = 256
    heads: int = 4
    vocabulary: int = 16000
    positions: int = 512
    dropout: float = 0.1


def make_encoder(
    folder: Path, texts: Iterable[str], family: str = "bert", size: Size | None = None, seed: int = 0
) -> Path:
    """Train a tokenizer, draw random weights, and save both so that any loader finds them."""
    import torch

    from danseo.models.encoder.network import quiet_transformers

    transformers = quiet_transformers()
    size = size or Size()
    tokenizer = train_tokenizer(texts, family, size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(encoder_config(family, size, tokenizer))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder, safe_serialization=True)
    return folder


def train_tokenizer(texts: Iterable[str], family: str, size: Size) -> Any:
    """WordPiece as the Korean BERTs have it, or SentencePiece-style unigrams for XLM-R."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    if family != "xlm-roberta":
        tokenizer = _wordpiece({})
        trainer: Any = trainers.WordPieceTrainer(
            vocab_size=size.vocabulary, special_tokens=list(SPECIALS), show_progress=False, limit_alphabet=4000
        )
        tokenizer.train_from_iterator(texts, trainer)
        return wordpiece_tokenizer(set(tokenizer.get_vocab()) - set(SPECIALS), size.positions)
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size.vocabulary, special_tokens=list(SPECIALS), unk_token="[UNK]", show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _finished(tokenizer, size.positions)


def wordpiece_tokenizer(pieces: Iterable[str], positions: int) -> Any:
    """WordPiece with these pieces beside the special ones, numbered by name: a trainer would number them at random."""
    return _finished(_wordpiece({piece: k for k, piece in enumerate([*SPECIALS, *sorted(pieces)])}), positions)


def bert_normalizer() -> Any:
    """How a WordPiece reads text: as it stands, without control characters, Chinese ones apart."""
    from tokenizers import normalizers

    return normalizers.BertNormalizer(lowercase=False, strip_accents=False)


def _wordpiece(vocabulary: dict[str, int]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = bert_normalizer()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return tokenizer


def _finished(tokenizer: Any, positions: int) -> Any:
    """With the special pieces around an input, as a checkpoint has it."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=positions, **names)


def encoder_config(family: str, size: Size, tokenizer: Any) -> Any:
    """The configuration of a family: bert, roberta, electra, deberta-v2, xlm-roberta or modernbert."""
    from transformers import AutoConfig

    # RoBERTa counts positions from its padding id + 1, so that many more are needed for the same length.
    offset = 2 + tokenizer.pad_token_id if family in ("roberta", "xlm-roberta") else 0
    common = {
        "vocab_size": len(tokenizer),
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "intermediate_size": 4 * size.hidden,
        "max_position_embeddings": size.positions + offset,
        "pad_token_id": tokenizer.pad_token_id,
    }
    dropout = {"hidden_dropout_prob": size.dropout, "attention_probs_dropout_prob": size.dropout}
    own: dict[str, dict[str, Any]] = {
        "bert": dropout,
        "roberta": {**dropout, "type_vocab_size": 1},
        "xlm-roberta": {**dropout, "type_vocab_size": 1},
        "electra": {**dropout, "embedding_size": size.hidden},
        "deberta-v2": {**dropout, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0},
        "modernbert": {
            "embedding_dropout": size.dropout,
            "mlp_dropout": size.dropout,
            "attention_dropout": size.dropout,
            "classifier_dropout": size.dropout,
            "intermediate_size": 2 * size.hidden,
            "cls_token_id": tokenizer.cls_token_id,
            "sep_token_id": tokenizer.sep_token_id,
            "bos_token_id": tokenizer.cls_token_id,
            "eos_token_id": tokenizer.sep_token_id,
        },
    }
    if family not in own:
        raise DanseoError(f"no encoder family {family!r}; known: {', '.join(own)}")
    return AutoConfig.for_model(family, **{**common, **own[family]})
