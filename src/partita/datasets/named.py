"""Data by name, path or value: ``load`` gives train, validation and test rows, always split in the
same way. scikit-learn's digits and the toys come with the library.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from partita.core.rng import MOST_LISTED, keyed, permutation
from partita.datasets import folder, toys
from partita.datasets.sequences import Sequences
from partita.errors import DataError, InputError, did_you_mean, unusable
from partita.runtime import memory_limit
from partita.tables.arrays import Columns, Splits, TableLike
from partita.tables.files import ENDINGS, ColumnKinds, check_reachable, read
from partita.tables.laws import with_laws
from partita.tables.rows import Binarize, Rows
from partita.tables.schema import Schema

TOY_ROWS = 10_000
TOY_KEY = 1
GRAY = 16.0  # the largest gray level of the digits

SPLIT_KEY = 80_20
HELD_OUT = 0.2
DYNAMIC = ("mnist",)  # gray levels that binarize="auto" draws anew in every batch


@dataclass(frozen=True)
class Maker:
    """How to make a built-in set, and its line in the listing."""

    make: Callable[[], Splits]
    size: str
    note: str


def _digits(gray: bool) -> Splits:
    from sklearn.datasets import load_digits

    x = np.asarray(load_digits(return_X_y=True)[0])
    values = x.astype(np.float32) if gray else (x > GRAY / 2 - 0.5).astype(np.uint8)
    scale = GRAY if gray else None
    return Splits(values, note=DIGITS_NOTE, shape=(8, 8), scale=scale)


def _bars_and_stripes() -> Splits:
    x = toys.bars_and_stripes(4).numpy().astype(np.uint8)
    entropy = toys.bars_and_stripes_entropy(4)
    return Splits(x, test=x, note=BARS_NOTE, shape=(4, 4), entropy=entropy)


def _plane(draw: Callable[..., torch.Tensor], entropy: Callable[[], float] | None = None) -> Splits:
    train, test = (draw(TOY_ROWS, generator=keyed(TOY_KEY, part)).numpy() for part in range(2))
    known = None if entropy is None else entropy()
    return Splits(train, test=test, note="generated", entropy=known)


DIGITS_NOTE = "8 x 8 handwritten digits of scikit-learn (UCI, CC BY 4.0)"

BARS_NOTE = "all 4 x 4 patterns of full columns or full rows; train and test are the same rows"

BUILTIN = {
    "digits": Maker(
        partial(_digits, False), "1797 x 64", f"{DIGITS_NOTE}, cut at half gray to binary"
    ),
    "digits-gray": Maker(
        partial(_digits, True), "1797 x 64", f"{DIGITS_NOTE}, gray levels 0 to 16"
    ),
    "bars-and-stripes": Maker(_bars_and_stripes, "32/32 x 16", BARS_NOTE),
    "moons": Maker(partial(_plane, toys.moons), "10000/10000 x 2", "two noisy half circles"),
    "8gaussians": Maker(
        partial(_plane, toys.eight_gaussians, toys.eight_gaussians_entropy),
        "10000/10000 x 2",
        "eight normal distributions on a circle",
    ),
    "checkerboard": Maker(
        partial(_plane, toys.checkerboard, lambda: toys.CHECKERBOARD_ENTROPY),
        "10000/10000 x 2",
        "uniform on eight squares",
    ),
}


@dataclass(frozen=True)
class Dataset:
    """Rows to learn from and rows to score on.

    Arguments:
        name: What it was loaded as.
        train, valid, test: The rows; ``None`` where there are none.
        columns: Names, if known.
        note: What it is, and its license.
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
    reading: dict[str, str | int | None] | None = None
    undivided: Rows | None = None

    def whole(self) -> Rows:
        """All rows: as they were before parts were made of them, else one part after the other.

        >>> len(load("digits").whole()), len(load("digits").train)
        (1797, 1438)
        """
        parts = [rows for rows in (self.train, self.valid, self.test) if rows is not None]
        return _joined(parts) if self.undivided is None else self.undivided


class Entry(NamedTuple):
    """A line of the listing of data sets."""

    name: str
    size: str
    where: str
    note: str


