r"""Transport on the line, where sorting solves it, and along random directions.

.. math:: W_k^k = \int_0^1 |F_x^{-1}(s) - F_y^{-1}(s)|^k\, ds, \qquad
          \mathrm{SW}_k^k = E_{\theta}\big[W_k^k(\theta^\top x, \theta^\top y)\big]
          (theory/divergences.md, eq. 16.9, 16.10)

Letters: n and m values, D width, R directions, a and b weights.
"""

from typing import Annotated

import torch
from torch import Tensor

from partita.core import rng
from partita.core.arguments import PositiveInt, at_least, validated, within
from partita.core.quantity import Quantity
from partita.diagnostics.means import mean_quantity
from partita.divergences.samples import check_two
from partita.divergences.transport.costs import check_masses, check_reals
from partita.errors import invalid


@validated
def line_transport(
    x: Tensor,
    y: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    power: Annotated[float, within(1.0)] = 1.0,
) -> Tensor:
    """W_k^k between weighted values on the line, ``(*, n), (*, m) -> (*)``; exact and
    differentiable in x and y.

    >>> line_transport(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 2.0])).item()
    2.0
    """
    if x.shape[:-1] != y.shape[:-1]:
        allowed = f"have the batch shape of x, {tuple(x.shape[:-1])}"
        raise invalid("line_transport", "y", allowed, tuple(y.shape[:-1]))
    for name, values in (("x", x), ("y", y)):
        check_reals("line_transport", name, values)
        if values.dim() == 0 or values.shape[-1] == 0:
            got = f"shape {tuple(values.shape)}"
            raise invalid("line_transport", name, "hold at least one value", got)
    if a is None and b is None and x.shape[-1] == y.shape[-1]:
        return (x.sort(-1).values - y.sort(-1).values).abs().pow(power).mean(-1)
    (x, at_x), (y, at_y) = _quantiles("a", x, a), _quantiles("b", y, b)
    levels = torch.cat([at_x, at_y], -1).sort(-1).values.clamp_max(1.0)
    widths = levels.diff(dim=-1, prepend=torch.zeros_like(levels[..., :1]))
    middle = levels - widths / 2
    here, there = (
        values.gather(-1, torch.searchsorted(at, middle).clamp_max(at.shape[-1] - 1))
        for values, at in ((x, at_x), (y, at_y))
    )
    return (widths * (here - there).abs().pow(power)).sum(-1)


@validated
def sliced_transport(
    x: Tensor,
    y: Tensor,
    *,
    power: float = 2.0,
    directions: PositiveInt = 100,
    generator: torch.Generator,
) -> Tensor:
    """W_k^k along each of R random directions, ``(n, D), (m, D) -> (R,)``; differentiable, and its
    mean estimates SW_k^k.
    """
    check_two("sliced_transport", x, y)
    theta = rng.normal((x.shape[1], directions), x, generator)
    theta = theta / theta.norm(dim=0)
    return line_transport((x @ theta).mT, (y @ theta).mT, power=power)


@validated
def sliced_wasserstein(
    x: Tensor,
    y: Tensor,
    *,
    power: float = 2.0,
    directions: Annotated[int, at_least(2)] = 100,
    level: float = 0.95,
    generator: torch.Generator,
) -> Quantity:
    """SW_k^k of two samples with an interval over the directions."""
    values = sliced_transport(x, y, power=power, directions=directions, generator=generator)
    method = f"{directions} directions"
    return mean_quantity("sliced_wasserstein", values, level, method, unit="cost")


def _quantiles(name: str, values: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sorted values and the level at which each ends."""
    weight = check_masses("line_transport", name, weight, values[..., None, :], values.shape[-1])
    values, order = values.sort(-1)
    return values, weight.expand_as(values).gather(-1, order).cumsum(-1)
