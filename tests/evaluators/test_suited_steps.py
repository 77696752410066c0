"""Chains that begin in narrow modes find steps that suit them."""

import math

import pytest
import torch
from tests.truth.hard_models import Density
from torch import Tensor

from partita.core.support import Real
from partita.evaluators import ReverseAIS, Sandwich
from partita.evaluators.partition.annealing import resolve_kernel
from partita.models import NeuralEnergy

CENTERS, SCALES = torch.tensor([[3.0, 0, 0, 0], [-3.0, 0, 0, 0]]), torch.tensor([0.2, 1.0])
LOG_SHARES = torch.tensor([0.3, 0.7]).log()


def two_wells(x: Tensor) -> Tensor:
    squares = (x[..., None, :] - CENTERS.to(x)).square().sum(-1) / SCALES.to(x).square()
    return -torch.logsumexp(LOG_SHARES.to(x) - 0.5 * squares - 4 * SCALES.to(x).log(), -1)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_rows_of_a_narrow_well_do_not_stop_the_sampler() -> None:
    model = NeuralEnergy(Density(two_wells), Real(4))
    rows = CENTERS[0] + 0.2 * torch.randn(200, 4, generator=seeded(1))
    q = ReverseAIS(start="data")(model, rows=rows, generator=seeded(0))
    assert q.verdict != "tight" and q.low <= 2 * math.log(2 * math.pi) <= q.high


def test_steps_that_suit_stay_as_they_are() -> None:
    model = NeuralEnergy(Density(two_wells), Real(4))
    kernel = resolve_kernel("AIS", None, model, generator=seeded(0))
    wide = CENTERS[1] + torch.randn(64, 4, generator=seeded(2))
    narrow = CENTERS[0] + 0.2 * torch.randn(64, 4, generator=seeded(2))
    assert kernel.suited_to(model, wide) == kernel
    _, longest, shortest = kernel.suited_to(model, narrow).schedule  # type: ignore[attr-defined]
    assert longest == kernel.schedule[1]  # type: ignore[attr-defined]
    assert shortest[-1] < 0.5 * longest[-1]


@pytest.mark.parametrize("rows", [True, False])
def test_scales_that_differ_a_hundredfold_are_scored(rows: bool) -> None:
    """It stopped with "no proposal accepted", with rows and without."""
    scales = torch.tensor([0.01, 1.0, 1.0, 10.0])
    model = NeuralEnergy(Density(lambda x: 0.5 * (x / scales.to(x)).square().sum(-1)), Real(4))
    known = scales * torch.randn(128, 4, generator=seeded(1)) if rows else None
    q = Sandwich()(model, rows=known, generator=seeded(0))
    truth = 2 * math.log(2 * math.pi) + float(scales.log().sum())
    assert q.verdict == ("tight" if rows else "loose")
    assert q.low <= truth <= q.high and q.width < 0.4
