"""Rows as pictures: many small images on one sheet, gray or in two colors about zero, as PNG
without any library.
"""

import struct
import zlib

import numpy as np

BETWEEN = 96  # gray of the line between images
BLUE, WHITE, RED = np.array([33, 102, 172]), np.array([247, 247, 247]), np.array([178, 24, 43])


def sheet(
    x: np.ndarray,
    shape: tuple[int, ...],
    across: int | None = None,
    limits: tuple[float, float] | None = None,
) -> np.ndarray:
    """All images on one sheet, as nearly square as their number allows, with a line between them;
    uint8.

    Black and white are the ``limits``, by default the lowest and the highest value.
    """
    images = as_images(x, shape)
    low, high = (np.nanmin(images), np.nanmax(images)) if limits is None else limits
    gray = (images - low) / (high - low if high > low else 1.0) * 255
    return tiled(np.where(np.isnan(gray), BETWEEN, gray).astype(np.uint8), across)


def signed_sheet(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The same for numbers about zero, each image on its own scale: blue below zero, red above;
    uint8 with three colors.
    """
    images = as_images(x, shape)
    reach = np.abs(images).max(axis=(1, 2), keepdims=True)
    share = (images / np.where(reach > 0, reach, 1.0))[..., None]
    colors = WHITE + np.where(share < 0, -share * (BLUE - WHITE), share * (RED - WHITE))
    return tiled(colors.round().astype(np.uint8))


def tiled(images: np.ndarray, across: int | None = None) -> np.ndarray:
    """(n, height, width) or (n, height, width, colors) on one sheet."""
    across = columns_for(len(images)) if across is None else across
    height, width, *colors = images.shape[1:]
    page = np.full(
        (-(-len(images) // across) * (height + 1) - 1, across * (width + 1) - 1, *colors),
        BETWEEN,
        np.uint8,
    )
    for i, image in enumerate(images):
        top, left = (i // across) * (height + 1), (i % across) * (width + 1)
        page[top : top + height, left : left + width] = image
    return page


def columns_for(n: int) -> int:
    """As nearly square as leaves no place empty; where that would be a long band, as nearly square
    as it gets.

    >>> [columns_for(n) for n in (64, 32, 8, 31)]
    [8, 8, 4, 6]
    """
    least = int(np.ceil(np.sqrt(n)))
    return next((across for across in range(least, 2 * least) if n % across == 0), least)


def png(page: np.ndarray) -> bytes:
    """A PNG of 8 bits, gray or in color.

    >>> png(np.zeros((2, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    header = struct.pack(
        ">IIBBBBB", page.shape[1], page.shape[0], 8, 2 if page.ndim == 3 else 0, 0, 0, 0
    )
    lines = b"".join(b"\0" + line.tobytes() for line in page)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def as_images(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Rows as (n, height, width)."""
    return np.asarray(x, dtype=float).reshape(len(x), shape[0], -1)
