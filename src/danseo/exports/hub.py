"""A run on the Hub: its model and its card in a repository."""

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, NetworkError
from danseo.exports.card import card_files
from danseo.exports.format import Format, Request
from danseo.files import write_atomically
from danseo.runs.index import Record

_KEPT = ("config.toml", "environment.json", "scores.json")


def staged(record: Record, repository: str, folder: Path) -> list[str]:
    """Put what belongs into the repository into a folder: the card, the model, and what danseo needs to load it."""
    if not (record.run.path / "model").is_dir():
        raise DanseoError(f"{record.run.path} has no model/ to upload; runs made of runs have none")
    for name, text in card_files(record, repository).items():
        write_atomically(folder / name, text)
    for name in _KEPT:
        shutil.copyfile(record.run.path / name, folder / name)
    shutil.copytree(record.run.path / "model", folder / "model")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def write(request: Request) -> dict[str, Any]:
    """Upload to OWNER/NAME; the token comes from the environment."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    repository = request.out or ""
    if not re.fullmatch(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", repository) or ".." in repository:
        raise DanseoError(f"--out {repository or '(nothing)'}: name the repository as OWNER/NAME")
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "TRUE", "YES", "ON"):
        raise NetworkError("HF_HUB_OFFLINE is set, so nothing is uploaded; unset it to reach the Hub")
    record = request.record
    with tempfile.TemporaryDirectory() as temporary:
        names = staged(record, repository, Path(temporary))
        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=os.environ.get("HF_TOKEN"))
        try:
            api.create_repo(repository, private=bool(request.options.get("private")), exist_ok=True)
            done = api.upload_folder(
                folder_path=temporary, repo_id=repository, commit_message=f"danseo: {record.run.path.name}"
            )
        except (HfHubHTTPError, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise NetworkError(f"the Hub did not take {repository}: {reason}; check HF_TOKEN and the name") from None
    return {"out": repository, "files": len(names), "address": str(done)}


FORMAT = Format(
    "hub", "model and card to OWNER/NAME on the Hub (--out OWNER/NAME, --private)", write, options=("private",)
)
