"""Functions as energy models: coordinates, paths, budgets, and what callers get wrong."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, Uniform

from partita.core.batched import Batched
from partita.core.protocols import in_double
from partita.core.support import Binary, Count, Interval, Product, Real, Support
from partita.errors import OutOfBudget, Unsupported
from partita.evaluators import Enumeration, Quadrature
from partita.models.energy.coordinates import Prior
from partita.models.energy.target import Budget, Target


def bell(x: Tensor) -> Tensor:
    return -0.5 * ((x - 3) / 0.5).square().sum(-1) + 2


def target(support: Support, f: object = bell) -> Target:
    return Target(Batched(f, support.width), support)  # type: ignore[arg-type]


def test_the_density_of_u_carries_the_jacobian() -> None:
    model = target(Interval(2, 0.0, math.inf), lambda x: -x.sum(-1))
    u = torch.tensor([[0.3, -1.2]], dtype=torch.float64)
    assert float(model.free_energy(u)) == pytest.approx(float((u.exp() - u).sum()))
    assert torch.allclose(model.inner(model.outer(u)), u)


def test_an_integral_over_an_interval_is_that_of_the_caller() -> None:
    model = target(Interval(2, 0.0, 2.0), lambda x: x.sum(-1))
    q = Quadrature()(model)
    assert q.value == pytest.approx(2 * math.log(math.e**2 - 1), abs=1e-5)


def test_under_a_prior_log_z_is_the_evidence() -> None:
    prior = Prior("log_z", [Normal(0.0, 5.0), Uniform(0.0, 10.0)])
    q = Quadrature()(Target(Batched(bell, 2), Real(2), prior))
    first = float(Normal(0.0, math.sqrt(25.25)).log_prob(torch.tensor(3.0)))
    second = math.log(math.erf(6 / math.sqrt(2)) / 10)
    each = 0.5 * math.log(2 * math.pi) + math.log(0.5)
    assert q.value == pytest.approx(2 + 2 * each + first + second, abs=1e-5)


def test_a_path_leads_from_the_reference_to_the_function() -> None:
    model = target(Real(3)).beginning_at(torch.ones(3).double(), torch.eye(3).double() * 4)
    u = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    field = model.field(u)
    ends = [model.energy_along(field, torch.tensor(b).double()) for b in (0.0, 1.0)]
    assert torch.allclose(ends[0], model.reference().free_energy(u))
    assert torch.allclose(ends[1], model.free_energy(u))
    assert torch.allclose(ends[1], -bell(u))


def test_a_discrete_function_is_summed() -> None:
    model = target(Binary(6), lambda x: 2 * x[..., 0] - x.sum(-1))
    q = Enumeration()(model, generator=torch.Generator())
    assert q.kind == "exact"
    assert q.value == pytest.approx(
        math.log(1 + math.e) + 5 * math.log(1 + math.exp(-1)), abs=1e-12
    )


def test_numpy_and_single_rows_are_the_same_function() -> None:
    u = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)).double()
    by_row = target(Real(3), lambda x: float(-0.5 * np.sum(((np.asarray(x) - 3) / 0.5) ** 2) + 2))
    assert torch.allclose(by_row.free_energy(u), target(Real(3)).free_energy(u))
    assert by_row.log_density.how == "row by row"
    assert not by_row.differentiable


def test_slopes_reach_through_coordinates_and_prior() -> None:
    prior = Prior("log_z", [Normal(0.0, 5.0), Uniform(0.0, 10.0)])
    model = Target(Batched(bell, 2), Real(2), prior)
    u = torch.tensor([[0.3, -0.4]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(model.free_energy(u).sum(), u)
    h = 1e-6 * torch.eye(2, dtype=torch.float64)
    with torch.no_grad():
        rise = (model.free_energy(u + h) - model.free_energy(u - h)) / 2e-6
    assert torch.allclose(slope[0], rise, rtol=1e-5)


def test_nan_and_what_lies_beyond_float64_are_zero_density() -> None:
    model = target(Interval(1, 0.0, math.inf), lambda x: torch.where(x[:, 0] > 5, math.nan, 0.0))
    u = torch.tensor([[0.0], [3.0], [1e6]], dtype=torch.float64)
    assert model.free_energy(u).tolist() == [0.0, math.inf, math.inf]
    assert model.log_density.nans == 1


def test_a_copy_in_double_shares_the_function() -> None:
    model = target(Real(2))
    in_double(model).free_energy(torch.zeros(3, 2).double())
    assert model.log_density.calls > 0


def test_a_budget_ends_evaluations() -> None:
    model = Target(Batched(bell, 2), Real(2), None, Budget(evaluations=100))
    u = torch.zeros(60, 2).double()
    model.free_energy(u)
    model.log_density.calls = 100
    with pytest.raises(OutOfBudget, match="100 evaluations are spent"):
        model.free_energy(u)


@pytest.mark.parametrize("support", [Count(3), Product([Real(1), Binary(2)])])
def test_a_support_that_has_no_way_is_named(support: Support) -> None:
    with pytest.raises(Unsupported, match="log_z cannot run on"):
        target(support)
