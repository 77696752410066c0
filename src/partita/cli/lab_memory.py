"""The memory lab: state-space model, Hyena, attention and LSTM side by side, at their initial
weights.
"""

from typing import TYPE_CHECKING

import torch
from torch import nn

from partita.cli.lab import Finding, LabSettings
from partita.core import rng
from partita.core.arguments import check_count
from partita.models import Autoregressive
from partita.nets import LSTM, Attention, DiagonalSSM, Hyena
from partita.probes.memory import LogitsByDistance, Memory, attention_by_distance, memory

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TOKENS = 16
LEAST = {"length": 2, "width": 8, "draws": 2}


def compare_layers(settings: LabSettings, seed: int) -> Finding:
    """How far back each kind of layer remembers."""
    length, width, draws = (
        check_count("lab memory", name, settings[name], least) for name, least in LEAST.items()
    )
    g = torch.Generator().manual_seed(seed)
    u = rng.normal((draws, length, width), torch.zeros((), dtype=torch.float64), g)
    found = {name: memory(layer.double(), u) for name, layer in sequence_layers(width, g).items()}
    model = Autoregressive(
        length,
        states=TOKENS,
        backbone="attention",
        width=width,
        layers=1,
        options={"heads": max(1, width // 8)},
        generator=g,
    )
    logits = attention_by_distance(model, draws=max(8, draws), generator=g)
    return Finding(
        _figure(found, logits),
        f"memory over {length} steps, float64",
        ["", "farthest", "distances that matter", "tolerance", "causal"],
        [
            [name, str(m.length), str(m.count), f"{m.tolerance:.1e}", "yes" if m.causal else "no"]
            for name, m in found.items()
        ],
        {"layers": {name: _numbers(m) for name, m in found.items()}},
    )


def sequence_layers(width: int, generator: torch.Generator) -> dict[str, nn.Module]:
    """The four kinds, of one width."""
    return {
        "SSM": DiagonalSSM(width, 16, mix=True, generator=generator),
        "Hyena": Hyena(width, 2, generator=generator),
        "attention": Attention(width, max(1, width // 8), generator=generator),
        "LSTM": LSTM(width, generator=generator),
    }


def _figure(found: dict[str, Memory], logits: LogitsByDistance) -> "Figure":
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
    band = go.Scatter(
        x=distance + distance[::-1],
        y=[*logits.high[0].tolist(), *logits.low[0].flip(0).tolist()],
        fill="toself",
        line={"width": 0},
        opacity=0.4,
        showlegend=False,
    )
    mean = go.Scatter(x=distance, y=logits.mean[0].tolist(), name="q.k", mode="lines")
    for trace in (band, mean):
        fig.add_trace(trace, row=2, col=1)
    fig.update_yaxes(type="log", exponentformat="power", row=1, col=1)
    fig.update_xaxes(title_text="distance n")
    return fig.update_layout(height=800)


def _numbers(m: Memory) -> dict[str, object]:
    return {
        "length": m.length,
        "count": m.count,
        "tolerance": m.tolerance,
        "causal": m.causal,
        "size": m.size.tolist(),
    }
