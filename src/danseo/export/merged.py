"""A fine-tuned language model as one plain checkpoint, scored again to check it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.export.base import TRUST_REMOTE_CODE, ExportFormat, ExportRequest
from danseo.files import check_writable
from danseo.models.checkpoint import apply_trust
from danseo.models.registry import get_family


def write_merged(request: ExportRequest) -> Mapping[str, Any]:
    """Merge the adapters of a run into the base model and score the result on the dev set."""
    from danseo.models.llm.tuned_model import merge_adapters

    record, out = request.record, request.path("-merged")
    config, folder = _read_config(request), record.run.path / "model"
    if "merged" not in get_family(config.model).export_formats or config.run_type != "training":
        raise DanseoError(f"not a fine-tuned language model: {record.run.path}; only llm:… runs are merged")
    if out.exists() and any(out.iterdir()):
        raise DanseoError(f"{out} exists already; name another --out")
    check_writable(out)
    merged = merge_adapters(config, folder, out)
    return {**merged, **_rescore(request, out)}


def _read_config(request: ExportRequest) -> RunConfig:
    """Return the settings of the run; only the command can allow code of its checkpoint."""
    return apply_trust(request.record.run, bool(request.options.get("trust_remote_code")))


def _rescore(request: ExportRequest, out: Path) -> dict[str, Any]:
    """Return the headline scores of the run and of the merged model, and the number of changed answers."""

    from danseo.data.find import data_root, require_file
    from danseo.data.prediction_file import read_predictions
    from danseo.models.llm.local_backend import load_local_backend
    from danseo.models.llm.prompt_template import load_saved_template
    from danseo.models.llm.prompted_model import PromptedModel
    from danseo.scoring.score import measure
    from danseo.tasks import get_task

    run = request.record.run
    config, task = _read_config(request), get_task(run.config.task)
    examples = task.read(require_file(task, "dev", data_root(request.data_dir)))
    before = read_predictions(run.predictions_path("dev"), task, examples, skip=task.needs_probabilities)
    plain = update_config(config, {"model": f"llm:{out}", "llm.quantization": "none"})
    model = PromptedModel(
        plain, task, load_local_backend(plain, str(out), None), load_saved_template(run.path / "model")
    )
    model.restore(run.path / "model")
    after = model.prompt(examples)
    changed = sum(one.answer != other.answer for one, other in zip(before, after, strict=True))
    scores = [measure(task, examples, answers)[task.headline].value() for answers in (before, after)]
    return {"metric": task.headline, "scored": scores[0], "rescored": scores[1], "changed_answers": changed}


FORMAT = ExportFormat(
    "merged",
    "a fine-tuned language model as one plain checkpoint, scored again",
    write_merged,
    packages=("torch", "transformers", "safetensors", "peft", "llguidance"),
    options=(TRUST_REMOTE_CODE,),
)
