r"""Locally informed proposals on discrete supports: the likelier changes are proposed more often,
and Metropolis keeps the balance.

.. math:: q(x_{i \to v} \mid x) \propto e^{d_{iv}(x) / 2}, \quad d_{iv}(x) = F(x) - F(x_{i \to v}),
          \qquad
          a = \min\Big(1, \frac{e^{-F(x')}\, q(x \mid x')}{e^{-F(x)}\, q(x' \mid x)}\Big)
          (theory/discrete.md, eq. 12.12)

The square root makes the proposal locally balanced (Zanella 2020). With d read off the gradient,
d_iv = -(v - x_i) dF/dx_i, it is Gibbs with gradients (Grathwohl et al. 2021): right to first order,
and the Metropolis step corrects the rest.

Letters: C chains, D sites, K values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import PositiveInt
from partita.core.capability import require
from partita.core.protocols import Chains, EnergyModel
from partita.errors import Unsupported
from partita.samplers.gibbs import SiteSampler


class InformedInfo(NamedTuple):
    """The chains before and after a step, and how many proposals were accepted."""

    before: Tensor  # (*, C, D)
    after: Tensor
    accepted: Tensor  # (*, C), share of proposals

    def numbers(self) -> dict[str, Tensor]:
        """``accepted``: the share of accepted proposals; ``moved``: the fraction of coordinates
        that changed, ``(*, C)`` each.
        """
        return {"accepted": self.accepted, "moved": (self.before != self.after).float().mean(-1)}


class Proposal(NamedTuple):
    """Where a chain may go and what that is worth."""

    log_q: Tensor  # (*, C, D K), log q of every change; -inf for staying
    energy: Tensor  # (*, C), F up to a constant of the chain's path


Propose = Callable[[EnergyModel, Tensor], Proposal]


@dataclass(frozen=True)
class Informed(SiteSampler):
    """A kernel on x that changes one coordinate at a time, where it pays.

    Arguments:
        moves: Proposals in one step.
        differences: ``"exact"`` from the model's conditionals, or ``"gradient"`` from one backward
            pass (supports of two values), for models whose conditionals are dear.
    """

    moves: PositiveInt = 1
    differences: Literal["exact", "gradient"] = "exact"

    def init(self, model: EnergyModel, x: Tensor, *, generator: torch.Generator) -> Chains:
        require("Informed", model)
        if self.differences == "gradient" and len(model.support.values()) != 2:
            raise Unsupported(
                f"Informed(differences='gradient') cannot run on {model.support}: only between two "
                "values is a gradient a difference. Use differences='exact'."
            )
        return Chains(x)

    def step(
        self, model: EnergyModel, state: Chains, *, generator: torch.Generator
    ) -> tuple[Chains, InformedInfo]:
        propose = exact_proposal if self.differences == "exact" else gradient_proposal
        x, here = state.x, propose(model, state.x)
        accepted = torch.zeros_like(x[..., 0])
        for _ in range(self.moves):
            x, here, accept = move(model, x, here, propose, generator)
            accepted = accepted + accept.to(accepted)
        return Chains(x), InformedInfo(state.x, x, accepted / self.moves)


@torch.no_grad()
def exact_proposal(model: EnergyModel, x: Tensor) -> Proposal:
    """q from the exact differences of the free energy."""
    values = model.support.values().to(x)
    logits = model.conditional_logits(x)
    own = x[..., None] == values
    differences = logits - (logits * own).sum(-1, keepdim=True)
    return Proposal(_log_q(differences, own), model.free_energy(x))


def gradient_proposal(model: EnergyModel, x: Tensor) -> Proposal:
    """q from differences to first order."""
    values = model.support.values().to(x)
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        energy = model.free_energy(at)
        (slope,) = torch.autograd.grad(energy.sum(), at)
    differences = -(values - x[..., None]) * slope[..., None]
    return Proposal(_log_q(differences, x[..., None] == values), energy.detach())


@torch.no_grad()
def move(
    model: EnergyModel, x: Tensor, here: Proposal, propose: Propose, generator: torch.Generator
) -> tuple[Tensor, Proposal, Tensor]:
    """One proposal and its Metropolis step: the chains, their next proposals, and which were
    accepted.
    """
    values = model.support.values().to(x)
    change = rng.categories(here.log_q, generator)[..., None]
    site, value = change // len(values), change % len(values)
    back = site * len(values) + torch.searchsorted(values, x.gather(-1, site))
    there_x = x.scatter(-1, site, values[value])
    there = propose(model, there_x)
    log_accept = (
        here.energy
        - there.energy
        + (there.log_q.gather(-1, back) - here.log_q.gather(-1, change)).squeeze(-1)
    )
    accept = rng.uniform(log_accept.shape, log_accept, generator).log() < log_accept
    keep = accept[..., None]
    following = Proposal(
        torch.where(keep, there.log_q, here.log_q), torch.where(accept, there.energy, here.energy)
    )
    return torch.where(keep, there_x, x), following, accept


def _log_q(differences: Tensor, own: Tensor) -> Tensor:
    """log q of all changes of all sites, normalized, ``(*, D, K) -> (*, D K)``."""
    return torch.log_softmax((0.5 * differences).masked_fill(own, -torch.inf).flatten(-2), -1)
