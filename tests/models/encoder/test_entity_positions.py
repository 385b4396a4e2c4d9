"""Embeddings of the distance of each token to the subject and the object."""

import json

import pytest

torch = pytest.importorskip("torch")

from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.encoder.entity_positions import EntityPositions  # noqa: E402
from danseo.models.encoder.model import Encoder  # noqa: E402
from danseo.models.encoder.network import POSITION_WEIGHTS  # noqa: E402
from danseo.models.encoder.packed_texts import PackedTexts, PaddedTexts  # noqa: E402
from danseo.models.registry import load_model  # noqa: E402
from danseo.runs.store import read_tensors  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from danseo.training.precision import PACKED  # noqa: E402
from tests.models.encoder.test_packed_texts import assert_same_step, bodies, compute_step  # noqa: E402, F401
from tests.models.encoder.test_packed_texts import load_model as load_encoder  # noqa: E402
from tests.tiny import FAMILIES, quick_config, read_split  # noqa: E402


def test_distances_are_counted_from_the_ends_of_an_entity():
    tokens = torch.nn.Embedding(9, 2)
    positions = EntityPositions(tokens, 2)
    positions.embeddings.weight.data = torch.arange(10.0).unsqueeze(1).repeat(1, 2)  # 0-4 subject, 5-9 object
    entities = torch.tensor([[[2, 4], [5, 6]], [[1, 2], [0, 1]]])
    subject = [[0, 1, 2, 2, 3, 4, 4], [1, 2, 3]]
    object_ = [[5, 5, 5, 5, 6, 7, 8], [7, 8, 9]]
    due = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(subject, object_, strict=True)]
    with positions.at(entities, PackedTexts.of([7, 3]), is_packed=True):
        ids = torch.zeros(1, 10, dtype=torch.long)
        added = tokens(ids) - tokens.weight[0]
    assert added[0, :, 0].round().tolist() == [*due[0], *due[1]]
    with positions.at(entities, PaddedTexts(torch.tensor([[1] * 7, [1] * 3 + [0] * 4])), is_packed=False):
        added = tokens(torch.zeros(2, 7, dtype=torch.long)) - tokens.weight[0]
    assert added[0, :, 0].round().tolist() == due[0]
    assert added[1, :3, 0].round().tolist() == due[1]
    assert torch.equal(tokens(ids)[0, 0], tokens.weight[0])  # nothing is added outside


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        *((family, {}) for family in (*FAMILIES, "llama") if family != "deberta-v2"),
        ("bert", {"pooling": "e_mean", "markers": "concat"}),
        ("modernbert", {"markers": "entity_mask"}),
    ],
)
def test_packed_and_padded_steps_are_equal(bodies, sample, family, settings):  # noqa: F811
    model = load_encoder(bodies(family), sample, "re", max_length=96, max_entity_distance=8, **settings)
    torch.nn.init.normal_(model.network.entity_positions.embeddings.weight)
    assert_same_step(model)
    assert compute_step(model, PACKED)[1]["entity_positions.embeddings.weight"].abs().max() > 0


def test_a_body_starts_as_it_is(bodies, sample):  # noqa: F811
    losses = [
        compute_step(load_encoder(bodies("bert"), sample, "re", max_length=96, max_entity_distance=distance), PACKED)[0]
        for distance in (0, 8)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("family", ["electra", "deberta-v2"])
def test_a_run_learns_saves_and_loads_them(bodies, sample, tmp_path, family):  # noqa: F811
    config = quick_config("re", bodies(family), max_entity_distance=20, max_train_samples=24, max_length=96)
    run = run_experiment(config, sample, tmp_path / "runs", quiet=True)
    file = run.path / "model" / POSITION_WEIGHTS
    assert read_tensors(file)["embeddings.weight"].abs().max() > 0
    dev = read_split(sample, "re", "dev", 6)
    saved = [json.loads(line) for line in run.predictions_path("dev").read_text("utf-8").splitlines()]
    again = load_model(run, "cpu").predict(dev)
    for prediction, row in zip(again, saved[:6], strict=True):
        assert prediction.probabilities == pytest.approx(row["probabilities"], abs=1e-3)
    file.unlink()
    with pytest.raises(DanseoError, match=POSITION_WEIGHTS):
        load_model(run, "cpu")


def test_the_official_architecture_has_none(bodies, sample):  # noqa: F811
    config = quick_config("re", bodies("bert"), max_entity_distance=8, architecture="official")
    with pytest.raises(DanseoError, match="max_entity_distance"):
        Encoder(config, TASKS["re"], Workers("cpu"))
