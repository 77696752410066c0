"""Evaluators of log Z: exact sums, what the annealing computes, what the Quantities say."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from partita.core import Binary, Unsupported
from partita.evaluators import AIS, SMC, Bridge, Enumeration, ReverseAIS, Sandwich
from partita.evaluators.partition.annealing import anneal, temperatures_for
from partita.evaluators.partition.bridge import acceptance_ratio
from partita.evaluators.partition.reverse_ais import exact_draws
from partita.models import RBM, MaxEnt
from partita.samplers import Gibbs, Tempering
from partita.tables import Rows

EVALUATORS = [
    AIS(300, 64),
    ReverseAIS(300, 64),
    ReverseAIS(300, 64, start="exact"),
    Sandwich(300, 64),
    Bridge(12, 16, 100, 50),
]


def random_rbm(
    visible: int, hidden: int, scale: float, g: torch.Generator, units: str = "bernoulli"
) -> RBM:
    model = RBM(visible, hidden, scale=scale, visible_units=units, generator=g).double()
    with torch.no_grad():
        model.b.normal_(generator=g)
        model.c.normal_(generator=g)
    return model


def log_z_by_hand(model: RBM) -> float:
    """Sum over x and h of exp(x'Wh + b'x + c'h) in numpy, both layers written out."""
    W, b, c = (p.detach().numpy() for p in (model.W, model.b, model.c))
    x = np.array(list(product([0, 1], repeat=len(b))))
    h = np.array(list(product([0, 1], repeat=len(c))))
    return float(logsumexp(x @ W @ h.T + (x @ b)[:, None] + (h @ c)[None]))


@pytest.mark.parametrize("side", ["visible", "hidden", "smaller"])
@pytest.mark.parametrize(("visible", "hidden"), [(5, 7), (7, 3), (1, 1)])
def test_enumeration_is_exact_on_both_sides(
    side: str, visible: int, hidden: int, generator: torch.Generator
) -> None:
    model = random_rbm(visible, hidden, 1.0, generator)
    q = Enumeration(side)(model)
    assert q.kind == "exact"
    assert q.value == pytest.approx(log_z_by_hand(model), abs=1e-10)


def test_enumeration_sums_in_float64_for_a_float32_model(generator: torch.Generator) -> None:
    model = random_rbm(8, 8, 3.0, generator).float()
    assert Enumeration()(model).value == pytest.approx(log_z_by_hand(model.double()), abs=1e-10)


def test_enumeration_of_an_annealed_model(generator: torch.Generator) -> None:
    model = random_rbm(6, 4, 1.0, generator)
    model.reference_natural.normal_(generator=generator)
    for beta in (0.0, 0.3, 1.0):
        part = model.annealed(beta)
        assert Enumeration("visible")(part).value == pytest.approx(
            Enumeration("hidden")(part).value, abs=1e-10
        )
    assert Enumeration()(model.annealed(0.0)).value == pytest.approx(
        float(model.reference().log_z), abs=1e-10
    )


def test_enumeration_refuses_what_is_too_large(generator: torch.Generator) -> None:
    with pytest.raises(
        Unsupported, match=r"Enumeration cannot run on RBM\(30, 30\): .* Use Sandwich instead\."
    ):
        Enumeration()(RBM(30, 30, generator=generator))


@pytest.mark.parametrize(
    "evaluator", EVALUATORS, ids=lambda e: f"{type(e).__name__}-{getattr(e, 'start', '')}"
)
@pytest.mark.parametrize("family", ["rbm", "gaussian", "maxent", "maxent with hidden"])
def test_every_evaluator_covers_every_model(
    evaluator: AIS, family: str, generator: torch.Generator
) -> None:
    """Twenty intervals of four standard errors: false alarm 20 x 6e-5 in all, at this seed none."""
    model = {
        "rbm": lambda: random_rbm(8, 5, 1.0, generator),
        "gaussian": lambda: random_rbm(3, 4, 0.7, generator, "gaussian"),
        "maxent": lambda: random_maxent(generator),
        "maxent with hidden": lambda: random_maxent(generator, hidden=True),
    }[family]()
    truth, q = Enumeration()(model).value, evaluator(model, generator=generator)
    assert q.trusted
    assert abs(q.value - truth) < 4 * q.details["se"] + 1e-9


def random_maxent(g: torch.Generator, hidden: bool = False) -> MaxEnt:
    features = (
        [lambda x, h: x * h[..., :1], lambda x, h: (x.sum(-1) - 1) * h[..., 1]]
        if hidden
        else "pairwise"
    )
    model = MaxEnt(features, Binary(5), hidden=Binary(2) if hidden else None, generator=g).double()
    with torch.no_grad():
        model.theta.normal_(generator=g)
        model.reference_logits.normal_(generator=g)
    return model


def test_kinds_and_directions(generator: torch.Generator) -> None:
    model = random_rbm(5, 4, 0.5, generator)
    forward = AIS(50, 32)(model, generator=generator)
    annealed, exact = (
        ReverseAIS(50, 32, start=s)(model, generator=generator) for s in ("annealed", "exact")
    )
    assert (forward.kind, forward.direction) == ("lower", "low")
    assert (annealed.kind, annealed.direction, annealed.details["start"]) == (
        "estimate",
        "high",
        "annealed",
    )
    assert (exact.kind, exact.direction, exact.details["start"]) == ("upper", "high", "exact")
    assert Sandwich(50, 32)(model, generator=generator).kind == "estimate"


def test_forward_errs_low_and_reverse_high_when_annealing_is_too_fast(
    generator: torch.Generator,
) -> None:
    model = random_rbm(12, 10, 3.0, generator)
    truth = log_z_by_hand(model)
    low = [AIS(3, 8, adaptive=False)(model, generator=generator).value for _ in range(40)]
    high = [
        ReverseAIS(3, 8, adaptive=False, start="exact")(model, generator=generator).value
        for _ in range(40)
    ]
    assert (
        np.mean(low) + 3 * np.std(low) / np.sqrt(40)
        < truth
        < np.mean(high) - 3 * np.std(high) / np.sqrt(40)
    )


def test_too_fast_annealing_is_not_published(generator: torch.Generator) -> None:
    """From base rates; a mixture at the modes is so near to this machine that four temperatures
    serve.
    """
    model = random_rbm(40, 30, 3.0, generator)
    assert AIS(4, 32, adaptive=False)(model, generator=generator).verdict == "do not publish"
    model.set_anchors(Rows(model.reference().draw(128, generator=generator)), generator=generator)
    assert (
        Sandwich(4, 32, adaptive=False, start="data")(model, generator=generator).verdict
        == "do not publish"
    )


class CountProducts(TorchDispatchMode):
    """Counts matrix products with an operand of the weights' shape."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        self.shapes, self.count = {shape, shape[::-1]}, 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if any(name in str(function) for name in ("mm.default", "addmm.default")):
            self.count += any(
                isinstance(a, Tensor) and tuple(a.shape) in self.shapes for a in arguments
            )
        return function(*arguments, **(keywords or {}))


def test_annealing_never_recomputes_a_product(generator: torch.Generator) -> None:
    """Two products a step: visible to hidden for weight and hidden draw together, hidden to visible
    for the next x.
    """
    model, steps = random_rbm(9, 7, 0.3, generator), 20
    x = model.reference().draw(16, generator=generator)
    with CountProducts((9, 7)) as products:
        anneal(model, Gibbs(), torch.linspace(0, 1, steps + 1), x, generator=generator)
    assert products.count == 2 * steps


def test_temperatures_rise_from_zero_to_one_and_are_dense_where_the_energy_fluctuates(
    generator: torch.Generator,
) -> None:
    model = random_rbm(10, 6, 2.0, generator)
    betas = temperatures_for(model, Gibbs(), 100, generator=generator)
    assert (float(betas[0]), float(betas[-1]), len(betas)) == (0.0, 1.0, 100)
    assert all(a < b for a, b in pairwise(betas.tolist()))
    x = model.reference().draw(256, generator=generator)
    adaptive = anneal(model, Gibbs(), betas, x, generator=generator).spread
    even = anneal(model, Gibbs(), torch.linspace(0, 1, 100), x, generator=generator).spread
    assert adaptive.max() / adaptive.mean() < even.max() / even.mean()


def test_bennett_between_two_gaussians() -> None:
    """Energies x^2/2 and (x - 1)^2/2 + 0.7: log Z1/Z0 = -0.7; 4.5 standard errors, false alarm
    7e-6.
    """
    g = torch.Generator().manual_seed(3)
    x0, x1 = (torch.randn(20_000, generator=g, dtype=torch.float64) + shift for shift in (0, 1))

    def weight(x: Tensor) -> Tensor:
        return x**2 / 2 - (x - 1) ** 2 / 2 - 0.7

    ratio = acceptance_ratio(weight(x0), -weight(x1)[:5000])
    assert abs(ratio.value + 0.7) < 4.5 * ratio.se
    assert ratio.se < 0.02


def test_bennett_solves_its_own_equation_for_unequal_numbers() -> None:
    g = torch.Generator().manual_seed(4)
    w, v = torch.randn(300, generator=g).double() + 2, torch.randn(100, generator=g).double() - 2
    delta = acceptance_ratio(w, v).value
    m = np.log(3)
    left = (1 / (1 + torch.exp(m + delta - w))).sum()
    right = (1 / (1 + torch.exp(-m - delta - v))).sum()
    assert float(left) == pytest.approx(float(right), rel=1e-7)


@pytest.mark.parametrize(("visible", "hidden"), [(4, 6), (6, 3)])
def test_exact_draws_follow_the_enumerated_distribution(
    visible: int, hidden: int, generator: torch.Generator
) -> None:
    """Chi-squared on all visible states; false alarm 1e-4 each."""
    from scipy.stats import chi2

    model, n = random_rbm(visible, hidden, 1.0, generator), 20_000
    x = exact_draws(model, n, generator=generator)
    states = torch.tensor(list(product([0.0, 1.0], repeat=visible)), dtype=torch.float64)
    p = torch.softmax(-model.free_energy(states), 0).detach()
    index = (x @ (2.0 ** torch.arange(visible - 1, -1, -1, dtype=torch.float64))).long()
    observed = torch.bincount(index, minlength=len(p)).double()
    assert float(((observed - n * p) ** 2 / (n * p)).sum()) < chi2.isf(1e-4, len(p) - 1)


def test_a_ladder_cannot_be_annealed(generator: torch.Generator) -> None:
    with pytest.raises(
        Unsupported, match="AIS needs a kernel on x, but Tempering moves a whole ladder"
    ):
        AIS(kernel=Tempering(Gibbs()))(RBM(3, 2, generator=generator), generator=generator)


@pytest.mark.parametrize("evaluator", [AIS, SMC, ReverseAIS, Sandwich, Bridge])
def test_settings_are_checked(evaluator: type) -> None:
    name = evaluator.__name__
    with pytest.raises(
        ValueError, match=rf"{name}: chains must be a whole number of at least 2; got 0"
    ):
        evaluator(chains=0)
    with pytest.raises(
        ValueError, match=rf"{name}: temperatures must be a whole number of at least 2; got 1"
    ):
        evaluator(temperatures=1)
    with pytest.raises(ValueError, match=rf"{name}: level must lie between 0 and 1; got 95"):
        evaluator(level=95)


@pytest.mark.parametrize("evaluator", [AIS, SMC, ReverseAIS, Sandwich, Bridge])
def test_rows_and_generators_are_checked_before_anything_runs(
    evaluator: type, generator: torch.Generator
) -> None:
    name, model = evaluator.__name__, RBM(3, 2, generator=generator)
    for rows, said in (
        ("abc", "be a table of numbers; got a str"),
        ([[1, 2], [3]], "be a table of numbers; got a list"),
        (torch.zeros(2, 3, dtype=torch.complex64), "be real numbers; got torch.complex64"),
    ):
        with pytest.raises(ValueError, match=rf"{name}: rows must {said}"):
            evaluator()(model, rows=rows, generator=generator)
    with pytest.raises(ValueError, match=rf"{name}: generator must be a torch.Generator; got None"):
        evaluator()(model, generator=None)


def test_a_side_that_is_too_large_is_refused_at_once(generator: torch.Generator) -> None:
    with pytest.raises(
        ValueError,
        match=r"Enumeration: side must be a side of RBM\(40, 4\) with at most 2\^20 states; got "
        r"'visible'",
    ):
        Enumeration("visible")(RBM(40, 4, generator=generator))


def test_reverse_from_data_needs_a_fitted_model(generator: torch.Generator) -> None:
    with pytest.raises(
        ValueError,
        match=r"ReverseAIS: start must be 'annealed' or 'exact' for a model that was never fitted; "
        r"got 'data'",
    ):
        ReverseAIS(20, 8, start="data")(random_rbm(4, 3, 1.0, generator), generator=generator)
