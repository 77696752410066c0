"""Rows as images: in the terminal with block characters, and as a gray PNG."""

import shutil
from pathlib import Path

import numpy as np

from partita.report.images import as_images, png, sheet
from partita.runtime.atomic_files import replacing

__all__ = ["preview", "sheet", "write_png"]

BLOCKS = " ▄▀█"  # neither, lower, upper, both halves of a cell
SHOWN = 16


def preview(x: np.ndarray, shape: tuple[int, ...], width: int | None = None) -> str:
    """The first rows side by side, two pixels to a character, cut at the middle of their range.

    >>> print(preview(np.array([[1, 0, 0, 1]]), (2, 2), 20))
    ▀▄
    """
    images = as_images(x[:SHOWN], shape)
    columns = shutil.get_terminal_size((80, 24)).columns if width is None else width
    across = max(1, min(len(images), (columns + 2) // (images.shape[2] + 2)))
    bits = images > (images.min() + images.max()) / 2 if images.max() > images.min() else images > 0
    bits = np.pad(bits, ((0, 0), (0, bits.shape[1] % 2), (0, 0)))
    cells = 2 * bits[:, 0::2].astype(int) + bits[:, 1::2]
    drawn = [["".join(BLOCKS[cell] for cell in line) for line in image] for image in cells]
    bands = [drawn[start : start + across] for start in range(0, len(drawn), across)]
    return "\n\n".join(
        "\n".join("  ".join(line) for line in zip(*band, strict=True)) for band in bands
    )


def write_png(path: Path, page: np.ndarray) -> None:
    """A gray PNG of 8 bits."""
    with replacing(path) as beside:
        beside.write_bytes(png(page))
