"""The score: what was found, how, and how far to trust it."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from partita.core.quantity import Quantity, bits_per_dimension
from partita.report import format, plots
from partita.report.blocks import Big, Block, Figure, Table, Text
from partita.report.context import Subject

TONES: dict[str, Literal["good", "fair", "bad"]] = {
    "tight": "good",
    "loose": "fair",
    "do not publish": "bad",
}


def likelihood(subject: Subject) -> Iterator[Block]:
    """The number, its interval, its diagnostics, and its spread over rows."""
    q = subject.score
    if q is None:
        yield Text(subject.problem or "This run was not scored.", "warning")
        return
    yield _headline(q, subject.split)
    yield Table(_facts(q, subject))
    if q.kind != "none" and "rows" in q.details:
        yield _spread(q, subject.split)


def _headline(q: Quantity, split: str) -> Big:
    """The number as large as it deserves."""
    if q.kind == "none":
        below = f"interval [{q.low:.5f}, {q.high:.5f}] ({100 * q.level:g} %)"
        return Big(f"{q.value:.5f}", q.unit.replace("^2", "²"), "no likelihood", "fair", below)
    badge = f"{_kind(q)}, {q.verdict}"
    interval = "" if q.kind == "exact" else f"interval {format.interval(q)}"
    spread = f"± {q.se_data:.3f} standard error over {q.n} {split} rows" if q.se_data else ""
    below = "; ".join(part for part in (interval, spread) if part)
    return Big(f"{q.value:.3f}", f"{q.unit} per {split} row", badge, TONES[q.verdict], below)


def _facts(q: Quantity, subject: Subject) -> list[list[str]]:
    """What was found, how, and how far to trust it, as a table of two columns."""
    rows = [["kind", _kind(q)], ["by", q.method], ["verdict", format.verdict(q)]]
    if q.kind != "none":
        mass, density = "mass: a probability of each row", "density, in the units of the table"
        rows.append(["measure", mass if subject.discrete else density])
    bits = None
    if q.kind != "none" and not subject.sequential:
        scored = subject.rows
        width = subject.model.support.width if scored is None else scored.numbers_per_row()
        bits = bits_per_dimension(q, width)
    return rows + format.findings(q, bits, without=["ess_of_rows"])


def _spread(q: Quantity, split: str) -> Figure:
    """How the log-likelihood spreads over the rows."""
    rows = np.asarray(q.details["rows"], dtype=float)
    # the lowest share the first bar
    counts, edges = np.histogram(np.maximum(rows, np.quantile(rows, 0.005)), 40)
    bars = plots.bars((edges[1:] + edges[:-1]) / 2, counts, name="rows")
    mean = plots.vertical(q.value, color=plots.MODEL, dash="dash")
    layout = plots.titled_axes("log-likelihood of a row, nats", "rows", bargap=0.03, shapes=[mean])
    alt = (
        f"Histogram of the log-likelihood of {len(rows)} {split} rows, from {rows.min():.1f} to "
        f"{rows.max():.1f} nats, mean {q.value:.2f}."
    )
    caption = (
        "Each bar counts rows, the first also those below; the dashed line is the mean. "
        "Rows on the left surprised the model."
    )
    return Figure([bars], alt, layout, caption, 240)


def _kind(q: Quantity) -> str:
    bounds = {"lower": "lower bound", "upper": "upper bound", "none": "no likelihood"}
    return bounds.get(q.kind, q.kind)
