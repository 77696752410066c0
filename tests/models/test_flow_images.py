"""Gray levels as real numbers: preprocessing that conserves mass, masses below one, the ends of a
logit.
"""

import math

import numpy as np
import pytest
import torch
from tests.models.flows import make

import partita
from partita.core.quantity import bits_per_dimension
from partita.errors import InputError
from partita.models import Flow
from partita.models.directed.flow import Dequantized, evaluate_levels, masks
from partita.models.directed.flow.layers import Logit


def test_masks() -> None:
    board = masks.checkerboard_mask((1, 4, 4), 0).view(4, 4).int()
    assert board.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    assert torch.equal(
        masks.checkerboard_mask((2, 3, 5), 1), ~masks.checkerboard_mask((2, 3, 5), 0)
    )
    halves = torch.nn.functional.pixel_unshuffle(
        masks.channelwise((1, 4, 4), 0).view(1, 4, 4).float(), 2
    )
    # whole channels after squeezing
    assert halves.flatten(1).tolist() == [[1.0] * 4, [1.0] * 4, [0.0] * 4, [0.0] * 4]


def test_preprocessing_conserves_mass(generator: torch.Generator) -> None:
    """The log-determinant cancels that of the way back, by autograd, and the density of gray levels
    integrates to one over [0, K].
    """
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


def test_masses_of_gray_levels_sum_to_at_most_one(generator: torch.Generator) -> None:
    """With many draws of the noise the bound meets the mass: over all 9 states the sum is one but
    for what it loses.
    """
    flow = make("plane, logit", generator)
    flow = Flow(**{**flow.settings(), "levels": 3.0}, generator=generator)
    states = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))
    q = evaluate_levels(flow, states, 3, draws=2000, generator=generator)
    assert q.kind == "lower" and q.details["rows"].exp().sum().item() == pytest.approx(1, abs=0.02)
    few = evaluate_levels(flow, states, 3, draws=2, generator=generator)
    assert few.value < q.value + 0.05
    # two draws of the noise cannot know how much they miss
    assert (q.verdict, few.verdict) == ("tight", "do not publish")
    assert bits_per_dimension(q, 2).kind == "upper"


def test_dequantized_rows(generator: torch.Generator) -> None:
    x = torch.randint(0, 4, (500, 3), generator=generator)
    data = Dequantized(x.numpy(), 4)
    batch = data.batch(torch.arange(500), generator=generator).x
    assert torch.equal(batch.floor(), x.float()) and not torch.equal(
        batch, data.batch(torch.arange(500), generator=generator).x
    )
    assert data.mean().numpy() == pytest.approx(x.double().mean(0).numpy() + 0.5)
    assert data.variance().numpy() == pytest.approx(
        x.double().var(0, correction=0).numpy() + 1 / 12
    )
    flow = Flow(3, 2, widths=(8,), levels=4.0, generator=generator)
    run = partita.fit(flow, data, steps=30, batch_size=100, generator=generator)
    assert all(math.isfinite(record["model"]) for record in run.history)
    with pytest.raises(InputError, match=r"x must hold whole numbers from 0 to 3; got 4 at row 0"):
        Dequantized(np.full((2, 2), 4), 4)


def test_levels_given_a_context(generator: torch.Generator) -> None:
    """Noise goes to the levels alone, and given each context their masses sum to one."""
    states = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))
    table = torch.cat([states, torch.full((9, 1), -0.7)], 1)
    data = Dequantized(table.numpy(), 3, context=1)
    batch = data.batch(torch.arange(9), generator=generator).x
    assert torch.equal(batch[:, 2], table[:, 2]) and torch.equal(batch[:, :2].floor(), states)
    assert data.mean().tolist() == pytest.approx([1.5, 1.5, -0.7])
    flow = Flow(2, 2, widths=(16,), context=1, levels=3.0, generator=generator)
    q = evaluate_levels(flow, table, 3, draws=2000, generator=generator)
    assert q.details["rows"].exp().sum().item() == pytest.approx(1, abs=0.02)
    with pytest.raises(
        InputError,
        match=r"Dequantized: context must leave some of the 3 columns for gray levels; got 3\.",
    ):
        Dequantized(table.numpy(), 3, context=3)


def test_data_on_the_boundary_are_refused(generator: torch.Generator) -> None:
    flow = Flow(2, 2, widths=(4,), levels=1.0, alpha=0.0, generator=generator)
    with pytest.raises(
        InputError,
        match=r"x must lie strictly between 0 and 1 for its logit; got 0 in column 1\. Dequantize "
        r"gray levels",
    ):
        flow.log_prob(torch.tensor([[0.5, 0.0]]))
    inside = Flow(2, 2, widths=(4,), levels=1.0, generator=generator)
    assert torch.isfinite(inside.log_prob(torch.tensor([[0.0, 1.0]]))).all()
    for wrong, shown in ((1.5, r"1\.5"), (math.nan, "nan")):
        with pytest.raises(
            InputError, match=rf"x must lie between 0 and 1 for its logit; got {shown} in column 0"
        ):
            inside.log_prob(torch.tensor([[wrong, 0.5]]))
    last = torch.tensor([[0.5, 1 - 2.0**-24]])  # the number before one
    assert torch.isfinite(flow.log_prob(last)).all()


def test_draws_past_the_ends_of_a_logit_come_back_to_them(generator: torch.Generator) -> None:
    """A flow that puts much mass there: its draws still have a density, in both precisions, and no
    nan.
    """
    for dtype in (torch.float32, torch.float64):
        flow = Flow(2, 2, widths=(4,), levels=4.0, generator=generator).to(dtype)
        flow.chain[1].m.data.fill_(-30.0)  # type: ignore[union-attr]
        x = flow.draw(50, generator=generator)
        assert (x == 4).any() and torch.isfinite(flow.log_prob(x)).all()
        ends = (
            Flow(1, 1, levels=256.0, alpha=1e-9, generator=generator)
            .to(dtype)
            .log_prob(x.new_tensor([[256.0], [0.0]]))
        )
        assert ends[0].item() == pytest.approx(ends[1].item(), rel=1e-6)
    assert flow.verify(generator=generator).mass < 0.5  # what lies past the ends is lost, and said
