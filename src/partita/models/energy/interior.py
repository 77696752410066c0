r"""Is the optimum finite? The data's feature averages must lie inside the convex hull of the
features.

.. math:: \max_{p, t} t \quad\text{such that}\quad \sum_x p_x \phi(x) = m, \; \sum_x p_x = 1, \; p_x
          \ge t
          (theory/energy.md, eq. 3.3)

The averages m are in the relative interior exactly if the largest t is positive: then some
distribution that gives every state a positive probability has them.
"""

import numpy as np
from torch import Tensor

LEAST_SHARE = 1e-9  # of a state's probability, relative to uniform, below which it counts as zero


def inside_hull(features: Tensor, mean: Tensor) -> bool:
    """Whether ``mean`` (K,) is in the relative interior of the hull of ``features`` (S, K), by a
    linear program.
    """
    from scipy.optimize import linprog  # a third of a second that no other model needs

    phi, m = features.double().cpu().numpy(), mean.double().cpu().numpy()
    n = len(phi)
    columns = np.vstack([phi.T, np.ones(n)])  # with p = q + t, q >= 0
    # t in units of the uniform probability 1 / n
    equal = np.hstack([columns, columns.sum(1, keepdims=True) / n])
    solution = linprog(
        np.r_[np.zeros(n), -1.0], A_eq=equal, b_eq=np.r_[m, 1.0], bounds=[(0, None)] * (n + 1)
    )
    return bool(solution.status == 0 and -solution.fun > LEAST_SHARE)


def stuck_features(low: Tensor, high: Tensor, elsewhere: Tensor) -> Tensor:
    """Features whose least and greatest value in the data ``(K,)`` agree but which vary on other
    states ``(S, K)``.
    """
    return ((low == high) & (elsewhere != low).any(0)).nonzero().flatten()
