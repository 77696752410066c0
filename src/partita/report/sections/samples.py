"""Draws of the model beside rows of the data: images, text, sequences, points in the plane, or
columns of a table.
"""

from collections.abc import Iterator

import numpy as np

from partita.core.support import Sequence
from partita.report import images, plots
from partita.report.blocks import Beside, Block, Code, Figure, Picture, Text
from partita.report.context import DRAWS, IMAGES, SEQUENCES, Subject

COLUMNS = 12  # of a table whose values are shown one by one
CHARACTERS = 400
CORRELATED = 60  # columns at most whose correlations are shown
SIDE = 420  # pixels of a sheet of images


def samples(subject: Subject) -> Iterator[Block]:
    """The sort of picture that suits the data."""
    how = "from chains, whose diagnostics are below"
    if subject.drawn.chains is None:
        how = "exact and independent"
    yield Text(
        f"New rows drawn from the model beside rows of the {subject.split} part. The draws are "
        f"{how}."
    )
    if pictured(subject):
        data = data_picture(subject)
        yield Beside([*([] if data is None else [data]), draws_picture(subject)])
    else:
        yield from _table(subject)


def pictured(subject: Subject) -> bool:
    """Whether rows can be seen one by one: images, sequences, points in the plane."""
    return subject.sequential or subject.shape is not None or subject.planar


def data_picture(subject: Subject) -> Block | None:
    """Some rows of the data; None where the data are gone."""
    x = subject.some_rows(_count(subject))
    return None if x is None else picture(subject, x, "rows of the data", plots.DATA)


def draws_picture(subject: Subject, name: str = "draws of the model") -> Block:
    """As many draws, on the same scale."""
    data, drawn = subject.some_rows(_count(subject)), subject.drawn
    x = (drawn.independent if subject.shape else drawn.x)[: _count(subject)]
    if subject.shape is not None and data is not None:
        x = np.clip(x, data.min(), data.max())  # the same gray means the same in both
    return picture(subject, x, name, plots.MODEL)


def picture(subject: Subject, x: np.ndarray, name: str, shade: str) -> Block:
    """Rows as what they are."""
    if subject.alphabet is not None:
        alphabet = subject.alphabet
        texts = [alphabet.decode(row[~np.isnan(row)])[:CHARACTERS] for row in x[:2]]
        return Code("\n\n".join(texts), name.capitalize())
    if subject.shape is not None:
        sheet = images.png(images.sheet(x, subject.shape))
        return Picture(sheet, f"{len(x)} {name} as images.", name.capitalize(), SIDE)
    if isinstance(support := subject.model.support, Sequence):
        steps = x.reshape(len(x), -1, support.element.width)
        return _roll(steps[0], name) if steps.shape[2] > 1 else _lines(steps[..., 0], name)
    return _plane(subject, x, name, shade)


def _count(subject: Subject) -> int:
    return IMAGES if subject.shape else SEQUENCES if subject.sequential else DRAWS


def _roll(x: np.ndarray, name: str) -> Figure:
    x = x[~np.isnan(x).any(1)]
    trace = {"type": "heatmap", "z": x.T, "colorscale": "sequential", "showscale": False}
    alt = f"One sequence, {name}: steps from left to right."
    return Figure([trace], alt, plots.titled_axes("step", name))


def _lines(x: np.ndarray, name: str) -> Figure:
    traces = [
        plots.line(np.arange(len(row)), row, color=plots.color(i), mode="lines")
        for i, row in enumerate(x[:SEQUENCES])
    ]
    return Figure(traces, f"{len(traces)} sequences, {name}.", plots.titled_axes("step", name))


def _plane(subject: Subject, x: np.ndarray, name: str, shade: str) -> Figure:
    """A cloud on the axes of the data."""
    data = subject.some_rows(DRAWS)
    frame = x if data is None else data
    low, high = np.nanmin(frame, 0), np.nanmax(frame, 0)
    edge = 0.08 * (high - low)
    traces = [plots.points(x[:, 0], x[:, 1], name, shade)]
    layout = plots.plane(subject.columns, low - edge, high + edge)
    height = plots.plane_height(low, high, 400)
    return Figure(
        traces, f"{len(x)} {name} as points in the plane.", layout, name.capitalize(), height
    )


def _table(subject: Subject) -> Iterator[Block]:
    """Values of single columns, then the correlations of all pairs: what a model of separate
    columns would miss.
    """
    data, draws = subject.some_rows(DRAWS), subject.drawn.x
    if data is None:
        yield Text("The data are not there to compare with.")
        return
    wide = data.shape[1] > COLUMNS
    shown = _most_varied(data, COLUMNS) if wide else range(data.shape[1])
    words = subject.encoding.labels
    which = f"; the {COLUMNS} columns that vary most" if wide else ""
    yield Text(f"How often each value occurs: gray in the data, red in draws{which}.", "small")
    names, labels, real = subject.columns, subject.labels, subject.real
    marginals = [
        plots.marginals(data[:, i], draws[:, i], names[i], labels[i], not real[i]) for i in shown
    ]
    yield Beside(marginals, least=160)
    if data.shape[1] > 2 and not words and not any(column.levels for column in subject.mixed):
        yield correlations(data, draws)


def _most_varied(data: np.ndarray, n: int) -> list[int]:
    return sorted(np.argsort(-np.nanstd(data, 0))[:n].tolist())


def correlations(data: np.ndarray, draws: np.ndarray, name: str = "") -> Figure:
    """Correlations of all pairs of columns, data against draws: on the diagonal where the model has
    learned them.
    """
    chosen = _most_varied(data, CORRELATED)
    i, j = np.triu_indices(len(chosen), 1)
    there, here = (_correlation(x[:, chosen])[i, j] for x in (data, draws))
    low, high = float(np.nanmin([there, here])), float(np.nanmax([there, here]))
    traces = [
        plots.diagonal(low, high),
        plots.points(there, here, "pairs of columns", plots.COLORS[0]),
    ]
    off = float(np.sqrt(np.nanmean((there - here) ** 2)))
    alt = (
        f"Correlations of {len(i)} pairs of columns, in the data and in draws; root mean square "
        f"difference {off:.3f}."
    )
    layout = plots.titled_axes("correlation in the data", "in draws")
    caption = (
        "Each point is a pair of columns; on the dotted line the model has learned it. "
        f"Root mean square difference {off:.3f}."
    )
    return Figure(traces, alt, layout, f"{name.capitalize()}. {caption}" if name else caption)


def _correlation(x: np.ndarray) -> np.ndarray:
    """Correlations over the rows in which both are observed; NaN where a column does not vary."""
    there = ~np.isnan(x)
    scale = np.nanstd(x, 0)
    z = np.where(there, (x - np.nanmean(x, 0)) / np.where(scale > 0, scale, np.nan), 0.0)
    return (z.T @ z) / np.maximum(1, there.T.astype(float) @ there)
