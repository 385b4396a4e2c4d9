"""Check that every locked package has a licence that Apache-2.0 software may depend on: check_licenses.py LOCK…"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ALLOWED = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0"),
    *("CC0-1.0", "CNRI-Python", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Zlib"),
    "MPL-2.0",  # obliges only those who change its files
}
"""SPDX ids; and BSD, where the metadata do not say which one."""

REVIEWED: dict[str, str] = {
    "colorama": "BSD-3-Clause; on Windows only, so not installed here",
    "httpx2-jsfetch": "BSD-3-Clause; in browsers only, so not installed here",
}
"""Packages whose metadata cannot decide -> what a person found."""

WORDINGS = {
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""What packages call their licences -> SPDX id."""


def read_lock(path: Path) -> list[str]:
    """Return the names of the packages of a lock file."""
    return [line.split("==")[0] for line in path.read_text().splitlines() if re.match(r"[\w.-]+==", line)]


def find_licenses(package: str) -> list[str]:
    """Return the licences that an installed package declares: its SPDX expression, its classifiers or its own words."""
    declared = metadata(package)
    classifiers = [c.split(" :: ")[-1] for c in declared.get_all("Classifier", []) if c.startswith("License :: ")]
    texts = declared.get_all("License-Expression") or classifiers or declared.get_all("License") or [""]
    parts = (part.strip(" ()") for text in texts for part in re.split(r" (?:AND|OR) ", WORDINGS.get(text, text)))
    return [WORDINGS.get(part, part) for part in parts]


def find_problems(packages: list[str]) -> Iterator[str]:
    """Yield one line for every package that is not installed, declares nothing, or declares what is not allowed."""
    for package in packages:
        if package in REVIEWED:
            continue
        try:
            licenses = find_licenses(package)
        except PackageNotFoundError:
            yield f"{package} is not installed; run make install"
            continue
        for name in licenses:
            if name not in ALLOWED:
                shown = name.partition("\n")[0][:80] or "no licence"
                yield f"{package} declares {shown}; replace it, or review it in {Path(__file__).name}"


def main(locks: list[str]) -> int:
    """Check the lock files; return the exit code."""
    packages = sorted({package for lock in locks for package in read_lock(Path(lock))})
    if not packages:
        print("no package found in the lock files; use: check_licenses.py LOCK…", file=sys.stderr)
        return 2
    problems = list(find_problems(packages))
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"licences of {len(packages)} packages: all compatible with Apache-2.0")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
