"""The plan of a long training on rows of one length: a permutation per epoch, and evaluations where they are due."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from danseo.training.loop import Plan


@dataclass
class RowPlan(Plan):
    """Batches of random rows; eight bytes per row are all it keeps in memory."""

    steps: int = 0
    """Steps in all; 0 leaves it to the epochs."""
    marks: frozenset[int] = frozenset()
    """Steps after which to evaluate."""

    @property
    def total(self) -> int:
        return self.steps or super().total

    def batch(self, step: int) -> list[int]:
        """The rows of a step, counted from 0."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order: Any = np.random.default_rng([self.seed & (2**63 - 1), epoch]).permutation(len(self.lengths))
            self._epoch = epoch
        size = self.config.batch_size
        rows: list[int] = self._order[position * size : (position + 1) * size].tolist()
        return rows

    def is_evaluation(self, done: int) -> bool:
        return done in self.marks or done == self.total
