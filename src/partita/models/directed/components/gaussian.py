r"""Gaussian components with full covariances, one for each component or one tied for all.

.. math:: \mu_k = \frac{\sum_n r_{nk} x_n}{\sum_n r_{nk}}, \qquad
          \Sigma_k = \frac{\sum_n r_{nk} (x_n - \mu_k)(x_n - \mu_k)^\top}{\sum_n r_{nk}}
          (theory/mixtures.md, eq. 10.5)

For narrow tables all densities come from one product with the monomials 1, x_i, x_i x_j, and all
moments from another; for wide or badly scaled ones from triangular factors. An eigenvalue below
``floor`` is held there, which is the maximizer under that constraint, and is reported. Missing
values: :mod:`partita.models.directed.components.missing`.

Letters: B rows, D columns, K components, L lower Cholesky factors.
"""

import math

import torch
from torch import Generator, Tensor, nn

from partita.core import rng
from partita.models.directed.components.base import Located, Statistics, means_of
from partita.models.directed.components.missing import Conditionals, conditional_draw, conditionals

# columns up to which one product with D^2 / 2 monomials beats K products with D x D factors
MONOMIAL_WIDTH = 40
# squared distance in deviations up to which float64 keeps seven digits of a difference of monomials
MONOMIAL_REACH = 1e9


