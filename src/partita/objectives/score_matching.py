r"""Score matching: fit the slope of log p, in which Z does not occur (Hyvärinen 2005).

.. math:: \ell = E_{\mathrm{data}}\big[\tfrac12 \lVert s(x) \rVert^2 + \nabla \cdot s(x)\big],
          \qquad s(x) = -\nabla_x F(x)
          (theory/objectives.md, eq. 6.9)

The divergence is the trace of a matrix of second derivatives. ``"exact"`` takes it column by
column; ``"sliced"`` estimates it by v' (ds/dx) v with random signs v (Song et al. 2019);
``"denoising"`` by s(x + sigma e)'e / sigma, which is the same loss for the data smoothed by noise
of deviation sigma, without second derivatives (Vincent 2011).

Letters: B batch, D visible.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import PositiveFloat, PositiveInt
from partita.core.protocols import Batch, Data, EnergyModel, unwrapped
from partita.errors import Unsupported
from partita.objectives.base import Nothing, Stateless, trial_rows


@dataclass(frozen=True)
class ScoreMatching(Stateless):
    """Hyvärinen's loss on real supports, with the divergence exact, sliced or by denoising.

    Arguments:
        kind: ``"exact"`` (D more derivatives for each row), ``"sliced"`` or ``"denoising"``.
        sigma: Deviation of the noise for ``"denoising"``, in the units of x.
        slices: Random directions for each row for ``"sliced"``.
    """

    kind: Literal["exact", "sliced", "denoising"] = "exact"
    sigma: PositiveFloat = 0.1
    slices: PositiveInt = 1

    in_nats = False  # in squared units of the slope

    def deterministic_on(self, model: EnergyModel) -> bool:
        return self.kind == "exact"

    def init(self, model: EnergyModel, data: Data, *, generator: torch.Generator) -> Nothing:
        state = super().init(model, data, generator=generator)
        _check_differentiable(model, trial_rows(data, model, generator))
        return state

    def loss(
        self, model: EnergyModel, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        loss = batch.mean(self._rows(model, batch.x, generator))
        return loss, {"score_matching": loss.detach()}

    def _rows(self, model: EnergyModel, x: Tensor, generator: torch.Generator) -> Tensor:
        if self.kind == "denoising":
            return denoising_loss(model, x, rng.normal(x.shape, x, generator), self.sigma)
        if self.kind == "exact":
            return exact_loss(model, x)
        signs = rng.uniform((self.slices, *x.shape), x, generator).sub_(0.5).sign_()
        return sliced_loss(model, x, signs)


def score_at(model: EnergyModel, x: Tensor) -> tuple[Tensor, Tensor]:
    """A copy of x that gradients flow to, and s(x) = -dF/dx there, ``(*, D)``, differentiable in x
    and in the parameters.
    """
    x = x.detach().requires_grad_()
    return x, -torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]


def exact_loss(model: EnergyModel, x: Tensor) -> Tensor:
    """Half the squared score plus its divergence, coordinate by coordinate, ``(*, D) -> (*)``."""
    x, s = score_at(model, x)
    return 0.5 * s.square().sum(-1) + sum(
        _derivative(s[..., i], x)[..., i] for i in range(x.shape[-1])
    )


def sliced_loss(model: EnergyModel, x: Tensor, v: Tensor) -> Tensor:
    r"""The divergence as the mean of v' (ds/dx) v over directions ``v`` (S, *, D) with E[v v'] = 1
    (theory/objectives.md, eq. 6.10).
    """
    x, s = score_at(model, x)
    products = [(_derivative((s * direction).sum(-1), x) * direction).sum(-1) for direction in v]
    return 0.5 * s.square().sum(-1) + torch.stack(products).mean(0)


def denoising_loss(model: EnergyModel, x: Tensor, e: Tensor, sigma: float) -> Tensor:
    r"""The divergence of the score of smoothed data as s(x + sigma e)'e / sigma, e standard normal
    (theory/objectives.md, eq. 6.11).
    """
    _, s = score_at(model, x + sigma * e)
    return (0.5 * s.square() + s * e / sigma).sum(-1)


def _derivative(values: Tensor, x: Tensor) -> Tensor:
    """Gradient of each row's value in x; zero where the value does not depend on x."""
    return torch.autograd.grad(
        values.sum(), x, create_graph=True, allow_unused=True, materialize_grads=True
    )[0]


def _check_differentiable(model: EnergyModel, x: Tensor) -> None:
    """Refuse a free energy through which no gradient comes back to x."""
    x = x.detach().requires_grad_()
    values = unwrapped(model)(x)
    if values.grad_fn is None or torch.autograd.grad(values.sum(), x, allow_unused=True)[0] is None:
        raise Unsupported(
            f"ScoreMatching cannot run on {model.title()}: its free energy has no gradient in x. "
            "Use NCE instead."
        )
