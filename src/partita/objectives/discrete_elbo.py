r"""The evidence bound of models with discrete latent variables, by any estimator of its gradient.

.. math:: \ell = -E_{q(z \mid x)}\big[\log p(x, z) - \log q(z \mid x)\big] \ge -\log p(x)
          (theory/gradients.md, eq. 40.23)

The loss is minus the bound at the draws, in nats for each row; for VIMCO it is the bound of several
draws, for Gumbel-softmax that of relaxed draws, which bounds nothing and is recorded under another
name.
"""

from dataclasses import dataclass, fields

import torch

from partita.core.arguments import check_choice
from partita.core.capability import require
from partita.core.protocols import Batch, Data, Losses, Objective, unwrapped
from partita.gradients import ESTIMATORS, Estimator, State
from partita.models.directed.belief import SigmoidBelief


@dataclass(frozen=True)
class DiscreteELBO(Objective[State]):
    """Minus the evidence bound, with gradients by a named estimator.

    Arguments:
        estimator: One of the names of :data:`partita.gradients.ESTIMATORS`.
        samples: Draws for each row (``"leave-one-out"``, ``"vimco"``).
        temperature: Of relaxed draws (``"gumbel-softmax"``, ``"straight-through"``), or where it
            starts (``"rebar"``, ``"relax"``).

    >>> import partita
    >>> from partita.models import SigmoidBelief
    >>> g = torch.Generator().manual_seed(0)
    >>> run = partita.fit(
    ...     SigmoidBelief(3, (4,), generator=g),
    ...     torch.eye(3),
    ...     DiscreteELBO("nvil"),
    ...     steps=2,
    ...     generator=g,
    ... )
    >>> sorted(set(run.history[-1]) - {"step", "epoch", "seconds"})
    ['active_units', 'elbo', 'estimator', 'model']
    """

    in_nats = False  # the estimator's own loss is in squared nats

    estimator: str = "disarm"
    samples: int = 4
    temperature: float = 0.5

    def __post_init__(self) -> None:
        self.made()  # checks the settings that it takes

    def made(self) -> Estimator:
        """The estimator itself, with those of the settings that it has."""
        check_choice("DiscreteELBO", "estimator", self.estimator, tuple(ESTIMATORS))
        kind = ESTIMATORS[self.estimator]
        own = {field.name for field in fields(kind)} & {"samples", "temperature"}
        return kind(**{name: getattr(self, name) for name in own})

    def init(self, model: SigmoidBelief, data: Data, *, generator: torch.Generator) -> State:
        require("DiscreteELBO", model)
        return self.made().init(
            model.hidden, model.output.inputs, like=model.like, generator=generator
        )

    def losses(
        self, model: SigmoidBelief, batch: Batch, state: State, *, generator: torch.Generator
    ) -> Losses[State]:
        estimator = self.made()
        made = model.estimate(batch.x, estimator, state, generator=generator)
        losses = {"model": -batch.mean(made.surrogate)}
        if made.extra.requires_grad:
            losses["estimator"] = made.extra
        name = "elbo" if estimator.bound == 1 else "bound"
        if estimator.surrogate_is_relaxed:
            name = "relaxed_elbo"
        numbers = {
            name: batch.mean(made.value),
            "active_units": torch.tensor(unwrapped(model).active_units()),
        }
        return losses, made.state, numbers
