"""Conjugate gradients beside SciPy's on the Poisson problem of a square grid, one right-hand side
and 64 of them.

Sixteen right-hand sides share a sparse product. The ratio of processor times does not depend on how
busy the machine is; that of wall times does.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import cg

from harness import show
from partita.optim import solve

QUICK = True
TOLERANCE = 1e-8


def poisson(n: int) -> Any:
    """The five-point Laplacian of an n x n grid."""
    line = scipy.sparse.diags_array(
        [-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1]
    )
    eye = scipy.sparse.eye_array(n)
    return scipy.sparse.csr_array(scipy.sparse.kron(eye, line) + scipy.sparse.kron(line, eye))


def compare(n: int, m: int, rounds: int, target: str) -> None:
    """m right-hand sides at once against SciPy's one after the other."""
    A, b = poisson(n), np.random.default_rng(0).standard_normal((n * n, m))
    b = b[:, 0].copy() if m == 1 else b

    def theirs() -> None:
        for i in range(m):
            cg(A, b if m == 1 else b[:, i].copy(), rtol=TOLERANCE, atol=0)

    found = solve(A, b, tolerance=TOLERANCE)
    pairs = [
        (clocks(lambda: solve(A, b, tolerance=TOLERANCE)), clocks(theirs)) for _ in range(rounds)
    ]
    wall, processor = (median(other[i] / own[i] for own, other in pairs) for i in range(2))
    worst = float(np.max(np.asarray(found.residual) / np.asarray(found.tolerance)))
    own, other = (median(pair[i][0] for pair in pairs) for i in range(2))
    show(
        f"{n} x {n} grid, {m} right-hand sides",
        seconds=own,
        scipy=other,
        times_as_fast=wall,
        by_processor_time=processor,
        converged=found.converged,
        residual_to_tolerance=worst,
        target=target,
    )


def clocks(function: Callable[[], Any]) -> tuple[float, float]:
    """Wall and processor seconds of one call, all threads together."""
    wall, processor = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - processor


def run() -> None:
    """Print times and ratios, and what preconditioning saves."""
    compare(64, 1, 20, "none")
    compare(64, 64, 5, "at least 1")
    compare(256, 1, 7, "none")
    compare(256, 64, 2, "none")
    A, b = poisson(256), np.random.default_rng(0).standard_normal(256 * 256)
    steps = {
        name: solve(A, b, preconditioner=name, tolerance=TOLERANCE).iterations
        for name in (None, "incomplete-cholesky")
    }
    show(
        "steps, 256 x 256 grid", plain=steps[None], incomplete_cholesky=steps["incomplete-cholesky"]
    )


if __name__ == "__main__":
    run()
