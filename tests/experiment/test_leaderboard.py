"""Paired differences cover the truth at their level, are shorter than unpaired ones, and count the
computing error of both.
"""

import math
from dataclasses import replace

import pytest
import torch

from partita.core.quantity import Quantity
from partita.experiment.compare import Result
from partita.experiment.leaderboard import paired_difference, ranking


def scored(rows: torch.Tensor, error: float = 0.0, level: float = 0.95) -> Quantity:
    """A mean over rows, off by up to ``error`` in its computation."""
    value, se = float(rows.mean()), float(rows.std()) / math.sqrt(len(rows))
    kind = (
        {}
        if error == 0
        else {"low": value - error, "high": value + error, "level": level, "kind": "estimate"}
    )
    return Quantity(value, n=len(rows), se_data=se, details={"rows": rows}, **kind)


def test_intervals_cover_the_true_difference_at_their_level() -> None:
    """400 tables of 15 rows drawn from 40 states whose scores by two models are known.

    The number that cover is binomial with rate about 0.95: fewer than 364 has probability below
    1e-3, and all 400 below 1e-8.
    """
    g = torch.Generator().manual_seed(1)
    a = torch.randn(40, generator=g, dtype=torch.float64)
    b = torch.randn(40, generator=g, dtype=torch.float64)
    states = torch.stack([a - 3, a - 3.2 + 0.3 * b], 1)  # hard states are hard for both
    truth = float((states[:, 0] - states[:, 1]).mean())
    hits = 0
    for _ in range(400):
        rows = states[torch.randint(40, (15,), generator=g)]
        d = paired_difference(scored(rows[:, 0]), scored(rows[:, 1]))
        assert d.level == 0.95
        hits += d.low <= truth <= d.high
    assert 364 <= hits < 400


def test_intervals_to_the_best_of_many_cover_at_their_level() -> None:
    """Sixteen equally good models on 300 tables of 50 rows: whoever happens to be best there, zero
    is covered for the first model.

    Misses are rarer than one in twenty: more than 28 have probability below 1e-3. The interval of
    two models that were not chosen would miss about 48 times.
    """
    g = torch.Generator().manual_seed(0)
    missed = naive = 0
    for _ in range(300):
        rows = 3 * torch.randn(50, 1, generator=g, dtype=torch.float64) + torch.randn(
            50, 16, generator=g, dtype=torch.float64
        )
        places = ranking([Result(str(k), scored(rows[:, k]), 0.0) for k in range(16)])
        first = next(place for place in places if place.result.name == "0")
        best = places[0].result.score
        assert first.result.score is not None and best is not None
        assert first.difference is None or first.difference.level == 0.95
        missed += first.tied is False
        naive += paired_difference(first.result.score, best).high < 0
    assert missed <= 28 < naive


def test_pairing_shortens_the_interval_and_the_computing_errors_are_added() -> None:
    g = torch.Generator().manual_seed(0)
    hard = torch.randn(50, generator=g, dtype=torch.float64)
    a, b = scored(hard), scored(hard + 0.1 * torch.randn(50, generator=g, dtype=torch.float64))
    plain = paired_difference(a, b)
    assert plain.width < 0.3 * 2 * 1.96 * math.hypot(a.se_data, b.se_data)
    off = paired_difference(
        scored(hard, 0.5),
        replace(b, low=b.value - 0.25, high=b.value + 1.0, level=0.9, kind="estimate"),
    )
    assert (off.low, off.high) == pytest.approx((plain.low - 1.5, plain.high + 0.75))
    assert off.level == pytest.approx(0.95 + 0.95 + 0.9 - 2)
    assert paired_difference(b, b).value == 0 and paired_difference(b, b).width == 0


def test_a_single_row_tells_nothing() -> None:
    one = Quantity(-1.0, n=1, details={"rows": torch.tensor([-1.0])})
    assert paired_difference(one, replace(one, value=-9.0, low=-9.0, high=-9.0)).width == math.inf


def test_ranking_puts_trust_first_and_calls_ties() -> None:
    g = torch.Generator().manual_seed(0)
    hard = torch.randn(200, generator=g, dtype=torch.float64)
    good = scored(hard)
    close = scored(hard - 0.001 + 0.1 * torch.randn(200, generator=g, dtype=torch.float64))
    flattering = replace(scored(hard + 9, 1.0), verdict="do not publish")
    draws = Quantity(0.01, 0.0, 0.02, 0.95, "none", "MMD^2")
    scores = {
        "failed": None,
        "gan": draws,
        "far": scored(hard - 2),
        "close": close,
        "flattering": flattering,
        "good": good,
    }
    places = ranking(
        [Result(name, q, 1.0, problem="" if q else "why") for name, q in scores.items()]
    )
    names = [place.result.name for place in places]
    assert set(names[:2]) == {"good", "close"} and names[2:] == [
        "far",
        "flattering",
        "gan",
        "failed",
    ]
    assert [place.tied for place in places] == [None, True, False, None, None, None]
    assert (
        places[0].difference is None
        and places[4].difference is None
        and places[3].difference is not None
    )
    assert [place.group for place in ranking([Result("failed", None, 1.0, problem="why")])] == [3]
