"""Training and validation sets, the same for the same seed, and a fingerprint of their rows."""

import hashlib

import numpy as np

from partita.core import rng
from partita.core.checks import check_count
from partita.datasets import Dataset
from partita.tables import Encoding, Rows

VALIDATION_FRACTION = 0.1
MOST_TO_VALIDATE = 20_000  # rows; more tell weights apart no better, and are held in memory
LEAST_TO_VALIDATE = 10  # rows; fewer do not tell which weights are better
ROWS_TO_KNOW = 4096  # of each part, by which data are known again


def fingerprint(dataset: Dataset) -> str:
    """A word that other rows would hardly have: of some thousand rows of each part, spread over it.

    >>> fingerprint(Dataset("a", Rows([[1.0, 2.0]]))) == fingerprint(
    ...     Dataset("b", Rows([[1.0, 2.5]]))
    ... )
    False
    """
    digest = hashlib.blake2b(digest_size=8)
    for rows in (dataset.train, dataset.valid, dataset.test):
        if rows is not None:
            some = spread(rows, ROWS_TO_KNOW).tensor(rng.keyed(0))
            digest.update(f"{len(rows)} x {rows.width}".encode())
            digest.update(some.contiguous().numpy().tobytes())
    return digest.hexdigest()


def spread(rows: Rows, most: int) -> Rows:
    """At most so many rows, spread over all of them."""
    return rows.take(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))


def encoded_parts(
    dataset: Dataset, encoding: Encoding, seed: int, fraction: float = VALIDATION_FRACTION
) -> tuple[Rows, Rows | None]:
    """The encoded training set and validation set.

    The data's own validation set is used where there is one. Else a fraction of the training set is
    held out, at most ``MOST_TO_VALIDATE`` rows, where that makes at least ``LEAST_TO_VALIDATE``.
    """
    check_count("fit", "seed", seed, 0)
    train = encoding.rows(dataset.train)
    if dataset.valid is not None:
        return train, encoding.rows(dataset.valid)
    count = min(MOST_TO_VALIDATE, int(fraction * len(train)))
    if count < LEAST_TO_VALIDATE:
        return train, None
    if len(train) > rng.MOST_LISTED:
        every = len(train) // count
        validation, others = train.one_in(every, rng.keyed(seed, len(train)).initial_seed())
        return others, validation
    order = rng.permutation(len(train), rng.keyed(seed, len(train)))
    return train.take(order[count:].sort().values), train.take(order[:count].sort().values)
