"""The part of the page about how cost grows: a figure for each sort of size, exponents beside
theory's, and what stands between them.
"""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from partita.report import plots
from partita.report.blocks import Beside, Block, Figure, Table, Text
from records import Record

NAME = "scaling"
HEAD = (
    "operation",
    "against",
    "exponent",
    "95 % interval",
    "theory",
    "bare arithmetic",
    "sizes fitted",
    "ms at the largest",
)
LEAD = """Processor time of one thread against size, the least of several looks in turn. Exponents
are slopes of log cost on log size over the sizes named, by least squares; theory's are those of its
own formula over the same sizes. Bare arithmetic is the products or transforms alone, measured in
turn with the operation. Dotted lines grow as theory does."""


def blocks(record: Record) -> Iterator[Block]:
    """Figures side by side, the table, and sentences where theory and measurement part."""
    yield Text(LEAD)
    axes = dict.fromkeys(curve["axis"] for curve in record.curves)
    yield Beside(
        [
            figure(axis, [curve for curve in record.curves if curve["axis"] == axis])
            for axis in axes
        ],
        least=340,
    )
    yield Table([row(line) for line in record.lines if "exponent" in line], HEAD)
    for line in record.lines:
        if line.get("departs"):
            yield Text(f"{line['what']}: {line['departs']}", "small")
    for note in record.notes:
        yield Text(f"Left out: {note}", "caution")
    yield Text(f"{record.command}, {record.date}, {record.seconds:.0f} s", "small")


def row(line: dict[str, Any]) -> list[str]:
    """One operation of the table."""
    what, _, axis = line["what"].rpartition(" against ")
    bare, low, high = line["bare"], float(line["low"]), float(line["high"])
    interval = f"{low:.2f} to {high:.2f}" if isfinite(high - low) else ""
    return [
        what,
        axis,
        f"{line['exponent']:.2f}",
        interval,
        f"{line['theory']:.2f} ({line['formula']})",
        f"{bare:.2f}" if isinstance(bare, float) else "",
        line["sizes"],
        f"{1e3 * line['seconds']:.3g}",
    ]


def figure(axis: str, curves: list[dict[str, Any]]) -> Figure:
    """Cost against one sort of size, and theory's growth as a dotted line through the last
    point.
    """
    traces = []
    for i, curve in enumerate(curves):
        color, name = plots.color(i), str(curve["what"])
        traces.append(
            plots.line(curve["sizes"], [1e3 * cost for cost in curve["cost"]], name, color)
        )
        dotted = {
            "line": {"color": color, "width": 1, "dash": "dot"},
            "mode": "lines",
            "hoverinfo": "skip",
        }
        traces.append(
            plots.line(curve["fitted"], [1e3 * cost for cost in curve["theory"]], "", color)
            | dotted
        )
    sizes = sorted({size for curve in curves for size in curve["sizes"]})
    ticks = (
        {"tickvals": sizes, "ticktext": [short(size) for size in sizes]} if len(sizes) < 8 else {}
    )
    layout = {
        "xaxis": plots.axis(axis, type="log", **ticks),
        "yaxis": plots.axis("ms", type="log", dtick="D2"),
    }
    alt = (
        f"Cost against {axis} of {', '.join(str(curve['what']) for curve in curves)}, with "
        "theory's growth."
    )
    return Figure(traces, alt, layout, height=330)


def short(size: float) -> str:
    """A size in few letters.

    >>> short(512), short(64000), short(131072), short(1024000)
    ('512', '64k', '131k', '1M')
    """
    return (
        f"{size / 1e6:.0f}M"
        if size >= 1e6
        else f"{size / 1e3:.0f}k"
        if size >= 10_000
        else f"{size:g}"
    )
