"""The score: what was found, how, and how far to trust it."""

from collections.abc import Iterator

import numpy as np

from partita.core.quantity import Quantity, bits_per_dimension
from partita.report import format, plots
from partita.report.blocks import Big, Block, Figure, Table, Text
from partita.report.context import Subject

TONES = {"tight": "good", "loose": "fair", "do not publish": "bad"}


def likelihood(subject: Subject) -> Iterator[Block]:
    """The number, its interval, its diagnostics, and its spread over rows."""
    q = subject.score
    if q is None:
        yield Text(subject.problem or "This run was not scored.", "warning")
        return
    yield headline(q, subject.split)
    yield Table(facts(q, subject))
    if q.kind != "none" and "rows" in q.details:
        yield over_rows(q, subject.split)


def headline(q: Quantity, split: str) -> Big:
    """The number as large as it deserves."""
    if q.kind == "none":
        below = f"interval [{q.low:.5f}, {q.high:.5f}] ({100 * q.level:g} %)"
        return Big(f"{q.value:.5f}", q.unit.replace("^2", "²"), "no likelihood", "fair", below)
    badge = f"{_kind(q)}, {q.verdict}"
    interval = "" if q.kind == "exact" else f"interval {format.interval(q)}"
    spread = f"± {q.se_data:.3f} standard error over {q.n} {split} rows" if q.se_data else ""
    below = "; ".join(part for part in (interval, spread) if part)
    return Big(f"{q.value:.3f}", f"{q.unit} per {split} row", badge, TONES[q.verdict], below)  # type: ignore[arg-type]


def facts(q: Quantity, subject: Subject) -> list[list[str]]:
    """What was found, how, and how far to trust it, as a table of two columns."""
    log_z = q.details.get("log_z")
    rows = [["kind", _kind(q)], ["by", q.method], ["verdict", format.verdict(q)]]
    if q.kind != "none":
        rows.append(
            [
                "measure",
                "mass: a probability of each row"
                if subject.discrete
                else "density, in the units of the table",
            ]
        )
        if not subject.sequential:
            bits = bits_per_dimension(
                q,
                subject.model.support.width
                if subject.rows is None
                else subject.rows.numbers_per_row(),
            )
            rows.append(
                ["bits per dimension", f"{bits.value:.4f} {format.interval(bits, 4)}".rstrip()]
            )
    if isinstance(log_z, Quantity):
        rows.append(["log Z", f"{log_z.value:.3f} {format.interval(log_z)}".rstrip()])
    if use := format.latent_use(q):
        rows.append(["latent dimensions", use])
    rows += [["chains are", q.details["mixing"]]] if "mixing" in q.details else []
    return rows + format.diagnostics(q, without=["ess_of_rows"])


def over_rows(q: Quantity, split: str) -> Figure:
    """How the log-likelihood spreads over the rows."""
    rows = np.asarray(q.details["rows"], dtype=float)
    # the lowest share the first bar
    counts, edges = np.histogram(np.maximum(rows, np.quantile(rows, 0.005)), 40)
    bars = {
        "type": "bar",
        "x": (edges[1:] + edges[:-1]) / 2,
        "y": counts,
        "marker": {"color": plots.COLORS[0]},
        "name": "rows",
    }
    mean = {
        "type": "line",
        "x0": q.value,
        "x1": q.value,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": plots.MODEL, "dash": "dash"},
    }
    layout = {
        "xaxis": plots.axis("log-likelihood of a row, nats"),
        "yaxis": plots.axis("rows"),
        "bargap": 0.03,
        "shapes": [mean],
    }
    reach = f"from {rows.min():.1f} to {rows.max():.1f} nats, mean {q.value:.2f}"
    caption = (
        "Each bar counts rows, the first also those below; the dashed line is the mean. "
        "Rows on the left surprised the model."
    )
    return Figure(
        [bars],
        f"Histogram of the log-likelihood of {len(rows)} {split} rows, {reach}.",
        layout,
        caption,
        240,
    )


def _kind(q: Quantity) -> str:
    return {"lower": "lower bound", "upper": "upper bound", "none": "no likelihood"}.get(
        q.kind, q.kind
    )
