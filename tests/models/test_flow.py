"""Normalizing flows: inverses, determinants, mass, a known truth, images, bad columns. Everything in float64."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor
from torch.distributions import TransformedDistribution

import partita
from partita.core.errors import InputError
from partita.core.quantity import bits_per_dimension
from partita.data import as_rows
from partita.models import Flow
from partita.models.directed.flow import Dequantised, evaluate_levels, masks
from partita.models.directed.flow.layers import ActNorm, Logit, Mixing, Permutation
from partita.models.directed.flow.splines import inverse_spline, knots, spline
from partita.models.directed.flow.verify import coverage_of_masks
from partita.training.loop import PartitaWarning

FLOWS: dict[str, dict[str, Any]] = {
    "one column, affine": {"visible": 1, "layers": 2},
    "one column, spline": {"visible": 1, "layers": 2, "coupling": "spline"},
    "plane, affine": {"visible": 2, "layers": 4, "widths": (16, 16)},
    "plane, spline": {"visible": 2, "layers": 2, "coupling": "spline", "widths": (16,)},
    "plane, logit": {"visible": 2, "layers": 2, "widths": (16,), "levels": 4.0},
    "plane, conditional": {"visible": 2, "layers": 2, "widths": (16,), "context": 3},
    "five columns, permutations": {"visible": 5, "layers": 3, "widths": (16,), "mixing": "permutation"},
    "five columns, reversed": {"visible": 5, "layers": 2, "widths": (16,), "mixing": "reverse", "activation": "silu"},
    "six columns, spline": {"visible": 6, "layers": 3, "widths": (16,), "coupling": "spline", "bins": 4},
    "images": {"visible": 32, "layers": 4, "widths": (8,), "image": (2, 4, 4)},
    "images, spline": {"visible": 16, "layers": 4, "widths": (8,), "image": (1, 4, 4), "coupling": "spline", "bins": 4},
}


def make(name: str, generator: torch.Generator, spread: float = 0.1) -> Flow:
    """A flow with every parameter away from where it starts."""
    flow = Flow(**FLOWS[name], generator=generator)
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(spread * torch.randn(p.shape, generator=generator))
    return flow.double()


def rows(flow: Flow, generator: torch.Generator, n: int = 20) -> tuple[Tensor, Tensor | None]:
    context = torch.randn(n, flow.context, generator=generator, dtype=torch.float64) if flow.context else None
    return flow.draw(n, context=context, generator=generator), context


@pytest.mark.parametrize("name", FLOWS)
def test_round_trip_determinant_mass_and_masks(name: str, generator: torch.Generator) -> None:
    flow = make(name, generator)
    x, context = rows(flow, generator)
    with torch.no_grad():
        z, log_det = flow.to_latent(x, context)
        torch.testing.assert_close(flow.to_data(z, context), x, atol=1e-10, rtol=0)
    first = None if context is None else context[:1]
    jacobian = torch.autograd.functional.jacobian(lambda row: flow.to_latent(row[None], first)[0][0], x[0])
    assert log_det[0].item() == pytest.approx(torch.linalg.slogdet(jacobian).logabsdet.item(), abs=1e-8)  # type: ignore[arg-type]
    found = flow.verify(generator=generator)
    assert found.passed and found.round_trip < 1e-10 and found.log_det < 1e-8
    assert (abs(found.mass - 1) < 1e-3) if flow.visible <= 2 else math.isnan(found.mass)


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_is_a_torch_distribution(name: str, generator: torch.Generator) -> None:
    flow = make(name, generator)
    x, context = rows(flow, generator)
    distribution = flow.distribution(context)
    assert isinstance(distribution, TransformedDistribution)
    torch.testing.assert_close(distribution.log_prob(x), flow.log_prob(x, context), atol=1e-10, rtol=0)
    with partita.core.rng.seeded(generator):
        draw = distribution.rsample(torch.Size([20]) if context is None else torch.Size())
    assert draw.shape[-1] == flow.visible and draw.requires_grad
    assert torch.isfinite(distribution.log_prob(draw)).all()


def test_verify_sees_what_is_wrong(generator: torch.Generator) -> None:
    flow = make("plane, affine", generator)
    broken = make("plane, affine", generator)
    layer = next(layer for layer in broken.chain if isinstance(layer, ActNorm))
    layer.to_latent = lambda x, context=None: (x * 1.1, x.new_zeros(()))  # type: ignore[method-assign]
    found = broken.verify(generator=generator)
    assert flow.verify(generator=generator).passed
    assert not found.passed and found.round_trip > 1e-3 and found.log_det > 1e-3 and abs(found.mass - 1) > 1e-3
    still = Flow(3, 1, widths=(8,), generator=generator)  # one layer keeps some columns where they are
    assert not still.verify(generator=generator).moved


@pytest.mark.parametrize("mixing", ["none", "reverse", "permutation", "lu"])
def test_two_layers_cover_all_columns(mixing: str, generator: torch.Generator) -> None:
    for visible in (2, 3, 7):
        for _ in range(5):
            assert coverage_of_masks(Flow(visible, 2, widths=(4,), mixing=mixing, generator=generator)) == (True, True)


def test_a_new_flow_of_splines_is_a_normal_distribution(generator: torch.Generator) -> None:
    flow = Flow(3, 3, "spline", generator=generator).double()
    x = torch.randn(10, 3, generator=generator, dtype=torch.float64)
    expected = multivariate_normal(np.zeros(3)).logpdf(x)
    np.testing.assert_allclose(flow.log_prob(x).detach(), expected, atol=1e-9)


def test_splines_are_monotone_and_the_identity_outside(generator: torch.Generator) -> None:
    raw = 2 * torch.randn(23, generator=generator, dtype=torch.float64)
    x = torch.linspace(-7, 7, 2001, dtype=torch.float64)
    at = knots(raw[:, None], 8, 5.0)
    y, log_slope = spline(x, at)
    assert (y.diff() > 0).all() and torch.equal(y[x.abs() >= 5], x[x.abs() >= 5])
    y.requires_grad_()
    back = inverse_spline(y, at)
    torch.testing.assert_close(back, x, atol=1e-10, rtol=0)
    torch.testing.assert_close(torch.autograd.grad(back.sum(), y)[0].log(), -log_slope, atol=1e-8, rtol=0)
    x = x.clone().requires_grad_()
    slope = torch.autograd.grad(spline(x, at)[0].sum(), x)[0]
    torch.testing.assert_close(slope.log(), log_slope.detach(), atol=1e-9, rtol=0)


def test_layers(generator: torch.Generator) -> None:
    x = (torch.randn(200, 4, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 5.0, 0.1, 2.0]) + 3).mT
    norm = ActNorm(4, generator=generator).double()
    norm.fit_to(x)
    z, _ = norm.to_latent(x)
    torch.testing.assert_close(z.mean(1), torch.zeros(4).double(), atol=1e-10, rtol=0)
    torch.testing.assert_close(z.std(1), torch.ones(4).double(), atol=1e-10, rtol=0)
    mix = Mixing(4, generator=generator).double()
    assert torch.equal(mix.to_latent(x)[0], Permutation(mix.order).to_latent(x)[0])  # at the start


def test_masks() -> None:
    board = masks.checkerboard((1, 4, 4), 0).view(4, 4).int()
    assert board.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    assert torch.equal(masks.checkerboard((2, 3, 5), 1), ~masks.checkerboard((2, 3, 5), 0))
    halves = torch.nn.functional.pixel_unshuffle(masks.channelwise((1, 4, 4), 0).view(1, 4, 4).float(), 2)
    assert halves.flatten(1).tolist() == [[1.0] * 4, [1.0] * 4, [0.0] * 4, [0.0] * 4]  # whole channels after squeezing


def gaussian(generator: torch.Generator, n: int) -> tuple[Tensor, Any]:
    factor = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.4, 0.3, 2.0]], dtype=torch.float64)
    mean = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64) @ factor.mT + mean
    return x, multivariate_normal(mean.numpy(), (factor @ factor.mT).numpy())


def test_a_flow_fitted_to_a_gaussian_reaches_its_likelihood(generator: torch.Generator) -> None:
    """The paired difference from the truth on fresh rows is within the standard error of the truth's own mean."""
    x, truth = gaussian(generator, 4000)
    test, _ = gaussian(generator, 2000)
    flow = Flow(3, 3, widths=(16,), generator=generator)
    run = partita.fit(flow, x, steps=600, batch_size=200, learning_rate=3e-3, generator=generator)
    q = partita.evaluate(flow, test, generator=generator)
    exact = truth.logpdf(test.numpy())
    assert run.config["objective"]["part"] == "ExactLikelihood" and q.kind == "exact"
    assert abs(q.value - exact.mean()) < exact.std() / math.sqrt(len(test))


