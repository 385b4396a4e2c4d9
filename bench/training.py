"""Speed of fine-tuning and evaluation against the usual ways, in turns, one thread, within a limit of time.

    python bench/training.py [--seconds N] [--data DIR] [--tasks ner nli] [--layers N] [--hidden N] [--only speed|loss]

A random RoBERTa of 6 layers × 384 tags real KLUE-NER sentences and labels real KLUE-NLI pairs. The Trainer is the
library's own, on the stock model. The loss after 200 steps is compared with it on a 2 × 128 model, seed by seed.
Beside each ratio stands the bound: what a network as fast as this one would reach without any padding. The share of the
peak is that of a matrix product of the model's shapes in the same precision.
"""

import argparse
import copy
import functools
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from measuring import Limit, ResultTable, matrix_peak, one_line, say

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.config.train import TrainSettings
from danseo.data import find
from danseo.models.checkpoint import quiet_transformers
from danseo.models.encoder.heads import get_head_class
from danseo.models.encoder.heads.base import TaskHead
from danseo.models.encoder.network import Network, load_encoder_tokenizer, load_network
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.tasks import get_task
from danseo.training.distributed import Workers
from danseo.training.features import IGNORED, Features
from danseo.training.optimizers import make_optimizer
from danseo.training.precision import bf16_works, cpu_has_bf16, quantize_to_int8, select_compute_config
from danseo.training.training_loop import BatchPlan, Engine, compute_outputs, train_steps

ROOT = Path(__file__).parents[1]
SIZE = EncoderSize(layers=6, heads=6, vocabulary=32000, positions=512)
SMALL = EncoderSize(layers=2, hidden=128, heads=2, vocabulary=4000, positions=128)
BATCH, LONGEST = 32, 128
TRAINER, GROUPED, PLAIN = "Trainer", "Trainer, length groups", "Trainer, fp32"
ARRIVAL, BYTES = "arrival order", "danseo, int8"
ROUNDS = 2
BOUND_SHARE = 0.9
TARGETS = {GROUPED: 1.05, PLAIN: 4.0, BYTES: 4.0}
"""Ways with a fixed ratio; against the others danseo is to reach a share of the bound."""


@dataclass
class Reading:
    """What a way did, and in how many seconds of its one thread, so that other work on the machine does not count."""

    pieces: int = 0
    padded: int = 0
    seconds: float = 0.0

    def add(self, other: "Reading") -> None:
        self.pieces, self.padded = self.pieces + other.pieces, self.padded + other.padded
        self.seconds += other.seconds

    @property
    def speed(self) -> float:
        return self.pieces / self.seconds


Way = Callable[[Limit], Reading]
"""Works until the limit, at least once."""


@dataclass
class Bench:
    """One task's network and features."""

    name: str
    kind: TaskHead
    network: Network
    features: list[Features]
    workers: Workers

    @property
    def precision(self) -> str:
        return "bf16" if uses_bf16() else "fp32"

    def engine(self, config: TrainSettings) -> Engine:
        config = config.model_copy(update={"precision": self.precision})
        mode = select_compute_config(self.network, config, self.workers.device)
        return Engine(self.network, self.kind, self.workers, mode, config.max_batch_tokens)

    @property
    def mean(self) -> float:
        """Pieces of an ordinary sample: a few batches may happen to be long or short."""
        return sum(map(len, self.features)) / len(self.features)

    @property
    def weights(self) -> int:
        """Those of the body that every piece meets."""
        body = self.network.model.base_model
        tables = body.get_input_embeddings().weight.numel()
        return int(sum(parameter.numel() for parameter in body.parameters()) - tables)

    def rows(self) -> list[dict[str, Any]]:
        """The features as the Trainer wants them."""
        gold = "label" if "label" in self.features[0].fields else "labels"
        return [
            {"input_ids": f.ids, "attention_mask": [1] * len(f), "labels": f.fields[gold], "length": len(f)}
            for f in self.features
        ]


def padded(rows: list[dict[str, Any]], pad: int) -> dict[str, torch.Tensor]:
    """A batch as the library's collators pad it: to its longest row."""
    width = max(len(row["input_ids"]) for row in rows)

    def filled(key: str, filler: int) -> torch.Tensor:
        return torch.tensor([[*row[key], *[filler] * (width - len(row[key]))] for row in rows])

    tags = isinstance(rows[0]["labels"], int)
    labels = torch.tensor([row["labels"] for row in rows]) if tags else filled("labels", IGNORED)
    return {"input_ids": filled("input_ids", pad), "attention_mask": filled("attention_mask", 0), "labels": labels}


