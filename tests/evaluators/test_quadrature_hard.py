"""Quadrature on integrals built to be hard, whose log Z is known; nothing is random, so a failure
is no false alarm.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.integrate import quad
from torch import Tensor, nn

from partita.core.protocols import EnergyModel
from partita.core.support import Real
from partita.evaluators import Quadrature
from partita.models.energy.units import GaussianReference

LOG_2PI = math.log(2 * math.pi)


class Energy(EnergyModel):
    """Any function, with a standard normal reference that knows nothing of it."""

    def __init__(self, width: int, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.support = Real(width)
        self.f = f
        self.zero = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.register_anchors(width, self.zero)

    def free_energy(self, x: Tensor) -> Tensor:
        return self.f(x)

    def reference(self) -> GaussianReference:
        width = self.support.width
        return GaussianReference(self.zero.new_zeros(width), torch.eye(width, dtype=torch.float64))

    def initialize(self, data: Any, *, generator: torch.Generator) -> None: ...

    def settings(self) -> dict[str, Any]:
        return {}


def normals(*parts: tuple[float, list[float], float]) -> Callable[[Tensor], Tensor]:
    """-log of a mixture of (weight, center, deviation)."""
    w, c, s = (torch.tensor(column, dtype=torch.float64) for column in zip(*parts, strict=True))
    return lambda x: (
        -torch.logsumexp(
            w.log()
            - (x[..., None, :] - c).square().sum(-1) / (2 * s**2)
            - x.shape[-1] * (s.log() + LOG_2PI / 2),
            -1,
        )
    )


def ring(radius: float, w: float) -> tuple[Callable[[Tensor], Tensor], float]:
    z = quad(
        lambda r: r * math.exp(-0.5 * ((r - radius) / w) ** 2),
        max(0.0, radius - 12 * w),
        radius + 12 * w,
        points=[radius],
    )[0]
    return lambda x: (x.norm(dim=-1) - radius) ** 2 / (2 * w**2), math.log(2 * math.pi * z)


def banana(w: float) -> tuple[Callable[[Tensor], Tensor], float]:
    return (
        lambda x: x[..., 0] ** 2 / 2 + (x[..., 1] - x[..., 0] ** 2) ** 2 / (2 * w**2),
        LOG_2PI + math.log(w),
    )


def tilted(condition: float) -> tuple[Callable[[Tensor], Tensor], float]:
    turn = torch.tensor([[0.8, -0.6], [0.6, 0.8]], dtype=torch.float64)
    s = torch.tensor([1.0, condition**-0.5], dtype=torch.float64)
    return lambda x: (((x - 1) @ turn) / s).square().sum(-1) / 2, LOG_2PI + float(s.log().sum())


NEAR, FAR = [1.3, -0.7, 0.4], [8.0, -5.0, 3.0]
CASES: dict[str, tuple[int, Callable[[Tensor], Tensor], float]] = {
    **{
        f"well of width {s:g} in {d}-D": (d, normals((1.0, FAR[:d], s)), 0.0)
        for d, s in ((1, 1e-4), (2, 1e-3), (3, 1e-2))
    },
    **{
        f"needle of width {s:g} in {d}-D {where}": (
            d,
            normals((0.05, [0.0] * d, 1.0), (0.95, at[:d], s)),
            0.0,
        )
        for d, s in ((1, 1e-4), (2, 1e-3), (3, 1e-2))
        for where, at in (("inside", NEAR), ("outside", FAR))
    },
    "ring": (2, *ring(1.0, 0.01)),
    "banana": (2, *banana(0.1)),
    "thin banana": (2, *banana(0.03)),
    **{f"tilted by {condition:g}": (2, *tilted(condition)) for condition in (1e2, 1e6)},
    "corner": (2, lambda x: x.abs().sum(-1), 2 * math.log(2)),
    "slanted crease": (2, lambda x: (x - x.new_tensor([0.123, 0.314])).abs().amax(-1), math.log(8)),
    "pyramid": (
        2,
        lambda x: (x[..., 0] + x[..., 1]).abs() + (x[..., 0] - x[..., 1]).abs(),
        math.log(2),
    ),
    "heavy tail": (
        1,
        lambda x: 2 * torch.log1p(x[..., 0] ** 2 / 3),
        math.log(math.pi * math.sqrt(3) / 2),
    ),
    "ripples": (
        1,
        lambda x: x[..., 0] ** 2 / 2 + 3 * torch.cos(12 * x[..., 0]),
        math.log(quad(lambda u: math.exp(-u * u / 2 - 3 * math.cos(12 * u)), -9, 9, limit=2000)[0]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_hard_is_covered_and_trusted(name: str) -> None:
    """Within the interval, which is short, with no training rows known."""
    width, f, truth = CASES[name]
    q = Quadrature()(Energy(width, f))
    assert q.low - 1e-9 <= truth <= q.high + 1e-9, q
    assert q.verdict == "tight" and q.width < 0.02 and abs(q.value - truth) < 1e-4


def test_rows_that_miss_a_needle_do_not_hide_it() -> None:
    model = Energy(2, normals((0.3, [0.0, 0.0], 1.0), (0.7, NEAR[:2], 1e-3)))
    model.anchors.copy_(torch.randn(128, 2, generator=torch.Generator().manual_seed(0)))
    model.anchored.fill_(True)
    q = Quadrature()(model)
    assert q.verdict == "tight" and abs(q.value) < 1e-6


def test_what_cannot_be_resolved_is_not_to_be_published() -> None:
    f, truth = banana(1e-4)
    q = Quadrature(tolerance=1e-3)(Energy(2, lambda x: f(x)))
    assert not q.trusted and q.low <= truth <= q.high


def test_an_operation_without_bounds_is_trusted_only_where_rows_are_known() -> None:
    """Sorting has no rule here; the integral itself is easy."""
    model = Energy(2, lambda x: x.sort(-1).values.square().sum(-1))
    q = Quadrature()(model)
    assert (
        q.verdict == "do not publish"
        and q.high == math.inf
        and abs(q.value - math.log(math.pi)) < 1e-6
    )
    model.anchors.copy_(torch.randn(128, 2, generator=torch.Generator().manual_seed(0)))
    model.anchored.fill_(True)
    q = Quadrature()(model)
    assert (
        q.verdict == "loose"
        and q.low <= math.log(math.pi) <= q.high
        and "not all of space searched" in str(q)
    )