def test_a_conditional_flow_learns_the_conditional(generator: torch.Generator) -> None:
    """Rows are x followed by its context; the truth is N(2 c, 0.5^2)."""
    c = torch.randn(3000, 1, generator=generator)
    table = torch.cat([2 * c + 0.5 * torch.randn(3000, 1, generator=generator), c], 1)
    flow = Flow(1, 2, widths=(16,), context=1, generator=generator)
    partita.fit(flow, table[:2000], steps=500, batch_size=200, learning_rate=1e-2, generator=generator)
    exact = torch.distributions.Normal(2 * table[2000:, 1], 0.5).log_prob(table[2000:, 0]).mean()
    assert partita.evaluate(flow, table[2000:], generator=generator).value == pytest.approx(exact.item(), abs=0.05)
    context = torch.full((4000, 1), 1.5)
    draws = flow.draw(4000, context=context, generator=generator)
    assert draws.mean().item() == pytest.approx(3.0, abs=0.1) and draws.std().item() == pytest.approx(0.5, abs=0.05)
    with pytest.raises(InputError, match=r"context must have shape \(5, 1\); got None"):
        flow.draw(5, generator=generator)


def test_preprocessing_conserves_mass(generator: torch.Generator) -> None:
    """The log-determinant cancels that of the way back, by autograd, and the density of grey levels integrates to one over [0, K]."""
    layer = Logit(4.0, 1e-6)
    x = 4 * torch.rand(3, 50, generator=generator, dtype=torch.float64)
    z, there = layer.to_latent(x)
    z.requires_grad_()
    back = layer.to_data(z)
    here = torch.autograd.grad(back.sum(), z)[0].log().sum(0)
    torch.testing.assert_close(back, x, atol=1e-9, rtol=0)
    torch.testing.assert_close(here, -there, atol=1e-9, rtol=0)
    flow = make("plane, logit", generator)
    axis = (torch.arange(800, dtype=torch.float64) + 0.5) / 800 * 4
    with torch.no_grad():
        mass = flow.log_prob(torch.cartesian_prod(axis, axis)).exp().sum() * (4 / 800) ** 2
    assert mass.item() == pytest.approx(1, abs=1e-3)


