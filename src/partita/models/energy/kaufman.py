r"""The Ising model on a torus, solved: log Z and the mean energy of every finite size (Kaufman
1949).

.. math:: Z = \tfrac12 (2 \sinh 2K)^{mn/2} \Big[ \prod_{r} 2 \cosh \tfrac{m \gamma_{2r+1}}{2} +
          \prod_{r} 2 \sinh \tfrac{m \gamma_{2r+1}}{2}
          + \prod_{r} 2 \cosh \tfrac{m \gamma_{2r}}{2} + \prod_{r} 2 \sinh \tfrac{m \gamma_{2r}}{2}
          \Big],
          \quad \cosh \gamma_q = \cosh 2K \coth 2K - \cos \tfrac{\pi q}{n}
          (theory/discrete.md, eq. 12.10)

with r = 0 ... n - 1 and gamma_0 = 2 K + log tanh K, which changes sign at the critical coupling.

Letters: m, n sides of the torus, K coupling.
"""

import math

import torch
from torch import Tensor

from partita.core.arguments import check_count, check_real

CRITICAL_COUPLING = 0.5 * math.log(1 + math.sqrt(2))


def torus_log_z(m: int, n: int, coupling: float | Tensor) -> Tensor:
    """log Z of an m x n torus of spins with one ferromagnetic coupling K > 0, in float64;
    differentiable in K.

    >>> round(float(torus_log_z(4, 4, 0.4)), 6)
    14.561093
    """
    for name, side in (("m", m), ("n", n)):
        check_count("torus_log_z", name, side, 3)
    K = torch.as_tensor(coupling, dtype=torch.float64)
    check_real("torus_log_z", "coupling", K.item(), 0.0, open_low=True)
    odd, even = (0.5 * m * _gamma(K, torch.arange(parity, 2 * n, 2), n) for parity in (1, 0))
    sign = torch.sign(even[0]).item()  # only gamma_0 can be negative
    terms = torch.stack([_log_cosh(odd), _log_sinh(odd), _log_cosh(even), _log_sinh(even)])
    signs = terms.new_tensor([1.0, 1.0, 1.0, sign])
    top = terms.max().detach()
    total = top + torch.log((signs * torch.exp(terms - top)).sum())
    return total - math.log(2) + 0.5 * m * n * torch.log(2 * torch.sinh(2 * K))


def torus_energy(m: int, n: int, coupling: float) -> float:
    """Mean of the energy -K sum over bonds of x_i x_j: -K d log Z / dK."""
    K = torch.tensor(coupling, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(torus_log_z(m, n, K), K)
    return -coupling * float(slope)


def _gamma(K: Tensor, q: Tensor, n: int) -> Tensor:
    """gamma_q for the q of one parity; the first even one by its own formula, which keeps its
    sign.
    """
    gamma = torch.acosh(
        (torch.cosh(2 * K) / torch.tanh(2 * K) - torch.cos(torch.pi * q.double() / n)).clamp_min(
            1 + 1e-15
        )
    )
    first = 2 * K + torch.log(torch.tanh(K))
    return torch.where(q == 0, first, gamma)


def _log_cosh(y: Tensor) -> Tensor:
    """Sum of log(2 cosh y)."""
    return (y.abs() + torch.log1p(torch.exp(-2 * y.abs()))).sum()


def _log_sinh(y: Tensor) -> Tensor:
    """Sum of log|2 sinh y|."""
    return (y.abs() + torch.log(-torch.expm1(-2 * y.abs()))).sum()
