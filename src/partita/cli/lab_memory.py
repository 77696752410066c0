"""The memory lab: state-space model, Hyena, attention and LSTM side by side, at their first
weights.
"""

from pathlib import Path
from typing import Any

import torch
import typer

from partita.cli import show
from partita.core import rng
from partita.core.checks import check_count
from partita.errors import invalid
from partita.experiment.saved import free_path
from partita.models import Autoregressive
from partita.nets import LSTM, Attention, DiagonalSSM, Hyena
from partita.probes.memory import LogitsByDistance, Memory, attention_by_distance, memory

TOKENS = 16
LEAST = {"length": 2, "width": 8, "draws": 2}


def run(settings: dict[str, Any], out: Path | None, *, seed: int, as_json: bool) -> None:
    """Measure, print a table, draw the figure."""
    length, width, draws = (
        check_count("lab memory", name, settings[name], least) for name, least in LEAST.items()
    )
    if out is not None and out.suffix.lower() != ".html":
        raise invalid("lab memory", "--out", "end in .html", str(out))
    g = torch.Generator().manual_seed(seed)
    u = rng.normal((draws, length, width), torch.zeros((), dtype=torch.float64), g)
    found = {name: memory(layer.double(), u) for name, layer in layers(width, g).items()}
    logits = attention_by_distance(
        _attention_model(length, width, g), draws=max(8, draws), generator=g
    )
    path = free_path(Path("memory"), ".html") if out is None else out
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(found, logits).write_html(path, include_plotlyjs=True)
    if as_json:
        show.print_json(
            {"figure": str(path), "layers": {name: _json(m) for name, m in found.items()}}
        )
        return
    rows = [
        [name, str(m.length), str(m.count), f"{m.tolerance:.1e}", "yes" if m.causal else "no"]
        for name, m in found.items()
    ]
    show.table(
        ["", "farthest", "distances that matter", "tolerance", "causal"],
        rows,
        f"memory over {length} steps, float64",
    )
    typer.echo(f"Figure in {path}")


def layers(width: int, generator: torch.Generator) -> dict[str, Any]:
    """The four kinds, of one width."""
    return {
        "SSM": DiagonalSSM(width, 16, mix=True, generator=generator),
        "Hyena": Hyena(width, 2, generator=generator),
        "attention": Attention(width, max(1, width // 8), generator=generator),
        "LSTM": LSTM(width, generator=generator),
    }


def figure(found: dict[str, Memory], logits: LogitsByDistance) -> Any:
    """J by distance on a logarithmic scale above; logits of the first attention layer with their
    intervals below.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    titles = (
        "slope of the output in the input, by distance",
        f"attention: q.k of the first layer, {100 * logits.level:g} % intervals",
    )
    fig = make_subplots(rows=2, cols=1, subplot_titles=titles)
    for name, m in found.items():
        shown = m.size.where(m.size > m.tolerance, torch.nan)
        fig.add_trace(go.Scatter(y=shown.tolist(), name=name, mode="lines"), row=1, col=1)
    distance = list(range(logits.mean.shape[1]))
    band = {
        "x": distance + distance[::-1],
        "y": [*logits.high[0].tolist(), *logits.low[0].flip(0).tolist()],
    }
    fig.add_trace(
        go.Scatter(**band, fill="toself", line={"width": 0}, opacity=0.4, showlegend=False),
        row=2,
        col=1,
    )
    fig.add_trace(
        go.Scatter(x=distance, y=logits.mean[0].tolist(), name="q.k", mode="lines"), row=2, col=1
    )
    fig.update_yaxes(type="log", exponentformat="power", row=1, col=1)
    fig.update_xaxes(title_text="distance n")
    return fig.update_layout(height=800)


def _attention_model(length: int, width: int, generator: torch.Generator) -> Autoregressive:
    options = {"heads": max(1, width // 8)}
    return Autoregressive(
        length,
        states=TOKENS,
        backbone="attention",
        width=width,
        layers=1,
        options=options,
        generator=generator,
    )


def _json(m: Memory) -> dict[str, Any]:
    return {
        "length": m.length,
        "count": m.count,
        "tolerance": m.tolerance,
        "causal": m.causal,
        "size": m.size.tolist(),
    }
