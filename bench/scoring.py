"""How fast danseo scores, beside the usual tools, on the real KLUE dev files.

Timings on a busy machine are noisy, so the two sides of a comparison always take turns and medians are compared; they
take as many turns as there is time for.
"""

import argparse
import functools
import random
import re
import string
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from measuring import Limit, say
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2

from danseo.metrics import question_answering as answering
from danseo.metrics import tagging
from danseo.records import Prediction
from danseo.scoring.resampling import bootstrap, number_clusters
from danseo.scoring.score import baseline, score
from danseo.tasks import TASKS
from danseo.tasks.klue.ner import TYPES
from danseo.tasktypes.base import Task

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "klue"
PARTICLES = ["은", "는", "이", "가", "을", "를", "의", "에", "에서", "으로", "까지", "이다"]


@dataclass(frozen=True)
class Line:
    """One line of the table: what was measured and whether the target was met."""

    name: str
    measured: str
    target: str
    is_met: bool

    def __str__(self) -> str:
        return f"{'PASS' if self.is_met else 'FAIL'}  {self.name:<49}  {self.measured:<44}  {self.target}"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="the folder with the KLUE dev files")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    data, limit = options.data, Limit(options.seconds)
    paths = {name: data / task.folder / task.file("dev") for name, task in TASKS.items()}
    if missing := [path for path in paths.values() if not path.is_file()]:
        print(f"{missing[0]} is missing; name a folder with all KLUE dev files: --data DIR", file=sys.stderr)
        return 2
    examples, reading = read_all(paths)
    lines = [
        *entity_lines(examples["ner"], limit.share(0.2)),
        rouge_line(examples["mrc"], limit.share(0.2)),
        *start_lines(limit.share(0.5)),
        *all_tasks(examples, reading, limit),
    ]
    return 0 if all(line.is_met for line in lines) else 1


def show(line: Line) -> Line:
    """Print a line as soon as it is known."""
    print(line, flush=True)
    return line


def in_turns(functions: Sequence[Callable[[], Any]], rounds: int, limit: Limit) -> list[float]:
    """The median seconds of each function; they run A, B, A, B, so that a slow spell hits all of them."""
    seconds: list[list[float]] = [[] for _ in functions]
    for number in range(rounds):
        if number and limit.is_over:
            break
        for function, taken in zip(functions, seconds, strict=True):
            start = perf_counter()
            function()
            taken.append(perf_counter() - start)
    return [median(taken) for taken in seconds]


def read_all(paths: dict[str, Path]) -> tuple[dict[str, list[Any]], float]:
    start = perf_counter()
    examples = {name: TASKS[name].read(path) for name, path in paths.items()}
    return examples, perf_counter() - start


def entity_lines(examples: Sequence[Any], limit: Limit) -> list[Line]:
    """Entity F1 and its bootstrap against seqeval, all three from the same lists of tags."""
    rng = random.Random(1)
    golds = [list(example.gold) for example in examples]
    answers = [corrupt_tags(tags, rng) for tags in golds]

    def with_seqeval() -> float:
        return 100 * float(f1_score(golds, answers, average="macro", mode="strict", scheme=IOB2))

    def with_danseo() -> float:
        return tagging.entity_counts(tagging.Tagged.encode(golds, answers, TYPES)).value()

    def with_intervals() -> Any:
        counts = tagging.entity_counts(tagging.Tagged.encode(golds, answers, TYPES))
        return bootstrap({"f1": counts}, number_clusters(None, len(golds)), rounds=1000, rng=np.random.default_rng(0))

    expected, value = with_seqeval(), with_danseo()
    other, own, resampling = in_turns([with_seqeval, with_danseo, with_intervals], 7, limit)
    what = f"{value:.4f}, {other / own:.0f}x ({own * 1000:.1f} ms, {other * 1000:.0f} ms)"
    lengths = f"{resampling / other:.2f}x ({resampling * 1000:.0f} ms)"
    is_met = abs(expected - value) <= 1e-9 and other >= 40 * own
    return [
        show(Line(f"NER entity F1, {len(golds)} sentences: seqeval", what, "equal to 1e-9, at least 40x", is_met)),
        show(Line("NER entity F1, 1,000 resamples: one seqeval call", lengths, "under 3x", resampling < 3 * other)),
    ]


def corrupt_tags(tags: Sequence[str], rng: random.Random) -> list[str]:
    """Tags as a fair tagger gives them: borders and types slip, entities are missed, invented or begin with I-."""
    answer = ["O"] * len(tags)
    for start, end, name in tagging.list_entities(tags):
        slip = rng.random()
        if slip < 0.05:
            continue
        if slip < 0.12:
            start, end = max(0, start - rng.randint(0, 1)), min(len(tags), end + rng.randint(0, 2))
        if slip > 0.94:
            name = rng.choice(TYPES)
        begin = "I" if 0.12 < slip < 0.125 else "B"
        answer[start:end] = [f"{begin}-{name}", *[f"I-{name}"] * (end - start - 1)]
    if rng.random() < 0.15:
        answer[rng.randrange(len(tags))] = f"B-{rng.choice(TYPES)}"
    return answer


