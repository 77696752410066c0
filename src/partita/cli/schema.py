"""``partita schema``: what each column of a table is taken for."""

from typing import TYPE_CHECKING, Annotated

import typer

from partita.cli import output
from partita.cli.options import Json, Kinds, file_argument

if TYPE_CHECKING:
    from partita.datasets import Dataset
    from partita.tables import Column, Schema

MOST_SHOWN = 200  # columns


def schema(
    data: Annotated[str, file_argument("A .csv, .parquet, .arrow or .feather file.")],
    column: Kinds = None,
    as_json: Json = False,
) -> None:
    """What each column of a table is taken for, and how to say otherwise."""
    from partita.datasets import load
    from partita.errors import DataError
    from partita.experiment.requests import parse_columns

    kinds = parse_columns(column or [], "schema")
    dataset = load(data, words=True, missing=True, columns=kinds or None)
    found = dataset.train.schema
    if found is None:
        held = (
            "lines are read as sequences, a column for each letter"
            if dataset.train.labels
            else "columns are numbers of one sort"
        )
        raise DataError(
            "schema: DATA must be a .csv, .parquet, .arrow or .feather file; got "
            f"{data!r}, whose {held}."
        )
    splits = (dataset.train, dataset.valid, dataset.test)
    rows = sum(len(split) for split in splits if split is not None)
    if as_json:
        columns = [_column_json(one) for one in found.columns]
        output.print_json({"data": data, "rows": rows, "mixed": found.mixed, "columns": columns})
        return
    lines = [
        [one.name, one.kind, one.dtype, str(one.missing), _contents(one, found, dataset)]
        for one in found.columns[:MOST_SHOWN]
    ]
    title = f"{data}: {rows} rows, {len(found.columns)} columns"
    output.print_table(["column", "kind", "type", "missing", "holds"], lines, title, whole=2)
    if len(found.columns) > MOST_SHOWN:
        typer.echo(f"... and {len(found.columns) - MOST_SHOWN} more; --json has all.")
    typer.echo(
        "Read a column otherwise with --column NAME=KIND: real, binary, count, category or ignore."
    )


def _column_json(column: "Column") -> dict[str, object]:
    described: dict[str, object] = {
        key: value for key, value in column.as_json().items() if key not in ("levels", "labels")
    }
    if column.levels:
        described["categories"] = column.words(column.levels)
    return described


def _contents(column: "Column", schema: "Schema", data: "Dataset") -> str:
    """Categories by name, or the range of numbers."""
    import numpy as np

    if column.kind == "ignore":
        return "left out"
    if column.levels:
        return column.in_words()
    values = np.asarray(data.train.array[:, schema.used.index(column)])
    return f"{np.nanmin(values):g} to {np.nanmax(values):g}"
