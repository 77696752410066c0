r"""Priors by default: what a cluster may look like, from the data's own scale.

.. math:: \kappa = 0.01, \qquad \nu = 2 D + 1, \qquad m = \bar x, \qquad
          E[\Sigma] = \frac{S}{\nu - D - 1} = \frac{\mathrm{Cov}(x)}{(1 + \alpha)^{2/D}}
          (theory/dirichlet.md, eq. 20.14)

Letters: n rows, D columns, alpha the concentration.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from partita.core.arguments import check_tensor
from partita.errors import invalid
from partita.models.directed.dirichlet_process.kernels import TOTALS

Numbers = float | Sequence[float] | np.ndarray | Tensor  # one for all columns, or one for each
KAPPA = 0.01  # rows that the prior's mean is worth
# deviations between the rows and the prior's mean, whose square leaves digits for the rows' own
# scatter
FARTHEST = 1e6
LARGEST = 1e100  # whose square is a number too
PSEUDO_COUNT = 1.0  # of Beta and Dirichlet priors: uniform
# of the mean variance, in every direction, so that columns that repeat one another still have a
# density
RIDGE = 1e-6


def gaussian_prior(x: Tensor, prior_mean: Numbers | None = None, *, alpha: float) -> Tensor:
    """kappa, nu, m and S: a cluster has the data's shape and the share 1 / (1 + alpha) of their
    volume, as a row's own has of the rows.

    The shape is worth D rows, the fewest that make a covariance of full rank.
    """
    D = x.shape[1]
    nu, off = 2.0 * D + 1, x - x.mean(0)
    covariance = off.T @ off / len(x)
    covariance += RIDGE * covariance.diagonal().mean() * torch.eye(D, dtype=x.dtype)
    if not covariance.diagonal().min() > 0:
        raise invalid("DPMixture", "x", "vary to have a density", "one value throughout")
    m = x.mean(0) if prior_mean is None else per_column("prior_mean", prior_mean, D)
    if ((m - x.mean(0)).abs() > FARTHEST * covariance.diagonal().sqrt()).any():
        raise invalid(
            "DPMixture",
            "prior_mean",
            f"lie within {FARTHEST:g} standard deviations of the rows",
            repr(prior_mean),
        )
    S = D * covariance / (1 + alpha) ** (2 / D)
    return torch.cat([x.new_tensor([KAPPA, nu]), m, S.flatten()])


def known_scale_prior(
    x: Tensor,
    known_scale: Numbers | None,
    prior_mean: Numbers | None,
    prior_scale: Numbers | None,
) -> Tensor:
    """s^2, t^2 and m of every column; by default m is the mean and t the standard deviation of the
    column.
    """
    D = x.shape[1]
    noise = per_column("known_scale", known_scale, D, positive=True)
    spread = x.std(0)
    if prior_scale is not None:
        spread = per_column("prior_scale", prior_scale, D, positive=True)
    if not (spread > 0).all():
        raise invalid("DPMixture", "prior_scale", "be given where a column does not vary", "None")
    m = x.mean(0) if prior_mean is None else per_column("prior_mean", prior_mean, D)
    return torch.cat([noise.square(), spread.square(), m])


def multinomial_prior(x: Tensor, generator: Generator) -> Tensor:
    """A uniform Dirichlet, and totals of random rows to draw new rows with."""
    rows = torch.randint(len(x), (TOTALS,), generator=generator, device=generator.device).cpu()
    return torch.cat([torch.full((x.shape[1],), PSEUDO_COUNT, dtype=x.dtype), x[rows].sum(-1)])


def per_column(name: str, value: Numbers | None, width: int, *, positive: bool = False) -> Tensor:
    """One number for all columns, or one for each, as ``(D,)``."""
    try:
        check_tensor("DPMixture", name, given := torch.as_tensor(value, dtype=torch.float64))
        given = given.expand(width) if given.dim() == 0 else given
    except (TypeError, ValueError, RuntimeError, OverflowError):
        given = torch.empty(0)
    fine = given.shape == (width,) and bool(torch.isfinite(given).all())
    if not fine or (positive and not (given > 0).all()):
        above = " above 0" if positive else ""
        allowed = f"be a finite number{above}, or {width} of them, one per column"
        raise invalid("DPMixture", name, allowed, repr(value))
    check_size(name, float(given.abs().max()))
    return given


def check_size(name: str, value: float) -> None:
    """Refuse a number with whose square nothing can be computed."""
    if value > LARGEST:
        raise invalid("DPMixture", name, f"be at most {LARGEST:g}", value)
