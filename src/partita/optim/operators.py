"""What conjugate gradients need of A, whatever A is: a product, a diagonal, and the compressed rows
of a sparse matrix.

Letters: n unknowns, m right-hand sides, A matrix, p a block of vectors (n, m).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from partita.errors import Unsupported, invalid

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Product: TypeAlias = Callable[[Tensor], Tensor]
SYMMETRY = 64.0  # roundings by which A may differ from its transpose
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


@runtime_checkable
class _Linear(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    def __matmul__(self, other: np.ndarray, /) -> np.ndarray: ...


@runtime_checkable
class SparseMatrix(_Linear, Protocol):
    """A sparse matrix or array of SciPy."""

    def tocsr(self) -> "csr_array": ...


@runtime_checkable
class MatrixFree(_Linear, Protocol):
    """A LinearOperator of SciPy, or what looks like one."""

    def matmat(self, X: np.ndarray) -> np.ndarray: ...


Matrix: TypeAlias = Tensor | np.ndarray | SparseMatrix | MatrixFree


@dataclass(frozen=True)
class Operator:
    """A symmetric linear map of R^n.

    Arguments:
        apply: A p for p of shape (n, m); gradients reach whatever A is made of.
        csr: The compressed rows of a sparse matrix in the memory of the CPU.
        matrix: The dense or sparse tensor itself; None for a function.
    """

    apply: Product
    csr: "csr_array | None" = None
    matrix: Tensor | None = None

    def product(self, p: Tensor) -> Tensor:
        """A p without gradients, by the compressed rows if there are any."""
        return self.apply(p) if self.csr is None else torch.from_numpy(self.csr @ p.numpy())

    @cached_property
    def diagonal(self) -> Tensor:
        """The diagonal of A, which a function does not show."""
        if self.csr is not None:
            return torch.from_numpy(self.csr.diagonal())
        if self.matrix is None:
            raise Unsupported(
                "solve: preconditioner 'jacobi' needs the diagonal of A, and A is a function. "
                "Pass your own: a function from r to an approximate solution of A z = r."
            )
        if self.matrix.layout is torch.strided:
            return self.matrix.detach().diagonal()
        coo = _coalesced(self.matrix)
        (i, j), values = coo.indices(), coo.values()
        return values.new_zeros(len(coo)).index_add_(0, i[i == j], values[i == j])


def as_operator(A: Matrix | Product, b: Tensor) -> Operator:
    """A as an operator on blocks like ``b`` (n, m)."""
    if isinstance(A, Tensor):
        return _from_tensor(A, b)
    if isinstance(A, np.ndarray | _Linear) and np.iscomplexobj(A):
        remedy = "Write the system in real and imaginary parts."
        raise invalid("solve", "A", "be real", "complex numbers", remedy)
    if isinstance(A, np.ndarray):
        return _from_tensor(torch.from_numpy(A).to(b), b)
    if isinstance(A, SparseMatrix):
        return _from_scipy(A, b)
    if isinstance(A, MatrixFree):
        check_fits("A", A, b)
        return Operator(on_blocks("A", on_arrays(A)))
    if callable(A):
        return Operator(on_blocks("A", A))
    allowed = "be a matrix (tensor, array, sparse) or a function from p to A p"
    raise invalid("solve", "A", allowed, type(A).__name__)


def on_arrays(A: "np.ndarray | csr_array | _Linear") -> Product:
    """The product of a matrix or LinearOperator of NumPy or SciPy with a tensor."""
    return lambda p: torch.from_numpy(np.ascontiguousarray(A @ p.detach().cpu().numpy())).to(p)


def on_blocks(parameter: str, function: Product) -> Product:
    """A caller's function on blocks (n, m); a single right-hand side reaches it as a vector."""

    def apply(p: Tensor) -> Tensor:
        q = function(p) if p.shape[1] > 1 else function(p[:, 0])[:, None]
        if q.shape != p.shape or q.dtype != p.dtype:
            allowed = "map (n,) to (n,) and (n, m) to (n, m), keeping the dtype"
            got = f"{tuple(p.shape)} to {tuple(q.shape)}, {q.dtype}"
            raise invalid("solve", parameter, allowed, got)
        return q

    return apply


