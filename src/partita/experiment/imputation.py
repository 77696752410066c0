r"""Observed coordinates are held, missing ones drawn from p(missing | observed): by clamped Gibbs
sampling,

.. math:: x_M \sim p(x_M \mid h),\; h \sim p(h \mid x_M, x_O) \qquad\text{or}\qquad p(x_i \mid
          x_{\setminus i}), \; i \in M

or exactly where what is missing from a row has few states, whatever holds them together: there
chains may not mix.

Letters: N rows, R chains per row, D columns, m missing values of a row, K values of each, S = K^m
states of them.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical

from partita.core import rng
from partita.core.annealed import in_double
from partita.core.capability import reason_against, require
from partita.core.checks import check_choice
from partita.core.protocols import Capability, EnergyModel
from partita.errors import invalid
from partita.experiment.imputation_gradient import gradient_posterior
from partita.tables.encoding import CUT, Encoding

CHAINS = 8  # per row, where they are averaged; one draw takes one
BURN_IN = 100
KEPT = 100
CELLS = 1 << 22  # rows x chains x columns at once
FEW_STATES = 1 << 10  # of what is missing from a row, up to which they are summed


def impute_encoded(
    model: Any,
    encoding: Encoding,
    x: np.ndarray,
    how: str,
    owner: str,
    *,
    first: int = 0,
    generator: torch.Generator,
) -> np.ndarray:
    """A table with its NaN filled, in its own units: in the model's own way where it has one, else
    by clamped sampling.

    ``first`` is the number of its first row, where it is a part of a larger one, for error
    messages.
    """
    own: Any = getattr(model, "fill", None)
    if own is None and not isinstance(model, EnergyModel):
        raise invalid(
            owner,
            "the model",
            "be of a family that can fill in what is missing",
            model.title(),
            "A mixture or a VAE can.",
        )
    check_how(model, encoding, how, owner)
    z = torch.from_numpy(encoding.encode(encoding.check(x, owner, first)))
    if how == "auto":
        how = "likely" if encoding.kind == "mixed" else "mode" if model.support.discrete else "mean"
    if own is not None and not z.isnan().any():  # a part of a table may have no gaps
        return x.copy()
    filled = (
        fill(model, z, how, generator=generator)
        if own is None
        else own(z, how, generator=generator)
    )
    return np.where(np.isnan(x), encoding.decode(filled.double().cpu().numpy()), x)


def check_how(model: Any, encoding: Encoding, how: str, owner: str) -> None:
    """Refuse what cannot be filled in, or not in this way."""
    check_choice(owner, "how", how, ("auto", "mean", "mode", "draw"))
    if encoding.kind in CUT:
        held, where = (
            ("categories", "quantiles") if encoding.kind == "quantile" else ("binary", "median")
        )
        raise invalid(
            owner,
            "X",
            f"be {held}, for real columns were cut at their {where} and cannot be drawn back",
            "real columns",
            "Cut X yourself before fit.",
        )
    if encoding.kind == "mixed" and how not in ("auto", "draw"):
        allowed = (
            "be 'auto' (the mean of real columns, the most probable value of others) or 'draw' "
            "for mixed columns"
        )
        raise invalid(owner, "how", allowed, repr(how))
    if encoding.kind == "category" and how == "mean":
        raise invalid(
            owner, "how", "be 'mode' or 'draw' for categories, which have no mean", repr(how)
        )
    if how == "mode" and not model.support.discrete:
        raise invalid(owner, "how", "be 'mean' or 'draw' for real columns", repr(how))


@torch.no_grad()
def fill(model: EnergyModel, z: Tensor, how: str = "auto", *, generator: torch.Generator) -> Tensor:
    """``z`` with its NaN replaced by the mean, the mode or a draw of what is missing given what is
    not, ``(N, D)``.
    """
    by_gradient = (
        reason_against("Gibbs", model) is not None and reason_against("MALA", model) is None
    )
    if not by_gradient:
        require("Gibbs", model)
    if not z.isnan().any():
        return z
    model, discrete = in_double(model), model.support.discrete
    how = ("mode" if discrete else "mean") if how == "auto" else how
    values = (
        model.support.values().to(torch.float64) if discrete else torch.ones(1, dtype=torch.float64)
    )
    posterior = gradient_posterior if by_gradient else _posterior
    filled = _by_states(model, z.double(), how == "draw", posterior, generator)
    if how != "draw":
        filled = values[filled.argmax(-1)] if how == "mode" else filled @ values
    return torch.where(z.isnan(), filled, z.double())


def _by_states(
    model: EnergyModel, z: Tensor, one_draw: bool, posterior: Any, generator: torch.Generator
) -> Tensor:
    """What :func:`_posterior` gives of all rows: exactly where the missing values of a row have few
    states, by chains for the others.
    """
    K, count = len(model.support.values()) if model.support.discrete else 0, z.isnan().sum(1)
    # missing values whose states are few
    most = int(math.log(FEW_STATES, K) + 1e-9) if K > 1 else -1
    parts = [
        (rows, _summed(model, z[rows], one_draw, generator))
        for m in range(most + 1)
        if (rows := count == m).any()
    ]
    if (many := count > most).any():
        chains = 1 if one_draw else CHAINS
        step = max(1, CELLS // (chains * z.shape[1] * max(1, K)))
        parts.append(
            (
                many,
                torch.cat(
                    [
                        posterior(model, part, one_draw, chains, generator)
                        for part in z[many].split(step)
                    ]
                ),
            )
        )
    filled = z.new_empty(len(z), *parts[0][1].shape[1:])
    for rows, part in parts:
        filled[rows] = part
    return filled


def _summed(model: EnergyModel, z: Tensor, one_draw: bool, generator: torch.Generator) -> Tensor:
    """As :func:`_posterior`, from the energies of all states of what is missing, as many values
    from every row.
    """
    values, m = model.support.values().to(z), int(z[0].isnan().sum())
    states = torch.cartesian_prod(*[values] * m).view(-1, m) if m else z.new_empty(1, 0)
    places, found = z.isnan().nonzero()[:, 1].view(len(z), 1, m), []
    for part, place in zip(
        *(rows.split(max(1, CELLS // (len(states) * z.shape[1]))) for rows in (z, places)),
        strict=True,
    ):
        x = part.nan_to_num()[:, None].repeat(1, len(states), 1)
        x.scatter_(2, place.expand(-1, len(states), -1), states.expand(len(part), -1, -1))
        p = torch.softmax(-model(x), 1)
        if one_draw:
            u = rng.uniform((len(part), 1), p, generator)
            found.append(x[torch.arange(len(part)), (u > p.cumsum(1)[:, :-1]).sum(1)])
        else:
            found.append(
                torch.stack([(p[..., None] * (x == value)).sum(1) for value in values], -1)
            )
    return torch.cat(found)


def _posterior(
    model: EnergyModel, z: Tensor, one_draw: bool, chains: int, generator: torch.Generator
) -> Tensor:
    """The last state of the first chain, ``(N, D)``, or the average of the chains' conditionals,
    which has less noise than their states: probabilities of every value, ``(N, D, K)``, on a
    discrete support, else means, ``(N, D, 1)``.
    """
    known = z.expand(chains, *z.shape)
    missing = known.isnan()
    x = torch.where(
        missing,
        model.reference().draw(chains * len(z), generator=generator).view_as(known).to(z),
        known,
    )
    sweep = (
        clamped_block_sweep if Capability.CONDITIONALS in model.capabilities else clamped_site_sweep
    )
    for _ in range(BURN_IN):
        x, _ = sweep(model, x, missing, generator)
    if one_draw:
        return x[0]
    total = torch.zeros((), dtype=x.dtype)
    for _ in range(KEPT):
        x, conditional = sweep(model, x, missing, generator)
        total = total + conditional.mean(0)
    return total / KEPT


def clamped_block_sweep(
    model: Any, x: Tensor, missing: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Hidden units given x, then the missing visible ones given h; returns the state and what the
    conditionals say.
    """
    h = rng.draw(model.hidden_given_visible(x), generator)
    conditional = model.visible_given_hidden(h)
    drawn = torch.where(missing, rng.draw(conditional, generator), x)
    if isinstance(conditional, Categorical):
        return drawn, conditional.probs
    return drawn, torch.stack(
        [1 - conditional.mean, conditional.mean], -1
    ) if model.support.discrete else conditional.mean[..., None]


def clamped_site_sweep(
    model: EnergyModel, x: Tensor, missing: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The missing coordinates one after the other, each from its conditional; returns the state and
    the conditionals.
    """
    x, values = x.clone(), model.support.values().to(x)
    seen = x.new_zeros(*x.shape, len(values))
    for i in missing.flatten(0, -2).any(0).nonzero().flatten().tolist():
        p = torch.softmax(-model.site_energies(x, i, values), 0).movedim(0, -1)
        u = rng.uniform((*p.shape[:-1], 1), p, generator)
        drawn = values[(u > p.cumsum(-1)[..., :-1]).sum(-1)]
        x[..., i] = torch.where(missing[..., i], drawn, x[..., i])
        seen[..., i, :] = p
    return x, seen
