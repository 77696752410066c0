"""The page about a :class:`PrototypeEncoder`: a map of the embedding, the trace of the fit, the
concentrations.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from partita.runtime.files import JsonObject
from partita.training import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from partita.estimators.prototype_encoder import PrototypeEncoder

MOST_POINTS = 5000
MOST_GROUPS = 40  # with a color and a name each; beyond, numbers share a scale of colors
TRACES = ("info_nce", "proto_nce", "alignment", "uniformity")


def write_encoder_page(
    encoder: "PrototypeEncoder", path: Path, v: np.ndarray, color: np.ndarray
) -> Path:
    """Write the page; its figures need no network."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(encoder, v, color).write_html(path, include_plotlyjs=True)
    return path


def figure(encoder: "PrototypeEncoder", v: np.ndarray, color: np.ndarray) -> "Figure":
    """Two principal directions of the sphere; the losses of E- and M-steps; phi of every prototype,
    granularity by granularity.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    titles = (
        "the embedding, seen along its two widest directions",
        "trace of the fit; dotted: E-steps",
        "concentration of each prototype: small is dense",
    )
    fig = make_subplots(
        rows=3, cols=1, row_heights=[0.5, 0.25, 0.25], subplot_titles=titles, vertical_spacing=0.08
    )
    some = np.linspace(0, len(v) - 1, min(len(v), MOST_POINTS)).astype(int)
    places = widest_plane(v)
    for name, chosen, marker in _groups(some, color[some]):
        fig.add_trace(
            go.Scattergl(
                x=places[chosen, 0], y=places[chosen, 1], mode="markers", marker=marker, name=name
            ),
            row=1,
            col=1,
        )
    for step in e_steps(encoder.run_):
        dotted = {"dash": "dot", "width": 1}
        fig.add_vline(x=step, line=dotted, row=2, col=1)  # type: ignore[arg-type]
    for name in TRACES:
        steps, values = zip(*encoder.run_.series(name), strict=True)
        fig.add_trace(go.Scatter(x=steps, y=values, name=name), row=2, col=1)
    for phi in encoder.concentration_:
        fig.add_trace(go.Bar(y=np.sort(phi), name=f"phi of {len(phi)}"), row=3, col=1)
    ami = "".join(f", AMI {value:.3f} at {k} clusters" for k, value in encoder.ami_.items())
    return fig.update_layout(
        height=1300, title=f"{encoder.model_.title()}: uniformity {encoder.uniformity_:.2f}{ami}"
    )


def e_steps(run: Run) -> list[int]:
    """The first recorded step after every E-step."""
    series = run.series("e_steps")
    return [
        step
        for (step, now), (_, before) in zip(series[1:], series[:-1], strict=True)
        if now > before
    ]


def _groups(some: np.ndarray, color: np.ndarray) -> list[tuple[str, np.ndarray, JsonObject]]:
    """Name, points and marker of what is drawn in one color; of everything, where the labels are
    too many and numbers.
    """
    groups = np.unique(color)
    if len(groups) > MOST_GROUPS and np.issubdtype(color.dtype, np.number):
        return [
            ("y", some, {"size": 4, "color": color, "colorscale": "Viridis", "showscale": False})
        ]
    return [(str(group), some[color == group], {"size": 4}) for group in groups]


def widest_plane(v: np.ndarray) -> np.ndarray:
    """Coordinates along the two widest directions, (n, 2)."""
    centered = v - v.mean(0)
    directions = np.linalg.svd(centered, full_matrices=False)[2][:2]
    flat = centered @ directions.T
    return flat if flat.shape[1] == 2 else np.column_stack([flat, np.zeros(len(v))])
