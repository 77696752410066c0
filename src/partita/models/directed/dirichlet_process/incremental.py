r"""One cluster's collapsed predictive, kept up to date row by row in numba.

.. math:: p(x \mid \text{cluster}) = \int \mathcal K(x \mid \theta)\, p(\theta \mid x_1, \ldots,
          x_n)\, d\theta
          (theory/dirichlet.md, eq. 20.9)

A cluster is a count and one row ``stat`` of numbers, laid out by its kernel:

* Gaussian: posterior mean m, U with S = U'U (rank-one updated), the inverse of U's diagonal, log
  det U;
* known scale: sums, posterior mean, inverse predictive variance, constant;
* Bernoulli: sums, log odds, constant;
* multinomial: posterior counts, their total.

Terms of x alone (``log_base`` of the kernel) are the same in all clusters and left out. Letters: n
count, D columns.
"""

import math

import numpy as np

from partita.models.directed.dirichlet_process.kernels import Target
from partita.runtime.numba_cache import njit

GAUSSIAN, KNOWN_SCALE, BERNOULLI, MULTINOMIAL = range(4)
UNSAFE = 1e-8  # a downdate that leaves less than this share of a squared pivot has lost its digits
FEW = 12  # counts up to here are multiplied out rather than handed to lgamma


@njit(cache=True)
def stat_size(kind: int, width: int) -> int:
    """Numbers in a cluster's row."""
    if kind == GAUSSIAN:
        return width * width + 2 * width + 1
    if kind == KNOWN_SCALE:
        return 3 * width + 1
    return 2 * width + 1 if kind == BERNOULLI else width + 1


@njit(cache=True)
def constants(kind: int, prior: np.ndarray, width: int, n: int) -> np.ndarray:
    """log n plus the predictive's constant, and the factor of its quadratic form, for every count
    from 0 to n, ``(n + 1, 2)``.
    """
    table = np.zeros((n + 1, 2))
    for count in range(n + 1):
        log_count = math.log(count) if count else 0.0
        table[count, 0] = log_count
        if kind == GAUSSIAN:
            kappa, nu = prior[0] + count, prior[1] + count
            gammas = math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * (nu + 1 - width))
            table[count, 1] = kappa / (kappa + 1)
            table[count, 0] = log_count + gammas + 0.5 * width * math.log(table[count, 1] / math.pi)
    return table


@njit(cache=True)
def settle_cluster(
    target: Target, count: float, mean: np.ndarray, scatter: np.ndarray, stat: np.ndarray
) -> None:
    """Fill ``stat`` from a cluster's count, mean ``(D,)`` and scatter ``(D, D)`` about its mean
    (Gaussian only).
    """
    D, prior = mean.shape[0], target.prior
    if target.kind != GAUSSIAN:
        stat[:D] = count * mean
        _refresh(target, count, stat)
        return
    kappa = prior[0] + count
    U = stat[D : D + D * D].reshape(D, D)
    for i in range(D):
        stat[i] = (prior[0] * prior[2 + i] + count * mean[i]) / kappa
        for j in range(i, D):
            shrink = prior[0] * count / kappa * (mean[i] - prior[2 + i]) * (mean[j] - prior[2 + j])
            U[i, j] = prior[2 + D + i * D + j] + scatter[i, j] + shrink
    for k in range(D):  # Cholesky, row by row
        for j in range(k):
            for i in range(k, D):
                U[k, i] -= U[j, k] * U[j, i]
        U[k, k] = math.sqrt(U[k, k])
        for i in range(k + 1, D):
            U[k, i] /= U[k, k]
    _diagonal(stat, D)


@njit(cache=True)
def _diagonal(stat: np.ndarray, D: int) -> None:
    """Inverse diagonal and log determinant of U."""
    at, total = D + D * D, 0.0
    for k in range(D):
        pivot = stat[D + k * D + k]
        stat[at + k] = 1.0 / pivot
        total += math.log(pivot)
    stat[at + D] = total


@njit(cache=True)
def _refresh(target: Target, count: float, stat: np.ndarray) -> None:
    """What a kernel without a covariance derives from its sums ``stat[:D]``."""
    kind, prior, D, total = target.kind, target.prior, target.x.shape[1], 0.0
    if kind == KNOWN_SCALE:
        for i in range(D):
            noise, spread, center = prior[i], prior[D + i], prior[2 * D + i]
            variance = 1.0 / (1.0 / spread + count / noise)
            stat[D + i] = variance * (center / spread + stat[i] / noise)
            stat[2 * D + i] = 1.0 / (noise + variance)
            total -= 0.5 * math.log((noise + variance) / noise)
        stat[3 * D] = total
    elif kind == BERNOULLI:
        for i in range(D):
            ones, zeros = prior[i] + stat[i], prior[D + i] + count - stat[i]
            stat[D + i] = math.log(ones / zeros)
            total += math.log(zeros / (ones + zeros))
        stat[2 * D] = total
    else:
        for i in range(D):
            stat[i] += prior[i]
            total += stat[i]
        stat[D] = total


