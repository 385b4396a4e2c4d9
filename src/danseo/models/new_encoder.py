"""Create small encoders from scratch: a tokenizer trained on given texts and random weights."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_MAX_LETTERS = 4000  # of a WordPiece vocabulary


@dataclass(frozen=True)
class EncoderSize:
    """The size of an encoder."""

    layers: int = 4
    hidden: int = 256
    heads: int = 4
    vocabulary: int = 16000
    positions: int = 512
    dropout: float = 0.1


def make_encoder(
    folder: Path, texts: Iterable[str], architecture: str = "bert", size: EncoderSize | None = None, seed: int = 0
) -> Path:
    """Train a tokenizer, initialize random weights, and save both as a checkpoint folder."""
    import torch

    from danseo.models.checkpoint import quiet_transformers

    transformers = quiet_transformers()
    size = size or EncoderSize()
    tokenizer = train_tokenizer(texts, architecture, size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(make_encoder_config(architecture, size, tokenizer))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder, safe_serialization=True)
    return folder


def train_tokenizer(texts: Iterable[str], architecture: str, size: EncoderSize) -> Any:
    """Train WordPiece as in Korean BERTs, or unigrams for XLM-R; the same texts give the same tokenizer."""
    if architecture == "xlm-roberta":
        return _wrap_tokenizer(_train_unigram(texts, size.vocabulary), size.positions)
    return make_wordpiece_tokenizer(_train_wordpiece(list(texts), size.vocabulary), size.positions)


def _train_wordpiece(texts: list[str], vocabulary: int) -> set[str]:
    """Return the tokens of a WordPiece vocabulary without the special ones.

    The trainer numbers letters inside words in random order, and merges equally frequent pairs by these numbers. So a
    first training without merges finds these letters, and the second one gets them in order, as if they were special.
    """
    letters = _run_wordpiece_trainer(texts, 0)
    counts = Counter(chain.from_iterable(texts))
    known = sorted((token for token in letters if len(token) == 1), key=lambda letter: (-counts[letter], letter))
    alphabet = known[:_MAX_LETTERS]
    inside = sorted(f"##{letter}" for letter in alphabet if f"##{letter}" in letters)
    options = {"initial_alphabet": alphabet, "limit_alphabet": len(alphabet)}
    return _run_wordpiece_trainer(texts, vocabulary, inside, **options)


def _run_wordpiece_trainer(texts: list[str], size: int, first_tokens: Sequence[str] = (), **options: Any) -> set[str]:
    from tokenizers import trainers

    tokenizer, special = _make_wordpiece({}), [*SPECIALS, *first_tokens]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False, **options)
    tokenizer.train_from_iterator(texts, trainer)
    return set(tokenizer.get_vocab()) - set(SPECIALS)


def _train_unigram(texts: Iterable[str], vocabulary: int) -> Any:
    """Return a tokenizer of unigrams in the way of SentencePiece."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIALS), unk_token="[UNK]", show_progress=False
    )
    try:
        tokenizer.train_from_iterator(texts, trainer)
    except Exception as error:  # the library raises a plain Exception
        if "not large enough" not in str(error):
            raise
        raise DanseoError(f"vocab_size = {vocabulary} is too small for the letters of the text; raise it") from None
    tokenizer.model = models.Unigram(_order_tokens(tokenizer), SPECIALS.index("[UNK]"))
    return tokenizer


def _order_tokens(tokenizer: Any) -> list[tuple[str, float]]:
    """Return unigrams by score; the rarest letters, scored in random order by the trainer, share the lowest score."""
    tokens: list[tuple[str, float]] = json.loads(tokenizer.to_str())["model"]["vocab"][len(SPECIALS) :]
    lowest = round(min(score for _, score in tokens), 4)
    rare = lowest + 0.0001 * (1 + sum(len(token) == 1 for token, _ in tokens))  # the trainer counts up by 0.0001
    scored = [(token, lowest if len(token) == 1 and score < rare else round(score, 4)) for token, score in tokens]
    return [*((token, 0.0) for token in SPECIALS), *sorted(scored, key=lambda pair: (-pair[1], pair[0]))]


def make_wordpiece_tokenizer(tokens: Iterable[str], positions: int) -> Any:
    """Return WordPiece with these tokens and the special ones, numbered by name, so that ids are reproducible."""
    vocabulary = {token: k for k, token in enumerate([*SPECIALS, *sorted(tokens)])}
    return _wrap_tokenizer(_make_wordpiece(vocabulary), positions)


def make_bert_normalizer() -> Any:
    """Return the normalizer of WordPiece: removes control characters and separates Chinese characters."""
    from tokenizers import normalizers

    return normalizers.BertNormalizer(lowercase=False, strip_accents=False)


def _make_wordpiece(vocabulary: dict[str, int]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = make_bert_normalizer()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return tokenizer


def _wrap_tokenizer(tokenizer: Any, positions: int) -> Any:
    """Return the tokenizer of transformers, with special tokens around inputs."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=positions, **names)


def make_encoder_config(architecture: str, size: EncoderSize, tokenizer: Any) -> Any:
    """Return the configuration of an architecture: bert, roberta, electra, deberta-v2, xlm-roberta, modernbert."""
    from transformers import AutoConfig

    # RoBERTa counts positions from its padding id + 1, so that many more are needed for the same length.
    offset = 2 + tokenizer.pad_token_id if architecture in ("roberta", "xlm-roberta") else 0
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
    if architecture not in own:
        raise DanseoError(f"unknown architecture: {architecture!r}; choose one of {', '.join(own)}")
    return AutoConfig.for_model(architecture, **{**common, **own[architecture]})
