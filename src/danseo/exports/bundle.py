"""A run as one zip that anybody can verify: predictions, settings, environment, scores and their hashes."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danseo import __version__
from danseo.errors import DanseoError
from danseo.exports.format import Format, Request
from danseo.files import read_bytes, write_atomically
from danseo.runs.answers import dev_hash
from danseo.runs.directory import OWN_TASK
from danseo.runs.index import Record
from danseo.runs.scores import headline_of

MANIFEST = "manifest.json"
FILES = ("config.toml", "environment.json", "scores.json", "predictions/dev.jsonl")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say: the same run gives the same bytes


def bundle_files(record: Record) -> dict[str, bytes]:
    """Name in the bundle -> content, the manifest first."""
    own = (OWN_TASK,) if (record.run.path / OWN_TASK).is_file() else ()
    files = {name: read_bytes(record.run.path / name) for name in (*FILES, *own)}
    manifest = {
        "danseo": __version__,
        "run": record.run.path.resolve().name,
        "task": record.task,
        "dev_sha256": dev_hash(record),
        "headline": headline_of(record.scores),
        "reported_on": record.scores["reported_on"],
        "selected_on": record.scores["selected_on"],
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    return {MANIFEST: (json.dumps(manifest, ensure_ascii=False, indent=2) + "\n").encode(), **files}


def pack(files: Mapping[str, bytes]) -> bytes:
    """A zip of these files in this order, the same bytes every time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(entry, content, compresslevel=9)
    return buffer.getvalue()


def write(request: Request) -> dict[str, Any]:
    """Write the bundle of a run."""
    path = request.path(".zip")
    if path.suffix != ".zip":
        raise DanseoError(f"{path}: a bundle is a zip file; end its name in .zip")
    content = pack(bundle_files(request.record))
    write_atomically(path, content)
    return {"out": str(path), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), **_next(path)}


def _next(path: Path) -> dict[str, str]:
    return {"verify": f"danseo score --bundle {path}"}


FORMAT = Format("bundle", "predictions, settings, environment, scores and hashes in one zip to verify", write)
