"""While a library loads a model, Python itself refuses to run code that came with it."""

import importlib.util
import io
import pickle
import sys
import threading
from pathlib import Path

import pytest

from danseo.models.remote_code import CodeRefused, find_code, no_model_code


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit",)


def run_file(path: Path) -> None:
    spec = importlib.util.spec_from_file_location("came_with_it", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.parametrize("place", ["transformers_modules/own", "hub/models--org--name/snapshots/1"])
def test_no_file_of_a_model_runs(tmp_path: Path, place: str):
    path = tmp_path / place / "own.py"
    path.parent.mkdir(parents=True)
    path.write_text("import sys\nsys.ran = True\n")
    with no_model_code(), pytest.raises(CodeRefused, match="own"):
        run_file(path)
    assert not hasattr(sys, "ran")
    with no_model_code(is_trusted=True):
        run_file(path)
    assert sys.ran
    del sys.ran


def test_nothing_is_unpickled_here_and_everything_elsewhere():
    content, found = pickle.dumps(Path("a")), []
    thread = threading.Thread(target=lambda: found.append(pickle.loads(content)))
    with no_model_code():
        with pytest.raises(CodeRefused):
            pickle.loads(pickle.dumps(Bomb()))
        thread.start()
        thread.join()
    assert [pickle.loads(content), *found] == [Path("a")] * 2


def test_nobody_is_asked_and_standard_input_stays_unread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with no_model_code(), pytest.raises(EOFError):
        input()
    assert input() == "y"


def test_words_of_a_vocabulary_name_no_code(tmp_path: Path):
    (tmp_path / "vocab.json").write_text('{"auto_map": 7}')
    (tmp_path / "config.json").write_text('{"auto_map": {}, "model_type": "bert"}')
    assert find_code(tmp_path) is None
    (tmp_path / "config.json").write_text('{"deep": [{"attribute_map": {"x": "\\u0061uto_map"}}]}')
    assert find_code(tmp_path) == "config.json"


def test_deep_nesting_hides_no_code(tmp_path):
    """json.loads takes about a thousand levels; the search must not end before."""
    nested = "[" * 900 + "]" * 900
    (tmp_path / "config.json").write_text(f'{{"z": {nested}, "attribute_map": {{"z": "auto_map"}}}}')
    assert find_code(tmp_path) == "config.json"


def test_the_gliner_process_finds_this_module():
    """It loads the module by its file name, which no import checks."""
    from danseo.models.gliner import worker

    assert worker.guard().find_code.__code__.co_filename == find_code.__code__.co_filename
