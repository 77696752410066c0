"""Conjugate gradients where they could fool themselves: singular, scaled, unfinished, foreign; the
verdict is true, or the input named.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.linalg import aslinearoperator
from torch import Tensor

from partita.errors import Diverged, InputError
from partita.optim import minimize, solve

KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda A: A,
    "compressed rows": scipy.sparse.csr_array,
}


def spread(values: np.ndarray, seed: int) -> np.ndarray:
    """A symmetric matrix with these eigenvalues and random axes."""
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))
    A = q * values @ q.T
    return (A + A.T) / 2


def path_laplacian(n: int) -> np.ndarray:
    """Of a path of n points: positive semi-definite, with the constants as its null space."""
    difference = np.diff(np.eye(n), axis=0)
    return difference.T @ difference


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(3))
def test_a_singular_matrix_without_a_solution_is_not_called_indefinite(
    kind: str, dtype: type, seed: int
) -> None:
    b = np.random.default_rng(10 + seed).standard_normal(40).astype(dtype)
    for A in (path_laplacian(40), spread(np.r_[np.zeros(20), np.linspace(1, 5, 20)], seed)):
        found = solve(KINDS[kind](A.astype(dtype)), b)
        assert found.reason == "breakdown" and found.iterations <= 60


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_one_negative_direction_is_enough_to_be_indefinite(kind: str, seed: int) -> None:
    found = solve(
        KINDS[kind](spread(np.r_[-1.0, np.linspace(1, 5, 39)], seed)),
        np.random.default_rng(seed).standard_normal(40),
    )
    assert found.reason == "indefinite" and np.isnan(found.error)


@pytest.mark.parametrize("kind", KINDS)
def test_no_size_of_b_is_too_large_or_too_small(kind: str) -> None:
    """Squares of 1e200 and 1e-200 are not numbers; the solution is, and scales with b."""
    A, b = spread(np.linspace(1, 9, 12), 0), np.random.default_rng(0).standard_normal(12)
    sizes = np.array([1e-200, 0.0, 1.0, 1e200])
    found = solve(KINDS[kind](A), b[:, None] * sizes, tolerance=1e-12)
    assert found.converged
    np.testing.assert_allclose(
        found.x.numpy()[:, [0, 2, 3]] / sizes[[0, 2, 3]],
        np.tile(np.linalg.solve(A, b), (3, 1)).T,
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        found.tolerance.numpy(), 1e-12 * np.linalg.norm(b) * sizes, rtol=1e-12
    )
    small = solve(torch.diag(torch.tensor([1.0, 2.0, 3.0])), torch.full((3,), 1e-30))
    assert small.converged and small.x.tolist() == pytest.approx(
        [1e-30, 5e-31, 1e-30 / 3], rel=1e-5
    )
    lost = solve(1e-300 * np.eye(2), np.full(2, 1e100))
    assert lost.reason == "breakdown" and lost.residual == np.inf


def test_before_the_first_step_nothing_is_known_of_the_error() -> None:
    A, b = spread(np.linspace(1, 9, 12), 0), np.ones(12)
    assert solve(A, b, iterations=0).error == np.inf
    assert solve(A, b, x0=np.linalg.solve(A, b), tolerance=1e-3).error == np.inf
    assert (
        solve(A, np.zeros(12), x0=np.ones(12)).x.tolist() == [0.0] * 12
        and solve(A, np.zeros(12)).error == 0
    )


def test_the_gradient_is_as_precise_as_the_solution_and_no_coarser() -> None:
    """An absolute tolerance is about b: a small gradient is not taken for none."""
    A, b = np.diag([1.0, 2.0, 4.0]), torch.ones(3, dtype=torch.float64, requires_grad=True)
    (1e-9 * solve(A, b, tolerance=0.0, absolute=1e-6).x).sum().backward()
    torch.testing.assert_close(b.grad, 1e-9 * torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64))


def test_what_was_not_solved_has_no_gradient() -> None:
    A = spread(np.geomspace(1e-4, 1, 30), 0)
    b = torch.ones(30, dtype=torch.float64, requires_grad=True)
    found = solve(A, b, iterations=3)
    # one step solves for it, so the backward solve alone would be content
    axis = torch.from_numpy(np.linalg.eigh(A)[1][:, 0])
    with pytest.raises(Diverged, match=r"gradient of solve.*budget"):
        (found.x @ axis).backward()


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_gradients_reach_the_entries_of_a_sparse_tensor(layout: str) -> None:
    A = torch.tensor([[2.0, 0.5], [0.5, 3.0]], dtype=torch.float64)
    sparse = getattr(A, f"to_sparse_{layout}")().requires_grad_()
    dense = A.clone().requires_grad_()
    weights = torch.tensor([1.0, -2.0], dtype=torch.float64)
    for matrix in (sparse, dense):
        (solve(matrix, torch.ones(2, dtype=torch.float64), tolerance=1e-13).x @ weights).backward()
    assert sparse.grad is not None and dense.grad is not None
    torch.testing.assert_close(sparse.grad.to_dense(), dense.grad)


def test_linear_operators_of_scipy_are_matrices_and_preconditioners() -> None:
    A, b = spread(np.linspace(1, 9, 12), 0), np.ones((12, 2))
    found = solve(
        aslinearoperator(A), b, preconditioner=aslinearoperator(np.linalg.inv(A)), tolerance=1e-10
    )
    assert found.converged and found.iterations.tolist() == [1, 1]
    np.testing.assert_allclose(found.x.numpy(), np.linalg.solve(A, b), rtol=1e-8)


def test_the_callers_matrix_stays_as_it_is() -> None:
    A = scipy.sparse.csr_array(
        (np.array([1.0, 4.0, 3.0, 1.0]), np.array([1, 0, 1, 0]), np.array([0, 2, 4])), shape=(2, 2)
    )
    assert solve(A, np.ones(2)).converged and A.indices.tolist() == [1, 0, 1, 0]


ONES = torch.ones(3, dtype=torch.float64)
EYE = torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("A", "options", "message"),
    [
        (np.eye(3) * (1 + 0j), {}, "A must be real"),
        (scipy.sparse.csr_array(np.diag([2.0, 1.0, 1.0j])), {}, "A must be real"),
        (lambda p: p * float("nan"), {}, "A must map finite vectors to finite vectors"),
        (aslinearoperator(np.eye(4)), {}, r"A must have shape \(3, 3\)"),
        (
            EYE,
            {"preconditioner": torch.eye(3)},
            "preconditioner must have the dtype and device of b",
        ),
        (EYE, {"preconditioner": np.eye(4)}, r"preconditioner must have shape \(3, 3\)"),
        (EYE, {"preconditioner": lambda r: r[:1]}, "preconditioner must map"),
    ],
)
def test_foreign_input_is_named(A: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        solve(A, ONES, **options)


@pytest.mark.parametrize(
    ("function", "x0", "message"),
    [
        (lambda x: x**2, torch.ones(3), r"function must return one number.*got shape \(3,\)"),
        (lambda x: torch.tensor(1.0), torch.ones(3), "got one that does not depend on x"),
        (lambda x: (x**2).sum(), torch.ones(3, dtype=torch.int64), "x0 must hold real numbers"),
    ],
)
def test_what_cannot_be_minimized_is_named(
    function: Callable[[Tensor], Tensor], x0: Tensor, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        minimize(function, x0)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_blocked_sparse_tensors_are_named() -> None:
    with pytest.raises(InputError, match="sparse COO, CSR or CSC"):
        solve(
            torch.eye(4, dtype=torch.float64).to_sparse_bsr((2, 2)),
            torch.ones(4, dtype=torch.float64),
        )


def test_sparse_and_dense_matrices_take_the_same_steps(generator: torch.Generator) -> None:
    A = spread(np.geomspace(1e-3, 1, 60), 3)
    b = torch.randn(60, 5, generator=generator, dtype=torch.float64)
    rows, dense = solve(scipy.sparse.csr_array(A), b, iterations=9), solve(A, b, iterations=9)

    def energy(x: Tensor) -> Tensor:
        return ((x * (torch.from_numpy(A) @ x)).sum(0) / 2 - (b * x).sum(0)).cpu()

    assert rows.reason == dense.reason
    torch.testing.assert_close(energy(rows.x), energy(dense.x), rtol=1e-9, atol=0)
    torch.testing.assert_close(rows.error, dense.error, rtol=1e-6, atol=0)
