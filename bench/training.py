"""Speed of fine-tuning and evaluation against the usual ways, interleaved in one run, one thread.

    python bench/training.py [--data DIR] [--tasks ner nli] [--rounds N] [--only speed|loss]

A random RoBERTa of 6 layers × 768 tags real KLUE-NER sentences and labels real KLUE-NLI pairs. The Trainer is the
library's own, on the stock model. The loss after 200 steps is compared with it on a 2 × 128 model, seed by seed.
"""

import argparse
import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from danseo import data
from danseo.config import RunConfig, TrainConfig, with_settings
from danseo.data import cache_root
from danseo.models.encoder.int8 import to_bytes
from danseo.models.encoder.kind import IGNORED, Features, Kind
from danseo.models.encoder.model import kind_of
from danseo.models.encoder.network import Network, load_network, load_pieces, quiet_transformers
from danseo.models.scratch import Size, make_encoder
from danseo.tables import Table, to_markdown
from danseo.tasks import get_task
from danseo.training.batching import epoch_batches
from danseo.training.loop import Engine, Plan, outputs_of, train_steps
from danseo.training.optim import make_optimizer
from danseo.training.speed import bf16_works, choose_gear
from danseo.training.workers import Workers

ROOT = Path(__file__).parents[1]
SIZE = Size(layers=6, hidden=768, heads=12, vocabulary=32000, positions=512)
SMALL = Size(layers=2, hidden=128, heads=2, vocabulary=4000, positions=128)
BATCH, LONGEST = 32, 128
TRAINER, GROUPED, PADDED, ARRIVAL = "Trainer", "Trainer, length groups", "Trainer, padded to 128", "arrival order, fp32"
BYTES = "danseo, int8"
STEPS = {"danseo": 50, TRAINER: 12, GROUPED: 50, PADDED: 4}  # length groups are of 50 batches, long ones first
TARGETS = {TRAINER: 3.5, GROUPED: 1.0, PADDED: 6.0, ARRIVAL: 4.0}


@dataclass
class Bench:
    """One task's network and features."""

    name: str
    kind: Kind
    network: Network
    features: list[Features]
    workers: Workers

    def engine(self, config: TrainConfig) -> Engine:
        gear = choose_gear(self.network, config, self.workers.device, cache_root() / "measured.json")
        return Engine(self.network, self.kind, self.workers, gear, config.batch_tokens)

    def samples(self, pieces: int) -> float:
        """How many ordinary samples so many pieces are: a few batches may happen to be long or short."""
        return pieces * len(self.features) / sum(map(len, self.features))

    def rows(self) -> list[dict[str, Any]]:
        """The features as the Trainer wants them."""
        gold = "label" if "label" in self.features[0].fields else "labels"
        return [
            {"input_ids": f.ids, "attention_mask": [1] * len(f), "labels": f.fields[gold], "length": len(f)}
            for f in self.features
        ]


def padded(rows: list[dict[str, Any]], pad: int, width: int) -> dict[str, torch.Tensor]:
    """A batch as the library's collators pad it: to its longest row, or to a fixed width."""
    width = width or max(len(row["input_ids"]) for row in rows)

    def filled(key: str, filler: int) -> torch.Tensor:
        return torch.tensor([[*row[key], *[filler] * (width - len(row[key]))] for row in rows])

    tags = isinstance(rows[0]["labels"], int)
    labels = torch.tensor([row["labels"] for row in rows]) if tags else filled("labels", IGNORED)
    return {"input_ids": filled("input_ids", pad), "attention_mask": filled("attention_mask", 0), "labels": labels}


def make_trainer(bench: Bench, steps: int, grouped: bool = False, width: int = 0, **options: Any) -> Any:
    """The library's Trainer at its defaults but for the batch size, and silent."""
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=BATCH,
        max_steps=steps,
        use_cpu=True,
        bf16=grouped and bf16_works(cache_root() / "measured.json"),
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        train_sampling_strategy="group_by_length" if grouped else "random",
        **options,
    )
    model = copy.deepcopy(bench.network.model)
    model.set_attn_implementation("sdpa")
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=bench.rows(),
        data_collator=lambda rows: padded(rows, bench.kind.pieces.pad, width),
    )
    trainer.pop_callback(transformers.PrinterCallback)
    return trainer


