"""A model's density in float64 whose evaluations are counted: what an evaluator with a budget
spends them through.
"""

import math

import torch
from torch import Tensor

from partita.core.protocols import EnergyModel, in_double
from partita.errors import Diverged

AT_ONCE = 1 << 14  # rows of one call


class CountedDensity:
    """log f(x) = -F(x) of a model, with the number of rows at which F was computed; a gradient
    counts as one evaluation more.

    Arguments:
        owner: The evaluator, for messages.
        model: A model on real coordinates.
    """

    def __init__(self, owner: str, model: EnergyModel) -> None:
        self.owner, self.count = owner, 0
        self.differentiable = bool(getattr(model, "differentiable", True))
        self.model, self.width = _finest(model), model.support.width
        self.like = self.model.reference().draw(
            1, generator=torch.Generator(model.like.device).manual_seed(0)
        )

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """log f, ``(n, D) -> (n,)``; minus infinity where the density is zero or no number."""
        self.count += len(x)
        parts = [self._checked(self.model.free_energy(part)) for part in self._parts(x)]
        return torch.cat(parts) if parts else x.new_empty(0)

    def slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log f and its gradient, ``(n, D) -> (n,), (n, D)``; no slope where there is none."""
        self.count += 2 * len(x)
        leaf = x.detach().to(self.like).requires_grad_()
        with torch.enable_grad():
            energy = self.model.free_energy(leaf)
            (slope,) = torch.autograd.grad(energy.sum(), leaf)
        return self._checked(energy.detach()), -torch.nan_to_num(slope.double(), 0.0, 0.0, 0.0)

    def curvature(self, x: Tensor) -> Tensor | None:
        """The Hessian of F at one state, ``(D,) -> (D, D)``; None where F has none."""
        self.count += 2 * self.width

        def energy(at: Tensor) -> Tensor:
            return self.model.free_energy(at[None])[0]

        try:
            bend = torch.autograd.functional.hessian(energy, x.to(self.like))
        except RuntimeError:  # slopes that have no slopes
            return None
        bend = torch.as_tensor(bend).double()
        return bend if bool(torch.isfinite(bend).all()) else None

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.to(self.like).split(AT_ONCE)

    def _checked(self, energy: Tensor) -> Tensor:
        log_f = -energy.double()
        if bool((log_f == math.inf).any()):
            raise Diverged(
                f"{self.owner}: F of {self.model.title()} must not be minus infinity anywhere, "
                "else Z is infinite; it is at a state that was drawn. Bound it from below."
            )
        return torch.nan_to_num(log_f, -math.inf, math.inf, -math.inf)


def _finest(model: EnergyModel) -> EnergyModel:
    """The model in float64 where it can be called so."""
    double = in_double(model)
    generator = torch.Generator(model.like.device).manual_seed(0)
    try:
        with torch.no_grad():
            double.free_energy(double.reference().draw(1, generator=generator))
    except RuntimeError:  # a network that insists on its dtype
        return model
    return double
