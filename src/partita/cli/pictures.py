"""Rows as images: in the terminal with block characters, and as a grey PNG."""

import shutil
import struct
import zlib
from pathlib import Path

import numpy as np

BLOCKS = " ▄▀█"  # neither, lower, upper, both halves of a cell
SHOWN = 16


def preview(x: np.ndarray, shape: tuple[int, ...], width: int | None = None) -> str:
    """The first rows side by side, two pixels to a character, cut at the middle of their range.

    >>> print(preview(np.array([[1, 0, 0, 1]]), (2, 2), 20))
    ▀▄
    """
    images = _images(x[:SHOWN], shape)
    columns = shutil.get_terminal_size((80, 24)).columns if width is None else width
    across = max(1, min(len(images), (columns + 2) // (images.shape[2] + 2)))
    bits = images > (images.min() + images.max()) / 2 if images.max() > images.min() else images > 0
    bits = np.pad(bits, ((0, 0), (0, bits.shape[1] % 2), (0, 0)))
    cells = 2 * bits[:, 0::2].astype(int) + bits[:, 1::2]
    drawn = [["".join(BLOCKS[cell] for cell in line) for line in image] for image in cells]
    bands = [drawn[start : start + across] for start in range(0, len(drawn), across)]
    return "\n\n".join("\n".join("  ".join(line) for line in zip(*band, strict=True)) for band in bands)


def sheet(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """All images on one sheet, as nearly square as their number allows, with a line between them; uint8."""
    images = _images(x, shape)
    low, high = images.min(), images.max()
    grey = ((images - low) / (high - low if high > low else 1.0) * 255).astype(np.uint8)
    across = int(np.ceil(np.sqrt(len(grey))))
    down = -(-len(grey) // across)
    height, width = grey.shape[1:]
    page = np.full((down * (height + 1) - 1, across * (width + 1) - 1), 96, np.uint8)
    for i, image in enumerate(grey):
        top, left = (i // across) * (height + 1), (i % across) * (width + 1)
        page[top : top + height, left : left + width] = image
    return page


def write_png(path: Path, page: np.ndarray) -> None:
    """A grey PNG of 8 bits."""
    header = struct.pack(">IIBBBBB", page.shape[1], page.shape[0], 8, 0, 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in page)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def _images(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(x, dtype=float).reshape(len(x), shape[0], -1)
