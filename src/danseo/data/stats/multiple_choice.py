"""Statistics of texts with candidates."""

from dataclasses import replace

from danseo.data.stats import classification
from danseo.data.stats.view import View
from danseo.tasktypes.base import Task


def make_view(task: Task) -> View:
    view = classification.make_view(task)
    return replace(view, key=lambda e, normalize: (normalize(e.text), *map(normalize, e.choices)))
