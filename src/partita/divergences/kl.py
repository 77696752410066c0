r"""The Kullback-Leibler divergence: closed forms, and an estimate with an interval where there is
none.

.. math:: \mathrm{KL}(p \,\|\, q) = E_p[\log p(x) - \log q(x)] \ge 0
          (theory/divergences.md, eq. 15.1)

Letters: D width, n draws.
"""

import math
from typing import Annotated, cast

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, kl_divergence

from partita.core import rng
from partita.core.arguments import Level, at_least, validated
from partita.core.quantity import Quantity
from partita.diagnostics.means import mean_quantity
from partita.errors import invalid


def normal_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    r"""KL from N(mu, diag(s^2)) to the standard normal, ``(*, D), (*, D) -> (*)``
    (theory/divergences.md, eq. 15.2).

    .. math:: \tfrac12 \textstyle\sum_i (\mu_i^2 + s_i^2 - 1 - \log s_i^2)

    >>> normal_kl(torch.zeros(3), torch.zeros(3)).item()
    0.0
    """
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def gaussian_kl(
    mean_p: Tensor, covariance_p: Tensor, mean_q: Tensor, covariance_q: Tensor
) -> Tensor:
    r"""KL between two multivariate normals, ``(*, D), (*, D, D), ... -> (*)``
    (theory/divergences.md, eq. 15.3).

    .. math:: \tfrac12 \big( \mathrm{tr}(S_q^{-1} S_p) + (m_q - m_p)^\top S_q^{-1} (m_q - m_p) - D +
              \log\det S_q - \log\det S_p \big)
    """
    p, q = torch.linalg.cholesky(covariance_p), torch.linalg.cholesky(covariance_q)
    ratio = torch.linalg.solve_triangular(q, p, upper=False)
    shift = torch.linalg.solve_triangular(q, (mean_q - mean_p)[..., None], upper=False)
    log_det = 2 * (q.diagonal(dim1=-2, dim2=-1).log() - p.diagonal(dim1=-2, dim2=-1).log()).sum(-1)
    squares = ratio.square().sum((-2, -1)) + shift.square().sum((-2, -1))
    return 0.5 * (squares - mean_p.shape[-1] + log_det)


def bernoulli_kl(p: Tensor, q: Tensor) -> Tensor:
    """KL between coins with chances p and q, elementwise; infinite where q rules out what p
    allows.
    """
    return kl_divergence(Bernoulli(p, validate_args=False), Bernoulli(q, validate_args=False))


def kl(
    p: Distribution,
    q: Distribution,
    *,
    draws: int = 10_000,
    level: float = 0.95,
    generator: torch.Generator,
) -> Quantity:
    """KL(p || q) of two ``torch.distributions`` objects: the closed form where torch knows it, else
    an estimate from draws of p.

    >>> from torch.distributions import Normal
    >>> print(kl(Normal(0.0, 1.0), Normal(1.0, 1.0), generator=torch.Generator()))
    0.500 nats, exact by closed form, tight
    """
    check_single("kl", p, q)
    known = closed_form_kl(p, q)
    if known is None:
        return estimate_kl(p, q, draws=draws, level=level, generator=generator)
    return Quantity(known, method="closed form")


def closed_form_kl(p: Distribution, q: Distribution) -> float | None:
    """KL(p || q) where torch knows it; torch's form for categories needs equally many."""
    if isinstance(p, Categorical) and isinstance(q, Categorical) and p.probs.shape != q.probs.shape:
        return None
    try:
        return float(kl_divergence(p, q))
    except NotImplementedError:
        return None


@validated
@torch.no_grad()
def estimate_kl(
    p: Distribution,
    q: Distribution,
    *,
    draws: Annotated[int, at_least(2)] = 10_000,
    level: Level = 0.95,
    generator: torch.Generator,
) -> Quantity:
    """KL(p || q) as a mean of log p - log q over draws of p."""
    x = rng.draw(p, generator, (draws,))
    log_ratio = log_prob_anywhere(p, x) - log_prob_anywhere(q, x)
    if torch.isinf(log_ratio).any():
        return Quantity(math.inf, method="draws outside the support of q")
    return mean_quantity("estimate_kl", log_ratio, level, f"{draws} draws")


def log_prob_anywhere(side: Distribution, x: Tensor) -> Tensor:
    """log p(x) in float64, minus infinity outside the support, where torch would refuse."""
    inside = in_support(side, x)
    if inside.all():
        return side.log_prob(x).double()
    if not inside.any():
        return torch.full(inside.shape, -math.inf, dtype=torch.float64, device=x.device)
    rows = inside.view(*inside.shape, *[1] * len(side.event_shape))
    filled = torch.where(rows, x, x[inside][0])  # any row inside stands in
    return torch.where(inside, side.log_prob(filled).double(), -math.inf)


def in_support(side: Distribution, x: Tensor) -> Tensor:
    """Whether each row lies in the support; true where torch declares none."""
    try:
        support = side.support
    except NotImplementedError:
        support = None
    rows = x.shape[: x.dim() - len(side.event_shape)]
    if support is None:
        return torch.ones(rows, dtype=torch.bool, device=x.device)
    inside = cast(Tensor, support.check(x))
    return inside.reshape(*rows, -1).all(-1)


def check_single(owner: str, p: Distribution, q: Distribution) -> None:
    """Both are one distribution, not a batch of them, on vectors of the same shape."""
    for name, distribution in (("p", p), ("q", q)):
        if distribution.batch_shape:
            got = f"a batch of shape {tuple(distribution.batch_shape)}"
            remedy = "Wrap its coordinates in torch.distributions.Independent."
            raise invalid(owner, name, "be one distribution", got, remedy)
    if p.event_shape != q.event_shape:
        allowed = f"have the event shape of p, {tuple(p.event_shape)}"
        raise invalid(owner, "q", allowed, tuple(q.event_shape))
