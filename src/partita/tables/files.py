"""Files of numbers: .npz, .npy (memory-mapped), .csv, .txt, .parquet, .arrow and .feather, with
column names where the file has them.

A .txt file is read like a .csv file of numbers that are parted by white space, commas, semicolons,
tabs or bars. Nothing is unpickled.
"""

import csv
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from partita.errors import DataError, InputError
from partita.runtime import memory_limit
from partita.runtime.atomic_files import unreachable
from partita.tables.alignments import FASTA, read_fasta
from partita.tables.contents import Splits, damaged
from partita.tables.csv import holds_sequences, read_delimited, read_words
from partita.tables.frames import TABLES, read_table
from partita.tables.npy import read_npy, read_npz
from partita.tables.schema import KindOverrides, Schema


@memory_limit.named("load")
def read(
    path: str | Path,
    array: str | None = None,
    *,
    words: bool = False,
    asked: KindOverrides | Schema | None = None,
) -> Splits:
    """The numbers in a file; ``array`` picks one array of an .npz. Missing values of a table (.csv,
    .parquet, .arrow) arrive as NaN.

    With ``words``, columns of a table or a .txt may hold words, and lines of letters are sequences.
    ``asked`` says what columns of a table hold, in place of what their values say
    (:mod:`partita.tables.schema`).
    """
    check_reachable(path)
    path = Path(path)
    _check_file(path)
    if array is not None and path.suffix.lower() != ".npz":
        raise DataError(
            f"load: only an .npz file holds named arrays; got {array!r} with {path}. Leave out "
            f"':{array}'."
        )
    if path.suffix.lower() == ".npz":
        return read_npz(path, array)
    if words and (
        path.suffix.lower() == ".txt"
        or (path.suffix.lower() == ".csv" and not asked and _are_sequences(path))
    ):
        return _read_words(path)
    if path.suffix.lower() in TABLES:
        return _read_table(path, words, asked)
    if asked and not isinstance(asked, Schema):
        raise DataError(
            f"load: kinds of columns can be given for {', '.join(TABLES)} files; got some for "
            f"{path}. Leave them out."
        )
    return READERS[path.suffix.lower()](path)


def check_reachable(name: str | Path) -> None:
    """Refuse what is no path, and one that the system cannot even look for."""
    if not isinstance(name, str | Path):
        raise DataError(
            f"load: a file must be given by its path; got {type(name).__name__}. For values use "
            "partita.datasets.load."
        )
    if why := unreachable(name):
        raise DataError(
            f"load: {str(name)!r} must be a path or a name; got one that cannot be looked for "
            f"({why})."
        )


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(
            f"load: {path} must be a file; got a folder. Name a file in it, or point PARTITA_DATA "
            "at it and use its names."
        )
    if not path.exists():
        raise DataError(
            f"load: {path} must be a file; got a path where there is none. Check the spelling and "
            "the working directory."
        )
    if path.suffix.lower() not in ENDINGS:
        came = path.suffix or "no ending"
        remedy = (
            "Rename it to .csv, where tabs part fields too."
            if came.lower() in TABBED
            else "Convert it to one of these."
        )
        raise DataError(
            f"load: {path} must end in one of {' '.join(ENDINGS)}; got {came}. {remedy}"
        )
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(
            f"load: {path} must be a file; got a pipe or a device. Write its contents to a file."
        )
    if path.stat().st_size == 0:
        raise DataError(f"load: {path} must hold rows; got an empty file. Write it again.")
    if path.suffix.lower() in (".txt", *FASTA):
        memory_limit.check_room(
            "load",
            str(path),
            path.stat().st_size,
            "Convert it to .csv, .parquet or .npy, which stay on disk.",
        )


@contextmanager
def _text(path: Path) -> Iterator[None]:
    """Inside it, what is wrong with a file of text is an error of data."""
    try:
        yield
    except InputError as error:
        raise DataError(str(error)) from error
    except UnicodeDecodeError as error:
        whole = f"a whole {path.suffix} file, in UTF-8"
        remedy = "Save it as UTF-8, or copy or download it again."
        raise DataError(
            f"load: {path} must be {whole}; got bytes that are no such text. {remedy}"
        ) from error
    except (OSError, csv.Error) as error:
        raise damaged(path) from error


def _are_sequences(path: Path) -> bool:
    with _text(path):
        return holds_sequences(path)


def _read_table(path: Path, words: bool, asked: KindOverrides | Schema | None) -> Splits:
    with _text(path):
        table, columns, schema = read_table(path, words, asked)
    return Splits(
        table,
        columns=columns,
        labels=None if schema is None else schema.labels or None,
        schema=schema,
    )


def _read_numbers(path: Path) -> Splits:
    with _text(path):
        table, columns = read_delimited(path)
    return Splits(table, columns=columns)


def _read_words(path: Path) -> Splits:
    with _text(path):
        table, columns, labels = read_words(path)
    return Splits(table, columns=columns, labels=labels)


def _read_fasta(path: Path) -> Splits:
    with _text(path):
        table, labels = read_fasta(path)
    return Splits(table, labels=labels)


READERS: dict[str, Callable[[Path], Splits]] = {
    ".npy": read_npy,
    ".txt": _read_numbers,
    **dict.fromkeys(FASTA, _read_fasta),
}
ENDINGS = (".npz", ".npy", *TABLES, ".txt", *FASTA)
TABBED = (".tsv", ".tab")
