import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from danseo.errors import DanseoError  # noqa: E402
from danseo.models.encoder.heads.losses import (  # noqa: E402
    compute_class_balanced_weights,
    compute_log_prior,
    compute_margins,
    cross_entropies,
    focal_losses,
    ldam_losses,
    select_hardest,
)
from danseo.models.encoder.model import Encoder  # noqa: E402
from danseo.models.encoder.model_info import check_encoder  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from danseo.training.adversarial import compute_divergence, compute_weight_shift, shift_weights  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from danseo.training.optimizers import make_optimizer  # noqa: E402
from danseo.training.training_loop import BatchPlan, train_steps  # noqa: E402
from tests.tiny import quick_config, read_split, tiny_encoder  # noqa: E402

GOLDEN = json.loads((Path(__file__).parents[3] / "fixtures" / "relations.json").read_text("utf-8"))
LOSSES = GOLDEN["losses"]
LOGITS, TARGETS = torch.tensor(LOSSES["logits"]), torch.tensor(LOSSES["targets"])
SECOND = torch.tensor(LOSSES["second_pass_logits"])


def test_losses_are_those_of_the_golden_file():
    assert cross_entropies(LOGITS, TARGETS).tolist() == pytest.approx(LOSSES["cross_entropy"], abs=1e-6)
    assert focal_losses(LOGITS, TARGETS, 2).tolist() == pytest.approx(LOSSES["focal_gamma_2"], abs=1e-6)
    assert cross_entropies(LOGITS, TARGETS, 0.1).tolist() == pytest.approx(LOSSES["label_smoothing_0.1"], abs=1e-6)
    assert torch.equal(focal_losses(LOGITS, TARGETS, 0), cross_entropies(LOGITS, TARGETS))


def test_r_drop_has_the_scale_of_its_paper():
    both = cross_entropies(LOGITS, TARGETS).mean() + cross_entropies(SECOND, TARGETS).mean()
    value = both + compute_divergence(LOGITS, SECOND) / len(TARGETS)
    assert float(value) == pytest.approx(LOSSES["rdrop_paper_alpha_1"]["value"], abs=1e-6)
    assert float(compute_divergence(LOGITS, SECOND)) == pytest.approx(
        sum(LOSSES["kl_p_q"] + LOSSES["kl_q_p"]) / 2, abs=1e-6
    )


def test_class_balanced_weights_are_those_of_the_golden_file():
    golden = LOSSES["class_balanced"]
    found = compute_class_balanced_weights(golden["counts"], golden["beta"])
    assert found.tolist() == pytest.approx(golden["weights_normalised_to_mean_1"], abs=1e-5)
    assert compute_class_balanced_weights([5, 0, 5], 0.9).tolist() == pytest.approx([1, 1, 1])


def test_margins_grow_with_rarity_and_adjustment_follows_the_prior():
    margins = compute_margins([10000, 16, 1], 0.5)
    assert margins.tolist() == pytest.approx([0.05, 0.25, 0.5])
    by_hand = LOGITS.clone()
    by_hand[0, 0] -= margins[0]
    by_hand[1, 2] -= margins[2]
    assert torch.allclose(ldam_losses(LOGITS, TARGETS, margins, 2.0), cross_entropies(2 * by_hand, TARGETS))
    assert compute_log_prior([3, 1]).exp().tolist() == pytest.approx([0.75, 0.25])


def test_the_hardest_negatives_are_those_of_the_golden_file():
    golden = GOLDEN["hard_negatives"]
    labels, losses = torch.tensor(golden["labels"]), -torch.tensor(golden["p_no_relation"]).log()
    kept = select_hardest(losses, labels == 0, 0.5)
    due = golden["top_fraction_rule_top_50_percent_of_negatives_by_loss"]
    assert kept.nonzero().flatten().tolist() == sorted([*due, 4, 6])
    assert select_hardest(losses, labels == 0, 1.0).all()


def test_moved_weights_come_back_bit_for_bit():
    layer = torch.nn.Linear(3, 2)
    layer(torch.ones(1, 3)).sum().backward()
    before = layer.weight.detach().clone()
    shift = compute_weight_shift(layer, 0.1)
    assert list(shift) == [layer.weight]
    with shift_weights(shift):
        assert float((layer.weight - before).norm()) == pytest.approx(0.1 * float(before.norm()), rel=1e-5)
    assert torch.equal(layer.weight, before)


# Every switch changes the loss, or what is learned from it


@pytest.fixture(scope="module")
def encoder(sample, tmp_path_factory):
    return tiny_encoder(tmp_path_factory.mktemp("losses") / "bert", sample, layers=1, hidden=16, dropout=0.1)


