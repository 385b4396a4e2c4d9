"""danseo predict against transformers.pipeline("ner"): a tagger on the bundled model, sentences per second.

The same checkpoint and sentences of KLUE-NER's dev file (or of the sample), in turns: with all cores, as both come, by
the clock; and with one thread in seconds of the processor, so that a busy machine counts for nobody. What counts are
all cores. The pipeline takes the best label of every piece, legal or not, and the text as it is; wherever these labels
make a legal path and the text holds no conjoining jamo (danseo reads them as the letters that the vocabulary knows),
both must answer the same. The bound is what would be gained if products of matrices, as fast as torch makes them, were
all that takes time.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import eq
from pathlib import Path
from typing import Any

from measuring import Limit, ResultTable, matrix_peak, say
from using import DATA, Spans, spans_of_pieces

from danseo.data.find import write_sample
from danseo.data.input_reader import InputLine
from danseo.experiment import run_experiment
from danseo.export.base import ExportRequest
from danseo.export.registry import export_run
from danseo.inference.output import predict_records
from danseo.inference.predict import open_model
from danseo.models.base import LoadOptions
from danseo.models.encoder.onnx_model import threads_here
from danseo.models.registry import configure_run
from danseo.tasks import TASKS
from danseo.text.normalization import normalize_text

LEAST_GAIN = 3.0
LEAST_SHARE = 0.75  # of the bound, where a processor's products leave no room for that gain
LEAST_EQUAL = 99.0  # per cent of the sentences, else a faster way does not count
THEIRS, OURS = "transformers.pipeline", "danseo predict, fp32"
Way = Callable[[], Any]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=70)
    parser.add_argument("--sentences", type=int, default=300)
    return parser.parse_args()


def make_run(folder: Path) -> Path:
    """A tagger on mini, fine-tuned on the sample as the demo does."""
    settings = {"epochs": 4, "batch_size": 16, "precision": "fp32", "evals_per_epoch": 1}
    config = configure_run("ner", "mini", "small", settings)
    return run_experiment(config, folder / "sample", folder / "runs", quiet=True).path


def sentences(folder: Path, count: int) -> list[InputLine]:
    """Real ones where they are."""
    task = TASKS["ner"]
    real = DATA / task.folder / task.file("dev")
    examples = task.read(real if real.is_file() else folder / "sample" / task.folder / task.file("dev"))
    return [InputLine(number, example, {}) for number, example in enumerate(examples[:count], 1)]


def predicting(path: Path, lines: Sequence[InputLine], loading: LoadOptions) -> Way:
    opened = open_model(path, loading)
    return lambda: predict_records(opened.model, opened.task, lines)


def bound_seconds(run: Path, lines: Sequence[InputLine]) -> float:
    """Seconds that the products of the network's linear layers alone take, at the best speed of a product here."""
    from torch.nn import Linear

    model: Any = open_model(run, LoadOptions("cpu", "fp32")).model
    pieces = sum(map(len, model.task_head.encode([line.example for line in lines], with_gold=False)))
    weights = sum(layer.weight.numel() for layer in model.network.modules() if isinstance(layer, Linear))
    return 2 * weights * pieces / 1e9 / matrix_peak()


def piping(run: Path, lines: Sequence[InputLine], batch: int) -> Way:
    from transformers import pipeline

    made = pipeline("ner", model=str(run / "model"), device="cpu", ignore_labels=[])  # type: ignore[call-overload]
    texts = [line.example.text for line in lines]
    return lambda: made(texts, batch_size=batch)


def is_legal(pieces: Sequence[dict[str, Any]]) -> bool:
    """Whether every label that goes on has one of its type before it."""
    labels = ["O", *(piece["entity"] for piece in pieces)]
    return all(label[:2] != "I-" or before[2:] == label[2:] for before, label in pairwise(labels))


