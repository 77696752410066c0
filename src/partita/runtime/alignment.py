"""Alignment of tensors in memory: processors may round sums over unaligned numbers differently,
and seeded results would depend on where a file was mapped.
"""

from torch import Tensor

ALIGNMENT = 64  # bytes; torch's own tensors begin at a multiple of it


def aligned(x: Tensor) -> Tensor:
    """A tensor on the memory of a file or of NumPy if it is aligned as torch's own are, else a
    copy.

    >>> import torch
    >>> aligned(torch.zeros(9)[1:]).data_ptr() % ALIGNMENT
    0
    """
    return x.clone() if x.data_ptr() % ALIGNMENT else x
