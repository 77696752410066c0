"""Both samplers of the Dirichlet process mixture against every partition of nine rows or fewer, and
a joint-distribution test.
"""

from functools import cache, partial

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import betaln, gammaln, multigammaln
from scipy.stats import gamma, multivariate_normal, norm, t

from partita.diagnostics.partitions import (
    PartitionPosterior,
    all_partitions,
    cluster_counts,
    coclustering,
    enumerate_posterior,
    functionals,
)
from partita.models.directed.dirichlet_process import (
    DPMixture,
    expected_clusters,
    log_partition_prior,
)
from partita.models.directed.dirichlet_process.kernels import TOTALS, Target
from partita.objectives import CollapsedGibbs, InstantiatedGibbs
from partita.tables import as_rows

ALPHA, CHAINS, BURN_IN, SWEEPS = 1.3, 240, 20, 25
FALSE_ALARM = 1e-3  # of this whole file's family of comparisons
KERNELS = ("gaussian", "known_scale", "bernoulli", "multinomial")
PRIORS = {
    "gaussian": [0.3, 4.0, 0.5, -0.5, 1.5, 0.4, 0.4, 1.0],  # kappa, nu, m, S
    "known_scale": [0.8, 0.5, 4.0, 3.0, 0.2, -0.3],  # s^2, t^2, m
    "bernoulli": [0.7, 1.5, 0.8, 1.1, 0.6, 1.3],
    "multinomial": [0.5, 1.0, 0.8, *[4.0] * TOTALS],
}
ROWS = {
    "gaussian": [
        [0.0, 0.1],
        [0.4, -0.6],
        [3.1, 2.0],
        [2.4, 2.6],
        [-2.0, 1.5],
        [0.9, 0.2],
        [5.0, -3.0],
    ],
    "known_scale": [
        [0.0, 0.1],
        [0.8, -0.6],
        [2.1, 1.0],
        [2.4, 1.6],
        [-2.0, 0.5],
        [-1.1, 0.2],
        [1.2, -1.0],
    ],
    "bernoulli": [[0, 0, 1], [0, 0, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]],
    "multinomial": [[3, 1, 0], [2, 2, 0], [0, 1, 3], [0, 0, 4], [1, 2, 1], [4, 0, 0], [0, 3, 0]],
}


def log_evidence(kernel: str, x: np.ndarray, prior: np.ndarray) -> float:
    """log p(x) of rows that share one parameter, written anew with scipy."""
    n, D = x.shape
    if kernel == "gaussian":
        kappa, nu, m, S = prior[0], prior[1], prior[2 : 2 + D], prior[2 + D :].reshape(D, D)
        off = x - x.mean(0)
        S_n = S + off.T @ off + kappa * n / (kappa + n) * np.outer(x.mean(0) - m, x.mean(0) - m)
        value = (
            -n * D / 2 * np.log(np.pi)
            + multigammaln((nu + n) / 2, D)
            - multigammaln(nu / 2, D)
            + D / 2 * np.log(kappa / (kappa + n))
        )
        return value + nu / 2 * np.linalg.slogdet(S)[1] - (nu + n) / 2 * np.linalg.slogdet(S_n)[1]
    if kernel == "known_scale":
        columns = zip(x.T, *prior.reshape(3, D), strict=True)
        return sum(
            multivariate_normal(np.full(n, m), s * np.eye(n) + t).logpdf(column)
            for column, s, t, m in columns
        )
    if kernel == "bernoulli":
        a, b = prior.reshape(2, D)
        return float((betaln(a + x.sum(0), b + n - x.sum(0)) - betaln(a, b)).sum())
    b, s = prior[:D], x.sum(0)
    base = gammaln(x.sum(1) + 1).sum() - gammaln(x + 1).sum()
    return (
        base + gammaln(b + s).sum() - gammaln((b + s).sum()) - gammaln(b).sum() + gammaln(b.sum())
    )


def problem(kernel: str, alpha: float | None = ALPHA) -> tuple[DPMixture, np.ndarray]:
    x = np.array(ROWS[kernel], dtype=np.float64)
    known = {"known_scale": 1.0} if kernel == "known_scale" else {}
    model = DPMixture(
        x.shape[1],
        "gaussian" if known else kernel,
        alpha=alpha,
        **known,
        generator=torch.Generator(),
    )
    model.prior.copy_(torch.tensor(PRIORS[kernel], dtype=torch.float64))
    return model, x


@cache
def truth(kernel: str) -> PartitionPosterior:
    x, prior = np.array(ROWS[kernel], dtype=np.float64), np.array(PRIORS[kernel])
    return enumerate_posterior(
        len(x),
        partial(log_partition_prior, alpha=ALPHA),
        lambda rows: log_evidence(kernel, x[rows], prior),
    )


