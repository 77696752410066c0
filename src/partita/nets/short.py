r"""Short causal filters of each channel, in place: the memory is touched as few times as the
arithmetic allows.

.. math:: y_t = \sum_{k=0}^{K-1} s_k\, z_{t-k}
          (theory/sequences.md, eq. 21.4)

Letters: B batch, C channels, L length, K filter length; the last entry of a filter stands on the
present.
"""

from typing import cast

import torch
from torch import Generator, Tensor
from torch.autograd.function import FunctionCtx


class _ShiftedContext(FunctionCtx):
    saved_tensors: tuple[Tensor, Tensor]
    ahead: bool


class _Shifted(torch.autograd.Function):
    """Sum of K shifted products; its gradient in z is the same sum looking ahead, so that it can be
    differentiated again.
    """

    @staticmethod
    def forward(ctx: _ShiftedContext, z: Tensor, short: Tensor, ahead: bool) -> Tensor:
        ctx.save_for_backward(z, short)
        ctx.ahead = ahead
        y, L = short[:, -1:] * z, z.shape[-1]
        for back in range(1, min(short.shape[-1], L)):
            early, late = slice(None, L - back), slice(back, None)
            into, out_of = (early, late) if ahead else (late, early)
            y[..., into].addcmul_(short[:, -1 - back].unsqueeze(-1), z[..., out_of])
        return y

    @staticmethod
    def backward(ctx: _ShiftedContext, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (z, short), (g,) = ctx.saved_tensors, grads
        K, L = short.shape[-1], g.shape[-1]
        early, late = (g, z) if ctx.ahead else (z, g)
        taps = [
            torch.einsum("bcl,bcl->bc", early[..., : L - back], late[..., back:]).sum(0)
            if back < L
            else torch.zeros_like(short[:, 0])
            for back in range(K - 1, -1, -1)
        ]
        of_z = cast(Tensor, _Shifted.apply(g, short, not ctx.ahead))
        return of_z, torch.stack(taps, -1), None


def depthwise_causal(z: Tensor, short: Tensor) -> Tensor:
    """y of the equation, ``(B, C, L), (C, K) -> (B, C, L)``.

    >>> depthwise_causal(torch.tensor([[[1.0, 2.0, 4.0]]]), torch.tensor([[10.0, 1.0]])).tolist()
    [[[1.0, 12.0, 24.0]]]
    """
    return cast(Tensor, _Shifted.apply(z, short, False))


def short_filters(channels: int, kernel: int, generator: Generator) -> Tensor:
    """First values of short filters: near the present alone, so that a projection starts as a
    linear one.
    """
    short = torch.empty(channels, kernel, device=generator.device).uniform_(
        -0.3, 0.3, generator=generator
    )
    short[:, -1] += 1.0
    return short
