# /// script
# requires-python = ">=3.10"
# dependencies = ["gliner>=0.2.20", "transformers>=4.51,<5.17"]
# ///
"""Classic GLiNER checkpoints in an environment of their own: requests as JSON lines come in, answers go out.

{"load": "FOLDER_OR_ID"}                                   -> {"ready": "0.2.29"}
{"texts": [...], "labels": [...], "threshold": 0.05}       -> {"spans": [[[start, end, label, score], ...], ...]}
What goes wrong is {"error": "..."}. It knows nothing of danseo, so that any Python with gliner can run it.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

LETTER = re.compile(r"\S[\u0300-\u036f\u1160-\u11ff\u200d\ufe0f]*")


def split(text: str, *rest: Any, **more: Any) -> Any:
    """Every character is a word, a syllable in several code points too."""
    return ((letter[0], letter.start(), letter.end()) for letter in LETTER.finditer(text))


def load(name: str) -> tuple[Any, str]:
    """A checkpoint with safetensors that reads characters."""
    import gliner

    folder = Path(name)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        patterns = ["*.json", "*.safetensors", "*.txt", "*.model"]
        folder = Path(snapshot_download(name, allow_patterns=patterns))
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"{name} has no safetensors weights")
    model = gliner.GLiNER.from_pretrained(str(folder), local_files_only=True)
    model.data_processor.words_splitter = split
    model.float().eval()  # parts in half precision do not meet parts that are not
    return model, getattr(gliner, "__version__", "unknown")


def answer(model: Any, request: dict[str, Any]) -> list[Any]:
    """The spans of each text."""
    options = {"flat_ner": False, "threshold": request["threshold"], "multi_label": False}
    found = model.inference(request["texts"], request["labels"], **options)
    return [[[one["start"], one["end"], one["label"], float(one["score"])] for one in listed] for listed in found]


def main() -> None:
    """Until there are no more lines."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print goes to stderr
    model: Any = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if "load" in request:
                model, version = load(request["load"])
                reply: dict[str, Any] = {"ready": version}
            else:
                reply = {"spans": answer(model, request)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply, ensure_ascii=False) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
