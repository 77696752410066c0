"""Sampling against closed forms: intervals cover, heavy tails are seen, control variates pay as
they say.

Coverage is tested over many seeds; FALSE_ALARM = 1e-4 is for all CASES together, so each may fail
by chance with 1e-4 / len(CASES).
"""

import math
from collections.abc import Callable

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Distribution,
    Exponential,
    MultivariateNormal,
    Normal,
    Pareto,
    StudentT,
    Uniform,
)

from partita.bayes.montecarlo import (
    control_variates,
    cross_fitted,
    draws_needed,
    expectation,
    from_draws,
    importance,
    integral,
)
from partita.core.quantity import Quantity
from partita.errors import InputError

FALSE_ALARM = 1e-4
SEEDS = 200
Estimate = Callable[[int, torch.Generator], Quantity]


def real(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


STANDARD, WIDE, FAR = (
    Normal(real(loc), real(scale)) for loc, scale in ((0.0, 1.0), (0.5, 1.5), (4.2, 1.0))
)


def square(x: Tensor) -> Tensor:
    return x**2


def same(x: Tensor) -> Tensor:
    return x


def beyond_four(x: Tensor) -> Tensor:
    return (x > 4).double()


def kernel(x: Tensor) -> Tensor:
    """log of the normal density without its constant."""
    return -0.5 * x**2


CASES: dict[str, tuple[float, Estimate]] = {
    "plain": (1.0, lambda n, g: expectation(square, STANDARD, n, generator=g)),
    "skewed": (1.0, lambda n, g: expectation(same, Exponential(real(1.0)), n, generator=g)),
    "pareto, k = 0.3": (
        1 / 0.7,
        lambda n, g: expectation(same, Pareto(real(1.0), real(1 / 0.3)), n, generator=g),
    ),
    "importance": (1.0, lambda n, g: importance(square, STANDARD.log_prob, WIDE, n, generator=g)),
    "self-normalized": (
        1.0,
        lambda n, g: importance(square, kernel, WIDE, n, self_normalized=True, generator=g),
    ),
    "shifted proposal": (
        0.0,
        lambda n, g: importance(
            same, kernel, Normal(real(0.5), real(1.1)), n, self_normalized=True, generator=g
        ),
    ),
    "integral": (
        math.sqrt(2 * math.pi),
        lambda n, g: integral(lambda x: torch.exp(kernel(x)), StudentT(real(4.0)), n, generator=g),
    ),
    "rare event": (
        float(stats.norm.sf(4)),
        lambda n, g: importance(beyond_four, STANDARD.log_prob, FAR, n, generator=g),
    ),
    "controlled": (
        math.exp(0.5),
        lambda n, g: control_variates(torch.exp, same, 0.0, STANDARD, n, generator=g),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_intervals_cover_at_their_level(name: str) -> None:
    """At least 95 %, and not by being wide: at most one and a half times the normal interval where
    tight, four times where loose.
    """
    truth, estimate = CASES[name]
    quantities = [estimate(400, seeded(seed)) for seed in range(SEEDS)]
    hits = sum(q.low <= truth <= q.high for q in quantities)
    assert hits >= stats.binom(SEEDS, 0.95).ppf(FALSE_ALARM / len(CASES))
    for verdict, factor in (("tight", 1.5), ("loose", 4.1)):
        assert (
            max(
                [
                    q.width / (2 * 1.96 * q.details["se"])
                    for q in quantities
                    if q.verdict == verdict
                ],
                default=0.0,
            )
            < factor
        )


def test_a_proposal_that_goes_to_a_rare_event_is_trusted() -> None:
    """P(x > 4) from N(4.2, 1): the weights alone look hopeless, what is averaged does not; its
    interval is among the CASES.
    """
    q = CASES["rare event"][1](4000, seeded(0))
    assert q.verdict == "tight" and q.details["ess"] < 400
    assert q.details["se"] < 0.05 * stats.norm.sf(4)


def test_estimates_are_unbiased() -> None:
    """z-scores of the mean over 144 seeds, plain and weighted and controlled; false alarm 1e-4 in
    all.
    """
    z = stats.norm.isf(FALSE_ALARM / 8)
    for name in ("plain", "importance", "integral", "controlled"):
        truth, estimate = CASES[name]
        values = torch.tensor(
            [estimate(100, seeded(seed)).value for seed in range(144)], dtype=torch.float64
        )
        assert abs(float((values.mean() - truth) / (values.std() / 12))) < z, name


def test_the_variance_is_that_of_the_formula() -> None:
    """Var = (E_q[(f/q)^2] - I^2) / n (eq. 7.2): for f = 3 x^2 on U(0, 1) it is (9/5 - 1) / n;
    chi-square at 1e-4.
    """
    q = Uniform(real(0.0), real(1.0))
    estimates = [integral(lambda x: 3 * x**2, q, 50, generator=seeded(seed)) for seed in range(300)]
    values = torch.tensor([e.value for e in estimates], dtype=torch.float64)
    low, high = stats.chi2(299).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2]) / 299
    assert low < float(values.var()) / (0.8 / 50) < high
    assert sum(e.details["se"] ** 2 for e in estimates) / 300 == pytest.approx(0.8 / 50, rel=0.05)


HEAVY: dict[str, Callable[[torch.Generator], Quantity]] = {
    "Cauchy": lambda g: expectation(same, StudentT(real(1.0)), 4000, generator=g),
    "no mean": lambda g: expectation(same, Pareto(real(1.0), real(0.8)), 4000, generator=g),
    "k = 0.9": lambda g: expectation(same, Pareto(real(1.0), real(1 / 0.9)), 4000, generator=g),
    "narrow proposal": lambda g: importance(
        torch.ones_like, STANDARD.log_prob, Normal(real(0.0), real(0.3)), 4000, generator=g
    ),
    "heavy target": lambda g: importance(
        square, StudentT(real(3.0)).log_prob, STANDARD, 4000, self_normalized=True, generator=g
    ),
}


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_tails_raise_the_verdict(name: str) -> None:
    """Never tight, and mostly not to be published."""
    verdicts = [HEAVY[name](seeded(seed)).verdict for seed in range(30)]
    assert "tight" not in verdicts
    assert verdicts.count("do not publish") >= 28


def test_light_tails_do_not() -> None:
    for name in ("plain", "skewed", "importance", "self-normalized", "integral", "rare event"):
        verdicts = [CASES[name][1](2000, seeded(seed)).verdict for seed in range(30)]
        assert "do not publish" not in verdicts and verdicts.count("tight") >= 27, name


def test_khat_belongs_to_the_function() -> None:
    """The same weights: a bounded proposal ratio is fine for the mean of a step and hopeless for a
    function that explodes.
    """
    q = Normal(real(0.0), real(1.2))
    step = importance(lambda x: (x > 0).double(), STANDARD.log_prob, q, 4000, generator=seeded(0))
    steep = importance(
        lambda x: torch.exp(0.6 * x**2), STANDARD.log_prob, q, 4000, generator=seeded(0)
    )
    assert step.details["khat_weights"] == steep.details["khat_weights"] < 0.5
    assert step.verdict == "tight" and steep.verdict == "do not publish"


def test_effective_sample_size_and_constant_terms() -> None:
    log_w = torch.log(torch.tensor([1.0, 1.0, 1.0, 3.0], dtype=torch.float64))
    assert from_draws(torch.tensor([0.0, 1.0, 0.0, 1.0]), log_w).details["ess"] == pytest.approx(
        36 / 12
    )
    never = expectation(same, Bernoulli(real(1e-9)), 100, generator=seeded(0))
    # an event of which size?
    assert (never.value, never.low, never.verdict) == (0, 0, "do not publish")
    indicator = expectation(lambda x: x > 0, Bernoulli(real(1e-9)), 100, generator=seeded(0))
    assert indicator.verdict == "loose" and indicator.high == never.high == pytest.approx(
        1 - 0.025 ** (1 / 100)
    )
    same_for_all = importance(
        lambda x: x > 9, kernel, WIDE, 400, self_normalized=True, generator=seeded(0)
    )
    assert (
        same_for_all.low == 0 and same_for_all.high > 3.6 / 400 and same_for_all.verdict != "tight"
    )
    constant = from_draws(torch.full((1000,), 7.0))
    assert constant.verdict == "loose" and constant.low < 7 < constant.high


def test_draws_needed_reach_the_error() -> None:
    q = expectation(square, STANDARD, 500, generator=seeded(1))
    n = draws_needed(q, 0.02)
    assert n == pytest.approx(2 / 0.02**2, rel=0.3)  # Var x^2 = 2
    assert expectation(square, STANDARD, int(n), generator=seeded(2)).details[
        "se"
    ] == pytest.approx(0.02, rel=0.2)
    assert (
        draws_needed(
            expectation(same, Pareto(real(1.0), real(0.5)), 4000, generator=seeded(0)), 0.1
        )
        == math.inf
    )


def test_control_variates_reach_the_optimal_variance() -> None:
    """f = exp(x), g = x: the least variance is Var f - Cov^2 / Var g, with Cov = sqrt(e) and Var f
    = e^2 - e.
    """
    q = control_variates(torch.exp, same, 0.0, STANDARD, 40_000, generator=seeded(0))
    plain, best = math.e**2 - math.e, math.e**2 - 2 * math.e
    assert q.details["se"] ** 2 * 40_000 == pytest.approx(best, rel=0.15)
    assert q.details["variance_ratio"] == pytest.approx(plain / best, rel=0.15)
    assert q.details["gain"] == pytest.approx(q.details["variance_ratio"] / q.details["cost_ratio"])
    assert q.details["cost_ratio"] > 1
    both = control_variates(
        torch.exp,
        lambda x: torch.stack([x, x**2], -1),
        [0.0, 1.0],
        STANDARD,
        40_000,
        generator=seeded(0),
    )
    assert both.details["variance_ratio"] > q.details["variance_ratio"]


def test_perfect_control_leaves_nothing_and_useless_control_costs_little() -> None:
    x = torch.randn(200, generator=seeded(0), dtype=torch.float64)
    noise = torch.randn(200, 1, generator=seeded(1), dtype=torch.float64)
    torch.testing.assert_close(
        cross_fitted(3 + 2 * x, x[:, None]), torch.full_like(x, 3.0), rtol=0, atol=1e-12
    )
    assert float(cross_fitted(x, noise).var() / x.var()) < 1.05


def test_vector_draws() -> None:
    p: Distribution = MultivariateNormal(
        torch.zeros(2).double(), torch.tensor([[1.0, 0.5], [0.5, 2.0]]).double()
    )
    q = expectation(lambda x: x[:, 0] * x[:, 1], p, 20_000, generator=seeded(3))
    assert q.low < 0.5 < q.high


def test_a_target_that_no_draw_reaches_is_named() -> None:
    for own in (True, False):
        with pytest.raises(
            InputError, match="log weights must be above minus infinity for some draws; got none"
        ):
            importance(
                same,
                lambda x: torch.full_like(x, -math.inf),
                STANDARD,
                100,
                self_normalized=own,
                generator=seeded(0),
            )


def test_bad_input_is_named() -> None:
    g = seeded(0)
    with pytest.raises(
        InputError, match=r"f\(x\) must have one value per draw, shape \(10,\); got \(\)"
    ):
        expectation(torch.sum, STANDARD, 10, generator=g)
    with pytest.raises(InputError, match=r"f\(x\) must be finite"):
        expectation(torch.log, STANDARD, 50, generator=g)
    for draws in (0, 1):
        with pytest.raises(
            InputError,
            match=rf"from_draws: f must hold at least two values.* \({draws},\)\. Take more "
            r"draws\.",
        ):
            from_draws(torch.ones(draws))
    with pytest.raises(InputError, match=r"n must be a whole number of at least 2; got 0"):
        expectation(same, STANDARD, 0, generator=g)
    with pytest.raises(InputError, match=r"terms must be finite; got inf at draw 1\. Rescale"):
        from_draws(torch.ones(3), torch.tensor([0.0, 900.0, 0.0]))
    with pytest.raises(
        InputError, match=r"log_w must have one value per draw, shape \(3,\); got \(2,\)"
    ):
        from_draws(torch.ones(3), torch.zeros(2))
    with pytest.raises(InputError, match="log weights must be below infinity"):
        from_draws(torch.ones(3), torch.tensor([0.0, math.nan, 0.0]))
    with pytest.raises(InputError, match="n must be at least 20 for each of 1 control variates"):
        control_variates(same, same, 0.0, STANDARD, 10, generator=g)
    with pytest.raises(InputError, match="error must be a finite number above 0"):
        draws_needed(expectation(same, STANDARD, 50, generator=g), 0.0)
