"""Convert a checkpoint with pickled weights to safetensors, in a separate process."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, NetworkError, WorkFailed
from danseo.export.base import ExportFormat, ExportRequest
from danseo.files import read_json
from danseo.launcher import PYTHON

_INDEX = "pytorch_model.bin.index.json"
_COPIED = (".json", ".txt", ".model", ".vocab", ".md")
_PATTERNS = ["pytorch_model*.bin", _INDEX, "*.json", "*.txt", "*.model"]
_SCRIPT = """
import sys
import torch
from safetensors.torch import save_file

source, target = sys.argv[1:]
found = torch.load(source, map_location="cpu", weights_only=True)
found = found.get("state_dict", found) if isinstance(found, dict) else found
tensors = {str(name): value for name, value in found.items() if isinstance(value, torch.Tensor)}
if not tensors:
    sys.exit("no weights in it")
save_file({name: value.detach().clone().contiguous() for name, value in tensors.items()}, target, {"format": "pt"})
print(len(tensors))
"""  # runs in another process with -c and -I: code in the file cannot reach this one


def convert_checkpoint(request: ExportRequest) -> dict[str, Any]:
    """Write a folder with the checkpoint in safetensors."""
    source = _find_checkpoint(request.source)
    default = f"{Path(request.source).name}-safetensors"
    out = Path(request.out) if request.out else Path(default)
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise DanseoError(f"{out} exists already; name a new folder with --out")
    files = _find_pickles(source)
    with tempfile.TemporaryDirectory(dir=_make_parent(out)) as temporary:
        draft = Path(temporary) / "draft"
        draft.mkdir()
        counts = [_convert_file(source / old, draft / new) for old, new in files.items()]
        _copy_settings(source, draft, files)
        if out.is_dir():
            out.rmdir()
        draft.rename(out)
    return {"out": str(out), "weights": sum(counts), "files": len(files)}


def _make_parent(out: Path) -> Path:
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    return out.absolute().parent


def _find_checkpoint(source: str) -> Path:
    """Return the checkpoint's folder; download a Hub id without its code."""
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    name, _, revision = source.partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=_PATTERNS))
    except Exception as error:  # the Hub's library raises many types
        reason = " ".join(str(error).split())[:160]
        raise NetworkError(f"not a folder, and not available on the Hub: {source} ({reason}); check the name") from None


def _find_pickles(folder: Path) -> dict[str, str]:
    """Return the names of the pickled files and of their safetensors."""
    if any(folder.glob("*.safetensors")):
        raise DanseoError(f"{folder} has safetensors weights already; use it unchanged")
    if (folder / _INDEX).is_file():
        index = read_json(folder / _INDEX)
        names = sorted({str(name) for name in index.get("weight_map", {}).values()}) if isinstance(index, dict) else []
        if not names or any(Path(name).name != name for name in names):
            raise DanseoError(f"{folder / _INDEX} does not name its parts; get the checkpoint again")
        return {name: name.replace("pytorch_model", "model").replace(".bin", ".safetensors") for name in names}
    if (folder / "pytorch_model.bin").is_file():
        return {"pytorch_model.bin": "model.safetensors"}
    raise DanseoError(f"{folder} has no pytorch_model.bin; name a checkpoint folder or a Hub id")


def _convert_file(source: Path, target: Path) -> int:
    """Convert one file in a process without credentials; return the number of weights."""
    hidden = ("TOKEN", "KEY", "SECRET", "PASSWORD")
    safe = {name: value for name, value in os.environ.items() if not any(word in name.upper() for word in hidden)}
    ended = subprocess.run(
        [*PYTHON, "-I", "-c", _SCRIPT, str(source.resolve()), str(target)],
        capture_output=True, text=True, env=safe,
    )  # fmt: skip
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()
        reason = next((line for line in reversed(lines) if line.strip()), "the process was ended")
        refused = "Weights only" in ended.stderr or "weights_only" in ended.stderr or "Unsupported" in ended.stderr
        why = "it holds more than weights, so danseo does not load it" if refused else " ".join(reason.split())[:160]
        raise WorkFailed(f"{source} was not converted to safetensors: {why}")
    return int(ended.stdout.split()[-1])


def _copy_settings(source: Path, draft: Path, files: dict[str, str]) -> None:
    """Copy settings and tokenizer, without code and pickles."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix in _COPIED and path.name != _INDEX:
            shutil.copyfile(path, draft / path.name)
    if (source / _INDEX).is_file():
        index = read_json(source / _INDEX)
        index["weight_map"] = {name: files[part] for name, part in index["weight_map"].items()}
        (draft / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", "utf-8")


FORMAT = ExportFormat(
    "safetensors", "a checkpoint (folder or Hub id) with pickled weights, converted to safetensors", convert_checkpoint,
    packages=("torch", "safetensors"),
)  # fmt: skip