@njit(cache=True)
def log_predictive(
    target: Target, i: int, count: int, stats: np.ndarray, k: int, work: np.ndarray
) -> float:
    """log count + log p(x_i | cluster k) - log_base(x_i); without log count for an empty one.
    Numbers, not slices: those cost more.
    """
    kind, prior, table, x = target
    D = x.shape[1]
    if kind == GAUSSIAN:
        for a in range(D):
            work[a] = x[i, a] - stats[k, a]
        q, inverse = 0.0, D + D * D
        for a in range(D):
            y = work[a] * stats[k, inverse + a]
            q += y * y
            row = D + a * D
            for b in range(a + 1, D):
                work[b] -= stats[k, row + b] * y
        return (
            table[count, 0]
            - stats[k, inverse + D]
            - 0.5 * (prior[1] + count + 1) * math.log(1.0 + table[count, 1] * q)
        )
    total = table[count, 0]
    if kind == KNOWN_SCALE:
        for a in range(D):
            total -= 0.5 * (
                (x[i, a] - stats[k, D + a]) ** 2 * stats[k, 2 * D + a]
                - x[i, a] * x[i, a] / prior[a]
            )
        return total + stats[k, 3 * D]
    if kind == BERNOULLI:
        for a in range(D):
            total += x[i, a] * stats[k, D + a]
        return total + stats[k, 2 * D]
    drawn = 0.0
    for a in range(D):
        if x[i, a] > 0:
            total += log_rising(stats[k, a], x[i, a])
            drawn += x[i, a]
    return total - log_rising(stats[k, D], drawn)


@njit(cache=True)
def log_rising(a: float, m: float) -> float:
    """log of a (a + 1) ... (a + m - 1)."""
    if m > FEW:
        return math.lgamma(a + m) - math.lgamma(a)
    product = 1.0
    for j in range(int(m)):
        product *= a + j
    return math.log(product)


@njit(cache=True)
def move_row(
    target: Target, i: int, count: int, sign: int, stats: np.ndarray, k: int, work: np.ndarray
) -> bool:
    """Take row i into (sign 1) or out of (sign -1) cluster k of ``count`` rows; False where its
    digits were lost on the way.
    """
    kind, prior, _, x = target
    D, stat = x.shape[1], stats[k]
    if kind == GAUSSIAN:
        kappa = prior[0] + count
        scale = math.sqrt(kappa / (kappa + sign))
        for a in range(D):
            difference = x[i, a] - stat[a]
            work[a] = scale * difference
            stat[a] += sign * difference / (kappa + sign)
        return _rank_one(stat, work, sign, D)
    for a in range(D):
        stat[a] += sign * x[i, a]
        if kind == MULTINOMIAL:
            stat[D] += sign * x[i, a]
    if kind != MULTINOMIAL:
        _refresh(target, count + sign, stat)
    return True


@njit(cache=True)
def _rank_one(stat: np.ndarray, v: np.ndarray, sign: int, D: int) -> bool:
    """U'U + sign v v' in place; v is used up."""
    for k in range(D):
        row = D + k * D
        pivot = stat[row + k]
        square = pivot * pivot + sign * v[k] * v[k]
        if square <= UNSAFE * pivot * pivot:
            return False
        root = math.sqrt(square)
        c, s = pivot / root, v[k] / pivot
        stat[row + k] = root
        for i in range(k + 1, D):
            stat[row + i] = (stat[row + i] + sign * s * v[i]) * c
            v[i] = v[i] / c - s * stat[row + i]
    _diagonal(stat, D)
    return True


@njit(cache=True)
def log_marginal(target: Target, count: int, stat: np.ndarray, empty: np.ndarray) -> float:
    """log of the integral of the cluster's likelihood over the prior, base terms left out;
    ``empty`` is the stat of no rows.
    """
    kind, prior, D, total = target.kind, target.prior, target.x.shape[1], 0.0
    if kind == GAUSSIAN:
        nu, last = prior[1], D * D + 2 * D
        for i in range(D):
            total += math.lgamma(0.5 * (nu + count - i)) - math.lgamma(0.5 * (nu - i))
        total += nu * empty[last] - (nu + count) * stat[last]
        return total + 0.5 * D * (
            math.log(prior[0] / (prior[0] + count)) - count * math.log(math.pi)
        )
    for i in range(D):
        if kind == KNOWN_SCALE:
            noise, spread, center = prior[i], prior[D + i], prior[2 * D + i]
            ratio, off = 1.0 + count * spread / noise, stat[i] - count * center
            total += (
                off * off * spread / (noise * ratio)
                + 2 * center * stat[i]
                - count * center * center
            ) / (2 * noise)
            total -= 0.5 * math.log(ratio)
        elif kind == BERNOULLI:
            a, b, ones = prior[i], prior[D + i], stat[i]
            total += (
                math.lgamma(a + ones)
                - math.lgamma(a)
                + math.lgamma(b + count - ones)
                - math.lgamma(b)
            )
            total -= math.lgamma(a + b + count) - math.lgamma(a + b)
        else:
            total += math.lgamma(stat[i]) - math.lgamma(prior[i])
    return total if kind != MULTINOMIAL else total + math.lgamma(empty[D]) - math.lgamma(stat[D])
