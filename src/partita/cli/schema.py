"""``partita schema``: what each column of a table is taken for."""

from collections.abc import Mapping
from dataclasses import replace
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
    from partita.errors import DataError, UnreadableColumns
    from partita.experiment.requests import parse_columns
    from partita.tables.schema import KINDS

    kinds = parse_columns(column or [], "schema")
    refused: DataError | None = None
    problems: Mapping[str, str] = {}
    try:
        dataset = load(data, words=True, missing=True, columns=kinds or None)
    except UnreadableColumns as error:  # shown beside the others, and refused after them
        refused, problems = error, error.problems
        kinds |= dict.fromkeys(problems, "ignore")
        dataset = load(data, words=True, missing=True, columns=kinds)
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
    columns = [replace(one, reason=problems.get(one.name, one.reason)) for one in found.columns]
    splits = (dataset.train, dataset.valid, dataset.test)
    rows = sum(len(split) for split in splits if split is not None)
    if as_json and refused is None:
        described = list(map(_column_json, columns))
        output.print_json({"data": data, "rows": rows, "mixed": found.mixed, "columns": described})
    elif not as_json:
        lines = [
            [
                one.name,
                "unreadable" if one.name in problems else one.kind,
                one.dtype,
                str(one.missing),
                _contents(one, found, dataset),
                one.reason,
            ]
            for one in columns[:MOST_SHOWN]
        ]
        title = f"{data}: {rows} rows, {len(columns)} columns"
        head = ["column", "kind", "type", "missing", "holds", "why"]
        output.print_table(head, lines, title, whole=2)
        if len(columns) > MOST_SHOWN:
            typer.echo(f"... and {len(columns) - MOST_SHOWN} more; --json has all.")
        kinds_in_words = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
        typer.echo(f"Read a column otherwise with --column NAME=KIND: {kinds_in_words}.")
    if refused is not None:
        raise refused


def _column_json(column: "Column") -> dict[str, object]:
    described: dict[str, object] = {
        key: value for key, value in column.as_json().items() if key not in ("levels", "labels")
    }
    if column.levels:
        described["categories"] = column.words(column.levels)
    return described


def _contents(column: "Column", schema: "Schema", data: "Dataset") -> str:
    """Categories by name, or the range of numbers or dates."""
    import numpy as np

    from partita.tables.schema import is_date

    if column.kind == "ignore":
        return ""
    if column.kind == "constant":
        return str(column.words(column.levels)[0])
    if column.levels:
        return column.in_words()
    values = np.asarray(data.train.array[:, schema.used.index(column)])
    ends = [float(np.nanmin(values)), float(np.nanmax(values))]
    return " to ".join(
        map(str, column.words(ends)) if is_date(column.dtype) else map("{:g}".format, ends)
    )
