"""Sums over all states against sums written out with itertools, whatever the size of a chunk."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from partita.core import enumeration
from partita.core.enumeration import Side, log_partition, probabilities, state_expectation
from partita.core.support import Binary, Categorical, Support

LIKE = torch.zeros((), dtype=torch.float64)
A = torch.tensor([0.3, -1.2, 0.7, 2.0], dtype=torch.float64)


def free_energy(x: torch.Tensor, a: torch.Tensor = A) -> torch.Tensor:
    return -(x @ a) + (x.sum(-1) - 1) ** 2 * a[0]


def by_hand(x: np.ndarray) -> float:
    a = A.numpy()
    return -sum(a[i] * x[i] for i in range(4)) + (sum(x) - 1) ** 2 * a[0]


CASES = [(Binary(4), (0.0, 1.0)), (Categorical(4, 3), (0.0, 1.0, 2.0))]


@pytest.fixture(params=[1, 5, 1 << 21])
def cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The memory budget of a chunk, from one state at a time to all at once."""
    monkeypatch.setattr(enumeration, "CHUNK_CELLS", 4 * request.param)
    return request.param


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(("support", "values"), CASES, ids=str)
@pytest.mark.parametrize("gradients", [True, False])
def test_log_partition(support: Support, values: tuple[float, ...], gradients: bool) -> None:
    expected = logsumexp([-by_hand(np.array(x)) for x in product(values, repeat=4)])
    with torch.set_grad_enabled(gradients):
        assert log_partition(Side("visible", support, free_energy), LIKE).item() == pytest.approx(
            expected, abs=1e-12
        )


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(("support", "values"), CASES, ids=str)
def test_the_gradient_of_log_partition_is_the_average_of_minus_the_energys(
    support: Support, values: tuple[float, ...]
) -> None:
    a = A.clone().requires_grad_()
    log_partition(Side("visible", support, lambda x: free_energy(x, a)), LIKE).backward()
    states = np.array(list(product(values, repeat=4)))
    p = np.exp(-np.array([by_hand(x) for x in states]))
    p /= p.sum()
    slope = states.copy()  # of -F with respect to a
    slope[:, 0] -= (states.sum(1) - 1) ** 2
    assert a.grad is not None
    np.testing.assert_allclose(a.grad.numpy(), p @ slope, atol=1e-12)


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(("support", "values"), CASES, ids=str)
@pytest.mark.parametrize(
    "function",
    [lambda x: x.sum(-1), lambda x: x, lambda x: x[:, :, None] * x[:, None, :]],
    ids=["sum", "x", "xx'"],
)
def test_expectation(
    support: Support, values: tuple[float, ...], function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    states = list(product(values, repeat=4))
    weights = [np.exp(-by_hand(np.array(x))) for x in states]
    expected = sum(
        w * function(torch.tensor([x], dtype=torch.float64))[0]
        for w, x in zip(weights, states, strict=True)
    ) / sum(weights)
    torch.testing.assert_close(
        state_expectation(Side("visible", support, free_energy), LIKE, function),
        expected,
        atol=1e-12,
        rtol=0,
    )


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(("support", "values"), CASES, ids=str)
def test_probabilities_come_in_the_order_of_the_states(
    support: Support, values: tuple[float, ...]
) -> None:
    weights = np.array([np.exp(-by_hand(np.array(x))) for x in product(values, repeat=4)])
    np.testing.assert_allclose(
        probabilities(Side("visible", support, free_energy), LIKE).numpy(),
        weights / weights.sum(),
        atol=1e-14,
    )


def test_energies_of_hundreds_of_nats_do_not_overflow() -> None:
    side = Side("visible", Binary(2), lambda x: 800 * (1 - x.sum(-1)))  # -F is -800, 0, 0, 800
    assert log_partition(side, LIKE).item() == pytest.approx(800.0, abs=1e-12)
    assert probabilities(side, LIKE).tolist() == [0.0, 0.0, 0.0, 1.0]
