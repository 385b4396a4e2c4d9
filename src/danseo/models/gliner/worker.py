# /// script
# requires-python = ">=3.10"
# dependencies = ["gliner>=0.2.20", "transformers>=4.51,<5.17"]
# ///
"""Run a classic GLiNER checkpoint in its own environment: requests and replies are JSON lines.

{"load": "FOLDER_OR_ID", "trust_remote_code": false}       -> {"ready": "0.2.29"}
{"texts": [...], "labels": [...], "threshold": 0.05}       -> {"spans": [[[start, end, label, score], ...], ...]}
A failure is {"error": "..."}, a checkpoint that is not allowed {"refused": "..."}.
This file does not import danseo, so that any Python with gliner can run it.
"""

import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any


class Refused(ValueError):
    """A checkpoint that must not be loaded."""


LETTER = re.compile(r"\S[\u0300-\u036f\u1160-\u11ff\u200d\ufe0f]*")


def split(text: str, *rest: Any, **more: Any) -> Any:
    """Split a text into characters; a decomposed syllable is one character."""
    return ((letter[0], letter.start(), letter.end()) for letter in LETTER.finditer(text))


def guard() -> Any:
    """Load the module that prevents model code from running; it does not need danseo."""
    place = Path(__file__).resolve().parents[1] / "remote_code.py"
    spec = importlib.util.spec_from_file_location("remote_code", place)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(name: str, is_trusted: bool = False) -> tuple[Any, str]:
    """Load a checkpoint with safetensors that splits texts into characters."""
    import gliner

    folder = Path(name)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        patterns = ["*.json", "*.safetensors", "*.txt", "*.model"]
        folder = Path(snapshot_download(name, allow_patterns=patterns))
    if not any(folder.glob("*.safetensors")):
        raise Refused(f"{name} has no safetensors weights")
    rules = guard()
    if not is_trusted and (found := rules.find_code(folder)):
        raise Refused(f"model code is not allowed: {folder / found}; allow it with --trust-remote-code")
    try:
        with rules.no_model_code(is_trusted):
            model = gliner.GLiNER.from_pretrained(str(folder), local_files_only=True)
    except rules.CodeRefused as error:
        raise Refused(str(error)) from error
    model.data_processor.words_splitter = split
    model.float().eval()  # parts in half precision do not meet parts that are not
    return model, getattr(gliner, "__version__", "unknown")


def answer(model: Any, request: dict[str, Any]) -> list[Any]:
    """Return the spans of each text."""
    options = {"flat_ner": False, "threshold": request["threshold"], "multi_label": False}
    found = model.inference(request["texts"], request["labels"], **options)
    return [[[one["start"], one["end"], one["label"], float(one["score"])] for one in listed] for listed in found]


def main() -> None:
    """Answer requests until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print goes to stderr
    model: Any = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if "load" in request:
                model, version = load(request["load"], request.get("trust_remote_code") is True)
                reply: dict[str, Any] = {"ready": version}
            else:
                reply = {"spans": answer(model, request)}
        except Refused as error:
            reply = {"refused": str(error)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply, ensure_ascii=False) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
