import json
import pickle
from pathlib import Path

import pytest

from danseo.errors import DanseoError, WorkFailed
from danseo.export.base import ExportRequest
from danseo.export.registry import export_run

torch = pytest.importorskip("torch")


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "old"
    made.mkdir()
    (made / "config.json").write_text('{"model_type": "bert"}')
    (made / "vocab.txt").write_text("[PAD]\n")
    (made / "modeling.py").write_text("raise SystemExit")
    return made


def test_weights_come_out_the_same_and_code_stays_behind(folder, tmp_path):
    from safetensors.torch import load_file

    shared = torch.arange(6.0).reshape(2, 3)
    weights = {
        "a.weight": shared,
        "b.tied": shared,
        "c.turned": shared.T,
        "d.half": torch.ones(2, dtype=torch.bfloat16),
    }
    torch.save(weights, folder / "pytorch_model.bin")
    made = export_run("safetensors", ExportRequest(str(folder), str(tmp_path / "new")))
    assert made["weights"] == 4
    found = load_file(tmp_path / "new" / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in weights.items())
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "config.json",
        "model.safetensors",
        "vocab.txt",
    ]
    with pytest.raises(DanseoError, match="exists already"):
        export_run("safetensors", ExportRequest(str(folder), str(tmp_path / "new")))


@pytest.mark.lengthy
def test_parts_stay_parts(folder, tmp_path):
    names = [f"pytorch_model-0000{k}-of-00002.bin" for k in (1, 2)]
    for k, name in enumerate(names):
        torch.save({f"w{k}": torch.ones(k + 1)}, folder / name)
    index = {"metadata": {"total_size": 12}, "weight_map": {"w0": names[0], "w1": names[1]}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    export_run("safetensors", ExportRequest(str(folder), str(tmp_path / "new")))
    found = json.loads((tmp_path / "new" / "model.safetensors.index.json").read_text())["weight_map"]
    assert found == {"w0": "model-00001-of-00002.safetensors", "w1": "model-00002-of-00002.safetensors"}
    assert all((tmp_path / "new" / name).is_file() for name in found.values())


def test_what_is_more_than_weights_is_refused_and_does_nothing(folder, tmp_path):
    mark = tmp_path / "was-here"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": Evil(mark)}))
    with pytest.raises(WorkFailed, match="not converted"):
        export_run("safetensors", ExportRequest(str(folder), str(tmp_path / "new")))
    assert not mark.exists()
    assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]


def test_a_folder_without_pickles_is_named(folder, tmp_path):
    with pytest.raises(DanseoError, match=r"no pytorch_model\.bin"):
        export_run("safetensors", ExportRequest(str(folder), str(tmp_path / "new")))
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(DanseoError, match="already"):
        export_run("safetensors", ExportRequest(str(folder), str(tmp_path / "new")))
