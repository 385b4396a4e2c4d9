"""From a row to a row with gaps, as the loop asks for it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from danseo.pretraining.config import CorefConfig, MaskConfig
from danseo.pretraining.masking import (
    BEGINS,
    KEPT,
    SPECIAL,
    TARGET,
    Drawn,
    Masked,
    Vocabulary,
    chosen,
    mask_share,
    mask_text,
    replaced,
    step_generator,
)

EVALUATED_SHARE = 0.15  # whatever training masks, so that held-out losses can be compared
_EVALUATION = 0xDA25E0


class TextMasker:
    """Ordinary masking; the share follows the lengths of the batch where a range is set."""

    def __init__(self, vocabulary: Vocabulary, config: MaskConfig, seq_len: int, seed: int) -> None:
        self.vocabulary, self.config, self.seq_len, self.seed = vocabulary, config, seq_len, seed
        self.share = config.probability

    def read_batch(self, batch: Sequence[Any]) -> None:
        """Settle the share for a step; only real pieces count, never padding."""
        parts = sum(max(1, len(record.fields["parts"])) for record in batch)
        mean = sum(map(len, batch)) / max(1, parts)
        self.share = mask_share(self.config.probability, self.config.maximum, mean, self.seq_len)

    def __call__(self, record: Any, step: int | None) -> Masked:
        share, whole, rng = self._at(record, step)
        return mask_text(record.ids, record.fields["marks"], share, self.vocabulary, rng, whole=whole)

    def _at(self, record: Any, step: int | None) -> tuple[float, bool, np.random.Generator]:
        """The share, whether units are masked as a whole, and the generator, which are fixed for evaluations."""
        if step is None:
            return EVALUATED_SHARE, False, step_generator(_EVALUATION, 0, record.example)
        return self.share, self.config.whole_words != "none", step_generator(self.seed, step, record.example)


class ReplacingMasker(TextMasker):
    """Gaps for replaced-token detection: every chosen piece is masked, and comes with a draw for what fills it."""

    def __call__(self, record: Any, step: int | None) -> Drawn:
        share, whole, rng = self._at(record, step)
        positions = chosen(record.fields["marks"], share, rng, whole=whole)
        ids = record.ids.copy()
        ids[positions] = self.vocabulary.mask
        weights = np.full(len(positions), 1 / share, dtype=np.float32)
        return Drawn(ids, positions, record.ids[positions], weights, rng.random(len(positions)))

    def is_text(self, record: Any) -> Any:
        """Which pieces are text: only those are judged."""
        return record.fields["marks"] != SPECIAL


class MentionMasker:
    """All pieces of a mention masked, the other mentions kept in sight, and ordinary gaps beside it where wanted."""

    def __init__(self, vocabulary: Vocabulary, config: CorefConfig) -> None:
        self.vocabulary, self.config = vocabulary, config

    def __call__(self, record: Any, step: int | None) -> Masked:
        marks, objective = record.fields["marks"], "target" if step is None else self.config.objective
        target = np.flatnonzero(marks == TARGET)
        ids = record.ids.copy()
        ids[target] = self.vocabulary.mask  # never left visible, never another piece
        if objective == "target":
            return Masked(ids, target, record.ids[target], np.ones(len(target), dtype=np.float32))
        rng = step_generator(self.config.seed, step or 0, record.example)
        protected = (TARGET, KEPT, SPECIAL) if objective == "both" else (TARGET, SPECIAL)
        usable = np.where(np.isin(marks, protected), SPECIAL, BEGINS)
        others = chosen(usable, self.config.mlm_probability, rng, whole=False)
        ids = replaced(ids, others, self.vocabulary, rng)
        if objective == "mlm":
            return Masked(ids, others, record.ids[others], np.ones(len(others), dtype=np.float32))
        positions = np.concatenate([target, others])
        weights = np.repeat([1.0, self.config.mlm_weight], [len(target), len(others)]).astype(np.float32)
        return Masked(ids, positions, record.ids[positions], weights)
