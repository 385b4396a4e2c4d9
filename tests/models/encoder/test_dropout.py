"""Dropout on a CPU."""

import pytest

torch = pytest.importorskip("torch")

from danseo.models.encoder.packed_texts import CpuDropout, use_cpu_dropout  # noqa: E402


def test_a_share_is_dropped_and_the_mean_stays():
    torch.manual_seed(1)
    layer, states = CpuDropout(0.1), torch.ones(997, 101, requires_grad=True)
    dropped = layer(states)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.1, abs=0.005)
    assert sorted(set(dropped.detach().flatten().tolist())) == pytest.approx([0, 1 / 0.9])
    dropped.sum().backward()
    assert torch.equal(states.grad, dropped.detach())
    torch.manual_seed(1)
    assert torch.equal(layer(states), dropped)
    assert torch.equal(layer.eval()(states), states)


def test_all_layers_are_replaced_and_weights_keep_their_names():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    names = list(model.state_dict())
    use_cpu_dropout(model)
    assert isinstance(model[1], CpuDropout)
    assert list(model.state_dict()) == names
