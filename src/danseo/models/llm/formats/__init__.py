"""Registry of prompt formats: one module per task type; importing it loads no torch."""

from danseo.errors import DanseoError
from danseo.models.llm.formats.base import PromptFormat
from danseo.models.llm.formats.classification import ClassificationFormat
from danseo.models.llm.formats.dialogue_state import DialogueStateFormat
from danseo.models.llm.formats.multilabel import MultilabelFormat
from danseo.models.llm.formats.multiple_choice import MultipleChoiceFormat
from danseo.models.llm.formats.parsing import ParsingFormat
from danseo.models.llm.formats.question_answering import QuestionAnsweringFormat
from danseo.models.llm.formats.regression import RegressionFormat
from danseo.models.llm.formats.relation import RelationFormat
from danseo.models.llm.formats.tagging import TaggingFormat
from danseo.models.llm.prompt_template import PromptTemplate
from danseo.models.llm.settings import PromptSettings
from danseo.tasktypes.base import Task

FORMATS: dict[str, type[PromptFormat]] = {
    "classification": ClassificationFormat,
    "multilabel": MultilabelFormat,
    "multiple_choice": MultipleChoiceFormat,
    "regression": RegressionFormat,
    "tagging": TaggingFormat,
    "relation": RelationFormat,
    "parsing": ParsingFormat,
    "question_answering": QuestionAnsweringFormat,
    "dialogue_state": DialogueStateFormat,
}
"""Task type -> its prompt format."""


def make_format(task: Task, config: PromptSettings, template: PromptTemplate) -> PromptFormat:
    """Return the prompt format of a task."""
    check_settings(task, config)
    return FORMATS[task.type.name](task, config, template)


def check_settings(task: Task, config: PromptSettings) -> None:
    """Refuse settings that the task does not use."""
    found = FORMATS[task.type.name]
    if config.output_format != "json" and config.output_format not in found.output_formats:
        raise DanseoError(
            f"prompt.output_format = {config.output_format}: only entities have this format; {task.name} takes json"
        )
    if config.mode == "likelihood" and not task.type.has_single_label:
        raise DanseoError(f"prompt.mode = likelihood: only labels have probabilities; {task.name} has none")
    if config.allowed_labels_only and not found.has_entity_types:
        raise DanseoError(f"prompt.allowed_labels_only: only relations depend on entity types; {task.name} has none")
    if config.keep_truncated and not ("inline" in found.output_formats and config.output_format == "json"):
        raise DanseoError("prompt.keep_truncated: only entities in JSON can be kept from a truncated reply")
