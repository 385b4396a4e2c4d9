"""Upload a run to the Hub: its model and its card in a repository."""

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, NetworkError
from danseo.export.base import ExportFormat, ExportOption, ExportRequest
from danseo.export.card import make_card_files
from danseo.files import write_atomically
from danseo.runs.index import Record

_PRIVATE = ExportOption("private", "create a private repository.")
_RUN_FILES = ("config.toml", "environment.json", "scores.json")


def stage_files(record: Record, repository: str, folder: Path) -> list[str]:
    """Write the files of the repository into a folder: card, model and run settings; return their names."""
    if not (record.run.path / "model").is_dir():
        raise DanseoError(f"no model/ to upload: {record.run.path}; ensembles have none, upload a member run")
    for name, text in make_card_files(record, repository).items():
        write_atomically(folder / name, text)
    for name in _RUN_FILES:
        shutil.copyfile(record.run.path / name, folder / name)
    shutil.copytree(record.run.path / "model", folder / "model")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def upload_run(request: ExportRequest) -> dict[str, Any]:
    """Upload a run to OWNER/NAME with the token of the environment."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    repository = request.out or ""
    if not re.fullmatch(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", repository) or ".." in repository:
        raise DanseoError(f"--out {repository or '(nothing)'}: name the repository as OWNER/NAME")
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "TRUE", "YES", "ON"):
        raise NetworkError("HF_HUB_OFFLINE is set: nothing can be uploaded; unset it to reach the Hub")
    record = request.record
    with tempfile.TemporaryDirectory() as temporary:
        names = stage_files(record, repository, Path(temporary))
        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=os.environ.get("HF_TOKEN"))
        try:
            api.create_repo(repository, private=bool(request.options.get("private")), exist_ok=True)
            done = api.upload_folder(
                folder_path=temporary, repo_id=repository, commit_message=f"danseo: {record.run.path.name}"
            )
        except (HfHubHTTPError, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise NetworkError(f"the Hub rejected {repository}: {reason}; check HF_TOKEN and the name") from None
    return {"out": repository, "files": len(names), "address": str(done)}


FORMAT = ExportFormat(
    "hub", "model and card in a repository on the Hub (--out OWNER/NAME, --private)", upload_run, options=(_PRIVATE,)
)