def sampled(sampler: type, model: DPMixture, x: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Partitions ``(SWEEPS, CHAINS, n)`` after a burn-in from one cluster, and the last loss."""
    g = torch.Generator().manual_seed(seed)
    rows, objective = as_rows(x), sampler(chains=CHAINS, moves=2, keep=2, start="one")
    state, info, kept = objective.init(model, rows, generator=g), {}, []
    for sweep in range(BURN_IN + SWEEPS):
        state, info = objective.update(model, rows, state, generator=g)
        if sweep >= BURN_IN:
            kept.append(state.z.numpy().copy())
    return np.stack(kept), float(info["loss"])


def check_means(draws: np.ndarray, exact: np.ndarray, comparisons: int) -> None:
    """Means over chains, each averaged over its sweeps, ``(SWEEPS, CHAINS, M)``, within what chance
    allows M of ``comparisons``.
    """
    each = draws.mean(0)
    error = np.abs(each.mean(0) - exact)
    allowed = (
        t.isf(FALSE_ALARM / comparisons / 2, len(each) - 1)
        * each.std(0, ddof=1)
        / np.sqrt(len(each))
    )
    assert (error <= allowed + 1e-12).all(), (error / np.maximum(allowed, 1e-12)).round(2)


def numbers_of(draws: np.ndarray, n: int, common: np.ndarray) -> np.ndarray:
    """K, the indicators of K among ``common`` values, and of every pair together, ``(*, 1 + k + n
    (n - 1) / 2)``.
    """
    K = cluster_counts(draws)
    i, j = np.triu_indices(n, 1)
    return np.concatenate(
        [K[..., None], K[..., None] == common, draws[..., i] == draws[..., j]], -1
    ).astype(float)


@pytest.mark.parametrize("sampler", [CollapsedGibbs, InstantiatedGibbs])
@pytest.mark.parametrize("kernel", KERNELS)
def test_samplers_agree_with_enumeration(kernel: str, sampler: type) -> None:
    """Means over 240 chains; t tests at 1e-3 over all kernels, samplers and comparisons."""
    model, x = problem(kernel)
    draws, _ = sampled(sampler, model, x, seed=1)
    exact, n = truth(kernel), len(x)
    p = exact.cluster_count_probs
    common = np.flatnonzero(p > 0.01)
    expected = np.concatenate(
        [[p @ np.arange(n + 1)], p[common], exact.coclustering[np.triu_indices(n, 1)]]
    )
    check_means(numbers_of(draws, n, common), expected, comparisons=10 * len(expected))


def test_nine_rows_agree_with_all_21147_partitions() -> None:
    """One kernel at the largest size that is enumerated; part of the same family of tests."""
    x = np.random.default_rng(5).normal(size=(9, 2)) * [2.0, 1.0]
    model, prior = problem("gaussian")[0], np.array(PRIORS["gaussian"])
    exact = enumerate_posterior(
        9,
        partial(log_partition_prior, alpha=ALPHA),
        lambda rows: log_evidence("gaussian", x[rows], prior),
    )
    assert len(exact.labels) == 21147
    p = exact.cluster_count_probs
    common = np.flatnonzero(p > 0.01)
    draws, _ = sampled(CollapsedGibbs, model, x, seed=2)
    expected = np.concatenate(
        [[p @ np.arange(10)], p[common], exact.coclustering[np.triu_indices(9, 1)]]
    )
    check_means(numbers_of(draws, 9, common), expected, comparisons=10 * len(expected))


@pytest.mark.parametrize("sampler", [CollapsedGibbs, InstantiatedGibbs])
def test_unknown_alpha_agrees_with_enumeration_and_quadrature(sampler: type) -> None:
    """alpha is integrated out by quadrature for every K; same family of tests."""
    model, x = problem("bernoulli", alpha=None)
    n, exact = len(x), truth("bernoulli")
    K = exact.labels.max(1) + 1

    def prior_of(k: int) -> float:
        return np.log(
            quad(
                lambda a: a**k * np.exp(gammaln(a) - gammaln(a + n)) * gamma.pdf(a, 1.0), 0, np.inf
            )[0]
        )

    def fixed(k: int) -> float:
        return k * np.log(ALPHA) + gammaln(ALPHA) - gammaln(ALPHA + n)

    weight = exact.log_prob + np.array([prior_of(k) - fixed(k) for k in range(1, n + 1)])[K - 1]
    p = np.bincount(K, weights=np.exp(weight - np.logaddexp.reduce(weight)), minlength=n + 1)
    common = np.flatnonzero(p > 0.01)
    draws, _ = sampled(sampler, model, x, seed=3)
    found = numbers_of(draws, n, common)[..., : 1 + len(common)]
    check_means(found, np.concatenate([[p @ np.arange(n + 1)], p[common]]), comparisons=400)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_recorded_loss_is_the_log_joint(kernel: str) -> None:
    model, x = problem(kernel)
    prior, g = np.array(PRIORS[kernel]), torch.Generator().manual_seed(0)
    objective, rows = CollapsedGibbs(chains=1), as_rows(x)
    state, info = objective.update(
        model, rows, objective.init(model, rows, generator=g), generator=g
    )
    labels, exact = state.z[0].numpy(), truth(kernel)
    parts = [x[labels == k] for k in np.unique(labels)]
    urn = (
        len(parts) * np.log(ALPHA)
        + sum(gammaln(len(part)) for part in parts)
        + gammaln(ALPHA)
        - gammaln(ALPHA + len(x))
    )
    joint = urn + sum(log_evidence(kernel, part, prior) for part in parts)
    assert float(info["loss"]) == pytest.approx(-joint / len(x), abs=1e-10)
    assert exact.log_evidence > joint


def rows_given(
    kernel: str, labels: np.ndarray, width: int, prior: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Rows from the prior of a partition: a parameter for every cluster, then its rows."""
    x = np.empty((len(labels), width))
    for k in np.unique(labels):
        mine = labels == k
        size = (mine.sum(), width)
        if kernel == "gaussian":
            kappa = prior[0]
            nu = int(prior[1])
            m = prior[2 : 2 + width]
            S = prior[2 + width :].reshape(width, width)
            roots = rng.normal(size=(nu, width)) @ np.linalg.cholesky(np.linalg.inv(S)).T
            root = np.linalg.cholesky(np.linalg.inv(roots.T @ roots))
            x[mine] = m + (rng.normal(size=width) / np.sqrt(kappa) + rng.normal(size=size)) @ root.T
        elif kernel == "known_scale":
            noise, spread, m = prior.reshape(3, width)
            x[mine] = rng.normal(m, np.sqrt(spread)) + rng.normal(size=size) * np.sqrt(noise)
        elif kernel == "bernoulli":
            x[mine] = rng.random(size) < rng.beta(*prior.reshape(2, width))
        else:
            x[mine] = rng.multinomial(4, rng.dirichlet(prior[:width]), size[0])
    return x


@pytest.mark.parametrize("kernel", KERNELS)
def test_geweke_joint_distribution(kernel: str) -> None:
    """Rows given partition and partition given rows in turn leave the urn's law of partitions
    (Geweke 2004).

    z-scores of E[K] (known), and of pairs together, with standard errors from 40 batches; 1e-3 over
    4 kernels x 3 numbers.
    """
    from partita.models.directed.dirichlet_process.collapsed import accumulate, sweep
    from partita.models.directed.dirichlet_process.incremental import constants
    from partita.models.directed.dirichlet_process.split_merge import split_or_merge

    model, x = problem(kernel)
    code, prior, rng, n = model.law.code, np.array(PRIORS[kernel]), np.random.default_rng(7), 5
    table, z, kept = constants(code, prior, x.shape[1], n), np.zeros(n, np.int32), []
    for step in range(6000):
        x = np.ascontiguousarray(rows_given(kernel, z, x.shape[1], prior, rng))
        target = Target(code, prior, table, x)
        sweep(target, z, ALPHA, 2 * step)
        clusters = accumulate(x, z, int(z.max()) + 1, code == 0)
        # learning from 0 to 3 rows
        split_or_merge(target, z, clusters, ALPHA, 2, step % 4, 2 * step + 1)
        kept.append(z.copy())
    found = functionals(np.array(kept))[:, [0, 3]]
    found = np.column_stack([found, [labels[0] == labels[-1] for labels in kept]])
    p = np.exp(
        enumerate_posterior(n, partial(log_partition_prior, alpha=ALPHA), lambda rows: 0.0).log_prob
    )
    exact = p @ functionals(all_partitions(n))[:, [0, 3]]
    assert exact[0] == pytest.approx(expected_clusters(n, ALPHA))
    means = found.reshape(40, -1, 3).mean(1)
    score = (means.mean(0) - [*exact, 1 / (1 + ALPHA)]) / (means.std(0, ddof=1) / np.sqrt(40))
    assert (np.abs(score) < t.isf(FALSE_ALARM / 12 / 2, 39)).all(), score


def test_coclustering_of_draws_is_the_enumerated_one() -> None:
    exact = truth("bernoulli")
    draws = exact.labels[
        np.random.default_rng(0).choice(len(exact.labels), 20000, p=np.exp(exact.log_prob))
    ]
    error = np.abs(coclustering(draws) - exact.coclustering).max()
    assert error < norm.isf(1e-3 / 42 / 2) * 0.5 / np.sqrt(20000)
