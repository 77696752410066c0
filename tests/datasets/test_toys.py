"""Toy sets against their known answers."""

import math
from collections.abc import Callable

import pytest
import torch
from scipy.stats import chi2, norm

from partita.datasets import toys
from partita.errors import InputError

FALSE_ALARM = 1e-4  # of each test below, at its fixed seed
N = 20_000


@pytest.mark.parametrize("side", [1, 2, 3, 4])
def test_bars_and_stripes_has_the_stated_entropy(side: int) -> None:
    x = toys.bars_and_stripes(side)
    _, count = x.unique(dim=0, return_counts=True)
    p = count.double() / count.sum()
    assert x.shape == (2 * 2**side, side**2)
    assert -(p * p.log()).sum().item() == pytest.approx(
        toys.bars_and_stripes_entropy(side), abs=1e-12
    )


def test_every_pattern_has_equal_rows_or_equal_columns() -> None:
    grid = toys.bars_and_stripes(4).reshape(-1, 4, 4)
    bars, stripes = (grid == grid[:, :1]).all((1, 2)), (grid == grid[:, :, :1]).all((1, 2))
    assert (bars | stripes).all()
    assert (int(bars.sum()), int(stripes.sum()), int((bars & stripes).sum())) == (18, 18, 4)


def test_the_eight_gaussians_have_the_stated_entropy(generator: torch.Generator) -> None:
    surprise = -toys.eight_gaussians_log_prob(toys.eight_gaussians(N, generator=generator).double())
    z = (surprise.mean() - toys.eight_gaussians_entropy()) / (surprise.std() / math.sqrt(N))
    assert abs(z.item()) < norm.isf(FALSE_ALARM / 2)
    # if the eight did not overlap
    apart = math.log(8) + math.log(2 * math.pi * math.e * toys.SPREAD**2)
    assert apart - 0.01 < toys.eight_gaussians_entropy() < apart


def test_the_eight_are_equally_likely(generator: torch.Generator) -> None:
    x = toys.eight_gaussians(N, generator=generator)
    octant = (torch.atan2(x[:, 1], x[:, 0]) / (math.pi / 4)).round().long() % 8
    count = octant.bincount(minlength=8).double()
    assert ((count - N / 8) ** 2 / (N / 8)).sum().item() < chi2.isf(FALSE_ALARM, 7)


def test_the_checkerboard_is_uniform_on_its_black_squares(generator: torch.Generator) -> None:
    x = toys.checkerboard(N, generator=generator)
    square = ((x + 4) / 2).floor().long()
    assert x.abs().max() <= 4
    assert ((square.sum(-1) % 2) == 0).all()
    fine = ((x + 4).floor().long() @ torch.tensor([8, 1])).bincount(minlength=64).double()
    black = fine[fine > 0]  # 32 unit squares
    assert len(black) == 32
    assert ((black - N / 32) ** 2 / (N / 32)).sum().item() < chi2.isf(FALSE_ALARM, 31)
    assert math.exp(toys.CHECKERBOARD_ENTROPY) == pytest.approx(32)


def test_moons_lie_near_their_circles(generator: torch.Generator) -> None:
    x = toys.moons(N, generator=generator).double()
    centers = torch.tensor([[0.0, 0.0], [1.0, 0.5]], dtype=torch.float64)
    distance = ((x[:, None] - centers).norm(dim=-1) - 1).abs().amin(1)
    assert distance.max().item() < 6 * toys.MOONS_NOISE
    assert distance.square().mean().sqrt().item() == pytest.approx(toys.MOONS_NOISE, rel=0.1)


@pytest.mark.parametrize("draw", [toys.moons, toys.eight_gaussians, toys.checkerboard])
def test_toys_depend_on_the_generator_alone(draw: Callable[..., torch.Tensor]) -> None:
    first, again, other = (
        draw(5, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (5, 2)
    assert first.dtype == torch.float32
    with pytest.raises(InputError, match=r"n must be a whole number of at least 1; got 0\."):
        draw(0, generator=torch.Generator())
