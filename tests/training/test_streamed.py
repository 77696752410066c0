"""Models with sufficient statistics on tables that stay on disk: the fit of the table in memory,
with every row read once an iteration.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.bayes.quadrature import CASES as PAIRS

import partita
from partita.bayes.conjugate import Conjugate
from partita.core.support import Binary
from partita.estimators import BayesianLinearRegression, MixtureDensity
from partita.experiment.experiment import encoded_parts
from partita.models import PPCA, MaxEnt, Mixture, MixturePPCA
from partita.objectives import EM, ClosedForm, ExactLikelihood, OnlineEM
from partita.tables import Rows, on_disk
from partita.tables.encoding import Encoding, Kind
from partita.tables.files import array_table
from partita.tables.on_disk import OnDisk, gather_rows
from partita.tables.schema import Law

ROWS = 400
LAWS: tuple[Law, ...] = ("real", "binary", "count", 3)


def columns(kind: str) -> np.ndarray:
    g = np.random.default_rng(1)
    high = g.random((ROWS, 1)) < 0.4
    return {
        "real": lambda: g.normal(size=(ROWS, 4)) @ g.normal(size=(4, 4)) + 3 * high,
        "binary": lambda: (g.random((ROWS, 4)) < np.where(high, 0.8, 0.3)).astype(float),
        "count": lambda: g.poisson(np.where(high, 9, 2), (ROWS, 4)).astype(float),
        "category": lambda: (g.integers(0, 2, (ROWS, 4)) + high).astype(float),
        "mixed": lambda: np.column_stack(
            [
                g.normal(size=ROWS) + 3 * high[:, 0],
                high[:, 0],
                g.poisson(3, ROWS),
                g.integers(0, 3, ROWS),
            ]
        ),
    }[kind]().astype(np.float64)


def gappy(x: np.ndarray) -> np.ndarray:
    x, gaps = x.copy(), np.random.default_rng(2).random(x.shape) < 0.1
    gaps[np.arange(ROWS), np.arange(ROWS) % x.shape[1]] = False
    x[gaps] = np.nan
    return x


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a table on disk; it and all others are read some rows at a time from then on."""

    def store(x: np.ndarray) -> OnDisk:
        monkeypatch.setattr(on_disk, "IN_MEMORY", 0)
        monkeypatch.setattr("partita.tables.arrays.CHUNK", 4 * 37)
        table = gather_rows(iter([x]), (x.shape[0], x.shape[1]), x.dtype)
        assert isinstance(table, OnDisk)
        return table

    return store


MODELS: dict[str, tuple[Any, Any, str]] = {
    "gaussian": (lambda g: Mixture(2, 4, generator=g), EM(), "real"),
    "tied": (
        lambda g: Mixture(2, 4, covariance="tied", generator=g),
        EM(restarts=2, trial=2),
        "real",
    ),
    "diagonal": (lambda g: Mixture(2, 4, covariance="diagonal", generator=g), EM(), "real"),
    "bernoulli": (lambda g: Mixture(2, 4, "bernoulli", generator=g), EM(), "binary"),
    "poisson": (lambda g: Mixture(2, 4, "poisson", generator=g), EM(), "count"),
    "categorical": (
        lambda g: Mixture(2, 4, "categorical", states=3, generator=g),
        EM(),
        "category",
    ),
    "mixed": (lambda g: Mixture(2, 4, "mixed", laws=LAWS, generator=g), EM(), "mixed"),
    "ppca": (lambda g: PPCA(4, 2, generator=g), EM(), "real"),
    "ard": (lambda g: PPCA(4, 3, prior="ard", generator=g), EM(), "real"),
    "factor analysis": (lambda g: PPCA(4, 1, noise="diagonal", generator=g), EM(), "real"),
    "mixture-ppca": (lambda g: MixturePPCA(2, 4, 1, generator=g), EM(), "real"),
    "closed form": (lambda g: PPCA(4, 2, generator=g), ClosedForm(), "real"),
    "online": (lambda g: Mixture(2, 4, generator=g), OnlineEM(batch=50), "real"),
}


COMPLETE = ("closed form", True)  # which takes complete rows


