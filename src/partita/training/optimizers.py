"""Optimizers, their learning-rate schedules, penalties and the running average of the weights."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from partita.core.protocols import Model
from partita.training.settings import Settings

AVERAGE_EVERY = 10  # steps


def make_optimizer(parameters: Iterable[nn.Parameter], settings: Settings) -> torch.optim.Optimizer:
    """The optimizer that the settings name."""
    if settings.optimizer == "adam":
        # one pass over the weights
        return torch.optim.Adam(parameters, lr=settings.learning_rate, fused=True)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=settings.learning_rate, momentum=settings.momentum)
    if settings.optimizer == "natural":
        from partita.training.natural import make_natural

        return make_natural(parameters, settings)
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=20,
        history_size=50,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    optimizer.param_groups[0]["tolerance_grad"] = settings.tolerance
    return optimizer


def take_up(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """What an optimizer remembered; averages that are not as large as their weights are a
    ``ValueError``: one pass goes over both.
    """
    optimizer.load_state_dict(saved)
    for weights, kept in (
        optimizer.state.items() if not isinstance(optimizer, torch.optim.LBFGS) else ()
    ):
        for name, value in kept.items():
            if isinstance(value, Tensor) and value.shape != (
                () if name == "step" else weights.shape
            ):
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


def penalty(model: Model, settings: Settings) -> Tensor | None:
    """l1 |W| + l2 W^2 / 2 over the parameters that the model names; None where both are zero."""
    if not settings.l1 and not settings.l2:
        return None
    names = model.penalized
    chosen = [p for name, p in model.named_parameters() if names is None or name in names]
    return sum(
        (settings.l1 * p.abs().sum() + 0.5 * settings.l2 * p.square().sum() for p in chosen),
        torch.zeros(()),
    )


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
        """The averaged weights; the model's own while there is no average."""
        return (
            self.values
            if self.updates
            else {name: p.detach() for name, p in model.named_parameters()}
        )
