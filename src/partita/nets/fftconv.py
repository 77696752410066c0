r"""The discrete Fourier transform, circulant and Toeplitz operators, and long convolutions by FFT.

.. math:: y_t = \sum_{n=0}^{t} h_{t-n} u_n, \qquad y = W^{-1}\big((W h) \odot (W u)\big)
          (theory/sequences.md, eq. 21.7)

A convolution of the padded sequences is causal; without the zeros the end of u would wrap around to
its beginning. No length needs to be a power of two. In floating point with unit roundoff e, for a
transform of length n (Higham 2002, theorem 24.2),

.. math:: |\hat y - y|_\infty \le 8 e \log_2 n \, (2 |h|_2 + |W h|_\infty) |u|_2
          (theory/sequences.md, eq. 21.8)

Letters: h filter, u input, y output, L length, M filter length, W the matrix of the transform.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from partita.core.arguments import check_count
from partita.errors import invalid
from partita.nets.transforms import HALF, blocks, by_transform, fast_length, real, transform


def dft_matrix(n: int, like: Tensor, *, unitary: bool = False) -> Tensor:
    """W with W[j, k] = exp(-2 pi i j k / n), complex, (n, n); divided by sqrt(n) if ``unitary``, so
    that its inverse is its adjoint.

    >>> (
    ...     dft_matrix(4, torch.zeros(1)) @ torch.tensor([1, 0, 0, 0], dtype=torch.complex64)
    ... ).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    check_count("dft_matrix", "n", n)
    order = torch.arange(n, device=like.device)
    # the remainder first: no large angles to round
    angle = (order[:, None] * order % n).double() * (-2 * torch.pi / n)
    dtype = torch.complex128 if like.dtype == torch.float64 else torch.complex64
    W = torch.polar(torch.ones_like(angle), angle).to(dtype)
    return W / n**0.5 if unitary else W


def causal_convolution(h: Tensor, u: Tensor, H: Tensor | None = None) -> Tensor:
    """y of the equation above, ``(*, M), (*, L) -> (*, L)``; leading dimensions broadcast, any M
    and L.

    ``H`` is :func:`spectrum` of h where it is at hand.

    >>> causal_convolution(torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0, 2.0])).round(
    ...     decimals=3
    ... ).tolist()
    [1.0, 0.5, 2.0]
    """
    L = _check_lengths("causal_convolution", h, u)
    h = h[..., :L]  # what lies beyond L never meets an input
    n = fast_length(L + h.shape[-1] - 1)
    parts = [by_transform(*part, n=n, L=L) for part in blocks(h, u, H, n)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts, -2)).to(_kept(u))


@torch.no_grad()
def spectrum(h: Tensor, L: int) -> Tensor:
    """W h as a causal convolution of L steps needs it, ``(*, M) -> (*, F)``: numbers, through which
    no gradient flows.
    """
    h = real(h[..., :L])
    return transform(h, fast_length(L + h.shape[-1] - 1))


def circular_convolution(h: Tensor, u: Tensor) -> Tensor:
    """sum_n h[(t - n) mod L] u[n], ``(*, L), (*, L) -> (*, L)``: past and future wrap around on
    purpose.
    """
    L = _check_lengths("circular_convolution", h, u)
    if h.shape[-1] != L:
        allowed, remedy = f"have the length of u, {L}", "Pad it, or use causal_convolution."
        raise invalid("circular_convolution", "h", allowed, h.shape[-1], remedy)
    return by_transform(h, u, n=L, L=L).to(_kept(u))


