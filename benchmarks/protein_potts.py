"""Potts models of a protein family (PF00014) by pseudo-likelihood and by PCD: contacts among the L strongest pairs; cost of a pass."""

import os
import time
from pathlib import Path

import numpy as np
import torch

import partita
from harness import show, side_by_side
from partita.data import Rows
from partita.models import Potts
from partita.models.energy.potts import contact_scores
from partita.objectives import PCD, PseudoLikelihood
from partita.objectives.pseudo_likelihood import pseudo_log_likelihood

DATA = "protein_msa"
APART, CONTACT = 5, 8.0  # places along the chain; distance below which two residues touch
FIGURE = Path("protein_contacts.html")


def run() -> None:
    """Print the seconds of one pass, and the precision of the top L pairs of each fit and of the peer whose scores are shipped."""
    raw = np.load(Path(os.environ["PARTITA_DATA"]) / "protein_msa" / "pf00014.npz")
    x = torch.tensor(raw["x"]).float()
    rows = Rows(raw["x"], raw["weights"])
    one_pass(x)
    table = raw["tab_cont"]
    pairs = table[:, :2].astype(int) - 1
    far, touching = np.abs(pairs[:, 0] - pairs[:, 1]) >= APART, table[:, 3] < CONTACT
    curves = {"shipped scores": precision(table[:, 2], far, touching)}
    for name, objective, options in (
        ("pseudo-likelihood", PseudoLikelihood(), {"steps": 150, "batch_size": 2000, "learning_rate": 0.02, "l2": 0.01}),
        ("PCD", PCD(chains=500, steps=1), {"steps": 500, "batch_size": 1000, "learning_rate": 0.01, "l2": 0.01}),
    ):
        g = torch.Generator().manual_seed(0)
        model = Potts(x.shape[1], 21, generator=g)
        started = time.perf_counter()
        partita.fit(model, rows, objective, generator=g, **options)
        scores = contact_scores(model, skip=[0]).numpy()[pairs[:, 0], pairs[:, 1]]
        curves[name] = precision(scores, far, touching)
        show(name, seconds=time.perf_counter() - started, precision_of_top_L=float(curves[name][x.shape[1] - 1]))
    show("shipped scores", precision_of_top_L=float(curves["shipped scores"][x.shape[1] - 1]), contacts=int((far & touching).sum()))
    draw(curves)


def one_pass(x: torch.Tensor) -> None:
    """Forward and backward over all sequences, beside the two matrix products it cannot do without."""
    model = Potts(x.shape[1], 21, generator=torch.Generator())
    hot, matrix = torch.nn.functional.one_hot(x.long(), 21).float().flatten(1), torch.randn(1113, 1113)
    own, other, ratio = side_by_side(lambda: (-pseudo_log_likelihood(model, x).mean()).backward(), lambda: hot.mT @ (hot @ matrix), 4, 1)
    show("one pass, 13,600 sequences", seconds=own, two_products=other, ratio=ratio, target="under 3 s")


def precision(scores: np.ndarray, far: np.ndarray, touching: np.ndarray) -> np.ndarray:
    """Share of contacts among the n strongest pairs that are far apart along the chain, for every n."""
    order = np.argsort(-np.where(far, scores, -np.inf))[: far.sum()]
    return touching[order].cumsum() / np.arange(1, len(order) + 1)


def draw(curves: dict[str, np.ndarray]) -> None:
    """The precision of every fit against the number of pairs, as a page."""
    import plotly.graph_objects as go

    figure = go.Figure([go.Scatter(x=np.arange(1, 151), y=curve[:150], name=name) for name, curve in curves.items()])
    figure.update_layout(xaxis_title="strongest pairs", yaxis_title="share in contact", yaxis_range=[0, 1.02])
    figure.write_html(FIGURE, include_plotlyjs="cdn")
    print(f"figure in {FIGURE}")


if __name__ == "__main__":
    run()
