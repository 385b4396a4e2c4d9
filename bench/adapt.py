"""Task-adaptive training: an encoder goes on by masked words on the train texts of tasks, each text once, none of dev.

    python bench/adapt.py [-m MODEL] [--data DIR] [--folder DIR] [--epochs N] [TASK …]
    python bench/proof.py -m FOLDER/adapted/model --recipe small TASK …

The first command writes the texts and trains; the second one shows what that is worth beside the encoder as it was.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from measuring import texts_of

from danseo.data import find
from danseo.tasks import TASKS, get_task

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "train.learning_rate": 1e-3,
    "train.lr_scheduler_type": "linear",
    "train.batch_size": 64,
    "save.checkpoints": 4,
}


def train_texts(root: Path, names: list[str]) -> list[str]:
    """The texts of train that do not stand in the dev file of any task."""
    held_out = {
        text for task in TASKS.values() for example in find.load(task, "dev", root) for text in texts_of(example)
    }
    found: dict[str, None] = {}
    for name in names:
        for example in find.load(get_task(name), "train", root):
            found |= dict.fromkeys(text for text in texts_of(example) if text not in held_out)
    return list(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=["ynat", "nli", "sts"])
    parser.add_argument("-m", "--model", default="mini")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--folder", type=Path, default=Path("proof"))
    parser.add_argument("--epochs", default="2")
    options = parser.parse_intermixed_args()
    texts = train_texts(options.data, options.tasks)
    file: Path = options.folder / "train-texts.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n\n".join(" ".join(text.split()) for text in texts) + "\n", encoding="utf-8")
    print(f"{len(texts):,} texts in {file}", flush=True)
    command = [sys.executable, "-P", "-m", "danseo", "pretrain", "--config", "mini", "--from", options.model]
    command += ["--text", str(file), "--epochs", options.epochs, "--out", str(options.folder / "adapted")]
    for key, value in SETTINGS.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
