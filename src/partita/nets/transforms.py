r"""Products of transforms: the arithmetic under every convolution by FFT, with gradients of its
own.

.. math:: y = W^{-1}\big((W h) \odot (W u)\big)
          (theory/sequences.md, eq. 21.7)

Letters: h filter, u input, y output, n length of the transforms, L values of y that are kept, W the
matrix of the transform.
"""

from functools import lru_cache
from typing import cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

HALF = (torch.float16, torch.bfloat16)  # dtypes without a transform on the CPU: computed in float32
# values to transform at once: what is made on the way then stays in the caches, and in memory that
# was used before
AT_ONCE = 2**22


@lru_cache(maxsize=256)
def fast_length(n: int) -> int:
    """The next length that is a product of small primes, for which transforms are fast.

    >>> fast_length(1999)
    2000
    """
    from scipy.fft import next_fast_len

    return cast(int, next_fast_len(n, True))


class _TransformContext(FunctionCtx):
    saved_tensors: tuple[Tensor, Tensor, Tensor, Tensor]
    needs_input_grad: tuple[bool, ...]
    n: int
    L: int


class _ByTransform(torch.autograd.Function):
    """The first L values of the product of two transforms, with gradients by half-size transforms:
    torch's own take a full complex one.
    """

    @staticmethod
    def forward(
        ctx: _TransformContext, h: Tensor, u: Tensor, H: Tensor | None, n: int, L: int
    ) -> Tensor:
        H, U = transform(h, n) if H is None else H, transform(u, n)
        ctx.n, ctx.L = n, L
        ctx.save_for_backward(h, u, H, U)
        return torch.fft.irfft(U * H, n=n)[..., :L]

    @staticmethod
    def backward(ctx: _TransformContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (h, u, H, U), (g,), n = ctx.saved_tensors, grads, ctx.n
        of_h = of_u = None
        needs_h, needs_u, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled():
            # to be differentiated again: what was kept are numbers, not functions of h and u
            y = torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(h, n=n), n=n)[..., : ctx.L]
            if needs_h:
                (of_h,) = torch.autograd.grad(y, h, g, create_graph=True)
            if needs_u:
                (of_u,) = torch.autograd.grad(y, u, g, create_graph=True)
            return of_h, of_u, None, None, None
        # conjugates in place: one that is only marked would be copied by each product
        G = transform(g, n).conj_physical_()
        if needs_h:
            of_h = _reduced((G * U).conj_physical_(), h, n)
        if needs_u:
            of_u = _reduced(G.mul_(H).conj_physical_(), u, n)
        return of_h, of_u, None, None, None


def transform(x: Tensor, n: int) -> Tensor:
    """W x of length n; only what is missing is filled with zeros, where torch's own padding would
    first fill all of it.
    """
    padded = x.new_empty(*x.shape[:-1], n)
    padded[..., : x.shape[-1]], padded[..., x.shape[-1] :] = x, 0.0
    return torch.fft.rfft(padded)


def _reduced(product: Tensor, like: Tensor, n: int) -> Tensor:
    """Back in time, summed over the dimensions along which ``like`` was repeated."""
    summed = product.sum_to_size(*like.shape[:-1], product.shape[-1])
    return torch.fft.irfft(summed, n=n)[..., : like.shape[-1]]


def blocks(
    h: Tensor, u: Tensor, H: Tensor | None, n: int
) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """Filters, inputs and transforms, a few channels at a time where all of them would be too much
    at once.
    """
    channels = u.shape[-2] if u.dim() > 1 and h.dim() > 1 and h.shape[-2] == u.shape[-2] else 1
    size = max(1, AT_ONCE * channels * u.shape[-1] // max(1, n * u.numel()))
    if size >= channels:
        return [(h, u, H)]
    spectra = [None] * -(-channels // size) if H is None else H.split(size, -2)
    return list(zip(h.split(size, -2), u.split(size, -2), spectra, strict=True))


def by_transform(h: Tensor, u: Tensor, H: Tensor | None = None, *, n: int, L: int) -> Tensor:
    """The first L values of the circular convolution of length n of both after zero padding."""
    h, u = real(h), real(u)
    if not h.numel() or not u.numel():  # an empty batch, which transforms do not take
        return u.new_zeros(*torch.broadcast_shapes(h.shape[:-1], u.shape[:-1]), L)
    if torch.is_grad_enabled():
        return cast(Tensor, _ByTransform.apply(h, u, H, n, L))
    return torch.fft.irfft(transform(u, n) * (transform(h, n) if H is None else H), n=n)[..., :L]


def real(x: Tensor) -> Tensor:
    """In a dtype that has transforms."""
    return x.to(torch.float32) if x.dtype in HALF or not x.is_floating_point() else x
