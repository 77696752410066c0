r"""Probabilistic PCA, factor analysis, and mixtures of them.

.. math:: p(x) = \sum_k \pi_k\, N(x; \mu_k, V_k V_k^\top + \Psi_k)
          (theory/mixtures.md, eq. 10.11)

Letters: N data, B rows, D columns, d latent dimensions, K components.
"""

import math
from typing import Annotated, TypeAlias

import torch
from torch import Generator, Tensor
from torch.nn import functional

from partita.core import capability
from partita.core.arguments import PositiveFloat, PositiveInt, Several, one_of
from partita.core.protocols import Capability, Data
from partita.core.registry import MODELS
from partita.errors import invalid
from partita.models.directed.components.base import Statistics
from partita.models.directed.components.factor import Factors
from partita.models.directed.mixture import Mixing
from partita.runtime.seeds import stretches

NOISES = ("isotropic", "diagonal")
Noise: TypeAlias = Annotated[str, one_of(*NOISES)]
Prior: TypeAlias = Annotated[str | None, one_of(None, "ard")]


@MODELS.register
class PPCA(Mixing[Factors]):
    """One linear-Gaussian model, in float64.

    Arguments:
        visible: Number of columns D.
        latent: Number of dimensions d, below D.
        noise: ``"isotropic"`` (probabilistic PCA) or ``"diagonal"`` (factor analysis).
        prior: None, or ``"ard"``, which switches off the dimensions that the data do not need.
        floor: The smallest noise variance; one that is held there is reported by the fit.
        generator: Source of the initial loadings.

    >>> g = torch.Generator().manual_seed(0)
    >>> model = PPCA(5, 2, generator=g)
    >>> model.encode(model.draw(7, generator=g)).shape
    torch.Size([7, 2])
    """

    examples = {
        "PPCA": {"visible": 3, "latent": 1},
    }

    def __init__(
        self,
        visible: Several,
        latent: PositiveInt,
        *,
        noise: Noise = "isotropic",
        prior: Prior = None,
        floor: PositiveFloat = 1e-6,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.hold(_factors(self, 1, generator), generator.device)
        if noise == "isotropic" and prior is None:
            self.capabilities = self.capabilities | {Capability.CLOSED_FORM}

    def encode(self, x: Tensor) -> Tensor:
        """E[z | x] given the observed values, ``(B, D) -> (B, d)``."""
        return self.component.posterior(x.to(self.logits))[0][0]

    @torch.no_grad()
    def e_step_given(self, x: Tensor, z: Tensor, weight: Tensor | None = None) -> Statistics:
        r"""The E-step where some latent values were observed beside x: z is NaN where it was not.

        .. math:: z_u \mid x, z_o \sim N\bigl(G_{uu}^{-1} (V_u^\top \Psi^{-1} (x - \mu) - G_{uo}
                  z_o),\, G_{uu}^{-1}\bigr)
                  (theory/mixtures.md, eq. 10.14)

        ``m_step`` then keeps the coordinates that the observed values give; with all of z observed
        it is linear regression.
        """
        scores, latent = self.component.scores(x.to(self.logits), self.component.ready())
        # (1, B or 1, d, d), (1, B, d)
        G, m, z = latent.factor @ latent.factor.mT, latent.mean.mT, z.to(self.logits)[None]
        free = z.isnan().to(m)
        known = torch.where(z.isnan(), 0.0, z)
        factor = torch.linalg.cholesky(
            free[..., :, None] * G * free[..., None, :] + torch.diag_embed(1 - free)
        )
        rest = free * (G @ (m - known)[..., None])[..., 0] + known
        mean = torch.cholesky_solve(rest[..., None], factor)[..., 0]
        covariance = torch.cholesky_inverse(factor) * free[..., :, None] * free[..., None, :]
        r = torch.ones_like(scores) if weight is None else weight.to(scores)[None]
        found = self.component.sums(r, mean.mT, covariance, latent.mask, latent.x)
        log_p = scores + _log_conditional(latent.factor, factor, mean - m, 1 - free)
        return {
            **{k: v for k, v in found.items() if k != "zz"},
            "mass": r.sum(1),
            "log_likelihood": (r * log_p).sum(),
        }

    @torch.no_grad()
    def solve(self, data: Data, *, generator: Generator) -> None:
        r"""The maximum-likelihood solution in closed form (Tipping and Bishop 1999), for complete
        rows and isotropic noise.

        .. math:: \sigma^2 = \frac{1}{D - d} \sum_{i > d} \lambda_i, \quad V = U_d (\Lambda_d -
                  \sigma^2 I)^{1/2}
                  (theory/mixtures.md, eq. 10.12)
        """
        capability.require("ClosedForm", self)
        component, mean = self.component, data.mean().to(self.logits)
        d = component.latent
        values, vectors = principal_axes(data, mean, d, generator)
        noise = values[d:].mean().clamp_min(component.floor)
        component.origin.copy_(mean)
        component.location.copy_(mean[None])
        component.loadings.copy_((vectors * (values[:d] - noise).clamp_min(0).sqrt())[None])
        component.log_noise.fill_(noise.log())
        component.held.fill_(bool(values[d:].mean() < component.floor))

    def title(self) -> str:
        name = "FactorAnalysis" if self.component.diagonal else "PPCA"
        return f"{name}({self.support.width}, {self.component.latent})"


@MODELS.register
class MixturePPCA(Mixing[Factors]):
    """K linear-Gaussian models with weights; the arguments are those of :class:`PPCA`.

    >>> g = torch.Generator().manual_seed(0)
    >>> MixturePPCA(3, 5, 2, generator=g).draw(4, generator=g).shape
    torch.Size([4, 5])
    """

    examples = {
        "MixturePPCA": {"components": 2, "visible": 3, "latent": 1},
    }

    def __init__(
        self,
        components: PositiveInt,
        visible: Several,
        latent: PositiveInt,
        *,
        noise: Noise = "isotropic",
        prior: Prior = None,
        floor: PositiveFloat = 1e-6,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.hold(_factors(self, components, generator), generator.device)

    def title(self) -> str:
        return f"MixturePPCA({self.components}, {self.support.width}, {self.component.latent})"


def _log_conditional(
    factor: Tensor, factor_free: Tensor, deviation: Tensor, known: Tensor
) -> Tensor:
    """log p(z_o | x) from the Cholesky factors of G and of its free block, and z less its mean
    given x, ``(1, B, d) -> (1, B)``.
    """
    log_det, log_det_free = (
        part.diagonal(dim1=-2, dim2=-1).log().sum(-1) for part in (factor, factor_free)
    )
    misfit = (factor.mT @ deviation[..., None])[..., 0].square().sum(-1)
    return log_det - log_det_free - 0.5 * (misfit + known.sum(-1) * math.log(2 * math.pi))


def principal_axes(data: Data, mean: Tensor, d: int, generator: Generator) -> tuple[Tensor, Tensor]:
    r"""Eigenvalues, falling, and the first d eigenvectors of the covariance of complete rows,
    ``(D,), (D, d)``; read in chunks.

    .. math:: X X^\top u = N \lambda u \;\Rightarrow\; X^\top X\, (X^\top u) = N \lambda\, (X^\top
              u)
              (theory/mixtures.md, eq. 10.16)

    so that of fewer rows than columns only the products with one another are needed, and the other
    eigenvalues are zero.
    """
    wide = len(data) < len(mean)
    kept, total = [], mean.new_zeros(0 if wide else len(mean), len(mean))
    for index in stretches(len(data), max(1, (1 << 21) // len(mean))):
        batch = data.batch(index, generator=generator)
        x = batch.x.to(mean) - mean
        x = x if batch.weight is None else x * batch.weight.to(x).sqrt()[:, None]
        kept, total = ([*kept, x], total) if wide else (kept, total + x.mT @ x)
    x = torch.cat(kept) if wide else total
    values, vectors = _eigen((x @ x.mT if wide else total) / len(data))
    if not wide:
        return values, vectors[:, :d]
    size = (len(data) * values[:d]).sqrt().clamp_min(torch.finfo(x.dtype).tiny)
    axes = functional.pad(x.mT @ vectors[:, :d] / size, (0, max(0, d - len(data))))
    return functional.pad(values, (0, len(mean) - len(data))), axes


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues of a covariance, falling, and its eigenvectors."""
    if not torch.isfinite(matrix).all():
        raise invalid(
            "PPCA.solve",
            "x",
            "be complete to be solved in closed form",
            "missing values",
            "Use EM().",
        )
    values, vectors = torch.linalg.eigh(matrix)
    return values.flip(0).clamp_min(0), vectors.flip(1)


def _factors(model: Mixing, count: int, generator: Generator) -> Factors:
    """The components of a model by the arguments that it was given."""
    made = model.arguments
    visible, latent = made["visible"], made["latent"]
    if latent >= visible:
        allowed = f"be below the number of columns, {visible}"
        raise invalid(type(model).__name__, "latent", allowed, latent)
    return Factors(
        count,
        visible,
        latent,
        diagonal=made["noise"] == "diagonal",
        ard=made["prior"] == "ard",
        floor=made["floor"],
        generator=generator,
    )