def fitted(name: str, data: Any) -> Any:
    make, objective, _ = MODELS[name]
    g = torch.Generator().manual_seed(3)
    model = make(g)
    options = {} if name == "closed form" else {"epochs": 6, "tolerance": 0.0}
    partita.fit(model, Rows(data, missing=True), objective, generator=g, **options)
    return model


@pytest.mark.filterwarnings("ignore::partita.training.PartitaWarning")
@pytest.mark.parametrize(
    ("name", "gaps"),
    [(name, gaps) for name in MODELS for gaps in (False, True) if (name, gaps) != COMPLETE],
)
def test_a_streamed_fit_is_the_fit_in_memory(name: str, gaps: bool, stored: Any) -> None:
    x = columns(MODELS[name][2])
    x = gappy(x) if gaps else x
    whole = fitted(name, x)
    streamed = fitted(name, stored(x))
    for (parameter, a), b in zip(
        whole.state_dict().items(), streamed.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(
            b, a, rtol=1e-8, atol=1e-8, msg=lambda text, parameter=parameter: f"{parameter}: {text}"
        )


@pytest.mark.parametrize("name", ["gaussian", "mixed", "ppca", "mixture-ppca"])
def test_an_iteration_reads_every_row_once(
    name: str, stored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, g, read = Rows(stored(columns(MODELS[name][2]))), torch.Generator().manual_seed(0), []
    model = MODELS[name][0](g)
    model.initialize(rows, generator=g)
    state = EM().init(model, rows, generator=g)
    between = OnDisk._between
    monkeypatch.setattr(
        OnDisk,
        "_between",
        lambda self, start, stop: read.append((start, stop)) or between(self, start, stop),
    )
    EM().update(model, rows, state, generator=g)
    assert len(read) > 5 and sorted(
        row for start, stop in read for row in range(start, stop)
    ) == list(range(ROWS))


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.name)
def test_a_conjugate_pair_takes_in_rows_from_disk(case: Any, stored: Any) -> None:
    data = np.asarray(case.data, dtype=np.float64)
    table = np.tile(data.reshape(len(data), -1), (40, 1))
    pair: Conjugate = case.pair
    given, weight = np.tile(data, (40, *[1] * (data.ndim - 1))), np.arange(1.0, len(table) + 1)
    whole, heavy = pair.update(given), pair.update(given, weight)
    rows = Rows(stored(table))
    for expected, seen in ((whole, pair.update(rows)), (heavy, pair.update(rows, weight))):
        for name in (*expected.constraints, "log_evidence"):
            torch.testing.assert_close(
                getattr(seen, name), getattr(expected, name), rtol=1e-9, atol=1e-9
            )


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("category", "category"),
        ("mixed", "mixed"),
        ("median", "real"),
        ("quantile", "real"),
        ("real", "real"),
    ],
)
def test_rows_are_encoded_on_their_way_from_disk(kind: Kind, source: str, stored: Any) -> None:
    x = columns(source) if kind in ("median", "quantile") else gappy(columns(source))
    _, _, schema = array_table(x, {"x4": "category"} if source == "mixed" else None, "fit")
    here = Rows(x, missing=True)
    here.schema = schema
    encoding = Encoding.fit(here, kind)
    there = Rows(stored(x), missing=True)
    there.schema = schema
    found = Encoding.fit(there, kind)
    assert found.lists == encoding.lists
    np.testing.assert_allclose(found.shift, encoding.shift, rtol=1e-12)
    a, b = encoding.rows(here), encoding.rows(there)
    assert isinstance(b.array, OnDisk) and (a.states, a.laws, a.dtype) == (
        b.states,
        b.laws,
        b.dtype,
    )
    torch.testing.assert_close(b.tensor(), a.tensor(), rtol=0, atol=0, equal_nan=True)


