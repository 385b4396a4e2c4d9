"""Tiny random encoders of every family, and settings that train them in a moment."""

from pathlib import Path

from danseo.config import RunConfig, with_settings
from danseo.models.scratch import Size, make_encoder
from danseo.tasks import TASKS

FAMILIES = ("bert", "roberta", "electra", "deberta-v2", "xlm-roberta", "modernbert")
QUICK = {"precision": "fp32", "attention": "eager", "threads": 1, "batch_size": 8, "epochs": 1, "learning_rate": 1e-3}


def read_split(sample: Path, task: str, split: str, count: int | None = None) -> list:
    found = TASKS[task]
    return found.read(sample / found.folder / found.file(split))[:count]


def tiny_encoder(folder: Path, sample: Path, family: str = "bert", **measures) -> Path:
    """A checkpoint folder whose tokenizer knows the sample."""
    texts = [
        example.text for task in ("ynat", "ner", "re", "mrc") for example in read_split(sample, task, "train", 100)
    ]
    texts += [turn for example in read_split(sample, "wos", "train", 50) for turn in example.turns]
    chosen = {"layers": 2, "hidden": 32, "heads": 2, "vocabulary": 1500, "positions": 160, "dropout": 0.0, **measures}
    return make_encoder(folder, texts, family, Size(**chosen))


def quick_config(task: str, model: object, **settings) -> RunConfig:
    return with_settings(RunConfig(task=task, model=str(model)), {**QUICK, **settings})
