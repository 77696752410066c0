"""Parts of the same data, one after the other, as one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.datasets.sequences import Sequences
from partita.runtime import memory_limit
from partita.tables.rows import Rows


def joined(parts: Sequence[Any]) -> Any:
    """Rows or sequences of all parts, read as those of the first are, in memory; weights are left
    out.

    >>> joined([Rows([[1.0], [2.0]]).take([1]), Rows([[3.0]])]).tensor().tolist()
    [[2.0], [3.0]]
    >>> joined([Sequences.of([[1, 2]]), Sequences.of([[3]])]).tensor().tolist()
    [[1.0, 2.0], [3.0, nan]]
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    needed = sum(4 * len(part) * part.width for part in parts)
    memory_limit.check_room("load", "all parts together", needed, "Score one part after the other.")
    return _sequences(parts) if isinstance(first, Sequences) else _rows(parts)


def _rows(parts: Sequence[Rows]) -> Rows:
    first = parts[0]
    values = np.concatenate([part.binarized(None).tensor().numpy() for part in parts])
    rows = Rows(
        values,
        None,
        first.binarize,
        scale=first.scale,
        columns=first.columns,
        missing=True,
        owner="load",
    )
    rows.labels, rows.schema = first.labels, first.schema
    return rows


def _sequences(parts: Sequence[Sequences]) -> Sequences:
    before = np.cumsum([0, *(len(part.stream) for part in parts)])
    starts = np.concatenate(
        [part.starts[:] + first for part, first in zip(parts, before, strict=False)]
    )
    stream, lengths = (
        np.concatenate([getattr(part, name)[:] for part in parts]) for name in ("stream", "lengths")
    )
    rows = Sequences(
        stream, starts, lengths, longest=max(part.longest for part in parts), owner="load"
    )
    rows.states = parts[0].states
    return rows
