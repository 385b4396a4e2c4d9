"""A fine-tuned language model as one plain checkpoint, scored again to show that it is the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danseo.errors import DanseoError
from danseo.exports.format import Format, Request
from danseo.files import check_writable


def write(request: Request) -> Mapping[str, Any]:
    """Merge the adapters of a run into their body, and answer dev with the result."""
    from danseo.models.llm.tuned import merge

    record, out = request.record, request.path("-merged")
    config, folder = record.run.config, record.run.path / "model"
    if not config.model.startswith("llm:") or config.kind != "training":
        raise DanseoError(f"{record.run.path} is no fine-tuned language model (llm:…); only those are merged")
    if out.exists() and any(out.iterdir()):
        raise DanseoError(f"{out} is there already; name another --out")
    check_writable(out)
    told = merge(config, folder, out)
    return {**told, **_scored_again(request, out)}


def _scored_again(request: Request, out: Path) -> dict[str, Any]:
    """The headline of the run beside that of the merged model, and how many answers differ."""
    from dataclasses import replace

    from danseo.data.find import data_root, require_file
    from danseo.models.llm.here import load_here
    from danseo.models.llm.prompted import Prompted, saved_template
    from danseo.predictions.file import read_predictions
    from danseo.scoring.score import measure
    from danseo.tasks import get_task

    run = request.record.run
    config, task = run.config, get_task(run.config.task)
    examples = task.read(require_file(task, "dev", data_root(request.data_dir)))
    before = read_predictions(run.predictions_path("dev"), task, examples, skip=task.needs_probabilities)
    plain = replace(config, model=f"llm:{out}")
    model = Prompted(plain, task, load_here(plain, str(out), None), saved_template(run.path / "model"))
    model.restore(run.path / "model")
    after = model.ask(examples)
    changed = sum(one.answer != other.answer for one, other in zip(before, after, strict=True))
    scores = [measure(task, examples, answers)[task.headline].value() for answers in (before, after)]
    return {"metric": task.headline, "scored": scores[0], "rescored": scores[1], "changed_answers": changed}


FORMAT = Format(
    "merged",
    "a fine-tuned language model as one plain checkpoint, scored again",
    write,
    packages=("torch", "transformers", "safetensors", "peft", "llguidance"),
)
