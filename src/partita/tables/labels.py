"""Words as numbers: a number that depends on the word alone, so that two files agree on it without
having met.

Short words (up to six bytes) are their own bytes read as a whole number; longer ones a 52-bit
digest. Both are exact in float64.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from partita.errors import DataError, RunError

Labels = dict[float, str]
SHORT = 6  # bytes that fit below 2^48, the first number of a digest


def label_number(word: str) -> float:
    """The number of a word.

    >>> label_number("A"), label_number("C") < label_number("red")
    (65.0, True)
    """
    raw = word.encode()
    if len(raw) <= SHORT:
        return float(int.from_bytes(raw, "big"))
    return float((int.from_bytes(blake2b(raw, digest_size=8).digest(), "big") >> 12) | 1 << 51)


def numbered(words: Sequence[str]) -> tuple[np.ndarray, Labels]:
    """A column of words as numbers, and what the numbers mean."""
    table = {word: label_number(word) for word in dict.fromkeys(words)}
    labels = {number: word for word, number in table.items()}
    if len(labels) < len(table):
        raise DataError("load: two words of one column have the same number; rename one of them.")
    return np.array([table[word] for word in words]), labels


def labels_from_json(value: dict[str, Any]) -> Labels:
    """Labels as a run's config has them: words by the numbers that stand for them."""
    try:
        labels = {float(number): word for number, word in value.items()}
    except ValueError:
        labels = {}
    if len(labels) < len(value) or not all(isinstance(word, str) for word in value.values()):
        raise RunError(
            "load: config.json: labels must be words by number; got others. Restore the file as "
            "partita wrote it."
        )
    return labels


def letters(sequences: Iterable[str], owner: str) -> tuple[np.ndarray, Labels]:
    """Aligned sequences as a table with one column for each place, and what its numbers mean.

    >>> letters(["AC-", "AG-"], "load")[0].tolist()
    [[65.0, 67.0, 45.0], [65.0, 71.0, 45.0]]
    """
    rows = list(sequences)
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{owner}: sequences must have one length, as those of an alignment have; got "
                f"{len(rows[0])} in row 0 and {len(row)} in row {number}. Align them first."
            )
    codes = (
        np.array([list(row) for row in rows])
        .view(np.uint32)
        .reshape(len(rows), -1)
        .astype(np.float64)
    )
    return codes, {float(code): chr(int(code)) for code in np.unique(codes)}
