"""Files and frames as arrays with column names: .npz, .npy (memory-mapped), .csv, .txt, .parquet,
.arrow and .feather, and frames of pandas and polars; tables of numbers and words come with a
schema.

A .txt file is read like a .csv file of numbers that are separated by white space, commas,
semicolons, tabs or bars. Nothing is unpickled.
"""

import csv
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from partita.errors import DataError, InputError, unusable
from partita.runtime import memory_limit
from partita.runtime.files import unreachable
from partita.tables.alignments import FASTA, letters, read_fasta
from partita.tables.arrays import Columns, Frame, Splits, TableLike, as_table, bad_file, damaged
from partita.tables.arrow import (
    COLUMNAR,
    Columnar,
    TableFile,
    of_frame,
    open_columnar,
    series,
    table_series,
)
from partita.tables.csv import EXACT, TextTable, WordColumns, open_text, sequence_lines
from partita.tables.infer import INDEX, Digest, KindOverrides, as_dates, infer_schema, resolve
from partita.tables.npy import read_npy, read_npz
from partita.tables.on_disk import gather_rows
from partita.tables.schema import (
    NOT_MODELED,
    Column,
    Schema,
    Series,
    check_names,
    column_names,
    first_few,
    is_date,
    is_whole,
    label_of,
    sort_of,
)

TABLES = (".csv", *COLUMNAR)
RARE = "Map rare values to a category of their own before the fit."

ColumnKinds = KindOverrides | Schema | None

ENDINGS = (".npz", ".npy", *TABLES, ".txt", *FASTA)
TABBED = (".tsv", ".tab")


class TypedTable(NamedTuple):
    """A table of numbers, (N, D), the names of its columns, and what they hold."""

    values: np.ndarray
    columns: Columns
    schema: Schema


def open_table(path: Path) -> Columnar | TextTable:
    """A file of a table, read chunk by chunk."""
    return open_columnar(path) if path.suffix.lower() in COLUMNAR else open_text(path)


def read_table(path: Path, words: bool, columns: ColumnKinds) -> TypedTable:
    """The table of a file, in two passes: what its columns hold, then their numbers, which stay on
    disk where they are many.

    Arguments:
        path: Of the file.
        words: Whether columns may hold words; refused otherwise, except in those that are ignored.
        columns: Kinds by name; or the schema of another table, whose columns are looked for by name
            and whose categories are the only ones.
    """
    owner = f"load: {path}"
    source = open_table(path)
    if isinstance(source, TextTable):
        source = source.with_words(_word_columns(columns, source.names, owner))
    if isinstance(columns, Schema):
        schema, dtype = columns, np.dtype(float)
    else:
        dtype = _stored_dtype(source, words or bool(columns))
        schema, largest = _infer_by_chunks(source, columns, owner)
        gaps = any(column.missing for column in schema.columns)
        if largest >= EXACT or (gaps and dtype.kind != "f"):
            dtype = np.dtype(float)
    left_out = {column.name for column in schema.columns if column.kind in NOT_MODELED}
    numbers = (
        np.stack([one.values for one in impose(chunk, schema, owner)], 1)
        for chunk in source.series(left_out)
    )
    table = gather_rows(numbers, (source.rows, len(schema.used)), dtype)
    return TypedTable(table, None if source.columns is None else tuple(schema.names), schema)


def frame_table(frame: Frame, columns: ColumnKinds, owner: str) -> TypedTable:
    """The table of a frame, as :func:`read_table`."""
    return _of_series(table_series(of_frame(frame, owner)), columns, owner)


def array_table(x: TableLike, columns: ColumnKinds, owner: str) -> TypedTable:
    """The table of numbers without names or types; its columns are called x1, x2, ..."""
    values, _ = as_table(x, owner)
    series = []
    for name, column in zip(column_names(values.shape[1]), values.T, strict=True):
        one = Series(name, column.astype(np.float64))
        whole = len(one.observed) and is_whole(one.observed)
        series.append(Series(name, one.values, "int64" if whole else "float64"))
    return _of_series(series, columns, owner)


