"""The bridge: its standard error against the spread of independent runs, its round trips, and the
verdicts that rest on them.
"""

import math
from dataclasses import replace

import pytest
import torch

from partita.diagnostics.round_trips import RoundTrips
from partita.errors import PartitaError
from partita.evaluators import Bridge, Enumeration
from partita.evaluators.partition.bridge import ladder_quantity, ladder_ratio
from partita.evaluators.partition.ladders import Seen
from partita.evaluators.partition.modes import sought
from partita.models import RBM
from partita.samplers import Gibbs

RUNS = 150


def rbm(scale: float, generator: torch.Generator, visible: int = 6) -> RBM:
    model = RBM(visible, 3, scale=scale, generator=generator).double()
    with torch.no_grad():
        model.b.normal_(generator=generator)
    return model


@pytest.mark.parametrize(("temperatures", "scale"), [(3, 1.0), (6, 2.0)])
def test_the_standard_error_is_the_spread_of_independent_runs(
    temperatures: int, scale: float, generator: torch.Generator
) -> None:
    """150 runs of 8 ladders each, side by side: the spread has a relative error of 6 %, the mean
    claim of 2 %; bounds at four of them.

    The mean over runs is unbiased to four of its own errors and the bias of a logarithm, which is
    half the variance at most.
    """
    model = rbm(scale, generator)
    bridge = Bridge(temperatures=temperatures, chains=8, draws=30, burn_in=30)
    kernel = Gibbs()
    seen = replace(bridge, chains=8 * RUNS).look(
        model, kernel, sought(model, kernel, generator), generator=generator
    )
    found = [
        ladder_ratio(u, d) for u, d in zip(seen.up.split(8, 1), seen.down.split(8, 1), strict=True)
    ]
    values, claimed = (
        torch.tensor([getattr(run, name) for run in found]) for name in ("value", "se")
    )
    true = float(values.std())
    assert 0.78 < math.sqrt(float(claimed.square().mean())) / true < 1.28
    truth = Enumeration()(model).value - float(model.reference().log_z)
    assert abs(float(values.mean()) - truth) < 4 * true / math.sqrt(RUNS) + true**2 / 2


