r"""Latent models with one decoder for all columns, and their missing columns by Metropolis within
Gibbs: latent variables given a full row,
then the missing columns given them.

.. math:: z' \sim q(\cdot \mid x), \quad a = \min\Big(1, \frac{w(x, z')}{w(x, z)}\Big); \qquad
          x_{\mathrm{mis}} \sim p(x_{\mathrm{mis}} \mid z)
          (theory/latent_variables.md, eq. 41.13)

The first step leaves p(z | x) as it is however bad q is, so that the chain's law is the model's own
(Mattei and Frellsen 2018), not the encoder's guess of it. The mean and the mode are of the
conditionals along the chain, which have less noise than its states.

Letters: B rows, D columns, C chains for each row, w weights.
"""

from abc import abstractmethod

import torch
from torch import Generator, Tensor

from partita.core import rng
from partita.core.protocols import Data
from partita.models.directed.latent import LatentModel, draw_latent
from partita.models.directed.outputs import Output

CHAINS = 8  # for each row, where they are averaged; one draw takes one
BURN_IN, KEPT = 100, 100  # steps
CELLS = 1 << 22  # rows x chains x columns at once


class Decoded(LatentModel):
    """A latent model whose columns are independent given what :meth:`decode` makes of z."""

    output: Output

    @abstractmethod
    def decode(self, z: Tensor) -> Tensor:
        """The numbers that the likelihood of the columns takes, ``(*, M) -> (*, outputs)``."""

    @torch.no_grad()
    def initialize(self, data: Data, *, generator: Generator) -> None:
        """Base rates, or means and scales, of the columns."""
        self.output.initialize(data.mean(), data.variance(), len(data))

    @torch.no_grad()
    def fill(self, x: Tensor, how: str = "mean", *, generator: Generator) -> Tensor:
        """Rows with NaN replaced by the posterior ``"mean"``, the ``"mode"`` (discrete columns) or
        one ``"draw"``, ``(B, D)``.
        """
        out, missing = x.to(self.like).clone(), x.isnan().any(-1)
        size = max(1, CELLS // (CHAINS * x.shape[-1] * self.output.blocks))
        for index in missing.nonzero()[:, 0].split(size):
            rows = out[index]
            out[index] = torch.where(rows.isnan(), self._filled(rows, how, generator), rows)
        return out

    def _filled(self, x: Tensor, how: str, generator: Generator) -> Tensor:
        chains = 1 if how == "draw" else CHAINS
        missing = x.isnan().expand(chains, *x.shape)
        start = self.draw(chains * len(x), generator=generator).view(missing.shape)
        full = torch.where(missing, start, x)
        z, total = draw_latent(self.posterior(full), 1, generator)[0], x.new_zeros(())
        for step in range(BURN_IN + KEPT):
            z = self._moved(full, z, generator)
            given = self.output.distribution(self.decode(z))
            full = torch.where(missing, rng.draw(given, generator), full)
            if step >= BURN_IN:
                total = total + self.output.expected(given).mean(0)
        if how == "draw":
            return full[0]
        return self.output.decided(total / KEPT, how)

    def _moved(self, x: Tensor, z: Tensor, generator: Generator) -> Tensor:
        """One step of z given x: a proposal from q, accepted by its weight."""
        q = self.posterior(x)
        proposed = draw_latent(q, 1, generator)[0]
        new, old = (self.log_joint(x, at) - q.log_prob(at) for at in (proposed, z))
        accept = rng.uniform(new.shape, new, generator).log() < new - old
        return torch.where(accept[..., None], proposed, z)
