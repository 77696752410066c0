r"""How far a solution of conjugate gradients is from the truth, from numbers that the steps leave
anyway.

.. math:: \|x^* - x_k\|_A^2 = \sum_{i \ge k} \alpha_i\, r_i^\top z_i, \qquad
          \|x^* - x_k\|_A^2 \le \frac{r_k^\top z_k}{\lambda_{\min}(M^{-1} A)}
          (theory/optimization.md, eq. 50.3, 50.4)

The first sum lies ahead; it is continued as a geometric series from what the last two stretches of
steps took away. The bound puts the smallest eigenvalue of the Lanczos matrix of the alphas and
betas for lambda_min. The smaller of the two is reported.

Letters: k steps, m right-hand sides, alpha and beta as in eq. 50.2, r residual, z = M^{-1} r.
"""

from typing import NamedTuple

import numpy as np

STRETCH = 0.1  # of all steps, over which the rate is measured
SLOWEST = 0.99  # rate of the series; a slower one says nothing


class CGSteps(NamedTuple):
    """One run of steps from a start: alphas and betas (k, m), zero where a column stood still, and
    r . z at the start (m,).
    """

    alphas: np.ndarray
    betas: np.ndarray
    start: np.ndarray

    def of(self, column: int) -> tuple[np.ndarray, np.ndarray]:
        """The k alphas of a column that moved, and the k - 1 betas between them."""
        k = int(np.count_nonzero(self.alphas[:, column]))
        return self.alphas[:k, column], self.betas[: max(k - 1, 0), column]


def error_estimate(runs: list[CGSteps], rz: np.ndarray, reasons: np.ndarray) -> np.ndarray:
    """The A-norm of the error of every column, (m,), where r . z is ``rz`` now.

    Infinite where no step has shown anything of A yet; nan where A is indefinite, and the A-norm no
    norm.
    """
    ritz = np.array([smallest_ritz_value(runs, column) for column in range(len(rz))])
    bound = np.where(np.isfinite(ritz), np.maximum(rz, 0.0) / ritz, np.where(rz == 0, 0.0, np.inf))
    ahead = np.array([_ahead(runs, column) for column in range(len(rz))])
    return np.where(reasons == "indefinite", np.nan, np.sqrt(np.minimum(bound, ahead)))


def smallest_ritz_value(runs: list[CGSteps], column: int) -> float:
    """The smallest eigenvalue of the Lanczos matrix: diagonal 1/alpha_k + beta_{k-1}/alpha_{k-1},
    beside it sqrt(beta_k)/alpha_k.

    Infinite before the first step.
    """
    from scipy.linalg import eigvalsh_tridiagonal

    smallest = np.inf
    for run in runs:
        alpha, beta = run.of(column)
        if len(alpha):
            diagonal = 1 / alpha
            diagonal[1:] += beta / alpha[:-1]
            beside = np.sqrt(beta) / alpha[:-1]
            found = eigvalsh_tridiagonal(
                diagonal, beside, select="i", select_range=(0, 0), check_finite=False
            )[0]
            smallest = min(smallest, max(float(found), float(np.finfo(np.float64).tiny)))
    return smallest


def _ahead(runs: list[CGSteps], column: int) -> float:
    """What is left of the sum, by the rate of its last two stretches; infinite where they do not
    show one.
    """
    taken = np.concatenate([_taken(run, column) for run in runs]) if runs else np.zeros(0)
    width = max(1, int(STRETCH * len(taken)))
    if len(taken) < 2 * width:
        return np.inf
    last, before = taken[-width:].sum(), taken[-2 * width : -width].sum()
    rate = last / before if before > 0 else 1.0
    return last * rate / (1 - rate) if rate < SLOWEST else np.inf


def _taken(run: CGSteps, column: int) -> np.ndarray:
    """alpha_i r_i . z_i, by which each step lowered the square of the error."""
    alpha, beta = run.of(column)
    shrinking = np.cumprod(np.concatenate([[1.0], beta]))[: len(alpha)]
    return alpha * run.start[column] * shrinking
