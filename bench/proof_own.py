"""Proof of users' own tasks on real data: from `danseo data describe` to scored runs of a baseline and a small encoder.

    python bench/proof_own.py [--data DIR] [--folder DIR] [--model NAME] [--share S] [--only NAME …]

Everything goes through the command line, as a user would do it. Of each set the first rows are taken, so many that all
of it takes some 25 minutes of one core; the table is what docs/results.md quotes.
"""

import argparse
import gzip
import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.metrics.tagging import list_entities
from danseo.tasks import TASKS

ROOT = Path(__file__).parents[1]
DEV_ROWS = 500
COLUMNS = ("data", "rows", "metric", "model", "n", "all of dev", "95 % interval", "majority", "processor seconds")


def text_of(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8")


def lines(path: Path, rows: int) -> str:
    """The header and the first rows."""
    return "\n".join(text_of(path).split("\n")[: rows + 1]) + "\n"


def blocks(path: Path, rows: int) -> str:
    """The first sentences of a CoNLL file."""
    return "\n\n".join(re.split(r"\n\s*\n", text_of(path).strip())[:rows]) + "\n\n"


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


def types(path: Path, rows: int) -> str:
    """KLUE-NER's sentences with the types of their entities: several labels for a text."""
    names = {"PS": "인물", "LC": "장소", "OG": "기관", "DT": "날짜", "TI": "시간", "QT": "수량"}
    found = []
    for example in TASKS["ner"].read(path)[:rows]:
        labels = sorted({names[kind] for _, _, kind in list_entities(example.gold)})
        found.append(json.dumps({"sentence": example.text, "types": labels}, ensure_ascii=False) + "\n")
    return "".join(found)


def articles(path: Path, rows: int) -> str:
    """The questions of the first articles of a SQuAD file, up to so many."""
    return _squad(path, rows, from_end=False)


def last_articles(path: Path, rows: int) -> str:
    """The questions of the last articles: KorQuAD's train file is not to be had here, so its dev file is parted."""
    return _squad(path, rows, from_end=True)


def _squad(path: Path, rows: int, *, from_end: bool) -> str:
    data = json.loads(text_of(path))["data"]
    kept: list[Any] = []
    for article in reversed(data) if from_end else data[: len(data) * 3 // 4]:
        if sum(len(paragraph["qas"]) for one in kept for paragraph in one["paragraphs"]) >= rows:
            break
        kept.append(article)
    return json.dumps({"data": kept}, ensure_ascii=False)


Cut = Callable[[Path, int], str]


@dataclass(frozen=True)
class Case:
    """Two files, what is taken of them, the baseline that can learn it, and settings that the encoder needs there."""

    train: str
    dev: str
    suffix: str
    rows: int
    cut: Cut = lines
    baseline: str = "linear"
    cut_dev: Cut | None = None
    settings: tuple[str, ...] = ()


KOBEST, KORQUAD = "other/kobest", "other/korquad/KorQuAD_v1.0_dev.json"
NER, RE = "klue/klue-ner-v1.1/klue-ner-v1.1", "klue/klue-re-v1.1/klue-re-v1.1"
CASES = {
    "nsmc-half": Case("other/nsmc/ratings_valid.txt", "other/nsmc/ratings_test.txt", ".txt", 3000),
    "korsts-own": Case("other/kornlu/KorSTS/sts-train.tsv", "other/kornlu/KorSTS/sts-dev.tsv", ".tsv", 2000),
    "copa": Case(f"{KOBEST}/COPA/train.tsv", f"{KOBEST}/COPA/dev.tsv", ".tsv", 1500, baseline="majority"),
    "people": Case(f"{RE}_train.json", f"{RE}_dev.json", ".jsonl", 1500, relations),
    "gsd": Case(
        "other/ud/ko_gsd-ud-train.conllu.gz", "other/ud/ko_gsd-ud-dev.conllu.gz", ".conllu", 1000, blocks, "majority"
    ),
    "boolq": Case(f"{KOBEST}/BoolQ/train.tsv", f"{KOBEST}/BoolQ/dev.tsv", ".tsv", 1000),
    "wnut": Case(
        "english_ner/wnut17/wnut17train.conll", "english_ner/wnut17/emerging.dev.conll", ".conll", 1000, blocks,
        "majority",
    ),
    "sentineg": Case(f"{KOBEST}/SentiNeg/train.tsv", f"{KOBEST}/SentiNeg/dev.tsv", ".tsv", 1500),
    "types": Case(f"{NER}_train.tsv", f"{NER}_dev.tsv", ".jsonl", 1500, types),
    "korquad-own": Case(
        KORQUAD, KORQUAD, ".json", 800, articles, "majority", last_articles, ("max_length=256", "epochs=2")
    ),
}  # fmt: skip


def danseo(folder: Path, *arguments: object) -> str:
    """A command in the folder, with its output."""
    print("$ danseo", *arguments, flush=True)
    command = [sys.executable, "-P", "-m", "danseo", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout


def packed(path: Path) -> Path:
    """The file, plain or gzipped."""
    return path if path.exists() else path.with_name(f"{path.name}.gz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--folder", type=Path, default=Path("proof-own"))
    parser.add_argument("--model", default="mini", help="An encoder, as after -m of danseo train.")
    parser.add_argument("--share", type=float, default=1.0, help="Of the rows of each set, to try it out.")
    parser.add_argument("--only", nargs="*", choices=list(CASES), help="Some of the data alone.")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name in options.only or list(CASES):
        described(options.folder, name, options.data, options.share)
        for model in (CASES[name].baseline, options.model):
            found.append(scored(options.folder, name, model, round(CASES[name].rows * options.share)))
            print(found[-1], flush=True)
    print(f"\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    print("\n".join(found))


def described(folder: Path, name: str, data: Path, share: float) -> None:
    """The files of a case, and the task file that danseo makes of them."""
    case = CASES[name]
    for split, source, rows in (("train", case.train, case.rows * share), ("dev", case.dev, DEV_ROWS)):
        cut = (case.cut_dev or case.cut) if split == "dev" else case.cut
        text = cut(packed(data / source), max(1, round(rows)))
        (folder / f"{name}_{split}{case.suffix}").write_text(text, "utf-8")
    files = [f"{name}_{split}{case.suffix}" for split in ("train", "dev")]
    print(danseo(folder, "data", "describe", *files, "--out", f"{name}.toml", "--force"))
    print(danseo(folder, "data", "check", f"{name}.toml"), flush=True)


def scored(folder: Path, name: str, model: str, rows: int) -> str:
    """One row of the table."""
    before = _processor()
    given = () if model in ("linear", "majority") else ("evals_per_epoch=2", *CASES[name].settings)
    settings = [word for setting in given for word in ("--set", setting)]
    found = json.loads(danseo(folder, "train", f"{name}.toml", "-m", model, *settings, "--json"))
    scores = json.loads((folder / found["run"] / "scores.json").read_text("utf-8"))
    headline = next(s for s in scores["scores"]["dev"] if s["id"] == scores["headline"])
    baseline = scores["baselines"]["dev"]["majority"][scores["headline"]]
    low, high = headline["interval"] or (float("nan"), float("nan"))
    shown = f"{baseline:.1f}" if baseline is not None else "–"
    label = model if "/" not in model else Path(model).name
    return (
        f"| {name} | {rows:,} | `{headline['id']}` | {label} | {headline['n']:,} | {headline['value']:.1f} | "
        f"{low:.1f} – {high:.1f} | {shown} | {_processor() - before:.0f} |"
    )


def _processor() -> float:
    """The seconds that the commands so far have computed."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


if __name__ == "__main__":
    main()
