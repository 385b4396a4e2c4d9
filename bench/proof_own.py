"""Proof of users' own tasks on real data: from `danseo data describe` to scored runs, a floor and a small encoder each.

    python bench/proof_own.py [--data DIR] [--folder DIR] [--encoder FOLDER] [--rows N]

Everything goes through the command line, as a user would do it. The table is what docs/findings.md quotes.
"""

import argparse
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from danseo.data import find
from danseo.demo import texts_of
from danseo.models.scratch import Size, make_encoder
from danseo.tasks import get_task

ROOT = Path(__file__).parents[1]
SETTINGS = ("epochs=4", "learning_rate=1e-3", "evaluations=1", "max_length=128")


def text_of(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8")


def lines(path: Path, rows: int) -> str:
    """The header and the first rows."""
    return "\n".join(text_of(path).split("\n")[: rows + 1]) + "\n"


def blocks(path: Path, rows: int) -> str:
    """The first sentences of a CoNLL file."""
    return "\n\n".join(text_of(path).strip().split("\n\n")[:rows]) + "\n\n"


def relations(path: Path, rows: int) -> str:
    """KLUE-RE's columns with other labels: people, organisations, nothing."""
    names = {"per": "인물", "org": "조직", "no_relation": "관계없음"}
    found = []
    for row in json.loads(text_of(path))[:rows]:
        entities = {key: _entity(row[f"{key}_entity"]) for key in ("subject", "object")}
        label = names[row["label"].split(":")[0]]
        found.append({"id": row["guid"], "sentence": row["sentence"], **entities, "label": label})
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)


def _entity(entity: dict[str, Any]) -> dict[str, Any]:
    return {"start": entity["start_idx"], "end": entity["end_idx"] + 1, "type": entity["type"]}


Cut = Callable[[Path, int], str]
CASES: dict[str, tuple[str, str, str, Cut, str]] = {
    "nsmc-half": ("other/nsmc/ratings_valid.txt", "other/nsmc/ratings_test.txt", ".txt", lines, "linear"),
    "korsts-own": ("other/kornlu/KorSTS/sts-train.tsv", "other/kornlu/KorSTS/sts-dev.tsv", ".tsv", lines, "linear"),
    "boolq": ("other/kobest/BoolQ/train.tsv", "other/kobest/BoolQ/dev.tsv", ".tsv", lines, "linear"),
    "sentineg": ("other/kobest/SentiNeg/train.tsv", "other/kobest/SentiNeg/dev.tsv", ".tsv", lines, "linear"),
    "wnut": (
        "english_ner/wnut17/wnut17train.conll", "english_ner/wnut17/emerging.dev.conll", ".conll", blocks, "majority",
    ),
    "gsd": (
        "other/ud/ko_gsd-ud-train.conllu.gz", "other/ud/ko_gsd-ud-dev.conllu.gz", ".conllu", blocks, "majority",
    ),
    "people": (
        "klue/klue-re-v1.1/klue-re-v1.1_train.json.gz", "klue/klue-re-v1.1/klue-re-v1.1_dev.json", ".jsonl",
        relations, "linear",
    ),
}  # fmt: skip


def danseo(folder: Path, *arguments: object) -> str:
    """A command in the folder, with its output."""
    print("$ danseo", *arguments, flush=True)
    command = [sys.executable, "-m", "danseo", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout


def training_texts(folder: Path) -> Iterator[str]:
    for name in CASES:
        for example in find.load(get_task(str(folder / f"{name}.toml")), "train", folder):
            yield from texts_of(example)
            yield " ".join(getattr(example, "words", ()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--folder", type=Path, default=Path("proof-own"))
    parser.add_argument("--encoder", type=Path, help="A checkpoint folder; without it a small one from nothing.")
    parser.add_argument("--rows", type=int, default=1500)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, (train, dev, suffix, cut, _) in CASES.items():
        for split, source, rows in (("train", train, options.rows), ("dev", dev, 500)):
            (folder / f"{name}_{split}{suffix}").write_text(cut(options.data / source, rows), "utf-8")
        files = [f"{name}_{split}{suffix}" for split in ("train", "dev")]
        print(danseo(folder, "data", "describe", *files, "--out", f"{name}.toml", "--force"))
        print(danseo(folder, "data", "check", f"{name}.toml"))
    encoder = options.encoder or make_encoder(
        folder / "encoder", training_texts(folder), "bert", Size(layers=2, hidden=128, heads=2, vocabulary=6000)
    )
    rows = [
        row
        for name, case in CASES.items()
        for model in (case[4], str(encoder.resolve()))
        for row in [scored(folder, name, model)]
    ]
    columns = ("data", "metric", "model", "n", "all of dev", "95 % interval", "majority", "seconds")
    print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    print("\n".join(rows))


def scored(folder: Path, name: str, model: str) -> str:
    """One row of the table."""
    started = time.perf_counter()
    settings = [] if model in ("linear", "majority") else [word for s in SETTINGS for word in ("--set", s)]
    found = json.loads(danseo(folder, "train", f"{name}.toml", "-m", model, *settings, "--json"))
    scores = json.loads((folder / found["run"] / "scores.json").read_text("utf-8"))
    headline = next(s for s in scores["scores"]["dev"] if s["id"] == scores["headline"])
    floor = scores["floors"]["dev"]["majority"][scores["headline"]]
    low, high = headline["interval"] or (float("nan"), float("nan"))
    shown = f"{floor:.1f}" if floor is not None else "–"
    seconds = time.perf_counter() - started
    label = model if "/" not in model else Path(model).name
    return (
        f"| {name} | `{headline['id']}` | {label} | {headline['n']:,} | {headline['value']:.1f} | "
        f"{low:.1f} – {high:.1f} | {shown} | {seconds:.0f} |"
    )


if __name__ == "__main__":
    main()
