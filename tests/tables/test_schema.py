"""What columns are taken for, from .csv, .parquet, pandas and polars alike, what can be said
against it, and what is refused.
"""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from partita.errors import DataError, InputError, PartitaWarning
from partita.tables import Schema, read
from partita.tables.copies import write_filled
from partita.tables.files import array_table, frame_table
from partita.tables.infer import Digest, column_of, infer_schema, unfit
from partita.tables.schema import Column, Series
from partita.tables.write import text, write_columns

KINDS = {
    "height": "real",
    "smokes": "binary",
    "visits": "count",
    "town": "category",
    "left": "binary",
}


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "height": pd.Series([1.5, 2.25, None, 1.75]),
            "smokes": pd.Series([True, None, False, True], dtype="boolean"),
            "visits": pd.Series([3, 0, None, 12], dtype="Int32"),
            "town": pd.Series(["Bonn", None, "Aachen", "Bonn"], dtype="category"),
            "left": [0, 1, 1, 0],
        }
    )


def kinds(schema: Schema | None) -> dict[str, str]:
    assert schema is not None
    return {column.name: column.kind for column in schema.columns}


def test_all_sources_of_a_table_agree(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    found = [read(tmp_path / "t.csv", words=True), read(tmp_path / "t.parquet", words=True)]
    tables = [(one.train, one.columns, one.schema) for one in found]
    tables += [
        frame_table(frame, None, "fit"),
        frame_table(pl.read_parquet(tmp_path / "t.parquet"), None, "fit"),
    ]
    for table, columns, schema in tables:
        assert (
            kinds(schema) == KINDS
            and columns == tuple(KINDS)
            and schema is not None
            and schema.mixed
        )
        np.testing.assert_array_equal(table, tables[0][0])
        town = schema.columns[3]
        assert (
            town.words(town.levels) == ["Bonn", "Aachen"]
            and town.missing == 1
            and town.in_words() == "Bonn, Aachen"
        )
        assert Schema.from_json(schema.as_json()) == schema


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1, 1], "binary"),
        ([0, 3, 7], "count"),
        ([1, 5], "count"),
        ([2019, 2021], "real"),
        ([-1, 3], "real"),
        ([0.5, 1], "real"),
        ([np.nan, 1], "binary"),
    ],
)
def test_numbers_are_taken_for_what_they_can_be(values: list[float], kind: str) -> None:
    assert column_of(Series("a", np.array(values, dtype=float)), None, "load").kind == kind


def test_kinds_can_be_said_by_name_and_by_pattern(frame: pd.DataFrame) -> None:
    _, columns, schema = frame_table(
        frame, {"*t*": "ignore", "town": "category", "left": "count"}, "fit"
    )
    # what is said later counts
    assert kinds(schema) == {**KINDS, "height": "ignore", "visits": "ignore", "left": "count"}
    assert columns == ("smokes", "town", "left")
    table, _, schema = array_table([[0.5, 1], [2, 0]], {"x2": "real"}, "fit")
    assert (
        kinds(schema) == {"x1": "real", "x2": "real"} and not schema.mixed and table.shape == (2, 2)
    )