def agreement(lines: Sequence[InputLine], piped: Sequence[Any], records: Sequence[Any]) -> tuple[int, int]:
    """In how many sentences the labels of the pipeline are legal and of the same text, and the answers the same."""
    alike = same = 0
    for line, pieces, ours in zip(lines, piped, spans_in(records), strict=True):
        text = line.example.text
        if is_legal(pieces) and normalize_text(text).text == text:
            alike, same = alike + 1, same + (spans_of_pieces(text, pieces) == ours)
    return alike, same


@dataclass(frozen=True)
class Measured:
    """The same sentences by every way, some rounds in turns."""

    seconds: dict[str, list[float]]
    answers: dict[str, list[Any]]
    bound: float


def measured(run: Path, exported: Path, lines: Sequence[InputLine], threads: int, limit: Limit) -> Measured:
    import torch

    os.environ["OMP_NUM_THREADS"] = str(threads)
    ways = {
        THEIRS: piping(run, lines, 1),
        "transformers.pipeline, 32 at a time": piping(run, lines, 32),
        OURS: predicting(run, lines, LoadOptions("cpu", "fp32")),
        "danseo predict, int8": predicting(run, lines, LoadOptions("cpu", "int8")),
        "danseo predict, ONNX": predicting(exported, lines, LoadOptions()),
    }
    torch.set_num_threads(threads)
    answers = {name: way() for name, way in ways.items()}  # the first time counts for nobody
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    while not seconds[OURS] or not (limit.is_over or len(seconds[OURS]) == 5):
        for name, way in ways.items():
            start = clock()
            way()
            seconds[name].append(clock() - start)
    return Measured(seconds, answers, statistics.median(seconds[THEIRS]) / bound_seconds(run, lines))


def main() -> int:
    options = parsed()
    limit, failed = Limit(options.seconds), False
    with tempfile.TemporaryDirectory() as workdir:
        folder = Path(workdir)
        write_sample(folder / "sample")
        say("fine-tuning a tagger on mini for a moment")
        run, lines, exported = make_run(folder), sentences(folder, options.sentences), folder / "onnx"
        export_run("onnx", ExportRequest(str(run), str(exported)))
        cores = threads_here()
        for threads in sorted({1, cores}):
            found = measured(run, exported, lines, threads, limit.share(0.5 if threads < cores else 1.0))
            failed = not shown(lines, found, threads)
    return int(failed)


def shown(lines: Sequence[InputLine], found: Measured, threads: int) -> bool:
    """Print the table and whether the expected gain was reached with equal answers."""
    title = f"{len(lines)} sentences, a tagger on mini, threads: {threads}"
    table = ResultTable(title, ("way", "sentences/s", "× pipeline", "as fp32 %"))
    base, usual, gains = found.seconds[THEIRS], spans_in(found.answers[OURS]), dict[str, float]()
    for name, seconds in found.seconds.items():
        gain = statistics.median(one / other for one, other in zip(base, seconds, strict=True))
        spans = spans_in(found.answers[name]) if name.startswith("danseo") else None
        as_usual = spans and 100 * sum(map(eq, spans, usual)) / len(lines)
        table.add(name, round(len(lines) / statistics.median(seconds), 1), round(gain, 2), as_usual)
        if as_usual and as_usual >= LEAST_EQUAL:
            gains[name] = gain
    best, target = max(gains, key=lambda name: gains[name]), min(LEAST_GAIN, LEAST_SHARE * found.bound)
    alike, same = agreement(lines, found.answers[THEIRS], found.answers[best])
    print(f"\n{best} is {gains[best]:.1f} × the pipeline (target: {target:.1f}; bound of fp32: {found.bound:.1f})")
    print(f"of {alike} sentences that the pipeline reads alike and gives valid tags, {same} have the same answer")
    return gains[best] >= target and same == alike


def spans_in(records: Sequence[dict[str, Any]]) -> list[Spans]:
    return [[(span["start"], span["end"], span["type"]) for span in record["spans"]] for record in records]


if __name__ == "__main__":
    sys.exit(main())
