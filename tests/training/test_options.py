"""Every option of a fit against the same arithmetic written out: schedules, penalties, weights,
averages, batches.
"""

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.by_hand import assert_weights, descend, fitted
from tests.training.small_fits import machine, rows
from torch import Tensor

import partita
from partita.core.support import Binary
from partita.models import MaxEnt
from partita.objectives import ExactLikelihood
from partita.training import Settings
from partita.training.optimizers import learning_rate_at


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        ("constant", lambda t: 1.0),
        ("linear", lambda t: 1 - t),
        ("cosine", lambda t: 0.5 * (1 + math.cos(math.pi * t))),
    ],
)
def test_steps_follow_the_schedule(schedule: str, shape: Any, momentum: float) -> None:
    x = rows(dtype=torch.float64)
    rates = [0.5 * shape(t / 7) for t in range(7)]
    assert_weights(
        fitted(x, 7, schedule=schedule, momentum=momentum), descend(x, rates, momentum)[-1]
    )
    settings = Settings(steps=7, learning_rate=0.5, schedule=schedule)  # type: ignore[arg-type]
    assert [learning_rate_at(t, 7, settings) for t in range(7)] == pytest.approx(rates)


@pytest.mark.parametrize(("l1", "l2"), [(0.1, 0.0), (0.0, 0.3), (0.05, 0.2)])
def test_penalties_pull_at_the_weights_and_not_at_the_biases(l1: float, l2: float) -> None:
    x = rows(dtype=torch.float64)
    assert_weights(fitted(x, 4, l1=l1, l2=l2), descend(x, [0.5] * 4, l1=l1, l2=l2)[-1])


def test_a_penalized_maxent_optimum_is_where_the_moments_differ_by_the_penalty(
    generator: torch.Generator,
) -> None:
    """All of theta is penalized: E_data[phi] - E_model[phi] = l2 theta, also where the plain
    optimum is at infinity.
    """
    # the first column is constant
    x = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    model = MaxEnt("pairwise", Binary(3), generator=generator).double()
    run = partita.fit(model, x, l2=0.1, generator=generator)
    states = torch.tensor(list(product([0.0, 1.0], repeat=3)), dtype=torch.float64)

    def pairs(v: torch.Tensor) -> torch.Tensor:
        products = [v[:, 0] * v[:, 1], v[:, 0] * v[:, 2], v[:, 1] * v[:, 2]]
        return torch.cat([v, torch.stack(products, 1)], 1)

    p = torch.softmax(pairs(states) @ model.theta.detach(), 0)
    torch.testing.assert_close(
        pairs(x).mean(0) - p @ pairs(states), 0.1 * model.theta.detach(), atol=1e-7, rtol=0
    )
    assert run.stopped == "converged"


def test_a_weight_is_a_repetition(generator: torch.Generator) -> None:
    x, counts = rows(8, dtype=torch.float64), torch.tensor([3, 1, 2, 1, 4, 1, 2, 2])
    repeated = x.repeat_interleave(counts, 0)
    weighted = fitted(x, 6, sample_weight=counts.numpy() * 10.0)  # only ratios count
    assert_weights(weighted, descend(x, [0.5] * 6, w=counts.double())[-1])
    assert_weights(fitted(repeated, 6), descend(x, [0.5] * 6, w=counts.double())[-1])
    ends = []
    for data, weight in ((x, counts), (repeated, None)):
        model = MaxEnt("independent", Binary(4), generator=generator).double()
        ends.append(
            partita.fit(
                model, data, sample_weight=weight, l2=1e-3, generator=generator
            ).model.theta.detach()
        )
    torch.testing.assert_close(*ends, atol=1e-6, rtol=0)


@pytest.mark.parametrize("share", [0.4, 0.2, 1.0])
def test_the_average_is_that_of_every_tenth_step(share: float, tmp_path: Path) -> None:
    x, steps = rows(dtype=torch.float64), 60
    path = descend(x, [0.5] * steps)
    expected: list[Tensor] = []
    for k in range(1, 7):
        rate = max(min(1.0, 10 / (share * steps)), 1 / k)
        now = path[10 * k - 1]
        expected = (
            now
            if k == 1
            else [(1 - rate) * e + rate * v for e, v in zip(expected, now, strict=True)]
        )
    assert_weights(fitted(x, steps, average=share, out=tmp_path / "run"), expected)
    assert_weights(partita.load(tmp_path / "run", weights="average").model, expected)  # type: ignore[arg-type]
    assert_weights(partita.load(tmp_path / "run", weights="last").model, path[-1])  # type: ignore[arg-type]


def test_a_batch_is_a_part_of_a_fresh_order_and_an_epoch_sees_no_row_twice() -> None:
    seen: list[Tensor] = []

    class Spy(ExactLikelihood):
        def losses(self, model: Any, batch: Any, state: Any, *, generator: torch.Generator) -> Any:
            seen.append(batch.row)
            return super().losses(model, batch, state, generator=generator)

    partita.fit(
        machine(),
        rows(50),
        Spy(),
        optimizer="sgd",
        batch_size=16,
        epochs=4,
        generator=torch.Generator().manual_seed(1),
    )
    # three batches an epoch; two rows wait for the next order
    assert [len(index) for index in seen] == [16] * 12
    for epoch in range(4):
        assert len(torch.cat(seen[3 * epoch : 3 * epoch + 3]).unique()) == 48
    assert not torch.equal(seen[0], seen[3])
    assert len(torch.cat(seen).unique()) == 50
