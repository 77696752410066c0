"""Alignments as tables: FASTA files, and text files with one sequence of letters in each line."""

from pathlib import Path

import numpy as np

from partita.errors import DataError
from partita.tables.labels import Labels, letters

FASTA = (".fasta", ".fa", ".afa", ".a2m")


def read_fasta(path: Path) -> tuple[np.ndarray, Labels]:
    """The sequences of a FASTA file; in .a2m files small letters and dots are insertions, which
    have no column, and are left out.
    """
    sequences: list[list[str]] = []
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        if line.startswith(">"):
            sequences.append([])
        elif line.strip() and not sequences:
            raise DataError(
                f"load: {path} must begin with a line that starts with '>'; got {line[:20]!r}."
            )
        elif line.strip():
            sequences[-1].append(line.strip())
    if not sequences:
        raise DataError(f"load: {path} must hold sequences; got none.")
    rows = ["".join(parts) for parts in sequences]
    if path.suffix.lower() == ".a2m":
        rows = ["".join(c for c in row if not c.islower() and c != ".") for row in rows]
    return letters((row.upper() for row in rows), f"load: {path}")


def looks_like_sequences(rows: list[list[str]]) -> bool:
    """One word in each line, all of one length, longer than a letter."""
    lengths = {len(row[0]) for row in rows if len(row) == 1}
    return all(len(row) == 1 for row in rows) and len(lengths) == 1 and min(lengths) > 1
