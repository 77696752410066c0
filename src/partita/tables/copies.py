"""Copies of files of tables with more in them: gaps filled, or columns beside their own; what is
there keeps every bit.

A copy of another sort is first one of the file's own, which is then converted
(:mod:`partita.tables.conversions`). A file is read and its copy written some rows after the others,
so that neither need fit into memory.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from partita.runtime.atomic_files import replacing
from partita.tables.arrow import arrow
from partita.tables.columnar import COLUMNAR, Columnar, open_columnar, open_writer
from partita.tables.conversions import convert
from partita.tables.csv import delimiter_of, names_of, raw_records
from partita.tables.fields import is_missing
from partita.tables.schema import Column, Schema, column_names
from partita.tables.write import FIELDS, filled_arrow, filled_type, text, write_csv


def write_filled(source: Path, path: Path, schema: Schema, x: np.ndarray) -> None:
    """A copy of a table's file with ``x``, the columns that a schema uses, in place of what is
    missing, and nowhere else.
    """
    if not _alike(source, path):
        with TemporaryDirectory() as folder:
            write_filled(source, own := Path(folder) / f"filled{source.suffix}", schema, x)
            convert(own, path, schema.used)
        return
    with replacing(path) as beside:
        if path.suffix.lower() in COLUMNAR:
            _write_filled_columns(open_columnar(source), beside, path.suffix.lower(), schema, x)
        else:
            write_csv(beside, _filled_cells(source, schema, x), delimiter_of(source) or ",")


def write_beside(
    source: Path, path: Path, columns: Sequence[Column], x: np.ndarray, known: Sequence[Column] = ()
) -> None:
    """A copy of a table's file, whose first line has names if it is text, with ``x`` as more
    columns after its own.

    ``known`` are columns of the file whose types a run knows, where the copy has types and the file
    has none.
    """
    if not _alike(source, path):
        with TemporaryDirectory() as folder:
            write_beside(source, own := Path(folder) / f"beside{source.suffix}", columns, x)
            convert(own, path, [*known, *columns])
        return
    with replacing(path) as beside:
        if path.suffix.lower() in COLUMNAR:
            _write_more_columns(open_columnar(source), beside, path.suffix.lower(), columns, x)
        else:
            write_csv(beside, _more_cells(source, columns, x), delimiter_of(source) or ",")


def _alike(source: Path, path: Path) -> bool:
    """Whether a copy is of the file's own sort: text, or columnar."""
    return (source.suffix.lower() in COLUMNAR) == (path.suffix.lower() in COLUMNAR)


def _filled_cells(source: Path, schema: Schema, x: np.ndarray) -> Iterator[list[str]]:
    """The fields of a file as they are written, and what is missing from the rows of ``x``."""
    header = sum(1 for _ in raw_records(source)) > len(x)
    records = raw_records(source)
    if header:
        yield (first := next(records))
    names = (
        names_of([field.strip() for field in first])
        if header
        else list(column_names(len(next(raw_records(source)))))
    )
    place_of = {name: place for place, name in enumerate(names)}
    at = [place_of[column.name] for column in schema.used]
    for rows, part in in_step(records, x):
        filled = [column.words(part[:, i].tolist()) for i, column in enumerate(schema.used)]
        for row, record in enumerate(rows):
            for place, words in zip(at, filled, strict=True):
                if is_missing(record[place].strip()):
                    record[place] = text(words[row])
            yield record


def _more_cells(source: Path, columns: Sequence[Column], x: np.ndarray) -> Iterator[list[str]]:
    records = raw_records(source)
    yield [*next(records), *(column.name for column in columns)]
    for rows, part in in_step(records, x):
        values = zip(
            *(column.words(part[:, i].tolist()) for i, column in enumerate(columns)), strict=True
        )
        for record, extra in zip(rows, values, strict=True):
            yield [*record, *map(text, extra)]


