"""The scores of older NER reports, counted on model pieces instead of characters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.extras import require
from danseo.metrics.statistic import Counts
from danseo.metrics.tagging import Tagged, entity_counts, padded_rows, piece_tags, tag_macro_f1
from danseo.records import Prediction
from danseo.tasks.ner import TYPES

METRICS = {
    "ner/entity_f1@subword-1": "entity F1 over model pieces, the longest sentences of each batch left out",
    "ner/char_f1@subword-1": "mean F1 over 13 tags of model pieces, the same sentences left out",
}


def load_tokenizer(path: Path) -> Any:
    """A tokenizer.json, a WordPiece vocab.txt, or a folder that holds one of them."""
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


def subword_statistics(
    examples: Sequence[Any], predictions: Sequence[Prediction], tokenizer: Any, batch: int = 32
) -> dict[str, Counts]:
    """Both scores: a piece has the tag of its first character, special pieces are O.

    A sentence as long as its padded batch is not scored, as those reports did; the rows of such sentences are zero.
    """
    encodings = [tokenizer.encode(example.text) for example in examples]
    golds = [piece_tags(example.gold, e.offsets) for example, e in zip(examples, encodings, strict=True)]
    answers = [piece_tags(prediction.answer, e.offsets) for prediction, e in zip(predictions, encodings, strict=True)]
    kept = np.zeros((len(examples), 1))
    kept[padded_rows([len(row) for row in golds], batch)] = 1
    tagged = Tagged.of(golds, answers, TYPES)
    statistics = (entity_counts(tagged), tag_macro_f1(tagged, with_o=True))
    return {id_: Counts(s.table * kept, s.formula) for id_, s in zip(METRICS, statistics, strict=True)}
