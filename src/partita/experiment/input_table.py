"""A file of rows for a saved run: its columns in the order of the run, read in chunks, and results
that are written beside them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from partita.errors import DataError, invalid, unusable
from partita.experiment.saved import SavedRun
from partita.tables import Column, Schema, Splits, copies, read
from partita.tables.arrays import as_table, row_ranges
from partita.tables.copies import names_in
from partita.tables.files import TABLES
from partita.tables.schema import first_few
from partita.tables.write import check_ending, write_columns


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

    def chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Ranges of rows and their values, columns in the order of the run; where a chunk ends
        depends on D alone.
        """
        for part in row_ranges(*self.shape):
            yield part, np.asarray(self.table[part], dtype=np.float64)[:, self.order]


def read_input(saved: SavedRun, path: Path, owner: str, *, closed: bool = True) -> InputTable:
    """The columns of a run in all rows of a file, its splits one after the other: by name where
    both have names, else by place.

    A category that the run does not know is refused where ``closed``.
    """
    schema = saved.data.table_schema if path.suffix.lower() in TABLES else None
    wanted = None if schema is None else replace(schema, closed=closed)
    found = read(path, words=saved.encoding.kind in ("category", "mixed"), columns=wanted)
    splits = [split for split in (found.train, found.valid, found.test) if split is not None]
    table = found.train if len(splits) == 1 else np.concatenate(splits)
    table = table if table.ndim in (0, 2) else table.reshape(len(table), math.prod(table.shape[1:]))
    table, _ = as_table(table, owner)
    if schema is not None:
        order = list(range(table.shape[1]))
    else:
        order = _column_order(saved, found, table.shape[1], owner)
    return InputTable(path, table, found.columns, order, schema or found.schema)


def _column_order(saved: SavedRun, found: Splits, width: int, owner: str) -> list[int]:
    """Where each column of the run is in the file: by name where both have names, else by place."""
    wanted, expected = saved.data.columns, saved.run.model.support.width
    if found.columns is None or not wanted:
        if width != expected:
            raise unusable(owner, "DATA", f"have {expected} columns, as the run has", width)
        return list(range(width))
    if sorted(wanted) != sorted(found.columns):
        run, file = set(wanted), set(found.columns)
        lost = [name for name in wanted if name not in file]
        more = [name for name in found.columns if name not in run]
        if lost:
            got = f"none called {lost[0]!r}"
        else:
            got = f"one more, {more[0]!r}" if more else "some of them twice"
        allowed = f"have the columns of the run, {first_few(wanted)}"
        raise unusable(owner, "DATA", allowed, got)
    place_of = {name: place for place, name in enumerate(found.columns)}
    return [place_of[name] for name in wanted]


def destination(source: Path, out: Path | None, owner: str, word: str) -> Path:
    """Where results for a file are written: to ``out``, which must be another file, or beside it.

    >>> destination(Path("a/table.csv"), None, "impute", "imputed").as_posix()
    'a/table-imputed.csv'
    """
    if out is None:
        path = source.parent / f"{source.stem}-{word}{source.suffix}"
    else:
        path = check_ending(out, owner)
    if path.exists() and source.exists() and path.samefile(source):
        allowed = "be another file than DATA, which would be lost"
        raise invalid(owner, "--out", allowed, str(path), f"Try --out {source.stem}-{word}.csv.")
    return path


def write_results(table: InputTable, path: Path, columns: Sequence[Column], x: np.ndarray) -> None:
    """Write a file with more columns after its own, which stay as they are; the new ones alone
    where either file is no table with names.
    """
    names = table.names or ()
    if names and table.path.suffix.lower() in TABLES:
        names = names_in(table.path)
    taken = [column.name for column in columns if column.name in names]
    if taken:
        raise DataError(
            f"write: DATA must have no column called {taken[0]!r}, which results are written to. "
            "Rename it."
        )
    if table.schema is not None and table.names is not None and path.suffix.lower() in TABLES:
        copies.write_beside(table.path, path, columns, x, table.schema.used)
    else:
        write_columns(path, columns, x)


def in_file_order(table: InputTable, columns: Sequence[Column]) -> list[int]:
    """Places of columns in the order of the file, which may have others in between."""
    place_of = {name: place for place, name in enumerate(names_in(table.path))}
    return sorted(range(len(columns)), key=lambda i: place_of[columns[i].name])
