r"""The way from the reference to the model: log weights along beta, and how many chains still carry
them.

.. math:: \log \hat Z(\beta) = \log Z_0 + \log \frac1C \sum_c w_c(\beta)
          (theory/scoring.md, eq. 5.4)

Letters: C chains, T temperatures.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from partita.core.protocols import EnergyModel
from partita.core.quantity import Quantity
from partita.diagnostics.weights import summarize_weights
from partita.evaluators.partition.annealing import (
    anneal,
    from_reference,
    resolve_kernel,
    temperatures_for,
)
from partita.report import plots
from partita.report.blocks import Beside, Block, Figure, Text
from partita.report.context import Subject

CHAINS = 64
TEMPERATURES = 400
STOPS = 40  # places along the way where weights are looked at


def annealing_path(subject: Subject) -> Iterator[Block]:
    """Nothing where log Z was not needed, is exact or was integrated."""
    log_z = None if subject.score is None else subject.score.details.get("log_z")
    if not isinstance(log_z, Quantity) or not isinstance(subject.model, EnergyModel):
        return
    if log_z.kind == "exact" or "quadrature" in log_z.method:
        return
    betas, log_w = weights_along(subject.model, subject.generator(3))
    start = float(subject.model.reference().log_z)
    yield Text(
        f"log Z was not summed but estimated: {CHAINS} chains walk from a distribution whose log Z "
        "is known (beta = 0) to the model (beta = 1), and their weights add up to log Z. This "
        f"picture is a shorter walk of {TEMPERATURES} temperatures, made for it; log Z of the "
        f"score comes from {log_z.method}."
    )
    ess = [summarize_weights(weights).ess for weights in log_w]
    figures = [_weights(betas, log_w.numpy(), start, log_z), _ess(betas, ess)]
    yield Beside(figures, least=340)


def weights_along(model: EnergyModel, generator: torch.Generator) -> tuple[np.ndarray, Tensor]:
    """beta at the stops ``(S,)`` and the log weights there ``(S, C)``, from one annealing done in
    stretches.
    """
    kernel = resolve_kernel("AIS", None, model, generator=generator)
    betas = temperatures_for(model, kernel, TEMPERATURES, generator=generator)
    x = from_reference(model, CHAINS, generator)
    stops = torch.linspace(0, len(betas) - 1, STOPS + 1).round().long().tolist()
    log_w = [torch.zeros(CHAINS, dtype=torch.float64)]
    for first, last in pairwise(stops):
        ends = anneal(model, kernel, betas[first : last + 1], x, generator=generator)
        x = ends.x
        log_w.append(log_w[-1] + ends.log_w.cpu())
    return betas[stops].numpy(), torch.stack(log_w)


def _weights(betas: np.ndarray, log_w: np.ndarray, start: float, log_z: Quantity) -> Figure:
    """What log Z is at every beta, with the middle nine tenths of the chains, and where the score
    says it ends.
    """
    low, high = np.quantile(log_w, (0.05, 0.95), axis=1) + start
    mean = start + np.logaddexp.reduce(log_w, axis=1) - np.log(log_w.shape[1])
    bars = plots.errors(*(np.array([end]) for end in (log_z.value, log_z.low, log_z.high)))
    end = plots.mark(1.0, log_z.value, "log Z of the score", 9, "diamond", error_y=bars)
    traces = [
        *plots.band(betas, low, high, "90 % of the chains"),
        plots.line(betas, mean, "their log mean", mode="lines"),
        end,
    ]
    alt = (
        f"log Z along beta, from {start:.1f} at the reference to {mean[-1]:.1f} at the model; "
        f"the score's log Z is {log_z.value:.1f}."
    )
    caption = "Log weights along the way, plus log Z of the reference."
    return Figure(traces, alt, plots.titled_axes("beta", "nats"), caption)


def _ess(betas: np.ndarray, ess: list[float]) -> Figure:
    alt = (
        f"Effective number of chains along beta: {ess[0]:.0f} at the reference, {ess[-1]:.1f} of "
        f"{CHAINS} at the model."
    )
    layout = plots.titled_axes("beta", "effective chains", {"rangemode": "tozero"})
    caption = (
        f"How many of {CHAINS} chains carry the weight; near one the estimate hangs on one chain."
    )
    return Figure([plots.line(betas, ess, mode="lines")], alt, layout, caption)
