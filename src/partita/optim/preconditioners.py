r"""Cheap approximations of A that make conjugate gradients take fewer steps.

.. math:: z = M^{-1} r, \qquad M = \mathrm{diag}(A) \quad\text{or}\quad M = L L^\top \approx A
          \text{ with } L \text{ as sparse as } A          (theory/optimization.md, eq. 50.5)

Letters: n unknowns, m right-hand sides, A matrix, M its approximation, L lower factor, r residual.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from partita.errors import Unsupported, invalid
from partita.optim.operators import (
    Matrix,
    MatrixFree,
    Operator,
    Product,
    SparseMatrix,
    check_fits,
    on_arrays,
    on_blocks,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Preconditioner = Product
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
    from scipy.sparse.linalg import splu

    from partita.optim.incomplete_cholesky import factorize

    lower = _lower_triangle(operator)
    entries = lower.data.astype(np.float64)
    for shift in SHIFTS:
        lower.data = entries.copy()
        if factorize(lower.indptr, lower.indices, lower.data, shift) < 0:
            break
    else:
        got, remedy = "pivots that are not positive", "Use preconditioner 'jacobi'."
        raise invalid("solve", "A", "be near a positive definite matrix", got, remedy)
    # in the order given, a triangular matrix is its own factor: only its substitutions are used
    factor = splu(lower.tocsc(), permc_spec="NATURAL", diag_pivot_thresh=0.0)

    def apply(r: Tensor) -> Tensor:
        z = factor.solve(factor.solve(r.double().numpy()), trans="T")
        return torch.from_numpy(z).to(r)

    return apply


def as_preconditioner(
    chosen: str | Matrix | Product | None, operator: Operator, b: Tensor
) -> Preconditioner | None:
    """The named preconditioner, a function, or the product with a matrix that approximates the
    inverse of A; None for none.
    """
    if chosen is None:
        return None
    if isinstance(chosen, str):
        if chosen not in BY_NAME:
            allowed = f"be one of {', '.join(map(repr, BY_NAME))}, a function or a matrix"
            raise invalid("solve", "preconditioner", allowed, repr(chosen))
        return BY_NAME[chosen](operator)
    if isinstance(chosen, Tensor):
        check_fits("preconditioner", chosen, b)
        matrix = chosen.detach()
        return lambda r: matrix @ r
    if isinstance(chosen, np.ndarray | SparseMatrix | MatrixFree):
        check_fits("preconditioner", chosen, b)
        return on_arrays(chosen)
    if callable(chosen):
        return on_blocks("preconditioner", chosen)
    allowed = "be a name, a function from r to z, or a matrix"
    raise invalid("solve", "preconditioner", allowed, type(chosen).__name__)


def _lower_triangle(operator: Operator) -> "csr_array":
    """Compressed rows, the diagonal last in each row."""
    from scipy.sparse import csr_array, tril

    matrix = operator.csr
    if matrix is None:
        if operator.matrix is None or operator.matrix.device.type != "cpu":
            raise Unsupported(
                "solve: preconditioner 'incomplete-cholesky' needs the entries of A on a CPU. Use "
                "'jacobi' or pass your own."
            )
        matrix = csr_array(operator.matrix.detach().numpy())
    _checked_diagonal(torch.from_numpy(matrix.diagonal()))
    lower = csr_array(tril(matrix))
    lower.sort_indices()
    return lower


def _checked_diagonal(diagonal: Tensor) -> Tensor:
    if not (diagonal > 0).all():
        row = int(diagonal.argmin())
        allowed = "have a positive diagonal, as every positive definite matrix has"
        raise invalid("solve", "A", allowed, f"{float(diagonal[row]):g} in row {row}")
    return diagonal


BY_NAME = {"jacobi": jacobi, "incomplete-cholesky": incomplete_cholesky}
