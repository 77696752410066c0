"""Trusted intervals of means cover the truth of many laws of terms, with light and heavy tails, and
are not wide for nothing.

Per law and size, trusted intervals are counted, if there are 20 or more; a count below the 1e-5
point of the binomial law at 0.93 fails, so a false alarm has probability 1e-3 in all. All of them
together must cover 0.93 too. ``make coverage`` takes 400 seeds of each.
"""

import math
import os
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal, StudentT

from partita.bayes.montecarlo import control_variates, expectation, importance
from partita.core.quantity import Quantity
from partita.diagnostics.means import TIGHT_CARRIERS, WIDEST, judge

ROUNDS = int(os.environ.get("PARTITA_COVERAGE_ROUNDS", "0"))
SEEDS = 200 * ROUNDS or 40
SIZES = (100, 400, 1000, 4000) if ROUNDS else (400, 1000)
LEVEL, PROMISED, FALSE_ALARM = 0.95, 0.93, 1e-5
Draw = Callable[[np.random.Generator, int], np.ndarray]


def pareto(k: float) -> tuple[Draw, float]:
    return lambda g, n: g.random(n) ** -k, 1 / (1 - k)


def student(df: float) -> tuple[Draw, float]:
    return lambda g, n: g.standard_t(df, n), 0.0


def lognormal(sigma: float) -> tuple[Draw, float]:
    return lambda g, n: np.exp(sigma * g.standard_normal(n)), math.exp(sigma**2 / 2)


LIGHT: dict[str, tuple[Draw, float, float]] = {  # with their standard deviation
    "normal": (lambda g, n: g.standard_normal(n), 0.0, 1.0),
    "uniform": (lambda g, n: g.random(n), 0.5, math.sqrt(1 / 12)),
    "exponential": (lambda g, n: g.exponential(size=n), 1.0, 1.0),
    "arcsine": (lambda g, n: g.beta(0.5, 0.5, n), 0.5, math.sqrt(1 / 8)),
    "Poisson": (lambda g, n: g.poisson(3.0, n).astype(float), 3.0, math.sqrt(3)),
    "die": (lambda g, n: g.integers(1, 7, n).astype(float), 3.5, math.sqrt(35 / 12)),
    "coin": (lambda g, n: (g.random(n) < 0.3).astype(float), 0.3, math.sqrt(0.21)),
}
HEAVY: dict[str, tuple[Draw, float]] = {
    **{f"Student, df {df}": student(df) for df in (1.5, 2.2, 2.5, 3.0, 5.0)},
    **{f"Pareto, k {k}": pareto(k) for k in (0.3, 0.4, 0.5, 0.6, 0.7, 0.9)},
    **{f"lognormal, sigma {sigma}": lognormal(sigma) for sigma in (0.5, 1.0, 1.5, 2.0, 3.0)},
    "minus lognormal": (lambda g, n: -np.exp(1.5 * g.standard_normal(n)), -math.exp(1.125)),
    "Weibull": (lambda g, n: g.weibull(0.5, n), 2.0),
    "weights of a narrow proposal": (
        lambda g, n: np.exp(0.2 * g.standard_normal(n) ** 2),
        1 / math.sqrt(0.6),
    ),
    "excess over 2": (
        lambda g, n: np.maximum(g.standard_normal(n) - 2, 0.0),
        float(stats.norm.pdf(2) - 2 * stats.norm.sf(2)),
    ),
    "rare event": (lambda g, n: (g.random(n) < 0.003).astype(float), 0.003),
}
LAWS: dict[str, tuple[Draw, float]] = {**{name: law[:2] for name, law in LIGHT.items()}, **HEAVY}


@pytest.mark.slow
def test_trusted_intervals_cover() -> None:
    covered = trusted = 0
    for at, (name, (draw, truth)) in enumerate(LAWS.items()):
        for n in SIZES:
            said = [
                judge(draw(np.random.default_rng([seed, n, at]), n), LEVEL) for seed in range(SEEDS)
            ]
            hits = [q.low <= truth <= q.high for q in said if q.verdict != "do not publish"]
            covered, trusted = covered + sum(hits), trusted + len(hits)
            if len(hits) >= 20:
                assert sum(hits) >= stats.binom(len(hits), PROMISED).ppf(FALSE_ALARM), (
                    name,
                    n,
                    sum(hits),
                    len(hits),
                )
    assert covered >= PROMISED * trusted > 0.3 * PROMISED * len(LAWS) * len(SIZES) * SEEDS


@pytest.mark.parametrize("name", LIGHT)
def test_light_tails_are_tight_and_narrow(name: str) -> None:
    """Of 1,000 draws, nine in ten; the median width is within 1.2 of the ideal one, and above 0.95
    of it.
    """
    draw, _, deviation = LIGHT[name]
    said = [judge(draw(np.random.default_rng([seed, 1]), 1000), LEVEL) for seed in range(40)]
    assert [q.verdict for q in said].count("tight") >= 36
    assert (
        0.95
        < np.median([q.high - q.low for q in said]) / (2 * 1.96 * deviation / math.sqrt(1000))
        < 1.2
    )


def test_no_trusted_interval_is_wide_for_nothing() -> None:
    for name in ("Student, df 3.0", "lognormal, sigma 1.0", "Pareto, k 0.4"):
        for seed in range(20):
            t = HEAVY[name][0](np.random.default_rng([seed, 2]), 1000)
            q = judge(t, LEVEL)
            student_width = 2 * 1.97 * t.std() / math.sqrt(len(t))
            assert (
                q.verdict == "do not publish"
                or student_width * 0.99 < q.high - q.low < WIDEST * student_width
            )


