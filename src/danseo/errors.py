"""What can go wrong in words a user can act on; anything else is a bug and keeps its traceback."""


class DanseoError(Exception):
    """Bad input or wrong usage: prints as one line and ends with exit code 2."""

    exit_code = 2


class DataError(DanseoError):
    """A data file is missing, damaged or not what it claims to be."""


class PredictionError(DanseoError):
    """A prediction file does not answer the examples it is scored against."""


class UnknownTask(DanseoError):
    """No task has this name."""


class MissingExtra(DanseoError):
    """An optional part is not installed."""


class NetworkError(DanseoError):
    """The Hub could not be reached, or is switched off."""

    exit_code = 1


class WorkFailed(DanseoError):
    """The input was fine, but the work could not be done."""

    exit_code = 1


class PartlyDone(DanseoError):
    """Some of the work failed and the rest was done."""

    exit_code = 3
