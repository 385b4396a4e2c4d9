"""The built-in sample: a small KLUE of sentences made from templates, in the official formats and file names."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from danseo.files import write_atomically
from danseo.sample import dp, mrc, ner, nli, relation, sts, wos, ynat
from danseo.tasks import TASKS

_MAKERS: dict[str, Callable[[str, random.Random], Any]] = {
    "ynat": ynat.make,
    "sts": sts.make,
    "nli": nli.make,
    "ner": ner.make,
    "re": relation.make,
    "dp": dp.make,
    "mrc": mrc.make,
    "wos": wos.make,
}


def write_sample(folder: Path) -> list[Path]:
    """Write all files of the sample; the same ones every time."""
    contents: dict[Path, Any] = {}
    for name, make in _MAKERS.items():
        task = TASKS[name]
        for split in ("train", "dev"):
            rng = random.Random(f"danseo sample {name} {split}")
            contents[folder / task.folder / task.file(split)] = make(split, rng)
    contents[folder / TASKS["re"].folder / "relation_list.json"] = {"relations": list(TASKS["re"].labels)}
    contents[folder / TASKS["wos"].folder / "ontology.json"] = wos.ontology()
    for path, content in contents.items():
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        write_atomically(path, text)
    return list(contents)
