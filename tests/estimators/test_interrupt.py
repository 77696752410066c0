"""Ctrl-C and SIGTERM in a fit: KeyboardInterrupt is raised, and the estimator is not fitted."""

import os
import signal
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from partita.bayes.regression import LogisticPosterior
from partita.errors import Diverged
from partita.estimators import ESTIMATORS, BayesianLogisticRegression, RBMDensity, load
from partita.training import Interrupted
from partita.training.session import Session

REGRESSIONS = ("BayesianLinearRegression", "BayesianLogisticRegression")  # fitted without a loop
FITTED_BY_STEPS = sorted(set(ESTIMATORS) - {*REGRESSIONS})
BITS = np.random.default_rng(0).integers(0, 2, (60, 6)).astype(float)
pytestmark = pytest.mark.filterwarnings("ignore::partita.errors.PartitaWarning")


def signaled_at(step: int, number: int, patch: pytest.MonkeyPatch) -> None:
    advance = Session.advance

    def pressed(self: Session) -> Any:
        if self.step == step:
            signal.raise_signal(number)
        return advance(self)

    patch.setattr(Session, "advance", pressed)


def assert_not_fitted(estimator: Any) -> None:
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)


@pytest.mark.skipif(os.name == "nt", reason="signals are sent in another way there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", FITTED_BY_STEPS)
def test_a_signal_in_a_fit_is_raised_and_leaves_no_half_fitted_estimator(
    name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator, handler = ESTIMATORS[name](random_state=0), signal.getsignal(number)
    signaled_at(1, number, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(BITS)
    assert_not_fitted(estimator)
    assert signal.getsignal(number) == handler


def test_a_fit_that_is_interrupted_does_not_leave_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    estimator = RBMDensity(epochs=1, random_state=0).fit(BITS)
    check_is_fitted(estimator)
    signaled_at(1, signal.SIGINT, monkeypatch)
    with pytest.raises(Interrupted, match=r"it has no folder \(out=\), so it cannot be resumed"):
        estimator.fit(BITS[:, :4])
    assert_not_fitted(estimator)


def test_a_fit_that_diverges_does_not_leave_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = RBMDensity(epochs=1, random_state=0).fit(BITS)

    def diverges(self: Session) -> Any:
        raise Diverged("a number stopped being finite.")

    monkeypatch.setattr(Session, "advance", diverges)
    with pytest.raises(Diverged):
        estimator.fit(BITS)
    assert_not_fitted(estimator)


def test_a_regression_that_is_interrupted_is_not_fitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """It draws after it has found its posterior."""
    y = BITS[:, 0].astype(int)
    estimator = BayesianLogisticRegression(random_state=0, n_draws=200).fit(BITS[:, 1:], y)
    check_is_fitted(load(estimator.save(tmp_path / "saved")))

    def pressed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(LogisticPosterior, "draw", pressed)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(BITS[:, 1:], y)
    assert_not_fitted(estimator)
