"""Compare decoder-only language models with adapters, bidirectional and causal, with the linear baseline on real data.

    python bench/proof_decoders.py MODEL [--data DIR] [--folder DIR] [--train N] [--dev N] [--epochs N] [--max-length N]
                                          [--attention bidirectional,causal] [TASK …]

The first examples of each file make the data. Runs go into the folder and are resumed; docs/results.md has the table.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from danseo.data import find
from danseo.display.table import Table, to_markdown
from danseo.experiment import run_experiment
from danseo.files import read_bytes
from danseo.models.registry import configure_run
from danseo.runs.scores import get_headline
from danseo.tasks import get_task

ROOT = Path(__file__).parents[1]
SETTINGS = {"encoder.lora_rank": 16, "learning_rate": 5e-4, "batch_size": 16, "evals_per_epoch": 1}
OF_TASK: dict[str, dict[str, Any]] = {"re": {"encoder.markers": "typed_punct_korean", "encoder.add_query": True}}
"""Relations: types in words that the model knows, and the question first, so that the last piece has seen both."""
WITH_LINEAR = ("ynat", "sts", "nli", "re")


def shortened(root: Path, folder: Path, name: str, counts: dict[str, int]) -> None:
    """The first examples of a task's files."""
    task = get_task(name)
    for split, count in counts.items():
        target = folder / task.folder / task.file(split)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = read_bytes(find.require_file(task, split, root)).decode()
        if target.suffix == ".json":
            found = json.loads(text)
            cut = {**found, "data": found["data"][:count]} if isinstance(found, dict) else found[:count]  # passages
            target.write_text(json.dumps(cut, ensure_ascii=False), encoding="utf-8")
        else:
            target.write_text("\n\n".join(text.split("\n\n")[:count]) + "\n\n", encoding="utf-8")


def scored(name: str, model: str, settings: dict[str, Any], data: Path, runs: Path) -> tuple[object, ...]:
    """A row: the headline on all of the shortened dev with its interval, and how long it took."""
    run = run_experiment(configure_run(name, model, "default", settings), data, runs)
    found, facts = get_headline(run.read_json("scores.json"), "dev"), run.read_json("environment.json")
    assert found is not None
    low, high = found["interval"]
    return (found["value"], f"{low:.2f} – {high:.2f}", f"{facts.get('wall_seconds', 0):.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("tasks", nargs="*", default=["sts", "ner", "nli", "re"])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "danseo" / "proof-decoders")
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--dev", type=int, default=500)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--attention", default="bidirectional,causal")
    given = parser.parse_intermixed_args()
    data = given.folder / f"data-{given.train}-{given.dev}"
    columns = ("task", "system", "headline", "95 % interval", "seconds")
    rows: list[tuple[object, ...]] = []
    for name in given.tasks:
        shortened(given.data, data, name, {"train": given.train, "dev": given.dev})
        if name in WITH_LINEAR:
            rows.append((name, "linear", *scored(name, "linear", {}, data, given.folder / "runs")))
        for attention in given.attention.split(","):
            settings = {**SETTINGS, **OF_TASK.get(name, {}), "epochs": given.epochs, "max_length": given.max_length}
            settings["encoder.attention_direction"] = attention
            rows.append((name, attention, *scored(name, given.model, settings, data, given.folder / "runs")))
        print(to_markdown(Table("decoders", columns, rows)), flush=True)


if __name__ == "__main__":
    main()
