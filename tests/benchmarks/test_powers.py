"""Exponents of growth: exact on exact power laws, with intervals that cover, and words that follow
from the numbers.
"""

import math

import numpy as np
import pytest

from powers import Power, departure, fit_power, tail

SIZES = [16 * 2**i for i in range(7)]
LOWER = "Lower orders beside theory's growth fit all sizes within 1%; they are"


@pytest.mark.parametrize("exponent", [-1.0, 0.5, 1.0, 2.0, 3.0])
def test_an_exact_power_law_is_found_exactly(exponent: float) -> None:
    found = fit_power(SIZES, [3e-6 * n**exponent for n in SIZES])
    assert found.exponent == pytest.approx(exponent, abs=1e-12)
    assert found.scale == pytest.approx(3e-6, rel=1e-10)
    assert found.low <= found.exponent <= found.high
    assert found.high - found.low < 1e-6


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Normal noise of logarithms: coverage is exactly 0.9; 500 fits are within four deviations of
    it but once in 16,000 seeds.
    """
    rng, covered = np.random.default_rng(0), 0
    for _ in range(500):
        found = fit_power(
            SIZES, np.array(SIZES) ** 1.5 * np.exp(0.1 * rng.standard_normal(len(SIZES))), level=0.9
        )
        covered += found.low <= 1.5 <= found.high
    assert abs(covered - 450) <= 4 * math.sqrt(500 * 0.9 * 0.1)


def test_two_points_have_a_slope_and_no_interval() -> None:
    assert fit_power([1, 2], [1.0, 0.5]) == pytest.approx(Power(-1.0, -math.inf, math.inf, 1.0))


def test_repeated_looks_at_two_sizes_have_an_interval() -> None:
    found = fit_power([1, 2] * 3, [1.0, 0.6, 1.02, 0.61, 0.99, 0.59])
    assert -1 < found.low < found.exponent < found.high < -0.5


def test_the_tail_is_the_last_doublings() -> None:
    assert [SIZES[i] for i in tail(SIZES)] == [128, 256, 512, 1024]
    assert tail([1, 2, 1, 2]) == [0, 1, 2, 3]


def of_tail(costs: list[float]) -> Power:
    places = tail(SIZES)
    return fit_power([SIZES[i] for i in places], [costs[i] for i in places])


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (lambda n: 2e-6 * n, ""),
        (lambda n: 2e-6 * n * (1 + 0.02 * math.sin(n)), ""),
        (lambda n: 1e-3 + 1e-6 * n, f"{LOWER} 89% of the cost at 128 and 49% at 1,024."),
        (lambda n: 1e-6 * n**1.5, "The cost of a unit of theory rises by 183% from 128 to 1,024."),
        (lambda n: 1e-6 * n**0.5, "The cost of a unit of theory falls by 65% from 128 to 1,024."),
    ],
)
def test_words_say_what_the_measurements_show(cost, said: str) -> None:  # type: ignore[no-untyped-def]
    costs = [cost(n) for n in SIZES]
    assert departure(SIZES, costs, lambda n: n, of_tail(costs)) == said


def test_a_linear_part_below_a_square_is_named() -> None:
    costs = [1e-6 * n * (300 + n) for n in SIZES]
    said = departure(SIZES, costs, lambda n: n**2, of_tail(costs))
    assert said == f"{LOWER} 70% of the cost at 128 and 23% at 1,024."


def test_theory_with_a_logarithm_is_met_by_itself() -> None:
    costs = [1e-7 * n * math.log(2 * n) for n in SIZES]
    assert 1.1 < of_tail(costs).exponent < 1.2
    assert departure(SIZES, costs, lambda n: n * math.log(2 * n), of_tail(costs)) == ""
