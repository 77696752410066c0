"""The gradient lab: every estimator of the gradient of E_q[f(z)] against the exact one, on latents
that enumerate.
"""

from typing import TYPE_CHECKING

import torch

from partita.cli.lab import Finding, LabSettings
from partita.core.arguments import check_choice, check_count
from partita.errors import invalid
from partita.gradients import Estimator
from partita.gradients.laboratory import (
    Measured,
    Problem,
    all_estimators,
    bias_by_temperature,
    bits,
    evidence,
    layers,
    measure,
    one_hots,
    variance_with_constant,
)
from partita.gradients.score_function import optimal_constant

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PROBLEMS = ("bits", "layers", "categories", "evidence")
MOST_BITS = 10
TEMPERATURES = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5)
SPAN = 3.0  # of the constants shown around c*, where f moves by about one


def compare_estimators(settings: LabSettings, seed: int) -> Finding:
    """Bias and variance of every estimator of one gradient."""
    draws = check_count("lab gradients", "draws", settings["draws"], 100)
    g = torch.Generator().manual_seed(seed)
    problem = _problem(settings, g)
    estimators = all_estimators(problem)
    found = {
        name: measure(problem, estimator, draws, generator=g)
        for name, estimator in estimators.items()
    }
    best = float(optimal_constant(*problem.score_table()))
    by_temperature = bias_by_temperature(problem, TEMPERATURES, draws, generator=g)
    return Finding(
        _figure(problem, found, best, by_temperature),
        f"{problem.name}, {draws} estimates each, float64",
        ["", "bias z", "bias", "variance", "x cost", "cost", "unbiased", "f"],
        [_row(name, m, estimators[name]) for name, m in found.items()],
        {
            "problem": problem.name,
            "optimal_constant": best,
            "estimators": {name: _numbers(m, estimators[name]) for name, m in found.items()},
        },
        f"Optimal constant baseline: {best:.4f}. VIMCO is measured against its own bound.",
    )


def _problem(settings: LabSettings, generator: torch.Generator) -> Problem:
    """The problem of the settings."""
    name, count = settings["problem"], check_count("lab gradients", "bits", settings["bits"], 2)
    if count > MOST_BITS:
        allowed = f"be at most {MOST_BITS}, for the exact gradient sums over all states"
        raise invalid("lab gradients", "bits", allowed, count)
    check_choice("lab gradients", "problem", name, PROBLEMS)
    if name == "layers":
        return layers(count - count // 2, count // 2, generator=generator)
    if name == "categories":
        return one_hots(max(1, count // 2), 3, generator=generator)
    return (bits if name == "bits" else evidence)(count, generator=generator)


def _figure(
    problem: Problem,
    found: dict[str, Measured],
    best: float,
    by_temperature: dict[str, list[Measured]],
) -> "Figure":
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
    for label, color, heights in (
        ("variance", "#1f3a5f", [m.variance for m in found.values()]),
        ("x cost", "#9db8d9", [m.work for m in found.values()]),
    ):
        fig.add_trace(go.Bar(x=names, y=heights, name=label, marker_color=color), row=1, col=1)
    c = torch.linspace(best - SPAN, best + SPAN, 61, dtype=torch.float64)
    exact = variance_with_constant(problem, c).tolist()
    fig.add_trace(go.Scatter(x=c.tolist(), y=exact, name="exact", mode="lines"), row=2, col=1)
    measured = found["optimal constant"].variance
    fig.add_trace(
        go.Scatter(x=[best], y=[measured], name="measured at c*", mode="markers", marker_size=10),
        row=2,
        col=1,
    )
    for name, results in by_temperature.items():
        bias = [m.bias for m in results]
        trace = go.Scatter(x=TEMPERATURES, y=bias, name=name, mode="lines+markers")
        fig.add_trace(trace, row=2, col=2)
    fig.update_yaxes(type="log", exponentformat="power", row=1, col=1)
    fig.update_yaxes(title_text="|bias| / |gradient|", rangemode="tozero", row=2, col=2)
    fig.update_xaxes(title_text="c", row=2, col=1)
    fig.update_xaxes(title_text="temperature", row=2, col=2)
    return fig.update_layout(height=850, title=problem.name)


def _row(name: str, m: Measured, estimator: Estimator) -> list[str]:
    return [
        name,
        f"{m.z:.1f}",
        f"{100 * m.bias:.1f} %",
        f"{m.variance:.4g}",
        f"{m.work:.4g}",
        str(m.cost),
        "yes" if m.unbiased else "no",
        "smooth" if estimator.relaxes else "any",
    ]


def _numbers(m: Measured, estimator: Estimator) -> dict[str, object]:
    return {
        "unbiased": m.unbiased,
        "needs_smooth_f": estimator.relaxes,
        "z": m.z,
        "bias": m.bias,
        "variance": m.variance,
        "variance_times_cost": m.work,
        "cost": m.cost,
        "exact": m.exact.tolist(),
        "mean": m.mean.tolist(),
    }
