"""Warm-up and clipping against plain gradient steps written out."""

from typing import Any

import pytest
import torch
from torch import Tensor

import partita
from partita.models import MaskedAutoregressive
from partita.training import Settings
from partita.training.optimizers import learning_rate_at

RATE, D = 0.5, 3
PLAIN: dict[str, Any] = {
    "optimizer": "sgd",
    "learning_rate": RATE,
    "schedule": "constant",
    "average": 0.0,
    "batch_size": 0,
}


def rows() -> Tensor:
    return (
        torch.rand(40, D, generator=torch.Generator().manual_seed(3))
        < torch.tensor([0.2, 0.5, 0.9])
    ).double()


def model() -> MaskedAutoregressive:
    return MaskedAutoregressive(D, widths=(4,), generator=torch.Generator().manual_seed(4)).double()


def fitted(**options: Any) -> dict[str, Tensor]:
    found = model()
    partita.fit(
        found,
        rows(),
        **{**PLAIN, "initialize": False, **options},
        generator=torch.Generator().manual_seed(5),
    )
    return dict(found.state_dict())


def by_hand(rates: list[float], longest: float = torch.inf) -> dict[str, Tensor]:
    found = model()
    for rate in rates:
        gradient = torch.autograd.grad(-found.log_prob(rows()).mean(), list(found.parameters()))
        norm = float(torch.cat([g.flatten() for g in gradient]).norm())
        with torch.no_grad():
            for p, g in zip(found.parameters(), gradient, strict=True):
                p -= rate * min(1.0, longest / norm) * g
    return dict(found.state_dict())


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    # clipping adds 1e-6 to the norm
    return all(torch.allclose(a[name], b[name], rtol=0, atol=1e-6) for name in b)


def test_the_rate_rises_over_its_share_of_the_steps() -> None:
    assert same(fitted(steps=4, warm_up=0.5), by_hand([RATE / 3, 2 * RATE / 3, RATE, RATE]))
    assert not same(fitted(steps=4), by_hand([RATE / 3, 2 * RATE / 3, RATE, RATE]))


def test_after_the_warm_up_the_schedule_is_the_usual_one() -> None:
    usual = Settings(steps=100, schedule="cosine", learning_rate=RATE)
    warm = Settings(steps=100, schedule="cosine", learning_rate=RATE, warm_up=0.1)
    assert [learning_rate_at(step, 100, warm) for step in range(10, 100)] == [
        learning_rate_at(step, 100, usual) for step in range(10, 100)
    ]
    rising = [learning_rate_at(step, 100, warm) for step in range(11)]
    assert rising == sorted(rising) and rising[0] == pytest.approx(RATE / 11)


def test_gradients_are_shortened_to_the_clip_per_column_and_never_lengthened() -> None:
    assert same(fitted(steps=3, clip=0.01), by_hand([RATE] * 3, 0.01 * D))
    assert not same(fitted(steps=3), by_hand([RATE] * 3, 0.01 * D))
    assert same(fitted(steps=3, clip=1e3), by_hand([RATE] * 3))
