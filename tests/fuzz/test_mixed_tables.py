"""Mixed tables: columns of any sort, asked to be any other, and tables that are no longer as the
one that was fitted.
"""

import copy
import functools
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import junk, subjects
from tests.fuzz.cases import cases, only_named_errors
from tests.fuzz.tables import frames, nearly_fine, sorts_of_columns

MIXING = {
    "MixtureDensity": {"component": "mixed"},
    "VAEDensity": {"support": "mixed"},
    "AutoregressiveDensity": {"support": "mixed"},
}
KINDS = ("real", "binary", "count", "category", "ignore", "x", "", None, 3)
METHODS = (
    "score_samples",
    "impute",
    "anomaly_score",
    "evaluate",
    "predict",
    "transform",
    "partial_fit",
)
ASKED = st.one_of(
    st.none(),
    st.dictionaries(
        st.sampled_from(["a", "n", "w", "*", 0, "x"]), st.sampled_from(KINDS), max_size=3
    ),
    junk.values(huge=False),
)
names = st.sampled_from(sorted(MIXING))


def usual() -> pd.DataFrame:
    """A column of each sort."""
    return pd.DataFrame(
        {
            "a": np.arange(12.0) / 3,
            "n": [0, 3, 1] * 4,
            "w": pd.Categorical(["x", "y", "é"] * 4),
            "t": [True, False] * 6,
        }
    )


@functools.cache
def fitted(name: str) -> Any:
    return subjects.kind_of(name)(**{**subjects.quick(name), **MIXING[name]}).fit(usual())


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """The table with columns of other sorts, left out, renamed, doubled, added, in another order,
    or with gaps.
    """
    frame: Any = usual()
    for _ in range(draw(st.integers(1, 2))):
        what = draw(
            st.sampled_from(["sort", "sort", "gap", "leave out", "rename", "order", "add", "rows"])
        )
        place = draw(st.integers(0, 3))
        column = frame.columns[min(place, frame.shape[1] - 1)] if frame.shape[1] else "a"
        if what in ("sort", "add"):
            values = sorts_of_columns()[draw(st.sampled_from(sorted(sorts_of_columns())))]
            frame[column if what == "sort" else "more"] = pd.Series(values)[: len(frame)]
        elif what == "gap":
            at = frame.columns.get_indexer_for([column])[0]  # of several of that name one
            frame = frame.copy()
            frame.isetitem(at, frame.iloc[:, at].astype(object).where(frame.index % 3 > 0, None))
        elif what == "leave out":
            frame = frame.drop(columns=column, errors="ignore")
        elif what == "rename":
            frame = frame.rename(columns={column: draw(st.sampled_from(["w", "", "é", 1, None]))})
        elif what == "order":
            frame = frame[frame.columns[::-1]]
        else:
            frame = frame[: draw(st.sampled_from([0, 1, 5]))]
    return draw(forms(frame))


@st.composite
def forms(draw: st.DrawFn, frame: pd.DataFrame) -> Any:
    """A frame of pandas, or where there is such a one of polars, or an array."""
    try:
        return draw(
            st.sampled_from(
                [lambda: frame, lambda: frame, lambda: pl.from_pandas(frame), frame.to_numpy]
            )
        )()
    except Exception:
        return frame


@cases(0.03)
@given(names, st.one_of(frames(4), nearly_fine(4), changed()), ASKED)
def test_fits(name: str, X: Any, columns: Any) -> None:
    """What was fitted fills gaps and is drawn from as a table like that one."""
    with only_named_errors():
        estimator = subjects.kind_of(name)(
            **{**subjects.quick(name), **MIXING[name], "columns": columns}
        ).fit(X)
        assert len(estimator.sample(2)) == 2
        estimator.score_samples(X)


@cases(0.03)
@given(names, changed(), st.sampled_from(METHODS))
def test_tables_that_changed(name: str, X: Any, method: str) -> None:
    if not hasattr(fitted(name), method):
        return
    with only_named_errors():
        getattr(copy.deepcopy(fitted(name)), method)(X)