@pytest.mark.parametrize("k", [0.8, 0.9, 1.2, 2.0])
def test_a_mean_that_hardly_exists_is_not_published(k: float) -> None:
    """At most 10 % of 40 samples of 1,000 look light: with a share of 3 % more than that has
    probability 4e-3 for each, at fixed seeds.
    """
    said = [
        judge(pareto(k)[0](np.random.default_rng([seed, 3]), 1000), LEVEL).verdict
        for seed in range(40)
    ]
    assert said.count("do not publish") >= 36 and "tight" not in said


def real(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


STANDARD = Normal(real(0.0), real(1.0))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shares(truth: float, estimates: list[Quantity]) -> tuple[float, float]:
    """Covered, and trusted."""
    return sum(q.low <= truth <= q.high for q in estimates) / len(estimates), sum(
        q.trusted for q in estimates
    ) / len(estimates)


def test_a_rare_event_by_plain_draws_and_by_a_good_proposal() -> None:
    """P(x > 4) = 3.2e-5 from 2,000 draws: Clopper and Pearson's interval covers 0.95 at least;
    fails by chance in 1e-4.
    """
    truth, far = float(stats.norm.sf(4)), Normal(real(4.2), real(1.0))
    plain = [
        expectation(lambda x: x > 4, STANDARD, 2000, generator=seeded(seed)) for seed in range(100)
    ]
    covered, _ = shares(truth, plain)
    assert covered >= stats.binom(100, LEVEL).ppf(1e-4) / 100
    assert all(q.verdict == "loose" and q.low >= 0 and q.high >= 1.8e-3 for q in plain)
    aimed = [
        importance(lambda x: x > 4, STANDARD.log_prob, far, 2000, generator=seeded(seed))
        for seed in range(40)
    ]
    covered, _ = shares(truth, aimed)
    assert covered >= stats.binom(40, LEVEL).ppf(1e-4) / 40
    assert (
        sum(q.verdict == "tight" for q in aimed) >= 38
        and max(q.width for q in aimed) < 0.25 * truth
    )


def test_ratios_cover_where_they_are_trusted() -> None:
    """Self-normalized weights, light and heavy; 40 seeds each, a false alarm with 1e-4."""
    for scale, df in ((1.5, 30.0), (1.0, 3.0), (0.8, 30.0)):
        p, q = Normal(real(0.3), real(1.0)), StudentT(real(df), real(0.0), real(scale))
        said = [
            importance(
                torch.square, p.log_prob, q, 1000, self_normalized=True, generator=seeded(seed)
            )
            for seed in range(40)
        ]
        hits = [a.low <= 1.09 <= a.high for a in said if a.trusted]
        assert sum(hits) >= stats.binom(len(hits), PROMISED).ppf(1e-4), (scale, df)
    assert sum(a.trusted for a in said) > 0


def test_control_variates_that_remove_nearly_all() -> None:
    """f = 3 + 2 x + sin(5 x) / 1000: tight and 2,000 times narrower than without; covered as
    promised, from few draws too (1e-4).
    """
    for n in (60, 1000):
        said = [
            control_variates(
                lambda x: 3 + 2 * x + 1e-3 * torch.sin(5 * x),
                lambda x: x,
                0.0,
                STANDARD,
                n,
                generator=seeded(seed),
            )
            for seed in range(60)
        ]
        covered, _ = shares(3.0, said)
        assert covered >= stats.binom(60, LEVEL).ppf(1e-4) / 60
        assert np.median([q.width for q in said]) < 1.3 * 2 * 1.96 * 7.1e-4 / math.sqrt(n)
    assert sum(q.verdict == "tight" and q.details["controlled"] for q in said) >= 54
    exact = control_variates(
        lambda x: 3 + 2 * x, lambda x: x, 0.0, STANDARD, 1000, generator=seeded(0)
    )
    assert exact.verdict == "tight" and 0 < exact.width < 0.02 and exact.low < 3 < exact.high


def test_control_variates_whose_residuals_have_heavier_tails_are_left_out() -> None:
    """What a cubic leaves of exp(x) lies in few draws: then the plain mean is as good as without
    control variates. At 1e-4.
    """
    powers: Callable[[torch.Tensor], torch.Tensor] = lambda x: torch.stack([x, x**2, x**3], -1)  # noqa: E731
    said = [
        control_variates(torch.exp, powers, [0.0, 1.0, 0.0], STANDARD, 4000, generator=seeded(seed))
        for seed in range(30)
    ]
    covered, trusted = shares(math.exp(0.5), said)
    assert covered >= stats.binom(30, LEVEL).ppf(1e-4) / 30 and trusted >= 0.9
    left = [q for q in said if not q.details["controlled"]]
    assert left and all("left out" in q.method for q in left)


def test_events_make_an_interval_tight() -> None:
    few, enough = (
        np.repeat([1.0, 0.0], [events, 5000])
        for events in (int(TIGHT_CARRIERS) - 1, int(TIGHT_CARRIERS))
    )
    assert (judge(few, LEVEL).verdict, judge(enough, LEVEL).verdict) == ("loose", "tight")
    one = judge(np.repeat([1.0, 0.0], [1, 1999]), LEVEL)
    assert one.verdict == "loose" and (one.low, one.high) == pytest.approx(
        stats.binomtest(1, 2000).proportion_ci(LEVEL), rel=1e-6
    )
    # the next may be of any size
    assert judge(np.repeat([7.3, 0.0], [1, 1999]), LEVEL).verdict == "do not publish"
    dominated = np.concatenate(
        [np.random.default_rng(0).standard_normal(2000), [3000.0, 2500.0, 4000.0]]
    )
    assert judge(dominated, LEVEL).verdict == "do not publish"
