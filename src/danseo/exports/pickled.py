"""A checkpoint that has only pickled weights, turned into safetensors in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, NetworkError, WorkFailed
from danseo.exports.format import Format, Request
from danseo.files import parse_json, read_text

_INDEX = "pytorch_model.bin.index.json"
_BESIDE = (".json", ".txt", ".model", ".vocab", ".md")
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
"""  # run apart with -c and -I: what the file may do to that process, it cannot do to this one


def write(request: Request) -> dict[str, Any]:
    """Write a folder with the same checkpoint in safetensors."""
    source = _folder(request.source)
    default = f"{Path(request.source).name}-safetensors"
    out = Path(request.out) if request.out else Path(default)
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise DanseoError(f"{out} is there already; name a new folder with --out")
    files = _pickles(source)
    with tempfile.TemporaryDirectory(dir=_parent(out)) as temporary:
        draft = Path(temporary) / "draft"
        draft.mkdir()
        counts = [_converted(source / old, draft / new) for old, new in files.items()]
        _copy_beside(source, draft, files)
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_dir():
            out.rmdir()
        draft.rename(out)
    return {"out": str(out), "weights": sum(counts), "files": len(files)}


def _parent(out: Path) -> Path:
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    return out.absolute().parent


def _folder(source: str) -> Path:
    """The checkpoint's folder; a Hub id is fetched, without code."""
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    name, _, revision = source.partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=_PATTERNS))
    except Exception as error:  # the Hub's library raises many kinds
        reason = " ".join(str(error).split())[:160]
        raise NetworkError(f"{source} is no folder and could not be had from the Hub: {reason}") from None


def _pickles(folder: Path) -> dict[str, str]:
    """The pickled files and what they become."""
    if any(folder.glob("*.safetensors")):
        raise DanseoError(f"{folder} has safetensors weights already; use it as it is")
    if (folder / _INDEX).is_file():
        index = parse_json(read_text(folder / _INDEX), folder / _INDEX)
        names = sorted({str(name) for name in index.get("weight_map", {}).values()}) if isinstance(index, dict) else []
        if not names or any(Path(name).name != name for name in names):
            raise DanseoError(f"{folder / _INDEX} does not name its parts; get the checkpoint again")
        return {name: name.replace("pytorch_model", "model").replace(".bin", ".safetensors") for name in names}
    if (folder / "pytorch_model.bin").is_file():
        return {"pytorch_model.bin": "model.safetensors"}
    raise DanseoError(f"{folder} has no pytorch_model.bin; name a checkpoint folder or a Hub id")


def _converted(source: Path, target: Path) -> int:
    """Turn one file, in a process that sees no tokens and does nothing else."""
    hidden = ("TOKEN", "KEY", "SECRET", "PASSWORD")
    safe = {name: value for name, value in os.environ.items() if not any(word in name.upper() for word in hidden)}
    ended = subprocess.run(
        [sys.executable, "-I", "-c", _SCRIPT, str(source.resolve()), str(target)],
        capture_output=True, text=True, env=safe,
    )  # fmt: skip
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()
        reason = next((line for line in reversed(lines) if line.strip()), "the process was ended")
        refused = "Weights only" in ended.stderr or "weights_only" in ended.stderr or "Unsupported" in ended.stderr
        told = "it holds more than weights, which danseo does not load" if refused else " ".join(reason.split())[:160]
        raise WorkFailed(f"{source} was not turned into safetensors: {told}")
    return int(ended.stdout.split()[-1])


def _copy_beside(source: Path, draft: Path, files: dict[str, str]) -> None:
    """Settings and tokenizer; no code, no pickles."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix in _BESIDE and path.name != _INDEX:
            shutil.copyfile(path, draft / path.name)
    if (source / _INDEX).is_file():
        index = parse_json(read_text(source / _INDEX), source / _INDEX)
        index["weight_map"] = {name: files[part] for name, part in index["weight_map"].items()}
        (draft / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", "utf-8")


FORMAT = Format(
    "safetensors", "a checkpoint (folder or Hub id) that has only pickled weights, without pickles", write,
    packages=("torch", "safetensors"),
)  # fmt: skip
