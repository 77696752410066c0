"""Optimal transport: duality, other solvers, limits, closed forms, gradients."""

import importlib.util

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance
from torch import Tensor

from partita.divergences.transport import (
    cost_matrix,
    exact_transport,
    gaussian_entropic_transport,
    gaussian_transport,
    line_transport,
    sinkhorn,
    sinkhorn_divergence,
    sliced_transport,
    sliced_wasserstein,
    wasserstein,
)
from partita.errors import InputError

HAS_POT = importlib.util.find_spec("ot") is not None


def points(generator: torch.Generator, n: int, m: int, d: int = 2) -> tuple[Tensor, Tensor]:
    x, y = (torch.randn(count, d, generator=generator, dtype=torch.float64) for count in (n, m))
    return x, 0.7 * y + 1


def weights(generator: torch.Generator, n: int) -> Tensor:
    w = torch.rand(n, generator=generator, dtype=torch.float64)
    return w / w.sum()


def test_costs(generator: torch.Generator) -> None:
    x, y = points(generator, 5, 4, 3)
    for power in (1.0, 1.5, 2.0):
        expected = (x[:, None] - y).norm(dim=-1) ** power
        torch.testing.assert_close(cost_matrix(x, y, power), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("solver", ["highs", *(["pot"] if HAS_POT else [])])
def test_primal_equals_dual(solver: str, generator: torch.Generator) -> None:
    x, y = points(generator, 24, 31)
    a, b = weights(generator, 24), weights(generator, 31)
    c = cost_matrix(x, y)
    found = exact_transport(c, a, b, solver=solver)
    torch.testing.assert_close(found.plan.sum(1), a, atol=1e-10, rtol=0)
    torch.testing.assert_close(found.plan.sum(0), b, atol=1e-10, rtol=0)
    assert float((found.plan * c).sum()) == pytest.approx(
        float(a @ found.phi + b @ found.psi), abs=1e-9
    )
    assert abs(found.gap) < 1e-9 and found.quantity().kind == "exact"
    assert float((found.phi[:, None] + found.psi - c).max()) <= 1e-12  # phi(x) + psi(y) <= c(x, y)


@pytest.mark.parametrize("solver", ["assignment", "highs", "auto"])
def test_even_weights_are_an_assignment(solver: str, generator: torch.Generator) -> None:
    c = cost_matrix(*points(generator, 25, 25))
    rows, columns = linear_sum_assignment(c.numpy())
    found = exact_transport(c, solver=solver)
    assert found.value.item() == pytest.approx(c.numpy()[rows, columns].mean(), abs=1e-12)
    assert abs(found.gap) < 1e-9 and float((found.phi[:, None] + found.psi - c).max()) <= 1e-12


def test_the_gradient_of_the_exact_value_is_the_plan(generator: torch.Generator) -> None:
    x, y = points(generator, 6, 6)
    c = cost_matrix(x, y).requires_grad_()
    found = exact_transport(c)
    torch.testing.assert_close(torch.autograd.grad(found.value, c)[0], found.plan)
    assert torch.autograd.gradcheck(
        lambda p: wasserstein(p, y, power=2.0), x.clone().requires_grad_()
    )


def test_sinkhorn_tends_to_the_exact_value_from_above(generator: torch.Generator) -> None:
    c = cost_matrix(*points(generator, 12, 15))
    exact = exact_transport(c).value.item()
    values = []
    for epsilon, tolerance in ((1.0, 1e-7), (0.2, 1e-6), (0.03, 1e-4)):
        found = sinkhorn(c, epsilon=epsilon, tolerance=tolerance, iterations=20_000)
        plan = found.plan(c)
        assert found.converged and found.error <= tolerance
        torch.testing.assert_close(
            plan.sum(0), torch.full((15,), 1 / 15, dtype=torch.float64), atol=1e-10, rtol=0
        )
        # the error it reports
        assert float((plan.sum(1) - 1 / 12).abs().sum()) == pytest.approx(found.error, abs=1e-9)
        relative = float((plan * (plan * 12 * 15).log()).nan_to_num().sum())
        assert found.value.item() == pytest.approx(
            float((plan * c).sum()) + epsilon * relative, abs=20 * tolerance
        )
        values.append(found.value.item())
    assert values == sorted(values, reverse=True) and 0 <= values[-1] - exact < 0.07


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_entropic_transport_between_gaussians(epsilon: float) -> None:
    t = torch.linspace(-9, 9, 601, dtype=torch.float64)
    a, b = (torch.softmax(-((t - m) ** 2) / (2 * s**2), 0) for m, s in ((0.0, 1.0), (1.0, 0.7)))
    found = sinkhorn(cost_matrix(t[:, None], t[:, None]), a, b, epsilon=epsilon, tolerance=1e-10)
    m, S = (torch.tensor([value], dtype=torch.float64) for value in (0.0, 1.0))
    n, T = torch.ones(1, dtype=torch.float64), torch.tensor([[0.49]], dtype=torch.float64)
    truth = gaussian_entropic_transport(m, S[:, None], n, T, epsilon=epsilon)
    assert found.value.item() == pytest.approx(truth.item(), abs=1e-8)


def test_plain_transport_between_gaussians(generator: torch.Generator) -> None:
    m, n = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    S, T = (
        torch.diag(torch.tensor(v, dtype=torch.float64))
        for v in ([1.0, 4.0, 0.25], [2.25, 1.0, 1.0])
    )
    # commuting covariances
    expected = (m - n).square().sum() + (S.sqrt() - T.sqrt()).square().sum()
    assert gaussian_transport(m, S, n, T).item() == pytest.approx(expected.item(), abs=1e-10)
    assert gaussian_entropic_transport(m, S, n, T, epsilon=1e-7).item() == pytest.approx(
        expected.item(), abs=1e-4
    )


@pytest.mark.parametrize("block", [20, 130, 1 << 18])
def test_a_batch_is_solved_together(
    block: int, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts of one problem, two problems at a time, all at once."""
    monkeypatch.setattr(
        importlib.import_module("partita.divergences.transport.sinkhorn"), "BLOCK", block
    )
    pairs = [points(generator, 7, 9) for _ in range(3)]
    costs = torch.stack([cost_matrix(*pair) for pair in pairs])
    together = sinkhorn(costs, epsilon=0.3, tolerance=1e-9)
    for c, value in zip(costs, together.value, strict=True):
        assert value.item() == pytest.approx(
            sinkhorn(c, epsilon=0.3, tolerance=1e-9).value.item(), abs=1e-8
        )


def test_a_source_and_a_target_without_weight_get_nothing(generator: torch.Generator) -> None:
    """However far their potentials are: the plan and its gradient hold no nan, and the value is
    that of the problem without them.
    """
    cost = torch.rand(6, 7, generator=generator, dtype=torch.float64)
    # far from all others and near each other, so that their exponential overflows
    cost[0], cost[:, 0], cost[0, 0] = 2.0, 2.0, 0.0
    a, b = (torch.tensor([0.0, *[1 / (n - 1)] * (n - 1)], dtype=torch.float64) for n in cost.shape)
    found = sinkhorn(cost.requires_grad_(), a, b, epsilon=1e-3, tolerance=1e-3, iterations=5000)
    assert float(found.phi[0] + found.psi[0]) > 0.71
    plan = found.plan(cost, a, b)
    (slope,) = torch.autograd.grad(found.value, cost)
    torch.testing.assert_close(slope, plan.detach(), atol=1e-12, rtol=0)
    assert (plan[0] == 0).all() and (plan[:, 0] == 0).all()
    alone = sinkhorn(cost[1:, 1:].detach(), epsilon=1e-3, tolerance=1e-3, iterations=5000)
    # the marginal error times the costs
    assert found.value.item() == pytest.approx(alone.value.item(), abs=5e-3)


def test_gradients_of_sinkhorn(generator: torch.Generator) -> None:
    x, y = points(generator, 4, 5)

    def value(p: Tensor, logits: Tensor) -> Tensor:
        return sinkhorn(
            cost_matrix(p, y),
            torch.softmax(logits, 0),
            epsilon=0.5,
            tolerance=1e-12,
            iterations=5000,
        ).value

    logits = torch.randn(4, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        value, (x.clone().requires_grad_(), logits.requires_grad_()), atol=1e-6
    )


def test_the_debiased_divergence_is_zero_at_equality_and_positive_elsewhere(
    generator: torch.Generator,
) -> None:
    x, y = points(generator, 10, 12)
    assert sinkhorn_divergence(x, x, epsilon=0.5).item() == pytest.approx(0, abs=1e-12)
    assert sinkhorn_divergence(x, y, epsilon=0.5).item() > 0.5
    options = {"epsilon": 1.0, "tolerance": 1e-11}
    assert torch.autograd.gradcheck(
        lambda p: sinkhorn_divergence(p, y[:5], **options),
        x[:4].clone().requires_grad_(),
        atol=1e-6,
    )


def test_float32_and_blocks(generator: torch.Generator) -> None:
    """Large enough to be cut into blocks in both directions."""
    x, y = points(generator, 700, 900)
    c = cost_matrix(x, y)
    double, single = sinkhorn(c, epsilon=0.5), sinkhorn(c.float(), epsilon=0.5)
    assert single.converged and single.value.item() == pytest.approx(double.value.item(), abs=1e-3)


def test_the_line(generator: torch.Generator) -> None:
    x, y = (torch.randn(n, generator=generator, dtype=torch.float64) for n in (30, 43))
    a, b = weights(generator, 30), weights(generator, 43)
    assert line_transport(x, y, a, b).item() == pytest.approx(
        wasserstein_distance(x, y, a, b), abs=1e-12
    )
    c = cost_matrix(x[:, None], y[:, None])
    assert line_transport(x, y, a, b, power=2.0).item() == pytest.approx(
        exact_transport(c, a, b).value.item(), abs=1e-9
    )
    assert line_transport(x, y[:30]).item() == pytest.approx(
        wasserstein_distance(x, y[:30]), abs=1e-12
    )
    assert torch.autograd.gradcheck(
        lambda p: line_transport(p, y, power=2.0), x.clone().requires_grad_()
    )


def test_sliced(generator: torch.Generator) -> None:
    """For a shift, SW_2^2 is |shift|^2 / D: a 99.9 % interval, false alarm 1 in 1,000."""
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    shift = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    found = sliced_wasserstein(x, x + shift, directions=2000, level=0.999, generator=generator)
    assert found.low <= float(shift.square().sum()) / 3 <= found.high
    assert sliced_transport(x, x + shift, directions=7, generator=generator).shape == (7,)


def test_distance_falls_as_disjoint_samples_approach() -> None:
    x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    values = []
    for gap in (4.0, 2.0, 1.5):
        y = (x + gap).requires_grad_()
        value = wasserstein(x, y)
        values.append(value.item())
        # there is always a slope to follow
        torch.testing.assert_close(torch.autograd.grad(value, y)[0], torch.full_like(y, 1 / 20))
    np.testing.assert_allclose(values, [4.0, 2.0, 1.5], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": torch.ones(3)}, r"a must sum to 1; got 3\. Divide them by their sum: a / a\.sum"),
        ({"a": torch.tensor([1.5, -0.5, 0.0])}, r"a must be at least 0; got -0\.5"),
        ({"a": torch.ones(2) / 2}, r"a must have shape \(\*, 3\) to match the costs; got \(2,\)"),
        (
            {"cost": -torch.ones(3, 3)},
            r"cost must be at least 0; got -1\. Add a constant to all costs",
        ),
        (
            {"cost": torch.full((3, 3), torch.nan)},
            r"cost must be finite; got nan at row 0, column 0",
        ),
    ],
)
def test_what_is_no_transport_problem_is_refused(change: dict[str, Tensor], message: str) -> None:
    problem = {"cost": torch.ones(3, 3), "a": torch.ones(3) / 3, **change}
    with pytest.raises(InputError, match=message):
        exact_transport(problem["cost"], problem["a"])
    with pytest.raises(InputError, match=message):
        sinkhorn(problem["cost"], problem["a"], epsilon=1.0)


def test_an_epsilon_too_small_for_the_precision_is_refused(generator: torch.Generator) -> None:
    c = cost_matrix(*points(generator, 5, 5)).float()
    with pytest.raises(
        InputError,
        match=r"epsilon must be at least .* for a marginal error of 0\.0001 in torch\.float32 .* "
        r"Use float64",
    ):
        sinkhorn(c, epsilon=1e-6)
    with pytest.raises(InputError, match=r"epsilon must be a finite number above 0; got 0"):
        sinkhorn(c, epsilon=0.0)


def test_what_did_not_converge_says_so(generator: torch.Generator) -> None:
    x, y = points(generator, 30, 30)
    found = sinkhorn(cost_matrix(x, y), epsilon=0.01, iterations=40)
    assert (
        not found.converged
        and found.quantity().verdict == "do not publish"
        and found.quantity().kind == "lower"
    )
    with pytest.raises(
        InputError,
        match=r"iterations must suffice between x and y; got a marginal error of .* Allow more "
        r"iterations",
    ):
        sinkhorn_divergence(x, y, epsilon=0.01, iterations=40)


@pytest.mark.parametrize("iterations", [1, 2, 7, 40, 61])
def test_the_value_is_a_lower_bound_wherever_it_stops(
    iterations: int, generator: torch.Generator
) -> None:
    """Also where the iterations end before epsilon has come down to the one asked for, whose value
    is the largest that may be claimed.
    """
    c = cost_matrix(*points(generator, 8, 9))
    best = sinkhorn(c, epsilon=0.05, tolerance=1e-9, iterations=50_000)
    found = sinkhorn(c, epsilon=0.05, tolerance=1e-9, iterations=iterations)
    assert best.converged and not found.converged and found.iterations == iterations
    assert found.value.item() <= best.value.item()
    assert float((found.plan(c).sum(1) - 1 / 8).abs().sum()) == pytest.approx(found.error, abs=1e-9)


def test_weights_of_zero(generator: torch.Generator) -> None:
    x, y = points(generator, 5, 6)
    c, a = cost_matrix(x, y), torch.tensor([0.5, 0.0, 0.5, 0.0, 0.0], dtype=torch.float64)
    kept = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert sinkhorn(c, a, epsilon=0.2).value.item() == pytest.approx(
        sinkhorn(c[[0, 2]], kept, epsilon=0.2).value.item(), abs=1e-6
    )
    assert exact_transport(c, a).value.item() == pytest.approx(
        exact_transport(c[[0, 2]], kept).value.item(), abs=1e-12
    )
    p = x.clone().requires_grad_()
    slope = torch.autograd.grad(sinkhorn(cost_matrix(p, y), a, epsilon=0.2).value, p)[0]
    assert torch.isfinite(slope).all() and (slope[a == 0] == 0).all()


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_at_equality_there_is_no_slope_and_no_nan(power: float, generator: torch.Generator) -> None:
    x, _ = points(generator, 6, 6)
    p = x.clone().requires_grad_()
    assert torch.isfinite(torch.autograd.grad(wasserstein(p, x, power=power), p)[0]).all()


def test_whole_numbers_and_nothing_are_refused() -> None:
    whole = torch.ones(2, 2, dtype=torch.int64)
    for call in (lambda: exact_transport(whole), lambda: sinkhorn(whole, epsilon=1.0)):
        with pytest.raises(
            InputError,
            match=r"cost must be of a floating dtype; got torch\.int64\. Use cost\.double\(\)\.",
        ):
            call()
    with pytest.raises(InputError, match=r"x must hold at least one value; got shape \(0,\)"):
        line_transport(torch.zeros(0), torch.zeros(0))


def test_solvers_are_named() -> None:
    with pytest.raises(InputError, match=r"solver='assignment' must go with even weights"):
        exact_transport(torch.ones(2, 3), solver="assignment")
    with pytest.raises(InputError, match=r"solver must be one of 'auto', 'pot'"):
        exact_transport(torch.ones(2, 2), solver="simplex")
