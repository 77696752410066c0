"""The front door: functions, priors and models to log Z, against closed forms."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.distributions import Normal, Uniform

import partita
from partita.core import Binary, Categorical, Count, Interval, Quantity, Real, Spin, Support
from partita.errors import Diverged, InputError, OutOfBudget, Unsupported
from partita.evaluators import Enumeration, ImportanceSampling, Quadrature
from partita.evaluators.partition.portfolio import _failure, judged, methods
from partita.models import RBM, Mixture
from partita.runtime import deadline

LOG_2PI = math.log(2 * math.pi)


def bell(x: Tensor) -> Tensor:
    return -0.5 * x.square().sum(-1)


class Bell(nn.Module):
    """A bare module, whose parameters want gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return -0.5 * (x / self.scale).square().sum(-1)


@pytest.mark.parametrize(
    ("log_density", "truth", "how"),
    [
        (bell, LOG_2PI, "torch batch"),
        (lambda x: -0.5 * np.sum(x * x, axis=-1), LOG_2PI, "numpy batch"),
        (lambda x: -0.5 * torch.dot(x, x), LOG_2PI, "torch vmap"),
        (lambda x: stats.norm.logpdf(x).sum(-1), 0.0, "numpy batch"),
        (Bell(), LOG_2PI + math.log(4), "torch batch"),
    ],
    ids=["torch", "numpy", "one row", "scipy", "module"],
)
def test_any_function_of_two_coordinates_is_integrated(
    log_density: object, truth: float, how: str
) -> None:
    q = partita.log_z(log_density, Real(2), n_draws=50)  # type: ignore[arg-type]
    assert abs(q.value - truth) <= max(q.high - q.value, q.value - q.low) + 1e-9
    assert q.width < 0.02
    assert q.trusted
    assert q.details["called"] == how
    assert q.draws.shape == (50, 2)


def test_draws_are_those_of_the_density_in_its_own_coordinates() -> None:
    # means of 1,000 draws: five standard errors, a false alarm of 1e-6
    q = partita.log_z(lambda x: -x.sum(-1), Interval(2, 0.0, math.inf))
    assert q.value == pytest.approx(0.0, abs=0.01)
    assert bool((q.draws > 0).all())
    assert torch.allclose(q.draws.mean(0), torch.ones(2).double(), atol=0.2)


def test_a_prior_gives_the_evidence() -> None:
    def log_likelihood(x: Tensor) -> Tensor:
        return Normal(x[:, 0], 0.5).log_prob(torch.tensor(1.0)) + 0 * x[:, 1]

    q = partita.log_z(log_likelihood, prior=[Normal(0.0, 2.0), Uniform(0.0, 5.0)], n_draws=500)
    truth = float(Normal(0.0, math.sqrt(4.25)).log_prob(torch.tensor(1.0)))
    assert q.value == pytest.approx(truth, abs=1e-3)
    assert bool(((q.draws[:, 1] > 0) & (q.draws[:, 1] < 5)).all())


@pytest.mark.parametrize("support", [Binary(10), Spin(10), Categorical(6, 3)])
def test_a_function_of_listed_states_is_summed(support: Support) -> None:
    q = partita.log_z(lambda x: 0.3 * x.sum(-1), support)
    values = support.values().double()
    truth = support.width * float(torch.logsumexp(0.3 * values, 0))
    assert (q.kind, q.verdict) == ("exact", "tight")
    assert q.value == pytest.approx(truth, abs=1e-9)
    assert q.draws.shape == (1000, support.width)


def test_a_model_of_ours_needs_no_support() -> None:
    g = torch.Generator().manual_seed(0)
    model = RBM(visible=12, hidden=4, generator=g)
    q = partita.log_z(model)
    assert q.value == Enumeration()(model, generator=g).value
    assert q.draws.shape == (1000, 12)


def test_one_method_in_place_of_all() -> None:
    q = partita.log_z(
        lambda x: bell(x - 3) + 1, Real(5), evaluator=ImportanceSampling(), generator=1
    )
    assert q.low - 0.02 <= 1 + 2.5 * LOG_2PI <= q.high + 0.02
    assert q.details["evaluations"] > 1000


