"""The eight tasks of KLUE, one module each; and how a file of another task is recognised."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from danseo.errors import DataError
from danseo.language import _
from danseo.rows import is_prediction_file


def explain_wrong_file(error: DataError, path: Path, task: str, columns: Collection[str] = ()) -> DataError:
    """Return the error of a task's reader, or a better one if the file is known to be something else.

    A file that has all the columns of a custom task is not taken for predictions.
    """
    if is_prediction_file(path, columns):
        remedy = _("the gold file comes first, then the predictions")
        text = _("{path} contains predictions, not gold answers for {task}; {remedy}")
        return DataError(text.format(path=path, task=task, remedy=remedy))
    if other := recognise_task(path):
        text = _("{path} is a file of the task {other}, not of {task}; name the other task or file")
        return DataError(text.format(path=path, other=other, task=task))
    return error


def recognise_task(path: Path) -> str:
    """Return the KLUE task whose reader takes the file, or an empty text."""
    from danseo.tasks.klue import dp, mrc, ner, nli, re, sts, wos, ynat

    for module in (ynat, sts, nli, ner, re, dp, mrc, wos):
        with suppress(DataError):
            if module.TASK.read(path):
                return str(module.TASK.name)
    return ""