def rouge_line(examples: Sequence[Any], limit: Limit) -> Line:
    """ROUGE-W against difflib; both normalize every text anew."""
    rng = random.Random(2)
    golds = [example.gold for example in examples]
    answers = [corrupt_text(example, rng) for example in examples]

    def with_danseo() -> float:
        answering.normalize.cache_clear()
        return answering.rouge_w(golds, answers).value()

    def with_difflib() -> float:
        best = [
            max(difflib_overlap(answer, text) for text in gold or ("",))
            for gold, answer in zip(golds, answers, strict=True)
        ]
        return 100 * sum(best) / len(best)

    expected, value = with_difflib(), with_danseo()
    other, own = in_turns([with_difflib, with_danseo], 25, limit)
    what = f"{value:.4f}, {other / own:.1f}x ({own * 1000:.1f} ms, {other * 1000:.0f} ms)"
    is_met = abs(expected - value) <= 1e-9 and other >= 4 * own
    return show(Line(f"MRC ROUGE-W, {len(golds)} questions: difflib", what, "equal to 1e-9, at least 4x", is_met))


def difflib_overlap(answer: str, gold: str) -> float:
    """The plain way: normalize both, let difflib find the common stretch, and take its F1."""
    a, b = plainly_normalised(answer), plainly_normalised(gold)
    if not a or not b:
        return float(a == b)
    size = SequenceMatcher(None, a, b).find_longest_match(0, len(a), 0, len(b)).size
    return 2 * size / (len(a) + len(b))


def plainly_normalised(text: str) -> str:
    kept = re.sub("['\"《》<>〈〉]\\(\\)‘’", "", text).lower()
    return " ".join("".join(character for character in kept if character not in string.punctuation).split())


def corrupt_text(example: Any, rng: random.Random) -> str:
    """An answer as a fair reader gives it: right, with a particle, cut, another stretch of the passage, or none."""
    gold = str(rng.choice(example.gold)) if example.gold else ""
    start = rng.randrange(max(1, len(example.text) - 40))
    elsewhere = str(example.text[start : start + rng.randint(2, 40)])
    slip = rng.random()
    if not gold:
        return elsewhere if slip < 0.4 else ""
    if slip < 0.45:
        return gold
    if slip < 0.6:
        return gold + rng.choice(PARTICLES)
    if slip < 0.75:
        return gold[: max(1, len(gold) // 2)]
    return elsewhere if slip < 0.92 else ""


def all_tasks(examples: dict[str, list[Any]], reading: float, limit: Limit) -> list[Line]:
    """Every metric of all eight tasks, without intervals and, for information, with them."""
    answered = {name: predictions_of(TASKS[name], rows) for name, rows in examples.items()}

    def score_all(rounds: int) -> None:
        for name, rows in examples.items():
            score(TASKS[name], rows, answered[name], rounds=rounds)

    (plain,) = in_turns([lambda: score_all(0)], 3, limit.share(0.3))
    rows = sum(map(len, examples.values()))
    what = f"{plain:.2f} s for {rows} examples (reading: {reading:.2f} s)"
    line = show(Line("eight dev files, every metric, no intervals", what, "under 3 s", plain < 3))
    seconds: dict[str, float] = {}
    for name in examples:
        if limit.is_over:
            say(f"no time is left for the resamples of {name}; --seconds gives more")
            break
        resampled = functools.partial(score, TASKS[name], examples[name], answered[name])
        (seconds[name],) = in_turns([resampled], 1, limit)
    times = ", ".join(f"{name} {taken:.2f}" for name, taken in seconds.items())
    print(f"      with 1,000 resamples: {sum(seconds.values()):.2f} s in all ({times})", flush=True)
    return [line]


def predictions_of(task: Task, examples: Sequence[Any]) -> list[Prediction]:
    """Gold answers, of which about a fifth is replaced; relations get probabilities without ties."""
    rng = random.Random(3)
    if task.name == "ner":
        return [Prediction(example.guid, tuple(corrupt_tags(example.gold, rng))) for example in examples]
    if task.name == "mrc":
        return [Prediction(example.guid, corrupt_text(example, rng)) for example in examples]
    right, wrong = baseline("oracle", task, examples), baseline("random", task, examples)
    answers = [b if rng.random() < 0.2 else a for a, b in zip(right, wrong, strict=True)]
    if not task.needs_probabilities:
        return answers
    noise = np.random.default_rng(3).dirichlet(np.full(len(task.labels), 0.1), len(examples))
    return [
        Prediction(p.guid, p.answer, dict(zip(task.labels, map(float, (row + own) / 2), strict=True)))
        for p, row, own in zip(answers, noise, _one_hot(task, answers), strict=True)
    ]


def _one_hot(task: Task, answers: Sequence[Prediction]) -> Any:
    return np.array([[label == prediction.answer for label in task.labels] for prediction in answers], dtype=float)


def start_lines(limit: Limit) -> list[Line]:
    """How long a small command takes, against importing the libraries that it does not need."""
    command = str(Path(sys.executable).with_name("danseo"))
    heavy = [sys.executable, "-P", "-c", "import torch, transformers"]
    calls = [[command, "--help"], [command, "tasks"], heavy]
    *own, other = in_turns([lambda call=call: run(call) for call in calls], 5, limit)  # type: ignore[misc]
    return [
        show(
            Line(
                f"danseo {call[-1]}: importing torch, transformers",
                f"{seconds / other:.2f}x ({seconds:.2f} s, {other:.2f} s)",
                "at most 0.2x",
                seconds <= other / 5,
            )
        )
        for call, seconds in zip(calls, own, strict=False)
    ]


def run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
