"""The bundled sample: a small substitute for KLUE in the official formats, and prediction files for it, gzipped."""

from pathlib import Path

from danseo.files import read_bytes, write_atomically

SAMPLE = Path(__file__).parent
"""The folder of the files; find.py reads it like any data folder."""


def packed_file(name: str) -> Path:
    """Return the file of the sample for an official file name: klue-dp-v1.1_dev.tsv is in dp_dev.tsv.gz."""
    return SAMPLE / f"{name.removeprefix('klue-').replace('-v1.1', '')}.gz"


def write_sample(folder: Path) -> list[Path]:
    """Write all files of the sample into a folder, unpacked, under their official names."""
    from danseo.tasks import TASKS

    files = {
        folder / task.folder / name: packed_file(name)
        for task in TASKS.values()
        for name in (task.file("train"), task.file("dev"), *task.companions)
    }
    predictions = SAMPLE.glob("predictions/*/*.gz")
    files |= {folder / packed.relative_to(SAMPLE).with_suffix(""): packed for packed in predictions}
    for path, packed in sorted(files.items()):
        write_atomically(path, read_bytes(packed))
    return sorted(files)
