r"""What a critic claims beside what is true of the same batch.

.. math:: \frac{1}{L} \big( E_x[c(x)] - E_y[c(y)] \big) \;\le\; W_1(x, y), \qquad \mathrm{Lip}(c)
          \le L
          (theory/divergences.md, eq. 16.21)

Letters: B batch, c critic, L its certified Lipschitz constant.
"""

import math

import torch
from torch import Tensor, nn

from partita.divergences.samples import coverage, mmd2
from partita.divergences.transport import wasserstein
from partita.errors import Unsupported
from partita.nets.lipschitz import lipschitz_bound

AUDITED = ("dual", "wasserstein", "lipschitz", "dual_over_lipschitz", "coverage", "mmd2")
MOST_ROWS = 256  # of a batch that the exact distance is computed for


@torch.no_grad()
def audit(critic: nn.Module, x: Tensor, y: Tensor, v_x: Tensor, v_y: Tensor) -> Tensor:
    """The critic's dual value, the exact W_1, the certified slope, the dual value a critic of slope
    one may claim, coverage, MMD^2.
    """
    rows = slice(min(len(x), MOST_ROWS))
    x, y = x[rows], y[rows]
    dual = float(v_x[rows].mean() - v_y[rows].mean())
    steepest = certified_slope(critic, x.shape[1])
    x, y = x.double(), y.double()
    claim = dual / steepest if steepest > 0 else math.nan
    spread, distance = (
        (float(coverage(x, y, min(5, len(x) - 1))), float(mmd2(x, y)))
        if len(x) > 2
        else (math.nan, math.nan)
    )
    return torch.tensor(
        [dual, float(wasserstein(x, y)), steepest, claim, spread, distance], dtype=torch.float64
    )


def certified_slope(critic: nn.Module, width: int) -> float:
    """The critic's Lipschitz constant from above; nan for a module of the user's own that no bound
    is known for.
    """
    try:
        return lipschitz_bound(critic, (width,))
    except Unsupported:
        return math.nan
