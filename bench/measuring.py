"""What the benches share: a limit of time, a table printed row by row, failures, and the bound of the machine."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

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


@contextmanager
def one_line(part: str, failures: list[str]) -> Iterator[None]:
    """Print a failing part as one line, and go on with the next."""
    try:
        yield
    except Exception as error:
        failures.append(part)
        say(f"bench: {part} failed: {shorten_error(error)}")


def shorten_error(error: BaseException) -> str:
    """Return an error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def matrix_peak(
    seconds: float = 1.0, shape: tuple[int, int, int] = (1024, 1024, 1024), precision: str = "fp32"
) -> float:
    """Return the most operations per second that a matrix product of this shape and precision reaches, in GFLOP/s."""
    import torch

    rows, inner, columns = shape
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    one, other, best = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype), float("inf")
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    multiply: Callable[[], Any] = partial(torch.matmul, one, other)
    if precision == "int8":
        from danseo.training.precision import Int8Linear

        multiply = partial(Int8Linear(torch.nn.Linear(inner, columns)), one)
    limit = Limit(seconds)
    while best == float("inf") or not limit.is_over:
        start = clock()
        multiply()
        best = min(best, clock() - start)
    return 2 * rows * inner * columns / best / 1e9


def texts_of(example: Any) -> Iterator[str]:
    """Yield the texts of an example, of a dialogue only the latest turns: the earlier ones are in other examples."""
    for name in ("text", "pair", "question"):
        if text := getattr(example, name, None):
            yield text
    yield from getattr(example, "turns", ())[-2:]
