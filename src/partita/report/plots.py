"""The few kinds of figures that pages use, as plotly's JSON: plain dictionaries, which need no
plotly.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from partita.report.blocks import Figure

Plot = dict[str, object]  # a trace, an axis or a layout, as plotly takes them
Values = Sequence[float] | np.ndarray
DATA, MODEL = "#7f8c99", "#d1495b"  # rows of the data, draws of the model
COLORS = (
    "#4477AA",
    "#EE6677",
    "#228833",
    "#CCBB44",
    "#66CCEE",
    "#AA3377",
    "#999999",
    "#EE7733",
    "#009988",
    "#882255",
)
POINTS = 400  # of a curve: more are not seen
BINS = 30


def color(i: int) -> str:
    """The color of the i-th of several things."""
    return COLORS[i % len(COLORS)]


def dash(i: int) -> str:
    """The dash of the i-th of several lines: it tells apart those that share a color."""
    return ("solid", "dash", "dot", "dashdot")[i // len(COLORS) % 4]


def axis(title: str = "", **more: object) -> Plot:
    """An axis with its title."""
    return {"title": {"text": title}, **more}


def titled_axes(across: str, up: str, vertical: Plot | None = None, **more: object) -> Plot:
    """A layout with titles on both axes; ``vertical`` has more of the second."""
    return {"xaxis": axis(across), "yaxis": axis(up, **(vertical or {})), **more}


def log_axis(title: str) -> Plot:
    """A logarithmic axis of small positive numbers, each tick with its whole number."""
    ticks = [float(f"{digit}e{power}") for power in range(-2, 6) for digit in (1, 2, 5)]
    return axis(title, type="log", tickvals=ticks, ticktext=[f"{tick:,g}" for tick in ticks])


def vertical(x: float, **style: object) -> dict[str, object]:
    """A line across the whole height of a figure."""
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": style}


def plane(names: Sequence[str], low: np.ndarray, high: np.ndarray) -> Plot:
    """Two axes over a box, equally long in both directions where their ranges are alike."""
    across, up = (
        axis(name, range=[float(a), float(b)], constrain="domain")
        for name, a, b in zip(names, low, high, strict=True)
    )
    if 1 / 3 < _ratio(low, high, 0.0) < 3:
        up["scaleanchor"] = "x"
    return {"xaxis": across, "yaxis": up}


def plane_height(low: np.ndarray, high: np.ndarray, width: int) -> int:
    """Pixels that a plane of about this width needs."""
    return int(np.clip(80 + _ratio(low, high, 1.0) * width, 240, width))


def _ratio(low: np.ndarray, high: np.ndarray, flat: float) -> float:
    """Height of a box over its width; ``flat`` where it has no width."""
    return float((high[1] - low[1]) / (high[0] - low[0])) if high[0] > low[0] else flat


def scatter(x: object, y: object, mode: str, name: str = "", **more: object) -> Plot:
    """Points, joined by lines or not."""
    return {"type": "scatter", "mode": mode, "x": x, "y": y, "name": name, **more}


def line(x: Values, y: Values, name: str = "", color: str = COLORS[0], **more: object) -> Plot:
    """A curve, thinned to what a screen shows."""
    keep = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
    look: Plot = {
        "line": {"color": color, "width": 1.8},
        "marker": {"size": 5, "color": color},
        "showlegend": bool(name),
        **more,
    }
    mode = "lines+markers" if len(keep) < 40 else "lines"
    return {**scatter(np.asarray(x)[keep], np.asarray(y)[keep], mode, name), **look}


def mark(x: float, y: float, name: str, size: int, symbol: str, **more: object) -> Plot:
    """One marked point."""
    marker = {"size": size, "color": MODEL, "symbol": symbol}
    return scatter([x], [y], "markers", name, marker=marker, **more)


def points(
    x: Values, y: Values, name: str, color: str, size: float = 4, solid: float = 0.55
) -> Plot:
    """A cloud of points, too many for the legend."""
    marker = {"size": size, "color": color, "opacity": solid}
    return scatter(x, y, "markers", name, marker=marker, hoverinfo="x+y", showlegend=False)


def band(x: Values, low: Values, high: Values, name: str) -> list[Plot]:
    """The area between two curves."""
    edge = {"line": {"width": 0}, "hoverinfo": "skip"}
    fill = {"fill": "tonexty", "fillcolor": f"{COLORS[0]}33"}
    return [
        {**scatter(x, low, "lines", showlegend=False), **edge},
        {**scatter(x, high, "lines", name), **edge, **fill},
    ]


def bars(x: object, y: object, color: str = COLORS[0], **more: object) -> Plot:
    """One bar for each place."""
    return {"type": "bar", "x": x, "y": y, "marker": {"color": color}, **more}


def errors(value: np.ndarray, low: np.ndarray, high: np.ndarray, **more: object) -> Plot:
    """Intervals about values, for a trace of points."""
    ends = {"array": high - value, "arrayminus": value - low}
    return {"type": "data", **ends, "symmetric": False, **more}


def diagonal(low: float, high: float) -> Plot:
    """Where two numbers are the same."""
    look = {"color": DATA, "width": 1, "dash": "dot"}
    ends = [low, high]
    return scatter(ends, ends, "lines", "equal", hoverinfo="skip", line=look, showlegend=False)


def color_bar(unit: str) -> Plot:
    """The scale beside a heat map."""
    return {"thickness": 12, "outlinewidth": 0, "title": {"text": unit, "side": "right"}}


def heat(
    z: np.ndarray,
    x: Sequence[str],
    y: Sequence[str],
    *,
    signed: bool,
    alt: str,
    caption: str = "",
    unit: str = "",
) -> Figure:
    """A matrix as colors, about zero where it is signed; the first row is on top."""
    reach = float(np.nanmax(np.abs(z))) if z.size else 1.0
    limits: Plot = {"colorscale": "sequential"}
    if signed:
        limits = {"zmin": -reach, "zmax": reach, "colorscale": "diverging"}
    bar = color_bar(unit)
    trace = {"type": "heatmap", "z": z, "x": list(x), "y": list(y), "colorbar": bar, **limits}
    layout = {
        "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False},
        "xaxis": {"type": "category", "showgrid": False},
    }
    return Figure([trace], alt, layout, caption, height=int(min(620, max(220, 90 + 22 * len(y)))))


def marginals(
    data: np.ndarray, draws: np.ndarray, name: str, words: Mapping[float, str], discrete: bool
) -> Figure:
    """How often each value of one column occurs in the data and in draws; bars for few values, bins
    for many.
    """
    data, draws = data[~np.isnan(data)], draws[~np.isnan(draws)]
    if discrete:
        values = np.unique(np.concatenate([data, draws]))[:POINTS]
        places: object = [words.get(float(v), f"{v:g}") for v in values]
        counts = [[int((part == v).sum()) for v in values] for part in (data, draws)]
    else:
        seen = np.concatenate([data, np.clip(draws, data.min(), data.max())])
        edges = np.histogram_bin_edges(seen, BINS)
        places = (edges[1:] + edges[:-1]) / 2
        counts = [np.histogram(part, edges)[0] for part in (data, draws)]
    shares = [
        np.asarray(count) / max(1, len(part))
        for count, part in zip(counts, (data, draws), strict=True)
    ]
    traces = [
        bars(places, share, shade, name=label, opacity=0.7)
        for share, shade, label in zip(shares, (DATA, MODEL), ("data", "draws"), strict=True)
    ]
    layout = {
        "barmode": "group" if discrete else "overlay",
        "bargap": 0.25 if discrete else 0.0,
        "showlegend": False,
        "xaxis": {"type": "category"} if discrete else {},
        "yaxis": {"rangemode": "tozero", "nticks": 4},
        "title": {"text": name, "font": {"size": 12}},
    }
    alt = f"Shares of the values of {name}, in the data and in draws of the model."
    return Figure(traces, alt, layout, height=190)
