"""Log densities that people write, called the way each of them wants."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from partita.core.batched import Batched, Layout
from partita.errors import InputError

ROWS = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TRUTH = -0.5 * ROWS.square().sum(-1)


def of_python(x: Tensor) -> float:
    return -0.5 * sum(float(value) ** 2 for value in x)


def of_row_of_two(x: Tensor) -> Tensor:
    return -0.5 * (x[0] ** 2 + x[1] ** 2)  # of a batch of two it would be a number for each row


def of_one_array(x: np.ndarray) -> float:
    return -0.5 * math.fsum(np.asarray(x, dtype=float).reshape(2) ** 2)


def detached(x: Tensor) -> Tensor:
    return -0.5 * x[:, 0] ** 2 - 0.5 * torch.as_tensor(x.detach().numpy()[:, 1]) ** 2


WRITTEN = {
    "torch batch": (lambda x: -0.5 * x.square().sum(-1), "torch batch", True),
    "a column": (lambda x: -0.5 * x.square().sum(-1, keepdim=True), "torch batch", True),
    "numpy batch": (lambda x: -0.5 * np.square(np.array(x)).sum(-1), "numpy batch", False),
    "einsum": (lambda x: -0.5 * np.einsum("ni,ni->n", x, x), "numpy batch", False),
    "tensor to array": (lambda x: -0.5 * (x.numpy() ** 2).sum(-1), "numpy batch", False),
    "one row": (lambda x: -0.5 * x @ x, "torch vmap", True),
    "two coordinates": (of_row_of_two, "torch vmap", True),
    "python": (of_python, "row by row", False),
    "one array": (of_one_array, "row by row", False),
    "partly detached": (detached, "torch batch", False),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_every_way_of_writing_gives_the_same_numbers(name: str) -> None:
    function, how, differentiable = WRITTEN[name]
    f = Batched(function, 2)
    values = f(ROWS)
    assert values.dtype is torch.float64
    torch.testing.assert_close(values, TRUTH)
    assert (f.how, f.differentiable) == (how, differentiable)
    assert f.calls >= len(ROWS)
    if differentiable:
        torch.testing.assert_close(f.gradient(ROWS), -ROWS)


def test_a_module_in_single_precision() -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2, bias=False)
            nn.init.eye_(self.linear.weight)

        def forward(self, x: Tensor) -> Tensor:
            return -0.5 * self.linear(x).square().sum(-1)

    f = Batched(Module(), 2)
    torch.testing.assert_close(f(ROWS), TRUTH, rtol=1e-5, atol=1e-5)
    assert f.differentiable


@pytest.mark.parametrize("one_row", [False, True])
def test_a_dict_of_variables(one_row: bool) -> None:
    layout = Layout(("a", "b"), ((), (2,)))
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def batch(p: dict[str, Tensor]) -> Tensor:
        return p["a"] - p["b"].square().sum(-1)

    def single(p: dict[str, Tensor]) -> float:
        return float(p["a"]) - sum(float(value) ** 2 for value in p["b"])

    f = Batched(single if one_row else batch, 3, layout=layout)
    torch.testing.assert_close(f(x), x[:, 0] - x[:, 1:].square().sum(-1))
    assert f.how == ("row by row" if one_row else "torch batch")


def test_nan_is_no_density_and_is_counted() -> None:
    f = Batched(lambda x: torch.where(x[:, 0] > 0, x[:, 0].log(), torch.nan), 2)
    values = f(ROWS)
    assert f.nans == int((ROWS[:, 0] <= 0).sum()) > 0
    assert bool((values[ROWS[:, 0] <= 0] == -math.inf).all())


def raises(x: Tensor) -> Tensor:
    if float(x[..., 0].min()) < -1e3:
        raise ZeroDivisionError("no such star")
    return -x.square().sum(-1)


def test_the_row_that_raises_is_named() -> None:
    f = Batched(raises, 2)
    f(ROWS)
    bad = ROWS.clone()
    bad[4, 0] = -5e3
    with pytest.raises(InputError, match=r"ZeroDivisionError \(no such star\) at the row \[-5000,"):
        f(bad)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x, r"got shape \(2,\) for one row"),
        (lambda x: x.sum(-1) * 1j, "got complex numbers"),
        (lambda x: None, "got None"),
        (lambda x: "high", "got 'high' of type str"),
        (lambda x: x.sum(-1) + torch.inf, "plus infinity"),
        (lambda x: x.sum(-1) + torch.rand(len(x)), "the same number for the same row"),
        (lambda x: x.sum(-1) / 0 if isinstance(x, float) else 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_is_no_log_density_is_refused_in_a_sentence(function: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Batched(function, 2)(ROWS)  # pyright: ignore[reportArgumentType]


def test_what_cannot_be_called() -> None:
    with pytest.raises(InputError, match="log_density must be a function"):
        Batched(3.0, 2)  # pyright: ignore[reportArgumentType]
