"""Estimators of frames with columns of different sorts: types in, types out, saving, pipelines."""

import itertools
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from partita.errors import DataError, InputError, PartitaWarning
from partita.estimators import AutoregressiveDensity, MixtureDensity, PPCADensity, VAEDensity, load


def frame(n: int = 120, gaps: bool = True) -> pd.DataFrame:
    g = np.random.default_rng(0)
    k = g.integers(0, 2, n)
    made = pd.DataFrame(
        {
            "height": g.normal(8.0 * k, 1.0),
            "glad": pd.Series(g.random(n) < 0.2 + 0.6 * k, dtype="boolean"),
            "visits": pd.Series(g.poisson(1 + 9 * k), dtype="Int16"),
            "town": pd.Categorical.from_codes(k, ["Rome", "Oslo"]),
        }
    )
    return made.mask(np.random.default_rng(1).random(made.shape) < 0.1) if gaps else made


POISSON = {"visits": "count"}  # as they are, given the town
ESTIMATORS: dict[str, Any] = {
    "mixture": lambda: MixtureDensity(2, "mixed", columns=POISSON, random_state=0),
    "vae": lambda: VAEDensity(
        1, support="mixed", epochs=2, n_draws=10, columns=POISSON, random_state=0
    ),
    "autoregressive": lambda: AutoregressiveDensity(
        support="mixed", epochs=2, columns=POISSON, random_state=0
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_frames_go_in_and_come_out(name: str, tmp_path: Path) -> None:
    X = frame(gaps=name != "autoregressive")
    model = ESTIMATORS[name]().fit(X)
    assert [column.kind for column in model.schema_.columns] == [
        "real",
        "binary",
        "count",
        "category",
    ]
    assert list(model.feature_names_in_) == list(X.columns) and model.n_features_in_ == 4
    drawn = model.sample(7)
    assert [str(kind) for kind in drawn.dtypes] == ["float64", "bool", "int16", "category"] and set(
        drawn["town"]
    ) <= {"Rome", "Oslo"}
    turned = X[["town", "visits", "glad", "height"]]
    assert model.score(turned) == model.score(X) and np.isfinite(model.score_samples(X)).all()
    model.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.score(X) == model.score(X) and again.sample(3).equals(model.sample(3))
    assert pickle.loads(pickle.dumps(model)).score(X) == model.score(X)
    assert clone(model).get_params() == model.get_params()


def test_kinds_that_were_asked_for_and_the_sort_of_frame_are_saved(tmp_path: Path) -> None:
    model = MixtureDensity(1, "mixed", columns={"visits": "real"}, random_state=0).fit(
        pl.from_pandas(frame(gaps=False))
    )
    model.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.get_params() == model.get_params() and again.schema_ == model.schema_
    assert isinstance(again.sample(3), pl.DataFrame) and again.sample(3).equals(model.sample(3))


@pytest.mark.parametrize("name", ["mixture", "vae"])
def test_gaps_are_filled_and_nothing_else_changes(name: str) -> None:
    X = frame().set_index(np.arange(120) + 7)
    model = ESTIMATORS[name]().fit(X)
    filled = model.impute(X)
    assert (
        (filled.dtypes == X.dtypes).all()
        and not filled.isna().any().any()
        and filled.index.equals(X.index)
    )
    assert all((filled[column][X[column].notna()] == X[column].dropna()).all() for column in X)
    P = pl.from_pandas(X)
    assert (
        model.impute(P).schema == P.schema
        and model.impute(P).null_count().sum_horizontal().item() == 0
    )
    with pytest.raises(
        InputError, match=r"how must be 'auto' .* or 'draw' for mixed columns; got 'mean'"
    ):
        model.impute(X, how="mean")


def test_columns_of_which_nothing_is_there_get_the_types_of_the_fit() -> None:
    X = frame(gaps=False)
    model = ESTIMATORS["mixture"]().fit(X)
    for nothing in (None, np.nan, pd.NA):
        filled = model.impute(X.assign(town=nothing, glad=None))
        assert set(filled["town"]) == {"Rome", "Oslo"} and filled["glad"].dtype == bool
    assert set(model.impute(X.assign(town=pd.Categorical([None] * 120)))["town"]) == {
        "Rome",
        "Oslo",
    }
    filled = model.impute(pl.from_pandas(X).with_columns(town=None, visits=None))
    assert set(filled["town"]) == {"Rome", "Oslo"} and filled.schema["visits"] == pl.Int16


def test_frames_keep_their_own_types_and_labels() -> None:
    """Whole numbers where the fit had others are filled with whole ones; labels of pandas may be
    numbers.
    """
    X, gap = frame(gaps=False), np.arange(120) % 3 == 0
    model = ESTIMATORS["mixture"]().fit(X)
    whole = X.assign(height=X["height"].round().astype("Int64").mask(gap))
    filled = model.impute(whole)
    assert (
        filled["height"].dtype == "Int64"
        and (filled["height"][~gap] == whole["height"][~gap]).all()
    )
    exact = model.impute(X.assign(height=X["height"].round().mask(gap)))["height"]
    assert (filled["height"][gap] == exact[gap].round()).all()
    numbered = X.mask(gap[:, None] & [[True, False, True, False]]).set_axis(range(4), axis=1)
    again = MixtureDensity(2, "mixed", random_state=0).fit(numbered).impute(numbered)
    assert list(again.columns) == [0, 1, 2, 3] and not again.isna().any(axis=None)
    with pytest.raises(DataError, match="columns must have different names; got 'height' twice"):
        ESTIMATORS["mixture"]().fit(pd.concat([X, X[["height"]]], axis=1))


@pytest.mark.parametrize("name", ["mixture", "autoregressive"])
def test_all_rows_together_have_probability_one(name: str) -> None:
    """Masses of all truth values, counts up to 79 and words, integrated over heights by the
    trapezium rule, which is exact to 1e-9 on a grid this fine; a column with one word in it is
    certain and costs nothing.
    """
    X = frame(gaps=False).assign(land="Chile", height=lambda x: 1000 * x["height"])
    model = ESTIMATORS[name]().fit(X)
    grid = np.linspace(-60_000, 70_000, 261)
    cells = list(itertools.product([False, True], range(80), ["Rome", "Oslo"], grid))
    rows = pd.DataFrame(cells, columns=["glad", "visits", "town", "height"]).assign(land="Chile")
    assert np.exp(model.score_samples(rows)).sum() * (grid[1] - grid[0]) == pytest.approx(
        1.0, abs=1e-6
    )


def test_polars_frames_are_answered_in_polars() -> None:
    P = pl.from_pandas(frame())
    model = ESTIMATORS["mixture"]().fit(P)
    assert (
        model.sample(2).schema.names() == P.schema.names()
        and model.sample(2).schema["visits"] == pl.Int16
    )
    assert model.score(P) == ESTIMATORS["mixture"]().fit(frame()).score(frame())


def test_kinds_can_be_said_and_arrays_have_them_too() -> None:
    X = frame().assign(id=[f"no. {i}" for i in range(120)])
    with pytest.warns(PartitaWarning, match=r"fit: column 'id' \(120 different words in 120 rows"):
        left = ESTIMATORS["mixture"]().fit(X)
    assert list(left.feature_names_in_) == list(frame().columns)
    model = MixtureDensity(
        1, "mixed", columns={"id": "ignore", "visits": "real"}, random_state=0
    ).fit(X)
    assert [column.kind for column in model.schema_.used] == ["real", "binary", "real", "category"]
    assert model.impute(X)["id"].equals(X["id"])
    array = np.array([[0.5, 1], [1.5, 0], [-2.0, 1], [0.1, 4]])
    assert [column.kind for column in MixtureDensity(1, "mixed").fit(array).schema_.columns] == [
        "real",
        "count",
    ]
    with pytest.raises(InputError, match="be finite; got nan"):
        ESTIMATORS["autoregressive"]().fit(frame())
    with pytest.raises(DataError, match="got 'Paris'"):
        ESTIMATORS["mixture"]().fit(frame()).score(frame().assign(town="Paris"))


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (
            frame().assign(pay=["1,200", "90"] * 60),
            r"use columns=\{'pay': 'category'\}, or .* with columns=\{'pay': 'ignore'\}",
        ),
        (
            frame().rename(columns={"town": "land"}),
            r"MixtureDensity\.fit: columns must name one of the columns .*; got 'town'",
        ),
        (
            pl.from_pandas(frame()).lazy(),
            r"MixtureDensity\.fit: X must be a table in memory; got LazyFrame\. Call its "
            r"collect\(\) first",
        ),
    ],
)
def test_what_is_wrong_with_a_frame_is_said_in_words_of_python(X: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MixtureDensity(1, "mixed", columns={"town": "category"}).fit(X)


def test_other_frames_are_compared_with_that_of_the_fit() -> None:
    model = ESTIMATORS["mixture"]().fit(frame())
    with pytest.raises(
        DataError,
        match=r"MixtureDensity: the table must have the columns of the fitted one, .*; got none "
        r"called 'town'",
    ):
        model.score(frame().drop(columns="town"))
    with pytest.raises(
        DataError, match=r"column 'town' must hold categories of the fitted table, .*; got 'Paris'"
    ):
        model.score(frame().assign(town="Paris"))


@pytest.mark.parametrize("sort", ["pandas", "polars"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_words_that_a_type_declares_may_be_in_rows_to_be_scored(name: str, sort: str) -> None:
    """One of 120 rows has a word of its own: the folds without it know it by the type, and think it
    improbable.
    """
    X = frame(gaps=False).assign(town=lambda x: x["town"].cat.add_categories("Lima"))
    X.loc[7, "town"] = "Lima"
    P = pl.from_pandas(X).with_columns(
        pl.col("town").cast(pl.String).cast(pl.Enum(["Rome", "Oslo", "Lima"]))
    )
    table = X if sort == "pandas" else P
    assert np.isfinite(cross_val_score(ESTIMATORS[name](), table, cv=3)).all()
    model = ESTIMATORS[name]().fit(table[8:])
    rows = table[20:21], table[7:8]
    assert (
        model.score(rows[0]) > model.score(rows[1]) > -np.inf
        and model.schema_.used[3].in_words().count("Lima") == 1
    )
    assert set(model.sample(3)["town"]) <= {"Rome", "Oslo", "Lima"}


DAYS = pd.date_range("2020-01-01", periods=40)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (
            pd.DataFrame({"a": np.arange(40.0), "day": DAYS}),
            "X must hold numbers; got dates or times in column 'day'. Turn them into",
        ),
        (
            pd.DataFrame({"day": DAYS.tz_localize("UTC")}),
            "X must hold numbers; got dates or times in column 'day'",
        ),
        (
            pl.DataFrame({"a": np.arange(40.0), "day": pl.Series(DAYS)}),
            "X must hold numbers; got dates or times in column 'day'",
        ),
        (
            pd.DataFrame({"wait": DAYS - DAYS[0]}),
            "X must hold numbers; got dates or times in column 'wait'",
        ),
        (DAYS.to_numpy()[:, None], "X must hold numbers; got dates or times. Turn them into"),
        (
            pd.DataFrame({"a": np.arange(40.0), "w": ["x", "y"] * 20}),
            "float: 'x'. Encode words as numbers, or use MixtureDensity",
        ),
        (pl.DataFrame({"a": np.arange(40.0)}).lazy(), "X must be a table in memory; got LazyFrame"),
    ],
)
def test_an_estimator_of_numbers_takes_no_dates_or_words(X: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        PPCADensity(1).fit(X)


def test_rows_can_be_weighed_and_scores_cross_validated() -> None:
    """A weight of two is a row that stands twice."""
    X, weight = frame(60), np.ones(60)
    weight[:20] = 2
    twice = MixtureDensity(1, "mixed", random_state=0).fit(pd.concat([X, X[:20]]))
    assert MixtureDensity(1, "mixed", random_state=0).fit(X, sample_weight=weight).score(
        X
    ) == pytest.approx(twice.score(X), abs=1e-9)
    assert np.isfinite(cross_val_score(MixtureDensity(2, "mixed", random_state=0), X, cv=3)).all()
