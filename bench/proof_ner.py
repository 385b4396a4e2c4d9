"""Proof on real data: systems of every sort on the same sentences of KLUE-NER, and the table of all of them.

    make proof-ner ENCODER=FOLDER GEMMA=FOLDER      # both optional
    python bench/proof_ner.py [--data DIR] [--folder DIR] [--train N] [--dev N] [--encoder FOLDER] [--gemma FOLDER]

Each system is a command of its own; runs go into the folder, finished ones are kept and broken ones go on, so that the
proof may be stopped at any time. docs/results.md has the table. An encoder of yours and a language model are optional.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from measuring import texts_of
from proof_decoders import shortened

from danseo.data import find
from danseo.hub import find_model_folder
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.tasks import get_task

ROOT = Path(__file__).parents[1]
SIZE = EncoderSize(layers=4, hidden=256, heads=4, vocabulary=8000, positions=512)
PROMPT = """== system ==
문장에서 개체명을 찾아 "개체명<탭>종류<탭>번호"로 씁니다.
== user ==
문장: {{text}}
== end ==
"""
FEW = ("--set", "evals_per_epoch=1", "--epochs", "4")


def parse_template() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--folder", type=Path, default=Path("proof-ner"))
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--dev", type=int, default=300)
    parser.add_argument("--encoder", default=os.environ.get("ENCODER"), help="a checkpoint folder or Hub id")
    parser.add_argument("--gemma", default=os.environ.get("GEMMA"), help="a small language model")
    parser.add_argument(
        "--replies", type=int, default=400, help="sentences from which the language model learns replies"
    )
    return parser.parse_args()


def systems(options: argparse.Namespace) -> list[list[str]]:
    """What is trained, the quickest first."""
    prompt = options.folder / "prompt.txt"
    prompt.write_text(PROMPT, encoding="utf-8")
    rows = [["majority"], ["spacy"], [str(options.folder / "scratch"), *FEW, "--lr", "5e-4"]]
    if options.encoder:
        rows.append([options.encoder, *FEW, "--lr", "3e-4"])
        rows.append([f"gliner:{finder_on(options.folder / 'gliner', options.encoder)}", *FEW, "--lr", "3e-4"])
    rows.append(["spacy", "--set", "tokenizer=characters"])
    if options.gemma:
        short = ["--prompt", str(prompt), "--set", "output_format=tsv", "--set", "max_new_tokens=160"]
        rows.append([f"llm:{options.gemma}", *short, "--limit", str(options.replies), "--epochs", "1", "--lr", "5e-4"])
        rows.append(
            [
                options.gemma,
                "--set",
                "encoder.lora_rank=16",
                "--lr",
                "5e-4",
                "--epochs",
                "1",
                "--set",
                "evals_per_epoch=1",
            ]
        )
    return rows


def finder_on(folder: Path, encoder: str) -> Path:
    """GLiNER's boundary architecture on an encoder: its heads know nothing yet."""
    if not (folder / "model.safetensors").is_file():
        import torch
        from gliner2 import AutoExtractor
        from gliner2.configuration import ExtractorConfig

        torch.manual_seed(0)
        body = str(find_model_folder(encoder) or encoder)
        extractor = AutoExtractor.from_config(ExtractorConfig(model_name=body, architecture="boundary"))
        extractor.save_pretrained(folder)
        extractor.processor.tokenizer.save_pretrained(folder)
    return folder


def danseo(*arguments: str) -> bool:
    """A command in a process of its own; whether it went well."""
    print(f"danseo {' '.join(arguments)}", file=sys.stderr, flush=True)
    return subprocess.run([sys.executable, "-P", "-m", "danseo", *arguments], check=False).returncode == 0


def main() -> None:
    options = parse_template()
    if not options.data.is_dir():
        sys.exit(f"proof_ner: the real KLUE files are not in {options.data}; name their folder with --data")
    task, data, runs = get_task("ner"), options.folder / "data", str(options.folder / "runs")
    shortened(options.data, data, "ner", {"train": options.train, "dev": options.dev})
    if not (options.folder / "scratch" / "model.safetensors").is_file():
        texts = (text for example in find.load(task, "train", data) for text in texts_of(example))
        make_encoder(options.folder / "scratch", texts, "modernbert", SIZE)
    failed = [
        model
        for model, *settings in systems(options)
        if not danseo("train", "ner", "-m", model, "--data", str(data), "--runs", runs, *settings)
    ]
    danseo("runs", runs, "--table", "ner-systems", "--data", str(data), "--format", "markdown")
    if failed:
        sys.exit(f"proof_ner: {', '.join(failed)} did not end; the same command goes on")


if __name__ == "__main__":
    main()
