"""Which law a column of whole numbers gets: proper masses, the one the numbers come from, chosen by
training rows alone.
"""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from partita.datasets import load
from partita.tables import read
from partita.tables.laws import LAWS, best_law

ROWS = 400


def total(law: str, values: np.ndarray, counts: np.ndarray) -> float:
    """The log-likelihood that a law's score is made of."""
    free = {"count": 1, "overdispersed": 2, "real": 2}[law]
    return LAWS[law](values, counts) + free / 2 * math.log(counts.sum())


def test_scores_are_log_likelihoods_at_their_maximum() -> None:
    g = np.random.default_rng(0)
    x = g.negative_binomial(2.0, 0.1, ROWS).astype(float)
    values, counts = np.unique(x, return_counts=True)
    assert total("count", values, counts) == pytest.approx(stats.poisson(x.mean()).logpmf(x).sum())
    sizes = np.exp(np.linspace(-3, 5, 4001))
    grid = [stats.nbinom(r, r / (r + x.mean())).logpmf(x).sum() for r in sizes]
    assert total("overdispersed", values, counts) == pytest.approx(max(grid), abs=1e-3)
    deviation = math.sqrt(x.var() - 1 / 12)
    normal = stats.norm(x.mean(), deviation)
    cells = np.log(normal.cdf(x + 0.5) - normal.cdf(x - 0.5))
    assert total("real", values, counts) == pytest.approx(cells.sum())


def test_far_from_the_mean_a_rounded_normal_keeps_its_mass() -> None:
    """Where both tails of the cell are 1 or 0 to the last digit: against log areas of a tail."""
    values, counts = np.array([0.0, 1.0, 60.0]), np.array([5000, 5000, 1])
    x = np.repeat(values, counts)
    deviation = math.sqrt(max(x.var() - 1 / 12, 1 / 12))
    z = (60 - x.mean()) / deviation
    near, far = z - 0.5 / deviation, z + 0.5 / deviation
    tail = stats.norm.logsf(near) + math.log1p(
        -math.exp(stats.norm.logsf(far) - stats.norm.logsf(near))
    )
    normal = stats.norm(x.mean(), deviation)
    others = 5000 * sum(math.log(normal.cdf(v + 0.5) - normal.cdf(v - 0.5)) for v in (0.0, 1.0))
    assert total("real", values, counts) == pytest.approx(tail + others)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        ("count", stats.poisson(3.0)),
        ("count", stats.poisson(400.0)),
        ("overdispersed", stats.nbinom(0.3, 0.3 / 5000.3)),
        ("overdispersed", stats.nbinom(2.0, 2.0 / 8.0)),
        ("category", stats.randint(1, 13)),
        ("category", stats.rv_discrete(values=([1, 2, 3, 4, 5], [0.5, 0.05, 0.05, 0.05, 0.35]))),
    ],
)
def test_counts_get_the_law_that_they_come_from(kind: str, law: stats.rv_discrete) -> None:
    """BIC prefers a law of one number more than Poisson's to Poisson in 1 of 70 such tables; fixed
    seeds.
    """
    for seed in range(5):
        found = best_law("count", law.rvs(size=ROWS, random_state=seed).astype(float))
        assert kind == (found[0] if found else "count")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.repeat([2007.0, 2008.0, 2009.0], [110, 114, 120]), "category"),
        (np.repeat([4.0, 6.0, 8.0], [11, 7, 14]), "category"),
        (np.random.default_rng(0).normal(70, 12, ROWS).round(), None),
        (np.r_[np.repeat([2007.0, 2008.0], 100), 2009.0], None),  # others may follow
        (np.array([2019.0, 2019, 2021, 2021, 2023]), None),
        (np.repeat([0.5, 1.0, 2.0], 20), None),
        (np.full(60, 7.0), None),
    ],
)
def test_few_whole_numbers_are_categories(values: np.ndarray, kind: str | None) -> None:
    found = best_law("real", np.r_[values, np.nan])
    assert (found[0] if found else None) == kind


