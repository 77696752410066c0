"""Where numbers lie in memory: where they begin elsewhere processors may round sums of them
otherwise, and bits would depend on chance.
"""

from torch import Tensor

ALIGNMENT = 64  # bytes; torch's own tensors begin at a multiple of it


def aligned(x: Tensor) -> Tensor:
    """A tensor on the memory of a file or of NumPy as it is where torch might have put it, else a
    copy.

    >>> import torch
    >>> aligned(torch.zeros(9)[1:]).data_ptr() % ALIGNMENT
    0
    """
    return x.clone() if x.data_ptr() % ALIGNMENT else x
