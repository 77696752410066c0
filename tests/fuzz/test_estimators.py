"""Estimators: rows of any shape, type and size, and settings of any sort, give a result or an error of partita's."""

import copy
import functools
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from tests.fuzz import junk, subjects
from tests.fuzz.cases import cases, only_named_errors

EFFORT = {"epochs", "max_iter", "sweeps", "k", "critic_steps", "n_draws", "draws", "samples", "n_init", "max_components", "chains",
          "n_prototypes"}  # fmt: skip
MINUTES = (-1, 0, float("nan"), float("inf"), "x", [], True, 1e-9)  # more of them would be taken
SLOW = ("sandwich", "bridge", "ais", "reverse-ais")  # as evaluators: good, and not quick
CELLS = (0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 1e308, -1e308, 1e-308, 1e20, float("nan"), float("inf"), 255.0, 2.0**53)
DTYPES = ("f8", "f4", "f2", "g", ">f8", "i1", "u2", "u8", "?", "c8", "O", "U5", "M8[D]", "m8[s]", "S3", "i4,f8")
SHAPES = ((0, 0), (0, 3), (3, 0), (1, 1), (1, 3), (2, 1), (5,), (2, 2, 2), (), (9, 3), (12, 4))
NAMES = ("", "a", "b", 1, 2.5, None, "é", ("a", 1), "a")
METHODS = ("score_samples", "score", "evaluate", "transform", "predict", "predict_proba", "impute", "anomaly_score", "sample", "bic",
           "predict_interval", "partial_fit")  # fmt: skip


@st.composite
def nearly_fine(draw: st.DrawFn, width: int) -> np.ndarray:
    """A table of the right shape with a few odd cells, a constant column, or in odd units."""
    g, rows = np.random.default_rng(draw(st.integers(0, 3))), draw(st.sampled_from([12, 9, 2, 1]))
    x = g.normal(size=(rows, width)) if draw(st.booleans()) else g.integers(0, draw(st.integers(1, 4)), (rows, width)).astype(float)
    for _ in range(draw(st.integers(0, 2))):
        x[draw(st.integers(0, rows - 1)), draw(st.integers(0, width - 1))] = draw(st.sampled_from(CELLS))
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
    cells = np.array(draw(st.lists(st.sampled_from(CELLS), min_size=size, max_size=size))).reshape(shape)
    with np.errstate(all="ignore"):
        return np.nan_to_num(cells).astype("i8").astype(dtype) if dtype[:2] in ("M8", "m8") else cells.astype(dtype)


@functools.cache
def sorts_of_columns() -> dict[str, Any]:
    """Columns of frames, twelve values each, of every sort that frames have."""
    days, words = pd.date_range("2020", periods=12), ["a", "b", "é"] * 4
    return {
        "real": np.linspace(0, 1, 12), "whole": pd.array([1, None, 3] * 4, dtype="Int64"), "word": words,
        "half": pd.Series(["\ud800", "a"] * 6, dtype=object),
        "arrow": pd.array([1] * 12, dtype="int64[pyarrow]"), "truth": pd.array([True, None] * 6, dtype="boolean"),
        "sparse": pd.arrays.SparseArray([0.0, 1.0] * 6), "string": pd.array(["a", None, ""] * 4, dtype="string"),
        "category": pd.Categorical(["x", None, "y"] * 4), "numbers": pd.Categorical([3, 1, 2] * 4, ordered=True), "date": days,
        "zoned": days.tz_localize("UTC"), "period": days.to_period("D"), "span": days - days[0],
        "interval": pd.interval_range(0, 12), "bytes": [b"x"] * 12, "lists": [[1], [2]] * 6,
        "objects": [{"a": 1}] * 12, "decimal": [Decimal("1.5")] * 12, "huge": [10**400] * 12, "complex": [1j] * 12, "none": [None] * 12,
        "several": [1, "x", None, 2.5] * 3,
    }  # fmt: skip


