r"""Sequential Monte Carlo: annealing whose chains are resampled by weight on the way (Del Moral,
Doucet and Jasra 2006).

.. math:: \hat Z = Z_0 \prod_s \frac1C \sum_c w_{s,c}, \qquad
          \widehat{\mathrm{Var}}(\log \hat Z) = \sum_i \Big( \sum_{c:\, i(c) = i} W_c \Big)^2 -
          \frac1C
          (theory/scoring.md, eq. 5.24)

Its variance comes from one run: i(c) is the start from which chain c descends, and what descends
from different starts is independent (Chan and Lai 2013; Lee and Whiteley 2018). A run in which all
descend from a few starts says so by itself.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from partita.core.arguments import check_real
from partita.core.protocols import EnergyModel, Sampler
from partita.core.quantity import Quantity
from partita.diagnostics.weights import summarize_weights
from partita.errors import invalid
from partita.evaluators.partition.ais import AIS
from partita.evaluators.partition.annealing import (
    Annealing,
    anneal,
    from_reference,
    resample,
)
from partita.evaluators.partition.witnesses import over_both_sides


@dataclass(frozen=True)
class SMC(AIS):
    """log Z by annealing with resampling; a lower bound in expectation. Arguments as for
    :class:`AIS`, and

    Arguments:
        resample_below: Share of the chains that carries the weight below which they are resampled;
            0 never, 1 at every step.
    """

    resample_below: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= check_real("SMC", "resample_below", self.resample_below) <= 1:
            raise invalid("SMC", "resample_below", "lie between 0 and 1", self.resample_below)

    def _climb(
        self, model: EnergyModel, kernel: Sampler, betas: Tensor, generator: torch.Generator
    ) -> Annealing:
        x = from_reference(model, self.chains, generator)
        return anneal(
            model, kernel, betas, x, resample_below=self.resample_below, generator=generator
        )

    def _from_above(
        self,
        q: Quantity,
        run: Annealing,
        model: EnergyModel,
        kernel: Sampler,
        betas: Tensor,
        generator: torch.Generator,
    ) -> Quantity:
        """The interval reaches over the way down as well: resampling evens the weights out on the
        way up, so that they no longer show what was passed by.
        """
        x = resample(run.x, run.log_w, len(run.x), generator)
        down = summarize_weights(anneal(model, kernel, betas.flip(0), x, generator=generator).log_w)
        log_z0 = float(model.reference().log_z)
        return over_both_sides(q, log_z0, summarize_weights(run.by_founder), down)