def test_training_rows_alone_decide_and_all_values_are_categories(tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"w": g.choice(["a", "b"], 300), "year": g.choice([2007, 2008, 2009], 300)}
    )
    frame["pay"] = (100 * g.gamma(0.5, 40.0, 300)).astype(int)
    frame["said"] = frame["pay"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    held = {"said": "real"}
    data = load(tmp_path / "t.csv", words=True, columns=held)
    schema = data.train.schema
    assert schema is not None and data.test is not None
    assert [column.kind for column in schema.columns] == [
        "category",
        "category",
        "overdispersed",
        "real",
    ]
    assert schema.columns[1].levels == (2007, 2008, 2009)
    assert "categories beat rounded real numbers by" in schema.columns[1].reason
    assert "negative binomial beats Poisson by" in schema.columns[2].reason
    # a test row of another year changes no law, and is a category: one that training never saw
    rows = data.test.tensor().numpy()
    place = int(
        np.flatnonzero((frame["year"].to_numpy() == rows[0, 1]) & (frame["pay"] == rows[0, 2]))[0]
    )
    frame.loc[place, "year"] = 2050
    frame.to_csv(tmp_path / "t.csv", index=False)
    again = load(tmp_path / "t.csv", words=True, columns=held).train.schema
    assert again is not None and again.columns[1].levels == (2007, 2008, 2009, 2050)
    assert [one.reason for one in again.columns] == [one.reason for one in schema.columns]
    # another file is read by the kinds of the first
    frame["pay"] = 3
    frame.to_csv(tmp_path / "u.csv", index=False)
    other = load(tmp_path / "u.csv", words=True, columns=again).train.schema
    assert other == again


def test_columns_of_one_sort_stay_as_they_are(tmp_path: Path) -> None:
    """A table of counts alone is taken alike, by any family."""
    g = np.random.default_rng(0)
    pd.DataFrame(g.integers(0, 5, (100, 3)), columns=list("abc")).to_csv(tmp_path / "t.csv")
    with pytest.warns(match="left out"):
        schema = load(tmp_path / "t.csv", words=True).train.schema
    assert schema is not None and {column.kind for column in schema.used} == {"count"}
    found = read(tmp_path / "t.csv", columns={"*": "count"}).schema
    assert found is not None and found.by_column


def test_draws_keep_the_decimals_and_the_range_of_training_rows(tmp_path: Path) -> None:
    """Whatever the kinds of the other columns; test rows widen nothing."""
    g = np.random.default_rng(0)
    frame = pd.DataFrame({"debt": g.gamma(0.5, 4.0, 300).round(2), "x": g.normal(size=300)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv", words=True)
    schema, train = data.train.schema, data.train.tensor().numpy()
    assert schema is not None
    debt, x = schema.columns
    assert debt.decimals == 2 and debt.limits == (train[:, 0].min(), train[:, 0].max())
    assert x.decimals is None and x.limits == (train[:, 1].min(), train[:, 1].max())
    assert debt.limits[1] < frame["debt"].max() or x.limits != (frame["x"].min(), frame["x"].max())
    wild = g.normal(size=(500, 2)) * 50
    columns, drawn = schema.carried(wild)
    assert columns == [debt, x] and (drawn.min(0) >= train.min(0)).all()
    assert (drawn.max(0) <= train.max(0)).all() and (drawn[:, 0].round(2) == drawn[:, 0]).all()
    inside = ~x.beyond(wild[:, 1])
    assert 0 < inside.sum() < 500 and (drawn[inside, 1] == wild[inside, 1]).all()
    assert type(schema).from_json(schema.as_json()) == schema


def test_whole_numbers_about_zero_are_no_matter_of_a_ratio() -> None:
    assert best_law("real", np.repeat([-1.0, 1.0], 40)) is not None
    assert best_law("real", np.repeat([-1.0, 0.0, 1.0], 40)) is not None
