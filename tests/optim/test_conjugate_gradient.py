"""Conjugate gradients against direct solves, SciPy and finite differences; what cannot be solved is
named.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.optimize import rosen
from scipy.sparse.linalg import cg, spsolve
from torch import Tensor

from partita.errors import Diverged, InputError, Unsupported
from partita.optim import minimize, solve

KINDS: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda A: torch.from_numpy(A.toarray()),
    "array": lambda A: A.toarray(),
    "scipy": lambda A: A,
    "torch csr": lambda A: _torch_csr(A),
    "torch coo": lambda A: _torch_csr(A).to_sparse_coo(),
    "function": lambda A: torch.from_numpy(A.toarray()).matmul,
}


def _torch_csr(A: Any) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its sparse layout a beta
        return torch.sparse_csr_tensor(
            torch.from_numpy(A.indptr),
            torch.from_numpy(A.indices),
            torch.from_numpy(A.data),
            A.shape,
        )


def poisson(n: int) -> Any:
    line = scipy.sparse.diags_array(
        [-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1]
    )
    eye = scipy.sparse.eye_array(n)
    return scipy.sparse.csr_array(scipy.sparse.kron(eye, line) + scipy.sparse.kron(line, eye))


def right_hand_sides(n: int, m: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, m))


def spectrum(values: list[float], copies: int, generator: torch.Generator) -> Tensor:
    """A matrix with these eigenvalues, each ``copies`` times."""
    n = len(values) * copies
    q, _ = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    A = q @ torch.diag(torch.tensor(values, dtype=torch.float64).repeat(copies)) @ q.mT
    return (A + A.mT) / 2


@pytest.mark.parametrize("values", [[1.0], [1.0, 3.0], [0.5, 2.0, 7.0, 11.0]])
def test_as_many_steps_as_distinct_eigenvalues(
    values: list[float], generator: torch.Generator
) -> None:
    A = spectrum(values, 10, generator)
    found = solve(A, torch.randn(len(A), generator=generator, dtype=torch.float64), tolerance=1e-12)
    assert (found.reason, found.iterations) == ("converged", len(values))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 3, 11])
def test_every_kind_of_matrix_gives_the_direct_solution(kind: str, m: int) -> None:
    A, b = poisson(9), right_hand_sides(81, m)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR")
        found = solve(KINDS[kind](A), torch.from_numpy(b), tolerance=1e-12)
    truth = spsolve(A.tocsc(), b).reshape(b.shape)
    assert found.converged
    np.testing.assert_allclose(found.x.numpy(), truth, atol=1e-9)
    np.testing.assert_allclose(
        found.residual.numpy(), np.linalg.norm(b - A @ found.x.numpy(), axis=0), atol=1e-14
    )


@pytest.mark.parametrize("preconditioner", [None, "jacobi", "incomplete-cholesky"])
def test_the_steps_are_those_of_scipy(preconditioner: str | None) -> None:
    A, b = poisson(24), right_hand_sides(576, 1)[:, 0]
    steps = []
    theirs = None if preconditioner != "jacobi" else scipy.sparse.diags_array(1 / A.diagonal())
    x, _ = cg(A, b, rtol=1e-8, atol=0, M=theirs, callback=lambda _: steps.append(1))
    found = solve(A, b, preconditioner=preconditioner)
    assert found.converged and found.residual <= 1e-8 * np.linalg.norm(b)
    np.testing.assert_allclose(found.x.numpy(), x, atol=1e-6)
    if preconditioner != "incomplete-cholesky":
        assert abs(found.iterations - len(steps)) <= 1
    else:
        assert found.iterations < 0.5 * len(steps)


def test_incomplete_cholesky_is_complete_where_there_is_no_fill_in() -> None:
    line = scipy.sparse.diags_array(
        [-np.ones(49), 2.1 * np.ones(50), -np.ones(49)], offsets=[-1, 0, 1]
    ).tocsr()
    assert (
        solve(line, right_hand_sides(50, 1)[:, 0], preconditioner="incomplete-cholesky").iterations
        == 1
    )


@pytest.mark.parametrize("preconditioner", [None, "jacobi", "incomplete-cholesky"])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-8])
def test_the_error_estimate_is_near_the_truth(preconditioner: str | None, tolerance: float) -> None:
    A, b = poisson(40), right_hand_sides(1600, 3)
    found = solve(A, b, preconditioner=preconditioner, tolerance=tolerance)
    gap = spsolve(A.tocsc(), b) - found.x.numpy()
    truth = np.sqrt((gap * (A @ gap)).sum(0))
    assert ((found.error.numpy() > 0.2 * truth) & (found.error.numpy() < 5 * truth)).all()


def test_a_warm_start_saves_steps_and_the_solution_needs_none() -> None:
    A, b = poisson(12), torch.from_numpy(right_hand_sides(144, 2))
    cold = solve(A, b)
    assert solve(A, b, x0=cold.x).iterations.tolist() == [0, 0]
    nudged = solve(A, b, x0=cold.x + 1e-5)
    assert (nudged.iterations < cold.iterations).all() and nudged.converged


def test_columns_stop_on_their_own_and_zero_needs_no_step() -> None:
    A = poisson(10)
    b = np.stack([np.zeros(100), A @ np.ones(100), right_hand_sides(100, 1)[:, 0]], 1)
    found = solve(A, b)
    assert found.iterations[0] == 0 and found.converged and not found.x[:, 0].any()
    alone = solve(A, b[:, 2])
    assert abs(int(found.iterations[2]) - alone.iterations) <= 1
    torch.testing.assert_close(found.x[:, 2], alone.x, atol=1e-7, rtol=0)


@pytest.mark.parametrize("kind", ["tensor", "scipy"])
def test_an_indefinite_matrix_is_named(kind: str) -> None:
    A = scipy.sparse.csr_array(np.diag([1.0, 2.0, -3.0, 4.0]))
    found = solve(KINDS[kind](A), torch.ones(4, dtype=torch.float64))
    assert found.reason == "indefinite" and not found.converged
    with pytest.raises(Diverged, match="not positive definite"):
        found.require()


@pytest.mark.parametrize("kind", ["tensor", "scipy"])
def test_a_singular_matrix_is_named_and_a_consistent_one_is_solved(kind: str) -> None:
    A = KINDS[kind](scipy.sparse.csr_array(np.diag([1.0, 1.0, 0.0])))
    assert solve(A, torch.ones(3, dtype=torch.float64)).reason == "breakdown"
    found = solve(A, torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64))
    assert found.converged and found.x.tolist() == [1.0, 2.0, 0.0]


@pytest.mark.parametrize("kind", ["tensor", "scipy"])
def test_success_is_never_claimed_on_a_tolerance_that_was_not_reached(kind: str) -> None:
    A, b = poisson(16), torch.from_numpy(right_hand_sides(256, 1)[:, 0])
    found = solve(KINDS[kind](A), b, iterations=5)
    assert found.reason == "budget" and found.iterations == 5 and found.residual > found.tolerance
    # rounding ends what the recursion believes to go on
    assert solve(KINDS[kind](A), b, tolerance=1e-20).reason == "breakdown"
    low = solve(KINDS[kind](A.astype(np.float32)), b.float(), tolerance=1e-5)
    assert (
        low.converged
        and float((b.float() - torch.from_numpy(A.astype(np.float32) @ low.x.numpy())).norm())
        <= 1.01 * low.tolerance
    )


def test_gradients_through_the_solution(generator: torch.Generator) -> None:
    root = torch.randn(4, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    b = torch.randn(4, 2, generator=generator, dtype=torch.float64, requires_grad=True)

    def dense(root: Tensor, b: Tensor) -> Tensor:
        return solve(root @ root.mT + torch.eye(4).double(), b, tolerance=1e-13).x

    def function(root: Tensor, b: Tensor) -> Tensor:
        return solve(
            lambda p: root @ (root.mT @ p) + p, b, tolerance=1e-13, preconditioner=lambda r: 0.5 * r
        ).x

    assert torch.autograd.gradcheck(dense, (root, b))
    assert torch.autograd.gradcheck(function, (root, b))


def test_a_gradient_that_did_not_converge_is_refused() -> None:
    A = torch.tensor([[1.0, 0.0], [0.0, 1e4]], dtype=torch.float64)
    b = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    x = solve(A, b, iterations=1).x  # one step suffices for b, not for the gradient
    with pytest.raises(Diverged, match="gradient of solve"):
        (x * torch.tensor([1.0, 1.0], dtype=torch.float64)).sum().backward()


@pytest.mark.parametrize(
    ("A", "b", "message"),
    [
        (torch.tensor([[2.0, 1.0], [0.0, 2.0]]), torch.ones(2), "A must be symmetric"),
        (lambda p: torch.stack([p[0] + p[1], p[1]]), torch.ones(2), "A must be symmetric"),
        (
            scipy.sparse.csr_array(np.array([[2.0, 1.0], [0.0, 2.0]])),
            torch.ones(2),
            "A must be symmetric",
        ),
        (torch.eye(3), torch.ones(2), r"A must have shape \(2, 2\)"),
        (torch.eye(2), torch.ones(2, dtype=torch.float64), "dtype and device of b"),
        (torch.eye(2), torch.tensor([1.0, float("nan")]), "b must be finite"),
        (torch.eye(2) * float("inf"), torch.ones(2), "A must be finite"),
        (torch.eye(2), torch.ones(2, 2, 2), "b must be a vector"),
        (torch.eye(2), torch.ones(2, dtype=torch.int64), "b must be float32 or float64"),
        ("eye", torch.ones(2), "A must be a matrix"),
        (lambda p: p[:1], torch.ones(2), "A must map"),
    ],
)
def test_wrong_input_is_named(A: Any, b: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        solve(A, b)


def test_preconditioners_that_cannot_be() -> None:
    b = torch.ones(2)
    with pytest.raises(Unsupported, match="needs the diagonal"):
        solve(lambda p: p, b, preconditioner="jacobi")
    with pytest.raises(InputError, match="positive diagonal"):
        solve(torch.diag(torch.tensor([1.0, -1.0])), b, preconditioner="jacobi")
    with pytest.raises(InputError, match="preconditioner must be one of"):
        solve(torch.eye(2), b, preconditioner="ilu")
    assert solve(torch.eye(2), b, preconditioner=lambda r: -r).reason == "breakdown"


def test_nonlinear_conjugate_gradients(generator: torch.Generator) -> None:
    A = spectrum([1.0, 4.0, 9.0], 3, generator)
    b = torch.randn(9, generator=generator, dtype=torch.float64)
    found = minimize(
        lambda x: x @ A @ x / 2 - b @ x, torch.zeros(9, dtype=torch.float64), tolerance=1e-8
    )
    torch.testing.assert_close(found.x, torch.linalg.solve(A, b), atol=1e-7, rtol=0)
    valley = minimize(
        lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum(),
        torch.zeros(5, dtype=torch.float64),
    )
    assert valley.converged and rosen(valley.x.numpy()) < 1e-9
    assert minimize(lambda x: (x**2).sum(), torch.ones(3), iterations=1, tolerance=0.0).reason in (
        "budget",
        "converged",
    )
    with pytest.raises(Diverged, match="must be finite"):
        minimize(lambda x: x.log().sum(), -torch.ones(2))