def make_trainer(bench: Bench, steps: int, grouped: bool = False, precision: str = "fp32", **options: Any) -> Any:
    """The library's Trainer at its defaults but for the batch size, and silent."""
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=BATCH,
        max_steps=steps,
        use_cpu=True,
        bf16=precision == "bf16",
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
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.__class__ = torch.nn.Dropout  # torch's own
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=bench.rows(),
        data_collator=lambda rows: padded(rows, bench.kind.tokenizer.pad_id),
    )
    trainer.pop_callback(transformers.PrinterCallback)
    if grouped:
        trainer._get_train_sampler = functools.partial(mix_batches, trainer._get_train_sampler)  # type: ignore[method-assign, assignment]
    return trainer


def mix_batches(make_sampler: Callable[..., Any], *arguments: Any) -> list[int]:
    """The same batches in random order: in a short time a length sampler, the longest first, shows only long ones."""
    order = list(make_sampler(*arguments))
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    random.shuffle(batches)
    return list(itertools.chain.from_iterable(batches))


def uses_bf16() -> bool:
    return cpu_has_bf16() and bf16_works()


def trainer_way(bench: Bench, grouped: bool = False, precision: str = "fp32") -> Way:
    """The Trainer, stopped after the step that passes the limit; its first one, which warms up, is not counted."""
    import transformers

    marks: list[float] = []
    sizes: list[tuple[int, int]] = []
    limit = Limit(0)

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **options: Any) -> None:
            marks.append(time.process_time())
            control.should_training_stop = len(marks) > 1 and limit.is_over

    trainer = make_trainer(bench, 10**6, grouped, precision)
    trainer.add_callback(Clock())
    collate = trainer.data_collator

    def counted(rows: list[dict[str, Any]]) -> Any:
        batch = collate(rows)
        sizes.append((sum(row["length"] for row in rows), batch["input_ids"].numel()))
        return batch

    trainer.data_collator = counted

    def go(until: Limit) -> Reading:
        nonlocal limit
        limit = until
        marks.clear()
        sizes.clear()
        trainer.args.seed += 1
        trainer.train()
        pieces, padded = (sum(column) for column in zip(*sizes[1 : len(marks)], strict=True))
        return Reading(pieces, padded, marks[-1] - marks[0])

    return go


def danseo_way(bench: Bench) -> Way:
    config = TrainSettings(batch_size=BATCH)
    optimizer, engine = make_optimizer(bench.network, config), bench.engine(config)
    lengths = [len(f) for f in bench.features]
    plans = (BatchPlan(lengths, config, seed) for seed in itertools.count(1))
    steps = itertools.chain.from_iterable(
        train_steps(engine, bench.features, plan, optimizer, config) for plan in plans
    )

    def go(limit: Limit) -> Reading:
        engine.mode.apply_to(bench.network)
        next(steps)  # warms up, as the Trainer's first
        done, start = Reading(), time.process_time()
        while not done.pieces or not limit.is_over:
            step = next(steps)
            done.add(Reading(step.tokens, step.tokens))
        done.seconds = time.process_time() - start
        return done

    return go


def eval_ways(bench: Bench, count: int) -> dict[str, Way]:
    """Ways to evaluate the same sentences."""
    engine = bench.engine(TrainSettings())
    features, rows = bench.features[:count], bench.rows()[:count]
    pieces = sum(map(len, features))

    def danseo() -> int:
        engine.mode.apply_to(bench.network)
        compute_outputs(engine, features)
        return pieces

    @torch.inference_mode()
    def usual() -> int:
        bench.network.model.set_attn_implementation("sdpa")
        bench.network.eval()
        batches = [
            padded(rows[position : position + BATCH], bench.kind.tokenizer.pad_id)
            for position in range(0, count, BATCH)
        ]
        with engine.mode.autocast(bench.workers.device):
            for batch in batches:
                bench.network.model(**batch)
        return sum(batch["input_ids"].numel() for batch in batches)

    def repeated(once: Callable[[], int]) -> Way:
        def go(limit: Limit) -> Reading:
            done, start = Reading(), time.process_time()
            while not done.pieces or not limit.is_over:
                done.add(Reading(pieces, once()))
            done.seconds = time.process_time() - start
            return done

        return go

    return {"danseo": repeated(danseo), ARRIVAL: repeated(usual)}


