"""What conjugate gradients need of A, whatever A is: a product, a diagonal, and compressed rows
where there are some.

Letters: n unknowns, m right-hand sides, A matrix, p a block of vectors (n, m).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from partita.errors import Unsupported, invalid

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # first, columns, values
SYMMETRY = 64.0  # roundings by which A may differ from its transpose
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


@dataclass(frozen=True)
class Operator:
    """A symmetric linear map of R^n.

    Arguments:
        apply: A p for p of shape (n, m); gradients reach whatever A is made of.
        rows: Compressed rows, for a sparse matrix in the memory of the CPU.
        matrix: The dense or sparse tensor itself; None for a function.
    """

    apply: Callable[[Tensor], Tensor]
    rows: Rows | None = None
    matrix: Tensor | None = None

    @cached_property
    def diagonal(self) -> Tensor:
        """The diagonal of A, which a function does not show."""
        if self.rows is not None:
            return torch.from_numpy(sparse(self.rows).diagonal())
        if self.matrix is None:
            raise Unsupported(
                "solve: preconditioner 'jacobi' needs the diagonal of A, and A is a function. "
                "Hand over one of your own: a function from r to an approximate solution of A z = "
                "r."
            )
        matrix = self.matrix.detach()
        if matrix.layout is torch.strided:
            return matrix.diagonal()
        matrix = matrix.to_sparse_coo().coalesce()
        (i, j), values = matrix.indices(), matrix.values()
        return values.new_zeros(len(matrix)).index_add_(0, i[i == j], values[i == j])


def sparse(rows: Rows) -> Any:
    """Compressed rows as SciPy's matrix."""
    import scipy.sparse

    first, columns, values = rows
    return scipy.sparse.csr_array(
        (values, columns.view(np.int32), first), shape=(len(first) - 1,) * 2
    )


def as_operator(A: Any, b: Tensor, owner: str) -> Operator:
    """A as an operator on blocks like ``b`` (n, m): a tensor, an array, a sparse matrix of SciPy or
    torch, or a function.
    """
    if isinstance(A, Tensor):
        return _from_tensor(_checked(A, b, owner), b, owner)
    if np.iscomplexobj(A):
        raise invalid(
            owner,
            "A",
            "be real",
            "complex numbers",
            "Write the system in real and imaginary parts.",
        )
    if isinstance(A, np.ndarray):
        return _from_tensor(_checked(torch.from_numpy(A).to(b), b, owner), b, owner)
    if hasattr(A, "tocsr"):
        return _from_scipy(A, b, owner)
    if hasattr(A, "matmat"):
        _check_shape(A.shape, b, owner)
        return Operator(_checked_function(on_arrays(A), owner))
    if callable(A):
        return Operator(_checked_function(cast(Callable[[Tensor], Tensor], A), owner))
    raise invalid(
        owner,
        "A",
        "be a matrix (tensor, array, sparse) or a function from p to A p",
        type(A).__name__,
    )


def on_arrays(A: Any) -> Callable[[Tensor], Tensor]:
    """SciPy's LinearOperator, or a matrix of NumPy or SciPy, as a function on tensors."""
    return lambda p: torch.from_numpy(np.ascontiguousarray(A @ p.detach().cpu().numpy())).to(p)


def check_symmetric(operator: Operator, b: Tensor, owner: str) -> None:
    """Refuse an A that is not its own transpose: looked at whole where it is a matrix, at two
    vectors where it is a function.
    """
    remedy = "Conjugate gradients need a symmetric A; solve A'A x = A'b, or use GMRES."
    if operator.rows is not None:
        matrix = sparse(operator.rows)
        gap, size = (
            float(abs(part).max()) if part.nnz else 0.0 for part in (matrix - matrix.T, matrix)
        )
    elif operator.matrix is not None and operator.matrix.layout is torch.strided:
        matrix = operator.matrix.detach()
        gap, size = float((matrix - matrix.mT).abs().max()), float(matrix.abs().max())
    else:
        gap, size = _probe(operator, b)
        if not np.isfinite(size):
            raise invalid(owner, "A", "map finite vectors to finite vectors", "nan or infinity")
    if gap > SYMMETRY * torch.finfo(b.dtype).eps * size:
        raise invalid(
            owner, "A", "be symmetric", f"a difference of {gap:.3g} from its transpose", remedy
        )


