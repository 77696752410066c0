r"""Linear-Gaussian components: probabilistic PCA (one noise variance) and factor analysis (one for
each column).

.. math:: x = V z + \mu + \varepsilon, \quad z \sim N(0, I_d), \; \varepsilon \sim N(0, \Psi),
          \qquad
          p(z \mid x) = N\bigl(G^{-1} V_o^\top \Psi_o^{-1} (x_o - \mu_o),\, G^{-1}\bigr), \; G = I +
          V_o^\top \Psi_o^{-1} V_o
          (theory/mixtures.md, eq. 10.10)

Only the observed rows o of V take part, so missing values cost no more than a matrix G of their
own. Nothing of size D x D is formed. With the ``"ard"`` prior the loadings w_j = (V_j, mu_j) of a
column have the posterior N(w_j, S_j): directions that the data do not need get a precision alpha
that grows without bound, and vanish.

Letters: B rows, D columns, d latent dimensions, q = d + 1, K components, m observed.
"""

import math
from typing import NamedTuple, TypeAlias

import torch
from torch import Generator, Tensor, nn

from partita.core import rng
from partita.errors import Diverged
from partita.models.directed.components.base import (
    Located,
    Statistics,
    means_of,
    observed,
)
from partita.models.directed.components.linear import (
    canonical_loadings,
    over,
    over_columns,
    solve_factor,
    times,
    weighted,
)

LOCATION_PRECISION = 1e-6  # of the prior on mu where there is one: all but flat
RELEVANT = 1e-2  # a direction counts if the variance along it exceeds this share of the noise's


class Common(NamedTuple):
    """What the scores of rows share in which the same values were observed."""

    inverse: Tensor  # (K, D): 1 / Psi
    scaled: Tensor  # (K, q, D): w / Psi
    factor: Tensor  # (K, B or 1, d, d): Cholesky of G
    cross: Tensor  # (K, B or 1, d): V' Psi^-1 mu
    square: Tensor  # (K, B or 1): mu' Psi^-1 mu
    log_det: Tensor  # (K, B or 1): log |2 pi C|


# whether loadings are taken as they are, not averaged over their posterior, and what complete rows
# share
Shared: TypeAlias = tuple[bool, Common]


class LatentPosterior(NamedTuple):
    """What an E-step keeps of its rows."""

    mean: Tensor  # (K, d, B): E[z | x]
    factor: Tensor  # (K, B or 1, d, d): Cholesky of G
    mask: Tensor | None  # (D, B) if values are missing
    x: Tensor  # (D, B) about the origin, zero where missing


