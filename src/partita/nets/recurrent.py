r"""The LSTM as a mixer of sequences, on torch's own kernel.

.. math:: c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad y_t = o_t \odot \tanh c_t, \qquad i, f, g,
          o \text{ from } (u_t, y_{t-1})

Letters: B batch, L length, D width.
"""

import torch
from torch import Generator, Tensor, nn

from partita.core.arguments import PositiveInt
from partita.nets.base import init_uniform, linear
from partita.nets.mixer import Mixer

Memory = tuple[Tensor, Tensor] | None


class LSTM(Mixer[Memory]):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), ``(B, L, D) -> (B, L, D)``.

    Arguments:
        width: D.
        hidden: Units inside; D if not given.
        generator: Source of the first weights.
    """

    def __init__(
        self, width: PositiveInt, hidden: PositiveInt | None = None, *, generator: Generator
    ) -> None:
        super().__init__()
        self.width, hidden = width, width if hidden is None else hidden
        self.lstm = nn.LSTM(width, hidden, batch_first=True, device=generator.device)
        init_uniform(self.lstm, hidden**-0.5, generator)
        with torch.no_grad():  # remember at first
            self.lstm.get_parameter("bias_hh_l0")[hidden : 2 * hidden] += 1.0
        self.out = linear(hidden, width, generator=generator)

    def forward(self, u: Tensor) -> Tensor:
        return self.out(self.lstm(self.check(u))[0])

    def start(self, batch: int, capacity: int) -> Memory:
        return None

    def step(self, u: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        y, state = self.lstm(u.unsqueeze(1), state)
        return self.out(y[:, 0]), state