def impose(series: Sequence[Series], schema: Schema, owner: str) -> list[Series]:
    """The columns of another table that a schema uses, in its order; a word that it does not know
    is refused, if it is closed.
    """
    there = {one.name: one for one in series}
    check_names([one.name for one in series], owner)
    wanted = schema.names
    known = {column.name for column in schema.columns}
    lost = [name for name in wanted if name not in there]
    # an index is no column
    more = [name for name in there if name not in known and not INDEX.fullmatch(name)]
    if lost or more:
        allowed = f"have the columns of the fitted one, {first_few(wanted)}"
        got = f"none called {lost[0]!r}" if lost else f"one more, {more[0]!r}"
        raise unusable(owner, "the table", allowed, got, "" if lost else "Take it out.")
    found = [_as_written(there[column.name], column) for column in schema.used]
    for one, column in zip(found, schema.used, strict=True):
        _check_type(one, column, owner)
        if schema.closed:
            _check_known(one, column, owner)
    return found


def _as_written(series: Series, column: Column) -> Series:
    """A column of words as dates, where the schema has dates."""
    if not is_date(column.dtype) or column.labels:
        return series
    return as_dates(series, column.dtype if "%" in column.dtype else None)


def _check_type(series: Series, column: Column, owner: str) -> None:
    """Words, dates or numbers, as the schema has."""
    held, got = sort_of(column.dtype, column.labels), sort_of(series.dtype, series.labels)
    if held != got and len(series.observed):
        such = f", such as {label_of(series.observed[0], series.labels)!r}" if series.labels else ""
        written = f" ({column.dtype})" if "%" in column.dtype else ""
        allowed = f"hold {held}, as in the fitted table{written}"
        raise unusable(owner, series.title, allowed, f"{got}{such}")


def _check_known(series: Series, column: Column, owner: str) -> None:
    """No category that the schema does not know."""
    there = series.observed
    if column.kind == "category" and len(unknown := there[~np.isin(there, column.levels)]):
        allowed = f"hold categories of the fitted table, {column.in_words()}"
        got = repr(label_of(unknown[0], series.labels))
        raise unusable(owner, series.title, allowed, got, RARE)


def _word_columns(columns: ColumnKinds, names: Sequence[str], owner: str) -> WordColumns:
    """Which columns of text are words: those that a schema has as words; of those overridden as
    categories the ones that numbers spoil.
    """
    if isinstance(columns, Schema):
        return WordColumns(always={column.name for column in columns.used if column.labels})
    kinds = resolve(columns, names, owner)
    return WordColumns(codes={name for name, kind in kinds.items() if kind == "category"})


def _of_series(series: list[Series], columns: ColumnKinds, owner: str) -> TypedTable:
    if isinstance(columns, Schema):
        schema = columns
    else:
        schema = infer_schema([one.name for one in series], series, columns, owner)
    used = impose(series, schema, owner)
    return TypedTable(np.stack([one.values for one in used], 1), tuple(schema.names), schema)


def _stored_dtype(source: TableFile, words: bool) -> np.dtype:
    """That of the numbers; float64 where columns hold words, if they may."""
    if words and None in source.number_types():
        return np.dtype(float)
    return source.number_dtype()


def _infer_by_chunks(
    source: TableFile, overrides: KindOverrides | None, owner: str
) -> tuple[Schema, float]:
    """The schema of a file, and the largest number in it."""
    check_names(source.names, owner)
    kinds = resolve(overrides, source.names, owner)
    digests = {
        name: Digest(name, dtype, kinds.get(name) == "category")
        for name, dtype in zip(source.names, source.types, strict=True)
    }
    left_out = {
        name
        for name in source.names
        if kinds.get(name, "ignore" if INDEX.fullmatch(name) else "") == "ignore"
    }
    for chunk in source.chunks():
        for digest, column in zip(digests.values(), chunk.columns, strict=True):
            if digest.name in left_out:
                digest.missing += column.null_count
            else:
                digest.add(series(digest.name, column, digest.dtype))
    found = [digest.series() for digest in digests.values()]
    schema = infer_schema(source.names, found, overrides, owner)
    return schema, max(float(np.abs(one.values).max(initial=0)) for one in found)


