"""How much of KLUE's dev texts stands in the text that the bundled model is pre-trained on: 13 words in a row.

    python bench/overlap.py [--data DIR] [--text FILES …]

Only texts of 13 words and more count: shorter ones are common phrases as often as copies.
KLUE takes much of its text from Wikipedia.
"""

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from measuring import texts_of

from danseo.data import find
from danseo.display.table import Table, to_markdown
from danseo.mlm.overlap import NGRAM_WORDS, OverlapCounter
from danseo.tasks import TASKS
from danseo.text.documents import find_text_files, read_documents

ROOT = Path(__file__).parents[1]


def long_texts(root: Path, task: Any) -> list[str]:
    """The dev texts of a task that have runs at all, each once."""
    examples = find.load(task, "dev", root)
    return sorted({text for example in examples for text in texts_of(example) if len(text.split()) >= NGRAM_WORDS})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "klue")
    parser.add_argument("--text", type=Path, nargs="+", default=[ROOT.parent / "shared" / "data" / "text" / "kowiki"])
    options = parser.parse_args()
    texts = {task.short: long_texts(options.data, task) for task in TASKS.values()}
    items: list[Any] = [SimpleNamespace(text=text) for found in texts.values() for text in found]
    files = [file for path in options.text for file in find_text_files(path)]
    overlap = OverlapCounter(items)
    for document in (document for file in files for document in read_documents(file.name, file)):
        overlap.match(document.text)
    met = {item.text for item, is_met in zip(items, overlap.met, strict=True) if is_met}
    rows: list[tuple[object, ...]] = [
        (name, len(found), sum(text in met for text in found), 100 * sum(t in met for t in found) / max(1, len(found)))
        for name, found in texts.items()
    ]
    print(to_markdown(Table("", ("task", f"dev texts of {NGRAM_WORDS} words and more", "met", "%"), rows)))


if __name__ == "__main__":
    main()
