"""Tables of numbers and words as one array with a schema: .csv, .parquet, .arrow and .feather
files, and frames of pandas and polars.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partita.errors import DataError, InputError
from partita.tables import on_disk
from partita.tables.arrays import Columns, as_table
from partita.tables.arrow import of_frame, series_of
from partita.tables.column import Column
from partita.tables.columnar import COLUMNAR, Columnar, open_columnar, read_numbers
from partita.tables.csv import Worded, read_delimited, read_series
from partita.tables.digest import Digest
from partita.tables.large_csv import LargeText, open_text
from partita.tables.schema import (
    INDEX,
    KindOverrides,
    Schema,
    Series,
    check_names,
    column_names,
    infer,
    number_type,
    resolve,
)
from partita.tables.voice import Voice

TABLES = (".csv", *COLUMNAR)
RARE = "Map rare values to a category of their own before the fit."


def read_table(
    path: Path, words: bool, asked: KindOverrides | Schema | None
) -> tuple[np.ndarray, Columns, Schema | None]:
    """The numbers of a file, (N, D), the names of its columns, and what they hold.

    Arguments:
        words: Whether columns may hold words; refused otherwise, except in those that are ignored.
        asked: Kinds by name; or the schema of another table, whose columns are looked for by name
            and whose categories are the only ones.
    """
    owner = Voice(f"load: {path}")
    source = open_columnar(path) if path.suffix.lower() in COLUMNAR else None
    if source is None and path.stat().st_size > on_disk.most_held():
        text = open_text(path)
        return _read_large(text.worded(_worded(asked, text.names, owner)), words, asked, owner)
    if source is not None and source.rows * len(source.names) * 8 > on_disk.most_held():
        return _read_large(source, words, asked, owner)
    if source is None and _names_words(asked):
        return _of_series(
            *read_series(path, lambda names: _worded(asked, names, owner)), asked, owner
        )
    try:
        table, columns = read_delimited(path) if source is None else read_numbers(source)
    except InputError:
        if not words and not asked:
            raise
        series, columns = (
            read_series(path) if source is None else (series_of(source.table()), source.names)
        )
        return _of_series(series, columns, asked, owner)
    names = columns or column_names(table.shape[1])
    types = [None] * len(names) if source is None else source.types
    if isinstance(asked, Schema):
        return _of_series(list(_series(names, table, types)), columns, asked, owner)
    schema = infer(names, _series(names, table, types), asked, owner)
    kept = [i for i, column in enumerate(schema.columns) if column.kind != "ignore"]
    whole = len(kept) == len(names)
    return table if whole else table[:, kept], columns and tuple(columns[i] for i in kept), schema


def frame_table(
    frame: Any, asked: KindOverrides | Schema | None, owner: Voice
) -> tuple[np.ndarray, Columns, Schema]:
    """The numbers of a frame, the names of its columns, and what they hold, as
    :func:`read_table`.
    """
    series = series_of(of_frame(frame, owner))
    table, columns, schema = _of_series(series, tuple(one.name for one in series), asked, owner)
    return table, columns, schema


def array_table(
    x: Any, asked: KindOverrides | Schema | None, owner: Voice
) -> tuple[np.ndarray, Schema]:
    """Numbers without names or types, and what they hold; columns are called x1, x2, ..."""
    table, _ = as_table(x, owner)
    names = column_names(table.shape[1])
    table, _, schema = _of_series(
        list(_series(names, table, [None] * len(names))), names, asked, owner
    )
    return table, schema


def impose(series: Sequence[Series], schema: Schema, owner: Voice) -> list[Series]:
    """The columns of another table that a schema uses, in its order; a word that it does not know
    is refused, if it is closed.
    """
    names = [one.name for one in series]
    check_names(names, owner)
    wanted = [column.name for column in schema.used]
    known = {column.name for column in schema.columns}
    there = dict(zip(names, series, strict=True))
    lost = [name for name in wanted if name not in there]
    # an index is no column
    more = [name for name in names if name not in known and not INDEX.fullmatch(name)]
    if lost or more:
        got = f"none called {lost[0]!r}" if lost else f"one more, {more[0]!r}"
        shown = ", ".join(wanted[:6]) + ", ..." * (len(wanted) > 6)
        wanted_of = f"{owner.data} must have the columns of the {owner.fitted}, {shown}"
        remedy = "" if lost else " Take it out."
        raise DataError(f"{owner}: {wanted_of}; got {got}.{remedy}")
    found = [there[name] for name in wanted]
    for one, column in zip(found, schema.used, strict=True):
        _check_sort(one, column, owner)
        if schema.closed:
            _check_known(one, column, owner)
    return found


def _check_sort(series: Series, column: Column, owner: Voice) -> None:
    """No words where the schema has numbers, and no numbers where it has words."""
    there = series.values[~np.isnan(series.values)]
    if len(there) and (
        bool(series.labels) != bool(column.labels)
        or (series.dtype in ("date", "other") and not series.labels)
    ):
        held, got = (
            ("words", "numbers")
            if column.labels
            else ("numbers", "words" if series.labels else "other values")
        )
        raise DataError(
            f"{owner}: column {series.name!r} must hold {held}, as that of the {owner.fitted} "
            f"does; got {got}."
        )


def _check_known(series: Series, column: Column, owner: Voice) -> None:
    """No category that the schema does not know."""
    there = series.values[~np.isnan(series.values)]
    if column.kind == "category" and len(unknown := there[~np.isin(there, column.levels)]):
        allowed = f"categories of the {owner.fitted}, {column.in_words()}"
        value = series.labels.get(unknown[0], f"{unknown[0]:g}")
        raise DataError(
            f"{owner}: column {series.name!r} must hold {allowed}; got {value!r}. {RARE}"
        )


def _names_words(asked: KindOverrides | Schema | None) -> bool:
    """Whether columns of text may be words although they look like numbers."""
    if isinstance(asked, Schema):
        return any(column.labels for column in asked.used)
    return isinstance(asked, Mapping) and "category" in asked.values()


def _worded(asked: KindOverrides | Schema | None, names: Sequence[str], owner: Voice) -> Worded:
    """Which columns of text are words: those that a run has as words; of those asked for as
    categories the ones that numbers spoil.
    """
    if isinstance(asked, Schema):
        return Worded(always={column.name for column in asked.used if column.labels})
    return Worded(
        codes={
            name for name, kind in resolve(asked or {}, names, owner).items() if kind == "category"
        }
    )


def _of_series(
    series: list[Series], columns: Columns, asked: KindOverrides | Schema | None, owner: Voice
) -> tuple[np.ndarray, Columns, Schema]:
    if isinstance(asked, Schema):
        schema, used = asked, impose(series, asked, owner)
    else:
        schema = infer([one.name for one in series], series, asked, owner)
        used = [
            one
            for one, column in zip(series, schema.columns, strict=True)
            if column.kind != "ignore"
        ]
    return (
        np.stack([one.values for one in used], 1),
        None if columns is None else tuple(one.name for one in used),
        schema,
    )


def _read_large(
    source: Columnar | LargeText, words: bool, asked: KindOverrides | Schema | None, owner: Voice
) -> tuple[np.ndarray, Columns, Schema]:
    """The same as for small tables, in two passes over the file: what the columns hold, then their
    numbers into a temporary file.
    """
    dtype = (
        np.dtype(float)
        if isinstance(asked, Schema)
        else _stored_dtype(source, words or bool(asked))
    )
    schema = asked if isinstance(asked, Schema) else _infer_in_parts(source, asked, owner)
    left_out = {column.name for column in schema.columns if column.kind == "ignore"}

    numbers = (
        np.stack([one.values for one in impose(series, schema, owner)], 1)
        for series in source.series(left_out)
    )
    table = on_disk.gathered(numbers, (source.rows, len(schema.used)), dtype)
    return table, None if source.columns is None else tuple(schema.names), schema


def _stored_dtype(source: Columnar | LargeText, words: bool) -> np.dtype:
    """That of the numbers; float64 where columns hold words, if they may."""
    try:
        return source.number_dtype()
    except InputError:
        if not words:
            raise
        return np.dtype(float)


def _infer_in_parts(
    source: Columnar | LargeText, asked: KindOverrides | None, owner: Voice
) -> Schema:
    """The schema of a table that is too large to be held."""
    check_names(source.names, owner)
    kinds = resolve(asked or {}, source.names, owner)
    types = zip(source.names, source.types, strict=True)
    digests = {name: Digest(name, kinds.get(name) == "category", dtype) for name, dtype in types}
    left_out = {
        name
        for name in source.names
        if kinds.get(name, "ignore" if INDEX.fullmatch(name) else "") == "ignore"
    }
    for name, missing in source.gaps(left_out).items():
        digests[name].missing = missing
    for series in source.series(left_out):
        for one in series:
            digests[one.name].add(one)
    return infer(source.names, (digest.series() for digest in digests.values()), asked, owner)


def _series(
    names: Sequence[str], table: np.ndarray, types: Sequence[str | None]
) -> Iterator[Series]:
    for name, values, dtype in zip(names, table.T, types, strict=True):
        numbers = values.astype(np.float64)
        yield Series(name, numbers, dtype or number_type(numbers))
