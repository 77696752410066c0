r"""The minimum of a smooth function by nonlinear conjugate gradients.

.. math:: p_{k+1} = -g_{k+1} + \beta_k p_k, \qquad \beta_k = \max\Big(0, \frac{g_{k+1}^\top (g_{k+1}
          - g_k)}{g_k^\top g_k}\Big)
          (theory/optimization.md, eq. 50.7)

with SciPy's line search for the strong Wolfe conditions, fed by autograd. On a quadratic function
it takes the steps of the linear method. Polak and Ribiere (1969); Nocedal and Wright (2006),
Numerical optimization, ch. 5.

Letters: n unknowns, g gradient, p direction, k steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from partita.core.arguments import FiniteTensor, NonNegativeFloat, PositiveInt, validated
from partita.errors import Diverged, invalid

# of scipy.optimize: 2 is a line search that rounding stopped
REASONS = {0: "converged", 1: "budget", 2: "precision"}


@dataclass(frozen=True)
class Minimum:
    """Where it ended: x, the value there, the largest slope, steps, and why: ``converged``,
    ``budget`` or ``precision``.
    """

    x: Tensor
    value: float
    slope: float
    iterations: int
    reason: str

    @property
    def converged(self) -> bool:
        """Whether no slope is above the tolerance."""
        return self.reason == "converged"


@validated
def minimize(
    function: Callable[[Tensor], Tensor],
    x0: FiniteTensor,
    *,
    tolerance: NonNegativeFloat = 1e-6,
    iterations: PositiveInt | None = None,
) -> Minimum:
    """A local minimum of ``function``, which maps a tensor of the shape of ``x0`` to a number.

    Arguments:
        function: Differentiable by autograd.
        x0: Where to start.
        tolerance: Largest slope at which it is converged.
        iterations: Most steps; 200 n if not given.

    >>> minimize(lambda x: ((x - 3) ** 2).sum(), torch.zeros(4, dtype=torch.float64)).x.round(
    ...     decimals=6
    ... ).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    from scipy.optimize import minimize

    if not x0.is_floating_point():
        raise invalid("minimize", "x0", "hold real numbers", x0.dtype)
    steps = 200 * x0.numel() if iterations is None else iterations

    def value_and_slope(flat: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.from_numpy(flat).to(x0).view(x0.shape).requires_grad_()
        with torch.enable_grad():
            value = function(x)
        if value.numel() != 1 or not value.requires_grad:
            got = f"shape {tuple(value.shape)}"
            if value.numel() == 1:
                got = "one that does not depend on x"
            allowed = "return one number that autograd can follow to x"
            raise invalid("minimize", "function", allowed, got)
        (slope,) = torch.autograd.grad(value.reshape(()), x)
        if not torch.isfinite(value) or not torch.isfinite(slope).all():
            raise Diverged(
                f"minimize: function must be finite along the way; got {value.item():g}. Start "
                "nearer, or bound the variables."
            )
        return float(value.detach()), slope.double().flatten().cpu().numpy()

    start = x0.detach().double().flatten().cpu().numpy()
    found = minimize(
        value_and_slope, start, jac=True, method="CG", options={"gtol": tolerance, "maxiter": steps}
    )
    slope = float(np.abs(found.jac).max())
    reason = "converged" if slope <= tolerance else REASONS.get(found.status, "precision")
    x = torch.from_numpy(found.x).to(x0).view(x0.shape)
    return Minimum(x, float(found.fun), slope, int(found.nit), reason)
