"""danseo predict against transformers.pipeline("ner"): a tagger on the encoder in the box, sentences per second.

The same checkpoint and sentences of KLUE-NER's dev file (or of the sample), one thread, in turns, in seconds of the
processor, so that a busy machine counts for nobody. The pipeline takes the best label of every piece, legal or not;
wherever these labels make a legal path, both should answer the same. In torch's fp32 three quarters of predict's time
are matrix products as fast as its library makes them here; those of ONNX Runtime, whose weights lie ready, are faster.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import eq
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from measuring import Limit, ResultTable, say
from using import DATA, Spans, spans_of_pieces, timed

from danseo.data.lines import Line
from danseo.experiment import run_experiment
from danseo.exports.format import Request
from danseo.exports.table import export
from danseo.models.protocol import Loading
from danseo.predict.opening import open_model
from danseo.predict.records import answered
from danseo.recipes import configured
from danseo.sample import write_sample
from danseo.tasks import TASKS

LEAST_GAIN = 3.0
LEAST_EQUAL = 99.0  # per cent of the sentences, else a faster way does not count
THEIRS, OURS = "transformers.pipeline", "danseo predict, fp32"
Way = Callable[[], tuple[float, list[Any]]]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--sentences", type=int, default=300)
    return parser.parse_args()


def make_run(folder: Path) -> Path:
    """A tagger on mini, fine-tuned on the sample as the demo does."""
    settings = {"epochs": 4, "batch_size": 16, "precision": "fp32", "threads": 1, "evaluations": 1}
    config = configured("ner", "mini", "small", settings)
    return run_experiment(config, folder / "sample", folder / "runs", quiet=True).path


def sentences(folder: Path, count: int) -> list[Line]:
    """Real ones where they are."""
    task = TASKS["ner"]
    real = DATA / task.folder / task.file("dev")
    examples = task.read(real if real.is_file() else folder / "sample" / task.folder / task.file("dev"))
    return [Line(number, example, {}) for number, example in enumerate(examples[:count], 1)]


def predicting(path: Path, lines: Sequence[Line], loading: Loading) -> Way:
    opened = open_model(path, loading)
    return lambda: timed(lambda: answered(opened.model, opened.task, lines), 1)


def piping(run: Path, lines: Sequence[Line], batch: int) -> Way:
    from transformers import pipeline

    made = pipeline("ner", model=str(run / "model"), device="cpu", ignore_labels=[])  # type: ignore[call-overload]
    texts = [line.example.text for line in lines]
    return lambda: timed(lambda: made(texts, batch_size=batch), 1)


def is_legal(pieces: Sequence[dict[str, Any]]) -> bool:
    """Whether every label that goes on has one of its type before it."""
    labels = ["O", *(piece["entity"] for piece in pieces)]
    return all(label[:2] != "I-" or before[2:] == label[2:] for before, label in pairwise(labels))


def agreement(lines: Sequence[Line], piped: Sequence[Any], records: Sequence[Any]) -> tuple[int, int]:
    """In how many sentences the pipeline's labels are legal, and in how many of these both answer the same."""
    legal = same = 0
    for line, pieces, ours in zip(lines, piped, spans_in(records), strict=True):
        if is_legal(pieces):
            legal, same = legal + 1, same + (spans_of_pieces(line.example.text, pieces) == ours)
    return legal, same


def main() -> int:
    options = parsed()
    limit = Limit(options.seconds)
    with tempfile.TemporaryDirectory() as workdir:
        folder = Path(workdir)
        write_sample(folder / "sample")
        say("fine-tuning a tagger on mini for a moment")
        run, lines, exported = make_run(folder), sentences(folder, options.sentences), folder / "onnx"
        export("onnx", Request(str(run), str(exported)))
        ways = {
            THEIRS: piping(run, lines, 1),
            "transformers.pipeline, 32 at a time": piping(run, lines, 32),
            OURS: predicting(run, lines, Loading("cpu", "fp32")),
            "danseo predict, int8": predicting(run, lines, Loading("cpu", "int8")),
            "danseo predict, ONNX": predicting(exported, lines, Loading()),
        }
        for way in ways.values():
            way()  # the first time counts for nobody
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        answers: dict[str, list[Any]] = {}
        while not answers or not (limit.is_over or len(seconds[OURS]) == 5):
            for name, way in ways.items():
                spent, answers[name] = way()
                seconds[name].append(spent)
    return shown(lines, seconds, answers)


def shown(lines: Sequence[Line], seconds: dict[str, list[float]], answers: dict[str, list[Any]]) -> int:
    table = ResultTable(
        f"{len(lines)} sentences, a tagger on mini, one thread", ("way", "sentences/s", "× pipeline", "as fp32 %")
    )
    base, usual, gains = seconds[THEIRS], spans_in(answers[OURS]), dict[str, float]()
    equal: list[str] = []
    for name, found in seconds.items():
        gains[name] = statistics.median(one / other for one, other in zip(base, found, strict=True))
        spans = spans_in(answers[name]) if name.startswith("danseo") else None
        as_usual = spans and 100 * sum(map(eq, spans, usual)) / len(lines)
        table.add(name, round(len(lines) / statistics.median(found), 1), round(gains[name], 2), as_usual)
        if as_usual and as_usual >= LEAST_EQUAL:
            equal.append(name)
    legal, same = agreement(lines, answers[THEIRS], answers[OURS])
    best = max(equal, key=lambda name: gains[name])
    print(f"\n{best} is {gains[best]:.1f} × the pipeline (due: {LEAST_GAIN})")
    print(
        f"in {same} of the {legal} sentences where the pipeline's labels are legal, it answers as danseo does in fp32"
    )
    return 0 if gains[best] >= LEAST_GAIN else 1


def spans_in(records: Sequence[dict[str, Any]]) -> list[Spans]:
    return [[(span["start"], span["end"], span["type"]) for span in record["spans"]] for record in records]


if __name__ == "__main__":
    sys.exit(main())
