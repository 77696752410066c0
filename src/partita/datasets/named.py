"""Data by name, path or value: ``load`` gives train, validation and test rows, always split in the
same way.
"""

import os
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from partita.core.rng import MOST_LISTED, keyed, permutation
from partita.datasets import folder
from partita.datasets.builtin import BUILTIN, Source
from partita.datasets.joined import joined
from partita.errors import DataError, InputError
from partita.tables.arrays import Columns
from partita.tables.files import ENDINGS, check_reachable, read
from partita.tables.frames import ColumnKinds
from partita.tables.rows import Binarize, Rows
from partita.tables.schema import Schema

SPLIT_KEY = 80_20
HELD_OUT = 0.2
DYNAMIC = ("mnist",)  # gray levels that binarize="auto" draws anew in every batch


@dataclass(frozen=True)
class Dataset:
    """Rows to learn from and rows to score on.

    Arguments:
        name: What it was loaded as.
        train, valid, test: The rows; ``None`` where there are none.
        columns: Names, if known.
        note: What it is, and its licence.
        shape: How to draw a row as an image, such as (28, 28).
        entropy: The entropy in nats of the distribution behind it, where it is known; no model
            scores above its negative.
        reading: How sequences were read, from which more are read in the same way; None for tables.
        undivided: All rows in their order, where the parts were made of them; None where the source
            has parts of its own.
    """

    name: str
    train: Rows
    valid: Rows | None = None
    test: Rows | None = None
    columns: Columns = None
    note: str = ""
    shape: tuple[int, ...] | None = None
    entropy: float | None = None
    reading: dict[str, Any] | None = None
    undivided: Rows | None = None

    def whole(self) -> Rows:
        """All rows: as they were before parts were made of them, else one part after the other.

        >>> len(load("digits").whole()), len(load("digits").train)
        (1797, 1438)
        """
        parts = [rows for rows in (self.train, self.valid, self.test) if rows is not None]
        return joined(parts) if self.undivided is None else self.undivided


class Entry(NamedTuple):
    """A line of the listing of data sets."""

    name: str
    size: str
    where: str
    note: str


def load(
    source: Any,
    *,
    binarize: Binarize | str = "auto",
    words: bool = False,
    missing: bool = False,
    columns: ColumnKinds = None,
) -> Dataset:
    """Data from a built-in name, a name under ``$PARTITA_DATA``, a path, an array, a frame or a
    Dataset.

    Where there is no test split, one row in five is held out, always the same ones. ``binarize`` is
    as in :class:`Rows`; ``"auto"`` makes only ``mnist`` binary (dynamic), ``"none"`` nothing. With
    ``words``, columns of a file may hold words, which become numbers whose meaning is in
    ``train.labels``. With ``missing``, NaN is kept as a value that was not observed. ``columns``
    gives kinds of columns of a table's file by name, in place of what their values say
    (:mod:`partita.tables.schema`).

    >>> load("digits").train
    Rows(1438 x 64)
    """
    if isinstance(source, Dataset):
        return source if binarize == "auto" else _again(source, binarize)
    if isinstance(source, (str, os.PathLike)):
        name = os.fsdecode(source)
        try:
            return _build(name, _find(name, words, columns), binarize, f"load({name!r})", missing)
        except InputError as error:
            raise DataError(*error.args) from error
    return _of_value(source, binarize, missing)


def names() -> list[Entry]:
    """What can be loaded by name: the built-in sets, then what is found under ``$PARTITA_DATA``.

    >>> names()[0].name, names()[0].size
    ('digits', '1797 x 64')
    """
    listed = [Entry(name, maker.size, "built in", maker.note) for name, maker in BUILTIN.items()]
    found = folder.entries()
    remote = (
        []
        if any(name == "mnist" for name, _ in found)
        else [Entry("mnist", "60000/10000 x 784", "OpenML", folder.NOTES["mnist"])]
    )
    return (
        listed
        + remote
        + [Entry(name, size, "$PARTITA_DATA", folder.NOTES.get(name, "")) for name, size in found]
    )


def hold_out(rows: Rows) -> tuple[Rows, Rows | None]:
    """One row in five for testing: the same ones on every call, whatever the caller's seed."""
    if len(rows) > MOST_LISTED:
        test, train = rows.one_in(round(1 / HELD_OUT), SPLIT_KEY)
        return train, test
    order = permutation(len(rows), keyed(SPLIT_KEY, len(rows))).numpy()
    count = round(HELD_OUT * len(rows))
    if count == 0:
        return rows, None
    return rows.take(np.sort(order[count:])), rows.take(np.sort(order[:count]))


