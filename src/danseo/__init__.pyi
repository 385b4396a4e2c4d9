"""Types of the public functions, which are loaded when they are first used."""

from danseo.api.functions import compare as compare
from danseo.api.functions import load as load
from danseo.api.functions import open as open
from danseo.api.functions import runs as runs
from danseo.api.functions import score as score
from danseo.api.functions import train as train

__version__: str