@st.composite
def frames(draw: st.DrawFn, width: int) -> Any:
    """A frame of columns of any sort, whose names may be the same."""
    width = draw(st.sampled_from([width, width, 1, 0, width + 1]))
    sorts = draw(st.lists(st.sampled_from(sorted(sorts_of_columns())), min_size=width, max_size=width))
    frame = pd.DataFrame({i: sorts_of_columns()[sort] for i, sort in enumerate(sorts)}, index=range(12))
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
    how = draw(st.sampled_from(["array"] * 9 + ["list", "tensor", "pandas", "polars", "sparse", "masked", "other", "ragged", "objects"]))
    try:
        if how == "list":
            return x.tolist()
        if how == "tensor":
            return torch.from_numpy(x)
        if how == "pandas":
            return pd.DataFrame(x, columns=draw(st.lists(st.sampled_from(NAMES), min_size=x.shape[1], max_size=x.shape[1])))
        if how == "polars":
            return pl.DataFrame(x)
        if how == "sparse":
            return sparse.csr_matrix(x)
        if how == "masked":
            return np.ma.masked_invalid(x)
    except (TypeError, ValueError, IndexError, pl.exceptions.PolarsError):  # what cannot be such a table is handed in as it is
        return x
    if how == "ragged":
        return [[1, 2], [3], draw(st.sampled_from([[], None, "x", [1, 2, 3]]))]
    if how == "objects":
        x = x.astype(object)
        if x.size:
            x.flat[draw(st.integers(0, x.size - 1))] = draw(junk.values())
        return x
    return draw(junk.values()) if how == "other" else x


@st.composite
def settings_of(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Quick settings of which one or two are odd, or those of another."""
    chosen = subjects.quick(name)
    for parameter in draw(st.lists(st.sampled_from(subjects.parameters_of(name)), min_size=1, max_size=2)):
        odd = junk.values(huge=parameter not in EFFORT).filter(lambda value: value is not None)  # the usual number of epochs takes long
        words = st.sampled_from([word for word in subjects.words_of(name) if word not in SLOW] or ["x"])
        chosen[parameter] = draw(st.sampled_from(MINUTES) if parameter == "max_minutes" else st.one_of(odd, odd, words))
    return chosen


names = st.sampled_from(subjects.NAMES)


def fit(name: str, settings: dict[str, Any], X: Any, y: Any, **more: Any) -> None:
    with only_named_errors():
        estimator = subjects.kind_of(name)(**settings)
        estimator.fit(X, y, **more) if name.startswith("Bayes") else estimator.fit(X, **more)


@cases(0.09)
@given(names.flatmap(lambda name: st.tuples(st.just(name), settings_of(name))))
def test_settings(case: tuple[str, dict[str, Any]]) -> None:
    fit(*case, *subjects.rows(case[0]))


@cases(0.06)
@given(names.flatmap(lambda n: st.tuples(st.just(n), tables(subjects.rows(n)[0].shape[1]))), st.data())
def test_rows(case: tuple[str, Any], data: st.DataObject) -> None:
    name, X = case
    usual, y = subjects.rows(name)
    weighs = name != "PrototypeEncoder" and not data.draw(st.integers(0, 3))
    weight = st.one_of(junk.values(huge=False), st.lists(st.sampled_from(CELLS), min_size=len(usual), max_size=len(usual)))
    more = {"sample_weight": data.draw(weight)} if weighs else {}
    y = y[: len(X)] if isinstance(X, np.ndarray) and X.ndim else y
    target = data.draw(odd_arrays()) if name.startswith("Bayes") and data.draw(st.booleans()) else y
    fit(name, subjects.quick(name), usual if weighs else X, target, **more)


@cases(0.06)
@given(names.flatmap(lambda n: st.tuples(st.just(n), tables(subjects.rows(n)[0].shape[1]))), st.sampled_from(METHODS), st.data())
def test_what_was_fitted(case: tuple[str, Any], method: str, data: st.DataObject) -> None:
    name, X = case
    estimator = subjects.fitted(name)
    if not hasattr(estimator, method) or (method == "score" and name.startswith("Bayes")):  # the latter is scikit-learn's own
        return
    with only_named_errors():
        if method == "sample":
            estimator.sample(data.draw(junk.values()), random_state=data.draw(junk.values()))
        elif method == "impute":
            estimator.impute(X, how=data.draw(st.sampled_from(["auto", "auto", "mean", "mode", "draw", *junk.TEXTS])))
        elif method == "predict_interval":
            estimator.predict_interval(X, data.draw(junk.values()))
        elif method == "partial_fit":
            copy.deepcopy(estimator).partial_fit(X)
        else:
            getattr(estimator, method)(X)
