"""What a prompted run would send: tokens counted, and three prompts in full."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from danseo.config import RunConfig
from danseo.data.find import require_file
from danseo.display.table import Table
from danseo.models.llm.asking import Message
from danseo.models.protocol import Family
from danseo.tasks.task import Task


@dataclass(frozen=True)
class Preview:
    """Counts and samples of what would be asked."""

    counts: dict[str, Any]
    prompts: list[tuple[str, list[Message]]]

    def tables(self) -> list[Table]:
        rows: list[tuple[object, ...]] = list(self.counts.items())
        shown = [
            Table(f"prompt of {guid}", ("role", "content"), [(m["role"], m["content"]) for m in messages])
            for guid, messages in self.prompts
        ]
        return [*shown, Table("nothing was asked", ("what", "value"), rows)]

    def as_dict(self) -> dict[str, Any]:
        prompts = [{"guid": guid, "messages": messages} for guid, messages in self.prompts]
        return {**self.counts, "prompts": prompts}


def preview(config: RunConfig, task: Task, family: Family, root: Path, device: str | None) -> Preview:
    """What a run would send for dev."""
    train, dev = (task.read(require_file(task, split, root)) for split in ("train", "dev"))
    model: Any = family.make(config, task, device)
    model.prepare(train[: config.limit or None], dev)
    parts = [part for question in model.questions(dev) for part in question.parts]
    tokens = [model.source.count(request.messages) for _, request in parts]
    counts = {
        "examples": len(dev),
        "calls": len(parts),
        "prompt tokens": sum(tokens),
        "longest prompt": max(tokens),
        "most reply tokens": model.reply_tokens * len(parts),
        "counted by": "the model's tokenizer" if model.source.weighs else "a guess (three bytes a token)",
        **{name.replace("_", " "): count for name, count in model.tally.cuts.items()},
    }
    return Preview(counts, [(request.guid, request.messages) for _, request in _three(parts)])


def _three(parts: Sequence[Any]) -> list[Any]:
    """The first, the middle and the last."""
    positions = dict.fromkeys((0, len(parts) // 2, len(parts) - 1))
    return [parts[position] for position in positions]
