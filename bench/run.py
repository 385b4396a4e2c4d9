"""Run a bench by its name: a failure is one line and exit code 1, never a traceback.

python bench/run.py NAME [OPTIONS]
"""

import runpy
import sys
from pathlib import Path

from measuring import say, shorten_error


def main() -> None:
    path = Path(__file__).with_name(f"{sys.argv[1]}.py")
    sys.argv = [str(path), *sys.argv[2:]]
    try:
        runpy.run_path(str(path), run_name="__main__")
    except (Exception, KeyboardInterrupt) as error:
        say(f"bench: {path.stem} failed: {shorten_error(error)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