def test_the_same_seed_gives_the_same_number() -> None:
    same = [partita.log_z(bell, Real(2), generator=3, n_draws=20) for _ in range(2)]
    assert same[0].value == same[1].value
    assert torch.equal(same[0].draws, same[1].draws)


def test_a_page_opens_from_disk(tmp_path: Path) -> None:
    page = partita.log_z(lambda x: 0.3 * x.sum(-1), Binary(5)).report(tmp_path / "evidence.html")
    text = page.read_text()
    assert "What was tried" in text
    assert "Enumeration" in text


def quantity(value: float, half: float, verdict: str = "loose") -> Quantity:
    return Quantity(
        value,
        value - half,
        value + half,
        0.95,
        "estimate",
        verdict=verdict,  # type: ignore[arg-type]
    )


def test_a_witness_that_lies_higher_contradicts() -> None:
    q = judged({"ImportanceSampling": quantity(1.0, 0.1), "Sandwich": quantity(0.0, 0.1)})
    assert (q.verdict, q.low, q.high) == ("do not publish", -0.1, 1.1)


def test_a_witness_that_lies_lower_has_missed_a_mode() -> None:
    annealed = quantity(1.0, 0.1)
    assert judged({"ImportanceSampling": quantity(0.0, 0.1), "Sandwich": annealed}) is annealed


