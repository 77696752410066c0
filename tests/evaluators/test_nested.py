"""Nested sampling against closed forms: volumes of batches, ties, first-order transitions, and rows
that a run passed by.

Intervals are tested at four standard errors (false-alarm rate about 1e-3 with Student's tails);
seeds are fixed.
"""

import math

import pytest
import torch
from tests.truth.hard_models import Density, spike_and_slab, wells

from partita.core.support import Real
from partita.errors import PartitaError
from partita.evaluators import Enumeration, NestedSampling
from partita.evaluators.partition.nested.volumes import (
    Points,
    passed,
    rank_p_value,
    sequential_ranks,
)
from partita.models import RBM, NeuralEnergy

FEW = NestedSampling(live=64)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_counts_of_batches_and_of_points_left_at_the_end() -> None:
    """Three points, the two lowest passed at once, two born above the second."""
    log_l = torch.tensor([0.0, 1.0, 2.0, 1.5, 3.0], dtype=torch.float64)
    birth = torch.tensor([-1, -1, -1, 1, 1])
    points = Points(log_l[:, None], log_l, torch.zeros(5).double(), birth, torch.zeros(5).long())
    run = passed(points)
    assert run.points.log_l.tolist() == [0.0, 1.0, 1.5, 2.0, 3.0]
    assert run.counts().tolist() == [3, 2, 3, 2, 1]
    # with a constant likelihood the shells make up all of the reference
    flat = run._replace(points=run.points._replace(log_l=torch.zeros(5).double()))
    assert float(torch.logsumexp(flat.log_weights(flat.counts()), 0)) == pytest.approx(0.0)


def test_ranks_of_draws_are_uniform_and_those_of_shifted_ones_are_not() -> None:
    g, right, wrong = seeded(0), [], []
    for _ in range(100):
        old, new = (torch.rand(n, 2, generator=g).double().unbind(1) for n in (40, 20))
        right.append(sequential_ranks(old, new))
        wrong.append(sequential_ranks(old, (new[0].sqrt(), new[1])))
    assert rank_p_value(torch.cat(right)) > 1e-3  # its false-alarm rate
    assert rank_p_value(torch.cat(wrong)) < 1e-6


def test_ties_of_a_discrete_support_are_exact() -> None:
    """An RBM with hidden units, whose reference holds their states too."""
    model = RBM(8, 4, scale=1.0, generator=seeded(2))
    truth, q = Enumeration()(model).value, FEW(model, generator=seeded(5))
    assert abs(q.value - truth) < 4 * q.details["se"]
    assert q.verdict == "loose"  # no rows are known
    assert q.details["draws"].shape[1] == 8


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_normal_distribution_in_three_dimensions(dynamic: bool) -> None:
    model = NeuralEnergy(Density(lambda x: 12.5 * x.square().sum(-1)), Real(3))
    truth = 1.5 * math.log(2 * math.pi / 25)
    q = NestedSampling(live=64, dynamic=dynamic)(model, generator=seeded(3))
    assert abs(q.value - truth) < 4 * q.details["se"] < 2.0
    assert q.trusted and q.details["ranks"] > 1e-3


def test_a_spike_within_a_slab_is_found() -> None:
    model, truth = spike_and_slab(3, "fair")
    q = FEW(model, generator=seeded(1))
    assert q.trusted and abs(q.value - truth) < 4 * q.details["se"]


def test_rows_show_a_mode_that_no_live_point_reached() -> None:
    """A narrow well far from the rest, with half of the mass, in few live points."""
    model, truth = wells(0, "fair", 4, (0.05, 1.0), 4.0)
    q = NestedSampling(live=32)(model, generator=seeded(0))
    assert q.high >= truth
    assert not q.trusted or q.low <= truth


def test_wrong_settings_are_named() -> None:
    with pytest.raises(PartitaError, match=r"NestedSampling: live must be a whole number"):
        NestedSampling(live=3)
    with pytest.raises(PartitaError, match=r"NestedSampling: goal must be one of"):
        NestedSampling(goal="both")  # type: ignore[arg-type]
