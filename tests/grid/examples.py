"""Rows for models of any support."""

import torch
from torch import Tensor

from partita.core.support import Count, Product, Real, Support
from partita.core.support import Sequence as Steps

ROWS = 12


def rows_in(support: Support, g: torch.Generator) -> Tensor:
    """Random rows of any support."""
    if support.countable_sites:
        values = support.values()
        return values[torch.randint(len(values), (ROWS, support.width), generator=g)]
    if isinstance(support, Product):
        return torch.cat([rows_in(part, g) for part in support.parts], 1)
    if isinstance(support, Steps):
        return torch.cat([rows_in(support.element, g) for _ in range(support.L)], 1)
    if isinstance(support, Count):
        return torch.poisson(torch.full((ROWS, support.width), 3.0), generator=g)
    assert isinstance(support, Real)
    return torch.randn(ROWS, support.width, generator=g)
