"""The task types: what danseo knows about each, without any model."""

from danseo.tasktypes import (
    classification,
    dialogue_state,
    multilabel,
    multiple_choice,
    parsing,
    question_answering,
    regression,
    relation,
    tagging,
)
from danseo.tasktypes.base import TaskType

_MODULES = (
    classification,
    multilabel,
    multiple_choice,
    regression,
    tagging,
    relation,
    parsing,
    question_answering,
    dialogue_state,
)
TASK_TYPES: dict[str, TaskType] = {module.TYPE.name: module.TYPE for module in _MODULES}
CUSTOM_TYPES = tuple(name for name, each in TASK_TYPES.items() if each.is_custom)
