"""What commands print: tables, JSON, warnings, and rows as images."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

BLOCKS = " ▄▀█"  # neither, lower, upper, both halves of a cell
PREVIEWED = 16  # images


def print_json(value: object) -> None:
    """Print one JSON object on stdout; numbers that are not finite are null."""
    from partita.runtime.files import finite_json

    typer.echo(json.dumps(finite_json(value), indent=2, default=str))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", *, whole: int = 1
) -> None:
    """Print a small table; its first ``whole`` columns are never broken."""
    from rich.console import Console

    Console(highlight=False).print(rich_table(columns, rows, title, whole=whole))


def rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", *, whole: int = 1
) -> "Table":
    """The table that :func:`print_table` prints; its text is never read as markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None,
        title_justify="left",
        box=None,
        pad_edge=False,
        show_header=any(columns),
    )
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i < whole)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def print_warning(text: str) -> None:
    """Print a warning on stderr."""
    typer.echo(f"Warning: {text}", err=True)


@contextmanager
def showing_progress() -> Iterator[None]:
    """Inside it, what long work says of itself stands in the last line of a terminal."""
    from rich.console import Console
    from rich.text import Text

    from partita.runtime.deadline import listening

    console = Console(stderr=True)
    with console.status("") as status, listening(lambda text: status.update(Text(f"{text} ..."))):
        yield


def preview(x: "np.ndarray", shape: tuple[int, ...], width: int | None = None) -> str:
    """The first rows as images side by side, two pixels to a character, black and white at the
    middle of their range.

    >>> import numpy as np
    >>> print(preview(np.array([[1, 0, 0, 1]]), (2, 2), 20))
    ▀▄
    """
    import numpy as np

    from partita.report.images import as_images

    images = as_images(x[:PREVIEWED], shape)
    columns = shutil.get_terminal_size((80, 24)).columns if width is None else width
    across = max(1, min(len(images), (columns + 2) // (images.shape[2] + 2)))
    low, high = images.min(), images.max()
    bits = images > ((low + high) / 2 if high > low else 0)
    bits = np.pad(bits, ((0, 0), (0, bits.shape[1] % 2), (0, 0)))
    cells = 2 * bits[:, 0::2].astype(int) + bits[:, 1::2]
    drawn = [["".join(BLOCKS[cell] for cell in line) for line in image] for image in cells]
    bands = [drawn[start : start + across] for start in range(0, len(drawn), across)]
    return "\n\n".join(
        "\n".join("  ".join(line) for line in zip(*band, strict=True)) for band in bands
    )


def write_png(path: Path, page: "np.ndarray") -> None:
    """Write a PNG of 8 bits, whole or not at all."""
    from partita.report.images import png
    from partita.runtime.files import replacing

    with replacing(path) as beside:
        beside.write_bytes(png(page))
