"""Networks say what they are, and are built again from it."""

import json

import pytest
import torch
from torch import nn

from partita.errors import InputError, RunError
from partita.models.networked import build, describe
from partita.nets import MLP


def test_the_layers_are_the_formula(generator: torch.Generator) -> None:
    net = MLP(3, 2, widths=(4, 5), activation="tanh", generator=generator)
    first, second, third = (layer for layer in net.layers if isinstance(layer, nn.Linear))
    x = torch.randn(7, 3, generator=generator)
    by_hand = (
        torch.tanh(torch.tanh(x @ first.weight.T + first.bias) @ second.weight.T + second.bias)
        @ third.weight.T
        + third.bias
    )
    torch.testing.assert_close(net(x), by_hand)


def test_weights_come_from_the_generator_alone() -> None:
    torch.manual_seed(0)
    a, b, c = (MLP(3, 2, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    x = torch.ones(4, 3)
    assert torch.equal(a(x), b(x)) and not torch.equal(a(x), c(x))


def test_a_description_survives_json(generator: torch.Generator) -> None:
    net = MLP(3, 2, widths=(4,), activation="softplus", generator=generator)
    description = json.loads(json.dumps(describe(net)))
    again = build(description, "test", generator=generator)
    assert describe(again) == description
    again.load_state_dict(net.state_dict())
    torch.testing.assert_close(again(torch.ones(1, 3)), net(torch.ones(1, 3)))


def test_modules_of_the_user_are_not_described(generator: torch.Generator) -> None:
    class Mine(MLP):
        pass

    assert describe(nn.Linear(2, 2)) is None
    assert describe(Mine(2, 1, generator=generator)) is None
    with pytest.raises(RunError, match=r"load: net must be one of MLP.*; got 'Popen'\."):
        build({"net": "Popen"}, "test", generator=generator)


def test_settings_are_checked(generator: torch.Generator) -> None:
    with pytest.raises(
        InputError, match=r"MLP: widths must be a whole number of at least 1; got 0\."
    ):
        MLP(2, 1, widths=(0,), generator=generator)
    with pytest.raises(
        InputError,
        match=r"MLP: activation must be one of silu, tanh, softplus, gelu, relu; got 'step'\.",
    ):
        MLP(2, 1, activation="step", generator=generator)
