"""Which columns hold together: couplings as a matrix, and the strongest of them by name."""

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from partita.models import MaxEnt, Potts
from partita.models.energy.potts import zero_sum
from partita.report import plots
from partita.report.blocks import Block, Table, Text
from partita.report.context import Subject

WIDEST = 150  # columns of a matrix that a page can hold
STRONGEST = 8
SIGNED = "positive couplings make two columns agree, negative ones differ"


def of_pairs(model: Any, subject: Subject) -> Iterator[Block]:
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


@singledispatch
@torch.no_grad()
def coupling_matrix(model: Any) -> np.ndarray | None:
    """Couplings of every pair of columns, (D, D), symmetric; of models on a graph."""
    return _symmetric(model.J, model.graph.edges, model.support.width)


@coupling_matrix.register
@torch.no_grad()
def _(model: Potts) -> np.ndarray:
    return _symmetric(
        zero_sum(model.J).flatten(1).norm(dim=1), model.graph.edges, model.support.width
    )


@coupling_matrix.register
@torch.no_grad()
def _(model: MaxEnt) -> np.ndarray | None:
    width = model.support.width
    if model.name not in ("pairwise", "k-pairwise"):
        return None
    pairs = torch.triu_indices(width, width, 1).mT
    return _symmetric(model.theta[width : width + len(pairs)], pairs, width)


def _symmetric(values: torch.Tensor, edges: torch.Tensor, width: int) -> np.ndarray:
    matrix = np.zeros((width, width))
    i, j = edges.cpu().numpy().T
    matrix[i, j] = matrix[j, i] = values.double().cpu().numpy()
    return matrix
