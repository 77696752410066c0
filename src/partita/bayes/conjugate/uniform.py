r"""Data uniform on [0, theta] with a Pareto prior on the end.

.. math:: k_n = k + n, \qquad m_n = \max(m, \max_i x_i), \qquad
          p(X) = \frac{k\, m^k}{(k + n)\, m_n^{k + n}}          (theory/bayes.md, eq. 8.12)

Letters: n data, m smallest end possible, k index of the Pareto tail.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Distribution, Pareto, constraints

from partita.bayes.conjugate.base import Conjugate, Positive
from partita.bayes.distributions import ParetoUniform


@dataclass(frozen=True, eq=False)
class UniformPareto(Conjugate):
    """Unknown end of a uniform distribution that starts at 0, Pareto(m, k).

    >>> pair = UniformPareto(m=1.0, k=1.0).update([0.5, 3.0])
    >>> float(pair.map), float(pair.posterior.mean)
    (3.0, 4.5)
    """

    m: Positive
    k: Positive

    data = constraints.nonnegative

    @property
    def posterior(self) -> Distribution:
        return Pareto(self.m, self.k)

    @property
    def predictive(self) -> Distribution:
        return ParetoUniform(self.m, self.k)

    def absorb(self, x: Tensor, w: Tensor) -> "UniformPareto":
        seen = torch.where(w > 0, x, 0)
        largest = seen.amax(0) if len(x) else torch.zeros_like(self.like)
        return replace(self, m=torch.maximum(self.m, largest), k=self.k + w.sum(0))

    def log_normalizer(self) -> Tensor:
        return -self.k * torch.log(self.m) - torch.log(self.k)
