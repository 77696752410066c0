r"""The networks of a variational recurrent network, and one step of it.

.. math:: z_t \sim p(\cdot \mid h_{t-1}), \quad x_t \sim p(\cdot \mid \phi^z(z_t), h_{t-1}), \quad
          h_t = f\big(\phi^x(x_t), \phi^z(z_t), h_{t-1}\big), \quad q(z_t \mid \phi^x(x_t), h_{t-1})
          (theory/latent_variables.md, eq. 41.11)

Letters: n sequences, E numbers in a step, M latent dimensions, H hidden units, F features.
"""

import torch
from torch import Generator, Tensor, nn

from partita.models.directed.outputs import Output
from partita.nets.mlp import MLP

CELLS = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}


class Recurrence(nn.Module):
    """f: a GRU or LSTM cell whose memory is one tensor, ``(n, H)`` or ``(n, 2 H)``; its first H
    numbers are h.
    """

    def __init__(self, inputs: int, hidden: int, kind: str, *, generator: Generator) -> None:
        super().__init__()
        self.hidden, self.memory = hidden, hidden * (2 if kind == "lstm" else 1)
        self.cell = CELLS[kind](inputs, hidden, device=generator.device)
        with torch.no_grad():
            for parameter in self.cell.parameters():
                nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5, generator=generator)
            if kind == "lstm":
                # remember at first
                dict(self.cell.named_parameters())["bias_hh"][hidden : 2 * hidden] += 1.0

    def forward(self, u: Tensor, state: Tensor) -> Tensor:
        """The next memory."""
        if self.memory == self.hidden:
            return self.cell(u, state)
        h, c = state.chunk(2, -1)
        return torch.cat(self.cell(u, (h.contiguous(), c.contiguous())), -1)


class Parts(nn.Module):
    """phi_x, phi_z, prior, encoder, decoder and recurrence; any of them may be replaced by a module
    that maps the same shapes.
    """

    def __init__(
        self,
        output: Output,
        latent: int,
        hidden: int,
        features: int,
        cell: str,
        activation: str,
        *,
        generator: Generator,
    ) -> None:
        super().__init__()
        more = {"widths": (features,), "activation": activation, "generator": generator}
        self.hidden = hidden
        self.phi_x = MLP(output.inputs, features, **more)
        self.phi_z = MLP(latent, features, **more)
        self.prior = MLP(hidden, 2 * latent, **more)
        self.encoder = MLP(features + hidden, 2 * latent, **more)
        self.decoder = MLP(features + hidden, output.outputs, **more)
        self.recurrence = Recurrence(2 * features, hidden, cell, generator=generator)

    def start(self, n: int, like: Tensor) -> Tensor:
        """The memory before the first step, zeros."""
        return like.new_zeros(n, self.recurrence.memory)

    def h(self, state: Tensor) -> Tensor:
        """h of a memory, ``(*, H)``."""
        return state[..., : self.hidden]

    def prior_of(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log deviation of p(z_t | h), each ``(*, M)``."""
        mean, log_scale = self.prior(h).chunk(2, -1)
        return mean, log_scale

    def posterior_of(self, seen: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log deviation of q(z_t | x_t, h) from the features of x_t."""
        mean, log_scale = self.encoder(torch.cat([seen, h], -1)).chunk(2, -1)
        return mean, log_scale

    def numbers_of(self, felt: Tensor, h: Tensor) -> Tensor:
        """What the likelihood of x_t takes, from the features of z_t."""
        return self.decoder(torch.cat([felt, h], -1))

    def advance(self, seen: Tensor, felt: Tensor, state: Tensor) -> Tensor:
        """The memory after a step, from the features of x_t and z_t."""
        return self.recurrence(torch.cat([seen, felt], -1), state)
