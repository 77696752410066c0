"""What a model is made of, where that can be seen: filters, components, loadings, clusters."""

from collections.abc import Iterator
from functools import singledispatch

import numpy as np
import torch

from partita.core.protocols import Model
from partita.models import (
    PPCA,
    RBM,
    DPMixture,
    MaxEnt,
    Mixture,
    MixturePPCA,
)
from partita.models.directed.components.base import Component, ProductComponent
from partita.models.directed.components.diagonal import DiagonalGaussian
from partita.models.directed.components.discrete import (
    BernoulliComponent,
    NegativeBinomialComponent,
    PoissonComponent,
)
from partita.models.directed.components.factor import Factors
from partita.models.directed.components.gaussian import FullGaussian
from partita.models.energy.pairwise import PairwiseModel
from partita.report import images, plots
from partita.report.blocks import Block, Figure, Picture, Table, Text
from partita.report.context import DRAWS, Subject
from partita.report.format import short_number
from partita.report.sections import couplings
from partita.report.sections.samples import SIDE

SHOWN = 64  # filters or components
TYPICAL = 8  # components of a mixed table whose typical rows are shown
NAMED = 40  # columns whose names fit beside a matrix
CIRCLE = np.stack([np.cos(np.linspace(0, 2 * np.pi, 60)), np.sin(np.linspace(0, 2 * np.pi, 60))])


def parts(subject: Subject) -> Iterator[Block]:
    """What this model is made of; nothing for models whose parameters say nothing to the eye."""
    with torch.no_grad():
        yield from of_model(subject.model, subject)


@singledispatch
def of_model(model: Model, subject: Subject) -> Iterator[Block]:
    """One function for each family."""
    yield from ()


@of_model.register
def _(model: RBM, subject: Subject) -> Iterator[Block]:
    """Weights of the hidden units that differ most from nothing."""
    W = model.W.double().numpy()
    if len(W) != subject.model.support.width:  # categories: one weight for each value
        W = np.linalg.norm(W.reshape(subject.model.support.width, -1, W.shape[1]), axis=1)
    order = np.argsort(-np.linalg.norm(W, axis=0))[:SHOWN]
    what = "hidden units" if W.shape[1] <= SHOWN else f"of {W.shape[1]} hidden units, the strongest"
    yield _rows_as_pictures(
        W.T[order],
        subject,
        f"Weights of {len(order)} {what}: red pushes a column up, blue down.",
        signed=True,
        labels=[f"unit {i + 1}" for i in order],
    )


@of_model.register
def _(model: PPCA | MixturePPCA, subject: Subject) -> Iterator[Block]:
    """Directions in which the data vary, longest first."""
    component = model.component
    loadings = component.loadings.double().numpy()  # (K, D, d)
    lengths = np.linalg.norm(loadings, axis=1)
    for k, weight in list(enumerate(torch.exp(model.log_weights()).tolist()))[:4]:
        order = np.argsort(-lengths[k])[:SHOWN]
        of = "" if len(loadings) == 1 else f" of component {k + 1}, weight {weight:.2f}"
        yield _rows_as_pictures(
            loadings[k].T[order],
            subject,
            f"Loadings{of}: directions in which rows vary, longest first.",
            signed=True,
            labels=[f"{i + 1}, length {lengths[k][j]:.2f}" for i, j in enumerate(order)],
        )
    noise = np.sqrt(component.noise().double().numpy())
    upper = "" if np.ptp(noise) < 1e-12 else f" to {noise.max():.3g}"
    yield Text(
        f"What is left over: a standard deviation of {noise.min():.3g}{upper} in units of the "
        "standardized columns.",
        "small",
    )


@of_model.register
def _(model: Mixture, subject: Subject) -> Iterator[Block]:
    """Means of the components, heaviest first, with their weights."""
    component, weights = model.component, torch.exp(model.log_weights()).numpy()
    order = np.argsort(-weights)[:SHOWN]
    places = [f"{i + 1}" for i in range(len(order))]
    yield _bars(
        weights[order], places, "component", "weight", "Weights of the components, heaviest first."
    )
    if isinstance(component, ProductComponent):
        yield _typical(component, subject, order, weights)
        return
    means = _means(component)
    if means is None:
        return
    x = subject.shown(torch.from_numpy(means))[order]
    if x.shape[1] == 2 and isinstance(component, DiagonalGaussian | FullGaussian):
        yield _ellipses(subject, x, _covariances(component)[order], weights[order])
    else:
        labels = [f"{i + 1}, weight {weights[k]:.2f}" for i, k in enumerate(order)]
        yield _rows_as_pictures(x, subject, "Means of the components, heaviest first.", labels)


