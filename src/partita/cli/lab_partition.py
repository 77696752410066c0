"""The partition-function lab: log Z of a restricted Boltzmann machine whose truth is a finite sum,
by every evaluator.
"""

import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from partita.cli.lab import Finding, LabSettings
from partita.core import rng
from partita.core.arguments import check_count, check_real
from partita.core.capability import EXACT_BITS
from partita.core.protocols import PartitionEvaluator
from partita.core.quantity import Quantity
from partita.errors import invalid
from partita.evaluators import AIS, SMC, Bridge, Enumeration, ReverseAIS, Sandwich
from partita.models import RBM
from partita.report.format import interval

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LEAST = {"visible": 1, "hidden": 1, "temperatures": 2, "chains": 4}


class Timed(NamedTuple):
    """An estimate and the seconds that it took."""

    q: Quantity
    seconds: float


def compare_evaluators(settings: LabSettings, seed: int) -> Finding:
    """log Z of one machine by every evaluator, against the truth."""
    visible, hidden, temperatures, chains = (
        check_count("lab partition", name, settings[name], least) for name, least in LEAST.items()
    )
    scale = check_real("lab partition", "scale", settings["scale"], 0.0)
    if (smaller := min(visible, hidden)) > EXACT_BITS:
        allowed = f"be at most {EXACT_BITS}, for the truth is a sum over its states"
        raise invalid("lab partition", "the smaller of visible and hidden", allowed, smaller)
    g = torch.Generator().manual_seed(seed)
    model = random_machine(visible, hidden, scale, g)
    found = {
        name: _timed(evaluator, model, g)
        for name, evaluator in partition_evaluators(temperatures, chains).items()
    }
    truth = found["enumeration"].q.value
    return Finding(
        partition_figure(found),
        f"log Z of {model.title()}, weights N(0, {scale:g}^2)",
        ["", "log Z", "interval", "off by", "covers", "verdict", "seconds"],
        [_row(name, timed, truth) for name, timed in found.items()],
        {
            "evaluators": {
                name: {**timed.q.as_json(), "seconds": timed.seconds}
                for name, timed in found.items()
            }
        },
    )


def random_machine(visible: int, hidden: int, scale: float, generator: torch.Generator) -> RBM:
    """A machine with random weights and biases, in float64."""
    model = RBM(visible, hidden, scale=scale, generator=generator).double()
    with torch.no_grad():
        for bias in (model.b, model.c):
            bias.copy_(scale * rng.normal(bias.shape, bias, generator))
    return model


def partition_evaluators(temperatures: int, chains: int) -> dict[str, PartitionEvaluator]:
    """The truth first, then every way to estimate it."""
    return {
        "enumeration": Enumeration(),
        "AIS": AIS(temperatures=temperatures, chains=chains),
        "SMC": SMC(temperatures=temperatures, chains=chains),
        "reverse AIS": ReverseAIS(temperatures=temperatures, chains=chains),
        "sandwich": Sandwich(temperatures=temperatures, chains=chains),
        "bridge": Bridge(),
    }


def partition_figure(found: dict[str, Timed]) -> "Figure":
    """Each estimate less the truth, with its interval; the truth is the line at zero."""
    import plotly.graph_objects as go

    truth = found["enumeration"].q.value
    fig = go.Figure()
    for name, (q, seconds) in found.items():
        if q.kind != "exact":
            ends = {"type": "data", "array": [q.high - q.value], "arrayminus": [q.value - q.low]}
            fig.add_trace(
                go.Scatter(
                    x=[q.value - truth],
                    y=[name],
                    error_x=ends,
                    mode="markers",
                    marker={"size": 10},
                    name=f"{name}: {q.verdict}, {seconds:.2f} s",
                )
            )
    fig.add_vline(x=0, line={"dash": "dot"})
    fig.update_xaxes(title_text="estimate of log Z less the truth, nats, with its interval")
    return fig.update_layout(title=f"log Z = {truth:.4f} by summing all states", height=450)


def _row(name: str, timed: Timed, truth: float) -> list[str]:
    q, off, covers = timed.q, "", ""
    if q.kind != "exact":
        off = f"{q.value - truth:+.4f}"
        covers = "yes" if q.low <= truth <= q.high else "no"
    return [name, f"{q.value:.4f}", interval(q), off, covers, q.verdict, f"{timed.seconds:.2f}"]


def _timed(evaluator: PartitionEvaluator, model: RBM, generator: torch.Generator) -> Timed:
    started = time.perf_counter()
    q = evaluator(model, generator=rng.child(generator))
    return Timed(q, time.perf_counter() - started)
