r"""Clamped Gibbs sampling: observed coordinates are held, missing ones drawn from p(missing | observed).

.. math:: x_M \sim p(x_M \mid h),\; h \sim p(h \mid x_M, x_O) \qquad\text{or}\qquad p(x_i \mid x_{\setminus i}), \; i \in M

Letters: N rows, R chains per row, D columns.
"""

from typing import Any

import torch
from torch import Tensor

from partita.core import rng
from partita.core.capability import require
from partita.core.protocols import EnergyModel, in_double

CHAINS = 8  # per row
BURN_IN = 100
KEPT = 100
CELLS = 1 << 22  # rows x chains x columns at once


@torch.no_grad()
def fill(model: EnergyModel, z: Tensor, how: str = "auto", *, generator: torch.Generator) -> Tensor:
    """``z`` with its NaN replaced by the mean, the mode or a draw of what is missing given what is not, ``(N, D)``."""
    require("Gibbs", model)
    if not z.isnan().any():
        return z
    model, discrete = in_double(model), model.support.discrete
    how = ("mode" if discrete else "mean") if how == "auto" else how
    parts = [_posterior(model, part, how == "draw", generator) for part in z.double().split(max(1, CELLS // (CHAINS * z.shape[1])))]
    filled = torch.cat(parts)
    return (filled > 0.5).to(filled) if how == "mode" else filled


def _posterior(model: EnergyModel, z: Tensor, one_draw: bool, generator: torch.Generator) -> Tensor:
    """The last state of one chain, or the average of the chains' conditional means, which has less noise than their states."""
    known = z.expand(CHAINS, *z.shape)
    missing = known.isnan()
    x = torch.where(missing, model.reference().draw(CHAINS * len(z), generator=generator).view_as(known).to(z), known)
    sweep = clamped_block_sweep if "conditionals" in model.offers else clamped_site_sweep
    for _ in range(BURN_IN):
        x, _ = sweep(model, x, missing, generator)
    if one_draw:
        return x[0]
    total = torch.zeros_like(x)
    for _ in range(KEPT):
        x, mean = sweep(model, x, missing, generator)
        total += mean
    return (total / KEPT).mean(0)


def clamped_block_sweep(model: Any, x: Tensor, missing: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Hidden units given x, then the missing visible ones given h; returns the state and the conditional means."""
    h = rng.draw(model.hidden_given_visible(x), generator)
    conditional = model.visible_given_hidden(h)
    drawn = torch.where(missing, rng.draw(conditional, generator), x)
    return drawn, torch.where(missing, conditional.mean, x)


def clamped_site_sweep(model: EnergyModel, x: Tensor, missing: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The missing coordinates one after the other, each from its conditional; returns the state and the conditional means."""
    x, mean, values = x.clone(), x.clone(), model.support.values().to(x)
    for i in missing.flatten(0, -2).any(0).nonzero().flatten().tolist():
        trials = x.expand(len(values), *x.shape).clone()
        trials[..., i] = values.view(-1, *[1] * (x.dim() - 1))
        p = torch.softmax(-model.free_energy(trials), 0).movedim(0, -1)
        u = rng.uniform((*p.shape[:-1], 1), p, generator)
        drawn = values[(u > p.cumsum(-1)[..., :-1]).sum(-1)]
        x[..., i] = torch.where(missing[..., i], drawn, x[..., i])
        mean[..., i] = torch.where(missing[..., i], p @ values, mean[..., i])
    return x, mean