def _beside(train: Rows, *others: Rows | None) -> Rows:
    """Rows that know the parts of the same data that are held out, whose words are words of the
    data too.
    """
    train.held_out = tuple(rows for rows in others if rows is not None)
    return train


def _find(name: str, words: bool = False, columns: ColumnKinds = None) -> Source:
    base, array = _parts(name)
    check_reachable(name)
    if name in BUILTIN and (not columns or isinstance(columns, Schema)):
        return BUILTIN[name].make()
    if Path(base).suffix.lower() in ENDINGS:
        return Source(read(base, array, words=words, columns=columns))
    if columns and not isinstance(columns, Schema):
        raise DataError(
            f"load: kinds of columns can be given for files alone; got some for {name!r}. Leave "
            "them out."
        )
    path = folder.path_of(base)
    if path is not None:
        return Source(read(path, array), folder.NOTES.get(base, ""), folder.SHAPES.get(base))
    if name == "mnist":
        return Source(folder.mnist_from_openml(), folder.NOTES["mnist"])
    if Path(base).exists() or Path(base).suffix:
        return Source(read(base, array))  # which says what is wrong with it
    raise _unknown(name)


def _parts(name: str) -> tuple[str, str | None]:
    base, colon, array = name.rpartition(":")
    return (base, array) if colon and array and not set(array) & set("/\\") else (name, None)


def _unknown(name: str) -> DataError:
    known = [entry.name for entry in names()]
    families = dict.fromkeys(re.sub(r"([/:]).*", r"\1...", known_name) for known_name in known)
    close = get_close_matches(name, known, 1, 0.5)
    hint = (
        f"Did you mean {close[0]!r}?"
        if close
        else "Set PARTITA_DATA to a folder that holds more, or give the path of a file."
    )
    return DataError(
        f"load: {name!r} must be a path or one of {', '.join(families)}; got neither. {hint}"
    )


def _build(name: str, source: Source, binarize: Any, owner: str, missing: bool = False) -> Dataset:
    splits = source.splits
    binarize = (
        ("dynamic" if name in DYNAMIC else None)
        if binarize == "auto"
        else None
        if binarize == "none"
        else binarize
    )
    train = Rows(
        _flat(splits.train),
        splits.weight,
        binarize,
        scale=source.scale,
        columns=splits.columns,
        missing=missing,
        owner=owner,
    )
    train.labels, train.schema = splits.labels or {}, splits.schema
    valid, test = (
        None if x is None else _like(train, x, owner, missing) for x in (splits.valid, splits.test)
    )
    undivided = train if valid is None and test is None else None
    if test is None:
        train, test = hold_out(train)
    shape = source.shape or (
        splits.train.shape[1:] if splits.train.ndim > 2 else getattr(splits.train, "form", None)
    )
    return Dataset(
        name,
        _beside(train, valid, test),
        valid,
        test,
        train.columns,
        source.note,
        shape,
        source.entropy,
        undivided=undivided,
    )


def _of_value(x: Any, binarize: Any, missing: bool = False) -> Dataset:
    shape = tuple(x.shape[1:]) if isinstance(x, (np.ndarray, Tensor)) and x.ndim > 2 else None
    rows = (
        x
        if isinstance(x, Rows)
        else Rows(x if shape is None else _flat(x), missing=missing, owner="load")
    )
    train, test = hold_out(rows)
    data = Dataset(
        "data", _beside(train, test), None, test, rows.columns, shape=shape, undivided=rows
    )
    return data if binarize == "auto" else _again(data, binarize)


def _flat(x: Any) -> Any:
    return x.reshape(len(x), -1) if x.ndim not in (0, 2) and len(x) else x


def _like(train: Rows, x: np.ndarray, owner: str, missing: bool = False) -> Rows:
    rows = Rows(_flat(x), None, train.binarize, scale=train.scale, missing=missing, owner=owner)
    if rows.width != train.width:
        remedy = "Save the parts of a split with the same columns."
        raise DataError(
            f"{owner}: every split must have {train.width} columns, as train has; got "
            f"{rows.width}. {remedy}"
        )
    rows.columns = train.columns
    return rows


def _again(data: Dataset, binarize: Any) -> Dataset:
    def change(rows: Rows) -> Rows:
        return rows.binarized(None if binarize == "none" else binarize, "load")

    valid, test, undivided = (
        None if rows is None else change(rows) for rows in (data.valid, data.test, data.undivided)
    )
    return replace(data, train=change(data.train), valid=valid, test=test, undivided=undivided)
