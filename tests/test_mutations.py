"""The typed changes of bench/attack.py: valid, repeatable, and a few of each against the commands."""

import io
import json
import os
import random
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from danseo.errors import DanseoError
from danseo.files import read_json_lines
from danseo.models.llm.backend import CallLog
from danseo.sweeps.preparation import read_ended_runs

from .mutations import change_content, write_zip

ROOT = Path(__file__).parents[1]
MANIFEST = json.dumps({"run": "a", "files": {}}).encode()
FILES = {
    "a.json": b'{"a": [1, 2.5, {"b": "c"}], "d": null}',
    "a.jsonl": b'{"a": 1}\n{"a": [true]}\n',
    "a.toml": b"a = 1\nb = [1, 2]\n[c]\nd = 'e'\n",
    "a.csv": b"text,label\nx,1\ny,2\n",
    "a.zip": write_zip({"manifest.json": MANIFEST, "scores.json": b'{"a": 1}'}),
    "a.txt": b"a\n",
}


def test_most_changed_files_are_valid_containers():
    """A change that only breaks the syntax would test the parser and nothing behind it."""
    readable = {"a.json": json.loads, "a.toml": lambda content: tomllib.loads(content.decode())}
    readable["a.zip"] = lambda content: zipfile.ZipFile(io.BytesIO(content)).namelist()
    for name, read in readable.items():
        good = 0
        for number in range(50):
            try:
                read(change_content(name, FILES[name], random.Random(number))[0])
                good += 1
            except (ValueError, RecursionError, zipfile.BadZipFile):
                continue
        assert good > 30, name


@pytest.mark.parametrize("line", ["[" * 99_999 + "]" * 99_999, "9" * 5000, "[]", "null", '{"run": [], "state": 1}'])
def test_lines_of_logs_that_no_parser_takes(line, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(line + "\n", "utf-8")
    assert read_ended_runs(path) == []
    assert read_json_lines(path) in ([], [{"run": [], "state": 1}])
    with pytest.raises(DanseoError, match="line 1"):
        CallLog(path)


LONGEST = ("serve", "run-folders", "board", "replies", "model-folders")


@pytest.mark.parametrize(
    "part",
    [
        "bundles",
        *(
            pytest.param(part, marks=[pytest.mark.lengthy, *([pytest.mark.nightly] if part in LONGEST else [])])
            for part in ("parquet", "task-files", *LONGEST)
        ),
    ],
)
def test_a_few_of_each_attack(part):
    command = [sys.executable, "bench/attack.py", part, "--size=0.02", "--jobs=1", "--seconds=60"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
