"""The few sorts of figures that pages use, as plotly's JSON; plain dictionaries, so that nothing
needs plotly to make them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.report.blocks import Figure

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
    """The sort of line of the i-th of several things, of which more than there are colors share
    them.
    """
    return ("solid", "dash", "dot", "dashdot")[i // len(COLORS) % 4]


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, **more}


def log_axis(title: str) -> dict[str, Any]:
    """A logarithmic axis of small positive numbers, each tick with its whole number."""
    ticks = [float(f"{digit}e{power}") for power in range(-2, 6) for digit in (1, 2, 5)]
    return axis(title, type="log", tickvals=ticks, ticktext=[f"{tick:,g}" for tick in ticks])


def plane(names: Sequence[str], low: np.ndarray, high: np.ndarray) -> dict[str, Any]:
    """Two axes over a box, equally long in both directions where their ranges are alike."""
    across, up = (
        axis(name, range=[float(a), float(b)], constrain="domain")
        for name, a, b in zip(names, low, high, strict=True)
    )
    ratio = float((high[1] - low[1]) / (high[0] - low[0])) if high[0] > low[0] else 0.0
    return {"xaxis": across, "yaxis": {**up, **({"scaleanchor": "x"} if 1 / 3 < ratio < 3 else {})}}


def plane_height(low: np.ndarray, high: np.ndarray, width: int) -> int:
    """Pixels that a plane of about this width needs."""
    ratio = float((high[1] - low[1]) / (high[0] - low[0])) if high[0] > low[0] else 1.0
    return int(np.clip(80 + ratio * width, 240, width))


def line(x: Any, y: Any, name: str = "", color: str = COLORS[0], **more: Any) -> dict[str, Any]:
    """A curve, thinned to what a screen shows."""
    keep = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
    x, y = np.asarray(x)[keep], np.asarray(y)[keep]
    mode = "lines+markers" if len(x) < 40 else "lines"
    return {
        "type": "scatter",
        "mode": mode,
        "x": x,
        "y": y,
        "name": name,
        "line": {"color": color, "width": 1.8},
        "marker": {"size": 5, "color": color},
        "showlegend": bool(name),
        **more,
    }


def points(x: Any, y: Any, name: str, color: str, **more: Any) -> dict[str, Any]:
    """A cloud of points."""
    mark = {"size": 4, "color": color, "opacity": 0.55}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "name": name,
        "marker": mark,
        "hoverinfo": "x+y",
        **more,
    }


def band(x: Any, low: Any, high: Any, name: str, color: str = COLORS[0]) -> list[dict[str, Any]]:
    """The area between two curves."""
    edge = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip"}
    return [
        {**edge, "y": low, "showlegend": False},
        {**edge, "y": high, "fill": "tonexty", "fillcolor": f"{color}33", "name": name},
    ]


def diagonal(low: float, high: float, name: str = "equal") -> dict[str, Any]:
    """Where two numbers are the same."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [low, high],
        "y": [low, high],
        "name": name,
        "hoverinfo": "skip",
        "line": {"color": DATA, "width": 1, "dash": "dot"},
        "showlegend": False,
    }


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
    limits = (
        {"zmin": -reach, "zmax": reach, "colorscale": "diverging"}
        if signed
        else {"colorscale": "sequential"}
    )
    bar = {"thickness": 12, "outlinewidth": 0, "title": {"text": unit, "side": "right"}}
    trace = {"type": "heatmap", "z": z, "x": list(x), "y": list(y), "colorbar": bar, **limits}
    layout = {
        "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False},
        "xaxis": {"type": "category", "showgrid": False},
    }
    return Figure([trace], alt, layout, caption, height=int(min(620, max(220, 90 + 22 * len(y)))))


def marginals(
    data: np.ndarray, draws: np.ndarray, name: str, words: dict[float, str], discrete: bool
) -> Figure:
    """How often each value of one column occurs in the data and in draws; bars for few values, bins
    for many.
    """
    data, draws = data[~np.isnan(data)], draws[~np.isnan(draws)]
    if discrete:
        values = np.unique(np.concatenate([data, draws]))[:POINTS]
        places: Any = [words.get(float(v), f"{v:g}") for v in values]
        shares = [
            [float((part == v).mean()) if len(part) else 0.0 for v in values]
            for part in (data, draws)
        ]
    else:
        edges = np.histogram_bin_edges(
            np.concatenate([data, np.clip(draws, data.min(), data.max())]), BINS
        )
        places = (edges[1:] + edges[:-1]) / 2
        shares = [np.histogram(part, edges)[0] / max(1, len(part)) for part in (data, draws)]
    traces = [
        {
            "type": "bar",
            "x": places,
            "y": share,
            "name": label,
            "marker": {"color": shade},
            "opacity": 0.7,
        }
        for share, label, shade in zip(shares, ("data", "draws"), (DATA, MODEL), strict=True)
    ]
    layout = {
        "barmode": "group" if discrete else "overlay",
        "bargap": 0.25 if discrete else 0.0,
        "showlegend": False,
        "xaxis": {"type": "category"} if discrete else {},
        "yaxis": {"rangemode": "tozero", "nticks": 4},
        "title": {"text": name, "font": {"size": 12}},
    }
    return Figure(
        traces,
        f"Shares of the values of {name}, in the data and in draws of the model.",
        layout,
        height=190,
    )
