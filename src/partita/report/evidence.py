"""The page about log Z of a function or a model: the number, what was tried, and its draws."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from partita.core.quantity import Quantity
from partita.evaluators.partition.quadrature import UNSEEN_TIGHT
from partita.report import format, plots
from partita.report.blocks import Beside, Big, Block, Figure, Section, Table, Text
from partita.report.page import write_page
from partita.report.sections.score import TONES

SHOWN = 4  # coordinates whose draws are pictured against the next
COORDINATES = 30  # that the table of moments lists


def write(q: Quantity, path: Path) -> Path:
    """Write the page of a log Z with its draws and the methods that were tried, if any are kept."""
    parts = {
        "log Z": _number(q),
        "What was tried": _tried(q),
        "Draws": _draws(np.asarray(q.details["draws"], dtype=float)),
        "What this number cannot see": _limits(q),
    }
    made = [Section(title, list(blocks)) for title, blocks in parts.items()]
    cost = q.details.get("evaluations")
    subtitle = q.method if cost is None else f"{q.method}; {cost:,} evaluations of the density."
    return write_page(path, "log Z", subtitle, [one for one in made if one.blocks])


def _number(q: Quantity) -> Iterator[Block]:
    interval = "" if q.kind == "exact" else f"interval {format.interval(q)}"
    yield Big(f"{q.value:.3f}", q.unit, f"{q.kind}, {q.verdict}", TONES[q.verdict], interval)
    rows = [["kind", q.kind], ["by", q.method], ["verdict", format.verdict(q)]]
    if called := q.details.get("called"):
        rows.append(["the function is called", called])
    if nans := q.details.get("nans"):
        rows.append(["NaN, counted as zero density", f"{nans:,}"])
    yield Table(rows + format.diagnostics(q))
    yield Text(format.meaning(q))


def _tried(q: Quantity) -> Iterator[Block]:
    """Every method with its own interval and verdict, those that failed with their reason."""
    tried: dict[str, Quantity] = q.details.get("tried", {})
    if not tried:
        return
    yield Text(
        "Methods run from the cheapest on, until one sums all states or two agree that share "
        "neither path nor proposal."
    )
    yield _intervals(tried, q)
    rows = [
        [name, f"{one.value:.3f}", format.interval(one), one.verdict, _cost(one)]
        for name, one in tried.items()
    ]
    yield Table(rows, ["method", "log Z", "interval", "verdict", "evaluations"])
    for name, reason in q.details.get("failed", {}).items():
        yield Text(f"{name} gave no number. {reason}", "small")


def _cost(q: Quantity) -> str:
    cost = q.details.get("evaluations")
    return f"{cost:,}" if isinstance(cost, int) else ""


def _intervals(tried: dict[str, Quantity], q: Quantity) -> Figure:
    names = [*tried, "answer"]
    each = [*tried.values(), q]
    # less the answer: the page keeps a few digits of every number
    values, lows, highs = (
        np.array([getattr(one, end) - q.value for one in each]) for end in ("value", "low", "high")
    )
    endless, known = np.isinf(highs), [*lows, *highs[np.isfinite(highs)]]
    highs = np.where(endless, max(known) + 0.3 * (max(known) - min(known)), highs)
    symbols = ["circle" if one.trusted else "x" for one in each]
    colors = [plots.color(i) for i in range(len(tried))] + [plots.MODEL]
    marks = {"size": 10, "color": colors, "symbol": symbols}
    bars = plots.errors(values, lows, highs, thickness=1.5, color=plots.DATA)
    trace = plots.scatter(values, names, "markers", error_x=bars, marker=marks)
    alt = f"log Z by {len(tried)} methods with their intervals, and the answer, {q.value:.3f}."
    layout = {
        "xaxis": plots.axis(f"log Z less {q.value:.3f}, nats"),
        "yaxis": {"autorange": "reversed"},
    }
    caption = "Bars are intervals. A cross marks a number that is not to be published"
    caption += "; a bar that ends at the edge has no upper end." if endless.any() else "."
    return Figure([trace], alt, layout, caption, 120 + 34 * len(each))


def _draws(x: np.ndarray) -> Iterator[Block]:
    """Moments of each coordinate, and neighbors against one another."""
    wide = x.shape[1]
    rows = [
        [str(i), *(f"{number:.4g}" for number in _moments(x[:, i]))]
        for i in range(min(wide, COORDINATES))
    ]
    more = f" The first {COORDINATES} of {wide} coordinates." if wide > COORDINATES else ""
    yield Table(rows, ["coordinate", "mean", "deviation", "5 %", "median", "95 %"])
    yield Text(f"{len(x):,} draws of equal weight.{more}", "small")
    pairs = [(i, i + 1) for i in range(min(wide, SHOWN) - 1)]
    clouds = [_cloud(x, i, j) for i, j in pairs if np.unique(x[:, [i, j]]).size > 10]
    if clouds:
        yield Beside(clouds, least=260)


def _moments(x: np.ndarray) -> tuple[float, ...]:
    return (x.mean(), x.std(), *np.quantile(x, (0.05, 0.5, 0.95)))


def _cloud(x: np.ndarray, i: int, j: int) -> Figure:
    trace = plots.points(x[:, i], x[:, j], "draws", plots.COLORS[0], 3)
    layout = plots.titled_axes(f"x[{i}]", f"x[{j}]")
    return Figure([trace], f"Draws of coordinates {i} and {j}.", layout, "", 280)


def _limits(q: Quantity) -> Iterator[Block]:
    if q.kind == "exact":
        return
    if q.verdict == "tight" and q.details.get("unseen", 1.0) <= UNSEEN_TIGHT:
        yield Text(
            "Bounds on the function over boxes show that no peak hides anywhere between or beyond "
            "the points at which it was looked at."
        )
        return
    yield Text(
        "A mode that no row shows, no descent rolls into and no walk enters is in no number, and "
        "nothing can tell. Rows from every region that is known (rows=) are heard by every method."
    )
