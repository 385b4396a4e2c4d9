"""Classic GLiNER checkpoints: run in a process with its own environment, as they need an older transformers."""

import json
import os
import shutil
import subprocess
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError, WorkFailed
from danseo.files import quote
from danseo.launcher import SAFE_PATH
from danseo.models.checkpoint import refuse_code
from danseo.models.entity_spans import EntitySpan

CLASSIC = "gliner_config.json"
PYTHON = "DANSEO_SPAN_PYTHON"
"""Environment variable with the Python that has gliner; --span-python sets it."""
_WORKER = Path(__file__).with_name("worker.py")
_BATCH = 64


def is_classic(name: str) -> bool:
    """Return whether a checkpoint is in the classic format, by its configuration file."""
    if Path(name).is_dir():
        return (Path(name) / CLASSIC).is_file()
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = name.partition("@")
    try:
        cached = try_to_load_from_cache(repository, CLASSIC, revision=revision or None)
    except ValueError:  # no id of the Hub; who loads it says so
        return False
    return isinstance(cached, str) or bool(os.environ.get(PYTHON))


def command() -> list[str]:
    """Return the command of the process: the given Python, else uv, which installs what it needs."""
    if python := os.environ.get(PYTHON):
        if not shutil.which(python):
            raise DanseoError(f"--span-python {python}: no such program; name the Python of an environment with gliner")
        return [str(Path(python).absolute()) if "/" in python else python, str(_WORKER)]
    if uv := shutil.which("uv"):
        return [uv, "run", "--quiet", "--script", str(_WORKER)]
    raise DanseoError(
        "classic GLiNER checkpoints need an older transformers than danseo: name a Python with gliner by "
        "--span-python PATH (pip install gliner there), or install uv"
    )


class GlinerProcess:
    """A process with a loaded checkpoint; it ends with its owner."""

    def __init__(self, name: str, trust_remote_code: bool = False) -> None:
        self.name = name
        if Path(name).is_dir():
            refuse_code(Path(name), trust_remote_code)
        self.process = subprocess.Popen(
            command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=_WORKER.parent,  # settings of uv in the user's folder are not read
            env={**os.environ, **SAFE_PATH},
        )
        weakref.finalize(self, _end, self.process)
        position = str(Path(name).resolve()) if Path(name).is_dir() else name
        self.version = self._ask({"load": position, "trust_remote_code": trust_remote_code})["ready"]

    def spans(
        self, texts: Sequence[str], words: Sequence[str], least: float
    ) -> list[list[tuple[int, int, str, float]]]:
        """Return the spans of each text for these words."""
        found: list[Any] = []
        for position in range(0, len(texts), _BATCH):
            part = list(texts[position : position + _BATCH])
            spans = self._ask({"texts": part, "labels": list(words), "threshold": least}).get("spans")
            if not isinstance(spans, list) or len(spans) != len(part):
                raise WorkFailed(
                    f"{self.name}: the GLiNER process answered something else than spans of {len(part)} texts"
                )
            found += [[tuple(span) for span in listed] for listed in spans]
        return found

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request, ensure_ascii=False) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            code = self.process.wait()
            raise WorkFailed(f"{self.name}: the GLiNER process ended with code {code}; what it said stands above")
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise WorkFailed(f"{self.name}: the GLiNER process says what is no answer: {quote(line.strip(), 80)}")
        if "refused" in reply:
            raise DanseoError(f"GLiNER checkpoint {self.name}: {reply['refused']}")
        if "error" in reply:
            raise WorkFailed(f"{self.name}: the GLiNER process says {reply['error']}")
        return reply


def _end(process: "subprocess.Popen[str]") -> None:
    """End the process; it stops by itself when its input closes."""
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def merge_neighbors(spans: Sequence[EntitySpan], text: str) -> list[EntitySpan]:
    """Merge adjacent spans of one type: NuNER Zero labels the words of an entity one by one."""
    joined: list[EntitySpan] = []
    for span in sorted(spans, key=lambda span: (span.type, span.start)):
        last = joined[-1] if joined else None
        if last and last.type == span.type and span.start >= last.start and not text[last.end : span.start].strip():
            joined[-1] = last._replace(end=max(last.end, span.end), score=min(last.score, span.score))
        else:
            joined.append(span)
    return sorted(joined)


def labels_single_words(name: str) -> bool:
    """Return whether a checkpoint is a NuNER Zero, whose adjacent spans belong together."""
    short = name.lower().replace("_", "-")
    return "nuner-zero" in short and "span" not in short
