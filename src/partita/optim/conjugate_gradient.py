r"""Linear systems with a symmetric positive definite matrix, by conjugate gradients.

.. math:: x_{k+1} = x_k + \alpha_k p_k, \quad \alpha_k = \frac{r_k^\top z_k}{p_k^\top A p_k}, \quad
          r_{k+1} = r_k - \alpha_k A p_k, \quad
          p_{k+1} = z_{k+1} + \beta_k p_k, \quad \beta_k = \frac{r_{k+1}^\top z_{k+1}}{r_k^\top z_k}
          (theory/optimization.md, eq. 50.2)

with z = M^{-1} r. The residual that is reported is b - A x computed anew, never the recursion's;
success is claimed only where that one is below the tolerance. Hestenes and Stiefel (1952), Methods
of conjugate gradients for solving linear systems.

Letters: n unknowns, m right-hand sides, k steps, A matrix, M preconditioner, r residual, p
direction.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from partita.core.arguments import NonNegativeFloat, NonNegativeInt, check_finite, validated
from partita.errors import Diverged, invalid
from partita.optim.iteration import Outcome, System, iterate, norms
from partita.optim.operators import Matrix, Product, as_operator, check_symmetric
from partita.optim.preconditioners import as_preconditioner

REASONS = {
    "converged": "the residual is below the tolerance",
    "budget": "the steps allowed ran out; allow more, or precondition",
    "breakdown": "A is singular along a direction, or the precision of the numbers is used up; add "
    "damping, use float64, or ask for less",
    "indefinite": "a direction of negative curvature was met, so A is not positive definite; add "
    "damping or use MINRES",
}
Array: TypeAlias = Tensor | np.ndarray
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-5}


@dataclass(frozen=True)
class Solution:
    """A solution and how good it is; m right-hand sides give tuples and (m,) tensors in place of
    single values.

    Arguments:
        x: The solution, of the shape of b.
        residual: The 2-norm of b - A x, computed anew.
        iterations: Steps taken.
        reason: Why it stopped: ``converged``, ``budget``, ``breakdown`` or ``indefinite``.
        tolerance: The largest residual that counts as converged.
        estimate: Computes the estimated errors (m,).
    """

    x: Tensor
    residual: float | Tensor
    iterations: int | Tensor
    reason: str | tuple[str, ...]
    tolerance: float | Tensor
    estimate: Callable[[], np.ndarray] = field(repr=False)

    @cached_property
    def error(self) -> float | Tensor:
        """Estimate of the error sqrt((x* - x)' A (x* - x)), computed when first read, eq. 50.3 and
        50.4.

        Infinite where no step was taken that could show it, nan where A is indefinite.
        """
        found = self.estimate()
        return float(found[0]) if isinstance(self.reason, str) else torch.from_numpy(found)

    @property
    def converged(self) -> bool:
        """Whether every right-hand side reached the tolerance."""
        return all(reason == "converged" for reason in self._reasons)

    def explain(self) -> str:
        """Why it stopped, in words, with the remedy."""
        return "; ".join(f"{reason}: {REASONS[reason]}" for reason in dict.fromkeys(self._reasons))

    def require(self, owner: str = "solve") -> Tensor:
        """x, or :class:`Diverged` in one sentence where a right-hand side did not converge."""
        if not self.converged:
            raise Diverged(f"{owner}: conjugate gradients must converge; got {self.explain()}.")
        return self.x

    @property
    def _reasons(self) -> tuple[str, ...]:
        return (self.reason,) if isinstance(self.reason, str) else self.reason


@validated
def solve(
    A: Matrix | Product,
    b: Array,
    *,
    x0: Array | None = None,
    preconditioner: str | Matrix | Product | None = None,
    tolerance: NonNegativeFloat | None = None,
    absolute: NonNegativeFloat = 0.0,
    iterations: NonNegativeInt | None = None,
    check: bool = True,
) -> Solution:
    """Solve A x = b for symmetric positive definite A; gradients flow through x to b and to what A
    is made of.

    Arguments:
        A: A tensor, an array, a sparse matrix of SciPy or torch, SciPy's LinearOperator, or a
            function from p to A p that keeps the shape.
        b: Right-hand side (n,), or m of them side by side (n, m).
        x0: Where to start, of the shape of b.
        preconditioner: ``"jacobi"``, ``"incomplete-cholesky"``, a function from r to z, or a matrix
            (a LinearOperator) near A's inverse.
        tolerance: Relative to the norm of b; 1e-8 in float64 and 1e-5 in float32 if not given.
        absolute: A residual that is small enough whatever b is.
        iterations: Most steps k; 10 n if not given.
        check: Whether to check that A is symmetric, which costs a function two products.

    >>> found = solve(
    ...     torch.tensor([[4.0, 1.0], [1.0, 3.0]]).double(), torch.tensor([1.0, 2.0]).double()
    ... )
    >>> found.x.tolist(), found.reason, found.iterations
    ([0.0909..., 0.6363...], 'converged', 2)
    """
    b = _as_right_hand_sides(b)
    block = b.detach().reshape(len(b), -1)
    tolerance = TOLERANCES[b.dtype] if tolerance is None else tolerance
    budget = 10 * len(b) if iterations is None else iterations
    operator = as_operator(A, block)
    if check:
        check_symmetric(operator, block)
    start = None if x0 is None else _start(x0, b)
    system = System(operator, as_preconditioner(preconditioner, operator, block), budget)
    with torch.no_grad():
        found = _solution(system, b.detach(), start, tolerance, absolute)
    if not torch.is_grad_enabled():
        return found
    return replace(found, x=_with_gradient(found, b, system, tolerance, absolute))


def _solution(
    system: System,
    b: Tensor,
    start: Tensor | None,
    tolerance: float | np.ndarray,
    absolute: float = 0.0,
) -> Solution:
    """Of (n,) or (n, m), in units of every column's own power of two, so that no square is too
    large or too small to hold.
    """
    block = b.reshape(len(b), -1)
    unit = _powers_of_two(block)
    block, units = block / unit, unit.double().cpu().numpy()
    limit = np.maximum(tolerance * norms(block.double()), absolute / units)
    # zero is solved by zero
    start = None if start is None else torch.where(block.any(0), start / unit, 0.0)
    found = iterate(system, block, start, limit)
    x = (found.x * unit).view(b.shape)
    # too large to hold in b's units
    lost = ~torch.isfinite(x.reshape(block.shape)).all(0).cpu().numpy()
    found.reasons[lost], found.residual[lost] = "breakdown", np.inf
    return _as_solution(x, found, limit, units)


class _ImplicitContext(FunctionCtx):
    found: Solution
    system: System
    tolerance: np.ndarray


class _Implicit(torch.autograd.Function):
    """A zero whose gradient is A^{-1} g: added to x it carries dx = A^{-1} (db - dA x), eq.
    50.6.
    """

    @staticmethod
    def forward(
        ctx: _ImplicitContext,
        residual: Tensor,
        found: Solution,
        system: System,
        tolerance: np.ndarray,
    ) -> Tensor:
        ctx.found, ctx.system, ctx.tolerance = found, system, tolerance
        return torch.zeros_like(residual)

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: _ImplicitContext, g: Tensor
    ) -> tuple[Tensor, None, None, None]:
        ctx.found.require("gradient of solve")  # the theorem is about solutions
        gradient = _solution(ctx.system, g, None, ctx.tolerance)
        return gradient.require("gradient of solve"), None, None, None


def _with_gradient(
    found: Solution, b: Tensor, system: System, tolerance: float, absolute: float
) -> Tensor:
    """x as a function of b and of what A is made of, by the implicit function theorem; as precise,
    relatively, as x is.
    """
    x, block = found.x, b.detach().reshape(len(b), -1)
    residual = b - system.operator.apply(x.reshape(len(x), -1)).view(x.shape)
    if not residual.requires_grad:
        return x
    unit = _powers_of_two(block)
    size, units = norms((block / unit).double()), unit.double().cpu().numpy()
    loosest = np.divide(absolute / units, size, out=np.zeros_like(size), where=size > 0)
    reached = np.maximum(tolerance, loosest)
    return x + cast(Tensor, _Implicit.apply(residual, found, system, reached))


def _as_solution(x: Tensor, found: Outcome, limit: np.ndarray, units: np.ndarray) -> Solution:
    """In the caller's units, and single values for a single right-hand side."""
    numbers = (found.residual * units, found.iterations, limit * units)
    if x.dim() == 1:
        residual, steps, largest = (values.item() for values in numbers)
        reason = str(found.reasons[0])
    else:
        residual, steps, largest = map(torch.from_numpy, numbers)
        reason = tuple(found.reasons)
    return Solution(x, residual, steps, reason, largest, lambda: found.error() * units)


def _powers_of_two(block: Tensor) -> Tensor:
    """The size of every column, (m,), as a power of two, by which nothing is rounded; one for
    zeros.
    """
    largest = block.abs().amax(0)
    mantissa, _ = torch.frexp(largest)
    return torch.where(largest > 0, largest / (2 * mantissa), 1.0)


def _as_right_hand_sides(b: Array) -> Tensor:
    b = torch.from_numpy(b) if isinstance(b, np.ndarray) else b
    if not isinstance(b, Tensor) or b.dim() not in (1, 2) or b.numel() == 0:
        got = f"shape {tuple(b.shape)}" if isinstance(b, Tensor) else type(b).__name__
        allowed = "be a vector (n,) or right-hand sides side by side (n, m)"
        raise invalid("solve", "b", allowed, got)
    if b.dtype not in TOLERANCES:
        raise invalid("solve", "b", "be float32 or float64", b.dtype)
    check_finite("solve", "b", b.detach())
    return b


def _start(x0: Array, b: Tensor) -> Tensor:
    x0 = torch.as_tensor(x0).detach().to(b)
    if x0.shape != b.shape:
        raise invalid("solve", "x0", f"have the shape of b, {tuple(b.shape)}", tuple(x0.shape))
    check_finite("solve", "x0", x0)
    return x0.reshape(len(b), -1)
