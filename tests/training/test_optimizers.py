import math
from dataclasses import dataclass

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from torch import nn

from danseo.config.train import TrainSettings
from danseo.errors import DanseoError
from danseo.models.encoder.heads.biaffine import OfficialParser
from danseo.models.encoder.network import Network
from danseo.models.encoder.settings import EncoderSettings
from danseo.training.optimizers import (
    compute_lr_factor,
    freeze,
    make_optimizer,
    make_parameter_groups,
    orthogonalize,
    set_learning_rates,
)
from tests.tiny import FAMILIES

LAYERS = 3
COMMON = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "num_labels": 3,
}
OWN = {
    "electra": {"embedding_size": 8},  # so that there is a projection
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm"},
    "modernbert": {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
}


@dataclass(frozen=True)
class Parts:
    """How the weights of a family's classifier are called, by depth."""

    embeddings: tuple[str, ...]
    layers: str
    above: tuple[str, ...]
    """Pretrained, but neither embeddings nor layers."""
    head: tuple[str, ...]


_ROBERTA = Parts(("roberta.embeddings.",), "roberta.encoder.layer.", (), ("classifier.",))
PARTS = {
    "bert": Parts(("bert.embeddings.",), "bert.encoder.layer.", ("bert.pooler.",), ("classifier.",)),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "electra": Parts(
        ("electra.embeddings.", "electra.embeddings_project."), "electra.encoder.layer.", (), ("classifier.",)
    ),
    "deberta-v2": Parts(
        ("deberta.embeddings.", "deberta.encoder.rel_embeddings."),
        "deberta.encoder.layer.",
        ("deberta.encoder.LayerNorm.",),
        ("pooler.", "classifier."),
    ),
    "modernbert": Parts(("model.embeddings.",), "model.layers.", ("model.final_norm.",), ("head.", "classifier.")),
}
HEAD, ABOVE = LAYERS + 2, LAYERS + 1


def depth_of(name: str, family: str) -> int:
    """0 for embeddings, 1 to n for layers, then what lies above them, then the head; each name is only one of them."""
    parts, name = PARTS[family], name.removeprefix("model.")
    depths = [0] * name.startswith(parts.embeddings) + [ABOVE] * name.startswith(parts.above)
    depths += [HEAD] * name.startswith(parts.head)
    if name.startswith(parts.layers):
        depths.append(int(name.removeprefix(parts.layers).split(".")[0]) + 1)
    assert len(depths) == 1, name
    return depths[0]


def network_of(family: str, auto: str = "AutoModelForSequenceClassification") -> Network:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **{**COMMON, **OWN.get(family, {})})
    return Network(getattr(transformers, auto).from_config(config, attn_implementation="eager"), None)


def train_a_little(network: Network, config: TrainSettings, steps: int = 2) -> None:
    optimizer = make_optimizer(network, config)
    ids = torch.randint(3, 50, (4, 9))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "segments": torch.zeros_like(ids)}
    for _ in range(steps):
        set_learning_rates(optimizer, 1.0)
        nn.functional.cross_entropy(network(batch)["logits"], torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
        optimizer.zero_grad()


# Freezing

FROZEN = {
    "none": set(),
    "embeddings": {0},
    "encoder": set(range(LAYERS + 2)),
    "0": {0},
    "2": {0, 1, 2},
    "3": {0, 1, 2, 3},
}


@pytest.mark.parametrize(
    ("family", "what"),
    [*(("bert", what) for what in FROZEN), *((f, w) for f in FAMILIES[1:] for w in ("encoder", "2"))],
)
def test_frozen_weights_stay_bit_equal_and_the_others_move(family, what):
    network = network_of(family)
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    count = freeze(network, what)
    train_a_little(network, TrainSettings(learning_rate=0.01))
    depths = {name: depth_of(name, family) for name in before}
    still = {name for name, depth in depths.items() if depth in FROZEN[what]}
    assert count == sum(before[name].numel() for name in still)
    moved = {name for name, parameter in network.named_parameters() if not torch.equal(parameter, before[name])}
    assert not moved & still
    for depth in set(depths.values()) - FROZEN[what]:
        assert any(depths[name] == depth for name in moved), f"nothing learns at depth {depth}"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_bare_body_with_a_head_of_our_own_freezes_alike(family):
    network = network_of(family, "AutoModel")
    network.head = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2) for _ in range(9)])})
    freeze(network, "encoder")
    learning = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert {name for name in learning if ".pooler." not in name} == {
        f"head.layers.{number}.{kind}" for number in range(9) for kind in ("weight", "bias")
    }
    with pytest.raises(DanseoError, match=f"number of layers up to {LAYERS}"):
        freeze(network, "4")