def monomials(x: Tensor) -> Tensor:
    """1, x_i and x_i x_j for i <= j, ``(D, B) -> (1 + D + D(D+1)/2, B)``.

    >>> monomials(torch.tensor([[2.0], [3.0]])).flatten().tolist()
    [1.0, 2.0, 3.0, 4.0, 6.0, 9.0]
    """
    D, B = x.shape
    out = x.new_empty(1 + D + D * (D + 1) // 2, B)
    out[0], out[1 : D + 1], start = 1.0, x, D + 1
    for i in range(D):
        torch.mul(x[i], x[i:], out=out[start : start + D - i])
        start += D - i
    return out


class FullGaussian(Located[tuple[Tensor, Tensor], Tensor | Conditionals]):
    """Means ``location`` (K, D) and Cholesky factors ``scale_tril`` of the covariances, (K, D, D),
    or (1, D, D) if ``tied``.
    """

    held_back = (
        "the covariance of {whose} is singular: its eigenvalues are held at {floor:g} or above; "
        "use fewer components, covariance='diagonal', or a larger floor."
    )

    def __init__(
        self, count: int, visible: int, *, tied: bool = False, floor: float, device: torch.device
    ) -> None:
        super().__init__()
        self.tied = tied
        self.locate(count, visible, floor, device)
        eye = torch.eye(visible, dtype=torch.float64, device=device)
        self.scale_tril = nn.Parameter(eye.repeat(1 if tied else count, 1, 1))

    def covariance(self) -> Tensor:
        """The covariances, ``(K, D, D)``, or one of them if tied."""
        L = self.scale_tril.tril()
        return L @ L.mT

    def ready(self, *, averaged: bool = False) -> tuple[Tensor, Tensor]:
        """Coefficients of the monomials, and the reach of the narrowest component."""
        narrowest = self.scale_tril.detach().diagonal(dim1=-2, dim2=-1).abs().amin()
        return self.natural() if self.narrow else self.location, MONOMIAL_REACH**0.5 * narrowest

    @property
    def narrow(self) -> bool:
        """Whether there are few enough columns for monomials."""
        return self.support.width <= MONOMIAL_WIDTH

    def scores(
        self, x: Tensor, ready: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor | Conditionals]:
        natural, reach = ready
        if x.sum().isnan():
            found = conditionals(x, self.location, self.covariance())
            return found.log_prob, found
        x = torch.sub(x.mT, self.origin[:, None], out=x.new_empty(x.shape[1], len(x)))
        if self.narrow and torch.linalg.vector_norm(x, torch.inf) <= reach:
            features = monomials(x)
            return natural @ features, features
        return self._by_factors(x), x

    def natural(self) -> Tensor:
        """Coefficients of the monomials about the origin, ``(K, F)``."""
        inverse, m = self._inverse_factors(), self.location - self.origin
        precision = (inverse.mT @ inverse).expand(self.count, -1, -1)
        linear = (precision @ m[..., None])[..., 0]
        constant = self._log_normalizer() - 0.5 * (linear * m).sum(-1)
        i, j = torch.triu_indices(*precision.shape[1:], device=m.device)
        return torch.cat(
            [constant[:, None], linear, torch.where(i == j, -0.5, -1.0).to(m) * precision[:, i, j]],
            1,
        )

    def statistics(self, r: Tensor, kept: Tensor | Conditionals) -> Statistics:
        if isinstance(kept, Tensor) and len(kept) > self.support.width:  # monomials
            return {"t": (kept @ r.mT).mT}  # faster than r @ kept.mT
        one = self.tied and not self.narrow
        if isinstance(kept, Conditionals):
            n, s, S = kept.moments(r, self.origin, one)
        else:
            n, s, S = weighted_moments(r, kept, one)
        if self.narrow:
            return {"t": torch.cat([n[:, None], s, packed(S)], 1)}
        return {"n": n, "s": s, "S": S}

    @torch.no_grad()
    def maximize(self, statistics: Statistics) -> None:
        if self.narrow:
            n, s, S = unpacked(statistics["t"], self.support.width)
        else:
            n, s, S = (statistics[name] for name in "nsS")
        m = means_of(s, n[:, None], self.location - self.origin)
        spread = S - s[:, :, None] * m[:, None] if len(S) > 1 else S - s.mT @ m
        if self.tied:
            spread, n = spread.sum(0, keepdim=True), n.sum()[None]
        covariance = means_of(spread, n[:, None, None], self.covariance())
        self.location.copy_(m + self.origin)
        factor, held = floored_cholesky((covariance + covariance.mT) / 2, self.floor)
        self.scale_tril.copy_(factor)
        self.held.copy_(held)

    @torch.no_grad()
    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        super().spread(mean, variance, generator)
        deviation = variance.clamp_min(self.floor).sqrt()
        self.scale_tril.copy_(torch.diag(deviation).expand_as(self.scale_tril))

    def draw(self, index: Tensor, *, generator: Generator) -> Tensor:
        noise = rng.normal((len(index), self.support.width), self.location, generator)
        factor = self.scale_tril.tril().expand(self.count, -1, -1)[index]
        return self.location[index] + (factor @ noise[..., None])[..., 0]

    def fill_mean(self, x: Tensor) -> Tensor:
        return conditionals(x, self.location, self.covariance()).mean

    def fill_draw(self, x: Tensor, index: Tensor, *, generator: Generator) -> Tensor:
        return conditional_draw(x, self.location, self.covariance(), index, generator)

    def cells(self, missing: bool) -> int:
        D, K = self.support.width, self.count
        if missing:
            return 4 * K * D * D
        return 2 * K + (D * (D + 3) // 2 if self.narrow else K * D)

    def freedom(self) -> int:
        D = self.support.width
        return self.location.numel() + len(self.scale_tril) * D * (D + 1) // 2

    def _by_factors(self, x: Tensor) -> Tensor:
        """log N(x; mu_k, L_k L_k') from one product with all inverse factors, ``(D, B) -> (K,
        B)``.
        """
        D = len(x)
        inverse = self._inverse_factors().expand(self.count, -1, -1)
        center = (inverse @ (self.location - self.origin)[..., None]).view(-1, 1)
        y = torch.addmm(center, inverse.reshape(-1, D), x, beta=-1)
        return self._log_normalizer()[:, None] - 0.5 * y.square().view(self.count, D, -1).sum(1)

    def _inverse_factors(self) -> Tensor:
        L = self.scale_tril.tril()
        eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
        return torch.linalg.solve_triangular(L, eye, upper=False)

    def _log_normalizer(self) -> Tensor:
        log_det = self.scale_tril.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
        return (-0.5 * self.support.width * math.log(2 * math.pi) - log_det).expand(self.count)


def floored_cholesky(covariance: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Cholesky factors after raising eigenvalues to ``floor``, and which matrices needed it, ``(*,
    D, D) -> (*, D, D), (*)``.

    Under the constraint that no eigenvalue is smaller, the raised matrix is the maximum-likelihood
    covariance.
    """
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    held = torch.linalg.cholesky_ex(covariance - floor * (1 - 1e-6) * eye)[1] > 0
    if held.any():
        values, vectors = torch.linalg.eigh(covariance)
        raised = (vectors * values.clamp_min(floor)[..., None, :]) @ vectors.mT
        covariance = torch.where(held[..., None, None], raised, covariance)
    return torch.linalg.cholesky(covariance), held


def weighted_moments(r: Tensor, x: Tensor, one: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of 1, x and x x' under responsibilities, ``(K, B), (D, B) -> (K,), (K, D), (K, D, D)``;
    the last over components as ``one``.
    """
    if one:
        S = ((x * r.sum(0)) @ x.mT)[None]
    else:
        S = ((r[:, None] * x).flatten(0, 1) @ x.mT).view(len(r), len(x), len(x))
    return r.sum(1), r @ x.mT, S


def packed(S: Tensor) -> Tensor:
    """The upper triangles of symmetric matrices, row by row, as monomials have them, ``(K, D, D) ->
    (K, D(D+1)/2)``.
    """
    i, j = torch.triu_indices(*S.shape[1:], device=S.device)
    return S[:, i, j]


def unpacked(t: Tensor, D: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of 1, x and x x' from those of the monomials, ``(K, F) -> (K,), (K, D), (K, D, D)``."""
    i, j = torch.triu_indices(D, D, device=t.device)
    S = t.new_empty(len(t), D, D)
    S[:, i, j] = S[:, j, i] = t[:, D + 1 :]
    return t[:, 0], t[:, 1 : D + 1], S
