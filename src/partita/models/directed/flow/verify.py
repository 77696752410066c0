r"""A flow against itself: does it invert, is its log-determinant that of its Jacobian, does its
density integrate to one?

.. math:: \int e^{\log p(x)}\, dx = 1, \qquad f^{-1}(f(x)) = x, \qquad
          \log|\det| = \log\left|\det \frac{\partial f}{\partial x}\right|_{\text{autograd}}

Letters: D visible.
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from partita.core import rng
from partita.core.protocols import in_double
from partita.models.directed.flow.coupling import Coupling
from partita.models.directed.flow.flow import Flow
from partita.models.directed.flow.layers import LinearMixing, Logit, Permutation, columns, rows

ROUND_TRIP, LOG_DET, MASS = 1e-8, 1e-8, 1e-3  # what passes, in float64
# of the grid, along each axis; the finer one where the first is too coarse
POINTS = {1: (20_000,), 2: (1000, 2000)}
ROWS = 32


class Verdict(NamedTuple):
    """What :func:`verify_flow` found, in float64.

    Arguments:
        round_trip: Largest |x - inverse(f(x))|, relative to 1 + |x|.
        log_det: Largest difference from the log-determinant of the autograd Jacobian, relative to 1
            + its size.
        mass: Integral of the density over a grid; nan above two columns, and for conditional flows
            that at the first context.
        moved, heard: Whether every column is moved by some coupling, and conditions some other.
        passed: All of it within the tolerances.
    """

    round_trip: float
    log_det: float
    mass: float
    moved: bool
    heard: bool
    passed: bool


def verify_flow(flow: Flow, x: Tensor | None = None, *, generator: Generator) -> Verdict:
    """Check a flow at rows ``x`` (by default its own draws) in float64."""
    flow = in_double(flow)
    x, context = _rows(flow, x, generator)
    with torch.no_grad():
        z, log_det = flow.to_latent(x, context)
        back = flow.to_data(z, context)
    round_trip = float(((back - x).abs() / (1 + x.abs())).max())
    difference = float(
        ((log_det - _autograd_log_det(flow, x, context)).abs() / (1 + log_det.abs())).max()
    )
    sound = round_trip <= ROUND_TRIP and difference <= LOG_DET
    mass = _mass(flow, None if context is None else context[:1], finer=sound)
    moved, heard = coverage_of_masks(flow)
    integrates = flow.visible not in POINTS or abs(mass - 1) <= MASS
    passed = sound and integrates and moved and (heard or flow.visible == 1)
    return Verdict(round_trip, difference, mass, moved, heard, passed)


def coverage_of_masks(flow: Flow) -> tuple[bool, bool]:
    """Whether every column of the data is moved by a coupling, and reaches a coupling as one that
    conditions.
    """
    D = flow.visible
    came_from = torch.eye(D, dtype=torch.bool)  # which columns of the data each place may hold
    moved, heard = torch.zeros(D, dtype=torch.bool), torch.zeros(D, dtype=torch.bool)
    for layer in flow.layers:
        if isinstance(layer, Permutation | LinearMixing):
            # where a mix starts; it may spread them further
            came_from = came_from[layer.order.cpu()]
        elif isinstance(layer, Coupling):
            kept, changed = layer.sides
            moved |= came_from[changed.cpu()].any(0)
            heard |= came_from[kept.cpu()].any(0)
    return bool(moved.all()), bool(heard.all())


def _rows(flow: Flow, x: Tensor | None, generator: Generator) -> tuple[Tensor, Tensor | None]:
    like = flow.like
    if x is not None:
        return flow._split(x[:ROWS].to(like), None)
    context = None
    if flow.context:
        noise = rng.normal((ROWS, flow.context), like, generator)
        context = flow.context_mean + flow.context_scale * noise
    return flow.draw(ROWS, context=context, generator=generator), context


def _autograd_log_det(flow: Flow, x: Tensor, context: Tensor | None) -> Tensor:
    """log |det| of every row's Jacobian; rows do not meet, so that the gradient of a sum over them
    is that of each.
    """
    x = x.detach().requires_grad_()
    z, _ = flow.to_latent(x, context)
    slopes = [torch.autograd.grad(column.sum(), x, retain_graph=True)[0] for column in z.unbind(-1)]
    return torch.linalg.slogdet(torch.stack(slopes, 1)).logabsdet


def _mass(flow: Flow, context: Tensor | None, finer: bool) -> float:
    """The integral of the density of one or two columns, nan for more; on a finer grid where the
    first finds too much or too little.
    """
    mass = math.nan
    for points in POINTS.get(flow.visible, ())[: None if finer else 1]:
        mass = _mass_on_grid(flow, context, points)
        if abs(mass - 1) <= MASS:
            break
    return mass


@torch.no_grad()
def _mass_on_grid(flow: Flow, context: Tensor | None, points: int) -> float:
    """The density over a grid, by the trapezoidal rule, in the coordinates behind a logit if there
    is one.
    """
    axes = _axes(flow, context, points)
    if flow.visible > 1:
        grid = torch.cartesian_prod(*axes)
        weight = torch.cartesian_prod(*map(_trapezoid, axes)).prod(-1)
    else:
        grid, weight = axes[0][:, None], _trapezoid(axes[0])
    total = 0.0
    for x, w in zip(grid.split(1 << 15), weight.split(1 << 15), strict=True):
        given = None if context is None else context.expand(len(x), -1)
        total += float(_log_density(flow, x, given).exp() @ w)
    return total


def _log_density(flow: Flow, x: Tensor, context: Tensor | None) -> Tensor:
    """log p of unbounded coordinates: those behind the logit where there is one; what it maps past
    the ends of the data counts nothing.
    """
    logit = flow.layers[0]
    if not isinstance(logit, Logit):
        return flow.log_prob(x, context)
    data = rows(logit.to_data(columns(x, None)[0]), x.shape)
    log_det = logit.to_latent(columns(data, None)[0])[1]
    low, high = logit.ends(data)
    inside = ((data > low) & (data < high)).all(-1)
    return torch.where(inside, flow.log_prob(data, context) - log_det, -math.inf)


def _axes(flow: Flow, context: Tensor | None, points: int) -> list[Tensor]:
    """Points along each axis, half of them even and half where the flow's own draws are, far enough
    out to miss all but nothing.
    """
    n, count = 1 << 16, points // 2
    generator = Generator(flow.like.device).manual_seed(0)
    given = None if context is None else context.expand(n, -1)
    draws = flow.draw(n, context=given, generator=generator)
    each, _ = columns(draws, None)
    if isinstance(flow.layers[0], Logit):
        each, _ = flow.layers[0].to_latent(each)
    axes = []
    for column in each:
        low, high = float(column.min()), float(column.max())
        even = torch.linspace(low - 0.5 * (high - low), high + 0.5 * (high - low), count).to(column)
        dense = torch.quantile(column[: 1 << 14], torch.linspace(0, 1, count).to(column))
        axes.append(torch.cat([even, dense]).unique())
    return axes


def _trapezoid(axis: Tensor) -> Tensor:
    """Weights of the trapezoidal rule on uneven points."""
    gaps = torch.nn.functional.pad(axis.diff(), (1, 1))
    return 0.5 * (gaps[1:] + gaps[:-1])
