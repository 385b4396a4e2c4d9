"""Speed of masked-LM pre-training against Trainer + DataCollatorForLanguageModeling, in turns, one thread.

    python bench/pretraining.py [--seconds N] [--text FILES] [--family bert] [--batch N]

A random model of 4 layers × 256 with 16,000 pieces reads real text. Both sides see the same parts of the same
documents; the library pads them and computes all logits (its defaults, fp32), danseo packs rows and computes the
head at the gaps. Pieces per second count real pieces only, and the CPU seconds of the one thread, so that other
work on the machine does not count. Rounds follow each other until the time is over; beside the ratio stands what a
danseo at the speed of a bare matrix product would reach.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from measuring import Limit, ResultTable, matrix_peak, say

from danseo.config.base import update_config
from danseo.config.mlm import PretrainConfig
from danseo.mlm.masked_trainer import RowBatchPlan
from danseo.mlm.packing import PackedRows, encode_parts, stream_documents, write_packed
from danseo.mlm.pretraining import make_trainer
from danseo.models.checkpoint import quiet_transformers
from danseo.models.new_encoder import EncoderSize, make_encoder_config, train_tokenizer
from danseo.runs.store import Run
from danseo.training.distributed import Workers
from danseo.training.optimizers import make_optimizer
from danseo.training.training_loop import train_steps

TEXT = Path(__file__).parents[2] / "shared" / "data" / "text" / "kowiki" / "kowiki_valid.txt.gz"
TARGET = 3.0


@dataclass(frozen=True)
class Round:
    """What a way did, and in what time."""

    pieces: int
    padded: int
    seconds: float

    @property
    def speed(self) -> float:
        return self.pieces / self.seconds


Way = Callable[[], Round]


def main() -> int:
    options = parsed()
    if not all(path.exists() for path in options.text):
        print("bench: no text; name files with --text", file=sys.stderr)
        return 0
    torch.set_num_threads(1)
    config = update_config(
        PretrainConfig(), {"seq_len": options.seq_len, "batch_size": options.batch, "num_threads": 1}
    )
    limit, peak = Limit(options.seconds), matrix_peak()
    with tempfile.TemporaryDirectory() as folder:
        ways, operations = prepared(options, config, Path(folder))
        rounds = measured(ways, limit)
    return report(rounds, 1e9 * peak / operations, peak, options)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--text", nargs="+", type=Path, default=[TEXT])
    parser.add_argument("--family", default="bert")
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32, help="sequences per step of danseo")
    parser.add_argument("--trainer-batch", type=int, default=8, help="sequences per step of the Trainer (its default)")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.0, help="of the model, on both sides")
    parser.add_argument("--vocabulary", type=int, default=16000)
    return parser.parse_args()


def prepared(options: argparse.Namespace, config: PretrainConfig, folder: Path) -> tuple[dict[str, Way], float]:
    """The two ways, and how many operations learning from a piece takes: the body, and the head at the gaps."""
    documents = list(islice(stream_documents(options.text), 400))
    size = EncoderSize(options.layers, options.hidden, 4, options.vocabulary, options.seq_len, options.dropout)
    tokenizer = train_tokenizer((document.text for document in documents), options.family, size)
    parts = list(encode_parts(documents, tokenizer, config))
    write_packed(folder / "packed", iter(parts), len(tokenizer), config.text.seq_len, True)

    def model() -> Any:
        torch.manual_seed(1)
        made = make_encoder_config(options.family, size, tokenizer)
        return quiet_transformers().AutoModelForMaskedLM.from_config(made)

    rows = PackedRows(folder / "packed" / "train")
    texts = [{"input_ids": ids.tolist()} for split, _, ids, _ in parts if split == "train"]
    steps = max(2, options.batch // options.trainer_batch)
    ways = {
        "danseo": danseo_way(model(), tokenizer, rows, config, Run(folder / "run")),
        "Trainer": trainer_way(model(), tokenizer, texts, options.trainer_batch, steps, folder),
    }
    body, table = model().base_model, len(tokenizer) * options.hidden
    weights = sum(parameter.numel() for parameter in body.parameters()) - table
    return ways, 6 * (weights + config.mask.mlm_probability * table)


def danseo_way(model: Any, tokenizer: Any, rows: PackedRows, config: PretrainConfig, run: Run) -> Way:
    fit = make_trainer(config, model, tokenizer, Workers("cpu"), run, lambda line: None)
    optimizer = make_optimizer(fit.network, config.train)
    lengths: Any = rows.lengths()
    plan = RowBatchPlan(lengths, config.train, 1, steps=10**9)
    running = train_steps(fit.engine, rows, plan, optimizer, config.train)

    def some() -> Round:
        start = time.process_time()
        step = next(running)
        return Round(step.tokens, step.tokens, time.process_time() - start)

    say(f"danseo computes in {fit.engine.mode.precision} with {fit.engine.mode.attention} attention")
    return some


def trainer_way(model: Any, tokenizer: Any, texts: list[Any], batch: int, steps: int, folder: Path) -> Way:
    transformers = quiet_transformers()
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    sizes: list[tuple[int, int]] = []

    def counted(examples: list[Any]) -> Any:
        made = collator(examples)
        sizes.append((sum(len(example["input_ids"]) for example in examples), made["input_ids"].numel()))
        return made

    class Clock(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        """When each step began and ended: starting the Trainer itself is not counted."""

        def __init__(self) -> None:
            self.seconds = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds += time.process_time() - self.start

    def some() -> Round:
        sizes.clear()
        clock = Clock()
        arguments = transformers.TrainingArguments(
            output_dir=str(folder / "trainer"),
            per_device_train_batch_size=batch,
            max_steps=steps,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            model=model, args=arguments, data_collator=counted, train_dataset=texts, callbacks=[clock]
        )
        trainer.pop_callback(transformers.PrinterCallback)
        trainer.train()
        pieces, padded = (sum(column) for column in zip(*sizes[:steps], strict=True))
        return Round(pieces, padded, clock.seconds)

    return some


def measured(ways: dict[str, Way], limit: Limit) -> dict[str, list[Round]]:
    """Rounds until the time is over, one at least; a first one warms up and does not count."""
    rounds: dict[str, list[Round]] = {name: [] for name in ways}
    for number in count():
        if number > 1 and limit.is_over:
            break
        for name, way in ways.items():
            done = way()
            say(f"{f'round {number}' if number else 'warm-up'}: {name} {done.speed:,.0f} pieces/s")
            if number:
                rounds[name].append(done)
    return rounds


def report(rounds: dict[str, list[Round]], most: float, peak: float, options: argparse.Namespace) -> int:
    ratio = statistics.median(a.speed / b.speed for a, b in zip(rounds["danseo"], rounds["Trainer"], strict=True))
    model = f"{options.family} {options.layers} × {options.hidden}, {options.vocabulary:,} pieces, one thread"
    facts = ("way", "rounds", "pieces/s", "padding %", "% of the peak", "danseo is x times as fast", "at most here")
    table = ResultTable(
        f"pre-training, {model}; matrix products reach {peak:.0f} GFLOP/s", (*facts, "target", "verdict")
    )
    verdict = "PASS" if ratio >= TARGET else "FAIL"
    for name, done in rounds.items():
        speed = statistics.median(each.speed for each in done)
        padding = 100 * (1 - sum(each.pieces for each in done) / sum(each.padded for each in done))
        judged = (ratio, most / speed, TARGET, verdict) if name == "Trainer" else (None, None, None, None)
        table.add(name, len(done), round(speed), padding, 100 * speed / most, *judged)
    return 0 if verdict == "PASS" else 1


if __name__ == "__main__":
    sys.exit(main())
