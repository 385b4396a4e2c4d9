"""Errors that a user can act on; any other exception is a bug and keeps its traceback."""

from collections.abc import Iterable
from difflib import get_close_matches

from danseo.language import Message, _


class DanseoError(Exception):
    """Bad input or wrong usage: prints as one line and ends with exit code 2."""

    exit_code = 2


class DataError(DanseoError):
    """A data file is missing, corrupted or not what it claims to be."""


class MissingData(DataError):
    """A file of KLUE is not in the data folder."""


class PredictionError(DanseoError):
    """A prediction file does not fit the examples that it is scored against."""


class UnknownTask(DanseoError):
    """No task has this name."""


class MissingExtra(DanseoError):
    """A package of an extra is not installed."""


class NetworkError(DanseoError):
    """The Hub cannot be reached, or a setting forbids to contact it."""

    exit_code = 1


class WorkFailed(DanseoError):
    """The input was fine, but the work could not be done."""

    exit_code = 1


class PartlyDone(DanseoError):
    """Some parts of the work failed, and the others finished."""

    exit_code = 3


def get_message(error: Exception) -> str:
    """Return the message of an error; it can be translated if its text is marked."""
    return error.args[0] if error.args and isinstance(error.args[0], Message) else str(error)


def suggest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return "did you mean X? " with the known name that is most similar, or "" if none is similar."""
    names = list(known)
    swapped = [each for each in names if sorted(each) == sorted(name)]  # nre is ner, not re
    near = swapped or get_close_matches(name, names, 1, cutoff)
    return _("did you mean {name!r}? ").format(name=near[0]) if near else ""
