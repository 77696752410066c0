"""From a file, frame or array to the columns that a model takes, and back."""

from partita.tables.arrays import Splits
from partita.tables.encoding import Encoding
from partita.tables.files import read
from partita.tables.rows import Rows, as_rows
from partita.tables.schema import Column, Schema

__all__ = ["Column", "Encoding", "Rows", "Schema", "Splits", "as_rows", "read"]