def test_masses_of_grey_levels_sum_to_at_most_one(generator: torch.Generator) -> None:
    """With many draws of the noise the bound meets the mass: over all 9 states the sum is one but for what it loses."""
    flow = make("plane, logit", generator)
    flow = Flow(**{**flow.settings(), "levels": 3.0}, generator=generator)
    states = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))
    q = evaluate_levels(flow, states, 3, draws=2000, generator=generator)
    assert q.kind == "lower" and q.details["rows"].exp().sum().item() == pytest.approx(1, abs=0.02)
    few = evaluate_levels(flow, states, 3, draws=2, generator=generator)
    assert few.value < q.value + 0.05
    assert bits_per_dimension(q, 2).kind == "upper"


def test_dequantised_rows(generator: torch.Generator) -> None:
    x = torch.randint(0, 4, (500, 3), generator=generator)
    data = Dequantised(x.numpy(), 4)
    batch = data.batch(torch.arange(500), generator=generator).x
    assert torch.equal(batch.floor(), x.float()) and not torch.equal(batch, data.batch(torch.arange(500), generator=generator).x)
    assert data.mean().numpy() == pytest.approx(x.double().mean(0).numpy() + 0.5)
    assert data.variance().numpy() == pytest.approx(x.double().var(0, correction=0).numpy() + 1 / 12)
    flow = Flow(3, 2, widths=(8,), levels=4.0, generator=generator)
    run = partita.fit(flow, data, steps=30, batch_size=100, generator=generator)
    assert all(math.isfinite(record["model"]) for record in run.history)
    with pytest.raises(InputError, match=r"x must hold whole numbers from 0 to 3; got 4 at row 0"):
        Dequantised(np.full((2, 2), 4), 4)