@pytest.mark.parametrize("what", ["head", "4", "-1", "1.5"])
def test_an_unknown_part_is_refused(what):
    with pytest.raises(DanseoError, match="none, encoder, embeddings, or a number of layers up to 3"):
        freeze(network_of("bert"), what)


def test_nothing_left_to_learn_is_an_error():
    network = network_of("bert", "AutoModel")
    network.requires_grad_(False)
    with pytest.raises(DanseoError, match="frozen"):
        make_optimizer(network, TrainSettings())


# Decay


def without_decay(network: nn.Module) -> set[str]:
    groups = make_parameter_groups(network, TrainSettings(weight_decay=0.1))
    spared = {id(p) for group in groups if group["weight_decay"] == 0 for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
    return {name for name, parameter in network.named_parameters() if id(parameter) in spared}


def biases_and_norms(network: nn.Module) -> set[str]:
    """By the classes of the modules rather than by names."""
    found = set()
    for prefix, module in network.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            if "norm" in type(module).__name__.lower() or "bias" in name:
                found.add(f"{prefix}.{name}")
    return found


@pytest.mark.parametrize("auto", ["AutoModelForSequenceClassification", "AutoModel"])
@pytest.mark.parametrize("family", FAMILIES)
def test_biases_and_norms_do_not_decay(family, auto):
    network = network_of(family, auto)
    spared = without_decay(network)
    assert spared == biases_and_norms(network)
    assert len(spared) > LAYERS


def test_the_biases_of_lstms_do_not_decay_either():
    network = network_of("bert", "AutoModel")
    network.head = OfficialParser(16, 3, EncoderSettings(arc_hidden_size=8, relation_hidden_size=8))
    spared = without_decay(network)
    assert "head.encoder.bias_ih_l0_reverse" in spared
    assert "head.encoder.weight_ih_l0" not in spared
    assert spared == biases_and_norms(network)


# Rates


def rates_of(network: nn.Module, config: TrainSettings) -> dict[str, float]:
    groups = make_parameter_groups(network, config)
    rates = {id(parameter): group["peak"] for group in groups for parameter in group["params"]}
    return {name: rates[id(parameter)] for name, parameter in network.named_parameters()}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_layer_learns_at_a_share_of_the_one_above(family):
    rates = rates_of(network_of(family), TrainSettings(learning_rate=1e-3, layer_lr_decay=0.5))
    expected = {0: 1e-3 / 8, 1: 1e-3 / 4, 2: 1e-3 / 2, 3: 1e-3, ABOVE: 1e-3, HEAD: 1e-3}
    for name, rate in rates.items():
        assert rate == pytest.approx(expected[depth_of(name, family)]), name


def test_of_twelve_layers_the_top_one_learns_at_the_full_rate():
    """The numbers of the specification: 12 layers at 0.9, the bottom one at 0.9 to the 11th."""
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(12))
    body = nn.ModuleDict({"embeddings": nn.Embedding(3, 2), "encoder": nn.ModuleDict({"layer": layers})})
    network = nn.ModuleDict({"model": body, "head": nn.Linear(2, 2)})
    rates = rates_of(network, TrainSettings(learning_rate=1.0, layer_lr_decay=0.9))
    assert rates["model.encoder.layer.11.weight"] == rates["head.weight"] == 1.0
    assert rates["model.encoder.layer.0.weight"] == pytest.approx(0.3138, abs=5e-5)
    assert rates["model.embeddings.weight"] == pytest.approx(0.9**12)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_has_a_rate_of_its_own(family):
    rates = rates_of(network_of(family), TrainSettings(learning_rate=1e-5, head_learning_rate=1e-3))
    for name, rate in rates.items():
        assert rate == (1e-3 if depth_of(name, family) == HEAD else 1e-5), name


