"""Potts models of a protein family (PF00014) by pseudo-likelihood and by PCD: contacts among the L
strongest pairs; cost of a pass.
"""

import os
import time
from pathlib import Path

import numpy as np
import torch

import partita
from harness import show, side_by_side
from partita.models import Potts
from partita.models.energy.potts import contact_scores
from partita.objectives import PCD, PseudoLikelihood
from partita.objectives.sites import pseudo_log_likelihood
from partita.tables import Rows

DATA = "protein_msa"
APART, CONTACT = 5, 8.0  # places along the chain; distance below which two residues touch
FIGURE = Path("protein_contacts.html")


def run() -> None:
    """Print the seconds of one pass, and the precision of the top L pairs of each fit and of the
    peer whose scores are shipped.
    """
    raw = np.load(Path(os.environ["PARTITA_DATA"]) / "protein_msa" / "pf00014.npz")
    x = torch.tensor(raw["x"]).float()
    rows = Rows(raw["x"], raw["weights"])
    one_pass(x)
    table = raw["tab_cont"]
    pairs = table[:, :2].astype(int) - 1
    far, touching = np.abs(pairs[:, 0] - pairs[:, 1]) >= APART, table[:, 3] < CONTACT
    scores = {"shipped scores": table[:, 2]}
    for name, objective, options in (
        (
            "pseudo-likelihood",
            PseudoLikelihood(),
            {"steps": 150, "batch_size": 2000, "learning_rate": 0.02, "l2": 0.01},
        ),
        (
            "PCD",
            PCD(chains=500, steps=1),
            {"steps": 500, "batch_size": 1000, "learning_rate": 0.01, "l2": 0.01},
        ),
    ):
        g = torch.Generator().manual_seed(0)
        model = Potts(x.shape[1], 21, generator=g)
        started = time.perf_counter()
        partita.fit(model, rows, objective, generator=g, **options)
        scores[name] = contact_scores(model, skip=[0]).numpy()[pairs[:, 0], pairs[:, 1]]
        show(
            name,
            seconds=time.perf_counter() - started,
            precision_of_top_L=top(scores[name], far, touching, x.shape[1]),
        )
    shipped = top(scores["shipped scores"], far, touching, x.shape[1])
    show("shipped scores", precision_of_top_L=shipped, contacts=int((far & touching).sum()))
    draw(scores, pairs, far, touching, x.shape[1])


def one_pass(x: torch.Tensor) -> None:
    """Forward and backward over all sequences, beside the two matrix products it cannot do
    without.
    """
    model = Potts(x.shape[1], 21, generator=torch.Generator())
    hot = torch.nn.functional.one_hot(x.long(), 21).float().flatten(1)
    matrix = torch.randn(1113, 1113)
    own, other, ratio = side_by_side(
        lambda: (-pseudo_log_likelihood(model, x).mean()).backward(),
        lambda: hot.mT @ (hot @ matrix),
        4,
        1,
    )
    show(
        "one pass, 13,600 sequences",
        seconds=own,
        two_products=other,
        ratio=ratio,
        target="under 3 s",
    )


def strongest(scores: np.ndarray, far: np.ndarray) -> np.ndarray:
    """The pairs that are far apart along the chain, strongest first, by their rows of the table."""
    return np.argsort(-np.where(far, scores, -np.inf))[: far.sum()]


def top(scores: np.ndarray, far: np.ndarray, touching: np.ndarray, n: int) -> float:
    """Share of contacts among the n strongest pairs."""
    return float(touching[strongest(scores, far)[:n]].mean())


def draw(
    scores: dict[str, np.ndarray], pairs: np.ndarray, far: np.ndarray, touching: np.ndarray, n: int
) -> None:
    """Precision against the number of pairs, and the n strongest pairs on the map of contacts:
    pseudo-likelihood above, PCD below.
    """
    from plotly.subplots import make_subplots

    titles = (
        "Share of contacts among the strongest pairs",
        f"The {n} strongest: pseudo-likelihood above, PCD below",
    )
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.1)
    for name, values in scores.items():
        share = touching[strongest(values, far)].cumsum() / np.arange(1, far.sum() + 1)
        figure.add_scatter(x=np.arange(1, 151), y=share[:150], name=name, row=1, col=1)
    contacts = pairs[touching]
    figure.add_scatter(
        x=[*contacts[:, 0], *contacts[:, 1]],
        y=[*contacts[:, 1], *contacts[:, 0]],
        name="contact",
        row=1,
        col=2,
        mode="markers",
        marker={"symbol": "square", "size": 7, "color": "#cccccc"},
    )
    for name, upper in (("pseudo-likelihood", True), ("PCD", False)):
        chosen = strongest(scores[name], far)[:n]
        low, high = pairs[chosen].min(1), pairs[chosen].max(1)
        colors = np.where(touching[chosen], "#228833", "#EE6677")
        figure.add_scatter(
            x=low if upper else high,
            y=high if upper else low,
            mode="markers",
            showlegend=False,
            row=1,
            col=2,
            marker={"size": 6, "color": colors},
        )
    figure.update_xaxes(title="pairs", row=1, col=1).update_yaxes(range=[0, 1.02], row=1, col=1)
    figure.update_xaxes(title="place along the chain", row=1, col=2).update_yaxes(
        scaleanchor="x2", row=1, col=2
    )
    figure.update_layout(
        template="plotly_white", width=1100, height=520, legend={"orientation": "h", "y": -0.18}
    )
    figure.write_html(FIGURE, include_plotlyjs=True)
    print(f"figure in {FIGURE}")


if __name__ == "__main__":
    run()
