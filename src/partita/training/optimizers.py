"""Optimizers, their learning rates, penalties, the running average of the weights, and the metric
of ``optimizer="natural"``.

The metric is always the Fisher matrix of the model itself. Energy models: the covariance of their
scores, over the chains of PCD where there are some, else over all states where there are few, else
over short chains of its own. Models with an exact likelihood, flows among them: over independent
draws. Models with latent variables and a Gaussian proposal, the VAE: the sum of the Fisher matrices
of the decoder's distribution p(x | z) and of the encoder's q(z | x), at the rows of the batch.
"""

import math
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from partita.core import rng
from partita.core.protocols import Batch, Capability, DirectedModel, EnergyModel, Model
from partita.errors import Unsupported
from partita.models.directed.vae import VAE
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
from partita.runtime.files import JsonObject
from partita.samplers import sample
from partita.training.settings import Learner, Settings

AVERAGE_EVERY = 10  # steps
DRAWS = 256  # of a model, for one Fisher matrix
BURN_IN = 50  # of chains that are run for the matrix alone
# radius of the trust region, where the loss is a function of the parameters alone and where it is
# not
NATS_EXACT, NATS_NOISY = 1.0, 0.02


def make_optimizer(parameters: Iterable[nn.Parameter], settings: Settings) -> torch.optim.Optimizer:
    """The optimizer that the settings name."""
    rate = settings.learning_rate
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=rate, fused=True)  # one pass over the weights
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=settings.momentum)
    if settings.optimizer == "natural":  # its metric comes with every step
        return NaturalGradient(parameters, lr=rate, damping=settings.damping, radius=NATS_NOISY)
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=20,
        history_size=50,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    optimizer.param_groups[0]["tolerance_grad"] = settings.tolerance
    return optimizer


def load_optimizer(optimizer: torch.optim.Optimizer, saved: JsonObject) -> None:
    """Load a saved state; moments of other shapes than their weights are a ``ValueError``."""
    optimizer.load_state_dict(saved)
    if isinstance(optimizer, torch.optim.LBFGS):
        return
    for weights, kept in optimizer.state.items():
        for name, value in kept.items():
            shape = () if name == "step" else weights.shape
            if isinstance(value, Tensor) and value.shape != shape:
                raise ValueError(f"{name} of other sizes than its weights")


def learning_rate_at(step: int, total: int, settings: Settings) -> float:
    """The learning rate of a step, a function of its place in the fit alone, so that a resumed run
    follows the same one.
    """
    if settings.optimizer == "lbfgs":
        return 1.0
    place, warm_up = step / total, settings.warm_up * total
    if step < warm_up:
        return settings.learning_rate * (step + 1) / (warm_up + 1)
    if settings.schedule == "linear":
        return settings.learning_rate * (1 - place)
    if settings.schedule == "cosine":
        return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * place))
    return settings.learning_rate


def penalties(model: Model, settings: Settings) -> list[Tensor]:
    """l1 |W| + l2 W^2 / 2 over the parameters that the model names; empty where both are zero."""
    if not settings.l1 and not settings.l2:
        return []
    names = model.penalized
    chosen = [p for name, p in model.named_parameters() if names is None or name in names]
    terms = (settings.l1 * p.abs().sum() + 0.5 * settings.l2 * p.square().sum() for p in chosen)
    return [sum(terms, torch.zeros(()))]


class WeightAverage:
    """Running average of the parameters over a window of recent steps (Polyak and Juditsky 1992),
    started without bias.
    """

    def __init__(self, model: nn.Module, window: float) -> None:
        self.window = window
        self.updates = 0
        self.values = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after ``step`` steps; only every tenth step costs anything."""
        if step % AVERAGE_EVERY or not self.window:
            return
        self.updates += 1
        rate = max(min(1.0, AVERAGE_EVERY / self.window), 1 / self.updates)
        for name, p in model.named_parameters():
            self.values[name].lerp_(p, rate)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """A copy of the averaged weights; of the model's own while there is no average."""
        source = self.values if self.updates else dict(model.named_parameters())
        return {name: p.detach().clone() for name, p in source.items()}


def observe_metric(
    optimizer: torch.optim.Optimizer | None,
    model: Model,
    objective: Learner,
    state: object,
    batch: Batch,
    settings: Settings,
    generator: torch.Generator,
) -> None:
    """Give the optimizer its metric after a backward pass; the matrix is computed when it steps."""
    if getattr(state, "module", None) is not None:
        raise Unsupported(
            "fit: optimizer 'natural' moves a model's own parameters, and "
            f"{type(objective).__name__} trains others beside them. Use 'adam'."
        )
    # inside Fabric's wrapper
    natural = cast("NaturalGradient", getattr(optimizer, "optimizer", optimizer))
    group, adapt = natural.param_groups[0], settings.exactly_minimizes(objective, model)
    group["adapt"], group["radius"] = adapt, NATS_EXACT if adapt else NATS_NOISY
    natural.observe(lambda: metric_of(model, state, batch.x, generator=generator))


@torch.no_grad()
def metric_of(model: Model, state: object, x: Tensor, *, generator: torch.Generator) -> Metric:
    """The metric of a model at its current parameters; ``state`` is the objective's, ``x`` the rows
    of the batch.
    """
    if isinstance(model, EnergyModel):
        chains = getattr(state, "chains", None)
        if chains is not None:
            return score_metric(model, getattr(chains, "moved", chains).x)
        parameters = sum(p.numel() for p in model.parameters())
        if model.support.bits <= MOST_BITS and parameters <= WRITTEN_OUT:
            return MatrixMetric(fisher_matrix(model))
        start = model.anchor_rows(DRAWS)
        return score_metric(
            model, sample(model, DRAWS, burn_in=BURN_IN, x=start, generator=generator)
        )
    if isinstance(model, VAE):
        return _encoder_and_decoder_metric(model, x, generator)
    if isinstance(model, DirectedModel) and Capability.LOG_PROB in model.capabilities:
        return score_metric(model, model.draw(DRAWS, generator=generator))
    raise Unsupported(
        f"fit: optimizer 'natural' cannot run on {model.title()}: it has no scores of its own "
        "distribution. Use 'adam'."
    )


def _encoder_and_decoder_metric(model: VAE, x: Tensor, generator: torch.Generator) -> SumMetric:
    parameters = [p for p in model.parameters() if p.requires_grad]
    q = model.posterior(x)
    z = q.mean + q.stddev * rng.normal(q.mean.shape, x, generator)
    decoder = PredictiveMetric(lambda: model.output.distribution(model.decoder(z)), parameters)
    return SumMetric([decoder, PredictiveMetric(lambda: model.posterior(x), parameters)])
