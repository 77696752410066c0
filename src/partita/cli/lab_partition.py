"""The partition-function lab: log Z of a restricted Boltzmann machine whose truth is a finite sum,
by every evaluator.
"""

import time
from pathlib import Path
from typing import Any

import torch
import typer

from partita.cli import show
from partita.core import rng
from partita.core.capability import EXACT_BITS
from partita.core.checks import check_count, check_real
from partita.core.quantity import Quantity
from partita.errors import invalid
from partita.evaluators import AIS, SMC, Bridge, Enumeration, ReverseAIS, Sandwich
from partita.experiment.saved import free_path
from partita.models import RBM

LEAST = {"visible": 1, "hidden": 1, "temperatures": 2, "chains": 4}
Found = dict[str, tuple[Quantity, float]]  # with the seconds it took


def run(settings: dict[str, Any], out: Path | None, *, seed: int, as_json: bool) -> None:
    """Evaluate, print a table, draw the figure."""
    visible, hidden, temperatures, chains = (
        check_count("lab partition", name, settings[name], least) for name, least in LEAST.items()
    )
    scale = check_real("lab partition", "scale", settings["scale"], 0.0)
    if min(visible, hidden) > EXACT_BITS:
        allowed = f"be at most {EXACT_BITS}, for the truth is a sum over its states"
        raise invalid(
            "lab partition", "the smaller of visible and hidden", allowed, min(visible, hidden)
        )
    if out is not None and out.suffix.lower() != ".html":
        raise invalid("lab partition", "--out", "end in .html", str(out))
    g = torch.Generator().manual_seed(seed)
    model = machine(visible, hidden, scale, g)
    found = {
        name: _timed(evaluator, model, g)
        for name, evaluator in evaluators(temperatures, chains).items()
    }
    path = free_path(Path("partition"), ".html") if out is None else out
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(found).write_html(path, include_plotlyjs=True)
    if as_json:
        numbers = {
            name: {**show.quantity_json(q), "seconds": seconds}
            for name, (q, seconds) in found.items()
        }
        show.print_json({"figure": str(path), "evaluators": numbers})
        return
    show.table(
        ["", "log Z", "interval", "off by", "covers", "verdict", "seconds"],
        rows(found),
        f"log Z of {model.title()}, weights N(0, {scale:g}^2)",
    )
    typer.echo(f"Figure in {path}")


def machine(visible: int, hidden: int, scale: float, generator: torch.Generator) -> RBM:
    """A machine with random weights and biases, in float64."""
    model = RBM(visible, hidden, scale=scale, generator=generator).double()
    with torch.no_grad():
        for bias in (model.b, model.c):
            bias.copy_(scale * rng.normal(bias.shape, bias, generator))
    return model


def evaluators(temperatures: int, chains: int) -> dict[str, Any]:
    """The truth first, then every way to estimate it."""
    annealing: dict[str, Any] = {"temperatures": temperatures, "chains": chains}
    return {
        "enumeration": Enumeration(),
        "AIS": AIS(**annealing),
        "SMC": SMC(**annealing),
        "reverse AIS": ReverseAIS(**annealing),
        "sandwich": Sandwich(**annealing),
        "bridge": Bridge(),
    }


def rows(found: Found) -> list[list[str]]:
    """One row for each evaluator."""
    truth = found["enumeration"][0].value
    table = []
    for name, (q, seconds) in found.items():
        off = "" if q.kind == "exact" else f"{q.value - truth:+.4f}"
        covers = "" if q.kind == "exact" else ("yes" if q.low <= truth <= q.high else "no")
        table.append(
            [name, f"{q.value:.4f}", show.interval(q), off, covers, q.verdict, f"{seconds:.2f}"]
        )
    return table


def figure(found: Found) -> Any:
    """Each estimate less the truth, with its interval; the truth is the line at zero."""
    import plotly.graph_objects as go

    truth = found["enumeration"][0].value
    fig = go.Figure()
    for name, (q, seconds) in found.items():
        if q.kind != "exact":
            bars = {"type": "data", "array": [q.high - q.value], "arrayminus": [q.value - q.low]}
            label = f"{name}: {q.verdict}, {seconds:.2f} s"
            fig.add_trace(
                go.Scatter(
                    x=[q.value - truth],
                    y=[name],
                    error_x=bars,
                    mode="markers",
                    marker={"size": 10},
                    name=label,
                )
            )
    fig.add_vline(x=0, line={"dash": "dot"})
    fig.update_xaxes(title_text="estimate of log Z less the truth, nats, with its interval")
    return fig.update_layout(title=f"log Z = {truth:.4f} by summing all states", height=450)


def _timed(evaluator: Any, model: RBM, generator: torch.Generator) -> tuple[Quantity, float]:
    started = time.perf_counter()
    q = evaluator(model, generator=rng.child(generator))
    return q, time.perf_counter() - started
