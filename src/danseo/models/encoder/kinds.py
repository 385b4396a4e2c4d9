"""Which kind an encoder takes a task for; needs no torch."""

from danseo.models.encoder.answer import Answer
from danseo.models.encoder.choose import Choose
from danseo.models.encoder.classify import Classify
from danseo.models.encoder.kind import Kind
from danseo.models.encoder.parse import Parse
from danseo.models.encoder.relate import Relate
from danseo.models.encoder.score import Regress
from danseo.models.encoder.several import Several
from danseo.models.encoder.tag import Tag
from danseo.models.encoder.track import Track
from danseo.tasks.task import Task

KINDS: dict[str, type[Kind]] = {
    "classify": Classify,
    "labels": Several,
    "score": Regress,
    "tag": Tag,
    "parse": Parse,
    "answer": Answer,
    "track": Track,
}


def kind_of(task: Task) -> type[Kind]:
    """The encoder's way with a task; relations are marked in their sentence, candidates read one by one."""
    return {"relation": Relate, "choices": Choose}.get(task.form, KINDS[task.kind])