@of_model.register
def _(model: DPMixture, subject: Subject) -> Iterator[Block]:
    """How many clusters the posterior draws have, and those of the last of them."""
    sizes = torch.bincount(torch.bincount(model.owner, minlength=model.draws)).numpy()
    first = int(np.flatnonzero(sizes)[0])
    yield _bars(
        sizes[first:] / sizes.sum(),
        [str(first + i) for i in range(len(sizes) - first)],
        "clusters",
        "share of the draws",
        "How many clusters the posterior draws have.",
    )
    last = model.clusters(torch.nonzero(model.owner == model.draws - 1).flatten())
    order = last.count.argsort(descending=True)[:SHOWN]
    x, count = subject.shown(last.mean[order]), last.count[order].numpy()
    labels = [f"{i + 1}, {n:.0f} rows" for i, n in enumerate(count)]
    yield _rows_as_pictures(
        x, subject, "Means of the clusters of the last draw, largest first.", labels
    )


@of_model.register
def _(model: PairwiseModel | MaxEnt, subject: Subject) -> Iterator[Block]:
    yield from couplings.of_pairs(model, subject)


def _typical(
    component: ProductComponent, subject: Subject, order: np.ndarray, weights: np.ndarray
) -> Block:
    """A typical row of each component of a mixed table, in words."""
    count, order = component.count, order[:TYPICAL]
    nothing = torch.full((count, component.support.width), torch.nan, dtype=torch.float64)
    x = subject.shown(component.fill_likely(nothing, torch.eye(count, dtype=torch.float64)))[order]
    columns = zip(subject.columns, subject.labels, x.T, strict=True)
    lines = [
        [name, *(words.get(float(value), short_number(value)) for value in values)]
        for name, words, values in columns
    ]
    head = ("column", *(f"{i + 1}, weight {weights[k]:.2f}" for i, k in enumerate(order)))
    caption = (
        "A typical row of each component: means of real columns, the most probable value of others."
    )
    return Table(lines, head, caption)


def _rows_as_pictures(
    x: np.ndarray, subject: Subject, caption: str, labels: list[str], *, signed: bool = False
) -> Block:
    """Vectors over the columns: as images where rows are images, else as the rows of a matrix, each
    on the scale of its column.
    """
    if subject.shape is not None:
        drawn = images.signed_sheet(x, subject.shape) if signed else images.sheet(x, subject.shape)
        return Picture(images.png(drawn), caption, caption, SIDE)
    scale = None if signed or subject.discrete else np.ptp(x, axis=0)
    z = x if scale is None else (x - x.min(0)) / np.where(scale > 0, scale, 1.0)
    unit = "" if scale is None else "from lowest to highest"
    return plots.heat(
        z.T, labels, subject.columns, signed=signed, alt=caption, caption=caption, unit=unit
    )


def _bars(y: np.ndarray, x: list[str], across: str, up: str, caption: str) -> Figure:
    layout = plots.titled_axes(across, up, {"rangemode": "tozero"}, bargap=0.3)
    layout["xaxis"] = plots.axis(across, type="category")
    return Figure([plots.bars(x, y)], caption, layout, caption, 200)


def _means(component: Component) -> np.ndarray | None:
    """Means in the model's units, ``(K, D)``; None for categories, which have none."""
    if isinstance(component, DiagonalGaussian | FullGaussian | Factors):
        return component.location.double().numpy()
    if isinstance(component, BernoulliComponent | PoissonComponent | NegativeBinomialComponent):
        return component.mean().detach().double().numpy()
    return None


def _covariances(component: DiagonalGaussian | FullGaussian) -> np.ndarray:
    """Covariances of Gaussian components in the model's units, ``(K, D, D)``."""
    count, width = component.location.shape
    if isinstance(component, FullGaussian):
        L = component.scale_tril.double().numpy()
        return np.broadcast_to(L @ L.transpose(0, 2, 1), (count, width, width))
    variance = np.broadcast_to(np.exp(2 * component.log_scale.double().numpy()), (count, width))
    return variance[:, :, None] * np.eye(width)


def _ellipses(
    subject: Subject, means: np.ndarray, covariances: np.ndarray, weights: np.ndarray
) -> Figure:
    """Each component as the curve of two standard deviations, over rows of the data."""
    x = subject.some_raw_rows(DRAWS)
    traces = []
    if x is not None:
        traces.append(plots.points(x[:, 0], x[:, 1], "rows of the data", plots.DATA))
    for k, (mean, covariance, weight) in enumerate(zip(means, covariances, weights, strict=True)):
        values, vectors = np.linalg.eigh(covariance)
        ellipse = vectors * np.sqrt(np.maximum(values, 0)) @ CIRCLE
        curve = subject.encoding.scale[:, None] * ellipse * 2 + mean[:, None]
        name = f"component {k + 1}, weight {weight:.3f}"
        traces.append(
            plots.line(*curve, color=plots.color(k), mode="lines", hoverinfo="text", text=name)
        )
    low, high = (means.min(0), means.max(0)) if x is None else (np.nanmin(x, 0), np.nanmax(x, 0))
    caption = "Components as curves of two standard deviations, over rows of the data."
    layout, height = plots.plane(subject.columns, low, high), plots.plane_height(low, high, 520)
    return Figure(traces, f"{len(means)} components. {caption}", layout, caption, height)
