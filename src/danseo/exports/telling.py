"""Trackers are told in a process of their own: their threads, prints and ways to end stay out of danseo's."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from danseo.errors import WorkFailed
from danseo.exports.story import Story

_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "WANDB_SILENT": "true"}
_LONGEST = 300  # letters of a tracker's own words


def tell(module: str, story: Story, environment: Mapping[str, str | None]) -> dict[str, Any]:
    """Let a module's `replay` tell the story in another process, and bring back what it made; None unsets a name."""
    variables = {**os.environ, **_QUIET, **environment}
    ended = subprocess.run(
        [sys.executable, "-m", "danseo.exports.telling", module],
        input=json.dumps(story.as_dict()),
        capture_output=True,
        text=True,
        env={name: value for name, value in variables.items() if value is not None},
    )
    if ended.returncode:
        words = [line for line in ended.stderr.strip().splitlines() if line.strip()]
        reason = " ".join((words or ["its process was ended"])[-1].split())[:_LONGEST]
        raise WorkFailed(f"{module.rsplit('.', 1)[-1]} did not take {story.name}: {reason}")
    return dict(json.loads(ended.stdout))


def main() -> None:
    """The other process: whatever a tracker prints goes to standard error, the answer alone to standard output."""
    answer = os.dup(1)
    os.dup2(2, 1)
    story = Story(**json.load(sys.stdin))
    made = importlib.import_module(sys.argv[1]).replay(story)
    sys.stdout.flush()
    with os.fdopen(answer, "w") as file:
        json.dump(made, file)


if __name__ == "__main__":
    main()
