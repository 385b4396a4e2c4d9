"""Classic GLiNER checkpoints behind a process of their own; a stand-in for the package answers."""

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gliner2")

from danseo.errors import DanseoError, WorkFailed
from danseo.experiment import run_experiment
from danseo.models.entity_spans import EntitySpan
from danseo.models.gliner import network as classic_module
from danseo.models.gliner.network import PYTHON, labels_single_words, merge_neighbors
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.models.registry import load_model
from danseo.records import TextExample
from tests.tiny import quick_config

STAND_IN = """
import os
from types import SimpleNamespace
__version__ = "0.2.29"
print("a library that talks")

class GLiNER:
    @classmethod
    def from_pretrained(cls, folder, local_files_only):
        made = cls()
        made.data_processor = SimpleNamespace()
        return made

    def float(self):
        return self

    def eval(self):
        pass

    def inference(self, texts, labels, flat_ner, threshold, multi_label):
        return [self.found(text, labels) for text in texts]

    def found(self, text, labels):
        if "죽어" in text:
            os._exit(3)
        words = list(self.data_processor.words_splitter(text))
        places = [start for word, start, end in words if word == "김"]
        return [{"start": p, "end": p + 1, "text": "김", "label": labels[0], "score": 0.9} for p in places]
"""


@pytest.fixture
def classic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package, folder = tmp_path / "packages", tmp_path / "gliner_multi"
    package.mkdir()
    folder.mkdir()
    (package / "gliner.py").write_text(STAND_IN, encoding="utf-8")
    (folder / "gliner_config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    monkeypatch.setenv("PYTHONPATH", f"{package}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv(PYTHON, sys.executable)
    return folder


def test_a_classic_checkpoint_answers_from_its_own_process(sample: Path, tmp_path: Path, classic: Path):
    config = quick_config("ner", f"gliner:{classic}", max_train_samples=20)
    run = run_experiment(config, sample, tmp_path / "runs", quiet=True)
    assert run.read_json("environment.json")["gliner"] == "0.2.29"
    model = load_model(run)
    (found,) = model.predict([TextExample("a", "김씨와 😀 김", ())])
    assert found.answer == ("B-PS", "O", "O", "O", "O", "O", "B-PS")
    with pytest.raises(WorkFailed, match="ended with code 3"):
        model.predict([TextExample("a", "죽어", ())])


def test_what_is_missing_is_one_line(sample: Path, tmp_path: Path, classic: Path, monkeypatch: pytest.MonkeyPatch):
    config = quick_config("ner", f"gliner:{classic}", max_train_samples=20)
    monkeypatch.setenv(PYTHON, "/nowhere/python")
    with pytest.raises(DanseoError, match="no such program"):
        run_experiment(config, sample, tmp_path / "runs", quiet=True)
    monkeypatch.delenv(PYTHON)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DanseoError, match="--span-python PATH"):
        run_experiment(config, sample, tmp_path / "runs", quiet=True)


TALKS_BADLY = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"ready": "0"}) if "load" in request else REPLY, flush=True)
"""


@pytest.mark.parametrize(
    ("reply", "message"),
    [("Loading weights…", "what is no answer"), ("[1]", "what is no answer"), ('{"spans": []}', "spans of 1 texts")],
)
def test_a_worker_that_answers_something_else_is_one_line(
    reply: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = tmp_path / "worker.py"
    script.write_text(TALKS_BADLY.replace("REPLY", repr(reply)), encoding="utf-8")
    monkeypatch.setattr(classic_module, "_WORKER", script)
    monkeypatch.setenv(PYTHON, sys.executable)
    worker = classic_module.GlinerProcess("gliner_multi")
    assert worker.version == "0"
    with pytest.raises(WorkFailed, match=message):
        worker.spans(["홍길동"], ["인물"], 0.5)


def test_weights_that_are_no_safetensors_are_refused(sample: Path, tmp_path: Path, classic: Path):
    (classic / "model.safetensors").rename(classic / "pytorch_model.bin")
    with pytest.raises(DanseoError, match="has no safetensors weights") as refused:
        run_experiment(
            quick_config("ner", f"gliner:{classic}", max_train_samples=20), sample, tmp_path / "runs", quiet=True
        )
    assert refused.value.exit_code == 2


MAKE = """
import sys
from gliner import GLiNER, GLiNERConfig
for mode in ("markerV0", "token_level"):
    sizes = {"hidden_size": 16, "max_width": 24, "max_len": 128}
    config = GLiNERConfig(model_name=sys.argv[1], span_mode=mode, name="tiny", **sizes)
    GLiNER.from_config(config).save_pretrained(f"{sys.argv[2]}/{mode}", safe_serialization=True)
"""


@pytest.mark.skipif(not os.environ.get(PYTHON), reason=f"${PYTHON} names no Python with gliner; make test-classic does")
def test_the_real_package_finds_spans_of_characters(sample: Path, tmp_path: Path):
    """Random weights find anything, but always characters: no space at an end, none of a syllable's parts alone."""
    encoder = make_encoder(
        tmp_path / "encoder", ["김서연은 부산에 산다."] * 9, "deberta-v2", EncoderSize(1, 16, 2, 60, 128)
    )
    subprocess.run([os.environ[PYTHON], "-c", MAKE, str(encoder), str(tmp_path)], check=True)
    texts = ["김서연은 부산에 산다.", "가 😀 나", unicodedata.normalize("NFD", "한빛 전자"), "", " "]
    for mode in ("markerV0", "token_level"):
        found = classic_module.GlinerProcess(str(tmp_path / mode)).spans(texts, ["인물", "장소"], 0.0)
        assert all(found[:3])
        assert found[3:] == [[], []]
        for text, spans in zip(texts, found, strict=True):
            for start, end, word, score in spans:
                assert text[start:end].strip() == text[start:end] != ""
                assert not "\u1160" <= (text[end:] or " ")[0] <= "\u11ff"  # a vowel or an ending of the last syllable
                assert word in ("인물", "장소")
                assert 0 <= score <= 1
        run = run_experiment(
            quick_config("ner", f"gliner:{tmp_path / mode}", max_train_samples=20), sample, tmp_path / "runs"
        )
        assert load_model(run).predict([TextExample("a", "김씨", ())])


def test_neighbours_of_one_type_are_merged_for_nuner_zero():
    text = "홍 길동 서울"
    spans = [EntitySpan(0, 1, "PS", 0.9), EntitySpan(2, 4, "PS", 0.7), EntitySpan(5, 7, "LC", 0.8)]
    assert merge_neighbors(spans, text) == [EntitySpan(0, 4, "PS", 0.7), EntitySpan(5, 7, "LC", 0.8)]
    assert labels_single_words("numind/NuNER_Zero")
    assert not labels_single_words("numind/NuNER_Zero-span")
    assert not labels_single_words("urchade/gliner_multi")
