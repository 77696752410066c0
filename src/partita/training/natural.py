"""Which Fisher matrix ``optimizer="natural"`` uses in a fit: always the model's own, from its
states, its chains or its draws.

Energy models: the covariance of their scores, over the chains of PCD where there are some, else
over all states where there are few, else over short chains of its own. Models with an exact
likelihood, flows among them: over independent draws. Models with latent variables and a Gaussian
proposal, the VAE: the sum of the Fisher matrices of the decoder's distribution p(x | z) and of the
encoder's q(z | x), at the rows of the batch.
"""

from typing import Any

import torch
from torch import Tensor

from partita.core import rng
from partita.core.protocols import Batch, Capability, DirectedModel, EnergyModel
from partita.errors import Unsupported
from partita.models.directed.decoded import Decoded
from partita.optim.natural_gradient import (
    MatrixMetric,
    Metric,
    NaturalGradient,
    PredictiveMetric,
    SumMetric,
    fisher_matrix,
    score_metric,
)
from partita.optim.natural_gradient.scores import MOST_BITS, WRITTEN_OUT
from partita.samplers import sample
from partita.training.settings import Settings

DRAWS = 256  # of a directed model, for one matrix
BURN_IN = 50  # of chains that are run for the matrix alone
# radius of the trust region, where the loss is a function of the parameters alone and where it is
# not
NATS_EXACT, NATS_NOISY = 1.0, 0.02


def make_natural(parameters: Any, settings: Settings) -> NaturalGradient:
    """The optimizer; its metric comes with every step."""
    return NaturalGradient(
        parameters, lr=settings.learning_rate, damping=settings.damping, radius=NATS_NOISY
    )


def observe(
    optimizer: NaturalGradient,
    model: Any,
    objective: Any,
    state: Any,
    batch: Batch,
    settings: Settings,
    *,
    generator: torch.Generator,
) -> None:
    """Tell the optimizer where it is, after a backward pass; the matrix itself is computed when it
    steps.
    """
    if hasattr(state, "module"):
        raise Unsupported(
            "fit: optimizer 'natural' moves a model's own parameters, and "
            f"{type(objective).__name__} trains others beside them. Use 'adam'."
        )
    group, adapt = optimizer.param_groups[0], settings.exactly_minimizes(objective, model)
    group["adapt"], group["radius"] = adapt, NATS_EXACT if adapt else NATS_NOISY
    optimizer.observe(lambda: metric_of(model, state, batch.x, generator=generator))


@torch.no_grad()
def metric_of(model: Any, state: Any, x: Tensor, *, generator: torch.Generator) -> Metric:
    """The metric of a model at its current parameters; ``state`` is the objective's, ``x`` the rows
    of the batch.
    """
    if isinstance(model, EnergyModel):
        chains = getattr(state, "chains", None)
        if chains is not None:
            return score_metric(model, getattr(chains, "moved", chains).x)
        few = (
            model.support.bits <= MOST_BITS
            and sum(p.numel() for p in model.parameters()) <= WRITTEN_OUT
        )
        return (
            MatrixMetric(fisher_matrix(model))
            if few
            else score_metric(model, _short_chains(model, generator))
        )
    if isinstance(model, Decoded):
        return _of_both_distributions(model, x, generator)
    if isinstance(model, DirectedModel) and Capability.LOG_PROB in model.capabilities:
        return score_metric(model, model.draw(DRAWS, generator=generator))
    raise Unsupported(
        f"fit: optimizer 'natural' cannot run on {model.title()}: it has no scores of its own "
        "distribution. Use 'adam'."
    )


def _short_chains(model: EnergyModel, generator: torch.Generator) -> Tensor:
    """Draws for the matrix alone, from the training rows that the model remembers."""
    return sample(model, DRAWS, burn_in=BURN_IN, x=model.anchor_rows(DRAWS), generator=generator)


def _of_both_distributions(model: Any, x: Tensor, generator: torch.Generator) -> SumMetric:
    parameters = [p for p in model.parameters() if p.requires_grad]
    q = model.posterior(x)
    z = q.mean + q.stddev * rng.normal(q.mean.shape, x, generator)
    decoder = PredictiveMetric(lambda: model.output.distribution(model.decode(z)), parameters)
    return SumMetric([decoder, PredictiveMetric(lambda: model.posterior(x), parameters)])
