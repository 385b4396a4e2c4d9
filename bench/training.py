"""Speed of fine-tuning and evaluation against the usual ways, interleaved in one run, one thread.

    python bench/training.py [--data DIR] [--tasks ner nli] [--rounds N]

A random RoBERTa of 6 layers × 768 tags real KLUE-NER sentences and labels real KLUE-NLI pairs.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from danseo import data
from danseo.config import RunConfig, TrainConfig, with_settings
from danseo.data import cache_root
from danseo.models.encoder.kind import Features, Kind
from danseo.models.encoder.model import kind_of
from danseo.models.encoder.network import Network, load_network, load_pieces, quiet_transformers
from danseo.models.scratch import Size, make_encoder
from danseo.tables import Table, to_markdown
from danseo.tasks import get_task
from danseo.training.batching import epoch_batches, packed
from danseo.training.loop import Engine, Plan, outputs_of, train_steps
from danseo.training.optim import make_optimizer
from danseo.training.speed import bf16_works, choose_gear
from danseo.training.workers import Workers

ROOT = Path(__file__).parents[1]
SIZE = Size(layers=6, hidden=768, heads=12, vocabulary=32000, positions=512)
BATCH, STEPS = 32, 2


@dataclass
class Bench:
    """One task's network, features and the ways to train on them."""

    name: str
    kind: Kind
    network: Network
    features: list[Features]
    workers: Workers

    def engine(self, config: TrainConfig) -> Engine:
        gear = choose_gear(self.network, config, self.workers.device, cache_root() / "measured.json")
        return Engine(self.network, self.kind, self.workers, gear, config.batch_tokens)

    def batches(self, style: str) -> list[list[Features]]:
        order = list(range(len(self.features)))
        random.Random(1).shuffle(order)
        lengths = [len(f) for f in self.features]
        if style == "danseo":
            chosen = epoch_batches(lengths, BATCH, seed=1, epoch=0)
        elif style == "grouped":  # the library's length grouping: pools of 50 batches sorted by length
            chosen = []
            for start in range(0, len(order), 50 * BATCH):
                pool = sorted(order[start : start + 50 * BATCH], key=lambda k: -lengths[k])
                chosen += [pool[k : k + BATCH] for k in range(0, len(pool), BATCH)]
            random.Random(2).shuffle(chosen)
        else:
            chosen = [order[k : k + BATCH] for k in range(0, len(order), BATCH)]
        return [[self.features[k] for k in batch] for batch in chosen]

    def padded_to(self, batch: list[Features], width: int) -> dict[str, Any]:
        """A batch padded as the official baseline does: always to the longest length there is."""
        longest = Features(0, [self.kind.pieces.pad] * width, [0] * width, dict(batch[0].fields))
        made = self.network.collate([*batch, longest], self.kind, with_gold=False)
        return {key: value[:-1] for key, value in made.items()}


def trainer_step(bench: Bench, batch: list[Features], optimizer: Any, width: int = 0) -> None:
    """One step as the library's Trainer takes it: fp32, the stock attention, padding to the batch's longest."""
    network = bench.network
    network.train()
    tensors = network.collate(batch, bench.kind, with_gold=True)
    if width:
        tensors |= bench.padded_to(batch, width)
        if "labels" in tensors:
            tensors["labels"] = torch.nn.functional.pad(
                tensors["labels"], (0, width - tensors["labels"].shape[1]), value=-100
            )
    outputs = network(tensors)
    loss, weight = bench.kind.loss(outputs, tensors)
    (loss / weight).backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def train_ways(bench: Bench, precision: str) -> dict[str, Callable[[], float]]:
    """Ways to train; each gives samples per second over some steps."""
    config = TrainConfig(batch_size=BATCH, precision=precision)  # type: ignore[arg-type]
    optimizer = make_optimizer(bench.network, config)
    engine = bench.engine(config)
    places = {"danseo": 0, "trainer": 0, "grouped": 0, "padded": 0}
    batches = {style: bench.batches(style) for style in ("danseo", "trainer", "grouped")}
    batches["padded"] = batches["trainer"]

    def danseo() -> float:
        engine.gear.engage(bench.network)
        plan = Plan([len(f) for f in bench.features], config, seed=1)
        start, place = time.perf_counter(), places["danseo"]
        places["danseo"] += STEPS
        steps = train_steps(engine, bench.features, plan, optimizer, config, start=place)
        for _ in range(STEPS):
            next(steps)
        return STEPS * BATCH / (time.perf_counter() - start)

    def usual(style: str, width: int = 0) -> Callable[[], float]:
        def go() -> float:
            bench.network.model.set_attn_implementation("sdpa")
            start = time.perf_counter()
            for _ in range(STEPS):
                trainer_step(bench, batches[style][places[style] % len(batches[style])], optimizer, width)
                places[style] += 1
            return STEPS * BATCH / (time.perf_counter() - start)

        return go

    return {
        "danseo": danseo,
        "the Trainer's way, rebuilt (fp32, arrival order)": usual("trainer"),
        "the same with length groups": usual("grouped"),
        "padded to 128, fp32": usual("padded", 128),
    }


