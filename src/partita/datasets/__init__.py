"""Data sets by name or path: built-in sets, toys with known answers, text and other sequences."""

from partita.datasets.named import Dataset, Entry, load, names
from partita.datasets.sequences import Sequences

__all__ = ["Dataset", "Entry", "Sequences", "load", "names"]