def test_rates_follow_the_schedule_or_a_fixed_value():
    network = network_of("bert")
    optimizer = make_optimizer(network, TrainSettings(learning_rate=1e-3, head_learning_rate=1e-2))
    assert set_learning_rates(optimizer, 0.5) == pytest.approx(5e-3)
    assert {round(group["lr"], 9) for group in optimizer.param_groups} == {5e-4, 5e-3}
    assert set_learning_rates(optimizer, 0.5, fixed=2e-5) == 2e-5
    assert {group["lr"] for group in optimizer.param_groups} == {2e-5}


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        ("linear", {0: 0, 5: 0.5, 10: 1, 55: 0.5, 99: 1 / 90}),
        ("cosine", {0: 0, 5: 0.5, 10: 1, 32.5: 0.5 * (1 + math.sqrt(0.5)), 55: 0.5, 100: 0}),
        ("constant", {0: 0, 5: 0.5, 10: 1, 55: 1, 99: 1}),
        ("warmup_stable_decay", {0: 0, 5: 0.5, 10: 1, 82: 1, 91: 0.5, 100: 0}),
    ],
)
def test_schedules_after_a_warm_up(schedule, shares):
    config = TrainSettings(lr_scheduler_type=schedule, warmup_ratio=0.1)
    for step, share in shares.items():
        assert compute_lr_factor(step, 100, config) == pytest.approx(share, abs=1e-12), step


def test_schedules_agree_with_the_library():
    """Linear and cosine are those that everybody trains with."""
    for schedule, make in (
        ("linear", transformers.get_linear_schedule_with_warmup),
        ("cosine", transformers.get_cosine_schedule_with_warmup),
    ):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        theirs = make(optimizer, num_warmup_steps=4, num_training_steps=37)
        for step in range(37):
            config = TrainSettings(lr_scheduler_type=schedule, warmup_ratio=0.1)
            assert compute_lr_factor(step, 37, config) == pytest.approx(theirs.get_last_lr()[0])
            optimizer.step()
            theirs.step()


def test_cycles_of_an_epoch_agree_with_the_libraries():
    """Restarts are those of transformers, and annealing is that of torch; both start again with each epoch."""
    weights = [nn.Parameter(torch.zeros(1))]
    for schedule, make in (
        (
            "cosine_with_restarts",
            lambda optimizer: transformers.get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, 0, 20, 4),
        ),
        ("cosine_annealing", lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)),
    ):
        config = TrainSettings(lr_scheduler_type=schedule, warmup_ratio=0, lr_cycles_per_epoch=4)
        optimizer = torch.optim.SGD(weights, lr=1.0)
        theirs = make(optimizer)
        for step in range(20):
            for epoch in (0, 1, 2):
                found = compute_lr_factor(20 * epoch + step, 60, config, 20)
                assert found == pytest.approx(theirs.get_last_lr()[0], abs=1e-12), (schedule, step)
            optimizer.step()
            theirs.step()


