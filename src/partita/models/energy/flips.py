r"""What each visible bit of a restricted Boltzmann machine is worth to the hidden units, for all
bits from one product.

.. math:: r_i(x) = \sum_j \mathrm{softplus}(a_j + (1 - x_i) W_{ij}) - \mathrm{softplus}(a_j - x_i
          W_{ij}), \qquad a = c + W^\top x
          (theory/objectives.md, eq. 6.13)

Letters: B batch, D visible, H hidden.
"""

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CELLS = 1 << 21  # rows x sites x hidden units at once


def flip_sums(x: Tensor, W: Tensor, c: Tensor) -> Tensor:
    """r of every site, ``(*, D) -> (*, D)``: D H numbers for each row, some sites at a time,
    recomputed in the backward pass.
    """
    rows = x.reshape(-1, len(W))
    a = torch.addmm(c, rows, W)
    width = max(1, CELLS // max(1, a.numel()))
    if width >= len(W):
        return _sites(rows, a, W).view(x.shape)
    blocks = zip(rows.split(width, 1), W.split(width), strict=True)
    parts = [checkpoint(_sites, part, a, block, use_reentrant=False) for part, block in blocks]
    return torch.cat(cast(list[Tensor], parts), 1).view(x.shape)


def _sites(x: Tensor, a: Tensor, W: Tensor) -> Tensor:
    """r of some sites: ``(B, d), (B, H), (d, H) -> (B, d)``."""
    off = a[:, None, :] - x[..., None] * W
    return (functional.softplus(off + W) - functional.softplus(off)).sum(-1)