def check_fits(parameter: str, matrix: Matrix, b: Tensor) -> None:
    """Refuse a matrix that is not (n, n), or a tensor that is not of b's dtype and device."""
    n = len(b)
    if tuple(matrix.shape) != (n, n):
        allowed = f"have shape ({n}, {n}) to match b"
        raise invalid("solve", parameter, allowed, tuple(matrix.shape))
    if isinstance(matrix, Tensor) and (matrix.dtype != b.dtype or matrix.device != b.device):
        allowed = f"have the dtype and device of b, {b.dtype} on {b.device}"
        raise invalid("solve", parameter, allowed, f"{matrix.dtype} on {matrix.device}")


def check_symmetric(operator: Operator, b: Tensor) -> None:
    """Refuse an A that is not its own transpose: a matrix by its entries, a function by its
    products with two vectors.
    """
    if operator.csr is not None:
        gap, size = _largest(operator.csr - operator.csr.T), _largest(operator.csr)
    elif operator.matrix is not None and operator.matrix.layout is torch.strided:
        matrix = operator.matrix.detach()
        gap, size = float((matrix - matrix.mT).abs().max()), float(matrix.abs().max())
    else:
        gap, size = _probe(operator, b)
        if not np.isfinite(size):
            allowed = "map finite vectors to finite vectors"
            raise invalid("solve", "A", allowed, "nan or infinity")
    if gap > SYMMETRY * torch.finfo(b.dtype).eps * size:
        remedy = "Conjugate gradients need a symmetric A; solve A'A x = A'b, or use GMRES."
        got = f"a difference of {gap:.3g} from its transpose"
        raise invalid("solve", "A", "be symmetric", got, remedy)


def _largest(matrix: "csr_array") -> float:
    return float(abs(matrix).max()) if matrix.nnz else 0.0


@torch.no_grad()
def _probe(operator: Operator, b: Tensor) -> tuple[float, float]:
    """u'Av - v'Au for two fixed vectors, and the size of its terms."""
    place = torch.arange(1, len(b) + 1).to(b)
    u, v = torch.cos(place)[:, None], torch.sin(2.0 * place.sqrt())[:, None]
    Au, Av = operator.apply(u), operator.apply(v)
    size = float(u.norm() * Av.norm() + v.norm() * Au.norm())
    return abs(float((u * Av).sum() - (v * Au).sum())), size


def _from_tensor(A: Tensor, b: Tensor) -> Operator:
    check_fits("A", A, b)
    if A.layout not in LAYOUTS:
        allowed = "be dense or a sparse COO, CSR or CSC tensor"
        raise invalid("solve", "A", allowed, A.layout, "Use A.to_dense().to_sparse_csr().")
    if A.layout is torch.strided:
        _require_finite(torch.isfinite(A.detach()).all())
        return Operator(lambda p: A @ p, matrix=A)
    coo, csr = _coalesced(A), None
    _require_finite(torch.isfinite(coo.values()).all())
    if A.device.type == "cpu":
        from scipy.sparse import coo_array

        csr = coo_array((coo.values().numpy(), tuple(coo.indices().numpy())), A.shape).tocsr()
    return Operator(lambda p: torch.sparse.mm(A, p), csr, A)


def _from_scipy(A: SparseMatrix, b: Tensor) -> Operator:
    check_fits("A", A, b)
    if b.device.type != "cpu":
        remedy = "Use torch.sparse_csr_tensor(..., device=...)."
        raise invalid("solve", "A", f"be on {b.device}, as b is", "a SciPy matrix", remedy)
    from scipy.sparse import csr_array

    csr = csr_array(A.tocsr(), dtype=b.numpy().dtype)
    if not csr.has_canonical_format:
        csr = csr_array(csr, copy=True)  # the caller's matrix stays as it is
        csr.sum_duplicates()
    _require_finite(np.isfinite(csr.data).all())
    return Operator(on_arrays(csr), csr)


def _coalesced(A: Tensor) -> Tensor:
    return A.detach().to_sparse_coo().coalesce()


def _require_finite(finite: Tensor | np.bool_) -> None:
    if not finite:
        raise invalid("solve", "A", "be finite", "nan or infinity")
