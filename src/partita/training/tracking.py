r"""log Z carried along a fit, by chains that follow its weights and that it does not learn from.

.. math:: \log w \mathrel{+}= F_{\theta_t}(x) - F_{\theta_{t+1}}(x), \qquad
          x' \sim T_{\theta_{t+1}}(\cdot \mid x)          (theory/scoring.md, eq. 5.34)

The steps of a fit are the temperatures of an annealing (Jarzynski 1997): the mean of the weights is
an unbiased estimate of Z after every step, for the weights do not depend on these chains. Where
less than half of the chains carries the weight they are resampled by it.

Letters: C chains, D visible.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core import capability, rng
from partita.core.protocols import EnergyModel, Model, Sampler
from partita.diagnostics.weights import summarize_weights
from partita.errors import Diverged, invalid

CARRIED = 0.5  # share of the chains that carries the weight, below which they are resampled


class Followers(NamedTuple):
    """Chains of the model as it is now, with their weights."""

    x: Tensor  # (C, D)
    energy: Tensor  # (C,), F of the model at x
    log_w: Tensor  # (C,), float64
    log_z: Tensor  # (), of the reference, and of the weights that resampling took out

    def numbers(self) -> dict[str, float]:
        """log Z of the model as it is, and how many chains carry it."""
        report = summarize_weights(self.log_w)
        return {"log_z": float(self.log_z) + report.log_mean, "log_z_ess": report.ess}


def check_followed(model: Model, chains: int) -> None:
    """Refuse a model whose chains could not follow it."""
    if not isinstance(model, EnergyModel) or not capability.NEEDS["gibbs"].holds(model):
        remedy = "Leave it out; partita.evaluate scores the model when the fit is done."
        allowed = "be 0 for a model that Gibbs() cannot move"
        raise invalid("fit", "track", allowed, f"{chains} with {model.title()}", remedy)
    if chains < 2:
        raise invalid("fit", "track", "be 0, or at least 2 chains", chains)


@torch.no_grad()
def started(model: EnergyModel, chains: int, generator: torch.Generator) -> Followers:
    """Chains at exact draws of the reference, weighed for the model."""
    reference = model.reference()
    x = reference.draw(chains, generator=generator)
    energy = model.free_energy(x)
    log_w = (reference.free_energy(x) - energy).double()
    return Followers(x, energy, log_w, reference.log_z.detach().double())


@torch.no_grad()
def followed(model: EnergyModel, last: Followers, generator: torch.Generator) -> Followers:
    """The chains after the weights of the model have changed: weighed for it, then moved."""
    x, log_z = last.x, last.log_z
    log_w = last.log_w + (last.energy - model.free_energy(x)).double()
    if not bool(torch.isfinite(log_w).all()):
        raise Diverged("fit: log Z carried along (track) is not finite; the weights grew too fast.")
    if float(torch.softmax(log_w, 0).square().sum()) * CARRIED * len(x) > 1:
        x = x[rng.systematic(log_w, generator, len(x))]
        log_z = log_z + torch.logsumexp(log_w, 0) - math.log(len(x))
        log_w = torch.zeros_like(log_w)
    kernel: Sampler = capability.default("sampler", model)
    state, _ = kernel.step(model, kernel.init(model, x, generator=generator), generator=generator)
    return Followers(state.x, model.free_energy(state.x), log_w, log_z)
