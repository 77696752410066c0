"""The steps of conjugate gradients on a block of right-hand sides, which stop one by one: in torch,
or in machine code on compressed rows.

A run of steps believes its own recursion for the residual; around it, the true residual decides,
and a run that was wrong about being done is taken up again from there. Only the m numbers of a
step, never vectors, cross to the host.

Letters: n unknowns, m right-hand sides, A matrix, M preconditioner, r residual, z = M^{-1} r, p
direction, q = A p (eq. 50.2).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from partita.optim.lanczos import Steps, error_estimate
from partita.optim.operators import Operator, Rows, sparse
from partita.optim.preconditioners import Preconditioner

RESTARTS = 4  # from the true residual, where the recursion believed to be done
GAIN = 0.5  # by which a restart must shrink the residual to be worth another
# roundings of the steepest curvature so far, over sqrt(n), below which a direction is flat: errors
# of n terms average out
FLAT = 8.0
BURST = 256  # steps of machine code between two looks
# of the machine code: running and converged give no reason
CODES = ("", "", "budget", "breakdown", "indefinite")


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
class Progress:
    """What is known while the steps go on; a reason is empty while there is none against
    going on.
    """

    reasons: np.ndarray
    left: np.ndarray  # steps
    runs: list[Steps] = field(default_factory=list)


# (x, r, which columns, limits, progress), x in place
Stepper = Callable[[Tensor, Tensor, np.ndarray, np.ndarray, Progress], None]


def iterate(
    operator: Operator,
    M: Preconditioner | None,
    b: Tensor,
    x0: Tensor | None,
    limit: np.ndarray,
    budget: int,
) -> Outcome:
    """Solve for all columns of ``b`` (n, m) until each true residual is at most its ``limit``, or
    say why not.
    """
    start = torch.zeros_like(b) if x0 is None else x0.clone()
    if operator.rows is None or M is not None:
        product = operator.apply if operator.rows is None else _product_of(operator.rows)
        return _outcome(product, _in_torch(product, M), M, b, start, limit, budget)
    return _in_chunks(operator.rows, b, start, limit, budget)


def _product_of(rows: Rows) -> Callable[[Tensor], Tensor]:
    matrix = sparse(rows)
    return lambda p: torch.from_numpy(matrix @ p.numpy())


def _outcome(
    product: Callable[[Tensor], Tensor],
    steps: Stepper,
    M: Preconditioner | None,
    b: Tensor,
    x: Tensor,
    limit: np.ndarray,
    budget: int,
) -> Outcome:
    """Steps, and again from the true residual where the recursion was wrong about being done."""
    progress = Progress(np.full(len(limit), "", dtype=object), np.full(len(limit), budget))
    before = np.full(len(limit), np.inf)
    for _ in range(RESTARTS + 1):
        r = b - product(x)
        size = _norms(r)
        progress.reasons[(progress.reasons == "") & ~(size <= np.maximum(limit, GAIN * before))] = (
            "breakdown"
        )
        running = (progress.reasons == "") & (size > limit)
        if not running.any():
            break
        before = np.where(np.isfinite(before) | running, size, before)
        steps(x, r, running, limit, progress)
    r = b - product(x)
    size = _norms(r)
    reasons = np.where(
        size <= limit, "converged", np.where(progress.reasons == "", "breakdown", progress.reasons)
    )
    rz = _dots(r, r if M is None else M(r))
    return Outcome(
        x, size, lambda: error_estimate(progress.runs, rz, reasons), budget - progress.left, reasons
    )


def _in_torch(product: Callable[[Tensor], Tensor], M: Preconditioner | None) -> Stepper:
    """On any device, for any A and M."""

    def steps(
        x: Tensor, r: Tensor, running: np.ndarray, limit: np.ndarray, progress: Progress
    ) -> None:
        z = r if M is None else M(r)
        p, rz, running = z.clone(), _dots(r, z), running.copy()
        start, numbers, size, steepest = rz, [], rz, np.zeros_like(rz)
        while True:
            progress.reasons[running & (progress.left <= 0)] = "budget"
            # of a preconditioner that is not positive definite
            progress.reasons[running & ~(rz > 0)] = "breakdown"
            running &= progress.reasons == ""
            if not running.any():
                break
            q = product(p)
            curvature = _dots(p, q)
            steepest = _judge(curvature, size, steepest, _rounding(p), running, progress.reasons)
            running &= progress.reasons == ""
            alpha = np.divide(rz, curvature, out=np.zeros_like(rz), where=running)
            x.add_(_like(alpha, p) * p)
            r.sub_(_like(alpha, q) * q)
            z = r if M is None else M(r)
            following = _dots(r, z)
            beta = np.divide(following, rz, out=np.zeros_like(rz), where=running)
            p.mul_(_like(beta, p)).add_(z)
            progress.left -= running
            numbers.append((alpha, beta))
            running &= (_norms(r) if M is not None else np.sqrt(following)) > limit
            rz, size = following, following + beta**2 * size
        if numbers:
            progress.runs.append(
                Steps(np.stack([a for a, _ in numbers]), np.stack([b for _, b in numbers]), start)
            )

    return steps


def _judge(
    curvature: np.ndarray,
    size: np.ndarray,
    steepest: np.ndarray,
    rounding: float,
    running: np.ndarray,
    reasons: np.ndarray,
) -> np.ndarray:
    """Name the columns along which A does not curve upwards; the steepest p'Ap / p'Mp so far, where
    ``size`` is p'Mp.
    """
    steepest = np.maximum(
        steepest, np.divide(abs(curvature), size, out=np.zeros_like(size), where=running)
    )
    flat = rounding * steepest * size
    reasons[running & ~(curvature > flat)] = "breakdown"
    reasons[running & (curvature < -flat)] = "indefinite"
    return steepest


def _rounding(p: Tensor) -> float:
    return FLAT * torch.finfo(p.dtype).eps / len(p) ** 0.5


def _in_chunks(rows: Rows, b: Tensor, x0: Tensor, limit: np.ndarray, budget: int) -> Outcome:
    """Right-hand sides side by side in machine code, a few at a time so that they stay in the
    cache; chunks share the threads.
    """
    from partita.optim.csr_kernels import WIDTH

    width = 1 if b.shape[1] == 1 else WIDTH
    more = -b.shape[1] % width
    padded = [torch.nn.functional.pad(block, (0, more)) for block in (b, x0)]
    limits = np.pad(limit, (0, more)).reshape(-1, width)
    reach, product = _reach(rows), _product_of(rows)

    def one(i: int) -> Outcome:
        right, x = (block[:, i * width : (i + 1) * width].contiguous() for block in padded)
        return _outcome(product, _in_machine_code(rows, reach), None, right, x, limits[i], budget)

    if len(limits) == 1:
        parts = [one(0)]
    else:
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            parts = list(pool.map(one, range(len(limits))))
    m = b.shape[1]
    residual, steps, reasons = (
        np.concatenate([getattr(part, name) for part in parts])[:m]
        for name in ("residual", "iterations", "reasons")
    )
    x = parts[0].x if m == 1 else torch.cat([part.x for part in parts], 1)[:, :m].contiguous()
    return Outcome(
        x, residual, lambda: np.concatenate([part.error() for part in parts])[:m], steps, reasons
    )


def _in_machine_code(rows: Rows, reach: np.ndarray) -> Stepper:
    """On compressed rows in the memory of the CPU, for one or ``WIDTH`` columns."""
    from partita.optim.csr_kernels import BREAKDOWN, CONVERGED, RUNNING, burst

    def steps(
        x: Tensor, r: Tensor, running: np.ndarray, limit: np.ndarray, progress: Progress
    ) -> None:
        start = _dots(r, r)
        blocks = (x.numpy(), torch.zeros_like(r).numpy(), r.numpy(), torch.empty_like(r).numpy())
        alpha, beta, rr, numbers = np.zeros_like(start), np.zeros_like(start), start.copy(), []
        codes = np.where(running, RUNNING, CONVERGED)
        size = np.zeros_like(start)
        steepest = np.zeros_like(start)
        while (codes == RUNNING).any():
            alphas, betas = np.zeros((2, BURST, len(rr)))
            taken = burst(
                *rows,
                reach,
                *blocks,
                alpha,
                beta,
                rr,
                limit**2,
                progress.left,
                codes,
                alphas,
                betas,
                size,
                steepest,
                _rounding(x),
            )
            numbers.append((alphas[:taken], betas[:taken]))
            codes[(codes == RUNNING) & ~np.isfinite(rr)] = BREAKDOWN
        x.add_(_like(alpha, x) * torch.from_numpy(blocks[1]))
        progress.reasons[running] = np.array(CODES, dtype=object)[codes[running]]
        alphas, betas = (np.concatenate(parts) for parts in zip(*numbers, strict=True))
        progress.runs.append(Steps(alphas, betas, start))

    return steps


def _reach(rows: Rows) -> np.ndarray:
    """How far the directions must be up to date before each row's product: beyond the largest
    column of it and of the rows before.
    """
    first, columns, _ = rows
    n = len(first) - 1
    largest = np.arange(n, dtype=np.int64)
    filled = first[:-1] < first[1:]
    largest[filled] = np.maximum(largest[filled], np.maximum.reduceat(columns, first[:-1][filled]))
    reach = np.maximum.accumulate(largest) + 1
    reach[-1] = n
    return reach


def _dots(a: Tensor, b: Tensor) -> np.ndarray:
    return torch.linalg.vecdot(a, b, dim=0).double().cpu().numpy()


def _norms(r: Tensor) -> np.ndarray:
    return torch.linalg.vector_norm(r, dim=0).double().cpu().numpy()


def _like(numbers: np.ndarray, neighbor: Any) -> Tensor:
    return torch.from_numpy(numbers).to(neighbor)
