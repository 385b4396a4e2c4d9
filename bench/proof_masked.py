"""Proof of the masked-LM laboratory on real text: a learning curve, then entity fine-tuning against plain MLM.

    python bench/proof_masked.py [--minutes 30] [--text DIR] [--probe-text FILE] [--folder DIR] [--items N]

Probes are made of documents that are never trained on. Everything goes into the folder and is resumed; the Markdown
tables at the end are what docs/results.md quotes, the curves are learning_curve.png and probe_curve.png.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from danseo.config.base import read_settings, update_config
from danseo.config.mlm import CorefConfig, PretrainConfig
from danseo.config.recipes import find_configs_folder
from danseo.display.table import to_markdown
from danseo.mlm.coref import CorefJob, coref
from danseo.mlm.pretraining import PretrainJob, pretrain
from danseo.mlm.probing.build import build_sets
from danseo.mlm.probing.evaluation import ProbeJob, run_probe
from danseo.mlm.probing.items import ProbeItem, read_items
from danseo.mlm.probing.repeated_nouns import BuildOptions
from danseo.mlm.tables import coref_tables, pretrain_tables
from danseo.runs.store import Run
from danseo.text.morphology import KiwiAnalyser

WIKI = Path(__file__).parents[2] / "shared" / "data" / "text" / "kowiki"


def main() -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is loaded
    options = parsed()
    texts = tuple(sorted(path for path in options.text.glob("*.gz") if path != options.probe_text))
    if not texts or not options.probe_text.is_file():
        sys.exit(f"proof: no text in {options.text}; name its folder with --text and another file with --probe-text")
    items = probe_items(options, texts)
    run = pretrained(options, texts, items)
    for table in pretrain_tables(run):
        print(to_markdown(table), flush=True)
    report = run_probe(ProbeJob((str(run.path),), items=options.folder / "probes", output=options.folder / "probed"))
    for table in report.tables():
        print(to_markdown(table), flush=True)
    print(f"curves: {report.curve}, {run.path / 'learning_curve.png'}", flush=True)
    for table in coref_tables(tuned(options, texts, run, items)):
        print(to_markdown(table), flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="of pre-training")
    parser.add_argument("--text", type=Path, default=WIKI)
    parser.add_argument("--probe-text", type=Path, default=WIKI / "kowiki_valid.txt.gz")
    parser.add_argument("--folder", type=Path, default=Path("proof-masked"))
    parser.add_argument("--items", type=int, default=300, help="probe items of dev and of test")
    parser.add_argument("--checkpoints", type=int, default=10)
    parser.add_argument("--mentions", type=int, default=12800, help="training items of the entity fine-tuning")
    parser.add_argument("--coref-steps", type=int, default=400)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="change a pre-training setting")
    return parser.parse_args()


def probe_items(options: argparse.Namespace, texts: tuple[Path, ...]) -> list[ProbeItem]:
    """The dev set, made of other documents than the training text; what it shares with it is measured."""
    folder = options.folder / "probes"
    if not (folder / "manifest.json").is_file():
        rules = BuildOptions(limit=options.items)
        sets = build_sets([options.probe_text], folder, rules, KiwiAnalyser(), against=texts)
        print(json.dumps(sets.manifest.get("overlap"), ensure_ascii=False), file=sys.stderr)
    return read_items(folder)


def pretrained(options: argparse.Namespace, texts: tuple[Path, ...], items: list[ProbeItem]) -> Run:
    from danseo.config.base import parse_assignment

    settings = read_settings(find_configs_folder() / "pretrain" / "small.toml", PretrainConfig)
    config = update_config(PretrainConfig(), settings)
    config = update_config(config, {"minutes": options.minutes, "checkpoints": options.checkpoints})
    config = update_config(config, dict(parse_assignment(each, PretrainConfig) for each in options.settings))
    return pretrain(PretrainJob(config, texts, tuple(items)), options.folder / "pretrained")


def tuned(options: argparse.Namespace, texts: tuple[Path, ...], run: Run, items: list[ProbeItem]) -> dict[str, Any]:
    """The three objectives for equal steps from the last checkpoint, probed on the same dev items."""
    last = run.path / f"checkpoint-{run.read_json('result.json')['steps']}"
    changes = {
        "learning_rate": 2e-4,
        "max_train_items": options.mentions,
        "steps": options.coref_steps,
        "batch_size": 32,
    }
    config = update_config(CorefConfig(checkpoint=str(last)), changes)
    job = CorefJob(config, texts[:2], probes=tuple(items))
    return coref(job, options.folder / "coref", ("target", "mlm", "both"))


if __name__ == "__main__":
    main()
