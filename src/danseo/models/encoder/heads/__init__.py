"""Registry of encoder heads: one module per task type; importing it loads no torch."""

from danseo.errors import DanseoError
from danseo.models.encoder.heads.base import TaskHead
from danseo.models.encoder.heads.classification import ClassificationHead
from danseo.models.encoder.heads.dialogue_state import DialogueStateHead
from danseo.models.encoder.heads.multilabel import MultilabelHead
from danseo.models.encoder.heads.multiple_choice import MultipleChoiceHead
from danseo.models.encoder.heads.parsing import ParsingHead
from danseo.models.encoder.heads.question_answering import QuestionAnsweringHead
from danseo.models.encoder.heads.regression import RegressionHead
from danseo.models.encoder.heads.relation import RelationHead
from danseo.models.encoder.heads.tagging import TaggingHead
from danseo.tasktypes.base import Task

HEADS: dict[str, type[TaskHead]] = {
    "classification": ClassificationHead,
    "multilabel": MultilabelHead,
    "multiple_choice": MultipleChoiceHead,
    "regression": RegressionHead,
    "tagging": TaggingHead,
    "relation": RelationHead,
    "parsing": ParsingHead,
    "question_answering": QuestionAnsweringHead,
    "dialogue_state": DialogueStateHead,
}
"""Task type -> its head."""


def get_head_class(task: Task) -> type[TaskHead]:
    """Return the head of a task's type; refuse a type without one."""
    if task.type.name not in HEADS:
        raise DanseoError(f"{task.name}: encoders have no head for the task type {task.type.name}; use another model")
    return HEADS[task.type.name]
