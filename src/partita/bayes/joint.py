r"""Priors of a Gaussian's mean and precision together, as one distribution of both.

.. math:: p(\mu, \Lambda) = \mathcal N\big(\mu \mid m, (k \Lambda)^{-1}\big)\; \mathcal
          W\big(\Lambda \mid \nu, S^{-1}\big)
          (theory/bayes.md, eq. 8.6)

In one dimension the Wishart is a gamma with shape nu/2 and rate S/2. A value is a tensor that holds
the mean beside the precision.

Letters: D width, m mean, k pseudo-rows of the mean, nu degrees of freedom, S scatter, a shape, b
rate.
"""

from collections.abc import Sequence

import torch
from torch import Size, Tensor
from torch.distributions import Gamma, constraints
from torch.distributions.utils import broadcast_all

from partita.bayes.distributions import Parametric, Wishart


class NormalGamma(Parametric):
    """A normal mean and its gamma precision; a value is ``(*, 2)``: mean, precision.

    >>> NormalGamma(0.0, 1.0, 2.0, 1.0).mode.tolist()
    [0.0, 1.5]
    """

    arg_constraints = {
        "m": constraints.real,
        "k": constraints.positive,
        "a": constraints.positive,
        "b": constraints.positive,
    }
    support = constraints.independent(constraints.real, 1)

    def __init__(
        self,
        m: Tensor | float,
        k: Tensor | float,
        a: Tensor | float,
        b: Tensor | float,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.m, self.k, self.a, self.b = broadcast_all(m, k, a, b)
        super().__init__(self.m.shape, Size([2]), validate_args=validate_args)

    @property
    def precision(self) -> Gamma:
        """The margin of the precision."""
        return Gamma(self.a, self.b, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        mu, lam = value.unbind(-1)
        scaled = self.k * lam
        normal = 0.5 * torch.log(scaled / (2 * torch.pi)) - 0.5 * scaled * (mu - self.m).square()
        return normal + self.precision.log_prob(lam)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        lam = self.precision.rsample(Size(sample_shape))
        return torch.stack([self.m + torch.randn_like(lam) / torch.sqrt(self.k * lam), lam], -1)

    @property
    def mean(self) -> Tensor:
        return torch.stack([self.m, self.a / self.b], -1)

    @property
    def mode(self) -> Tensor:
        """Of the joint density: the precision's is (a - 1/2) / b, half a row less than alone; at
        the edge 0 where a is at most 1/2.
        """
        return torch.stack([self.m, (self.a - 0.5).clamp_min(0) / self.b], -1)


class NormalWishart(Parametric):
    """A Gaussian mean and its Wishart precision matrix; a value is ``(*, D, 1 + D)``: mean,
    precision.

    Arguments:
        m: ``(*, D)``.
        k: ``(*)``.
        df: nu, ``(*)``, above D - 1.
        scatter_tril: The Cholesky factor of S, ``(*, D, D)``; the Wishart's mean is nu times the
            inverse of S.
    """

    arg_constraints = {
        "m": constraints.real_vector,
        "k": constraints.positive,
        "df": constraints.positive,
        "scatter_tril": constraints.lower_cholesky,
    }
    support = constraints.independent(constraints.real, 2)

    def __init__(
        self,
        m: Tensor,
        k: Tensor,
        df: Tensor,
        scatter_tril: Tensor,
        *,
        validate_args: bool | None = None,
    ) -> None:
        batch = torch.broadcast_shapes(m.shape[:-1], k.shape, df.shape, scatter_tril.shape[:-2])
        D = m.shape[-1]
        self.m, self.k, self.df = m.expand(*batch, D), k.expand(batch), df.expand(batch)
        self.scatter_tril = scatter_tril.expand(*batch, D, D)
        super().__init__(Size(batch), Size([D, D + 1]), validate_args=validate_args)

    @property
    def precision(self) -> Wishart:
        """The margin of the precision matrix."""
        scale = torch.cholesky_inverse(self.scatter_tril)
        return Wishart(self.df, covariance_matrix=scale, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        mu, lam = value[..., 0], value[..., 1:]
        away, D = mu - self.m, self.event_shape[0]
        square = (away[..., None, :] @ lam @ away[..., :, None])[..., 0, 0]
        normal = 0.5 * (
            D * torch.log(self.k / (2 * torch.pi))
            + torch.linalg.slogdet(lam).logabsdet
            - self.k * square
        )
        return normal + self.precision.log_prob(lam)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        lam = self.precision.rsample(Size(sample_shape))
        z = torch.randn(lam.shape[:-1], dtype=lam.dtype, device=lam.device)
        upper = torch.linalg.cholesky(lam).mT
        shift = torch.linalg.solve_triangular(upper, z[..., None], upper=True)
        return torch.cat([self.m[..., None] + shift / self.k[..., None, None].sqrt(), lam], -1)

    @property
    def mean(self) -> Tensor:
        return self._beside(self.df)

    @property
    def mode(self) -> Tensor:
        """Of the joint density: the precision's is (nu - D) times the inverse of S; at the edge 0
        where nu is at most D.
        """
        return self._beside((self.df - self.event_shape[0]).clamp_min(0))

    def _beside(self, factor: Tensor) -> Tensor:
        precision = factor[..., None, None] * torch.cholesky_inverse(self.scatter_tril)
        return torch.cat([self.m[..., None], precision], -1)
