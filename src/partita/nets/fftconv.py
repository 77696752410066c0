r"""The discrete Fourier transform, circulant and Toeplitz operators, and long convolutions by FFT.

.. math:: y_t = \sum_{n=0}^{t} h_{t-n} u_n, \qquad y = W^{-1}\big((W h) \odot (W u)\big)    (theory/sequences.md, eq. 21.7)

A convolution of the padded sequences is causal; without the zeros the end of u would wrap around to its beginning. No length needs to
be a power of two. In floating point with unit roundoff e, for a transform of length n (Higham 2002, theorem 24.2),

.. math:: |\hat y - y|_\infty \le 8 e \log_2 n \, (2 |h|_2 + |W h|_\infty) |u|_2               (theory/sequences.md, eq. 21.8)

Letters: h filter, u input, y output, L length, M filter length, W the matrix of the transform.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from partita.core.checks import check_count
from partita.core.errors import invalid

HALF = (torch.float16, torch.bfloat16)  # dtypes without a transform on the CPU: computed in float32


def dft_matrix(n: int, like: Tensor, *, unitary: bool = False) -> Tensor:
    """W with W[j, k] = exp(-2 pi i j k / n), complex, (n, n); divided by sqrt(n) if ``unitary``, so that its inverse is its adjoint.

    >>> (dft_matrix(4, torch.zeros(1)) @ torch.tensor([1, 0, 0, 0], dtype=torch.complex64)).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    check_count("dft_matrix", "n", n)
    order = torch.arange(n, device=like.device)
    angle = (order[:, None] * order % n).double() * (-2 * torch.pi / n)  # the remainder first: no large angles to round
    W = torch.polar(torch.ones_like(angle), angle).to(torch.complex128 if like.dtype == torch.float64 else torch.complex64)
    return W / n**0.5 if unitary else W


@lru_cache(maxsize=256)
def fast_length(n: int) -> int:
    """The next length that is a product of small primes, for which transforms are fast.

    >>> fast_length(1999)
    2000
    """
    from scipy.fft import next_fast_len

    return int(next_fast_len(n, real=True))  # type: ignore[arg-type]


def causal_convolution(h: Tensor, u: Tensor, H: Tensor | None = None) -> Tensor:
    """y of the equation above, ``(*, M), (*, L) -> (*, L)``; leading dimensions broadcast, any M and L.

    ``H`` is :func:`spectrum` of h where it is at hand.

    >>> causal_convolution(torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0, 2.0])).round(decimals=3).tolist()
    [1.0, 0.5, 2.0]
    """
    L = _check_lengths("causal_convolution", h, u)
    h = h[..., :L]  # what lies beyond L never meets an input
    return _by_transform(h, u, fast_length(L + h.shape[-1] - 1), L, H).to(_kept(u))


@torch.no_grad()
def spectrum(h: Tensor, L: int) -> Tensor:
    """W h as a causal convolution of L steps needs it, ``(*, M) -> (*, F)``: numbers, through which no gradient flows."""
    h = _real(h[..., :L])
    return _transform(h, fast_length(L + h.shape[-1] - 1))


def circular_convolution(h: Tensor, u: Tensor) -> Tensor:
    """sum_n h[(t - n) mod L] u[n], ``(*, L), (*, L) -> (*, L)``: past and future wrap around on purpose."""
    L = _check_lengths("circular_convolution", h, u)
    if h.shape[-1] != L:
        raise invalid("circular_convolution", "h", f"have the length of u, {L}", h.shape[-1], "Pad it, or use causal_convolution.")
    return _by_transform(h, u, L, L).to(_kept(u))