@memory_limit.named("load")
def read(
    path: str | Path,
    array: str | None = None,
    *,
    words: bool = False,
    columns: ColumnKinds = None,
) -> Splits:
    """The numbers in a file; ``array`` picks one array of an .npz. Missing values of a table (.csv,
    .parquet, .arrow) arrive as NaN.

    With ``words``, columns of a table or a .txt may hold words, and lines of letters are sequences.
    ``columns`` says what columns of a table hold, in place of what their values say
    (:mod:`partita.tables.schema`).
    """
    check_reachable(path)
    path = Path(path)
    ending = path.suffix.lower()
    _check_file(path)
    if array is not None and ending != ".npz":
        raise DataError(
            f"load: only an .npz file holds named arrays; got {array!r} with {path}. Leave out "
            f"':{array}'."
        )
    if columns and not isinstance(columns, Schema) and ending not in TABLES:
        raise DataError(
            f"load: kinds of columns can be given for {', '.join(TABLES)} files; got some for "
            f"{path}. Leave them out."
        )
    if ending == ".npz":
        return read_npz(path, array)
    if ending == ".npy":
        return read_npy(path)
    with _text(path):
        if ending in FASTA:
            return _labeled(*read_fasta(path))
        if words and (ending == ".txt" or (ending == ".csv" and not columns)):
            lines = sequence_lines(path)
            if lines is not None:
                return _labeled(*letters(lines, f"load: {path}"))
        if ending == ".txt":
            return _read_text(path, words)
        found = read_table(path, words, columns)
        labels = found.schema.labels or None
        return Splits(found.values, columns=found.columns, labels=labels, schema=found.schema)


def check_reachable(name: str | Path) -> None:
    """Refuse what is no path, and one that the system cannot even look for."""
    if not isinstance(name, str | Path):
        got = type(name).__name__
        remedy = "For values use partita.datasets.load."
        raise unusable("load", "a file", "be given by its path", got, remedy)
    if why := unreachable(name):
        got = f"one that cannot be looked for ({why})"
        raise unusable("load", repr(str(name)), "be a path or a name", got)


def _check_file(path: Path) -> None:
    ending = path.suffix.lower()
    if path.is_dir():
        remedy = "Name a file in it, or point PARTITA_DATA at it and use its names."
        raise DataError(f"{path} is a folder, not a file. {remedy}")
    if not path.exists():
        raise no_file(path)
    if ending not in ENDINGS:
        remedy = "Convert it to one of these."
        if ending in TABBED:
            remedy = "Rename it to .csv, where tabs separate fields too."
        allowed = f"end in one of {' '.join(ENDINGS)}"
        raise bad_file(path, allowed, path.suffix or "no ending", remedy)
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(f"{path} is a pipe or a device. Write its contents to a file.")
    size = path.stat().st_size
    if size == 0:
        raise empty(path)
    if ending in (".txt", *FASTA):
        remedy = "Convert it to .csv, .parquet or .npy, which stay on disk."
        memory_limit.check_room("load", str(path), size, remedy)


def no_file(path: Path) -> DataError:
    """The error for a path of nothing."""
    return DataError(f"file not found: {path}. Check the spelling and the working directory.")


def empty(path: Path) -> DataError:
    """The error for a file of no bytes."""
    return DataError(f"{path} is empty. Write it again.")


@contextmanager
def _text(path: Path) -> Iterator[None]:
    """Inside it, what is wrong with the contents of a file is an error of data."""
    try:
        yield
    except InputError as error:
        raise DataError(*error.args) from error
    except UnicodeDecodeError as error:
        allowed = f"be a whole {path.suffix} file, in UTF-8"
        remedy = "Save it as UTF-8, or copy or download it again."
        got = "bytes that are no such text"
        raise bad_file(path, allowed, got, remedy) from error
    except (OSError, csv.Error) as error:
        raise damaged(path) from error


def _read_text(path: Path, words: bool) -> Splits:
    """The columns of a .txt file: numbers, or else words if they may be."""
    source = open_text(path)
    if not words:
        source.number_dtype()
    chunks = list(source.series())
    table = np.concatenate([np.stack([one.values for one in chunk], 1) for chunk in chunks])
    labels = {
        number: word for chunk in chunks for one in chunk for number, word in one.labels.items()
    }
    return Splits(table, columns=source.columns, labels=labels if words else None)


def _labeled(values: np.ndarray, labels: dict[float, str]) -> Splits:
    return Splits(values, labels=labels)