def test_data_on_the_boundary_are_refused(generator: torch.Generator) -> None:
    flow = Flow(2, 2, widths=(4,), levels=1.0, alpha=0.0, generator=generator)
    with pytest.raises(InputError, match=r"x must lie strictly between 0 and 1 for its logit; got 0 in column 1\. Dequantise grey levels"):
        flow.log_prob(torch.tensor([[0.5, 0.0]]))
    inside = Flow(2, 2, widths=(4,), levels=1.0, generator=generator)
    assert torch.isfinite(inside.log_prob(torch.tensor([[0.0, 1.0]]))).all()
    for wrong, shown in ((1.5, r"1\.5"), (math.nan, "nan")):
        with pytest.raises(InputError, match=rf"x must lie between 0 and 1 for its logit; got {shown} in column 0"):
            inside.log_prob(torch.tensor([[wrong, 0.5]]))
    last = torch.tensor([[0.5, 1 - 2.0**-24]])  # the number before one
    assert torch.isfinite(flow.log_prob(last)).all()


def test_draws_past_the_ends_of_a_logit_come_back_to_them(generator: torch.Generator) -> None:
    """A flow that puts much mass there: its draws still have a density, in both precisions, and no nan."""
    for dtype in (torch.float32, torch.float64):
        flow = Flow(2, 2, widths=(4,), levels=4.0, generator=generator).to(dtype)
        flow.chain[1].m.data.fill_(-30.0)  # type: ignore[union-attr]
        x = flow.draw(50, generator=generator)
        assert (x == 4).any() and torch.isfinite(flow.log_prob(x)).all()
        ends = Flow(1, 1, levels=256.0, alpha=1e-9, generator=generator).to(dtype).log_prob(x.new_tensor([[256.0], [0.0]]))
        assert ends[0].item() == pytest.approx(ends[1].item(), rel=1e-6)
    assert flow.verify(generator=generator).mass < 0.5  # what lies past the ends is lost, and said


def test_outliers_do_not_run_away(generator: torch.Generator) -> None:
    """One row in five hundred lies far out in every column, as in real tables."""
    x = torch.randn(3000, 6, generator=generator)
    x[::500] *= 60
    flow = Flow(6, 8, widths=(64, 64), generator=generator)
    run = partita.fit(flow, x, steps=120, batch_size=256, learning_rate=3e-3, generator=generator)
    assert run.stopped == "finished" and run.history[-1]["model"] < 12 and torch.isfinite(flow.log_prob(x)).all()


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_learning_does_not_depend_on_the_units(scale: float, generator: torch.Generator) -> None:
    x = torch.randn(400, 2, generator=generator) + 5
    flow = Flow(2, 2, widths=(8,), generator=generator)
    run = partita.fit(flow, scale * x, steps=30, batch_size=100, generator=generator)
    assert run.history[-1]["model"] == pytest.approx(2 * math.log(scale) + math.log(2 * math.pi) + 1, abs=0.5)


