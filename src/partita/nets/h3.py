r"""H3: two gates around two state-space models.

.. math:: y = D_q\, S_\varepsilon\, D_k\, S_\varphi\, v
          (theory/sequences.md, eq. 23.3)

S_phi is a shift model, whose state holds the last values (its filter is C itself); S_epsilon a
diagonal one with a long memory.

Letters: q, k, v projections of u; S Toeplitz from the filter of a model, D diagonal; N state.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from partita.core.arguments import PositiveInt, Several
from partita.nets.base import linear
from partita.nets.fftconv import Toeplitz, causal_convolution
from partita.nets.mixer import MatrixMixer, channels_first
from partita.nets.short import short_filters
from partita.nets.ssm import DiagonalSSM, SSMState


class H3State(NamedTuple):
    recent: Tensor  # (B, D, N), the present last
    long: SSMState


class H3(MatrixMixer[H3State]):
    """The operator above with a linear layer before and after, ``(B, L, D) -> (B, L, D)``.

    Arguments:
        width: D.
        state: N of both models.
        longest: Steps that the diagonal model remembers at first.
        generator: Source of the first weights.
    """

    def __init__(
        self,
        width: PositiveInt,
        state: Several = 16,
        *,
        longest: float = 1000.0,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.width = width
        self.into = linear(width, 3 * width, generator=generator)
        self.shift = nn.Parameter(short_filters(width, state, generator))
        self.long = DiagonalSSM(width, state, longest=longest, generator=generator)
        self.out = linear(width, width, generator=generator)

    def project(self, u: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        q, k, v = channels_first(self.into.weight, self.into.bias, u).chunk(3, 1)
        return v, (q, k, self.shift_filter(u.shape[1]), self.long.filter(u.shape[1]))

    def shift_filter(self, length: int) -> Tensor:
        """C of the shift model as a filter, ``(D, L)``: zero beyond its state."""
        h = self.shift.flip(-1)[:, :length]
        return nn.functional.pad(h, (0, length - h.shape[-1]))

    def operate(self, v: Tensor, gates: tuple[Tensor, ...]) -> Tensor:
        q, k, near, far = gates
        return q * causal_convolution(far, k * causal_convolution(near, v))

    def matrix(self, gates: tuple[Tensor, ...], length: int) -> Tensor:
        q, k, near, far = gates
        return q.unsqueeze(-1) * (
            Toeplitz(far).dense() @ (k.unsqueeze(-1) * Toeplitz(near).dense())
        )

    def start(self, batch: int, capacity: int) -> H3State:
        return H3State(
            self.shift.new_zeros(batch, *self.shift.shape), self.long.start(batch, capacity)
        )

    def step(self, u: Tensor, state: H3State) -> tuple[Tensor, H3State]:
        q, k, v = self.into(u).chunk(3, 1)
        recent = torch.cat([state.recent[..., 1:], v.unsqueeze(-1)], -1)
        y, long = self.long.step(k * (recent * self.shift).sum(-1), state.long)
        return self.out(q * y), H3State(recent, long)