def byte_way(bench: Bench, count: int) -> Way:
    """danseo's evaluation with the body in bytes."""
    network = copy.deepcopy(bench.network)
    quantize_to_int8(network.model, bench.workers.device)
    return eval_ways(replace(bench, network=network), count)["danseo"]


def in_turns(what: str, ways: dict[str, Way], limit: Limit, mean: float) -> dict[str, Reading]:
    """What each way did in its share of the time, all ways in turn."""
    done = {name: Reading() for name in ways}
    turns = len(ways) * ROUNDS
    for turn, name in enumerate(list(ways) * ROUNDS):
        if turn >= len(ways) and limit.is_over:
            break
        now = ways[name](limit.share(1 / (turns - turn)))
        done[name].add(now)
        say(f"{what}: {turn + 1} of {turns}, {name}: {now.speed / mean:.1f} samples/s in {now.seconds:.0f} s")
    return done


def make_bench(name: str, root: Path, encoder: Path, workers: Workers, seed: int = 1) -> Bench:
    task = get_task(name)
    config = update_config(RunConfig(task=name, model=str(encoder)), {"max_length": LONGEST})
    kind = get_head_class(task)(task, load_encoder_tokenizer(config), config.encoder, config.train)
    features = kind.encode(find.load(task, "train", root)[:4000], with_gold=True)
    kind.prepare_loss(features)
    torch.manual_seed(seed)
    return Bench(name, kind, load_network(config, kind), features, workers)


def speed_rows(table: ResultTable, name: str, bench: Bench, peak: float, limit: Limit) -> None:
    training = {
        "danseo": danseo_way(bench),
        TRAINER: trainer_way(bench, precision=bench.precision),
        GROUPED: trainer_way(bench, grouped=True, precision=bench.precision),
        **({PLAIN: trainer_way(bench)} if bench.precision != "fp32" else {}),
    }
    add_rows(
        table, name, "training", in_turns(f"{name}, training", training, limit.share(0.75), bench.mean), bench, peak
    )
    reading = {**eval_ways(bench, 256), BYTES: byte_way(bench, 256)}
    add_rows(table, name, "evaluation", in_turns(f"{name}, evaluation", reading, limit, bench.mean), bench, peak)


def add_rows(table: ResultTable, name: str, what: str, done: dict[str, Reading], bench: Bench, peak: float) -> None:
    """One row per way; the bound against it is the share of its work that is not padding."""
    most = 1e9 * peak / (6 if what == "training" else 2) / bench.weights
    for way, reading in done.items():
        facts = (name, what, way, reading.speed / bench.mean, 100 * (1 - reading.pieces / reading.padded))
        share = 100 * reading.speed / most if way not in (PLAIN, BYTES) else None
        if way == "danseo":
            table.add(*facts, share, None, None, None, None)
            continue
        is_own = way == BYTES
        ratio = reading.speed / done[ARRIVAL].speed if is_own else done["danseo"].speed / reading.speed
        bound = reading.padded / reading.pieces if way in (TRAINER, GROUPED, ARRIVAL) else None
        if is_own:  # no padding, and products of matrices as fast as int8 makes them
            bound = (
                done[ARRIVAL].padded
                / done[ARRIVAL].pieces
                * measure_int8_gain(bench.network.model.config.hidden_size, bench.precision)
            )
        target = TARGETS.get(way) or BOUND_SHARE * (bound or 1)
        table.add(*facts, share, ratio, bound, target, "PASS" if ratio >= target else "FAIL")


@functools.cache
def measure_int8_gain(hidden: int, precision: str) -> float:
    """How many times as fast a product of matrices is in int8."""
    shape = (1024, hidden, 4 * hidden)
    return matrix_peak(shape=shape, precision="int8") / matrix_peak(shape=shape, precision=precision)


