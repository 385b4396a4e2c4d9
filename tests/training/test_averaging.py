import pytest

torch = pytest.importorskip("torch")

from danseo.config.train import TrainSettings  # noqa: E402
from danseo.training.optimizers import Average, is_averaging  # noqa: E402

EPOCH = 5


def weights_of(network):
    return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}


def trained(config: TrainSettings, steps: int):
    """A network whose weights change at every step, its average, and the weights after each step."""
    torch.manual_seed(0)
    network = torch.nn.Linear(3, 2)
    average, snapshots = Average(network, config), []
    for step in range(1, steps + 1):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update(step, EPOCH)
        snapshots.append(weights_of(network))
    return network, average, snapshots


def mean_of(snapshots):
    return {name: torch.stack([weights[name] for weights in snapshots]).mean(0) for name in snapshots[0]}


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"swa_start_epoch": 0}, [5, 10, 15, 20]),
        ({"swa_start_epoch": 1}, [10, 15, 20]),  # the ends of epochs 2 and on, as the seed has it
        ({"swa_start_epoch": 3}, [20]),
        ({"swa_start_epoch": 1, "swa_every_steps": 2}, [6, 8, 10, 12, 14, 16, 18, 20]),
        ({"swa_start_epoch": 1.5, "swa_every_steps": 4}, [8, 12, 16, 20]),
    ],
)
def test_swa_is_the_mean_of_its_snapshots(settings, steps):
    _, average, snapshots = trained(TrainSettings(**settings), 20)
    assert average.count == len(steps)
    assert_close(average.weights, mean_of([snapshots[step - 1] for step in steps]))


def test_swa_over_ten_epochs_takes_nine_snapshots():
    assert trained(TrainSettings(swa_start_epoch=1), 10 * EPOCH)[1].count == 9


@pytest.mark.parametrize("settings", [{}, {"swa_start_epoch": 4}])
def test_no_average_before_its_start(settings):
    network, average, _ = trained(TrainSettings(**settings), 20)
    before = weights_of(network)
    assert not average.is_active
    with average.swap_into(network):
        assert_close(weights_of(network), before)


def test_ema_keeps_a_share_of_the_old_average():
    _, average, snapshots = trained(TrainSettings(ema_decay=0.9), 7)
    expected = snapshots[0]
    for weights in snapshots[1:]:
        expected = {name: 0.9 * expected[name] + 0.1 * weights[name] for name in expected}
    assert_close(average.weights, expected)


def test_swapping_shows_the_average_and_restores_every_bit():
    network, average, snapshots = trained(TrainSettings(swa_start_epoch=1), 20)
    kept = {name: weights.clone() for name, weights in average.weights.items()}
    with average.swap_into(network):
        assert_close(weights_of(network), kept)
    assert all(torch.equal(value, snapshots[-1][name]) for name, value in weights_of(network).items())
    with pytest.raises(KeyError), average.swap_into(network):
        raise KeyError
    assert all(torch.equal(value, snapshots[-1][name]) for name, value in weights_of(network).items())
    assert all(torch.equal(value, kept[name]) for name, value in average.weights.items())


def test_frozen_weights_are_not_averaged():
    network = torch.nn.Linear(3, 2)
    network.bias.requires_grad_(False)
    average = Average(network, TrainSettings(ema_decay=0.5))
    average.update(1, EPOCH)
    assert list(average.weights) == ["weight"]


def test_an_average_of_the_encoder_leaves_the_head_out():
    network = torch.nn.ModuleDict({"model": torch.nn.Linear(3, 2), "head": torch.nn.Linear(2, 2)})
    average = Average(network, TrainSettings(swa_start_epoch=0, swa_include="encoder"))
    average.update(EPOCH, EPOCH)
    assert sorted(average.weights) == ["model.bias", "model.weight"]


def test_the_constant_rate_begins_with_the_start_epoch():
    config = TrainSettings(swa_start_epoch=1)
    assert [step for step in range(12) if is_averaging(step, EPOCH, config)] == list(range(5, 12))
    assert not is_averaging(100, EPOCH, TrainSettings())
