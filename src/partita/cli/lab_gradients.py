"""The gradient lab: every estimator of the gradient of E_q[f(z)] against the exact one, on latents
that enumerate.
"""

from pathlib import Path
from typing import Any

import torch
import typer

from partita.cli import show
from partita.core.checks import check_choice, check_count
from partita.errors import invalid
from partita.experiment.saved import free_path
from partita.gradients import Estimator
from partita.gradients.laboratory import (
    Measured,
    Problem,
    all_estimators,
    bias_by_temperature,
    bits,
    categories,
    evidence,
    layers,
    measure,
    variance_with_constant,
)
from partita.gradients.score_function import optimal_constant

PROBLEMS = ("bits", "layers", "categories", "evidence")
MOST_BITS = 10
TEMPERATURES = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5)
SPAN = 3.0  # of the constants shown around c*, where f moves by about one


def run(settings: dict[str, Any], out: Path | None, *, seed: int, as_json: bool) -> None:
    """Measure, print a table, draw the figure."""
    draws = check_count("lab gradients", "draws", settings["draws"], 100)
    if out is not None and out.suffix.lower() != ".html":
        raise invalid("lab gradients", "--out", "end in .html", str(out))
    g = torch.Generator().manual_seed(seed)
    problem = posed(settings, g)
    estimators = all_estimators(problem)
    found = {
        name: measure(problem, estimator, draws, generator=g)
        for name, estimator in estimators.items()
    }
    best = float(optimal_constant(*problem.score_table()))
    by_temperature = bias_by_temperature(problem, TEMPERATURES, draws, generator=g)
    path = free_path(Path("gradients"), ".html") if out is None else out
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(problem, found, best, by_temperature).write_html(path, include_plotlyjs=True)
    if as_json:
        show.print_json(
            {
                "figure": str(path),
                "problem": problem.name,
                "optimal_constant": best,
                "estimators": {name: _json(m, estimators[name]) for name, m in found.items()},
            }
        )
        return
    columns = ["", "bias z", "bias", "variance", "x cost", "cost", "unbiased", "f"]
    rows = [_row(name, m, estimators[name]) for name, m in found.items()]
    show.table(columns, rows, f"{problem.name}, {draws} estimates each, float64")
    typer.echo(
        f"Optimal constant baseline: {best:.4f}. VIMCO is measured against its own bound.\nFigure "
        f"in {path}"
    )


def posed(settings: dict[str, Any], generator: torch.Generator) -> Problem:
    """The problem that the settings ask for."""
    count = check_count("lab gradients", "bits", settings["bits"], 2)
    if count > MOST_BITS:
        raise invalid(
            "lab gradients",
            "bits",
            f"be at most {MOST_BITS}, for the exact gradient sums over all states",
            count,
        )
    check_choice("lab gradients", "problem", settings["problem"], PROBLEMS)
    made = {
        "bits": lambda: bits(count, generator=generator),
        "layers": lambda: layers(count - count // 2, count // 2, generator=generator),
        "categories": lambda: categories(max(1, count // 2), 3, generator=generator),
        "evidence": lambda: evidence(count, generator=generator),
    }
    return made[settings["problem"]]()


def figure(
    problem: Problem,
    found: dict[str, Measured],
    best: float,
    by_temperature: dict[str, list[Measured]],
) -> Any:
    """Variances above; below, the parabola of constant baselines and the bias of relaxations by
    temperature.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    titles = (
        "variance of one estimate (dark), times its cost (light)",
        "variance of REINFORCE by constant baseline c",
        "bias by temperature",
    )
    fig = make_subplots(
        rows=2, cols=2, specs=[[{"colspan": 2}, None], [{}, {}]], subplot_titles=titles
    )
    names = list(found)
    fig.add_trace(
        go.Bar(
            x=names, y=[m.variance for m in found.values()], name="variance", marker_color="#1f3a5f"
        ),
        row=1,
        col=1,
    )
    fig.add_trace(
        go.Bar(x=names, y=[m.work for m in found.values()], name="x cost", marker_color="#9db8d9"),
        row=1,
        col=1,
    )
    c = torch.linspace(best - SPAN, best + SPAN, 61, dtype=torch.float64)
    fig.add_trace(
        go.Scatter(
            x=c.tolist(), y=variance_with_constant(problem, c).tolist(), name="exact", mode="lines"
        ),
        row=2,
        col=1,
    )
    measured = found["optimal constant"].variance
    fig.add_trace(
        go.Scatter(x=[best], y=[measured], name="measured at c*", mode="markers", marker_size=10),
        row=2,
        col=1,
    )
    for name, results in by_temperature.items():
        trace = go.Scatter(
            x=TEMPERATURES, y=[m.bias for m in results], name=name, mode="lines+markers"
        )
        fig.add_trace(trace, row=2, col=2)
    fig.update_yaxes(type="log", exponentformat="power", row=1, col=1)
    fig.update_yaxes(title_text="|bias| / |gradient|", rangemode="tozero", row=2, col=2)
    fig.update_xaxes(title_text="c", row=2, col=1)
    fig.update_xaxes(title_text="temperature", row=2, col=2)
    return fig.update_layout(height=850, title=problem.name)


def _row(name: str, m: Measured, estimator: Estimator) -> list[str]:
    said = ["yes" if m.unbiased else "no", "smooth" if estimator.relaxes else "any"]
    return [
        name,
        f"{m.z:.1f}",
        f"{100 * m.bias:.1f} %",
        f"{m.variance:.4g}",
        f"{m.work:.4g}",
        str(m.cost),
        *said,
    ]


def _json(m: Measured, estimator: Estimator) -> dict[str, Any]:
    numbers = {
        "z": m.z,
        "bias": m.bias,
        "variance": m.variance,
        "variance_times_cost": m.work,
        "cost": m.cost,
    }
    return {
        "unbiased": m.unbiased,
        "needs_smooth_f": estimator.relaxes,
        **numbers,
        "exact": m.exact.tolist(),
        "mean": m.mean.tolist(),
    }
