"""Data to learn from: rows in memory or on disk, frames, files, named sets, and toy sets with known
answers.
"""

from partita.data.files import read
from partita.data.named import Dataset, Entry, load, names
from partita.data.rows import Rows, as_rows
from partita.data.schema import Column, Schema
from partita.data.splits import Splits
from partita.data.streams import Sequences

__all__ = [
    "Column",
    "Dataset",
    "Entry",
    "Rows",
    "Schema",
    "Sequences",
    "Splits",
    "as_rows",
    "load",
    "names",
    "read",
]