def test_an_exact_fit_of_a_table_that_no_batch_should_hold_ends_where_the_fit_of_all_rows_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within a fifth of the error that 8,000 rows leave in the mean log-likelihood: 21 weights cost
    21 / 16,000 = 0.0013 nats.
    """
    g = np.random.default_rng(4)
    x = (g.random((8000, 6)) < [0.1, 0.3, 0.5, 0.7, 0.9, 0.4]).astype(np.float64)
    x[:, 1] = np.where(g.random(8000) < 0.8, x[:, 0], x[:, 1])

    def fit() -> tuple[Any, float]:
        generator = torch.Generator().manual_seed(0)
        model = MaxEnt("pairwise", Binary(6), generator=generator).double()
        run = partita.fit(model, x, ExactLikelihood(), epochs=80, generator=generator)
        return run, partita.evaluate(run.model, x, generator=generator).value

    whole, best = fit()
    monkeypatch.setattr("partita.training.settings.FULL_BATCH", 6 * 7999)
    parts, value = fit()
    assert (whole.config["fit"]["batch_size"], parts.config["fit"]["batch_size"]) == (0, 1000)
    assert 0 <= best - value < 0.0013 / 5


@pytest.mark.parametrize("ridge", ["auto", 2.0])
def test_a_regression_by_parts_is_that_of_all_rows(ridge: Any) -> None:
    g = np.random.default_rng(0)
    X = g.normal(size=(120, 3)) * [1, 100, 0.01] + [5, -40, 0]
    y, weight = X @ [1.0, 0.02, 30.0] + 7 + 0.5 * g.normal(size=120), g.integers(0, 3, 120)
    whole = BayesianLinearRegression(ridge).fit(X, y, weight)
    parts = BayesianLinearRegression(ridge)
    for part in (slice(0, 40), slice(40, 41), slice(41, 120)):
        parts.partial_fit(X[part], y[part], weight[part])
    after = (
        BayesianLinearRegression(ridge)
        .fit(X[:50], y[:50], weight[:50])
        .partial_fit(X[50:], y[50:], weight[50:])
    )
    for other in (parts, after):
        for name in ("coef_", "intercept_", "noise_std_", "log_evidence_", "ridge_"):
            np.testing.assert_allclose(getattr(other, name), getattr(whole, name), rtol=1e-6)
        np.testing.assert_allclose(other.predict_interval(X), whole.predict_interval(X), rtol=1e-6)


def test_an_estimator_takes_in_parts_of_a_table_on_disk(stored: Any) -> None:
    """The mean score of parts learned from once, against that of all rows learned from until it
    settles.
    """
    x = np.tile(columns("real"), (5, 1)) + np.random.default_rng(3).normal(size=(5 * ROWS, 4)) * 0.1
    table, online = stored(x), MixtureDensity(2, random_state=0)
    for start in range(0, len(table), 100):
        online.partial_fit(table[start : start + 100])
    assert online.score(x) > MixtureDensity(2, random_state=0).fit(x).score(x) - 0.1


@pytest.mark.parametrize("many", [False, True])
def test_rows_are_held_out_alike_in_memory_and_on_disk(
    many: bool, stored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very many rows without a list of them; else a run would be scored on rows that it learned
    from.
    """
    for module in ("partita.datasets.named", "partita.core.rng") if many else ():
        monkeypatch.setattr(f"{module}.MOST_LISTED", 100)
    x = columns("real")
    np.save(tmp_path / "x.npy", x)
    here = partita.datasets.load(tmp_path / "x.npy")
    stored(x)
    data = partita.datasets.load(tmp_path / "x.npy")
    assert here.test is not None and data.test is not None and isinstance(data.train.array, OnDisk)
    assert isinstance(data.train._selected, np.ndarray) != many
    np.testing.assert_array_equal(data.test.tensor(), here.test.tensor())
    assert_same_rows(x, data.train, data.test)
    assert (len(data.train), len(data.test)) == (320, 80)
    train, validation = encoded_parts(data, Encoding.fit(data.train, "raw"), seed=0)
    assert validation is not None and (len(train), len(validation)) == (288, 32)
    assert_same_rows(data.train.tensor().numpy(), train, validation)
    np.testing.assert_array_equal(train.take([3, -1]).tensor(), train.tensor()[[3, -1]])
    np.testing.assert_allclose(train.mean(), train.tensor().double().mean(0))


def assert_same_rows(x: np.ndarray, *parts: Rows) -> None:
    """Each row of a table is in one of the parts."""
    both = np.concatenate([part.tensor().numpy() for part in parts])
    np.testing.assert_array_equal(both[np.lexsort(both.T)], x[np.lexsort(x.T)])