def trainer_way(bench: Bench, grouped: bool = False, width: int = 0) -> Callable[[], float]:
    """Samples per second of the Trainer; its first step, which meets the longest examples, is not counted."""
    import transformers

    marks: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *arguments: Any, **options: Any) -> None:
            marks.append(time.perf_counter())

    steps = STEPS[GROUPED if grouped else PADDED if width else TRAINER]
    trainer = make_trainer(bench, steps + 1, grouped, width)
    trainer.add_callback(Clock())
    collate, pieces = trainer.data_collator, []

    def counted(rows: list[dict[str, Any]]) -> Any:
        pieces.append(sum(row["length"] for row in rows))
        return collate(rows)

    trainer.data_collator = counted

    def go() -> float:
        marks.clear()
        pieces.clear()
        trainer.args.seed += 1
        trainer.train()
        return bench.samples(sum(pieces[1 : steps + 1])) / (marks[-1] - marks[0])

    return go


def danseo_way(bench: Bench) -> Callable[[], float]:
    config = TrainConfig(batch_size=BATCH)
    optimizer, engine = make_optimizer(bench.network, config), bench.engine(config)
    seed = 0

    def go() -> float:
        nonlocal seed
        seed += 1
        engine.gear.engage(bench.network)
        plan = Plan([len(f) for f in bench.features], config, seed)
        steps = train_steps(engine, bench.features, plan, optimizer, config)
        next(steps)
        start = time.perf_counter()
        pieces = sum(next(steps).pieces for _ in range(STEPS["danseo"]))
        return bench.samples(pieces) / (time.perf_counter() - start)

    return go


def eval_ways(bench: Bench, count: int) -> dict[str, Callable[[], float]]:
    """Ways to evaluate; each gives sentences per second."""
    engine = bench.engine(TrainConfig())
    features, rows = bench.features[:count], bench.rows()[:count]

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
            bench.network.model(**padded(rows[place : place + BATCH], bench.kind.pieces.pad, 0))
        return count / (time.perf_counter() - start)

    return {"danseo": danseo, ARRIVAL: usual}


def byte_way(bench: Bench, count: int) -> Callable[[], float]:
    """danseo's evaluation with the body in bytes."""
    network = copy.deepcopy(bench.network)
    to_bytes(network.model, bench.workers.device)
    return eval_ways(replace(bench, network=network), count)["danseo"]