def _write_more_columns(
    source: Columnar, beside: Path, ending: str, columns: Sequence[Column], x: np.ndarray
) -> None:
    """A columnar file with more columns."""
    pa, schema, start = arrow(), source.schema, 0
    fields = [pa.field(column.name, pa.type_for_alias(column.dtype)) for column in columns]
    for field in fields:
        schema = schema.append(field)
    lists = _categories(source)
    with open_writer(beside, ending, schema) as out:
        for piece in source.pieces():
            whole, part = _with_lists(piece, lists), x[start : start + len(piece)]
            for i, (field, column) in enumerate(zip(fields, columns, strict=True)):
                whole = whole.append_column(
                    field, pa.array(column.words(part[:, i].tolist()), field.type)
                )
            out.write_table(whole.cast(schema))
            start += len(piece)


def _write_filled_columns(
    source: Columnar, beside: Path, ending: str, schema: Schema, x: np.ndarray
) -> None:
    """A columnar file with its gaps filled; its categories are gathered first, for all parts of a
    file share one list of them.
    """
    after = _filled_schema(source.schema, schema)
    lists, start = _categories(source, schema, x), 0
    lists = {
        name: words
        for name, words in lists.items()
        if after.field(name) == source.schema.field(name)
    }
    with open_writer(beside, ending, after) as out:
        for piece in source.pieces():
            filled = filled_arrow(_with_lists(piece, lists), schema, x[start : start + len(piece)])
            out.write_table(filled.cast(after))
            start += len(piece)


def _filled_schema(before: Any, schema: Schema) -> Any:
    """The types of a file once its gaps are filled."""
    used = {column.name: column for column in schema.used}
    types = [
        filled_type(field.type, used[field.name]) if field.name in used else field.type
        for field in before
    ]
    return arrow().schema(
        [field.with_type(kind) for field, kind in zip(before, types, strict=True)], before.metadata
    )


def _categories(
    source: Columnar, schema: Schema | None = None, x: Any = None
) -> dict[str, list[Any]]:
    """The words of each column of categories: those of the file in its order, then those that fill
    its gaps.
    """
    pa, start = arrow(), 0
    lists = {
        field.name: dict[Any, None]()
        for field in source.schema
        if pa.types.is_dictionary(field.type)
    }
    used = (
        {} if schema is None else {column.name: (i, column) for i, column in enumerate(schema.used)}
    )
    more = {name: dict[Any, None]() for name in lists}
    for piece in source.pieces() if lists else ():
        for name, words in lists.items():
            held = piece.column(name)
            for chunk in held.chunks:
                words |= dict.fromkeys(chunk.dictionary.to_pylist())
            if name in used and held.null_count:
                i, column = used[name]
                gaps = np.asarray(held.is_null().to_numpy(), dtype=bool)
                more[name] |= dict.fromkeys(
                    column.words(x[start : start + len(piece)][gaps, i].tolist())
                )
        start += len(piece)
    return {name: list(words | more[name]) for name, words in lists.items()}


def _with_lists(piece: Any, lists: dict[str, list[Any]]) -> Any:
    """Rows whose columns of categories all have the same lists of words as those of other
    pieces.
    """
    for name, words in lists.items():
        place = piece.column_names.index(name)
        piece = piece.set_column(place, piece.field(place), recoded(piece.column(place), words))
    return piece


def recoded(held: Any, words: Sequence[Any]) -> Any:
    """A column of categories with its numbers those of another list of words."""
    pa, joined = arrow(), held.unify_dictionaries().combine_chunks()
    place = {word: number for number, word in enumerate(words)}
    table = pa.array(
        [place[word] for word in joined.dictionary.to_pylist()], type=joined.type.index_type
    )
    levels = pa.array(words, type=joined.type.value_type)
    return pa.DictionaryArray.from_arrays(
        table.take(joined.indices), levels, ordered=joined.type.ordered
    )


def in_step(
    records: Iterator[list[str]], x: np.ndarray
) -> Iterator[tuple[list[list[str]], np.ndarray]]:
    """Records of text and the rows of a table beside them, some at a time."""
    size = max(1, FIELDS // x.shape[1])
    for start in range(0, len(x), size):
        yield list(islice(records, size)), x[start : start + size]
