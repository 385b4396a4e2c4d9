"""The NER scores of older reports, counted on tokens instead of characters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.extras import require
from danseo.metrics.statistic import Counts
from danseo.metrics.tagging import Tagged, entity_counts, find_padded_rows, get_token_tags, tag_macro_f1
from danseo.records import Prediction
from danseo.tasks.klue.ner import TYPES

METRICS = {
    "ner/entity_f1@subword-1": "entity F1 over tokens, the longest sentences of each batch left out",
    "ner/char_f1@subword-1": "mean F1 over 13 tags of tokens, the same sentences left out",
}


def load_tokenizer(path: Path) -> Any:
    """Load a tokenizer.json, a WordPiece vocab.txt, or a folder that holds one of them."""
    require("tokenizers")
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    files = [path / "tokenizer.json", path / "vocab.txt"] if path.is_dir() else [path]
    for file in files:
        if file.is_file():
            try:
                if file.suffix == ".json":
                    return Tokenizer.from_file(str(file))
                return BertWordPieceTokenizer(str(file), lowercase=False, strip_accents=False)
            except Exception as error:  # the library raises bare Exceptions
                raise DanseoError(f"{file} is not a readable tokenizer: {error}") from None
    raise DanseoError(f"{path} holds no tokenizer.json or vocab.txt; name one with --tokenizer")


def measure_tokens(
    examples: Sequence[Any], predictions: Sequence[Prediction], tokenizer: Any, batch: int = 32
) -> dict[str, Counts]:
    """Return both scores: a token has the tag of its first character, special tokens are O.

    A sentence as long as its padded batch is not scored, as in those reports; the rows of such sentences are zero.
    """
    encodings = [tokenizer.encode(example.text) for example in examples]
    golds = [get_token_tags(example.gold, e.offsets) for example, e in zip(examples, encodings, strict=True)]
    answers = [
        get_token_tags(prediction.answer, e.offsets) for prediction, e in zip(predictions, encodings, strict=True)
    ]
    kept = np.zeros((len(examples), 1))
    kept[find_padded_rows([len(row) for row in golds], batch)] = 1
    tagged = Tagged.encode(golds, answers, TYPES)
    statistics = (entity_counts(tagged), tag_macro_f1(tagged, with_o=True))
    return {id_: Counts(s.table * kept, s.formula) for id_, s in zip(METRICS, statistics, strict=True)}
