"""Alignments as tables: FASTA files, and text files with one sequence of letters in each line."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from partita.errors import unusable
from partita.tables.arrays import bad_file
from partita.tables.schema import Labels

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
            raise bad_file(path, "begin with a line that starts with '>'", repr(line[:20]))
        elif line.strip():
            sequences[-1].append(line.strip())
    if not sequences:
        raise bad_file(path, "hold sequences", "none")
    rows = ["".join(parts) for parts in sequences]
    if path.suffix.lower() == ".a2m":
        rows = ["".join(c for c in row if not c.islower() and c != ".") for row in rows]
    return letters((row.upper() for row in rows), f"load: {path}")


def letters(sequences: Iterable[str], owner: str) -> tuple[np.ndarray, Labels]:
    """Aligned sequences as a table with one column for each place, and what its numbers mean.

    >>> letters(["AC-", "AG-"], "load")[0].tolist()
    [[65.0, 67.0, 45.0], [65.0, 71.0, 45.0]]
    """
    rows = list(sequences)
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            allowed = "have one length, as those of an alignment have"
            got = f"{len(rows[0])} in row 0 and {len(row)} in row {number}"
            raise unusable(owner, "sequences", allowed, got, "Align them first.")
    codes = (
        np.array([list(row) for row in rows])
        .view(np.uint32)
        .reshape(len(rows), -1)
        .astype(np.float64)
    )
    return codes, {float(code): chr(int(code)) for code in np.unique(codes)}