def test_contexts_are_checked(generator: torch.Generator) -> None:
    conditional, plain = (Flow(2, 2, widths=(4,), context=c, generator=generator) for c in (3, 0))
    x = torch.zeros(5, 2)
    with pytest.raises(InputError, match=r"context must have shape \(\*, 3\); got \(5, 2\)"):
        conditional.log_prob(x, torch.zeros(5, 2))
    with pytest.raises(InputError, match=r"Flow.distribution: context must have shape \(\*, 3\); got None"):
        conditional.distribution()
    with pytest.raises(InputError, match=r"context must be None, for the flow is not conditional; got \(5, 3\)"):
        plain.log_prob(x, torch.zeros(5, 3))


def test_copies_are_named_in_small_tables_and_of_the_context(generator: torch.Generator) -> None:
    wide = torch.randn(20, 15, generator=generator).repeat(1, 2)
    assert "column 15 is a copy of column 0" in cautions(wide, generator)[0]
    x = torch.randn(100, 2, generator=generator)
    rows, flow = as_rows(torch.cat([x, -x[:, 1:]], 1)), Flow(2, 2, widths=(4,), context=1, generator=generator)
    assert "column 1 is a copy of column 0 of the context" in flow.cautions(rows, generator=generator)[0]
    years = torch.cat([torch.randn(3000, 1, generator=generator), torch.randint(0, 60, (3000, 1), generator=generator)], 1)
    assert "column 1 has 60 different values in 3000 rows, so it is discrete" in cautions(years, generator)[0]


def cautions(x: Tensor, generator: torch.Generator) -> list[str]:
    return Flow(x.shape[1], 2, widths=(4,), generator=generator).cautions(as_rows(x), generator=generator)


def test_degenerate_columns_are_named(generator: torch.Generator) -> None:
    x = torch.randn(300, 3, generator=generator)
    assert cautions(x, generator) == []
    assert "column 3 is a copy of column 1, so the density is degenerate" in cautions(torch.cat([x, 2 * x[:, 1:2] + 1], 1), generator)[0]
    assert "column 3 is a linear function of the columns before it" in cautions(torch.cat([x, x.sum(1, keepdim=True)], 1), generator)[0]
    discrete = torch.cat([x[:, :1], torch.randint(0, 3, (300, 1), generator=generator).float()], 1)
    assert "column 1 takes one value" in cautions(discrete, generator)[0] and "dequantise it" in cautions(discrete, generator)[0]
    with pytest.warns(PartitaWarning, match="column 1 takes one value"):
        partita.fit(Flow(2, 2, widths=(4,), generator=generator), discrete, steps=2, generator=generator)


def test_settings_rebuild_the_flow(tmp_path: Any, generator: torch.Generator) -> None:
    for name in ("plane, spline", "images", "plane, logit"):
        flow = make(name, generator)
        again = Flow.from_settings(json.loads(json.dumps(flow.settings())), generator=generator).double()
        again.load_state_dict(flow.state_dict())
        x, _ = rows(flow, generator)
        assert torch.equal(again.log_prob(x), flow.log_prob(x))
    flow = Flow(2, 2, widths=(8,), generator=generator)
    x = torch.randn(60, 2, generator=generator)
    partita.fit(flow, x, steps=3, out=tmp_path / "run", generator=generator)
    assert torch.equal(partita.load(tmp_path / "run").model(x), flow(x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coupling": "additive"}, "coupling must be one of 'affine', 'spline'"),
        ({"mixing": "glow"}, "mixing must be one of"),
        ({"layers": 0}, "layers must be a whole number of at least 1; got 0"),
        ({"image": (1, 3, 3)}, r"image must have 2 values to match visible; got \(1, 3, 3\)"),
        ({"bins": 2000}, "bins must be at most 500; got 2000"),
        ({"alpha": 0.6}, r"alpha must lie in \[0, 0\.4\]; got 0\.6"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str, generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=message):
        Flow(**{"visible": 2, **settings}, generator=generator)


def test_width_is_checked(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"Flow.log_prob: x must have shape \(\*, 2\) to match Flow\(2, 8 affine.*; got \(3, 4\)"):
        Flow(2, generator=generator).log_prob(torch.zeros(3, 4))
