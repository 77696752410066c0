"""Partitions: counting, distances, point estimates and balls against brute force."""

from functools import partial

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score, rand_score

from partita.diagnostics.partitions import (
    all_partitions,
    cluster_count_probs,
    cluster_counts,
    coclustering,
    credible_ball,
    distance,
    distances,
    enumerate_posterior,
    functionals,
    point_estimate,
    summarize_partitions,
)
from partita.errors import InputError
from partita.models.directed.dirichlet_process import log_partition_prior

BELL = [1, 2, 5, 15, 52, 203, 877, 4140, 21147]


@pytest.fixture
def draws() -> np.ndarray:
    """Noisy copies of one partition of 12 rows, labels shuffled."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [5, 4, 3])
    noisy = np.where(rng.random((60, 12)) < 0.12, rng.integers(0, 5, (60, 12)), truth)
    return np.stack([rng.permutation(8)[row] for row in noisy])


def test_bell_numbers() -> None:
    assert [len(all_partitions(n)) for n in range(1, 10)] == BELL
    assert len(np.unique(all_partitions(6), axis=0)) == 203
    with pytest.raises(InputError, match="n must be at most 9; got 10"):
        all_partitions(10)


def test_without_data_the_posterior_is_the_urn() -> None:
    exact = enumerate_posterior(4, partial(log_partition_prior, alpha=2.0), lambda rows: 0.0)
    assert exact.log_evidence == pytest.approx(0.0, abs=1e-12)
    assert exact.coclustering[0, 3] == pytest.approx(1 / 3)
    assert exact.cluster_count_probs @ np.arange(5) == pytest.approx(
        sum(2 / (2 + i) for i in range(4))
    )


@pytest.mark.parametrize("loss", ["vi", "binder"])
def test_distances_are_scikit_learns(draws: np.ndarray, loss: str) -> None:
    a, b = draws[:2]
    if loss == "vi":
        shares = [np.bincount(labels)[np.bincount(labels) > 0] / 12 for labels in (a, b)]
        expected = sum(-(p * np.log(p)).sum() for p in shares) - 2 * mutual_info_score(a, b)
    else:
        expected = (1 - rand_score(a, b)) * 12 * 11 / 12**2
    assert distance(a, b, loss) == pytest.approx(expected, abs=1e-12)  # type: ignore[arg-type]
    assert distances(draws[:3], draws[:3], loss).diagonal() == pytest.approx(0.0, abs=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["vi", "binder"])
def test_the_point_estimate_is_the_best_of_all_partitions(loss: str) -> None:
    """Against the least expected loss over all 877 partitions of seven rows, for ten posteriors."""
    rng, everything = np.random.default_rng(1), all_partitions(7)
    for _ in range(10):
        draws = everything[rng.choice(877, 40, p=rng.dirichlet(np.full(877, 0.02)))]
        least = distances(everything, draws, loss).mean(1).min()  # type: ignore[arg-type]
        found = distances(point_estimate(draws, loss)[None], draws, loss).mean()  # type: ignore[arg-type]
        # a greedy search; it misses the very best by at most 2 % here
        assert found <= least * 1.02 + 1e-12


def test_summaries_ignore_labels(draws: np.ndarray) -> None:
    relabeled = 100 - draws
    np.testing.assert_array_equal(cluster_counts(draws), cluster_counts(relabeled))
    np.testing.assert_allclose(functionals(draws), functionals(relabeled))
    np.testing.assert_array_equal(coclustering(draws), coclustering(relabeled))
    np.testing.assert_array_equal(point_estimate(draws), point_estimate(relabeled))
    assert cluster_count_probs(draws) @ np.arange(len(cluster_count_probs(draws))) == pytest.approx(
        cluster_counts(draws).mean()
    )
    together = coclustering(draws)
    assert together[0, 1] == pytest.approx(np.mean(draws[:, 0] == draws[:, 1]))
    assert np.bincount(point_estimate(draws)).tolist() == [5, 4, 3]


def test_the_ball_holds_its_level(draws: np.ndarray) -> None:
    center = point_estimate(draws)
    ball = credible_ball(draws, center, 0.9)
    away = distances(center[None], draws)[0]
    assert (away <= ball.radius).mean() >= 0.9 > (away < ball.radius).mean()
    inside = cluster_counts(draws[away <= ball.radius])
    assert cluster_counts(ball.upper) == inside.min()
    assert distance(center, ball.horizontal) == pytest.approx(ball.radius)
    assert credible_ball(np.stack([center] * 5), center).radius == 0.0


def test_mixing_is_seen_through_labels() -> None:
    rng = np.random.default_rng(2)
    mixed = rng.integers(0, 3, (50, 4, 30))
    stuck = mixed.copy()
    stuck[:, 0] = 0
    assert summarize_partitions(mixed).rhat < 1.05
    assert summarize_partitions(stuck).rhat > 1.5