def two_steps(encoder, sample, task="re", **settings):
    """The losses of two steps, and the weights after them."""
    model = Encoder(quick_config(task, encoder, warmup_ratio=0, **settings), TASKS[task], Workers("cpu"))
    examples = sorted(read_split(sample, task, "train", 60), key=lambda e: e.gold != "no_relation")
    model.prepare([*examples[:8], *examples[-8:]], read_split(sample, task, "dev", 4))
    config = model.config.train
    plan = BatchPlan([len(record) for record in model.train_features], config, seed=1)
    steps = train_steps(model._engine(), model.train_features, plan, make_optimizer(model.network, config), config)
    losses = [next(steps).loss, next(steps).loss]
    return losses, torch.cat([weight.detach().flatten() for weight in model.network.parameters()])


@pytest.fixture(scope="module")
def plain(encoder, sample):
    return {task: two_steps(encoder, sample, task) for task in ("re", "ynat")}


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("re", {"loss": "focal", "focal_gamma": 2.0}),
        ("ynat", {"loss": "focal", "label_smoothing": 0.1}),
        ("re", {"loss": "class_balanced"}),
        ("re", {"loss": "ldam"}),
        ("ynat", {"loss": "logit_adjusted"}),
        ("ynat", {"rdrop_alpha": 1.0}),
        ("re", {"hard_negative_ratio": 0.2}),
        ("re", {"type_mask": "training", "type_mask_table": "none"}),
    ],
    ids=str,
)
def test_a_switch_changes_the_loss_and_the_weights(encoder, sample, plain, task, settings):
    losses, weights = two_steps(encoder, sample, task, **settings)
    assert losses[1] != pytest.approx(plain[task][0][1], rel=1e-6)
    assert weights.shape == plain[task][1].shape
    assert float((weights - plain[task][1]).abs().max()) > 1e-5


@pytest.mark.parametrize(
    "settings", [{"fgm_epsilon": 1.0}, {"awp_epsilon": 0.01}, {"fgm_epsilon": 1.0, "awp_epsilon": 0.01}], ids=str
)
@pytest.mark.parametrize("task", ["re", "ynat"])
def test_adversaries_leave_the_first_loss_and_change_the_weights(encoder, sample, plain, task, settings):
    losses, weights = two_steps(encoder, sample, task, **settings)
    assert losses[0] == plain[task][0][0]
    assert losses[1] != plain[task][0][1]
    assert float((weights - plain[task][1]).abs().max()) > 1e-5


def test_smoothing_reaches_every_loss(encoder, sample):
    for name in ("focal", "ldam", "class_balanced"):
        first, second = (two_steps(encoder, sample, loss=name, label_smoothing=e)[0] for e in (0.0, 0.2))
        assert first[0] != pytest.approx(second[0], rel=1e-6), name


@pytest.mark.parametrize(
    ("task", "settings", "words"),
    [
        ("ner", {"loss": "focal"}, "encoder.loss is for tasks with one label"),
        ("sts", {"rdrop_alpha": 1.0}, "encoder.rdrop_alpha is for tasks with one label"),
        ("nli", {"type_mask": "inference"}, "encoder.type_mask needs the types"),
        ("ynat", {"hard_negative_ratio": 0.5}, "encoder.hard_negative_ratio needs a label for nothing"),
        ("re", {"loss": "class_balanced", "class_weights": "balanced"}, "its own weights"),
        ("re", {"type_mask": "training", "label_smoothing": 0.1}, "label smoothing asks for labels"),
    ],
)
def test_what_makes_no_sense_is_one_line(task, settings, words):
    with pytest.raises(DanseoError, match=words):
        check_encoder(quick_config(task, "x", **settings), TASKS[task])


def test_a_masked_run_says_what_it_scores_without(encoder, sample, tmp_path):
    from danseo.experiment import run_experiment
    from danseo.models.registry import load_model

    config = quick_config("re", encoder, type_mask="inference", max_train_samples=60)
    run = run_experiment(config, sample, tmp_path, quiet=True)
    scores = run.read_json("scores.json")
    assert scores["gold_outside_mask"] == run.read_json("preflight.json")["shown"]["dev"]["gold_outside_mask"]
    assert set(scores["without_type_mask"]) == {"report", "dev"}
    dev = read_split(sample, "re", "dev", 10)
    answers = load_model(run, "cpu").predict(dev)
    for example, prediction in zip(dev, answers, strict=True):
        other = "org" if example.subject.type == "PER" else "per"
        assert all(p == 0 for label, p in prediction.probabilities.items() if label.startswith(other))
