"""Multiple-choice prompts: the label of the candidate that belongs to the text."""

from typing import ClassVar

from danseo.models.llm.formats.classification import ClassificationFormat
from danseo.records import ChoiceExample


class MultipleChoiceFormat(ClassificationFormat):
    """The label of one of several candidates."""

    fields: ClassVar = ("text", "choices")
    optional_fields: ClassVar = ()

    def get_fields(self, example: ChoiceExample) -> dict[str, str]:
        named = zip(self.task.labels, example.choices, strict=True)
        return {"text": example.text, "choices": "\n".join(f"- {label}: {choice}" for label, choice in named)}