def load(
    source: "str | os.PathLike[str] | Dataset | Rows | TableLike",
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
            splits, owner = _find(name, words, columns), f"load({name!r})"
            return _build(name, splits, binarize, owner, missing, isinstance(columns, Schema))
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
    if all(name != "mnist" for name, _ in found):
        listed.append(Entry("mnist", "60000/10000 x 784", "OpenML", folder.NOTES["mnist"]))
    notes = folder.NOTES
    return listed + [
        Entry(name, size, "$PARTITA_DATA", notes.get(name, "")) for name, size in found
    ]


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


def _find(name: str, words: bool = False, columns: ColumnKinds = None) -> Splits:
    if name in BUILTIN and (not columns or isinstance(columns, Schema)):
        return BUILTIN[name].make()
    check_reachable(name)
    base, array = _parts(name)
    if Path(base).suffix.lower() in ENDINGS:
        return read(base, array, words=words, columns=columns)
    if columns and not isinstance(columns, Schema):
        raise DataError(
            f"load: kinds of columns can be given for files alone; got some for {name!r}. Leave "
            "them out."
        )
    path = folder.path_of(base)
    if path is not None:
        note, shape = folder.NOTES.get(base, ""), folder.SHAPES.get(base)
        return replace(read(path, array), note=note, shape=shape)
    if name == "mnist":
        return replace(folder.mnist_from_openml(), note=folder.NOTES["mnist"])
    if Path(base).exists() or Path(base).suffix:
        return read(base, array)  # which says what is wrong with it
    raise _unknown(name)


def _parts(name: str) -> tuple[str, str | None]:
    base, colon, array = name.rpartition(":")
    return (base, array) if colon and array and not set(array) & set("/\\") else (name, None)


def _unknown(name: str) -> DataError:
    known = [entry.name for entry in names()]
    families = dict.fromkeys(re.sub(r"([/:]).*", r"\1...", known_name) for known_name in known)
    otherwise = "Set PARTITA_DATA to a folder that holds more, or give the path of a file."
    hint = did_you_mean(name, known, otherwise)
    allowed = f"be a path or one of {', '.join(families)}"
    return unusable("load", repr(name), allowed, "neither", hint)


def _build(
    name: str,
    splits: Splits,
    binarize: Binarize | str,
    owner: str,
    missing: bool,
    known: bool,
) -> Dataset:
    """The parts of a data set; where its schema is not ``known``, kinds are those that fit its
    training rows.
    """
    if binarize == "auto":
        binarize = "dynamic" if name in DYNAMIC else None
    train = Rows(
        _flat(splits.train),
        splits.weight,
        _chosen(binarize),
        scale=splits.scale,
        columns=splits.columns,
        missing=missing,
        owner=owner,
    )
    train.labels = splits.labels or {}
    train.schema = splits.schema
    valid, test = (
        None if x is None else _like(train, x, owner, missing) for x in (splits.valid, splits.test)
    )
    undivided = train if valid is None and test is None else None
    if test is None:
        train, test = hold_out(train)
    if splits.schema is not None and not known:
        others = [rows for rows in (valid, test) if rows is not None]
        schema = with_laws(splits.schema, train, others)
        for rows in (train, *others, *([] if undivided is None else [undivided])):
            rows.schema = schema
    shape = splits.shape or (
        splits.train.shape[1:] if splits.train.ndim > 2 else getattr(splits.train, "form", None)
    )
    return Dataset(
        name,
        _beside(train, valid, test),
        valid,
        test,
        train.columns,
        splits.note,
        shape,
        splits.entropy,
        undivided=undivided,
    )


def _of_value(x: Rows | TableLike, binarize: Binarize | str, missing: bool) -> Dataset:
    shape = None
    if isinstance(x, Rows):
        rows = x
    elif isinstance(x, (np.ndarray, Tensor)) and x.ndim > 2:
        shape = tuple(x.shape[1:])
        rows = Rows(_flat(x), missing=missing, owner="load")
    else:
        rows = Rows(cast("TableLike", x), missing=missing, owner="load")
    train, test = hold_out(rows)
    train = _beside(train, test)
    data = Dataset("data", train, None, test, rows.columns, shape=shape, undivided=rows)
    return data if binarize == "auto" else _again(data, binarize)


def _chosen(binarize: Binarize | str) -> Binarize:
    return None if binarize == "none" else cast("Binarize", binarize)


def _flat(x: np.ndarray | Tensor) -> np.ndarray | Tensor:
    return x.reshape(len(x), -1) if x.ndim not in (0, 2) and len(x) else x


def _like(train: Rows, x: np.ndarray, owner: str, missing: bool = False) -> Rows:
    rows = Rows(_flat(x), None, train.binarize, scale=train.scale, missing=missing, owner=owner)
    if rows.width != train.width:
        allowed = f"have {train.width} columns, as train has"
        remedy = "Save the parts of a split with the same columns."
        raise unusable(owner, "every split", allowed, rows.width, remedy)
    rows.columns = train.columns
    return rows


def _again(data: Dataset, binarize: Binarize | str) -> Dataset:
    parts = {"train": data.train, "valid": data.valid}
    parts |= {"test": data.test, "undivided": data.undivided}
    changed = {
        name: rows.binarized(_chosen(binarize), "load")
        for name, rows in parts.items()
        if rows is not None
    }
    return replace(data, **changed)


def _joined(parts: Sequence[Rows]) -> Rows:
    """Rows or sequences of all parts, one after the other, read as those of the first are, in
    memory; weights are left out.

    >>> _joined([Rows([[1.0], [2.0]]).take([1]), Rows([[3.0]])]).tensor().tolist()
    [[2.0], [3.0]]
    >>> _joined([Sequences.of([[1, 2]]), Sequences.of([[3]])]).tensor().tolist()
    [[1.0, 2.0], [3.0, nan]]
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    needed = sum(4 * len(part) * part.width for part in parts)
    memory_limit.check_room("load", "all parts together", needed, "Score one part after the other.")
    if isinstance(first, Sequences):
        return cast("Rows", _joined_sequences(cast("Sequence[Sequences]", parts)))
    rows = Rows(
        np.concatenate([part.binarized(None).tensor().numpy() for part in parts]),
        None,
        first.binarize,
        scale=first.scale,
        columns=first.columns,
        missing=True,
        owner="load",
    )
    rows.labels = first.labels
    rows.schema = first.schema
    return rows


def _joined_sequences(parts: Sequence[Sequences]) -> Sequences:
    before = np.cumsum([0, *(len(part.stream) for part in parts)])
    every = [np.arange(len(part)) for part in parts]
    starts = [
        part.starts[rows] + first for part, rows, first in zip(parts, every, before, strict=False)
    ]
    rows = Sequences(
        np.concatenate([part.stream[:] for part in parts]),
        np.concatenate(starts),
        np.concatenate([part.lengths[rows] for part, rows in zip(parts, every, strict=True)]),
        longest=max(part.longest for part in parts),
        owner="load",
    )
    rows.states = parts[0].states
    return rows