def held_out_loss(model: Any, bench: Bench, rows: list[dict[str, Any]]) -> float:
    model.eval()
    model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        losses = [
            float(model(**padded(rows[k : k + BATCH], bench.kind.tokenizer.pad_id)).loss)
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
    config = TrainSettings(batch_size=BATCH, learning_rate=rate, warmup_ratio=0.0, epochs=epochs)
    plan = BatchPlan([len(f) for f in bench.features], config, seed)
    optimizer = make_optimizer(bench.network, config)
    for _ in train_steps(bench.engine(config), bench.features, plan, optimizer, config):
        pass
    return held_out_loss(bench.network.model, bench, held), held_out_loss(trainer.model, bench, held)


def loss_row(table: ResultTable, name: str, make: Callable[[int], Bench], limit: Limit, steps: int = 200) -> None:
    """As many seeds as there is time for, but two at least: their range is the measure."""
    pairs: list[tuple[float, float]] = []
    while len(pairs) < 2 or (len(pairs) < 5 and not limit.is_over):
        pairs.append(loss_after(steps, make, len(pairs) + 1))
        own, other = pairs[-1]
        say(f"{name}, loss after {steps} steps: seed {len(pairs)}, danseo {own:.4f}, Trainer {other:.4f}")
    ours, theirs = zip(*pairs, strict=True)
    spread = max(theirs) - min(theirs)
    means = statistics.mean(ours), statistics.mean(theirs)
    difference = means[0] - means[1]
    table.add(name, len(pairs), *means, difference, spread, "PASS" if abs(difference) <= spread else "FAIL")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--tasks", nargs="*", default=["ner", "nli"], choices=["ner", "nli"])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=384, help="a multiple of 64, the width of a head")
    parser.add_argument("--only", choices=["speed", "loss"])
    return parser.parse_args()


def main() -> None:
    options = parsed()
    if not options.data.is_dir():
        sys.exit(f"bench: the real KLUE files are not in {options.data}; name their folder with --data")
    quiet_transformers()
    torch.set_num_threads(1)
    limit, workers, tables = Limit(options.seconds), Workers("cpu"), list[ResultTable]()
    failures: list[str] = []
    texts = [e.text for name in ("ner", "nli") for e in find.load(get_task(name), "train", options.data)]
    parts = len(options.tasks)
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "loss":
            size = replace(SIZE, layers=options.layers, hidden=options.hidden, heads=options.hidden // 64)
            encoder = make_encoder(Path(folder) / "large", texts, "roberta", size)
            shape = (1024, options.hidden, 4 * options.hidden)
            peak = matrix_peak(shape=shape, precision="bf16" if uses_bf16() else "fp32")
            tables.append(speed_table(f"{options.layers} × {options.hidden}", peak))
            time_for_speed = limit.share(1.0 if options.only else 0.75)
            for position, name in enumerate(options.tasks):
                if time_for_speed.is_over:
                    say(f"no time is left for {name}; --seconds gives more")
                    break
                part = time_for_speed.share(1 / (parts - position))
                with one_line(f"speed of {name}", failures):
                    speed_rows(tables[-1], name, make_bench(name, options.data, encoder, workers), peak, part)
        if options.only != "speed":
            small = make_encoder(Path(folder) / "small", texts, "roberta", SMALL)
            columns = (
                "task",
                "seeds",
                "danseo",
                "Trainer, fp32",
                "difference",
                "the Trainer's range over seeds",
                "verdict",
            )
            tables.append(ResultTable("held-out loss after 200 steps, 2 × 128", columns))
            for position, name in enumerate(options.tasks):
                if limit.is_over:
                    say(f"no time is left for the loss of {name}; --seconds gives more")
                    break
                make = functools.partial(make_bench, name, options.data, small, workers)
                with one_line(f"loss of {name}", failures):
                    loss_row(tables[-1], name, make, limit.share(1 / (parts - position)))
    sys.exit(1 if failures or any(row[-1] == "FAIL" for table in tables for row in table.rows) else 0)


def speed_table(size: str, peak: float) -> ResultTable:
    precisions = "" if uses_bf16() else "; bfloat16 cannot be used, so every way is float32"
    title = f"fine-tuning, {size}, one thread, in turns; matrix products reach {peak:.0f} GFLOP/s{precisions}"
    speeds = ("samples/s", "padding %", "% of the peak", "danseo is x times as fast", "bound without padding")
    return ResultTable(title, ("task", "what", "way", *speeds, "target", "verdict"))


if __name__ == "__main__":
    main()
