"""``partita schema``: what each column of a table is taken for, and how it will be read."""

from typing import Any

import numpy as np
import typer

from partita.cli import show
from partita.datasets import Dataset, load
from partita.errors import DataError
from partita.tables import Column

MOST_SHOWN = 200  # columns


def report(source: str, asked: dict[str, str], *, as_json: bool) -> None:
    """Read a table and show its schema."""
    data = load(source, words=True, missing=True, columns=asked or None)
    schema = data.train.schema
    if schema is None:
        allowed = "a .csv, .parquet, .arrow or .feather file"
        held = (
            "lines are read as sequences, a column for each letter"
            if data.train.labels
            else "columns are numbers of one sort"
        )
        raise DataError(f"schema: DATA must be {allowed}; got {source!r}, whose {held}.")
    if as_json:
        columns = [
            {
                key: value
                for key, value in column.as_json().items()
                if key not in ("levels", "labels")
            }
            | ({"categories": column.words(column.levels)} if column.levels else {})
            for column in schema.columns
        ]
        show.print_json(
            {"data": source, "rows": _count(data), "mixed": schema.mixed, "columns": columns}
        )
        return
    rows = [
        [column.name, column.kind, column.dtype, str(column.missing), _holds(column, data)]
        for column in schema.columns[:MOST_SHOWN]
    ]
    title = f"{source}: {_count(data)} rows, {len(schema.columns)} columns"
    show.table(["column", "kind", "type", "missing", "holds"], rows, title, whole=2)
    if len(schema.columns) > MOST_SHOWN:
        typer.echo(f"... and {len(schema.columns) - MOST_SHOWN} more; --json has all.")
    typer.echo(
        "Read a column otherwise with --column NAME=KIND: real, binary, count, category or ignore."
    )


def _count(data: Dataset) -> int:
    return sum(len(rows) for rows in (data.train, data.valid, data.test) if rows is not None)


def _holds(column: Column, data: Dataset) -> str:
    """Categories by name, or the range of numbers."""
    if column.kind == "ignore":
        return "left out"
    if column.levels:
        return column.in_words()
    assert data.train.schema is not None
    place = data.train.schema.used.index(column)
    values: Any = data.train.array[:, place]
    return f"{np.nanmin(values):g} to {np.nanmax(values):g}"
