"""Speed of masked-LM pre-training against Trainer + DataCollatorForLanguageModeling, interleaved, one thread.

    python bench/pretraining.py [--text FILES] [--family bert] [--steps N] [--rounds N] [--batch N]

A random model of 4 layers × 256 with 16,000 pieces reads real text. Both sides see the same parts of the same
documents; the library pads them and computes all logits (its defaults, fp32), danseo packs rows and computes the
head at the gaps. Pieces per second count real pieces only, and the CPU seconds of the one thread, so that other
work on the machine does not count.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from danseo.config import with_settings
from danseo.models.encoder.network import quiet_transformers
from danseo.models.scratch import Size, encoder_config, train_tokenizer
from danseo.pretraining.config import PretrainConfig
from danseo.pretraining.encoding import encoded_parts
from danseo.pretraining.packing import PackedRows, write_packed
from danseo.pretraining.pretrain import text_fit
from danseo.pretraining.text import stream
from danseo.runs.directory import Run
from danseo.training.loop import train_steps
from danseo.training.optim import make_optimizer
from danseo.training.rows import RowPlan
from danseo.training.workers import Workers

TEXT = Path(__file__).parents[2] / "shared" / "data" / "text" / "kowiki" / "kowiki_valid.txt.gz"
TARGET = 3.0


def main() -> int:
    options = parsed()
    if not all(path.exists() for path in options.text):
        print("bench: no text; name files with --text", file=sys.stderr)
        return 0
    torch.set_num_threads(1)
    config = with_settings(PretrainConfig(), {"seq_len": options.seq_len, "batch_size": options.batch, "threads": 1})
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = prepared(options, config, Path(folder))
        speeds = measured({"danseo": ours, "Trainer": theirs}, options.rounds)
    return report(speeds, options)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", nargs="+", type=Path, default=[TEXT])
    parser.add_argument("--family", default="bert")
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32, help="sequences per step of danseo")
    parser.add_argument("--trainer-batch", type=int, default=8, help="sequences per step of the Trainer (its default)")
    parser.add_argument("--steps", type=int, default=3, help="steps of danseo per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.0, help="of the model, on both sides")
    parser.add_argument("--vocabulary", type=int, default=16000)
    return parser.parse_args()


def prepared(
    options: argparse.Namespace, config: PretrainConfig, folder: Path
) -> tuple[Callable[[], tuple[int, float]], Callable[[], tuple[int, float]]]:
    """The two ways, each a function that trains for a while and returns pieces and seconds."""
    documents = list(islice(stream(options.text), 400))
    size = Size(options.layers, options.hidden, 4, options.vocabulary, options.seq_len, options.dropout)
    tokenizer = train_tokenizer((document.text for document in documents), options.family, size)
    parts = list(encoded_parts(documents, tokenizer, config))
    write_packed(folder / "packed", iter(parts), len(tokenizer), config.text.seq_len, True)

    def model() -> Any:
        torch.manual_seed(1)
        made = encoder_config(options.family, size, tokenizer)
        return quiet_transformers().AutoModelForMaskedLM.from_config(made)

    rows = PackedRows(folder / "packed" / "train")
    texts = [{"input_ids": ids.tolist()} for split, _, ids, _ in parts if split == "train"]
    ours = danseo_way(model(), tokenizer, rows, config, options.steps, Run(folder / "run"))
    steps = max(2, options.steps * options.batch // options.trainer_batch)
    return ours, trainer_way(model(), tokenizer, texts, options.trainer_batch, steps, folder)


def danseo_way(
    model: Any, tokenizer: Any, rows: PackedRows, config: PretrainConfig, steps: int, run: Run
) -> Callable[[], tuple[int, float]]:
    fit = text_fit(config, model, tokenizer, Workers("cpu"), run, lambda line: None)
    optimizer = make_optimizer(fit.network, config.train)
    lengths: Any = rows.lengths()
    plan = RowPlan(lengths, config.train, 1, steps=10**9)
    running = train_steps(fit.engine, rows, plan, optimizer, config.train)

    def some() -> tuple[int, float]:
        start = time.process_time()
        pieces = sum(next(running).pieces for _ in range(steps))
        return pieces, time.process_time() - start

    print(f"danseo computes in {fit.gear.precision} with {fit.gear.attention} attention", flush=True)
    return some


def trainer_way(
    model: Any, tokenizer: Any, texts: list[Any], batch: int, steps: int, folder: Path
) -> Callable[[], tuple[int, float]]:
    transformers = quiet_transformers()
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    pieces: list[int] = []

    def counted(examples: list[Any]) -> Any:
        pieces.append(sum(len(example["input_ids"]) for example in examples))
        return collator(examples)

    class Clock(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        """When each step began and ended: starting the Trainer itself is not counted."""

        def __init__(self) -> None:
            self.seconds = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds += time.process_time() - self.start

    def some() -> tuple[int, float]:
        pieces.clear()
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
        return sum(pieces[:steps]), clock.seconds

    return some


def measured(ways: dict[str, Callable[[], tuple[int, float]]], rounds: int) -> dict[str, list[float]]:
    """Pieces per second of every round; a first round warms up and does not count."""
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            pieces, seconds = way()
            if number:
                speeds[name].append(pieces / seconds)
                print(f"round {number}: {name} {pieces / seconds:,.0f} pieces/s", flush=True)
    return speeds


def report(speeds: dict[str, list[float]], options: argparse.Namespace) -> int:
    ours, theirs = (statistics.median(speeds[name]) for name in ("danseo", "Trainer"))
    ratio = statistics.median(a / b for a, b in zip(speeds["danseo"], speeds["Trainer"], strict=True))
    mark = "ok  " if ratio >= TARGET else "MISS"
    what = f"{options.family} {options.layers} × {options.hidden}, {options.vocabulary:,} pieces"
    print(f"{mark} pre-training, {what}: {ratio:.1f}x Trainer ({ours:,.0f} and {theirs:,.0f} pieces/s; at least 3x)")
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
