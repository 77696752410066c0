"""The no-free-lunch lab: six learners on every target of a small grid; their totals agree to the
last digit, until a prior takes sides.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from partita.cli import show
from partita.core import rng
from partita.core.checks import check_count
from partita.errors import invalid
from partita.experiment.saved import free_path
from partita.probes.no_free_lunch import (
    MOST_POINTS,
    MOST_TRAINING,
    Lunch,
    no_free_lunch,
    rough_prior,
    smooth_prior,
)

PRIORS = {
    "every target alike": None,
    "targets that change seldom": smooth_prior,
    "targets that change often": rough_prior,
}


def run(settings: dict[str, Any], out: Path | None, *, seed: int, as_json: bool) -> None:
    """Enumerate, print a table, draw the figure."""
    width, height = (
        check_count("lab no-free-lunch", name, settings[name], 1) for name in ("width", "height")
    )
    count = check_count("lab no-free-lunch", "train", settings["train"], 1)
    n = width * height
    if n > MOST_POINTS or n < 2:
        raise invalid(
            "lab no-free-lunch",
            "width x height",
            f"lie between 2 and {MOST_POINTS}, for all 2^n targets are enumerated",
            n,
        )
    if count >= n or count > MOST_TRAINING:
        raise invalid(
            "lab no-free-lunch",
            "train",
            f"be less than {n} points, and at most {MOST_TRAINING}",
            count,
        )
    if out is not None and out.suffix.lower() != ".html":
        raise invalid("lab no-free-lunch", "--out", "end in .html", str(out))
    domain = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).reshape(-1, 2)
    train = rng.permutation(n, torch.Generator().manual_seed(seed))[:count].tolist()
    lunch = no_free_lunch(learners(), domain, train)
    path = free_path(Path("no-free-lunch"), ".html") if out is None else out
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(lunch).write_html(path, include_plotlyjs=True)
    if as_json:
        errors = {
            name: {k: float(v) for k, v in lunch.errors(_prior(prior, lunch)).items()}
            for name, prior in PRIORS.items()
        }
        show.print_json(
            {
                "figure": str(path),
                "forecast": lunch.forecast,
                "totals": lunch.totals(),
                "errors": errors,
            }
        )
        return
    title = f"{len(lunch.targets)} targets on {n} points, {count} of them for training"
    show.table(
        ["learner", "mistakes, all targets", *(f"error, {name}" for name in PRIORS)],
        _table(lunch),
        title,
    )
    typer.echo(
        f"Theory says {lunch.forecast} mistakes for every learner: 2^(n-1) for each point outside "
        "the training set."
    )
    typer.echo(f"Figure in {path}")


def learners() -> dict[str, Any]:
    """Four that are in use, one that does not look, and one that does the opposite of its
    neighbor.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    nearest = KNeighborsClassifier(1)
    return {
        "nearest neighbor": nearest,
        "decision tree": DecisionTreeClassifier(random_state=0),
        "logistic regression": LogisticRegression(),
        "support vectors": SVC(),
        "always one": lambda X, y, new: np.ones(len(new)),
        "opposite of the nearest": lambda X, y, new: 1 - nearest.fit(X, y).predict(new),
    }


def figure(lunch: Lunch) -> Any:
    """Above, who errs where: one row for each learner, one column for each target. Below, the
    averages under three priors.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    names, whole = list(lunch.mistakes), int(lunch.mass[lunch.off].sum())
    titles = (
        "share of mistakes on unseen points, target by target: the rows differ, their sums do not",
        "average over targets: a tie, until some targets are more likely than others",
    )
    fig = make_subplots(rows=2, cols=1, subplot_titles=titles, vertical_spacing=0.15)
    order = np.lexsort(tuple(lunch.mistakes.values())[::-1])
    z = np.stack([found[order] for found in lunch.mistakes.values()]) / whole
    fig.add_trace(
        go.Heatmap(
            z=z, y=names, colorscale="Viridis", zmin=0, zmax=1, colorbar={"len": 0.4, "y": 0.8}
        ),
        row=1,
        col=1,
    )
    for label, prior in PRIORS.items():
        errors = lunch.errors(_prior(prior, lunch))
        fig.add_trace(
            go.Bar(x=names, y=[float(errors[name]) for name in names], name=label), row=2, col=1
        )
    fig.add_hline(y=0.5, line={"dash": "dot"}, row=2, col=1)  # type: ignore[arg-type]
    fig.update_xaxes(title_text=f"the {len(lunch.targets)} targets", row=1, col=1)
    fig.update_yaxes(title_text="error on unseen points", range=[0, 1], row=2, col=1)
    # below the color bar
    return fig.update_layout(height=850, legend={"y": 0.38, "yanchor": "top"})


def _table(lunch: Lunch) -> list[list[str]]:
    totals = lunch.totals()
    errors = [lunch.errors(_prior(prior, lunch)) for prior in PRIORS.values()]
    return [
        [name, str(totals[name]), *(f"{float(e[name]):.4f}" for e in errors)] for name in totals
    ]


def _prior(prior: Any, lunch: Lunch) -> np.ndarray | None:
    return None if prior is None else prior(lunch)