@pytest.mark.parametrize(
    ("column", "asked", "words"),
    [
        ([None, None, None], "real", "column 'a' must have an observed value; got none"),
        (
            [None, None, None],
            None,
            "at least one column must be left to learn from; got none: 'a' (no observed value)",
        ),
        (
            [2**60 + 1, 5, 7],
            None,
            "got none: 'a' (whole numbers beyond 2^53, such as 1152921504606846976, whose last",
        ),
        (
            [2**60 + 1, 5, 7],
            "category",
            "whole numbers of column 'a' must lie below 2^53 to be categories; got 1.15292e+18",
        ),
        (["x", "y", "x"], "real", "column 'a' must hold numbers to be real; got 'x'"),
        ([0, 1, 2], "binary", "column 'a' must hold only 0 and 1 to be binary; got '2'"),
        ([0.5, 1, 2], "count", "column 'a' must hold counts 0, 1, 2, ... to be count; got '0.5'"),
        ([0.5, 1, 2], "ignore", "at least one column must be left to learn from"),
        ([0.5, 1, 2], "word", "the kind of column 'a' must be one of"),
        ([[1], [2], [3]], None, "'a' (lists, structures or other values that are no numbers)"),
        ([[1], [2], [3]], "real", "got lists, structures or other values that are no numbers"),
    ],
)
def test_what_no_kind_can_take_is_one_sentence(
    column: list[Any], asked: str | None, words: str
) -> None:
    frame = pd.DataFrame({"a": pd.Series(column)})
    with pytest.raises((DataError, InputError)) as error:
        frame_table(frame, None if asked is None else {"a": asked}, "load")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_names_free_text_and_unknown_columns(tmp_path: Path) -> None:
    names = "\n".join(["who,b", *(f"person {i},{i % 3}.5" for i in range(200))])
    (tmp_path / "names.csv").write_text(names)
    line = (
        "names.csv: column 'who' (200 different words in 200 rows, as names or free text have) is "
        "left out. Read it otherwise, as with columns={'who': 'category'}."
    )
    with pytest.warns(PartitaWarning, match=re.escape(line)) as told:
        found = read(tmp_path / "names.csv", words=True)
    assert found.columns == ("b",) and len(told) == 1
    assert read(tmp_path / "names.csv", columns={"who": "ignore"}).train.shape == (200, 1)
    with pytest.raises(DataError, match="must name one of the columns who, b; got 'whom'"):
        read(tmp_path / "names.csv", columns={"whom": "ignore"})
    (tmp_path / "twice.csv").write_text("a,b,a\n1,2,3\n4,5,6\n")
    with pytest.raises(DataError, match="columns must have different names; got 'a' twice"):
        read(tmp_path / "twice.csv")


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("a", np.random.default_rng(0).permutation(np.arange(1, 41)), "the numbers of the rows"),
        ("no", np.arange(40), "the numbers of the rows"),
        ("user_id", np.arange(700, 740), "identifiers, by its name"),
        ("PassengerId", np.arange(700, 740), "identifiers, by its name"),
        ("ID", np.repeat(np.arange(100), 2), "identifiers, by its name"),
        ("ID", np.repeat([3, 9], 20), ""),  # few enough to be categories
        ("humid", np.arange(700, 740), ""),
        ("a", np.r_[np.arange(39), 37], ""),  # not each once
        ("a", np.arange(2, 42), ""),  # years of a series begin elsewhere
        ("a", np.arange(10), ""),  # too few to be told from counts
        ("a", np.r_[np.nan, np.arange(39)], ""),
    ],
)
def test_numbers_that_name_rows_are_left_out(
    name: str, values: np.ndarray, why: str, tmp_path: Path
) -> None:
    """The same of an array in memory and of a file that is read in chunks."""
    columns = [Series(name, values.astype(float), "int64"), Series("b", values + 0.5)]
    digest = Digest(name, "int64")
    for part in np.array_split(values.astype(float), 4):
        digest.add(Series(name, part, "int64"))
    for first in (columns[0], digest.series()):
        assert unfit(first, "load") == why and unfit(first, "load", alone=True) == (
            "" if "rows" in why else why
        )
    if why:
        with pytest.warns(PartitaWarning, match=rf"column '{name}' \({why}\) is left out"):
            schema = infer_schema([name, "b"], columns)
        assert [column.kind for column in schema.columns] == ["ignore", "real"]
        kept = infer_schema([name, "b"], columns, {name: "real"})
        assert kept.names == [name, "b"]


def test_another_table_is_read_by_the_schema_of_the_first(frame: pd.DataFrame) -> None:
    table, _, schema = frame_table(frame, {"left": "ignore"}, "fit")
    turned = frame[["town", "visits", "left", "smokes", "height"]]
    np.testing.assert_array_equal(frame_table(turned, schema, "evaluate")[0], table)
    for changed, words in (
        (
            frame.drop(columns="town"),
            "must have the columns of the fitted one, height, smokes, visits, town; got none "
            "called 'town'",
        ),
        (frame.assign(more=1), "got one more, 'more'"),
        (
            frame.assign(town=["Bonn", "Paris", "Bonn", "Bonn"]),
            "must hold categories of the fitted table, Bonn, Aachen; got 'Paris'",
        ),
        (
            frame.assign(town=[1, 2, 3, 4]),
            "column 'town' must hold words, as in the fitted table; got numbers",
        ),
    ):
        with pytest.raises(DataError, match=words):
            frame_table(changed, schema, "evaluate")


