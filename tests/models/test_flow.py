"""Normalizing flows: inverses, determinants, mass, masks, as a distribution of torch, settings.
Everything in float64.
"""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from tests.models.flows import FLOWS, make, rows
from torch.distributions import TransformedDistribution

import partita
from partita.errors import InputError
from partita.models import Flow
from partita.models.directed.flow.layers import ActNorm, LinearMixing, Permutation
from partita.models.directed.flow.splines import inverse_spline, knots, spline
from partita.models.directed.flow.verify import coverage_of_masks


@pytest.mark.parametrize("name", FLOWS)
def test_round_trip_determinant_mass_and_masks(name: str, generator: torch.Generator) -> None:
    flow = make(name, generator)
    x, context = rows(flow, generator)
    with torch.no_grad():
        z, log_det = flow.to_latent(x, context)
        torch.testing.assert_close(flow.to_data(z, context), x, atol=1e-10, rtol=0)
    first = None if context is None else context[:1]
    jacobian = torch.autograd.functional.jacobian(
        lambda row: flow.to_latent(row[None], first)[0][0], x[0]
    )
    assert log_det[0].item() == pytest.approx(
        torch.linalg.slogdet(jacobian).logabsdet.item(), abs=1e-8
    )  # type: ignore[arg-type]
    found = flow.verify(generator=generator)
    assert found.passed and found.round_trip < 1e-10 and found.log_det < 1e-8
    assert (abs(found.mass - 1) < 1e-3) if flow.visible <= 2 else math.isnan(found.mass)


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_is_a_torch_distribution(name: str, generator: torch.Generator) -> None:
    flow = make(name, generator)
    x, context = rows(flow, generator)
    distribution = flow.distribution(context)
    assert isinstance(distribution, TransformedDistribution)
    torch.testing.assert_close(
        distribution.log_prob(x), flow.log_prob(x, context), atol=1e-10, rtol=0
    )
    with partita.core.rng.seeded(generator):
        draw = distribution.rsample(torch.Size([20]) if context is None else torch.Size())
    assert draw.shape[-1] == flow.visible and draw.requires_grad
    assert torch.isfinite(distribution.log_prob(draw)).all()


def test_a_distribution_follows_the_weights(generator: torch.Generator) -> None:
    """It is made once and asked again about the same rows after an update: nothing of before may be
    kept.
    """
    flow = make("plane, affine", generator)
    x, _ = rows(flow, generator)
    distribution = flow.distribution()
    before = distribution.log_prob(x)
    with torch.no_grad():
        for p in flow.parameters():
            p.mul_(1.2)
    after = distribution.log_prob(x)
    torch.testing.assert_close(after, flow.log_prob(x), atol=1e-10, rtol=0)
    assert not torch.allclose(before, after)


def test_verify_sees_what_is_wrong(generator: torch.Generator) -> None:
    flow = make("plane, affine", generator)
    broken = make("plane, affine", generator)
    layer = next(layer for layer in broken.chain if isinstance(layer, ActNorm))
    layer.to_latent = lambda x, context=None: (x * 1.1, x.new_zeros(()))  # type: ignore[method-assign]
    found = broken.verify(generator=generator)
    assert flow.verify(generator=generator).passed
    assert (
        not found.passed
        and found.round_trip > 1e-3
        and found.log_det > 1e-3
        and abs(found.mass - 1) > 1e-3
    )
    # one layer keeps some columns where they are
    still = Flow(3, 1, widths=(8,), generator=generator)
    assert not still.verify(generator=generator).moved


@pytest.mark.parametrize("mixing", ["none", "reverse", "permutation", "lu"])
def test_two_layers_cover_all_columns(mixing: str, generator: torch.Generator) -> None:
    for visible in (2, 3, 7):
        for _ in range(5):
            assert coverage_of_masks(
                Flow(visible, 2, widths=(4,), mixing=mixing, generator=generator)
            ) == (True, True)


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
    torch.testing.assert_close(
        torch.autograd.grad(back.sum(), y)[0].log(), -log_slope, atol=1e-8, rtol=0
    )
    x = x.clone().requires_grad_()
    slope = torch.autograd.grad(spline(x, at)[0].sum(), x)[0]
    torch.testing.assert_close(slope.log(), log_slope.detach(), atol=1e-9, rtol=0)


def test_layers(generator: torch.Generator) -> None:
    x = (
        torch.randn(200, 4, generator=generator, dtype=torch.float64)
        * torch.tensor([1.0, 5.0, 0.1, 2.0])
        + 3
    ).mT
    norm = ActNorm(4, generator=generator).double()
    norm.fit_to(x)
    z, _ = norm.to_latent(x)
    torch.testing.assert_close(z.mean(1), torch.zeros(4).double(), atol=1e-10, rtol=0)
    torch.testing.assert_close(z.std(1), torch.ones(4).double(), atol=1e-10, rtol=0)
    mix = LinearMixing(4, generator=generator).double()
    assert torch.equal(mix.to_latent(x)[0], Permutation(mix.order).to_latent(x)[0])  # at the start


def test_contexts_are_checked(generator: torch.Generator) -> None:
    conditional, plain = (Flow(2, 2, widths=(4,), context=c, generator=generator) for c in (3, 0))
    x = torch.zeros(5, 2)
    with pytest.raises(InputError, match=r"context must have shape \(\*, 3\); got \(5, 2\)"):
        conditional.log_prob(x, torch.zeros(5, 2))
    with pytest.raises(
        InputError, match=r"Flow.distribution: context must have shape \(\*, 3\); got None"
    ):
        conditional.distribution()
    with pytest.raises(
        InputError, match=r"context must be None, for the flow is not conditional; got \(5, 3\)"
    ):
        plain.log_prob(x, torch.zeros(5, 3))


def test_settings_rebuild_the_flow(tmp_path: Any, generator: torch.Generator) -> None:
    for name in ("plane, spline", "images", "plane, logit"):
        flow = make(name, generator)
        again = Flow.from_settings(
            json.loads(json.dumps(flow.settings())), generator=generator
        ).double()
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
    with pytest.raises(
        InputError,
        match=r"Flow.log_prob: x must have shape \(\*, 2\) to match Flow\(2, 8 affine.*; got \(3, "
        r"4\)",
    ):
        Flow(2, generator=generator).log_prob(torch.zeros(3, 4))
