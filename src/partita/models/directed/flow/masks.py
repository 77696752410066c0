r"""Which columns a coupling conditions on; the others it moves. Layers in turn leave no column
unmoved and none unheard.

Letters: D width; for images C channels, I x J pixels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from partita.core.arguments import check_counts
from partita.errors import invalid


def alternating(width: int, layer: int) -> Tensor:
    """Every second column, starting at the parity of the layer, ``(D,)``; one column alone is
    always moved.

    >>> alternating(4, 0).tolist()
    [True, False, True, False]
    """
    return (torch.arange(width) + layer) % 2 == 0 if width > 1 else torch.zeros(1, dtype=torch.bool)


def checkerboard_mask(shape: Sequence[int], layer: int) -> Tensor:
    """Pixels of one color of a chessboard, in all channels, ``(C I J,)``."""
    channels, height, width = check_image(shape)
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    return ((rows + columns + layer) % 2 == 0).expand(channels, height, width).flatten()


def channelwise(shape: Sequence[int], layer: int) -> Tensor:
    """Half of the four channels that squeezing makes of each: the pixels of every second row, ``(C
    I J,)``.
    """
    channels, height, width = check_image(shape)
    return (
        ((torch.arange(height) + layer) % 2 == 0)[None, :, None]
        .expand(channels, height, width)
        .flatten()
    )


def image_mask(shape: Sequence[int], layer: int) -> Tensor:
    """Two checkerboards, then two halves of the squeezed channels, and again."""
    return (checkerboard_mask if layer % 4 < 2 else channelwise)(shape, layer)


def check_image(shape: Sequence[int]) -> tuple[int, int, int]:
    """(channels, height, width) with at least two rows and columns."""
    sizes = check_counts("Flow", "image", shape)
    if len(sizes) != 3:
        raise invalid("Flow", "image", "be (channels, height, width)", sizes)
    channels, height, width = sizes
    if min(height, width) < 2:
        raise invalid("Flow", "image", "have at least 2 rows and 2 columns", tuple(shape))
    return channels, height, width
