r"""Causal self-attention on torch's own kernels, with places as rotations.

.. math:: y = \mathrm{softmax}\big(\tfrac{1}{\sqrt{d}}\, R q\, (R k)^\top + \text{mask}\big)\, v
          (theory/sequences.md, eq. 23.2)

R_t turns pairs of coordinates by angles proportional to t (Su et al. 2021), so that logits depend
on the distance of two places.

Letters: B batch, L length, D width, H heads, d = D / H.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import scaled_dot_product_attention

from partita.core.arguments import PositiveInt, check_count
from partita.errors import invalid
from partita.nets.base import linear
from partita.nets.mixer import MatrixMixer, causal_mask, check_capacity

BASE = 10_000.0


class AttentionState(NamedTuple):
    """Keys and values so far."""

    k: Tensor  # (B, H, capacity, d)
    v: Tensor
    steps: int


class Attention(MatrixMixer[AttentionState]):
    """Multi-head causal attention, ``(B, L, D) -> (B, L, D)``.

    Arguments:
        width: D.
        heads: H; D / H must be even.
        generator: Source of the first weights.

    >>> Attention(8, 2, generator=torch.Generator().manual_seed(0))(torch.zeros(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    def __init__(self, width: PositiveInt, heads: PositiveInt = 4, *, generator: Generator) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        if width % (2 * heads):
            raise invalid("Attention", "width", f"be a multiple of 2 heads = {2 * heads}", width)
        self.into = linear(width, 3 * width, generator=generator)
        self.out = linear(width, width, generator=generator)

    def project(self, u: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """v, ``(B, D, L)``, and q and k turned by their places, ``(B, H, L, d)``."""
        q, k, v = self.into(u).chunk(3, -1)
        t = torch.arange(u.shape[1], device=u.device)
        return v.transpose(1, 2), (_turned(self._split(q), t), _turned(self._split(k), t))

    def operate(self, v: Tensor, gates: tuple[Tensor, ...]) -> Tensor:
        q, k = gates
        y = scaled_dot_product_attention(q, k, self._split(v.transpose(1, 2)), is_causal=True)
        return y.transpose(2, 3).flatten(1, 2)

    def matrix(self, gates: tuple[Tensor, ...], length: int) -> Tensor:
        logits = self.logits(gates).masked_fill(~causal_mask(length, gates[0].device), -torch.inf)
        return logits.softmax(-1).repeat_interleave(self.width // self.heads, 1)

    def logits(self, gates: tuple[Tensor, ...]) -> Tensor:
        """q . k / sqrt(d) before the softmax, ``(B, H, L, L)``."""
        q, k = gates
        return q @ k.mT * q.shape[-1] ** -0.5

    def start(self, batch: int, capacity: int) -> AttentionState:
        check_count("Attention", "capacity", capacity)
        shape = (batch, self.heads, capacity, self.width // self.heads)
        empty = self.into.weight.new_zeros(shape)
        return AttentionState(empty, empty.clone(), 0)

    def step(self, u: Tensor, state: AttentionState) -> tuple[Tensor, AttentionState]:
        t = state.steps
        check_capacity(t, state.k.shape[2], "Attention")
        q, k, v = (self._split(x) for x in self.into(u).unsqueeze(1).chunk(3, -1))
        place = torch.tensor([t], device=u.device)
        state.k[:, :, t], state.v[:, :, t] = _turned(k, place)[:, :, 0], v[:, :, 0]
        y = scaled_dot_product_attention(
            _turned(q, place), state.k[:, :, : t + 1], state.v[:, :, : t + 1]
        )
        return self.out(y[:, :, 0].flatten(1)), state._replace(steps=t + 1)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _turned(x: Tensor, t: Tensor) -> Tensor:
    """Pairs of coordinates turned by t / base^(2 i / d), ``(*, L, d), (L,) -> (*, L, d)``."""
    half = x.shape[-1] // 2
    rate = BASE ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = t.double()[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