def chunked_convolution(h: Tensor, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
    """The causal convolution of an input that arrives in pieces, piece by piece, in memory of the filter and one piece (overlap and add).

    >>> whole = torch.arange(6.0)
    >>> parts = chunked_convolution(torch.ones(3), whole.split(2))
    >>> torch.cat(list(parts)).round(decimals=3).tolist()
    [0.0, 1.0, 3.0, 6.0, 9.0, 12.0]
    """
    tail: Tensor | None = None
    for chunk in chunks:
        size = _check_lengths("chunked_convolution", h, chunk)
        full = size + h.shape[-1] - 1
        y = _by_transform(h, chunk, fast_length(full), full)
        if tail is not None:
            y = y + torch.nn.functional.pad(tail, (0, full - tail.shape[-1])) if tail.shape[-1] <= full else _added(tail, y)
        tail = y[..., size:]
        yield y[..., :size].to(_kept(chunk))


def fft_error_bound(h: Tensor, u: Tensor) -> Tensor:
    """The bound of (21.8) on every coordinate of :func:`causal_convolution`, ``(*)``."""
    n = fast_length(u.shape[-1] + h.shape[-1] - 1)
    dtype = torch.float32 if u.dtype in HALF else u.dtype
    h, u = h.to(dtype), u.to(dtype)
    size = (2 * h.norm(dim=-1) + torch.fft.rfft(h, n=n).abs().amax(-1)) * u.norm(dim=-1)
    return 4 * torch.finfo(dtype).eps * max(1.0, torch.tensor(float(n)).log2().item()) * size  # the unit roundoff is half of eps


@dataclass(frozen=True)
class Circulant:
    """The matrix S[i, j] = c[(i - j) mod L]: a circular convolution with its first column c, ``(*, L)``.

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
        """The transform of the first column: W S W^{-1} is diagonal, so no characteristic polynomial needs to be solved."""
        return torch.fft.fft(self.column)

    def dense(self) -> Tensor:
        """The matrix, ``(*, L, L)``."""
        i = torch.arange(self.column.shape[-1], device=self.column.device)
        return self.column[..., (i[:, None] - i) % len(i)]


@dataclass(frozen=True)
class Toeplitz:
    """The matrix S[i, j] = column[i - j] below and on the diagonal, row[j - i] above; ``column[0]`` stands on the diagonal.

    Arguments:
        column: ``(*, I)``.
        row: ``(*, J)``, its first entry unused; zeros of the column's length if not given, which makes S causal.

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
        around = torch.nn.functional.pad(self.column, (0, n - I - J + 1))
        around = torch.cat([around, self.row[..., 1:].flip(-1)], -1)
        return _by_transform(around, x, n, I).to(_kept(x))

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


class _ByTransform(torch.autograd.Function):
    """The first L values of the product of two transforms, with gradients by half-size transforms: torch's own take a full complex one."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, u: Tensor, H: Tensor | None, n: int, L: int) -> Tensor:
        H, U = _transform(h, n) if H is None else H, _transform(u, n)
        ctx.n, ctx.L = n, L
        ctx.save_for_backward(h, u, H, U)
        return torch.fft.irfft(U * H, n=n)[..., :L]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (h, u, H, U), (g,), n = ctx.saved_tensors, grads, ctx.n
        if torch.is_grad_enabled():  # to be differentiated again: what was kept are numbers, not functions of h and u
            wanted = [x for x, needed in zip((h, u), ctx.needs_input_grad, strict=False) if needed]
            found = iter(torch.autograd.grad(_plain(h, u, n, ctx.L), wanted, g, create_graph=True))
            return *(next(found) if needed else None for needed in ctx.needs_input_grad[:2]), None, None, None
        G = _transform(g, n).conj_physical_()  # conjugates in place: one that is only marked would be copied by each product
        of_h = _reduced((G * U).conj_physical_(), h, n) if ctx.needs_input_grad[0] else None
        of_u = _reduced(G.mul_(H).conj_physical_(), u, n) if ctx.needs_input_grad[1] else None
        return of_h, of_u, None, None, None


def _transform(x: Tensor, n: int) -> Tensor:
    """W x of length n; only what is missing is filled with zeros, where torch's own padding would first fill all of it."""
    padded = x.new_empty(*x.shape[:-1], n)
    padded[..., : x.shape[-1]], padded[..., x.shape[-1] :] = x, 0.0
    return torch.fft.rfft(padded)


def _reduced(product: Tensor, like: Tensor, n: int) -> Tensor:
    """Back in time, summed over the dimensions along which ``like`` was repeated."""
    return torch.fft.irfft(product.sum_to_size(*like.shape[:-1], product.shape[-1]), n=n)[..., : like.shape[-1]]


def _plain(h: Tensor, u: Tensor, n: int, L: int) -> Tensor:
    """The same with every step known to autograd."""
    return torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(h, n=n), n=n)[..., :L]


def _by_transform(h: Tensor, u: Tensor, n: int, L: int, H: Tensor | None = None) -> Tensor:
    """The first L values of the circular convolution of length n of both after zero padding."""
    h, u = _real(h), _real(u)
    if not h.numel() or not u.numel():  # an empty batch, which transforms do not take
        return u.new_zeros(*torch.broadcast_shapes(h.shape[:-1], u.shape[:-1]), L)
    if torch.is_grad_enabled():
        return _ByTransform.apply(h, u, H, n, L)  # type: ignore[return-value]
    return torch.fft.irfft(_transform(u, n) * (_transform(h, n) if H is None else H), n=n)[..., :L]


def _real(x: Tensor) -> Tensor:
    """In a dtype that has transforms."""
    return x.to(torch.float32) if x.dtype in HALF or not x.is_floating_point() else x


def _kept(u: Tensor) -> torch.dtype:
    """The dtype of a result: that of the input, but float32 for whole numbers, which rounding would cut."""
    return u.dtype if u.is_floating_point() else torch.float32


def _added(tail: Tensor, y: Tensor) -> Tensor:
    """A short piece onto a tail that reaches further."""
    return tail + torch.nn.functional.pad(y, (0, tail.shape[-1] - y.shape[-1]))


def _check_lengths(owner: str, h: Tensor, u: Tensor) -> int:
    for name, x in (("h", h), ("u", u)):
        if x.dim() == 0 or x.shape[-1] == 0:
            raise invalid(owner, name, "have a length of at least 1", f"shape {tuple(x.shape)}")
    return u.shape[-1]