def interleaved(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median speed of each way, all ways in turn."""
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            speeds[name].append(way())
    return {name: statistics.median(values) for name, values in speeds.items()}


def make_bench(name: str, root: Path, encoder: Path, workers: Workers, seed: int = 1) -> Bench:
    task = get_task(name)
    config = with_settings(RunConfig(task=name, model=str(encoder)), {"max_length": LONGEST})
    kind = kind_of(task)(task, load_pieces(config), config.head, config.train)
    features = kind.encode(data.load(task, "train", root)[:4000], with_gold=True)
    kind.prepare_loss(features)
    torch.manual_seed(seed)
    return Bench(name, kind, load_network(config, kind), features, workers)


def padding(features: Sequence[Features]) -> float:
    lengths = [len(f) for f in features]
    batches = epoch_batches(lengths, BATCH, 1, 0)
    return 1 - sum(lengths) / sum(max(lengths[k] for k in batch) * len(batch) for batch in batches)


def speed_rows(name: str, bench: Bench, rounds: int) -> list[tuple[object, ...]]:
    training = {
        "danseo": danseo_way(bench),
        TRAINER: trainer_way(bench),
        GROUPED: trainer_way(bench, grouped=True),
        PADDED: trainer_way(bench, width=LONGEST),
    }
    reading = {**eval_ways(bench, 256), BYTES: byte_way(bench, 256)}
    for read in reading.values():
        read()  # a warm-up
    rows: list[tuple[object, ...]] = []
    for what, ways in (("training", training), ("evaluation", reading)):
        speeds = interleaved(ways, rounds)
        for way, speed in speeds.items():
            rows.append((name, what, way, speed, *judged(speeds["danseo"] / speed, TARGETS.get(way))))
        if BYTES in speeds:
            ratio = speeds[BYTES] / speeds[ARRIVAL]
            rows.append((name, f"{what}, int8", ARRIVAL, speeds[ARRIVAL], *judged(ratio, TARGETS[ARRIVAL])))
    return rows


def judged(ratio: float, target: float | None) -> tuple[float, float | None, str | None]:
    return ratio, target, None if target is None else "PASS" if ratio >= target else "FAIL"


def held_out_loss(model: Any, bench: Bench, rows: list[dict[str, Any]]) -> float:
    model.eval()
    with torch.inference_mode():
        losses = [
            float(model(**padded(rows[k : k + BATCH], bench.kind.pieces.pad, 0)).loss)
            for k in range(0, len(rows), BATCH)
        ]
    return statistics.mean(losses)


def loss_after(steps: int, make: Callable[[int], Bench], seed: int) -> tuple[float, float]:
    """The held-out loss of danseo and of the Trainer in fp32 after the same number of steps, rates and seed."""
    bench = make(seed)
    held = bench.rows()[-600:]
    bench.features = bench.features[:-600]
    rate = 1e-3
    trainer = make_trainer(bench, steps, learning_rate=rate, weight_decay=0.01, seed=seed)
    trainer.train()
    epochs = steps * BATCH / len(bench.features)
    config = TrainConfig(batch_size=BATCH, learning_rate=rate, warmup=0.0, epochs=epochs)
    plan = Plan([len(f) for f in bench.features], config, seed)
    optimizer = make_optimizer(bench.network, config)
    for _ in train_steps(bench.engine(config), bench.features, plan, optimizer, config):
        pass
    return held_out_loss(bench.network.model, bench, held), held_out_loss(trainer.model, bench, held)


def loss_row(name: str, make: Callable[[int], Bench], seeds: int = 3, steps: int = 200) -> tuple[object, ...]:
    ours, theirs = zip(*(loss_after(steps, make, seed) for seed in range(1, seeds + 1)), strict=True)
    spread = max(theirs) - min(theirs)
    difference = statistics.mean(ours) - statistics.mean(theirs)
    means = statistics.mean(ours), statistics.mean(theirs)
    return name, seeds, *means, difference, spread, "PASS" if abs(difference) <= spread else "FAIL"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--tasks", nargs="*", default=["ner", "nli"], choices=["ner", "nli"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=["speed", "loss"])
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"bench: the real KLUE files are not in {options.data}; name their folder with --data")
    quiet_transformers()
    torch.set_num_threads(1)
    workers = Workers("cpu")
    speeds: list[tuple[object, ...]] = []
    losses: list[tuple[object, ...]] = []
    texts = [e.text for name in ("ner", "nli") for e in data.load(get_task(name), "train", options.data)]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.tasks if options.only != "loss" else ():
            encoder = make_encoder(Path(folder) / "large", texts, "roberta", SIZE)
            bench = make_bench(name, options.data, encoder, workers)
            speeds += speed_rows(name, bench, options.rounds)
            print(f"{name}: padding share of danseo's batches {100 * padding(bench.features):.1f} %", file=sys.stderr)
        small = make_encoder(Path(folder) / "small", texts, "roberta", SMALL)
        for name in options.tasks if options.only != "speed" else ():
            losses.append(loss_row(name, lambda seed, n=name: make_bench(n, options.data, small, workers, seed)))  # type: ignore[misc]
    works = bf16_works(cache_root() / "measured.json")
    note = "" if works else "bfloat16 cannot be used on this machine, so every way is fp32"
    columns = ("task", "what", "way", "samples/s", "danseo is x times as fast", "target", "verdict")
    print(to_markdown(Table("fine-tuning speed, 6 × 768, one thread, interleaved", columns, speeds, note)))
    columns = ("task", "seeds", "danseo", "Trainer, fp32", "difference", "the Trainer's range over seeds", "verdict")
    print(to_markdown(Table("held-out loss after 200 steps, 2 × 128", columns, losses, note)))
    sys.exit(1 if any(row[-1] == "FAIL" for row in [*speeds, *losses]) else 0)


if __name__ == "__main__":
    main()
