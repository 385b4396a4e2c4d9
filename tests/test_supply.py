"""What gets installed: all packages are locked with hashes, and their licences are checked."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]
BASE = PROJECT["project"]["dependencies"]
TRACKERS = [text for extra in ("mlflow", "wandb", "trackio") for text in EXTRAS[extra]]
LOCKS = {
    "build": GROUPS["build"],
    "install": [*BASE, *(t for extra, texts in EXTRAS.items() for t in texts if t not in TRACKERS)],
    "demo": [*BASE, *EXTRAS["train"]],
    "trackers": [*BASE, *TRACKERS],
    "browser": GROUPS["browser"],
    "classic": GROUPS["classic"],
    "uv": GROUPS["lock"],
}


def read_lock(name: str) -> dict[str, list[str]]:
    """Package -> versions; two where Python versions need different ones."""
    text = (ROOT / "locks" / f"{name}.txt").read_text().replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.lstrip().startswith("#"):
            package, version = re.match(r"([\w.-]+)==(\S+)", line).groups()  # type: ignore[union-attr]
            assert name == "torch" or re.search(r" --hash=sha256:[0-9a-f]{64}", line), f"{package} has no hash"
            found.setdefault(canonicalize_name(package), []).append(version)
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_locked(name: str) -> None:
    locked = read_lock(name) | read_lock("torch")
    for text in LOCKS[name]:
        requirement = Requirement(text)
        versions = locked.get(canonicalize_name(requirement.name), [])
        assert versions, f"{text}: not in locks/{name}.txt; run: make lock"
        assert all(requirement.specifier.contains(version) for version in versions), text


def test_all_targets_install_the_same_versions() -> None:
    together: dict[str, list[str]] = {}
    for name in LOCKS:
        for package, versions in read_lock(name).items() if name not in ("classic", "uv") else ():
            assert together.setdefault(package, versions) == versions, f"{package} in locks/{name}.txt"


def test_locks_name_no_place() -> None:
    for path in (ROOT / "locks").iterdir():
        assert not re.search(r"://|--(extra-)?index-url|--find-links|file:", path.read_text()), path.name


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("License-Expression: MIT OR Apache-2.0", ""),
        ("License-Expression: (MIT AND MPL-2.0)", ""),
        ("License: MPL-2.0 AND MIT", ""),
        ("Classifier: License :: OSI Approved :: BSD License", ""),
        ("License-Expression: MIT AND GPL-3.0-only", "GPL-3.0-only"),
        ("License: MIT\nClassifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)", "GPLv3"),
        ("License: All rights reserved", "All rights reserved"),
        ("Summary: without a word", "no licence"),
        (None, "not installed"),
    ],
)
def test_licenses_are_checked(declared: str | None, problem: str, tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("# comment\nsomething==1.0 \\\n    --hash=sha256:00\n")
    if declared is not None:
        (tmp_path / "something-1.0.dist-info").mkdir()
        lines = f"Metadata-Version: 2.4\nName: something\nVersion: 1.0\n{declared}\n"
        (tmp_path / "something-1.0.dist-info" / "METADATA").write_text(lines)
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_licenses.py", "lock.txt"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == int(bool(problem))
    assert problem in result.stderr
    assert result.stderr.count("\n") == int(bool(problem))
