"""What the benches share: a limit of time, a table that is printed row by row, and the bound of the machine."""

import sys
import time
from collections.abc import Sequence

from danseo.display.table import Table


class Limit:
    """Seconds that something may take; it is asked before each further round."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self.end - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left == 0

    def share(self, part: float) -> "Limit":
        """A part of what is left."""
        return Limit(part * self.left)


class ResultTable:
    """A Markdown table on stdout whose rows are printed as they come."""

    def __init__(self, title: str, columns: Sequence[str]) -> None:
        self.columns, self.rows = tuple(columns), list[tuple[object, ...]]()
        print(f"\n**{title}**\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)

    def add(self, *row: object) -> None:
        self.rows.append(row)
        (cells,) = Table("", self.columns, [row]).cells()
        print(f"| {' | '.join(cells)} |", flush=True)


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)


def matrix_peak(seconds: float = 1.0, size: int = 1024) -> float:
    """The most float32 operations per second that a matrix product reaches here, in GFLOP/s."""
    import torch

    one, other, best = torch.randn(size, size), torch.randn(size, size), float("inf")
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    limit = Limit(seconds)
    while best == float("inf") or not limit.is_over:
        start = clock()
        one @ other
        best = min(best, clock() - start)
    return 2 * size**3 / best / 1e9