class Factors(Located[Shared, LatentPosterior]):
    """Loadings ``loadings`` (K, D, d), means ``location`` (K, D), noise variances
    exp(``log_noise``), (K, 1) or (K, D).
    """

    held_back = (
        "a noise variance of {whose} fell below {floor:g} and is held there; use fewer dimensions "
        "or components."
    )

    def __init__(
        self,
        count: int,
        visible: int,
        latent: int,
        *,
        diagonal: bool = False,
        ard: bool = False,
        floor: float,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.latent, self.diagonal, self.ard = latent, diagonal, ard
        device = generator.device
        start = torch.randn(
            count, visible, latent, generator=generator, device=device, dtype=torch.float64
        )
        self.loadings = nn.Parameter(start / max(1, latent) ** 0.5)
        self.locate(count, visible, floor, device)
        self.log_noise = nn.Parameter(start.new_zeros(count, visible if diagonal else 1))
        if ard:
            # alpha
            self.precision = nn.Parameter(start.new_ones(count, latent), requires_grad=False)
            # S, one for all columns until the data tell them apart: by a noise of each, or by what
            # was observed
            self.uncertainty = nn.Parameter(
                start.new_zeros(count, 1, latent + 1, latent + 1), requires_grad=False
            )

    def noise(self) -> Tensor:
        """Psi, ``(K, D)``."""
        return self.log_noise.exp().expand_as(self.location)

    def weights(self) -> Tensor:
        """w_j = (V_j, mu_j) about the origin, ``(K, D, q)``."""
        return torch.cat([self.loadings, (self.location - self.origin)[..., None]], -1)

    @property
    def together(self) -> int:
        """K q: as many rows as make their block as large as the loadings, which are read for each
        block.
        """
        return self.count * (self.latent + 1)

    def resize_buffers(self, weights: dict[str, Tensor]) -> None:
        new = weights.get("uncertainty")
        if not self.ard or new is None or new.shape == self.uncertainty.shape:
            return
        own = self.uncertainty
        if tuple(new.shape) in [(len(own), n, *own.shape[2:]) for n in (1, self.support.width)]:
            self.uncertainty = nn.Parameter(own.new_zeros(new.shape), requires_grad=False)

    def ready(self, *, averaged: bool = False) -> Shared:
        exact = not (averaged and self.ard)
        return exact, self._common(None, exact)

    def scores(self, x: Tensor, ready: Shared) -> tuple[Tensor, LatentPosterior]:
        """log p_k(x) by Woodbury's identity and the determinant lemma."""
        (exact, complete), x = ready, x - self.origin
        mask, x = observed(x) if x.isnan().any() else (None, x.mT.contiguous())
        inverse, scaled, factor, cross, square, log_det = (
            complete if mask is None else self._common(mask, exact)
        )
        drive = scaled[:, :-1] @ x - cross.mT  # (K, d, B): V' Psi^-1 (x - mu)
        half = solve_factor(factor, drive)
        quadratic = inverse @ (x * x) - 2 * (scaled[:, -1] @ x) + square - half.square().sum(1)
        mean = solve_factor(factor, half, transpose=True)
        return -0.5 * (log_det + quadratic), LatentPosterior(mean, factor, mask, x)

    def _common(self, mask: Tensor | None, exact: bool) -> Common:
        noise, (G, cross, square) = self.noise(), self._gram(mask, exact)
        factor, wrong = torch.linalg.cholesky_ex(G)
        if wrong.any():  # G is at least the identity
            raise Diverged(
                "PPCA: loadings and noise must be finite; got others. Fit it again, or restore the "
                "file it was saved in."
            )
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        log_det = log_det + over(mask, (2 * math.pi * noise).log())
        return Common(1 / noise, self.weights().mT / noise[:, None], factor, cross, square, log_det)

    def statistics(self, r: Tensor, kept: LatentPosterior) -> Statistics:
        return self.sums(r, kept.mean, torch.cholesky_inverse(kept.factor), kept.mask, kept.x)

    def sums(
        self, r: Tensor, z: Tensor, covariance: Tensor, mask: Tensor | None, x: Tensor
    ) -> Statistics:
        """Expected sums of what the loadings need, from the mean and covariance of z given each
        row.
        """
        augmented = torch.cat([z, torch.ones_like(z[:, :1])], 1)  # (K, q, B)
        weighted = augmented * r[:, None]
        found = {"b": x @ weighted.mT, "c": r @ (x * x).mT}
        if mask is None:
            zz = weighted @ augmented.mT
            mass = r if covariance.shape[1] > 1 else r.sum(1, keepdim=True)
            zz[:, :-1, :-1] += (mass[..., None, None] * covariance).sum(1)
            return {**found, "n": r.sum(1, keepdim=True), "A": zz[:, None], "zz": zz}
        moments = weighted.mT[..., :, None] * augmented.mT[..., None, :]  # (K, B, q, q)
        moments[..., :-1, :-1] += covariance.mul_(r[..., None, None])
        A = (mask @ moments.flatten(2)).view(*r.shape[:1], len(mask), *moments.shape[2:])
        return {**found, "n": r @ mask.mT, "A": A, "zz": moments.sum(1)}

    @torch.no_grad()
    def maximize(self, statistics: Statistics) -> None:
        A, b, n, noise = statistics["A"], statistics["b"], statistics["n"], self.log_noise.exp()
        seen = n > torch.finfo(n.dtype).eps
        eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        A = torch.where(seen[..., None, None], A, eye)
        S = None
        if self.ard:
            prior = torch.diag_embed(self._prior_precision())[:, None]
            S = torch.linalg.inv(prior + A / noise[..., None, None])
            w = times(S, b) / noise[..., None]
        else:
            w = times(torch.cholesky_inverse(torch.linalg.cholesky(A)), b)
        w = w if seen.all() else torch.where(seen[..., None], w, self.weights())
        self._set_noise(statistics, w, S)
        self._set_weights(w, S, statistics.get("zz"))

    def _set_noise(self, statistics: Statistics, w: Tensor, S: Tensor | None) -> None:
        """Noise variances: the expected squared residuals."""
        A, n = statistics["A"], statistics["n"]
        residual = statistics["c"] - 2 * (w * statistics["b"]).sum(-1) + (times(A, w) * w).sum(-1)
        if S is not None:
            residual = residual + (A * S).sum((-2, -1))
        n = n.expand_as(residual)
        if not self.diagonal:
            n, residual = n.sum(-1, keepdim=True), residual.sum(-1, keepdim=True)
        noise = means_of(residual, n, self.log_noise.exp())
        self.held.copy_((noise < self.floor).any(-1))
        self.log_noise.copy_(noise.clamp_min(self.floor).log())

    def _set_weights(self, w: Tensor, S: Tensor | None, zz: Tensor | None) -> None:
        """Loadings, in canonical coordinates where those of z are free."""
        w, S = (w, S) if zz is None else canonical_loadings(w, S, zz)
        self.loadings.copy_(w[..., :-1])
        self.location.copy_(w[..., -1] + self.origin)
        if S is not None:
            self.resize_buffers({"uncertainty": S})
            self.uncertainty.copy_(S)
            unknown = over_columns(S.diagonal(dim1=-2, dim2=-1), w.shape[1])[..., :-1]
            spread = self.loadings.square().sum(1) + unknown
            self.precision.copy_(w.shape[1] / spread)

    def prior(self) -> Tensor | float:
        """Minus the divergence of the loadings' posterior from their prior, which completes the
        bound.
        """
        if not self.ard:
            return 0.0
        w, S, precision = self.weights(), self.uncertainty, self._prior_precision()
        columns = w.shape[1]
        size = w.square().sum(1) + over_columns(S.diagonal(dim1=-2, dim2=-1), columns)  # (K, q)
        log_det = over_columns(torch.linalg.slogdet(S)[1], columns)
        return -0.5 * ((precision * size - columns * (1 + precision.log())).sum() - log_det.sum())

    def _prior_precision(self) -> Tensor:
        location = torch.full_like(self.precision[:, :1], LOCATION_PRECISION)
        return torch.cat([self.precision, location], 1)

    @torch.no_grad()
    def spread(self, mean: Tensor, variance: Tensor, generator: Generator) -> None:
        super().spread(mean, variance, generator)
        scale = (variance.clamp_min(self.floor) / self.latent).sqrt()[:, None]
        self.loadings.copy_(rng.normal(self.loadings.shape, self.loadings, generator) * scale)
        noise = variance if self.diagonal else variance.mean(-1, keepdim=True)
        self.log_noise.copy_(noise.clamp_min(self.floor).log().expand_as(self.log_noise))
        if self.ard:
            self.precision.fill_(1.0)
            eye = torch.eye(self.latent + 1, dtype=mean.dtype, device=mean.device)
            self.uncertainty.copy_((1e-3 * eye).expand_as(self.uncertainty))

    def relevant(self) -> Tensor:
        """Directions along which the data vary by more than a trace of the noise, ``(K, d)``."""
        return self.loadings.square().sum(1) > RELEVANT * self.noise().mean(-1, keepdim=True)

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``(K, B, d)`` and Cholesky factor of the precision ``(K, B or 1, d, d)`` of z given
        the observed values.

        With the prior, z is as uncertain as the loadings make it, which is what fills missing
        values best.
        """
        latent = self.scores(x, self.ready(averaged=True))[1]
        return latent.mean.mT, latent.factor

    def draw(self, index: Tensor, *, generator: Generator) -> Tensor:
        z = rng.normal((len(index), self.latent), self.location, generator)
        return self._emit(z, index, generator)

    def fill_mean(self, x: Tensor) -> Tensor:
        mean, _ = self.posterior(x)
        return torch.where(x.isnan(), mean @ self.loadings.mT + self.location[:, None], x)

    def fill_draw(self, x: Tensor, index: Tensor, *, generator: Generator) -> Tensor:
        mean, factor = self.posterior(x)
        rows = torch.arange(len(x), device=x.device)
        noise = rng.normal((len(x), self.latent, 1), x, generator)
        factor = factor.expand(-1, len(x), -1, -1)[index, rows]
        z = mean[index, rows] + torch.linalg.solve_triangular(factor.mT, noise, upper=True)[..., 0]
        return torch.where(x.isnan(), self._emit(z, index, generator), x)

    def _emit(self, z: Tensor, index: Tensor, generator: Generator) -> Tensor:
        """x given z, ``(n, d) -> (n, D)``."""
        location, deviation = self.location[index], self.noise().sqrt()[index]
        return (
            location
            + (self.loadings[index] @ z[..., None])[..., 0]
            + rng.normal(location.shape, location, generator) * deviation
        )

    def cells(self, missing: bool) -> int:
        per_component = 4 * (self.latent + 1) ** 2 if missing else 4 * (self.latent + 1)
        return self.count * per_component + 4 * self.support.width

    def freedom(self) -> int:
        """Means, noise, and the loadings of the directions that count, up to a rotation."""
        d = self.relevant().sum(1) if self.ard else torch.full((self.count,), self.latent)
        return (
            self.location.numel()
            + self.log_noise.numel()
            + int((d * self.support.width - d * (d - 1) // 2).sum())
        )

    def _gram(self, mask: Tensor | None, exact: bool) -> tuple[Tensor, Tensor, Tensor]:
        """G, ``(K, B or 1, d, d)``, and the sums over observed columns of V mu / Psi and mu^2 /
        Psi.
        """
        w, noise = self.weights(), self.noise()
        if mask is None:
            total = ((w / noise[..., None]).mT @ w)[:, None]
            total = total if exact else total + weighted(self.uncertainty, 1 / noise)[:, None]
        else:
            second = w[..., :, None] * w[..., None, :]
            second = (second if exact else second + self.uncertainty) / noise[..., None, None]
            total = (mask.mT @ second.flatten(2)).unflatten(2, second.shape[2:])
        G = total[..., :-1, :-1] + torch.eye(self.latent, dtype=w.dtype, device=w.device)
        return G, total[..., :-1, -1], total[..., -1, -1]