def test_annealing_gives_the_rates_of_the_source_with_swa():
    """Rates of 21,008 examples in batches of 32, from 5e-5 to 5e-6 in five half waves of the first epoch."""
    settings = {"lr_scheduler_type": "cosine_annealing", "lr_cycles_per_epoch": 5, "min_lr_rate": 0.1}
    config = TrainSettings(learning_rate=5e-5, warmup_ratio=0, **settings)
    expected = {0: 5e-5, 65: 2.7769787e-5, 131: 5e-6, 262: 5e-5, 393: 5e-6, 524: 5e-5, 655: 5e-6}
    for step, rate in expected.items():
        assert 5e-5 * compute_lr_factor(step, 6570, config, 657) == pytest.approx(rate, abs=1e-12), step


@pytest.mark.parametrize("schedule", ["linear", "cosine", "cosine_with_restarts", "warmup_stable_decay"])
def test_no_schedule_falls_below_its_lowest_rate(schedule):
    config = TrainSettings(lr_scheduler_type=schedule, warmup_ratio=0, min_lr_rate=0.25, lr_cycles_per_epoch=3)
    rates = [compute_lr_factor(step, 100, config, 100) for step in range(101)]
    assert (max(rates), min(rates)) == (1, pytest.approx(0.25, abs=0.01))


def test_an_unknown_schedule_is_an_error():
    config = TrainSettings().model_copy(update={"lr_scheduler_type": "step"})
    with pytest.raises(DanseoError, match="lr_scheduler_type = step"):
        compute_lr_factor(5, 10, config)


@pytest.mark.parametrize(
    "schedule", ["linear", "cosine", "cosine_with_restarts", "cosine_annealing", "constant", "warmup_stable_decay"]
)
@pytest.mark.parametrize("total", [1, 2, 3, 10])
@pytest.mark.parametrize("warmup", [0.1, 1.0])
def test_at_least_one_step_has_the_peak_rate(schedule, total, warmup):
    """A training of one step would learn nothing otherwise."""
    config = TrainSettings(lr_scheduler_type=schedule, warmup_ratio=warmup)
    assert max(compute_lr_factor(step, total, config) for step in range(total)) == 1


# Muon


@pytest.mark.parametrize("rank", [2, 32])
@pytest.mark.parametrize("shape", [(32, 32), (32, 48), (32, 64), (256, 32)])
def test_orthogonal_takes_the_same_steps_whatever_the_shape(shape, rank):
    """The small product of a wide matrix stands for the matrix, though rounding counts twice in it."""
    torch.manual_seed(1)
    matrices = torch.randn(2, shape[0], rank) @ torch.randn(2, rank, shape[1])
    expected = matrices.double() / matrices.double().norm(dim=(-2, -1), keepdim=True)
    for _ in range(5):
        square = expected @ expected.mT
        expected = 3.4445 * expected + (-4.7750 * square + 2.0315 * square @ square) @ expected
    assert torch.allclose(orthogonalize(matrices).double(), expected, atol=1e-2 if rank == 2 else 1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_muon_turns_the_matrices_of_layers_and_leaves_the_rest_to_adamw(family):
    plain, turned = network_of(family), network_of(family)
    for network, optimizer in ((plain, "adamw"), (turned, "muon")):
        torch.manual_seed(2)
        train_a_little(network, TrainSettings(learning_rate=0.01, optimizer=optimizer), steps=1)
    others = dict(plain.named_parameters())
    differing = {name for name, weight in turned.named_parameters() if not torch.allclose(weight, others[name])}
    matrices = {name for name, weight in others.items() if weight.ndim == 2 and 1 <= depth_of(name, family) <= LAYERS}
    assert differing == matrices


def test_a_step_of_muon_is_as_long_as_one_of_adamw():
    network = network_of("bert")
    before = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    train_a_little(network, TrainSettings(learning_rate=0.01, weight_decay=0.0, optimizer="muon"), steps=1)
    name = next(name for name in before if name.endswith("attention.self.value.weight"))
    size = (dict(network.named_parameters())[name] - before[name]).pow(2).mean().sqrt()
    assert 0.1 * 0.01 < size < 0.3 * 0.01
