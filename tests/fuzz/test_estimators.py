"""Estimators: rows of any shape, type and size, and settings of any sort, give a result or an error
of partita's.
"""

import contextlib
import copy
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import junk, subjects
from tests.fuzz.audit import scratch
from tests.fuzz.cases import cases, only_named_errors
from tests.fuzz.tables import CELLS, odd_arrays, tables

EFFORT = {
    "epochs",
    "max_iter",
    "sweeps",
    "k",
    "critic_steps",
    "n_draws",
    "draws",
    "samples",
    "n_init",
    "max_components",
    "chains",
    "n_prototypes",
}
MINUTES = (-1, 0, float("nan"), float("inf"), "x", [], True, 1e-9)  # more of them would be taken
SLOW = ("sandwich", "bridge", "ais", "reverse-ais")  # as evaluators: good, and not quick
METHODS = (
    "score_samples",
    "score",
    "evaluate",
    "transform",
    "inverse_transform",
    "predict",
    "predict_proba",
    "decision_function",
    "anomaly_score",
    "bic",
    "fit_predict",
    "fit_transform",
    "impute",
    "sample",
    "predict_interval",
    "partial_fit",
    "log_density",
    "knn_score",
    "probe_score",
    "report",
    "save",
)
TARGETED = ("partial_fit", "log_density", "knn_score", "probe_score")  # methods that take y


@st.composite
def settings_of(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Quick settings of which one or two are odd, or those of another."""
    chosen = subjects.quick(name)
    for parameter in draw(
        st.lists(st.sampled_from(subjects.parameters_of(name)), min_size=1, max_size=2)
    ):
        # the usual number of epochs takes long
        odd = junk.values(huge=parameter not in EFFORT).filter(lambda value: value is not None)
        words = st.sampled_from(
            [word for word in subjects.words_of(name) if word not in SLOW] or ["x"]
        )
        chosen[parameter] = draw(
            st.sampled_from(MINUTES) if parameter == "max_minutes" else st.one_of(odd, odd, words)
        )
    return chosen


names = st.sampled_from(subjects.NAMES)


def fit(name: str, settings: dict[str, Any], X: Any, y: Any, **more: Any) -> None:
    with only_named_errors():
        estimator = subjects.kind_of(name)(**settings)
        estimator.fit(X, y, **more) if name.startswith("Bayes") else estimator.fit(X, **more)


@cases(0.06)
@given(names.flatmap(lambda name: st.tuples(st.just(name), settings_of(name))))
def test_settings(case: tuple[str, dict[str, Any]]) -> None:
    fit(*case, *subjects.rows(case[0]))


@cases(0.05)
@given(
    names.flatmap(lambda n: st.tuples(st.just(n), tables(subjects.rows(n)[0].shape[1]))), st.data()
)
def test_rows(case: tuple[str, Any], data: st.DataObject) -> None:
    name, X = case
    usual, y = subjects.rows(name)
    weighs = name != "PrototypeEncoder" and not data.draw(st.integers(0, 3))
    weight = st.one_of(
        junk.values(huge=False),
        st.lists(st.sampled_from(CELLS), min_size=len(usual), max_size=len(usual)),
    )
    more = {"sample_weight": data.draw(weight)} if weighs else {}
    y = y[: len(X)] if isinstance(X, np.ndarray) and X.ndim else y
    target = data.draw(odd_arrays()) if name.startswith("Bayes") and data.draw(st.booleans()) else y
    fit(name, subjects.quick(name), usual if weighs else X, target, **more)


@cases(0.06)
@given(
    names.flatmap(lambda n: st.tuples(st.just(n), tables(subjects.rows(n)[0].shape[1]))),
    st.sampled_from(METHODS),
    st.data(),
)
def test_what_was_fitted(case: tuple[str, Any], method: str, data: st.DataObject) -> None:
    name, X = case
    # the latter is scikit-learn's own
    if not hasattr(subjects.fitted(name), method) or (
        method == "score" and name.startswith("Bayes")
    ):
        return
    estimator, given = copy.deepcopy(subjects.fitted(name)), data.draw(arguments(name, method, X))
    with scratch() as place, contextlib.chdir(place), only_named_errors():
        getattr(estimator, method)(**given)


@st.composite
def arguments(draw: st.DrawFn, name: str, method: str, X: Any) -> dict[str, Any]:
    """What a method takes: rows of any sort, and whatever goes with them."""
    odd = junk.values()
    path = st.one_of(
        junk.values().filter(lambda value: value is not junk.OUTSIDE),
        st.just("run"),
        st.just("no/run"),
    )
    if method == "sample":
        return {"n_samples": draw(odd), "random_state": draw(odd)}
    if method == "save":
        return {"path": draw(path)}
    target = st.one_of(odd_arrays(), junk.values(huge=False), st.just(subjects.rows(name)[1]))
    more: dict[str, Any] = {
        "impute": {"how": st.sampled_from(["auto", "auto", "mean", "mode", "draw", *junk.TEXTS])},
        "predict_interval": {"level": odd},
        "report": {"path": path},
        **{targeted: {"y": target} for targeted in TARGETED},
    }
    return {"X": X, **{key: draw(value) for key, value in more.get(method, {}).items()}}
