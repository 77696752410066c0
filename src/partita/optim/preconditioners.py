r"""Cheap approximations of A that make conjugate gradients take fewer steps.

.. math:: z = M^{-1} r, \qquad M = \mathrm{diag}(A) \quad\text{or}\quad M = L L^\top \approx A
          \text{ with } L \text{ as sparse as } A          (theory/optimization.md, eq. 50.5)

Letters: n unknowns, m right-hand sides, A matrix, M its approximation, L lower factor, r residual.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from partita.errors import Unsupported, invalid
from partita.optim.operators import Operator, on_arrays, sparse

Preconditioner = Callable[[Tensor], Tensor]
# added to the diagonal, relative to it, until every pivot is positive (Manteuffel 1980)
SHIFTS = (0.0, 1e-3, 1e-2, 1e-1, 1.0)


def jacobi(operator: Operator) -> Preconditioner:
    """z = r / diag(A), for r of shape (n, m)."""
    inverse = 1 / _checked_diagonal(operator.diagonal)[:, None]
    return lambda r: inverse * r


def incomplete_cholesky(operator: Operator) -> Preconditioner:
    """z = (L L')^{-1} r with the sparsity of A's lower triangle; A is shifted a little where a
    pivot would not be positive.

    Meijerink and van der Vorst (1977), An iterative solution method for linear systems whose matrix
    is a symmetric M-matrix.
    """
    from partita.optim.csr_kernels import incomplete_cholesky as factor
    from partita.optim.csr_kernels import substitute

    first, columns, values = _lower(operator)
    for shift in SHIFTS:
        entries = values.astype(np.float64)
        if factor(first, columns, entries, shift) < 0:
            break
    else:
        raise invalid(
            "solve",
            "A",
            "be near a positive definite matrix",
            "pivots that are not positive",
            "Use preconditioner 'jacobi'.",
        )

    def apply(r: Tensor) -> Tensor:
        z = np.ascontiguousarray(r.numpy(), dtype=np.float64).copy()
        substitute(first, columns, entries, z)
        return torch.from_numpy(z).to(r)

    return apply


def as_preconditioner(chosen: Any, operator: Operator, b: Tensor) -> Preconditioner | None:
    """The one that is named, a function, or a matrix that approximates the inverse of A; None for
    none.
    """
    if chosen is None:
        return None
    if isinstance(chosen, str):
        if chosen not in BY_NAME:
            raise invalid(
                "solve",
                "preconditioner",
                f"be one of {', '.join(map(repr, BY_NAME))}, a function or a matrix",
                repr(chosen),
            )
        return BY_NAME[chosen](operator)
    if (
        isinstance(chosen, Tensor | np.ndarray)
        or hasattr(chosen, "tocsr")
        or hasattr(chosen, "matmat")
    ):
        return _from_matrix(chosen, b)
    if callable(chosen):
        return _on_blocks(cast(Preconditioner, chosen))
    raise invalid(
        "solve",
        "preconditioner",
        "be a name, a function from r to z, or a matrix",
        type(chosen).__name__,
    )


def _on_blocks(function: Preconditioner) -> Preconditioner:
    """A function as the caller writes it: a single right-hand side reaches it as a vector."""

    def apply(r: Tensor) -> Tensor:
        z = function(r) if r.shape[1] > 1 else function(r[:, 0])[:, None]
        if z.shape != r.shape or z.dtype != r.dtype:
            got = f"{tuple(r.shape)} to {tuple(z.shape)}, {z.dtype}"
            raise invalid(
                "solve",
                "preconditioner",
                "map (n,) to (n,) and (n, m) to (n, m), keeping the dtype",
                got,
            )
        return z

    return apply


def _from_matrix(matrix: Any, b: Tensor) -> Preconditioner:
    if tuple(matrix.shape) != (len(b), len(b)):
        raise invalid(
            "solve",
            "preconditioner",
            f"have shape ({len(b)}, {len(b)}) to match b",
            tuple(matrix.shape),
        )
    if not isinstance(matrix, Tensor):
        return on_arrays(matrix)
    if matrix.dtype != b.dtype or matrix.device != b.device:
        got = f"{matrix.dtype} on {matrix.device}"
        raise invalid(
            "solve",
            "preconditioner",
            f"have the dtype and device of b, {b.dtype} on {b.device}",
            got,
        )
    return lambda r: matrix.detach() @ r


def _lower(operator: Operator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compressed rows of the lower triangle, the diagonal last in each row."""
    import scipy.sparse

    if operator.rows is not None:
        matrix = sparse(operator.rows)
    elif operator.matrix is not None and operator.matrix.device.type == "cpu":
        matrix = scipy.sparse.csr_array(operator.matrix.detach().numpy())
    else:
        raise Unsupported(
            "solve: preconditioner 'incomplete-cholesky' needs the entries of A on a CPU. Use "
            "'jacobi' or one of your own."
        )
    _checked_diagonal(torch.from_numpy(matrix.diagonal()))
    lower = scipy.sparse.csr_array(scipy.sparse.tril(matrix))
    lower.sort_indices()
    return lower.indptr, lower.indices, lower.data


def _checked_diagonal(diagonal: Tensor) -> Tensor:
    if not (diagonal > 0).all():
        row = int(diagonal.argmin())
        got = f"{float(diagonal[row]):g} in row {row}"
        raise invalid(
            "solve", "A", "have a positive diagonal, as every positive definite matrix has", got
        )
    return diagonal


BY_NAME: dict[str, Callable[[Operator], Preconditioner]] = {
    "jacobi": jacobi,
    "incomplete-cholesky": incomplete_cholesky,
}
