"""Files of numbers: .npz, .npy (memory-mapped), .csv, .txt, .parquet, .arrow and .feather, with
column names where the file has them.

A .txt file is read like a .csv file of numbers that are separated by white space, commas,
semicolons, tabs or bars. Nothing is unpickled.
"""

import csv
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from partita.errors import DataError, InputError, unusable
from partita.runtime import memory_limit
from partita.runtime.atomic_files import unreachable
from partita.tables.alignments import FASTA, letters, read_fasta
from partita.tables.arrays import Splits, bad_file, damaged
from partita.tables.csv import open_text, sequence_lines
from partita.tables.frames import TABLES, ColumnKinds, read_table
from partita.tables.npy import read_npy, read_npz
from partita.tables.schema import Schema

ENDINGS = (".npz", ".npy", *TABLES, ".txt", *FASTA)
TABBED = (".tsv", ".tab")


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
