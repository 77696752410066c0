"""The figure of a bake-off: scores with their intervals on the left, how each contender got there on the right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partita.core.errors import invalid
from partita.training.bake_off import Entry

COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#777777", "#000000", "#EE7733", "#009988", "#882255")
MISSES = 3.0  # curves are drawn from this many times the spread of the scores below the worst of them


def figure(entries: Sequence[Entry], title: str, ceiling: float | None = None) -> Any:
    """A plotly figure of the entries that have a score, best on top; a dotted line where no model scores higher on average, if known."""
    from plotly.subplots import make_subplots

    scored = sorted((entry for entry in entries if entry.score is not None), key=lambda entry: entry.score.value)  # type: ignore[union-attr]
    if not scored:
        raise invalid("compare", "the figure", "have at least one entry with a score", "none", "The table says why each failed.")
    curves = any(entry.curve for entry in scored)  # none where there were too few rows to validate on
    titles = ("Scored rows, with the interval of the computation", "Validation rows, along the fit")
    drawn = make_subplots(1, 1 + curves, column_widths=[0.45, 0.55] if curves else None, horizontal_spacing=0.1,
                          subplot_titles=titles[: 1 + curves])  # fmt: skip
    for entry, colour in zip(scored[::-1], _colours(len(scored)), strict=True):
        _add_score(drawn, entry, colour)
        _add_curve(drawn, entry, colour)
    drawn.update_yaxes(categoryorder="array", categoryarray=[entry.name for entry in scored], row=1, col=1)
    drawn.update_xaxes(title="nats per row", row=1, col=1)
    if ceiling is not None:
        drawn.add_vline(ceiling, line_dash="dot", line_color="#777777", row=1, col=1)  # type: ignore[arg-type]
    if curves:
        drawn.update_xaxes(title="seconds", type="log", dtick="D2", row=1, col=2)
        drawn.update_yaxes(title="nats per row", range=_visible(scored), row=1, col=2)
    return drawn.update_layout(title=title, template="plotly_white", width=1100, height=200 + 32 * max(8, len(scored)), showlegend=False)


def write(entries: Sequence[Entry], title: str, html: Path | None, png: Path | None = None, ceiling: float | None = None) -> None:
    """Write the figure as one HTML file that needs nothing else, and as a PNG if asked for."""
    drawn = figure(entries, title, ceiling)
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        drawn.write_html(html, include_plotlyjs=True)
    if png is not None:
        _write_png(drawn, png)


def _add_score(drawn: Any, entry: Entry, colour: str) -> None:
    q = entry.score
    assert q is not None
    bars = {"type": "data", "array": [q.high - q.value], "arrayminus": [q.value - q.low], "symmetric": False}
    mark = {"size": 11, "color": colour, "symbol": "circle" if q.trusted else "x"}
    drawn.add_scatter(x=[q.value], y=[entry.name], error_x=bars, mode="markers", marker=mark, hovertext=str(q), name=entry.name,
                      row=1, col=1)  # fmt: skip


def _add_curve(drawn: Any, entry: Entry, colour: str) -> None:
    if entry.curve:
        seconds, values = zip(*entry.curve, strict=True)
        seconds = [max(second, 1e-2) for second in seconds]
        drawn.add_scatter(x=seconds, y=values, mode="lines+markers", line={"color": colour, "width": 1.6}, marker={"size": 4},
                          name=entry.name, row=1, col=2)  # fmt: skip


def _visible(scored: Sequence[Entry]) -> list[float] | None:
    """The range of the curves worth seeing: the first steps of a fit can lie far below."""
    values = [value for entry in scored for _, value in entry.curve]
    ends = [value for entry in scored for _, value in entry.curve[-1:]]
    if not ends:
        return None
    spread = max(max(ends) - min(ends), 0.02 * abs(max(ends)), 1e-3)
    return [max(min(ends) - MISSES * spread, min(values) - 0.1 * spread), max(values) + 0.2 * spread]


def _colours(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]


def _write_png(drawn: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        drawn.write_image(path, scale=2)
    except (ImportError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        remedy = "pip install kaleido, or open the HTML file."
        raise invalid("compare", "--png", "have kaleido and a browser to draw with", f"neither ({reason})", remedy) from None
