r"""What moving costs, and checks that a transport problem is one.

.. math:: c(x, y) = |x - y|_2^k          (theory/divergences.md, eq. 16.1)

Letters: n rows of x, m rows of y, D width, a and b weights.
"""

import torch
from torch import Tensor

from partita.core.arguments import PositiveFloat, check_finite, check_width, validated
from partita.errors import invalid


@validated
def cost_matrix(x: Tensor, y: Tensor, power: PositiveFloat = 2.0) -> Tensor:
    """c(x_i, y_j) = |x_i - y_j|^k, ``(*, n, D), (*, m, D) -> (*, n, m)``; differentiable, with
    slope zero where rows coincide.

    >>> cost_matrix(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), 1.0).tolist()
    [[5.0]]
    """
    for name, table in (("x", x), ("y", y)):
        check_reals("cost_matrix", name, table)
    check_width("cost_matrix", "y", y, x.shape[-1], f"x, which has {x.shape[-1]} columns")
    if power == 2.0:  # from one product, about a common middle so that little is lost to rounding
        middle = x.mean(-2, keepdim=True).detach()
        x, y = x - middle, y - middle
        norms = x.square().sum(-1)[..., :, None] + y.square().sum(-1)[..., None, :]
        return (norms - 2 * (x @ y.mT)).clamp_min(0.0)
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    return distance if power == 1.0 else distance**power


def check_problem(
    owner: str, cost: Tensor, a: Tensor | None, b: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The weights, even where none are given, of a problem with finite costs of at least zero and
    weights that sum to one.
    """
    if cost.dim() < 2 or 0 in cost.shape:
        raise invalid(owner, "cost", "have shape (*, n, m)", tuple(cost.shape))
    check_reals(owner, "cost", cost, "Remove rows with missing values first.")
    if (cost < 0).any():
        remedy = "Add a constant to all costs: the plan stays the same."
        raise invalid(owner, "cost", "be at least 0", f"{float(cost.min()):g}", remedy)
    a = check_masses(owner, "a", a, cost, cost.shape[-2])
    return a, check_masses(owner, "b", b, cost, cost.shape[-1])


def check_reals(owner: str, name: str, values: Tensor, *remedy: str) -> None:
    """Finite real numbers: shares of whole numbers would be rounded to nothing."""
    if not values.is_floating_point():
        cast = f"Use {name}.double()."
        raise invalid(owner, name, "be of a floating dtype", values.dtype, cast)
    check_finite(owner, name, values, *remedy)


def check_masses(owner: str, name: str, weight: Tensor | None, like: Tensor, count: int) -> Tensor:
    """Weights ``(*, n)`` that are positive or zero and sum to one; even ones for None."""
    if weight is None:
        return like.new_full((*like.shape[:-2], count), 1 / count)
    check_width(owner, name, weight, count, "the costs")
    check_reals(owner, name, weight)
    if (weight < 0).any():
        raise invalid(owner, name, "be at least 0", f"{float(weight.min()):g}")
    total = weight.double().sum(-1)
    slack = count**0.5 * 8 * torch.finfo(weight.dtype).eps
    if ((total - 1).abs() > slack).any():
        worst = float(total.flatten()[(total - 1).abs().argmax()])
        remedy = f"Divide them by their sum: {name} / {name}.sum(-1, keepdim=True)."
        raise invalid(owner, name, "sum to 1", f"{worst:.6g}", remedy)
    return weight.to(like).expand(*like.shape[:-2], count)
