"""``partita impute``: a file with its missing values filled in, columns named and ordered as they
came, observed cells untouched.

Rows are filled some after the others, so that the table need not fit into memory. Where a part ends
depends on the number of columns alone, and each part has random numbers of its own: what comes out
depends on the seed and on the rows, not on the machine or the sort of file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import typer

from partita.cli import show
from partita.core import rng
from partita.core.protocols import Capability
from partita.experiment.imputation import impute_encoded
from partita.experiment.input_table import InputTable, destination, in_files_order, read_input
from partita.experiment.saved import SavedRun, open_run
from partita.tables.arrays import chunks
from partita.tables.copies import write_filled
from partita.tables.labels import Labels
from partita.tables.on_disk import gathered
from partita.tables.schema import Column
from partita.tables.write import TABLES, check_ending, plain_columns, write_columns


def report(
    folder: Path, source: Path, out: Path | None, how: str, *, seed: int, as_json: bool
) -> None:
    """Read, fill, write, say how many values were missing."""
    opened = open_run(folder)
    path = destination(source, out, "impute", "imputed")
    tabled = read_input(opened, source, "impute")
    if out is not None and tabled.schema is not None:
        check_ending(path, "impute", tabled.schema.used)
    filled, count = fill_in_parts(opened, tabled, how, seed)
    _write(tabled, path, filled, opened.encoding.labels)
    if as_json:
        show.print_json(
            {"run": str(folder), "out": str(path), "rows": len(filled), "filled": count}
        )
        return
    typer.echo(
        f"{count} of {filled.size} values filled {way(opened.run.model)} by "
        f"{opened.run.model.title()}, written to {path}"
    )


def fill_in_parts(
    opened: SavedRun, tabled: InputTable, how: str, seed: int
) -> tuple[np.ndarray, int]:
    """The table with its gaps filled, columns in the file's order, in memory or on disk; and how
    many gaps there were.
    """
    count, back = 0, np.argsort(tabled.order)

    def filled() -> Iterator[np.ndarray]:
        nonlocal count
        for number, (part, x) in enumerate(tabled.parts()):
            count += int(np.isnan(x).sum())
            generator = rng.keyed(seed, 4, *([number] if number else []))
            yield impute_encoded(
                opened.run.model,
                opened.encoding,
                x,
                how,
                "impute",
                first=part.start,
                generator=generator,
            )[:, back]

    dtype = tabled.table.dtype if tabled.table.dtype.kind == "f" else np.dtype(float)
    table = gathered(filled(), tabled.shape, dtype)
    return table, count


def way(model: Any) -> str:
    """How a model fills in, in words."""
    if Capability.LATENT in model.capabilities:
        return "by chains of its posterior"
    if Capability.MISSING in model.capabilities:
        return "exactly"
    return (
        "on average over its posterior draws"
        if Capability.POSTERIOR_DRAWS in model.capabilities
        else "by clamped sampling"
    )


def _write(tabled: InputTable, path: Path, filled: np.ndarray, labels: Labels) -> None:
    if tabled.schema is not None and path.suffix.lower() in TABLES:
        write_filled(tabled.path, path, tabled.schema, filled)
        return
    columns = (
        plain_columns(tabled.names, filled) if tabled.schema is None else list(tabled.schema.used)
    )
    if labels and tabled.schema is None:
        columns = [Column(column.name, "category", "string", labels=labels) for column in columns]
    order = (
        in_files_order(tabled, columns) if tabled.schema is not None else list(range(len(columns)))
    )
    ordered = gathered(
        (filled[part][:, order] for part in chunks(*tabled.shape)), tabled.shape, filled.dtype
    )
    write_columns(path, [columns[i] for i in order], ordered, header=tabled.names is not None)
