"""Clusters kept row by row in numba against the kernels' closed forms, and the vectorized
exponential against NumPy's.
"""

import numpy as np
import pytest
import torch

from partita.models.directed.dirichlet_process import (
    blocks,
    collapsed,
    incremental,
    instantiated,
    split_merge,
    starts,
)
from partita.models.directed.dirichlet_process.kernels import (
    KERNELS,
    TOTALS,
    Clusters,
    Kernel,
    Target,
)
from partita.models.directed.dirichlet_process.priors import gaussian_prior

D, N = 3, 12
RNG = np.random.default_rng(0)
PRIORS = {
    "gaussian": [0.5, 5.0, 0.1, 0.2, -0.3, 2.0, 0.3, 0.1, 0.3, 1.5, 0.2, 0.1, 0.2, 1.0],
    "known_scale": [0.5, 1.0, 2.0, 3.0, 2.0, 1.0, 0.1, 0.2, -0.3],
    "bernoulli": [0.5, 1.0, 2.0, 1.5, 0.7, 1.1],
    "multinomial": [0.5, 1.0, 2.0, *[5.0] * TOTALS],
}
ROWS = {
    "gaussian": RNG.normal(size=(N, D)),
    "known_scale": RNG.normal(size=(N, D)),
    "bernoulli": RNG.integers(0, 2, (N, D)).astype(float),
    "multinomial": RNG.integers(0, 30, (N, D)).astype(float),  # on both sides of FEW
}


def given(name: str) -> tuple[Kernel, Target, np.ndarray]:
    """Kernel, what it is about, and the row of an empty cluster."""
    law, prior = KERNELS[name], np.array(PRIORS[name])
    table = incremental.constants(law.code, prior, D, N)
    target = Target(law.code, prior, table, ROWS[name])
    return law(torch.from_numpy(prior), D), target, collapsed.settle_nothing(target)


def gathered(kernel: Kernel, x: np.ndarray) -> Clusters:
    count, mean, scatter = collapsed.accumulate(x, np.zeros(len(x), np.int32), 1, kernel.scatters)
    return Clusters(
        torch.from_numpy(count).double(), torch.from_numpy(mean), torch.from_numpy(scatter)
    )


@pytest.mark.parametrize("name", KERNELS)
def test_rows_added_one_by_one_give_predictives_and_evidence(name: str) -> None:
    kernel, target, empty = given(name)
    x, stats, work, total = target.x, empty[None].copy(), np.empty(D), 0.0
    base = kernel.log_base(torch.from_numpy(x)).numpy()
    for i in range(N):
        found = incremental.log_predictive(target, i, i, stats, 0, work) - (np.log(i) if i else 0.0)
        exact = kernel.log_predictive(
            torch.from_numpy(x[i : i + 1]), gathered(kernel, x[:i])
        ).item()
        assert found + base[i] == pytest.approx(exact, abs=1e-10)
        assert incremental.move_row(target, i, i, 1, stats, 0, work)
        total += found
    assert incremental.log_marginal(target, N, stats[0], empty) == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_rows_taken_out_leave_what_was_there(name: str) -> None:
    kernel, target, empty = given(name)
    stats, work = np.repeat(empty[None], 2, axis=0), np.empty(D)
    for i in range(N):
        incremental.move_row(target, i, i, 1, stats, 0, work)
    for i in range(N - 1, 4, -1):
        assert incremental.move_row(target, i, i + 1, -1, stats, 0, work)
    count, mean, scatter = collapsed.accumulate(
        target.x[:5], np.zeros(5, np.int32), 1, kernel.scatters
    )
    incremental.settle_cluster(target, float(count[0]), mean[0], scatter[0], stats[1])
    found = [
        [incremental.log_predictive(target, i, 5, stats, k, work) for i in range(N)]
        for k in range(2)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11)


def test_a_downdate_that_loses_its_digits_says_so() -> None:
    _, target, empty = given("gaussian")
    target = target._replace(x=np.array([[0.0] * D, [1e9] * D]))
    stats, work = empty[None].copy(), np.empty(D)
    for i in range(2):
        assert incremental.move_row(target, i, i, 1, stats, 0, work)
    assert not incremental.move_row(target, 1, 2, -1, stats, 0, work)


def test_exponentials_are_numpys() -> None:
    v = np.concatenate([-np.logspace(-12, 2.8, 500), [0.0]])
    score = v.copy()
    blocks.exponentials(score, np.zeros_like(v), np.empty(len(v), np.int64))
    np.testing.assert_allclose(score, np.exp(v), rtol=1e-13)


@pytest.mark.parametrize("n", [200, 12_000])
def test_pieces_are_joined_to_clouds(n: int) -> None:
    """Four far clouds come back whole, whether all rows were joined or most of them follow."""
    truth = np.arange(n) % 4
    x = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0], [30.0, 30.0]])[truth] + RNG.normal(
        size=(n, 2)
    )
    kernel = KERNELS["gaussian"](gaussian_prior(torch.from_numpy(x), alpha=1.0), 2)
    z = starts.first_partition(kernel, x, 1.0, seed=0)
    assert len(np.unique(np.column_stack([truth, z]), axis=0)) == 4 == z.max() + 1


def test_pieces_of_rows_that_repeat() -> None:
    kernel = given("bernoulli")[0]
    z = starts.first_partition(kernel, np.repeat([[0.0] * D, [1.0] * D], 30, axis=0), 1.0, seed=0)
    assert len(np.unique(z[:30])) == len(np.unique(z[30:])) == 1 and z.max() == 1
    assert (starts.first_partition(kernel, np.zeros((5, D)), 1.0, seed=0) == 0).all()


def test_pooled_clusters_are_those_of_all_rows() -> None:
    x, z = RNG.normal(size=(50, D)) + 5, RNG.integers(0, 2, 50).astype(np.int32)
    found = split_merge.merged(collapsed.accumulate(x, z, 2, True))
    for one, other in zip(found, collapsed.accumulate(x, 0 * z, 1, True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_pass_gathers_its_clusters_and_holds_the_first_rows() -> None:
    """Whatever the parameters, no cluster empties, first rows stay, and sums are those of the
    labels.
    """
    n, K = 1000, 7
    x, z = RNG.normal(size=(n, D)), RNG.integers(0, K, n).astype(np.int32)
    center, matrix = RNG.normal(size=(K, D)), np.triu(RNG.normal(size=(K, D, D)))
    constant = np.array([0.0, *[-1e6] * (K - 1)])  # all but the first are hopeless
    for offset in (0, 123, n - 1):
        labels = z.copy()
        first = instantiated.first_rows(labels, K, offset)
        rows = (first + offset) % n
        assert (labels[rows] == np.arange(K)).all()
        sums = instantiated.reassign(x, labels, 0, n, offset, first, constant, center, matrix, 5)
        assert (labels[rows] == np.arange(K)).all()
        before_zero = (np.arange(n) - offset) % n < first[0]
        assert (labels[~before_zero & ~np.isin(np.arange(n), rows)] == 0).all()
        for one, other in zip(
            instantiated.moments_about(*sums, center),
            collapsed.accumulate(x, labels, K, True),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, atol=1e-9)
