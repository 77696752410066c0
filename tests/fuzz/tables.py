"""Tables of any shape, type and size: arrays, frames with columns of every sort, sparse ones,
tensors, lists, and none at all.
"""

import functools
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import torch
from hypothesis import strategies as st
from scipy import sparse
from tests.fuzz import junk

CELLS = (
    0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    3.0,
    1e308,
    -1e308,
    1e-308,
    1e20,
    float("nan"),
    float("inf"),
    255.0,
    2.0**53,
)
DTYPES = (
    "f8",
    "f4",
    "f2",
    "g",
    ">f8",
    "i1",
    "u2",
    "u8",
    "?",
    "c8",
    "O",
    "U5",
    "M8[D]",
    "m8[s]",
    "S3",
    "i4,f8",
)
SHAPES = ((0, 0), (0, 3), (3, 0), (1, 1), (1, 3), (2, 1), (5,), (2, 2, 2), (), (9, 3), (12, 4))
NAMES = ("", "a", "b", 1, 2.5, None, "é", ("a", 1), "a")


@st.composite
def nearly_fine(draw: st.DrawFn, width: int) -> np.ndarray:
    """A table of the right shape with a few odd cells, a constant column, or in odd units."""
    g, rows = np.random.default_rng(draw(st.integers(0, 3))), draw(st.sampled_from([12, 9, 2, 1]))
    x = (
        g.normal(size=(rows, width))
        if draw(st.booleans())
        else g.integers(0, draw(st.integers(1, 4)), (rows, width)).astype(float)
    )
    for _ in range(draw(st.integers(0, 2))):
        x[draw(st.integers(0, rows - 1)), draw(st.integers(0, width - 1))] = draw(
            st.sampled_from(CELLS)
        )
    if not draw(st.integers(0, 3)):
        x[:, draw(st.integers(0, width - 1))] = draw(st.sampled_from(CELLS))
    with np.errstate(all="ignore"):
        x = x * draw(st.sampled_from([1.0, 1.0, 1.0, 1e-300, 1e300, 1e-20, 1e20, 1e150]))
        return x.astype(draw(st.sampled_from(["f8", "f8", "f4", "f2", "O"])))


@st.composite
def odd_arrays(draw: st.DrawFn) -> np.ndarray:
    """An array of any shape and type."""
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
    size = int(np.prod(shape))
    cells = np.array(draw(st.lists(st.sampled_from(CELLS), min_size=size, max_size=size))).reshape(
        shape
    )
    with np.errstate(all="ignore"):
        return (
            np.nan_to_num(cells).astype("i8").astype(dtype)
            if dtype[:2] in ("M8", "m8")
            else cells.astype(dtype)
        )


@functools.cache
def sorts_of_columns() -> dict[str, Any]:
    """Columns of frames, twelve values each, of every sort that frames have."""
    days, words = pd.date_range("2020", periods=12), ["a", "b", "é"] * 4
    return {
        "real": np.linspace(0, 1, 12),
        "whole": pd.array([1, None, 3] * 4, dtype="Int64"),
        "word": words,
        "half": pd.Series(["\ud800", "a"] * 6, dtype=object),
        "arrow": pd.array([1] * 12, dtype="int64[pyarrow]"),
        "truth": pd.array([True, None] * 6, dtype="boolean"),
        "sparse": pd.arrays.SparseArray([0.0, 1.0] * 6),
        "string": pd.array(["a", None, ""] * 4, dtype="string"),
        "category": pd.Categorical(["x", None, "y"] * 4),
        "numbers": pd.Categorical([3, 1, 2] * 4, ordered=True),
        "date": days,
        "zoned": days.tz_localize("UTC"),
        "period": days.to_period("D"),
        "span": days - days[0],
        "interval": pd.interval_range(0, 12),
        "bytes": [b"x"] * 12,
        "lists": [[1], [2]] * 6,
        "objects": [{"a": 1}] * 12,
        "decimal": [Decimal("1.5")] * 12,
        "huge": [10**400] * 12,
        "complex": [1j] * 12,
        "none": [None] * 12,
        "several": [1, "x", None, 2.5] * 3,
    }


@st.composite
def frames(draw: st.DrawFn, width: int) -> Any:
    """A frame of columns of any sort, whose names may be the same."""
    width = draw(st.sampled_from([width, width, 1, 0, width + 1]))
    sorts = draw(
        st.lists(st.sampled_from(sorted(sorts_of_columns())), min_size=width, max_size=width)
    )
    frame = pd.DataFrame(
        {i: sorts_of_columns()[sort] for i, sort in enumerate(sorts)}, index=range(12)
    )
    if draw(st.booleans()):
        frame.columns = draw(st.lists(st.sampled_from(NAMES), min_size=width, max_size=width))
    try:
        return frame if draw(st.booleans()) else pl.from_pandas(frame)
    except Exception:  # what is none in polars
        return frame


@st.composite
def tables(draw: st.DrawFn, width: int) -> Any:
    """Anything that may be handed in as rows."""
    if not draw(st.integers(0, 4)):
        return draw(frames(width))
    x = draw(odd_arrays()) if not draw(st.integers(0, 5)) else draw(nearly_fine(width))
    how = draw(
        st.sampled_from(
            ["array"] * 9
            + [
                "list",
                "tensor",
                "pandas",
                "polars",
                "sparse",
                "masked",
                "other",
                "ragged",
                "objects",
            ]
        )
    )
    try:
        if how == "list":
            return x.tolist()
        if how == "tensor":
            return torch.from_numpy(x)
        if how == "pandas":
            return pd.DataFrame(
                x,
                columns=draw(
                    st.lists(st.sampled_from(NAMES), min_size=x.shape[1], max_size=x.shape[1])
                ),
            )
        if how == "polars":
            return pl.DataFrame(x)
        if how == "sparse":
            return sparse.csr_matrix(x)
        if how == "masked":
            return np.ma.masked_invalid(x)
    # what cannot be such a table is handed in as it is
    except (TypeError, ValueError, IndexError, pl.exceptions.PolarsError):
        return x
    if how == "ragged":
        return [[1, 2], [3], draw(st.sampled_from([[], None, "x", [1, 2, 3]]))]
    if how == "objects":
        x = x.astype(object)
        if x.size:
            x.flat[draw(st.integers(0, x.size - 1))] = draw(junk.values())
        return x
    return draw(junk.values()) if how == "other" else x