def test_what_no_method_certifies_is_not_published() -> None:
    tried = {"ImportanceSampling": quantity(0.0, 0.1), "NestedSampling": quantity(0.05, 0.2)}
    assert judged(tried).verdict == "do not publish"
    doubted = {**tried, "Sandwich": quantity(0.2, 1.0, "do not publish")}
    assert judged(doubted).verdict == "loose"
    far = {**tried, "Sandwich": quantity(5.0, 1.0, "do not publish")}
    assert (judged(far).verdict, judged(far).high) == ("do not publish", 6.0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: partita.log_z(bell), InputError, "support or prior must be given, one of them"),
        (lambda: partita.log_z(bell, 5), InputError, r"support must be one such as Real\(5\)"),
        (lambda: partita.log_z(3, Real(2)), InputError, "log_density must be a function"),
        (
            lambda: partita.log_z(bell, Real(2), prior=[Normal(0.0, 1.0)]),
            InputError,
            "one of them; got both",
        ),
        (lambda: partita.log_z(bell, Count(2)), Unsupported, "log_z cannot run on Count"),
        (lambda: partita.log_z(bell, Real(2), generator=-1), InputError, "generator must be"),
        (lambda: partita.log_z(bell, Real(2), n_draws=0), InputError, "n_draws must be"),
        (lambda: partita.log_z(bell, Real(2), minutes=0), InputError, "minutes must"),
        (
            lambda: partita.log_z(bell, Real(2), rows=[[1.0, 2.0, 3.0]]),
            InputError,
            "rows must have",
        ),
        (
            lambda: partita.log_z(lambda x: x.sum(-1) * math.nan, Real(2)),
            InputError,
            "log_density must be finite somewhere",
        ),
        (
            lambda: partita.log_z(lambda x: x[:, :1] * x, Real(3)),
            InputError,
            "log_density must return one real number for each row",
        ),
        (
            lambda: partita.log_z(lambda x: 1 / 0, Real(2)),
            InputError,
            "ZeroDivisionError",
        ),
        (
            lambda: partita.log_z(bell, Real(6), evaluations=2000),
            OutOfBudget,
            "2000 evaluations are spent",
        ),
        (
            lambda: partita.log_z(
                Mixture(2, 2, generator=torch.Generator().manual_seed(0)),
            ),
            Unsupported,
            "is normalized, so its log Z is 0",
        ),
    ],
)
def test_wrong_input_is_named(call: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()  # type: ignore[operator]


def test_a_density_that_rises_is_refused_and_one_that_falls_is_not() -> None:
    with pytest.raises(ArithmeticError, match=r"Z is infinite|must fall|finite"):
        partita.log_z(lambda x: 0.5 * x.square().sum(-1), Real(2))
    assert partita.log_z(bell, Real(1), evaluator=Quadrature(), n_draws=5).trusted


def narrow_among_wide(x: Tensor) -> Tensor:
    """Three normals in the plane, one of them 70 times narrower than the widest, with 73 % of the
    mass where none of the others has any; normalized.
    """
    means = x.new_tensor([[0.0, 0.0], [9.0, -4.0], [-6.0, 11.0]])
    scales, shares = x.new_tensor([2.14, 0.63, 0.032]), x.new_tensor([0.17, 0.1, 0.73])
    away = (x[:, None] - means).square().sum(-1) / scales.square()
    return torch.logsumexp(shares.log() - 0.5 * away - 2 * scales.log() - LOG_2PI, -1)


def test_bounds_over_boxes_see_a_needle() -> None:
    q = partita.log_z(narrow_among_wide, Real(2), n_draws=200)
    assert q.verdict == "tight" and q.low <= 0 <= q.high and q.width < 1e-4
    narrow = (q.draws - torch.tensor([-6.0, 11.0])).norm(dim=-1) < 0.5
    assert abs(float(narrow.double().mean()) - 0.73) < 0.16  # five deviations of 200 draws


@pytest.mark.slow
def test_what_one_method_finds_the_others_hear_of() -> None:
    """In NumPy nothing can be bounded and there are no slopes: the integral over boxes finds the
    narrow one, and annealing, which is pointed to it, certifies the number; alone it passes it by.
    """

    def plain(x: np.ndarray) -> np.ndarray:
        return narrow_among_wide(torch.as_tensor(x).double()).numpy()

    q = partita.log_z(plain, Real(2), n_draws=200)
    assert q.details["tried"]["Quadrature"].verdict == "do not publish"
    assert q.trusted and q.low <= 0 <= q.high and q.width < 0.2


def test_an_integral_over_boxes_contradicts_what_lies_below_it() -> None:
    """However little of space was searched: what is summed is there."""
    summed = Quantity(0.0, -1e-6, math.inf, 0.99, "estimate", verdict="do not publish")
    low = {"Quadrature": summed, "Sandwich": quantity(-1.3, 0.02)}
    assert judged(low).verdict == "do not publish"
    near = {"Quadrature": summed, "ImportanceSampling": quantity(-0.01, 0.03)}
    q = judged(near)
    assert (q.value, q.low, q.verdict) == (0.0, -1e-6, "loose")
    assert q.high == pytest.approx(0.02)
    missed = {"Quadrature": summed, "Sandwich": quantity(0.7, 0.02)}
    assert judged(missed).value == 0.7


def test_a_pole_at_an_end_is_no_error() -> None:
    # far out the coordinate is rounded onto its end, where this density is infinite
    q = partita.log_z(
        lambda x: -0.7 * x.log().sum(-1) - x.sum(-1),
        Interval(1, 0.0, math.inf),
        evaluator=ImportanceSampling(),
    )
    assert q.value == pytest.approx(math.lgamma(0.3), abs=0.05)


def test_the_last_reason_says_whether_the_budget_was_too_small() -> None:
    short = OutOfBudget("Annealing would take longer than there is time for.")
    model = RBM(3, 2, generator=torch.Generator())
    assert _failure(model, [Diverged("a"), short]) is short
    assert isinstance(_failure(model, [short, Diverged("a")]), Diverged)


def test_methods_on_models_of_many_sites_end_soon() -> None:
    """Nested sampling of a hundred bits would take hours: it is tried on functions and on few real
    coordinates only.
    """
    g = torch.Generator().manual_seed(0)
    names = {
        model: [name for name, _ in methods(model, 0.95, {})]
        for model in (RBM(100, 30, generator=g), RBM(4, 30, visible_units="gaussian", generator=g))
    }
    wide, narrow = names.values()
    assert wide == ["Sandwich"] and narrow == ["Sandwich", "NestedSampling"]
    with deadline.ending_within(60):
        assert [name for name, _ in methods(list(names)[1], 0.95, {})] == ["Sandwich"]
