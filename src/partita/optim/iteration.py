"""The steps of conjugate gradients on a block of right-hand sides, which stop one by one.

A run of steps trusts its own recursion for the residual. Around it the true residual decides: a run
that was wrong about being done is restarted from there. Only the m numbers of a step, never
vectors, cross to the host.

Letters: n unknowns, m right-hand sides, A matrix, M preconditioner, r residual, z = M^{-1} r, p
direction, q = A p (eq. 50.2).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from partita.optim.lanczos import CGSteps, error_estimate
from partita.optim.operators import Operator
from partita.optim.preconditioners import Preconditioner

WIDTH = 16  # right-hand sides in one sparse product: blocks of so few stay in the cache
RESTARTS = 4  # from the true residual, where the recursion believed to be done
GAIN = 0.5  # by which a restart must shrink the residual to be worth another
# roundings of the steepest curvature so far, over sqrt(n), below which a direction is flat: errors
# of n terms average out
FLAT = 8.0


@dataclass(frozen=True)
class System:
    """What is the same for every right-hand side: A, its preconditioner and the steps allowed."""

    operator: Operator
    M: Preconditioner | None
    budget: int

    def residual(self, b: Tensor, x: Tensor) -> Tensor:
        """b - A x."""
        return b - self.operator.product(x)

    def preconditioned(self, r: Tensor) -> Tensor:
        """z = M^{-1} r."""
        return r if self.M is None else self.M(r)


@dataclass
class Outcome:
    """Of m right-hand sides: solutions, true residuals, a way to estimate their errors, steps and
    reasons.
    """

    x: Tensor
    residual: np.ndarray
    error: Callable[[], np.ndarray]
    iterations: np.ndarray
    reasons: np.ndarray


@dataclass
class _Progress:
    """What is known while the steps go on; an empty reason means that a column may go on."""

    reasons: np.ndarray
    left: np.ndarray  # steps
    runs: list[CGSteps] = field(default_factory=list)


def iterate(system: System, b: Tensor, x0: Tensor | None, limit: np.ndarray) -> Outcome:
    """Solve for all columns of ``b`` (n, m) until each true residual is at most its ``limit``, or
    give the reason why not.
    """
    start = torch.zeros_like(b) if x0 is None else x0.clone()
    m = b.shape[1]
    if system.operator.csr is None or m <= WIDTH:
        return _iterate_block(system, b, start, limit)
    parts = []
    for i in range(0, m, WIDTH):
        columns = slice(i, i + WIDTH)
        right, x = b[:, columns].contiguous(), start[:, columns].contiguous()
        parts.append(_iterate_block(system, right, x, limit[columns]))
    return Outcome(
        torch.cat([part.x for part in parts], 1),
        np.concatenate([part.residual for part in parts]),
        lambda: np.concatenate([part.error() for part in parts]),
        np.concatenate([part.iterations for part in parts]),
        np.concatenate([part.reasons for part in parts]),
    )


def _iterate_block(system: System, b: Tensor, x: Tensor, limit: np.ndarray) -> Outcome:
    """Take steps, and again from the true residual where the recursion was wrong about being
    done.
    """
    m = len(limit)
    progress = _Progress(np.full(m, "", dtype=object), np.full(m, system.budget))
    before = np.full(m, np.inf)
    for _ in range(RESTARTS + 1):
        r = system.residual(b, x)
        size = norms(r)
        stalled = (progress.reasons == "") & ~(size <= np.maximum(limit, GAIN * before))
        progress.reasons[stalled] = "breakdown"
        running = (progress.reasons == "") & (size > limit)
        if not running.any():
            break
        before = np.where(np.isfinite(before) | running, size, before)
        _take_steps(system, x, r, running, limit, progress)
    r = system.residual(b, x)
    size = norms(r)
    reasons = np.where(progress.reasons == "", "breakdown", progress.reasons)
    reasons = np.where(size <= limit, "converged", reasons)
    rz = _dots(r, system.preconditioned(r))
    return Outcome(
        x,
        size,
        lambda: error_estimate(progress.runs, rz, reasons),
        system.budget - progress.left,
        reasons,
    )


def _take_steps(
    system: System,
    x: Tensor,
    r: Tensor,
    running: np.ndarray,
    limit: np.ndarray,
    progress: _Progress,
) -> None:
    """One run of steps, which moves ``x`` and ``r`` in place, until no column is running."""
    z = system.preconditioned(r)
    p, scaled = z.clone(), torch.empty_like(r)
    start = size = rz = _dots(r, z)
    steepest = np.zeros(len(rz))
    rounding = FLAT * torch.finfo(p.dtype).eps / len(p) ** 0.5
    reasons, left = progress.reasons, progress.left
    alphas: list[np.ndarray] = []
    betas: list[np.ndarray] = []
    while True:
        if not ((left > 0) & (rz > 0))[running].all():
            reasons[running & (left <= 0)] = "budget"
            # of a preconditioner that is not positive definite
            reasons[running & ~(rz > 0)] = "breakdown"
            running = running & (reasons == "")
        if not running.any():
            break
        q = system.operator.product(p)
        curvature = _dots(p, q)
        # p'Ap / p'Mp, the largest so far: size is p'Mp
        steepest = np.maximum(steepest, _quotient(abs(curvature), size, running))
        flat = rounding * steepest * size
        if not (curvature > flat)[running].all():
            reasons[running & ~(curvature > flat)] = "breakdown"
            reasons[running & (curvature < -flat)] = "indefinite"
            running = running & (reasons == "")
        alpha = _quotient(rz, curvature, running)
        step = torch.from_numpy(alpha).to(p)
        x.add_(torch.mul(step, p, out=scaled))
        r.sub_(torch.mul(step, q, out=scaled))
        z = system.preconditioned(r)
        following = _dots(r, z)
        beta = _quotient(following, rz, running)
        p.mul_(torch.from_numpy(beta).to(p)).add_(z)
        left -= running
        alphas.append(alpha)
        betas.append(beta)
        running = running & ((np.sqrt(following) if system.M is None else norms(r)) > limit)
        rz, size = following, following + beta**2 * size
    if alphas:
        progress.runs.append(CGSteps(np.stack(alphas), np.stack(betas), start))


def _quotient(a: np.ndarray, b: np.ndarray, where: np.ndarray) -> np.ndarray:
    """a / b, and zero elsewhere."""
    return np.divide(a, b, out=np.zeros(len(a)), where=where)


def _dots(a: Tensor, b: Tensor) -> np.ndarray:
    return torch.linalg.vecdot(a, b, dim=0).double().cpu().numpy()


def norms(r: Tensor) -> np.ndarray:
    """The 2-norm of every column, (m,)."""
    return torch.linalg.vector_norm(r, dim=0).double().cpu().numpy()
