"""GLiNER with random weights: it learns, is saved, reloaded, and its offsets are those of the text."""

import json
from itertools import pairwise
from pathlib import Path
from unicodedata import normalize

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gliner2")

from danseo.data.prediction_file import read_predictions  # noqa: E402
from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.entity_spans import EntitySpan  # noqa: E402
from danseo.models.gliner.model import (  # noqa: E402
    Gliner2Model,
    filter_spans,
    tune_thresholds,
)
from danseo.models.gliner.network import CharacterSplitter  # noqa: E402
from danseo.models.registry import load_model  # noqa: E402
from danseo.records import TextExample  # noqa: E402
from danseo.runs.index import read_record  # noqa: E402
from danseo.runs.store import read_tensors  # noqa: E402
from danseo.tables.systems import make_systems_tables  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from tests.systems.tiny import tiny_gliner  # noqa: E402
from tests.tiny import quick_config, read_split  # noqa: E402

NER = TASKS["ner"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    return tiny_gliner(tmp_path_factory.mktemp("gliner"), sample)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, sample: Path, checkpoint: Path):
    config = quick_config(
        "ner", f"gliner:{checkpoint}", max_train_samples=48, epochs=1, evals_per_epoch=1, max_length=64
    )
    return run_experiment(config, sample, tmp_path_factory.mktemp("runs"), quiet=True)


def test_a_run_is_whole_and_its_model_answers_the_same(trained, sample: Path):
    scores = trained.read_json("scores.json")
    assert scores["best_step"] > 0
    assert set(scores["thresholds"]) == {"PS", "LC", "OG", "DT", "TI", "QT"}
    assert "dev_at_usual_threshold" in scores
    assert (trained.path / "model" / "model.safetensors").is_file()
    dev = read_split(sample, "ner", "dev")
    again = load_model(trained).predict(dev)
    assert read_predictions(trained.predictions_path("dev"), NER, dev) == again.predictions


def test_it_learns_what_it_is_shown(sample: Path, checkpoint: Path, tmp_path: Path):
    config = quick_config("ner", f"gliner:{checkpoint}", learning_rate=1e-3)
    model = Gliner2Model(config, NER, Workers("cpu"))
    text = "홍길동은 서울에 산다"
    (record,) = model.features(0, TextExample("a", text, ("B-PS", "I-PS", "I-PS", *"OO", "B-LC", "I-LC", *"OOOO")))
    optimizer = torch.optim.AdamW(model.network.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = model.network(model.network.collate([record], None, True))["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    "text", ["홍길동은 서울에 산다", "😀홍길동🇰🇷은 서울", normalize("NFD", "홍길동은 서울에"), " 홍 \t서울", ""]
)
def test_offsets_are_those_of_the_text(checkpoint: Path, text: str):
    words = list(CharacterSplitter()(text))
    assert all(normalize("NFC", text[start:end]).lower() == word for word, start, end in words)
    assert normalize("NFC", "".join(word for word, _, _ in words)) == normalize("NFC", "".join(text.split()))
    model = Gliner2Model(quick_config("ner", f"gliner:{checkpoint}"), NER, Workers("cpu"))
    model.thresholds = dict.fromkeys(model.thresholds, 0.0)
    borders = {0, len(text), *(position for _, start, end in words for position in (start, end))}
    (spans,) = model._find_spans([TextExample("a", text, ())])
    assert all(span.start in borders and span.end in borders for span in spans)
    (answer,) = model.predict([TextExample("a", text, ())])
    assert len(answer.answer) == len(text)


def test_long_texts_are_read_in_windows_that_meet(checkpoint: Path):
    model = Gliner2Model(quick_config("ner", f"gliner:{checkpoint}", max_length=64), NER, Workers("cpu"))
    assert model._windows(" ") == []
    for length in (63, 64, 65, 97, 300):
        windows = model._windows("가" * length)
        assert windows[0][0] == 0
        assert windows[-1][1] == length
        assert all(b <= a + 64 for a, b in windows)
        assert all(later[0] == before[1] - 32 for before, later in pairwise(windows))
    long = [TextExample("a", "가" * 65, ()), TextExample("b", "가" * 64, ())]
    assert model._windows_line(long).startswith("1 of 2 dev texts are longer than 64")


def test_zero_shot_changes_no_weight(sample: Path, checkpoint: Path, tmp_path: Path):
    config = quick_config(
        "ner", f"gliner:{checkpoint}", zero_shot=True, max_train_samples=20, **{"gliner.label_names": "PS=사람"}
    )
    run = run_experiment(config, sample, tmp_path, quiet=True)
    assert "best_step" not in run.read_json("scores.json")
    (row,) = make_systems_tables([read_record(run)], str(sample))[0].rows
    assert "gliner" in row  # and not fine-tuned gliner
    before, after = (read_tensors(folder / "model.safetensors") for folder in (checkpoint, run.path / "model"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_thresholds_are_tuned_by_type():
    gold = [[EntitySpan(0, 1, "PS")], [EntitySpan(2, 3, "LC")]]
    found = [
        [EntitySpan(0, 1, "PS", 0.3), EntitySpan(1, 2, "LC", 0.6)],
        [EntitySpan(2, 3, "LC", 0.8), EntitySpan(0, 1, "PS", 0.1)],
    ]
    thresholds = tune_thresholds(found, gold, ["PS", "LC"])
    assert 0.1 < thresholds["PS"] <= 0.3
    assert 0.6 < thresholds["LC"] <= 0.8
    assert [span.type for span in filter_spans(found[0], thresholds)] == ["PS"]
    assert filter_spans([EntitySpan(0, 1, "PS", thresholds["PS"])], thresholds)[0].score == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"architecture": "span", "max_width": 12, "span_head": {"max_width": 12}}, "at most 12 characters"),
        (None, "no GLiNER 2 checkpoint with safetensors"),
    ],
)
def test_checkpoints_that_do_not_fit_are_one_line(sample: Path, checkpoint: Path, tmp_path: Path, change, complaint):
    folder = tmp_path / "odd"
    (folder / "encoder_config").mkdir(parents=True)
    for file in ("config.json", "encoder_config/config.json", "model.safetensors"):
        (folder / file).write_bytes((checkpoint / file).read_bytes())
    if change is None:
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(DanseoError, match=complaint):
        run_experiment(quick_config("ner", f"gliner:{folder}"), sample, tmp_path / "runs", quiet=True)
