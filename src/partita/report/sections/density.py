"""The density itself, where rows are points in the plane."""

from collections.abc import Iterator

import numpy as np
import torch

from partita.core.protocols import Capability, EnergyModel
from partita.core.quantity import Quantity
from partita.report import plots
from partita.report.blocks import Block, Figure
from partita.report.context import Subject

CELLS = 90  # along each side
DEPTH = 9.0  # nats below the highest that are still distinguished
POINTS = 300


@torch.no_grad()
def density(subject: Subject) -> Iterator[Block]:
    """log p on a grid, with rows of the data on it."""
    x = subject.some_raw_rows(POINTS)
    model = subject.model
    known = isinstance(model, EnergyModel) or Capability.LOG_PROB in model.capabilities
    if x is None or not known or not subject.planar or subject.sequential:
        return
    low, high = np.nanmin(x, 0), np.nanmax(x, 0)
    edge = 0.12 * (high - low)
    sides = [np.linspace(a, b, CELLS) for a, b in zip(low - edge, high + edge, strict=True)]
    grid = np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)
    log_p = log_density_at(subject, grid).reshape(CELLS, CELLS)
    heat = {
        "type": "heatmap",
        "x": sides[0],
        "y": sides[1],
        "z": np.maximum(log_p, log_p.max() - DEPTH),
        "colorscale": "sequential",
        "colorbar": plots.color_bar("nats"),
        "hoverinfo": "z",
    }
    over = plots.points(x[:, 0], x[:, 1], "rows of the data", plots.MODEL, size=3.5, solid=0.8)
    layout = plots.plane(subject.columns, low - edge, high + edge)
    alt = (
        f"Log-density of the model over the plane, at most {log_p.max():.2f} nats, with {len(x)} "
        "rows of the data as points."
    )
    caption = (
        f"Log-density of the model, cut {DEPTH:g} nats below its highest; points are rows of the "
        f"{subject.split} part."
    )
    yield Figure([heat, over], alt, layout, caption, plots.plane_height(low, high, 520))


def log_density_at(subject: Subject, x: np.ndarray) -> np.ndarray:
    """log p of points in the units of the table; of an energy model where log Z is known, else up
    to a constant.
    """
    model = subject.model
    z = torch.from_numpy(subject.encoding.encode(x)).to(model.like)
    if not isinstance(model, EnergyModel):
        return model(z).double().numpy() + subject.encoding.log_jacobian
    log_z = None if subject.score is None else subject.score.details.get("log_z")
    constant = log_z.value if isinstance(log_z, Quantity) else 0.0
    return -model(z).double().numpy() - constant + subject.encoding.log_jacobian
