"""Tables as they are, through every verb: fit, evaluate, sample, impute, anomalies, cluster,
compare.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from partita.experiment.anomalies import row_scorer, tail_probabilities
from partita.experiment.input_table import read_input
from partita.experiment.saved import open_run

GAPS = 0.1
ONE = ("--set", "n_components=1", "--json")


def people(n: int, seed: int = 0) -> pd.DataFrame:
    """Three sorts of people: numbers, truth values, counts and words that go together."""
    g = np.random.default_rng(seed)
    k = g.integers(0, 3, n)
    towns = np.array(
        [
            g.choice(4, p=p)
            for p in np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]])[k]
        ]
    )
    return pd.DataFrame(
        {
            "age": g.normal(np.array([20.0, 45.0, 70.0])[k], 5.0),
            "smokes": g.random(n) < np.array([0.1, 0.6, 0.9])[k],
            "visits": g.poisson(np.array([1.0, 5.0, 12.0])[k]).astype("int16"),
            "town": pd.Categorical.from_codes(towns, ["Rome", "Oslo", "Lima", "Bonn"]),
            "income": np.exp(g.normal(np.array([1.0, 2.0, 3.0])[k], 0.2)).astype("float32"),
        }
    )


def with_gaps(frame: pd.DataFrame, seed: int = 1) -> pd.DataFrame:
    out = frame.convert_dtypes(dtype_backend="numpy_nullable")
    gaps = np.random.default_rng(seed).random(frame.shape) < GAPS
    out["town"] = frame["town"]
    return out.mask(gaps)


@pytest.fixture
def fitted(call: Any) -> dict[str, Path]:
    """A run on a .csv and one on a .parquet of the same people, with gaps."""
    frame = with_gaps(people(300))
    frame.to_csv("people.csv", index_label="id")
    frame.to_parquet("people.parquet")
    for source in ("people.csv", "people.parquet"):
        more = ["--column", "id=ignore"] if source.endswith("csv") else []
        result = call(
            "fit",
            "mixture",
            source,
            *more,
            "--set",
            "n_components=3",
            "--out",
            f"run-{Path(source).suffix[1:]}",
            "--quiet",
        )
        assert result.exit_code == 0, result.output
    return {"csv": Path("run-csv"), "parquet": Path("run-parquet")}


def message(result: Any) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_schema_is_shown_and_can_be_overridden(call: Any) -> None:
    with_gaps(people(60)).to_csv("people.csv")  # the index is a column without a name
    shown = call("schema", "people.csv")
    for words in (
        "age     real",
        "smokes  binary",
        "visits  overdispersed",
        "town    category",
        "Bonn, Lima",
        "--column NAME=KIND",
    ):
        assert words in shown.output
    found = message(
        call("schema", "people.csv", "--column", "age=ignore", "--column", "v*=real", "--json")
    )
    by_name = {column["name"]: column for column in found["columns"]}
    assert (
        found["rows"] == 60
        and by_name["age"]["kind"] == "ignore"
        and by_name["visits"]["kind"] == "real"
    )
    assert sorted(by_name["town"]["categories"]) == ["Bonn", "Lima", "Oslo", "Rome"]
    assert (
        call("schema", "digits").exit_code == 1
        and call("schema", "people.csv", "--column", "age").exit_code == 1
    )


def test_columns_that_name_rows_are_left_out_in_one_line(call: Any) -> None:
    """Of schema, fit and compare alike, with the way to change it; what cannot be read at all is
    shown with its reason, and refused.
    """
    table = people(60).assign(name=[f"Mr. {i}" for i in range(60)])
    table.to_csv("people.csv", index_label="id")
    line = (
        "Warning: load: people.csv: columns 'id' (the numbers of the rows), 'name' (60 different "
        "words in 60 rows, as names or free text have) are left out. Read one otherwise, as with "
        "--column 'name'=category.\n"
    )
    fast = ["--set", "n_components=1", "--out", "run", "--quiet"]
    shown, fit = call("schema", "people.csv"), call("fit", "mixture", "people.csv", *fast)
    board = call("compare", "people.csv", "--models", "mixture", "--minutes", "0.1", "--no-report")
    for result in (shown, fit, board):
        assert result.exit_code == 0 and result.stderr.count(line) == 1, result.output
    assert "name    ignore         string   0" in shown.output and "the numbers of the rows" in (
        shown.output
    )
    assert list(pd.read_csv(sampled(call, "run")).columns) == list(people(1).columns)
    kept = call("schema", "people.csv", "--column", "name=category", "--column", "id=real")
    assert kept.stderr == "" and "real           int64    0        0 to 59" in kept.output
    table.assign(pay="1,200").to_csv("spoiled.csv")
    shown = call("schema", "spoiled.csv")
    assert shown.exit_code == 1 and "pay     unreadable" in shown.stdout
    assert "numbers with marks in them, such as '1,200'" in shown.stderr
    assert call("schema", "spoiled.csv", "--json").stdout == ""


def sampled(call: Any, run: str) -> str:
    """A file of draws from a run."""
    return message(call("sample", run, "-n", "5", "--json"))["out"]


def test_both_files_give_the_same_model_and_every_verb_takes_them(
    call: Any, fitted: dict[str, Path]
) -> None:
    scores = [message(call("evaluate", run, "--json")) for run in fitted.values()]
    # float32 as text
    assert scores[0]["kind"] == "exact" and scores[0]["value"] == pytest.approx(
        scores[1]["value"], abs=1e-5
    )
    call("sample", "run-parquet", "-n", "50", "--out", "new.parquet")
    new, before = pd.read_parquet("new.parquet"), pd.read_parquet("people.parquet")
    assert [str(kind) for kind in new.dtypes] == ["float64", "bool", "int16", "category", "float32"]
    assert list(new.columns) == list(before.columns) and set(new["town"]) <= set(
        before["town"].dropna()
    )
    ages = new["age"]
    assert before["age"].min() <= ages.min() and ages.max() <= before["age"].max()
    many = message(call("sample", "run-parquet", "-n", "2000", "--json"))
    told = call("sample", "run-parquet", "-n", "2000")
    assert many["clipped"] > 0 and f"{many['clipped']} of 10000 values lay outside" in told.stdout
    call("sample", "run-csv", "-n", "5", "--out", "new.csv")
    assert [str(kind) for kind in pd.read_csv("new.csv").dtypes][:3] == ["float64", "bool", "int64"]
    assert message(call("sample", "run-csv", "-n", "5", "--json"))["out"].endswith("samples-1.csv")


def test_round_trip_leaves_what_was_observed_bit_for_bit(
    call: Any, fitted: dict[str, Path]
) -> None:
    before = pd.read_parquet("people.parquet")
    count = int(pd.read_parquet("people.parquet").isna().sum().sum())
    assert message(call("impute", "run-parquet", "people.parquet", "--json"))["filled"] == count
    after = pd.read_parquet("people-imputed.parquet")
    assert (after.dtypes == before.dtypes).all() and not after.isna().any().any()
    for name in before:
        there = before[name].notna()
        assert before[name][there].tolist() == after[name][there].tolist()
    assert (
        message(call("impute", "run-csv", "people.csv", "--how", "draw", "--json"))["filled"]
        == count
    )
    old, new = (
        Path(name).read_text().splitlines() for name in ("people.csv", "people-imputed.csv")
    )
    assert old[0] == new[0] and len(old) == len(new)
    cells = [
        (a, b)
        for left, right in zip(old, new, strict=True)
        for a, b in zip(left.split(","), right.split(","), strict=True)
    ]
    assert (
        all(a == b for a, b in cells if a)
        and all(b for _, b in cells)
        and sum(not a for a, _ in cells) == count
    )
    assert call("impute", "run-csv", "people.csv", "--how", "mean").exit_code == 1


def test_clusters_come_beside_the_rows_in_their_order(call: Any, fitted: dict[str, Path]) -> None:
    found = message(call("cluster", "run-csv", "people.csv", "--probabilities", "--json"))
    assert found["clusters"] == 3 and sum(found["sizes"]) == 300
    table, before = pd.read_csv("people-clusters.csv"), pd.read_csv("people.csv")
    pd.testing.assert_frame_equal(table[list(before.columns)], before)
    assert np.allclose(table[["cluster_0", "cluster_1", "cluster_2"]].sum(axis=1), 1.0)
    assert (
        table[["cluster_0", "cluster_1", "cluster_2"]].to_numpy().argmax(1) == table["cluster"]
    ).all()
    ages = table.groupby("cluster")["age"].mean().sort_values().to_numpy()
    assert np.abs(ages - [20, 45, 70]).max() < 4
    call("cluster", "run-parquet", "people.parquet")
    after = pd.read_parquet("people-clusters.parquet")
    assert (after.dtypes[:5] == pd.read_parquet("people.parquet").dtypes).all() and after[
        "cluster"
    ].dtype == np.int64
    call("cluster", "run-csv", "people.csv", "--out", "other.parquet")
    # another sort of file: all columns, also one that the run ignores
    other = pd.read_parquet("other.parquet")
    assert (
        list(other.columns) == [*before.columns, "cluster", "cluster_probability"]
        and (other["id"] == before["id"]).all()
    )
    pd.testing.assert_frame_equal(
        other[["age", "income", "town"]], before[["age", "income", "town"]], check_dtype=False
    )
    assert (other["cluster"] == table["cluster"]).all() and other["smokes"].isna().sum() == before[
        "smokes"
    ].isna().sum()
    call(
        "fit",
        "autoregressive",
        "people.csv",
        "--column",
        "*=ignore",
        "--column",
        "id=count",
        "--epochs",
        "1",
        "--out",
        "ar",
        "--quiet",
    )
    assert "cluster: RUN must be of a mixture" in call("cluster", "ar", "people.csv").output


def test_the_index_of_a_shuffled_frame_is_no_column_and_is_kept(
    call: Any, fitted: dict[str, Path]
) -> None:
    shuffled = pd.read_parquet("people.parquet").sample(frac=1.0, random_state=0)
    shuffled.to_parquet("shuffled.parquet")  # pandas keeps the index as one more column
    message(call("impute", "run-parquet", "shuffled.parquet", "--json"))
    filled = pd.read_parquet("shuffled-imputed.parquet")
    pd.testing.assert_frame_equal(
        filled.where(shuffled.notna()), shuffled.where(shuffled.notna()), check_dtype=False
    )
    assert filled.index.equals(shuffled.index) and not filled.isna().any(axis=None)
    message(call("anomalies", "run-parquet", "shuffled.parquet", "--json"))
    assert pd.read_parquet("shuffled-anomalies.parquet").index.equals(shuffled.index)


def test_draws_of_categories_alone_are_categories(call: Any) -> None:
    """Also where all columns are words, and one has fewer of them than others."""
    frame = people(200)[["town"]].assign(
        sex=pd.Categorical.from_codes(np.arange(200) % 2, ["m", "f"])
    )
    frame.to_parquet("words.parquet")
    message(
        call("fit", "mixture", "words.parquet", "--set", "n_components=2", "--json", "--out", "run")
    )
    call("sample", "run", "-n", "20", "--out", "new.parquet")
    new = pd.read_parquet("new.parquet")
    assert [str(kind) for kind in new.dtypes] == ["category", "category"] and set(new["sex"]) <= {
        "m",
        "f",
    }
    call("sample", "run", "-n", "20", "--out", "new.csv")
    assert set(pd.read_csv("new.csv")["town"]) <= set(frame["town"])


def test_clusters_of_a_dirichlet_process_are_those_of_its_estimator(call: Any) -> None:
    g = np.random.default_rng(0)
    x = np.concatenate([g.normal(0, 1, (30, 2)), g.normal(9, 1, (30, 2))])
    pd.DataFrame(x, columns=["a", "b"]).to_csv("points.csv", index=False)
    call("fit", "dpmm", "points.csv", "--epochs", "40", "--out", "run", "--quiet")
    message(call("cluster", "run", "points.csv", "--json"))
    found = pd.read_csv("points-clusters.csv")
    assert len(set(found["cluster"][:30])) == 1 and set(found["cluster"][:30]).isdisjoint(
        found["cluster"][30:]
    )
    assert (found["cluster_probability"] > 0.9).all()


@pytest.mark.parametrize("verb", ["impute", "anomalies", "cluster"])
def test_the_table_itself_is_never_written_over(
    verb: str, call: Any, fitted: dict[str, Path]
) -> None:
    before = Path("people.csv").read_bytes()
    Path("same.csv").symlink_to("people.csv")
    for out in ("people.csv", "./people.csv", "same.csv"):
        refused = call(verb, "run-csv", "people.csv", "--out", out)
        assert (
            refused.exit_code == 1
            and f"{verb}: --out must be another file than DATA" in refused.output
        )
    assert Path("people.csv").read_bytes() == before and Path("same.csv").is_symlink()


def test_tail_probabilities_are_those_of_held_out_normal_rows(
    call: Any, fitted: dict[str, Path]
) -> None:
    """Scores of 300 new normal rows and of the 60 calibration rows by a two-sample KS test, which
    raises a false alarm once in a thousand seeds; rows that no normal person is get the least tail
    probability there is.
    """
    people(300, seed=5).to_csv("new.csv", index_label="id")
    found = message(call("anomalies", "run-csv", "new.csv", "--alpha", "0.05", "--json"))
    assert found["calibration_rows"] == 60 and found["least_tail_probability"] == pytest.approx(
        1 / 61
    )
    table = pd.read_csv("new-anomalies.csv")
    assert list(table.columns[-3:]) == ["anomaly_score", "tail_probability", "anomaly"]
    assert table.index[table["anomaly"]].tolist() == found["anomalies"]
    people(400, seed=6).to_csv("calibration.csv", index_label="id")
    found = message(
        call("anomalies", "run-csv", "new.csv", "--normal", "calibration.csv", "--json")
    )
    scores = [pd.read_csv("new-anomalies.csv")["anomaly_score"]]
    done = call("anomalies", "run-csv", "calibration.csv", "--json")
    assert (
        message(done)["anomalies"] == []
        and "Warning: no row can be called an anomaly: 60 normal rows allow no tail" in done.stderr
    )
    scores.append(pd.read_csv("calibration-anomalies.csv")["anomaly_score"])
    assert found["calibration_rows"] == 400 and stats.ks_2samp(*scores).pvalue > 1e-3
    np.testing.assert_allclose(
        pd.read_csv("new-anomalies.csv")["tail_probability"],
        [(1 + (scores[1] >= s).sum()) / 401 for s in scores[0]],
    )
    people(2, seed=7).assign(age=[20.0, 70.0], visits=[30, 0], income=[90.0, 1.0]).to_csv(
        "odd.csv", index_label="id"
    )
    message(call("anomalies", "run-csv", "odd.csv", "--normal", "calibration.csv", "--json"))
    assert pd.read_csv("odd-anomalies.csv")["tail_probability"].tolist() == [1 / 401, 1 / 401]


def test_tail_probabilities_of_normal_rows_are_as_rare_as_they_say() -> None:
    """A new row ranks in each of n + 1 places equally often: of 20,000 ranks among 9 others each
    tenth holds 2000, by a chi-square test with one false alarm in a thousand seeds.
    """
    g = np.random.default_rng(0)
    p = np.concatenate(
        [tail_probabilities(row[:1], row[1:]) for row in g.normal(size=(20_000, 10))]
    )
    assert (
        stats.chisquare(np.bincount(np.round(10 * p).astype(int), minlength=11)[1:]).pvalue > 1e-3
    )


def test_gaps_that_a_family_cannot_take_are_named(call: Any) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    pd.DataFrame(x, columns=["a", "b", "c"]).to_csv("whole.csv", index=False)
    x[4, 1] = np.nan
    pd.DataFrame(x[:, ::-1], columns=["c", "b", "a"]).to_csv("gappy.csv", index=False)
    call("fit", "flow", "whole.csv", "--epochs", "1", "--out", "run", "--quiet", "--no-report")
    printed = call("anomalies", "run", "gappy.csv")
    assert printed.exit_code == 1
    assert re.search(
        r"anomalies: DATA must hold no gaps for Flow\(.*\); got one at row 4, column 'b'\.",
        printed.output,
    )


def test_a_gap_by_itself_is_no_anomaly(call: Any) -> None:
    """Normal rows rank alike whichever column they lack, also where its units are small or large:
    of 250 such rows about 12 have a tail probability of 0.05 or less; none, or 34 and more, one
    time in 3500 by the beta-binomial law of ranks among 300, for either column.
    """
    g, unit = np.random.default_rng(3), {"a": 1.0, "b": 1e-3, "c": 100.0}
    table = pd.DataFrame(
        g.normal(size=(2000, 3)) + g.normal(size=(2000, 1)), columns=list(unit)
    ) * pd.Series(unit)
    table[:1500].to_csv("normal.csv", index=False)
    message(
        call(
            "fit",
            "mixture",
            "normal.csv",
            "--set",
            "n_components=1",
            "--json",
            "--no-report",
            "--out",
            "run",
        )
    )
    new = table[1500:].reset_index(drop=True)
    new.loc[:249, "b"], new.loc[250:, "c"] = np.nan, np.nan
    new.to_csv("new.csv", index=False)
    found = message(call("anomalies", "run", "new.csv", "--alpha", "0.05", "--json"))
    counts = np.histogram(found["anomalies"], [0, 250, 500])[0]
    assert found["calibration_rows"] == 300 and (counts > 0).all() and (counts < 34).all()


@pytest.mark.parametrize(("lacking", "among"), [(150, 250), (350, 400)])
def test_rows_rank_among_normal_rows_seen_in_the_same_columns(
    lacking: int, among: int, call: Any, fitted: dict[str, Path]
) -> None:
    """Those that hold all that the row holds; all of them, with draws for what they lack, where
    fewer than 99 do.
    """
    normal = people(400, seed=6)
    normal.assign(age=normal["age"].where(normal.index >= lacking)).to_csv(
        "normal.csv", index_label="id"
    )
    new = people(9, seed=5).astype(object)
    new.loc[0, ["smokes", "income"]] = None
    new.to_csv("new.csv", index_label="id")
    found = message(call("anomalies", "run-csv", "new.csv", "--normal", "normal.csv", "--json"))
    table, score = pd.read_csv("new-anomalies.csv"), row_scorer(open_run(fitted["csv"]), 0)
    normal.to_csv("whole.csv", index_label="id")
    whole = next(read_input(open_run(fitted["csv"]), Path("whole.csv"), "anomalies").chunks())[1]
    assert found["calibration_rows"] == among
    whole = whole[lacking if among < 400 else 0 :]
    seen = [np.where(np.isin(np.arange(5), (1, 4)), np.nan, whole), whole]
    own = table["anomaly_score"].to_numpy()
    exact = np.concatenate(
        [
            tail_probabilities(*pair)
            for pair in ((own[:1], score(seen[0])), (own[1:], score(seen[1])))
        ]
    )
    np.testing.assert_allclose(
        table["tail_probability"], exact, rtol=0, atol=1e-12 if among < 400 else 0.05
    )


def test_normal_rows_of_a_file_that_has_grown_are_doubtful(
    call: Any, fitted: dict[str, Path]
) -> None:
    """Rows that the fit has learned from may be among those that are held out of the longer
    file.
    """
    new = people(20, seed=5)
    new.to_csv("new.csv", index_label="id")
    assert "other rows" not in call("anomalies", "run-csv", "new.csv", "--alpha", "0.05").stderr
    new.to_csv("people.csv", mode="a", header=False)
    done = call("anomalies", "run-csv", "new.csv", "--alpha", "0.05")
    assert (
        done.exit_code == 0
        and "Warning: people.csv has other rows than when the run was fitted" in done.stderr
    )
    new.to_csv("normal.csv", index_label="id")
    assert (
        "other rows"
        not in call(
            "anomalies", "run-csv", "new.csv", "--normal", "normal.csv", "--alpha", "0.1"
        ).stderr
    )


def test_impossible_rows_are_as_strange_as_one_another() -> None:
    found = tail_probabilities(
        np.array([np.inf, 1.0, -np.inf]), np.array([np.inf, np.inf, 0.0, -np.inf])
    )
    assert found.tolist() == [3 / 5, 3 / 5, 1.0]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_category_that_was_never_seen_is_an_anomaly(
    ending: str, call: Any, fitted: dict[str, Path]
) -> None:
    """Its rows are impossible under the model, the others keep their scores; verbs that need its
    number refuse it.
    """
    new = people(30, seed=5).astype({"town": str})
    new.to_csv("seen.csv", index_label="id")
    new.loc[[3, 8], "town"] = "Atlantis"
    new.to_csv("new.csv", index_label="id")
    message(call("anomalies", "run-csv", "seen.csv", "--json"))
    done = call(
        "anomalies", "run-csv", "new.csv", "--alpha", "0.017", "--out", f"found.{ending}", "--json"
    )
    assert {3, 8} <= set(
        message(done)["anomalies"]
    ) and "Warning: 2 of 30 rows are impossible under the model" in done.stderr
    table = pd.read_csv("found.csv") if ending == "csv" else pd.read_parquet("found.parquet")
    assert table["town"].astype(str).tolist() == new["town"].tolist() and table["anomaly_score"][
        [3, 8]
    ].tolist() == [np.inf, np.inf]
    scores = pd.read_csv("seen-anomalies.csv")["anomaly_score"]
    np.testing.assert_allclose(table["anomaly_score"].drop([3, 8]), scores.drop([3, 8]), rtol=1e-12)
    for verb in ("impute", "cluster"):
        printed = call(verb, "run-csv", "new.csv").stderr
        allowed = "column 'town' must hold categories of the fitted table, Bonn, Lima, Oslo, Rome"
        assert f"{allowed}; got 'Atlantis'" in printed


def test_a_row_too_far_to_be_scored_is_the_strangest(call: Any) -> None:
    """The largest float, which files have where a sensor had no value, spoils neither its own score
    nor those of other rows.
    """
    frame = people(200)[["age", "income", "visits"]].astype(float)
    frame.to_csv("people.csv", index=False)
    message(call("fit", "mixture", "people.csv", "--column", "visits=count", *ONE, "--out", "run"))
    frame[:30].to_csv("near.csv", index=False)
    pd.concat([frame[:30], frame[:1].assign(age=1.7976931348623157e308)]).to_csv(
        "far.csv", index=False
    )
    message(call("anomalies", "run", "near.csv", "--json"))
    assert message(call("anomalies", "run", "far.csv", "--alpha", "0.03", "--json"))[
        "anomalies"
    ] == [30]
    near, far = (pd.read_csv(f"{name}-anomalies.csv")["anomaly_score"] for name in ("near", "far"))
    assert far[30] == np.inf
    np.testing.assert_allclose(far[:30], near, rtol=1e-12)


def test_rows_that_are_equal_rank_as_equal_however_they_are_scored(call: Any) -> None:
    """A row scored alone, whose sums round otherwise than those of one among others, is as strange
    as its copies in the calibration set.
    """
    table = np.random.default_rng(0).normal(size=(300, 5)).round()
    pd.DataFrame(table).add_prefix("x").to_csv("whole.csv", index=False)
    message(
        call(
            "fit",
            "mixture",
            "whole.csv",
            "--set",
            "n_components=2",
            "--json",
            "--no-report",
            "--out",
            "whole",
        )
    )
    scores = row_scorer(open_run(Path("whole")), 0)
    others, alone = scores(table), np.concatenate([scores(row[None]) for row in table[:60]])
    np.testing.assert_array_equal(
        tail_probabilities(alone, others), tail_probabilities(others[:60], others)
    )


def test_scores_count_the_units_of_real_columns_and_no_others(call: Any) -> None:
    """The score of a row is the density of the mixture in the table's own units, computed by hand
    from the saved weights; money in cents costs log 100 a row, and counts and words cost nothing.
    """
    frame = people(200)
    frame.to_csv("people.csv", index=False)
    frame.assign(income=100 * frame["income"].astype(float)).to_csv("cents.csv", index=False)
    runs = {}
    for name in ("people", "cents"):
        how = ("--set", "n_components=2", "--set", "covariance_type=diagonal", "--json")
        runs[name] = message(call("fit", "mixture", f"{name}.csv", *how, "--out", name))[
            "log_likelihood"
        ]["value"]
    assert runs["people"] - runs["cents"] == pytest.approx(np.log(100), abs=1e-4)
    opened = open_run(Path("people"))
    x, blocks = opened.dataset(None).test.tensor().numpy(), opened.run.model.component.blocks
    shift, scale = opened.encoding.shift, opened.encoding.scale
    with torch.no_grad():
        total = opened.run.model.log_weights().numpy()[:, None].repeat(len(x), 1)
        gaussian, bernoulli, counts, categorical = blocks
        for k in range(2):
            for i, place in enumerate((0, 4)):
                mean = gaussian.location[k, i].item() * scale[place] + shift[place]
                total[k] += stats.norm.logpdf(
                    x[:, place], mean, gaussian.log_scale[k, i].exp().item() * scale[place]
                )
            total[k] += stats.bernoulli.logpmf(x[:, 1], bernoulli.mean()[k, 0].item())
            size, mean = counts.log_size.exp()[k, 0].item(), counts.mean()[k, 0].item()
            total[k] += stats.nbinom.logpmf(x[:, 2], size, size / (size + mean))
            codes = np.searchsorted(opened.encoding.lists[3], x[:, 3])
            total[k] += torch.log_softmax(categorical.logits[k, 0], -1).numpy()[codes]
    assert np.logaddexp(*total).mean() == pytest.approx(runs["people"], abs=1e-9)


def test_units_of_what_is_missing_count_for_nothing(call: Any) -> None:
    """Of a row in which it is missing, money costs the same in euros and in cents; also where all
    columns are real.
    """
    frame = people(300)[["age", "income"]].astype(float)
    frame.loc[np.random.default_rng(2).random(300) < 0.4, "income"] = np.nan
    frame.to_csv("euros.csv", index=False)
    frame.assign(income=100 * frame["income"]).to_csv("cents.csv", index=False)
    scores = {}
    for component in ("gaussian", "mixed"):
        for name in ("euros", "cents"):
            how = (
                "--set",
                "n_components=1",
                "--set",
                f"component={component}",
                "--json",
                "--out",
                f"{component}-{name}",
            )
            scores[component, name] = message(call("fit", "mixture", f"{name}.csv", *how))[
                "log_likelihood"
            ]["value"]
        seen = ~np.isnan(open_run(Path(f"{component}-euros")).dataset(None).test.tensor().numpy())
        assert scores[component, "euros"] - scores[component, "cents"] == pytest.approx(
            np.log(100) * seen[:, 1].mean(), abs=1e-6
        )
    assert scores["gaussian", "euros"] == pytest.approx(scores["mixed", "euros"], abs=1e-9)


def test_families_that_take_mixed_columns_are_compared_and_the_others_say_what_they_lack(
    call: Any,
) -> None:
    people(200).to_parquet("people.parquet")
    found = message(
        call(
            "compare",
            "people.parquet",
            "--epochs",
            "2",
            "--no-report",
            "--set",
            "mixture.n_components=2",
            "--json",
        )
    )
    assert {entry["name"] for entry in found["results"]} == {"mixture", "vae", "autoregressive"}
    assert (
        "no place for 'smokes' (binary), 'visits' (overdispersed), 'town' (category) beside real "
        "ones" in found["left_out"]["flow"]
    )
    flow = call("fit", "flow", "people.parquet")
    assert (
        flow.exit_code == 1
        and "family flow: columns must be numeric; got text or other values in column 'town'"
        in flow.output
    )
    flow = call("fit", "flow", "people.parquet", "--column", "town=ignore")
    assert (
        "family flow: columns must all be real; got 'smokes' (binary), 'visits' (overdispersed). "
        "Use mixture, vae" in flow.output
    )
    kinds = [word for name in ("smokes", "visits") for word in ("--column", f"{name}=real")]
    assert (
        call(
            "fit",
            "flow",
            "people.parquet",
            "--column",
            "town=ignore",
            *kinds,
            "--epochs",
            "1",
            "--quiet",
        ).exit_code
        == 0
    )


def test_completion_and_examples(call: Any) -> None:
    assert "--install-completion" in call("--help").output
    for verb in (
        "fit",
        "evaluate",
        "sample",
        "impute",
        "anomalies",
        "cluster",
        "compare",
        "report",
        "schema",
        "models",
        "data",
        "lab",
    ):
        assert (
            f"Example: partita {verb}" in call(verb, "--help").output
            and "--json" in call(verb, "--help").output
        )