def test_a_filled_copy_changes_gaps_alone(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Cells that were there keep every character, spaces and odd zeros included; types of a
    .parquet stay.
    """
    source = 'n;  a ;b\n007; 1.50;"x; y"\n8;;  z\n\n9;NA;\n'
    (tmp_path / "t.csv").write_text(source)
    schema = infer_schema(
        ["a", "b"],
        [
            Series("a", np.array([1.5])),
            Series("b", np.array([1.0, 2.0]), "string", {1.0: "q", 2.0: "z"}),
        ],
    )
    write_filled(
        tmp_path / "t.csv", tmp_path / "o.csv", schema, np.array([[0, 1], [0.1, 2], [3.0, 1]])
    )
    assert (tmp_path / "o.csv").read_text() == 'n;  a ;b\n007; 1.50;"x; y"\n8;0.1;  z\n9;3.0;q\n'
    frame.to_parquet(tmp_path / "t.parquet")
    table, _, schema = frame_table(frame, None, "fit")
    filled = np.where(np.isnan(table), np.nanmax(table, 0), table)
    write_filled(tmp_path / "t.parquet", tmp_path / "o.parquet", schema, filled)
    after = pd.read_parquet(tmp_path / "o.parquet")
    assert (after.dtypes == frame.dtypes).all() and not after.isna().any().any()
    assert after["visits"].tolist() == [3, 0, 12, 12] and after["height"].tolist() == [
        1.5,
        2.25,
        2.25,
        1.75,
    ]


def test_tables_are_written_as_their_columns_say(frame: pd.DataFrame, tmp_path: Path) -> None:
    table, _, schema = frame_table(frame, None, "fit")
    write_columns(tmp_path / "o.parquet", schema.used, table[[0, 3]])
    found = pd.read_parquet(tmp_path / "o.parquet")
    assert [str(kind) for kind in found.dtypes] == ["float64", "bool", "int32", "category", "int64"]
    write_columns(tmp_path / "o.csv", schema.used, table)
    assert (tmp_path / "o.csv").read_text().splitlines()[:3] == [
        "height,smokes,visits,town,left",
        "1.5,True,3,Bonn,0",
        "2.25,,0,,1",
    ]
    assert text(1 / 3) == repr(1 / 3)
    codes = Column("code", "category", "category", (1.0, 2.0))
    grades = Column("grade", "category", "category", (1.0, 1.5))
    assert (
        codes.words([2.0]) == [2]
        and grades.words([1.0]) == [1.0]
        and type(codes.words([2.0])[0]) is int
    )


class Counted(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_copies_of_very_wide_tables_take_work_in_proportion(tmp_path: Path) -> None:
    """Columns are looked up by name, not searched for one by one: comparisons of names and calls
    grow as the columns do.
    """

    def work(width: int) -> tuple[int, int]:
        names = [Counted(f"a column called {i}") for i in range(width)]
        schema, calls = Schema(tuple(Column(name, "binary", "int64") for name in names)), 0
        (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join(["1"] * width) + "\n")

        def count(frame: Any, event: str, about: Any) -> None:
            nonlocal calls
            calls += 1

        Counted.compared = 0
        sys.setprofile(count)
        try:
            found = read(tmp_path / "t.csv", columns=schema)
            write_filled(tmp_path / "t.csv", tmp_path / "out.csv", schema, found.train)
        finally:
            sys.setprofile(None)
        return Counted.compared, calls

    work(10)
    few, many = work(500), work(4000)
    assert few[0] > 0 and few[1] > 500  # what is counted is there
    assert many[0] <= 9 * few[0] and many[1] <= 9 * few[1]


def test_a_column_of_one_value_is_carried_along(tmp_path: Path) -> None:
    """It is not modeled, and comes back in its place with its type; zeros stay what they are."""
    frame = pd.DataFrame({"x": [0.5, 1.5, 3.0], "year": [2013] * 3, "none": [0] * 3})
    frame["b"] = ["u"] * 3
    frame["day"] = pd.Timestamp("2013-05-01")
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = read(tmp_path / "t.csv", words=True)
    expected = ["real", "constant", "binary", "category", "constant"]
    assert found.schema is not None and found.columns == ("x", "none", "b")
    assert list(kinds(found.schema).values()) == expected
    assert Schema.from_json(found.schema.as_json()) == found.schema
    write_columns(tmp_path / "o.csv", *found.schema.carried(found.train))
    assert (tmp_path / "o.csv").read_text() == (tmp_path / "t.csv").read_text()
    write_columns(tmp_path / "o.parquet", *found.schema.carried(found.train))
    assert pd.read_parquet(tmp_path / "o.parquet")["year"].tolist() == [2013] * 3
    other = frame.assign(year=[1, 2, 3])
    assert frame_table(other, found.schema, "evaluate").columns == ("x", "none", "b")
    with pytest.raises(DataError, match="column 'x' must hold one value to be constant; got diff"):
        read(tmp_path / "t.csv", words=True, columns={"x": "constant"})
    modeled = read(tmp_path / "t.csv", words=True, columns={"year": "category"}).schema
    assert modeled is not None and "year" in modeled.names
