"""Words as numbers: a number that depends on the word alone, so that two files agree on it without
having met.

Short words (up to six bytes) are their own bytes read as a whole number; longer ones a 52-bit
digest. Both are exact in float64.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

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
    labels: Labels = {}
    for word, number in table.items():
        check_distinct(labels, {number: word})
        labels[number] = word
    return np.array([table[word] for word in words]), labels


def label_of(value: float, labels: Labels) -> str:
    """The word that a number stands for, else the number itself.

    >>> label_of(65.0, {65.0: "A"}), label_of(2.5, {})
    ('A', '2.5')
    """
    return labels.get(value, f"{value:g}")


def check_distinct(labels: Labels, more: Labels) -> None:
    """No number stands for two words of one column."""
    if any(labels.get(number, word) != word for number, word in more.items()):
        raise DataError("load: two words of one column have the same number; rename one of them.")


def labels_to_json(labels: Labels) -> dict[str, str]:
    """Labels for a run's config."""
    return {f"{number:.0f}": word for number, word in labels.items()}


def labels_from_json(value: Mapping[str, object]) -> Labels:
    """Labels from a run's config."""
    try:
        labels = {float(number): word for number, word in value.items() if isinstance(word, str)}
    except ValueError:
        labels = {}
    if len(labels) < len(value):
        raise RunError(
            "load: config.json: labels must be words by number; got others. Restore the file as "
            "partita wrote it."
        )
    return labels
