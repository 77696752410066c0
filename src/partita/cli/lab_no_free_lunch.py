"""The no-free-lunch lab: six learners on every target of a small grid; their totals agree to the
last digit, until a prior takes sides.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from partita.cli.lab import Finding, LabSettings
from partita.core import rng
from partita.core.arguments import check_count
from partita.errors import invalid
from partita.probes.no_free_lunch import (
    MOST_POINTS,
    MOST_TRAINING,
    Learner,
    Lunch,
    no_free_lunch,
    rough_prior,
    smooth_prior,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

OWNER = "lab no-free-lunch"
PRIORS: dict[str, Callable[[Lunch], np.ndarray] | None] = {
    "every target alike": None,
    "targets that change seldom": smooth_prior,
    "targets that change often": rough_prior,
}


def compare_learners(settings: LabSettings, seed: int) -> Finding:
    """Mistakes of every learner on points outside the training set, over all targets."""
    width, height, count = (
        check_count(OWNER, name, settings[name], 1) for name in ("width", "height", "train")
    )
    n = width * height
    if n > MOST_POINTS or n < 2:
        allowed = f"lie between 2 and {MOST_POINTS}, for all 2^n targets are enumerated"
        raise invalid(OWNER, "width x height", allowed, n)
    if count >= n or count > MOST_TRAINING:
        allowed = f"be less than {n} points, and at most {MOST_TRAINING}"
        raise invalid(OWNER, "train", allowed, count)
    domain = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).reshape(-1, 2)
    train = rng.permutation(n, torch.Generator().manual_seed(seed))[:count].tolist()
    lunch = no_free_lunch(small_learners(), domain, train)
    totals, errors = lunch.totals(), errors_by_prior(lunch)
    return Finding(
        lunch_figure(lunch),
        f"{len(lunch.targets)} targets on {n} points, {count} of them for training",
        ["learner", "mistakes, all targets", *(f"error, {name}" for name in PRIORS)],
        [
            [name, str(total), *(f"{error[name]:.4f}" for error in errors.values())]
            for name, total in totals.items()
        ],
        {"forecast": lunch.forecast, "totals": totals, "errors": errors},
        f"Theory says {lunch.forecast} mistakes for every learner: 2^(n-1) for each point outside "
        "the training set.",
    )


def small_learners() -> "dict[str, Learner]":
    """Four that are in use, one that ignores the data, and one that does the opposite of its
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


def errors_by_prior(lunch: Lunch) -> dict[str, dict[str, float]]:
    """The mean error of each learner under each prior over targets."""
    return {
        label: {
            name: float(error)
            for name, error in lunch.errors(None if prior is None else prior(lunch)).items()
        }
        for label, prior in PRIORS.items()
    }


def lunch_figure(lunch: Lunch) -> "Figure":
    """Above, which learner errs where: one row for each learner, one column for each target. Below,
    the averages under three priors.
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
    bar = {"len": 0.4, "y": 0.8}
    shares = go.Heatmap(z=z, y=names, colorscale="Viridis", zmin=0, zmax=1, colorbar=bar)
    fig.add_trace(shares, row=1, col=1)
    for label, errors in errors_by_prior(lunch).items():
        fig.add_trace(go.Bar(x=names, y=list(errors.values()), name=label), row=2, col=1)
    fig.add_hline(y=0.5, line={"dash": "dot"}, row=2, col=1)  # type: ignore[arg-type]
    fig.update_xaxes(title_text=f"the {len(lunch.targets)} targets", row=1, col=1)
    fig.update_yaxes(title_text="error on unseen points", range=[0, 1], row=2, col=1)
    # below the color bar
    return fig.update_layout(height=850, legend={"y": 0.38, "yanchor": "top"})
