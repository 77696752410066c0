"""The slopes that models of networks write out are those of autograd, along the path too."""

from itertools import product
from typing import Any

import pytest
import torch

from partita.core.support import Real
from partita.models import LatentEnergy, NeuralEnergy
from partita.nets import MLP
from partita.nets.mlp import BACKWARD
from partita.samplers.gradient import energy_and_gradient


def randomized(model: Any, g: torch.Generator) -> Any:
    with torch.no_grad():
        for p in model.double().parameters():
            p.normal_(generator=g).mul_(1.5)
        width = model.support.width
        model.reference_mean.normal_(generator=g)
        model.reference_whitening.add_(0.3 * torch.randn(width, width, generator=g).double().tril())
    return model


@pytest.mark.parametrize("activation", BACKWARD)
@pytest.mark.parametrize("kind", ["latent", "neural"])
def test_slopes_are_those_of_autograd(
    kind: str, activation: str, generator: torch.Generator
) -> None:
    for width, layers in product((1, 3), ((), (8,), (6, 5, 7))):
        net = MLP(
            width,
            4 if kind == "latent" else 1,
            widths=layers,
            activation=activation,
            generator=generator,
        )
        made = (
            LatentEnergy(net, width, 3, 4, generator=generator)
            if kind == "latent"
            else NeuralEnergy(net, Real(width))
        )
        model = randomized(made, generator)
        x = 3 * torch.randn(5, 6, width, generator=generator).double()
        for view in (
            model,
            model.annealed(0.3),
            model.annealed(torch.rand(5, 1, generator=generator).double()).annealed(0.7),
        ):
            energy, slope = energy_and_gradient("test", view, x)
            at = x.clone().requires_grad_()
            expected = view.free_energy(at)
            torch.testing.assert_close(energy, expected.detach(), rtol=1e-12, atol=1e-11)
            torch.testing.assert_close(
                slope, torch.autograd.grad(expected.sum(), at)[0], rtol=1e-11, atol=1e-10
            )


def test_other_networks_and_finite_supports_take_the_backward_pass(
    generator: torch.Generator,
) -> None:
    class Own(MLP):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    model = NeuralEnergy(Own(2, 1, generator=generator), Real(2))
    assert model.slope(torch.zeros(3, 2)) is None
    x = torch.randn(3, 2, generator=generator).requires_grad_()
    (expected,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(energy_and_gradient("test", model, x)[1], expected)
