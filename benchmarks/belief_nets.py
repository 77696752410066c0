"""Belief nets of 200 units on binarized MNIST, one and two linear layers: validation ELBO against
updates and seconds, by estimator.

All estimators make the same number of updates from the same first weights, on the same rows in the
same order. ``UPDATES=1000`` in the environment makes it shorter. The figure goes to
``belief_nets.html`` in the working directory, or to ``$OUT``.

Beside published figures (best training ELBO, 1 / 2 layers, of far longer fits): NVIL -112.5 /
-99.6, MuProp -111.7 / -99.07, REBAR -111.6 / -98.22; validation REBAR -114.32 / -101.20 (Tucker et
al. 2017).
"""

import os
import time
from typing import Any

import torch

from harness import show
from partita.datasets import load
from partita.models import SigmoidBelief
from partita.objectives import DiscreteELBO
from partita.training.session import start_session
from partita.training.settings import Settings

DATA = "binarized_mnist"
UPDATES = int(os.environ.get("UPDATES", "4000"))
LOOKS = 10  # at the validation rows
ROWS = 2000  # of them
ESTIMATORS = ("nvil", "muprop", "gumbel-softmax", "rebar")
RECIPE: dict[str, Any] = {
    "batch_size": 100,
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "schedule": "constant",
    "average": 0.0,
}


@torch.no_grad()
def elbo(model: SigmoidBelief, x: torch.Tensor, generator: torch.Generator) -> float:
    """Mean over rows, one draw for each, at hard draws whatever the estimator."""
    return float(
        torch.cat(
            [model.log_weights(part, 1, generator=generator)[0] for part in x.split(500)]
        ).mean()
    )


def curve(
    train: Any, valid: torch.Tensor, layers: int, name: str
) -> list[tuple[int, float, float]]:
    """(updates, seconds of training, validation ELBO) along one fit."""
    g = torch.Generator().manual_seed(0)
    model = SigmoidBelief(784, (200,) * layers, generator=g)
    session = start_session(
        model, train, DiscreteELBO(name), Settings(steps=UPDATES, **RECIPE), generator=g
    )
    points, spent = [], 0.0
    for _ in range(LOOKS):
        started = time.perf_counter()
        for _ in range(UPDATES // LOOKS):
            session.advance()
        spent += time.perf_counter() - started
        points.append((session.step, spent, elbo(model, valid, torch.Generator().manual_seed(1))))
    return points


def figure(curves: dict[tuple[int, str], list[tuple[int, float, float]]]) -> Any:
    """One row for each number of layers: against updates, against seconds."""
    import plotly.colors
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    titles = [
        f"{layers} layer{'s' * (layers > 1)}, by {what}"
        for layers in (1, 2)
        for what in ("updates", "seconds")
    ]
    fig = make_subplots(rows=2, cols=2, subplot_titles=titles)
    for (layers, name), points in curves.items():
        color = plotly.colors.qualitative.Plotly[ESTIMATORS.index(name)]
        for column in (0, 1):
            x, y = [point[column] for point in points], [point[2] for point in points]
            trace = go.Scatter(
                x=x, y=y, name=name, line_color=color, showlegend=layers == 1 and not column
            )
            fig.add_trace(trace, row=layers, col=column + 1)
    return fig.update_yaxes(title_text="validation ELBO, nats").update_layout(height=800)


def run() -> None:
    """Fit each and compare at equal updates."""
    data = load("binarized_mnist")
    assert data.valid is not None
    valid, curves = data.valid.tensor()[:ROWS].float(), {}
    for layers in (1, 2):
        for name in ESTIMATORS:
            curves[layers, name] = points = curve(data.train, valid, layers, name)
            shown = " ".join(f"{value:.1f}" for _, _, value in points)
            updates, seconds, last = points[-1]
            show(
                f"{layers} layer{'s' * (layers > 1)}, {name}",
                updates=updates,
                seconds=seconds,
                elbo=last,
                curve=shown,
            )
        gain = curves[layers, "rebar"][-1][2] - curves[layers, "nvil"][-1][2]
        slower = curves[layers, "rebar"][-1][1] / curves[layers, "nvil"][-1][1]
        label = f"{layers} layer{'s' * (layers > 1)}, rebar beside nvil"
        show(label, more_nats_at_equal_updates=gain, target="at least 0", times_as_long=slower)
    path = os.environ.get("OUT", "belief_nets.html")
    figure(curves).write_html(path, include_plotlyjs=True)
    print(f"figure in {path}")


if __name__ == "__main__":
    run()