def eval_ways(bench: Bench, count: int) -> dict[str, Callable[[], float]]:
    """Ways to evaluate; each gives sentences per second."""
    config = TrainConfig()
    engine = bench.engine(config)
    features = bench.features[:count]

    def danseo() -> float:
        engine.gear.engage(bench.network)
        start = time.perf_counter()
        outputs_of(engine, features)
        return count / (time.perf_counter() - start)

    @torch.inference_mode()
    def usual() -> float:
        bench.network.model.set_attn_implementation("sdpa")
        bench.network.eval()
        start = time.perf_counter()
        for place in range(0, count, BATCH):
            bench.network(bench.network.collate(features[place : place + BATCH], bench.kind, with_gold=False))
        return count / (time.perf_counter() - start)

    return {"danseo": danseo, "arrival order, fp32": usual}


def interleaved(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median speed of each way, all ways in turn."""
    for way in ways.values():
        way()
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            speeds[name].append(way())
    return {name: statistics.median(values) for name, values in speeds.items()}


def make_bench(name: str, root: Path, encoder: Path, workers: Workers) -> Bench:
    task = get_task(name)
    config = with_settings(RunConfig(task=name, model=str(encoder)), {"max_length": 128})
    kind = kind_of(task)(task, load_pieces(config), config.head, config.train)
    features = kind.encode(data.load(task, "train", root)[:3000], with_gold=True)
    kind.prepare_loss(features)
    return Bench(name, kind, load_network(config, kind), features, workers)


def padding(features: Sequence[Features], tokens: int = 8192) -> float:
    lengths = [len(f) for f in features]
    real = sum(lengths)
    padded = sum(
        lengths[part[0]] * len(part) for b in epoch_batches(lengths, BATCH, 1, 0) for part in packed(b, lengths, tokens)
    )
    return 1 - real / padded


TARGETS = {
    "the Trainer's way, rebuilt (fp32, arrival order)": 3.5,
    "the same with length groups": 1.0,
    "padded to 128, fp32": 6.0,
    "arrival order, fp32": 4.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--tasks", nargs="*", default=["ner", "nli"], choices=["ner", "nli"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"bench: the real KLUE files are not in {options.data}; name their folder with --data")
    quiet_transformers()
    torch.set_num_threads(1)
    workers = Workers("cpu")
    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        texts = [
            example.text for name in ("ner", "nli") for example in data.load(get_task(name), "train", options.data)
        ]
        encoder = make_encoder(Path(folder), texts, "roberta", SIZE)
        for name in options.tasks:
            bench = make_bench(name, options.data, encoder, workers)
            for what, ways in (("training", train_ways(bench, "auto")), ("evaluation", eval_ways(bench, 192))):
                speeds = interleaved(ways, options.rounds)
                for way, speed in speeds.items():
                    ratio = speeds["danseo"] / speed
                    target = TARGETS.get(way)
                    verdict = None if target is None else "PASS" if ratio >= target else "FAIL"
                    rows.append((name, what, way, speed, ratio, target, verdict))
            print(f"{name}: padding share of danseo's batches {100 * padding(bench.features):.1f} %", file=sys.stderr)
    works = bf16_works(cache_root() / "measured.json")
    note = (
        ""
        if works
        else "bfloat16 cannot be used on this machine (its matrix units kill the process), so all ways are fp32"
    )
    columns = ("task", "what", "way", "samples/s", "danseo is x times as fast", "target", "verdict")
    print(to_markdown(Table("fine-tuning speed, 6 × 768, one thread, interleaved", columns, rows, note)))
    sys.exit(1 if any(row[-1] == "FAIL" for row in rows) else 0)


if __name__ == "__main__":
    main()
