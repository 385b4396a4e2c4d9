"""Pairs of texts read by comparing them: encoder.pooling = compare."""

import json

import pytest

torch = pytest.importorskip("torch")

from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.encoder.heads.classification import ClassificationHead  # noqa: E402
from danseo.models.encoder.heads.pooling import CompareHead  # noqa: E402
from danseo.models.encoder.network import load_encoder_tokenizer  # noqa: E402
from danseo.models.encoder.packed_texts import PackedTexts  # noqa: E402
from danseo.models.registry import load_model  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from tests.tiny import quick_config, read_split, tiny_encoder  # noqa: E402

WIDTH = 8


@pytest.fixture(scope="module")
def encoder(sample, tmp_path_factory):
    return tiny_encoder(tmp_path_factory.mktemp("compare") / "bert", sample)


def said(head: CompareHead, hidden, sides) -> torch.Tensor:
    return head.eval()(hidden[0], {"sides": torch.tensor(sides), "texts": PackedTexts.of([hidden.shape[1]])})["logits"]


def test_only_the_two_texts_count_and_padding_does_not():
    torch.manual_seed(0)
    head, hidden = CompareHead(WIDTH, 3, 0.0), torch.randn(1, 9, WIDTH)
    sides = [[[1, 4], [5, 8]]]
    before = said(head, hidden, sides)
    other = hidden.clone()
    other[:, [0, 4, 8]] += 10  # special pieces
    assert torch.allclose(said(head, other, sides), before, atol=1e-5)
    longer = torch.cat([hidden, torch.randn(1, 4, WIDTH)], dim=1)
    assert torch.allclose(said(head, longer, sides), before, atol=1e-5)
    for position in (2, 6):
        changed = hidden.clone()
        changed[:, position] += 1
        assert not torch.allclose(said(head, changed, sides), before, atol=1e-3)


def test_the_sides_are_where_the_texts_stand(encoder, sample):
    config = quick_config("nli", encoder, pooling="compare")
    task_head = ClassificationHead(TASKS["nli"], load_encoder_tokenizer(config), config.encoder, config.train)
    examples = read_split(sample, "nli", "dev", 5)
    for record, example in zip(task_head.encode(examples, with_gold=False), examples, strict=True):
        texts = [task_head.tokenizer.tokenize([text])[0].encoding.ids for text in (example.text, example.pair)]
        assert [list(record.ids[start:end]) for start, end in record.fields["sides"]] == texts


@pytest.mark.parametrize("task", ["sts", "mrc"])
def test_a_run_learns_and_its_saved_model_answers_the_same(task, encoder, sample, tmp_path):
    config = quick_config(task, encoder, pooling="compare", max_train_samples=24)
    run = run_experiment(config, sample, tmp_path, quiet=True)
    examples = read_split(sample, task, "dev")
    lines = run.predictions_path("dev").read_text("utf-8").splitlines()
    saved = {record["guid"]: record["answer"] for record in map(json.loads, lines)}
    for prediction in load_model(run).predict(examples):
        wanted = saved[prediction.guid]
        assert prediction.answer == (pytest.approx(wanted, abs=1e-4) if task == "sts" else wanted)


@pytest.mark.parametrize("task", ["ynat", "re"])
def test_a_task_without_pairs_is_refused(task, encoder, sample, tmp_path):
    with pytest.raises(DanseoError, match="compare is for pairs of texts"):
        run_experiment(quick_config(task, encoder, pooling="compare"), sample, tmp_path, quiet=True)
