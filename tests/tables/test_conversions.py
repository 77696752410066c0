"""A .csv as a columnar file and back: every column in its place, every observed cell what it was,
types that hold them exactly.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from partita.tables.copies import convert, names_in, write_beside, write_filled
from partita.tables.files import frame_table
from partita.tables.schema import Column

TEXT = (
    "id,whole,big,mixed,truth,day,word,price,few\n007,1,9007199254740993,1,True,2020-01-01,Bonn,0.1,1\n"
    "008,,-5,2.5,false,2020-01-02,,1e3,2\n"
)


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "day": pd.date_range("2020-01-01", periods=4),
            "town": pd.Categorical(["b", None, "a", "b"], ["b", "a", "c"]),
            "small": np.array([1.1, np.nan, 3.3, 0.25], dtype="float32"),
            "count": pd.array([3, None, 0, 7], dtype="Int16"),
            "yes": [True, False, True, True],
            "name": ["u,v", 'q"t', " s", "z"],
            "big": [2**60 + 1, 2, 3, 4],
            "real": [0.1, 0.2, 1 / 3, np.nan],
        }
    )


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_text_gets_types_that_lose_nothing(tmp_path: Path, ending: str) -> None:
    (tmp_path / "t.csv").write_text(TEXT)
    known = [
        Column("whole", "count", "int16"),
        Column("price", "real", "float32"),
        Column("few", "binary", "bool"),
        Column("word", "category", "category", (1.0,), {1.0: "Bonn"}),
        Column("mixed", "count", "int64"),
    ]
    convert(tmp_path / "t.csv", tmp_path / f"t{ending}", known)
    read = pd.read_parquet if ending == ".parquet" else pd.read_feather
    found = read(tmp_path / f"t{ending}", dtype_backend="numpy_nullable")
    assert {name: str(kind) for name, kind in found.dtypes.items()} == {
        "id": "string",
        "whole": "Int16",
        "big": "Int64",
        "mixed": "Float64",
        "truth": "boolean",
        "day": "string",
        "word": "category",
        "price": "Float64",
        "few": "Int64",
    }
    assert (
        found["id"].tolist() == ["007", "008"]
        and found["big"].tolist() == [2**53 + 1, -5]
        and found["price"].tolist() == [0.1, 1000.0]
    )
    assert found.isna().sum().to_dict() == {**dict.fromkeys(found, 0), "whole": 1, "word": 1}


def test_columns_of_a_frame_become_text_that_reads_back(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame.to_parquet(tmp_path / "t.parquet")
    convert(tmp_path / "t.parquet", tmp_path / "t.csv", [])
    found = pd.read_csv(
        tmp_path / "t.csv",
        dtype={"small": "float32", "count": "Int16", "town": frame["town"].dtype},
        parse_dates=["day"],
    )
    pd.testing.assert_frame_equal(found, frame, check_exact=True, check_dtype=False)
    assert "1.1,3" in (tmp_path / "t.csv").read_text()  # and not the digits that a wider float has
    assert names_in(tmp_path / "t.csv") == names_in(tmp_path / "t.parquet") == tuple(frame.columns)


@pytest.mark.parametrize(
    ("source", "path"),
    [("t.csv", "o.parquet"), ("t.parquet", "o.csv"), ("t.csv", "o.csv"), ("t.parquet", "o.arrow")],
)
def test_copies_keep_every_column_whatever_the_sort_of_file(
    frame: pd.DataFrame, tmp_path: Path, source: str, path: str
) -> None:
    """Gaps of the columns that a schema uses are filled, gaps of ignored ones stay; results come
    after all columns.
    """
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    ignored: dict[str, str] = dict.fromkeys(("day", "name", "big", "real"), "ignore")
    # a run has an order of its own
    table, _, schema = frame_table(frame[list(reversed(frame.columns))], ignored, "fit")
    filled = np.where(np.isnan(table), np.nanmax(table, 0), table)
    write_filled(tmp_path / source, tmp_path / path, schema, filled)
    after = _read(tmp_path / path)
    assert list(after.columns) == list(frame.columns)
    for name in frame:
        there = frame[name].notna()
        assert list(map(str, after[name][there])) == list(map(str, frame[name][there]))
        assert after[name].isna().sum() == (name == "real")
    assert after["town"].tolist() == ["b", "b", "a", "b"] and after["count"].tolist() == [
        3,
        7,
        0,
        7,
    ]
    write_beside(
        tmp_path / source,
        tmp_path / path,
        [Column("score", "real")],
        np.arange(4.0)[:, None],
        schema.used,
    )
    beside = _read(tmp_path / path)
    assert list(beside.columns) == [*frame.columns, "score"] and beside["score"].tolist() == [
        0.0,
        1.0,
        2.0,
        3.0,
    ]
    assert beside.isna().sum().to_dict() == {**frame.isna().sum().to_dict(), "score": 0}


def _read(path: Path) -> Any:
    """As pandas reads it, with numbers of text as narrow as they were written."""
    if path.suffix != ".csv":
        found = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_feather(path)
        return found.assign(
            day=pd.to_datetime(found["day"]),
            small=found["small"].astype("float32"),
            count=found["count"].astype("Int16"),
        )
    return pd.read_csv(path, dtype={"small": "float32", "count": "Int16"}, parse_dates=["day"])
