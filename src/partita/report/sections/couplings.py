"""Which columns hold together: couplings as a matrix, and the strongest of them by name."""

from collections.abc import Iterator

import numpy as np
import torch

from partita.models import MaxEnt, Potts
from partita.models.energy.pairwise import PairwiseModel
from partita.models.energy.potts import zero_sum
from partita.report import plots
from partita.report.blocks import Block, Table, Text
from partita.report.context import Subject

WIDEST = 150  # columns of a matrix that a page can hold
STRONGEST = 8
SIGNED = "positive couplings make two columns agree, negative ones differ"


def of_pairs(model: PairwiseModel | MaxEnt, subject: Subject) -> Iterator[Block]:
    """Nothing for a model whose features are not pairs."""
    matrix = coupling_matrix(model)
    if matrix is None:
        return
    signed, names = not isinstance(model, Potts), subject.columns
    what = SIGNED if signed else "the norm of each pair's couplings, in the zero-sum gauge"
    if len(matrix) <= WIDEST:
        alt = (
            f"Couplings of {len(names)} columns as a matrix; the largest is "
            f"{np.abs(matrix).max():.2f}."
        )
        shown = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
        yield plots.heat(
            shown,
            names,
            names,
            signed=signed,
            alt=alt,
            caption=f"Couplings between columns: {what}.",
        )
    else:
        yield Text(f"{len(matrix)} columns are too many to draw as a matrix; {what}.")
    i, j = np.triu_indices(len(matrix), 1)
    order = np.argsort(-np.abs(matrix[i, j]))[:STRONGEST]
    strongest = [[names[i[k]], names[j[k]], f"{matrix[i[k], j[k]]:.3f}"] for k in order]
    yield Table(strongest, ("column", "column", "coupling"), "The strongest couplings")


@torch.no_grad()
def coupling_matrix(model: PairwiseModel | MaxEnt) -> np.ndarray | None:
    """Couplings of every pair of columns, (D, D), symmetric; of a Potts model their norms."""
    width = model.support.width
    if isinstance(model, MaxEnt):
        if model.name not in ("pairwise", "k-pairwise"):
            return None
        edges = torch.triu_indices(width, width, 1).mT
        values = model.theta[width : width + len(edges)]
    else:
        edges, values = model.graph.edges, model.J
        if isinstance(model, Potts):
            values = zero_sum(values).flatten(1).norm(dim=1)
    matrix = np.zeros((width, width))
    i, j = edges.cpu().numpy().T
    matrix[i, j] = matrix[j, i] = values.double().cpu().numpy()
    return matrix