def test_round_trips_count_what_goes_from_the_coldest_rung_to_the_hottest_and_back() -> None:
    """Three rungs, one replica at a time pushed along; a way there alone, or one that begins at the
    hottest rung, is no round trip.
    """
    # exchanges of the lower and of the upper pair
    low, high = torch.tensor([[1], [0], [2]]), torch.tensor([[0], [2], [1]])
    trips = RoundTrips.begin(3, 1)
    path = [high, low, low, high]  # replica 2 goes down to the hottest rung and back up
    made = []
    for exchange in path:
        trips = trips.after(exchange)
        made.append(trips.made[:, 0].tolist())
    assert made == [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert trips.replica[:, 0].tolist() == [0, 1, 2]
    for exchange in (low, high):  # replica 0 leaves the hottest rung for the coldest: half a trip
        trips = trips.after(exchange)
    assert trips.replica[2, 0] == 0 and trips.made[:, 0].tolist() == [0, 0, 1]
    for exchange in (high, low, low, high):
        trips = trips.after(exchange)
    assert trips.made[:, 0].tolist() == [1, 0, 1]


def test_replicas_are_followed_through_the_exchanges_of_a_ladder(
    generator: torch.Generator,
) -> None:
    """In a flat model every exchange is accepted, and every replica goes round in 2 T steps; in a
    cold one none is accepted.
    """
    flat = RBM(3, 1, scale=0.0, generator=generator)
    cold = RBM(40, 1, scale=0.0, generator=generator)
    with torch.no_grad():
        flat.W.zero_()
        cold.W.zero_()
        cold.b.fill_(60.0)  # half of the sites are wrong at the hottest rung, none at the next
    bridge = Bridge(temperatures=4, chains=3, draws=40, burn_in=0)
    q = bridge(flat, generator=generator)
    assert q.details["round_trips"] == pytest.approx(3 * 4 * 40 / 8, abs=3 * 4)
    assert q.trusted and q.value == pytest.approx(float(flat.reference().log_z))
    q = bridge(cold, generator=generator)
    assert q.details["round_trips"] == 0 and q.verdict == "do not publish"


def calm(g: torch.Generator) -> Seen:
    """Ladders that have settled, of both kinds, in all of which states travel."""
    up = torch.randn(3, 16, 200, generator=g).double() * 0.1
    second = (torch.arange(16) % 2 == 1)[None]
    return Seen(
        up,
        -up,
        torch.randn(4, 16, 200, generator=g).double(),
        torch.ones(4, 16, dtype=torch.long),
        second,
        torch.zeros(1, 16, 2),
    )


def said(seen: Seen) -> str:
    return ladder_quantity(seen, 0.0, 0.95).verdict


def test_without_round_trips_only_ladders_from_both_ends_that_agree_are_trusted(
    generator: torch.Generator,
) -> None:
    seen = calm(generator)
    still, one_kind = torch.zeros_like(seen.trips), torch.zeros_like(seen.from_modes)
    few = still.clone()
    few[0, :5] = 9  # five of sixteen ladders have many
    assert said(seen) == "tight" and said(seen._replace(from_modes=one_kind)) == "tight"
    assert said(seen._replace(trips=still)) == said(seen._replace(trips=few)) == "loose"
    assert (
        said(seen._replace(trips=still, from_modes=one_kind))
        == said(seen._replace(trips=few, from_modes=one_kind))
        == "do not publish"
    )


def test_ladders_from_both_ends_that_disagree_are_not_trusted_and_the_interval_reaches_over_both(
    generator: torch.Generator,
) -> None:
    seen = calm(generator)
    shift = 0.1 * seen.from_modes[0][:, None].double()
    q = ladder_quantity(seen._replace(up=seen.up + shift, down=seen.down - shift), 0.0, 0.95)
    assert q.details["ends"] > 3 and q.verdict == "do not publish"
    assert q.low <= 0.01 and q.high >= 0.29  # three steps of 0.1


def templates(columns: int, generator: torch.Generator) -> RBM:
    """Half of the mass is noise, half eight noisy templates that no chain finds from the noise;
    some rows of each are remembered.
    """
    model = RBM(columns, 8, generator=generator).double()
    shape = (torch.rand(8, columns, generator=generator) < 0.5).double()
    with torch.no_grad():
        model.W.copy_(4 * (2 * shape.T - 1))
        model.b.zero_()
        model.c.copy_(
            columns * math.log(2) - torch.nn.functional.softplus(model.W).sum(0) - math.log(8)
        )
    which = torch.randint(8, (128,), generator=generator)
    p = torch.where(
        (torch.arange(128) % 2 == 0)[:, None], 0.5, torch.sigmoid(model.W.detach().T[which])
    )
    model.anchors.copy_((torch.rand(p.shape, generator=generator) < p).double())
    model.anchored.fill_(True)
    return model


@pytest.mark.parametrize("columns", [20, 50])
def test_ladders_that_stay_in_the_mode_they_began_in_are_not_trusted(columns: int) -> None:
    """Twenty columns are crossed all the time; fifty never, though the replicas within the noise
    make round trips by the thousand.
    """
    model = templates(columns, torch.Generator().manual_seed(0))
    q = Bridge(temperatures=12, chains=16, draws=200, burn_in=100)(
        model, generator=torch.Generator().manual_seed(1)
    )
    assert q.details["round_trips"] > 100
    assert q.trusted == (columns == 20)
    if q.trusted:
        # twice its half-width: a false alarm in 1e4
        assert abs(q.value - Enumeration()(model).value) < q.width


def test_two_ladders_are_few_but_no_error(generator: torch.Generator) -> None:
    """One of each kind: neither has a spread of its own, and nothing is trusted on their word."""
    q = Bridge(temperatures=3, chains=2, draws=4, burn_in=0)(
        rbm(0.5, generator), generator=generator
    )
    assert math.isnan(q.details["ends"]) and q.verdict == "do not publish"
    with pytest.raises(
        PartitaError, match="Bridge: chains must be a whole number of at least 2; got 1"
    ):
        Bridge(chains=1)