@torch.no_grad()
def _probe(operator: Operator, b: Tensor) -> tuple[float, float]:
    """u'Av - v'Au for two fixed vectors, and the size of its terms."""
    place = torch.arange(1, len(b) + 1, device=b.device, dtype=b.dtype)
    u, v = torch.cos(place)[:, None], torch.sin(2.0 * place.sqrt())[:, None]
    Au, Av = operator.apply(u), operator.apply(v)
    size = float(u.norm() * Av.norm() + v.norm() * Au.norm())
    return abs(float((u * Av).sum() - (v * Au).sum())), size


def _checked(A: Tensor, b: Tensor, owner: str) -> Tensor:
    _check_shape(A.shape, b, owner)
    if A.layout not in LAYOUTS:
        raise invalid(
            owner,
            "A",
            "be dense or a sparse COO, CSR or CSC tensor",
            A.layout,
            "Use A.to_dense().to_sparse_csr().",
        )
    if A.dtype != b.dtype or A.device != b.device:
        raise invalid(
            owner,
            "A",
            f"have the dtype and device of b, {b.dtype} on {b.device}",
            f"{A.dtype} on {A.device}",
        )
    return A


def _check_shape(shape: Any, b: Tensor, owner: str) -> None:
    if tuple(shape) != (len(b), len(b)):
        raise invalid(owner, "A", f"have shape ({len(b)}, {len(b)}) to match b", tuple(shape))


def _from_tensor(A: Tensor, b: Tensor, owner: str) -> Operator:
    values = (
        A.detach() if A.layout is torch.strided else A.detach().to_sparse_coo().coalesce().values()
    )
    if not torch.isfinite(values).all():
        raise invalid(owner, "A", "be finite", "nan or infinity")
    if A.layout is torch.strided:
        return Operator(lambda p: A @ p, None, A)
    rows = _rows_of(A.detach().to_sparse_csr()) if A.device.type == "cpu" else None
    return Operator(lambda p: torch.sparse.mm(A, p), rows, A)


def _rows_of(A: Tensor) -> Rows:
    return A.crow_indices().numpy(), A.col_indices().numpy().astype(np.uint32), A.values().numpy()


def _from_scipy(A: Any, b: Tensor, owner: str) -> Operator:
    _check_shape(A.shape, b, owner)
    if b.device.type != "cpu":
        raise invalid(
            owner,
            "A",
            f"live where b does, on {b.device}",
            "a SciPy matrix",
            "Use torch.sparse_csr_tensor(..., device=...).",
        )
    A = A.tocsr()
    if not A.has_canonical_format:
        A = A.copy()  # the caller's matrix stays as it is
        A.sum_duplicates()
    values = A.data.astype(b.numpy().dtype, copy=False)
    if not np.isfinite(values).all():
        raise invalid(owner, "A", "be finite", "nan or infinity")
    rows = (A.indptr, A.indices.astype(np.uint32), values)
    return Operator(on_arrays(A), rows)


def _checked_function(A: Callable[[Tensor], Tensor], owner: str) -> Callable[[Tensor], Tensor]:
    """The function on blocks (n, m); a single right-hand side reaches it as a vector."""

    def apply(p: Tensor) -> Tensor:
        q = A(p) if p.shape[1] > 1 else A(p[:, 0])[:, None]
        if q.shape != p.shape or q.dtype != p.dtype:
            got = f"{tuple(p.shape)} to {tuple(q.shape)}, {q.dtype}"
            raise invalid(
                owner, "A", "map (n,) to (n,) and (n, m) to (n, m), keeping the dtype", got
            )
        return q

    return apply
