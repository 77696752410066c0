r"""A short causal convolution with gaps as a mixer of sequences: a stack of them sees exponentially
far.

.. math:: y_t = \sum_{k=0}^{K-1} W_k\, u_{t - g k} \qquad (g \text{ the gap})
          (theory/sequences.md, eq. 21.4)

Letters: B batch, L length, D width, K kernel, g gap.
"""

from typing import cast

import torch
from torch import Generator, Tensor, nn

from partita.core.arguments import PositiveInt
from partita.nets.base import init_uniform, linear
from partita.nets.mixer import Mixer


class CausalConv(Mixer[Tensor]):
    """Gated causal convolution, ``(B, L, D) -> (B, L, D)``; it remembers exactly g (K - 1) steps
    beside the present.

    Arguments:
        width: D.
        kernel: K.
        gap: g.
        generator: Source of the first weights.
    """

    def __init__(
        self,
        width: PositiveInt,
        kernel: PositiveInt = 4,
        gap: PositiveInt = 1,
        *,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.width = width
        self.reach = gap * (kernel - 1)  # steps of the past that it sees
        self.conv = cast(
            nn.Conv1d,
            nn.utils.skip_init(
                nn.Conv1d, width, 2 * width, kernel, dilation=gap, device=generator.device
            ),
        )
        init_uniform(self.conv, (width * kernel) ** -0.5, generator)
        self.out = linear(width, width, generator=generator)

    def forward(self, u: Tensor) -> Tensor:
        padded = nn.functional.pad(self.check(u).transpose(1, 2), (self.reach, 0))
        return self.out(nn.functional.glu(self.conv(padded), 1).transpose(1, 2))

    def start(self, batch: int, capacity: int) -> Tensor:
        return self.conv.weight.new_zeros(batch, self.width, self.reach)

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        near = torch.cat([state, u.unsqueeze(-1)], -1)
        return self.out(nn.functional.glu(self.conv(near), 1)[..., 0]), near[..., 1:]
