"""A file that a verb works on, some rows after the others: its columns in the order of the run, and
results that go beside them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from partita.errors import DataError, invalid
from partita.experiment.saved import SavedRun, schema_of
from partita.tables import Schema, copies, read
from partita.tables.arrays import Splits, as_table, chunks
from partita.tables.copies import names_in
from partita.tables.schema import Column
from partita.tables.write import TABLES, check_ending, write_columns


@dataclass(frozen=True)
class InputTable:
    """A file and its rows.

    Arguments:
        path: Of the file.
        table: Its columns, (N, D), in memory or on disk.
        names: Of the table's columns; None where the file has none.
        order: Where each column of the run is in the table.
        schema: What the columns of the table hold, as the run knows or else the file itself; None
            where the file is no table.
    """

    path: Path
    table: np.ndarray
    names: tuple[str, ...] | None
    order: list[int]
    schema: Schema | None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        return len(self.table), self.table.shape[1]

    def parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Ranges of rows and what they hold, columns in the order of the run; where a part ends
        depends on D alone.
        """
        for part in chunks(*self.shape):
            yield part, np.asarray(self.table[part], dtype=np.float64)[:, self.order]


def read_input(opened: SavedRun, path: Path, owner: str, *, closed: bool = True) -> InputTable:
    """The columns of a run in all rows of a file, also of one that has parts: by name where both
    have names, else by place.

    A category that the run does not know is refused where ``closed``.
    """
    schema = schema_of(opened.data) if path.suffix.lower() in TABLES else None
    asked = None if schema is None else replace(schema, closed=closed)
    found = read(path, words=opened.encoding.kind in ("category", "mixed"), columns=asked)
    parts = [part for part in (found.train, found.valid, found.test) if part is not None]
    table = found.train if len(parts) == 1 else np.concatenate(parts)
    table = table if table.ndim in (0, 2) else table.reshape(len(table), math.prod(table.shape[1:]))
    table, _ = as_table(table, owner)
    order = (
        list(range(table.shape[1]))
        if schema is not None
        else column_order(opened, found, table.shape[1], owner)
    )
    return InputTable(path, table, found.columns, order, schema or found.schema)


def column_order(opened: SavedRun, found: Splits, width: int, owner: str) -> list[int]:
    """Where each column of the run is in the file: by name where both have names, else by place."""
    wanted = opened.data.get("columns")
    if found.columns is None or wanted is None:
        if width != opened.run.model.support.width:
            raise DataError(
                f"{owner}: DATA must have {opened.run.model.support.width} columns, as the run "
                f"has; got {width}."
            )
        return list(range(width))
    if sorted(wanted) != sorted(found.columns):
        run, file = set(wanted), set(found.columns)
        lost = [name for name in wanted if name not in file]
        more = [name for name in found.columns if name not in run]
        got = (
            f"none called {lost[0]!r}"
            if lost
            else f"one more, {more[0]!r}"
            if more
            else "some of them twice"
        )
        shown = ", ".join(wanted[:6]) + ", ..." * (len(wanted) > 6)
        raise DataError(f"{owner}: DATA must have the columns of the run, {shown}; got {got}.")
    place_of = {name: place for place, name in enumerate(found.columns)}
    return [place_of[name] for name in wanted]


def destination(source: Path, out: Path | None, owner: str, word: str) -> Path:
    """Where what was made of a file is written: where it was asked for, but not over the file
    itself, or else beside it.

    >>> destination(Path("a/table.csv"), None, "impute", "imputed").as_posix()
    'a/table-imputed.csv'
    """
    path = (
        source.parent / f"{source.stem}-{word}{source.suffix}"
        if out is None
        else check_ending(out, owner)
    )
    if path.exists() and source.exists() and path.samefile(source):
        raise invalid(
            owner,
            "--out",
            "be another file than DATA, which would be lost",
            str(path),
            f"Try --out {source.stem}-{word}.csv.",
        )
    return path


def write_beside(tabled: InputTable, path: Path, columns: Sequence[Column], x: np.ndarray) -> None:
    """The file with more columns after its own, which stay as they are; the new ones stand alone
    where either is no table with names.
    """
    own = (
        ()
        if tabled.names is None
        else names_in(tabled.path)
        if tabled.path.suffix.lower() in TABLES
        else tabled.names
    )
    taken = [column.name for column in columns if column.name in own]
    if taken:
        raise DataError(
            f"write: DATA must have no column called {taken[0]!r}, which results are written to. "
            "Rename it."
        )
    if tabled.schema is not None and tabled.names is not None and path.suffix.lower() in TABLES:
        copies.write_beside(tabled.path, path, columns, x, tabled.schema.used)
    else:
        write_columns(path, columns, x)


def in_files_order(tabled: InputTable, columns: Sequence[Column]) -> list[int]:
    """Places of columns as the file has them, who may have more and others in between."""
    place_of = {name: place for place, name in enumerate(names_in(tabled.path))}
    return sorted(range(len(columns)), key=lambda i: place_of[columns[i].name])