def chunked_convolution(h: Tensor, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
    """The causal convolution of an input that arrives in pieces, piece by piece, in memory of the
    filter and one piece (overlap and add).

    >>> whole = torch.arange(6.0)
    >>> parts = chunked_convolution(torch.ones(3), whole.split(2))
    >>> torch.cat(list(parts)).round(decimals=3).tolist()
    [0.0, 1.0, 3.0, 6.0, 9.0, 12.0]
    """
    tail: Tensor | None = None
    for chunk in chunks:
        size = _check_lengths("chunked_convolution", h, chunk)
        full = size + h.shape[-1] - 1
        y = by_transform(h, chunk, n=fast_length(full), L=full)
        if tail is not None:
            reach = max(full, tail.shape[-1])
            y = pad(y, (0, reach - full)) + pad(tail, (0, reach - tail.shape[-1]))
        tail = y[..., size:]
        yield y[..., :size].to(_kept(chunk))


def fft_error_bound(h: Tensor, u: Tensor) -> Tensor:
    """The bound of (21.8) on every coordinate of :func:`causal_convolution`, ``(*)``."""
    n = fast_length(u.shape[-1] + h.shape[-1] - 1)
    dtype = torch.float32 if u.dtype in HALF else u.dtype
    h, u = h.to(dtype), u.to(dtype)
    size = (2 * h.norm(dim=-1) + torch.fft.rfft(h, n=n).abs().amax(-1)) * u.norm(dim=-1)
    # the unit roundoff is half of eps
    return 4 * torch.finfo(dtype).eps * max(1.0, torch.tensor(float(n)).log2().item()) * size


@dataclass(frozen=True)
class Circulant:
    """The matrix S[i, j] = c[(i - j) mod L]: a circular convolution with its first column c, ``(*,
    L)``.

    >>> Circulant(torch.tensor([0.0, 1.0, 0.0])).dense().int().tolist()
    [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    """

    column: Tensor

    def __matmul__(self, x: Tensor) -> Tensor:
        return circular_convolution(self.column, x)

    @property
    def T(self) -> "Circulant":
        """The transpose, whose first column is the first row."""
        return Circulant(self.column.flip(-1).roll(1, -1))

    def eigenvalues(self) -> Tensor:
        """The transform of the first column: W S W^{-1} is diagonal, so no characteristic
        polynomial needs to be solved.
        """
        return torch.fft.fft(self.column)

    def dense(self) -> Tensor:
        """The matrix, ``(*, L, L)``."""
        i = torch.arange(self.column.shape[-1], device=self.column.device)
        return self.column[..., (i[:, None] - i) % len(i)]


@dataclass(frozen=True)
class Toeplitz:
    """The matrix S[i, j] = column[i - j] below and on the diagonal, row[j - i] above; ``column[0]``
    stands on the diagonal.

    Arguments:
        column: ``(*, I)``.
        row: ``(*, J)``, its first entry unused; zeros of the column's length if not given, which
            makes S causal.

    >>> Toeplitz(torch.tensor([1.0, 2.0, 3.0])).dense().int().tolist()
    [[1, 0, 0], [2, 1, 0], [3, 2, 1]]
    """

    column: Tensor
    row: Tensor | None = None

    @property
    def first_row(self) -> Tensor:
        return torch.zeros_like(self.column) if self.row is None else self.row

    def __matmul__(self, x: Tensor) -> Tensor:
        """S x, ``(*, J) -> (*, I)``, as a part of a circulant product."""
        I, J = self.column.shape[-1], self.first_row.shape[-1]
        if x.shape[-1:] != (J,):
            raise invalid("Toeplitz", "x", f"have shape (*, {J}) to match the row", tuple(x.shape))
        if self.row is None:
            return causal_convolution(self.column, x)
        n = fast_length(I + J - 1)
        around = pad(self.column, (0, n - I - J + 1))
        around = torch.cat([around, self.row[..., 1:].flip(-1)], -1)
        return by_transform(around, x, n=n, L=I).to(_kept(x))

    @property
    def T(self) -> "Toeplitz":
        """The transpose: column and row change places, the diagonal stays."""
        diagonal = self.column[..., :1]
        return Toeplitz(torch.cat([diagonal, self.first_row[..., 1:]], -1), self.column)

    def dense(self) -> Tensor:
        """The matrix, ``(*, I, J)``."""
        row = self.first_row
        i = torch.arange(self.column.shape[-1], device=row.device)[:, None]
        j = torch.arange(row.shape[-1], device=row.device)
        below, above = self.column[..., (i - j).clamp_min(0)], row[..., (j - i).clamp_min(0)]
        return torch.where(i >= j, below, above)


def _kept(u: Tensor) -> torch.dtype:
    """The dtype of a result: that of the input, but float32 for whole numbers, which rounding would
    cut.
    """
    return u.dtype if u.is_floating_point() else torch.float32


def _check_lengths(owner: str, h: Tensor, u: Tensor) -> int:
    for name, x in (("h", h), ("u", u)):
        if x.dim() == 0 or x.shape[-1] == 0:
            raise invalid(owner, name, "have a length of at least 1", f"shape {tuple(x.shape)}")
    return u.shape[-1]
