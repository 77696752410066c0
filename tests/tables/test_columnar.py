"""Parquet, Arrow and Feather files: the same table whatever the format and however large, and
copies that keep what is there.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partita.errors import DataError, PartitaWarning
from partita.tables import Schema, arrow, on_disk, read
from partita.tables.arrow import COLUMNAR, open_columnar
from partita.tables.copies import write_beside, write_filled
from partita.tables.on_disk import OnDisk
from partita.tables.schema import Column
from partita.tables.write import write_columns

ROWS = 500


@pytest.fixture
def frame() -> pd.DataFrame:
    g = np.random.default_rng(0)
    made = pd.DataFrame(
        {
            "height": g.normal(170, 10, ROWS),
            "smokes": pd.array(g.random(ROWS) < 0.3, dtype="boolean"),
            "visits": pd.array(g.poisson(3, ROWS), dtype="Int32"),
            "town": pd.Categorical(
                g.choice(["Bonn", "Aachen", "Ulm"], ROWS),
                categories=["Ulm", "Bonn", "Aachen", "Trier"],
            ),
            "sex": g.choice(["f", "m"], ROWS),
        }
    )
    for column in made:
        made.loc[g.random(ROWS) < 0.1, column] = None
    return made


def save(table: Any, path: Path, kind: str = "file", rows: int = 77) -> Path:
    """A frame as a columnar file, in batches whose ends fall anywhere."""
    table = (
        pa.Table.from_pandas(table, preserve_index=False)
        if isinstance(table, pd.DataFrame)
        else table
    )
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows)
        return path
    with (pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file)(
        str(path), table.schema
    ) as out:
        out.write_table(table.unify_dictionaries(), max_chunksize=rows)
    return path


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is too large for memory, and pieces are short."""
    monkeypatch.setattr(on_disk, "IN_MEMORY", 100)
    monkeypatch.setattr(arrow, "CHUNK", 150)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("ending", "kind"),
    [(".parquet", ""), (".arrow", "file"), (".arrow", "stream"), (".feather", "file")],
)
def test_every_format_and_size_gives_the_same_table_and_schema(
    ending: str,
    kind: str,
    large: bool,
    frame: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = save(frame, tmp_path / f"t{ending}", kind)
    small = read(save(frame, tmp_path / "small.parquet"), words=True)
    if large:
        monkeypatch.setattr(on_disk, "IN_MEMORY", 100)
        monkeypatch.setattr(arrow, "CHUNK", 150)
    found = read(path, words=True)
    assert isinstance(found.train, OnDisk) == large
    np.testing.assert_array_equal(np.asarray(found.train), small.train)
    assert (
        found.schema == small.schema
        and found.columns == small.columns
        and found.labels == small.labels
    )
    kinds = ["real", "binary", "count", "category", "category"]
    assert found.schema is not None and [column.kind for column in found.schema.columns] == kinds
    again = read(path, words=True, columns=found.schema)
    np.testing.assert_array_equal(np.asarray(again.train), small.train)


def test_kinds_that_are_asked_for_and_columns_that_are_left_out(
    frame: pd.DataFrame, tmp_path: Path, in_pieces: None
) -> None:
    frame["id"] = [f"person {i}" for i in range(ROWS)]
    path = save(frame, tmp_path / "t.arrow")
    with pytest.warns(PartitaWarning, match=rf"'id' \({ROWS} different words in {ROWS} rows"):
        found = read(path, words=True)
    assert found.columns == ("height", "smokes", "visits", "town", "sex")
    with pytest.raises(
        DataError, match=r"must be numeric; got text or other values in columns 'town', 'sex', 'id'"
    ):
        read(path)
    found = read(path, words=True, columns={"id": "ignore", "visits": "category"})
    assert found.columns == ("height", "smokes", "visits", "town", "sex") and found.train.shape == (
        ROWS,
        5,
    )
    schema = found.schema
    assert schema is not None
    visits = schema.columns[2]
    assert visits.kind == "category" and visits.missing == frame["visits"].isna().sum()
    assert visits.levels == tuple(sorted(frame["visits"].dropna().unique()))
    changed = save(frame.assign(sex=["x"] * ROWS), tmp_path / "u.arrow")
    with pytest.raises(
        DataError, match="column 'sex' must hold categories of the fitted table, f, m; got 'x'"
    ):
        read(changed, words=True, columns=schema)


def test_small_whole_numbers_stay_small_on_disk(tmp_path: Path, in_pieces: None) -> None:
    x = np.random.default_rng(0).integers(0, 256, (300, 4)).astype(np.uint8)
    found = read(save(pd.DataFrame(x, columns=list("abcd")), tmp_path / "x.arrow"), words=True)
    assert isinstance(found.train, OnDisk) and found.train.dtype == np.uint8
    np.testing.assert_array_equal(found.train[:], x)
    assert found.schema is not None and {column.kind for column in found.schema.columns} == {
        "count"
    }


def test_files_that_polars_writes_are_read(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"a": [1.5, None, 2.0], "town": ["Ulm", "Bonn", None]},
        schema_overrides={"town": pl.Categorical},
    )
    frame = frame.with_columns(word=pl.Series(["x", "y", "y"]))
    frame.write_ipc(tmp_path / "t.arrow")
    frame.write_ipc_stream(tmp_path / "t.feather")
    frame.write_parquet(tmp_path / "t.parquet")
    tables = [read(tmp_path / f"t{ending}", words=True) for ending in COLUMNAR]
    for table in tables[1:]:
        np.testing.assert_array_equal(table.train, tables[0].train)
        assert table.labels == tables[0].labels and set(table.labels.values()) == {
            "Ulm",
            "Bonn",
            "x",
            "y",
        }  # type: ignore[union-attr]


def test_a_file_that_polars_wrote_is_filled_in_its_own_types(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1.5, None, 2.0], "word": ["x", None, "y"]})
    frame.write_ipc(tmp_path / "t.arrow")
    found = read(tmp_path / "t.arrow", words=True)
    assert found.schema is not None
    write_filled(
        tmp_path / "t.arrow",
        tmp_path / "o.arrow",
        found.schema,
        np.where(np.isnan(found.train), found.train[0], found.train),
    )
    assert pl.read_ipc(tmp_path / "o.arrow").to_dict(as_series=False) == {
        "a": [1.5, 1.5, 2.0],
        "word": ["x", "x", "y"],
    }
    assert open_columnar(tmp_path / "o.arrow").schema == open_columnar(tmp_path / "t.arrow").schema


@pytest.mark.parametrize("ending", COLUMNAR)
@pytest.mark.parametrize("cut", [10, 400, -9])
def test_damaged_files_are_named(
    ending: str, cut: int, frame: pd.DataFrame, tmp_path: Path
) -> None:
    path = save(frame, tmp_path / f"t{ending}")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(
        DataError, match=rf"must be a whole \{ending} file; got one that is cut short or damaged"
    ):
        read(path, words=True)


def test_other_files_of_that_name_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.feather").write_bytes(b"FEA1" + bytes(40))
    with pytest.raises(
        DataError, match="must be a Feather file of version 2; got one of version 1"
    ):
        read(tmp_path / "t.feather")
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), pa.schema([])) as out:
        out.write_table(pa.table({}))
    with pytest.raises(DataError, match="must have at least one column; got none"):
        read(tmp_path / "t.arrow")


@pytest.mark.parametrize("out", COLUMNAR)
@pytest.mark.parametrize("source", COLUMNAR)
def test_a_copy_fills_gaps_and_keeps_types_order_and_categories(
    source: str, out: str, frame: pd.DataFrame, tmp_path: Path, in_pieces: None
) -> None:
    """Also those that no row has, and in the file's own order, whatever pieces it is read in."""
    frame = frame.iloc[:, ::-1]
    path = save(frame, tmp_path / f"t{source}")
    found = read(path, words=True)
    x, schema = np.asarray(found.train), found.schema
    assert schema is not None
    filled = np.where(np.isnan(x), np.nanmax(x, 0), x)
    write_filled(path, tmp_path / f"o{out}", schema, filled)
    before, after = (open_columnar(p).table() for p in (path, tmp_path / f"o{out}"))
    assert after.num_rows == ROWS and after.column_names == before.column_names
    if ".parquet" not in (source, out) or source == out:  # Parquet numbers categories by 32 bits
        assert after.schema.remove_metadata() == before.schema.remove_metadata()
    new = after.to_pandas()
    assert (new.dtypes == frame.dtypes).all() and list(new["town"].cat.categories) == [
        "Ulm",
        "Bonn",
        "Aachen",
        "Trier",
    ]
    assert not new.isna().any().any()
    for name in frame:
        there = frame[name].notna()
        pd.testing.assert_series_equal(new[name][there], frame[name][there])


def test_results_go_beside_the_columns_of_a_file(
    frame: pd.DataFrame, tmp_path: Path, in_pieces: None
) -> None:
    path = save(frame, tmp_path / "t.arrow")
    x = np.stack([np.arange(ROWS), np.linspace(0, 1, ROWS)], 1)
    write_beside(
        path, tmp_path / "o.parquet", [Column("cluster", "count", "int64"), Column("p", "real")], x
    )
    after = pd.read_parquet(tmp_path / "o.parquet")
    pd.testing.assert_frame_equal(after[list(frame)], frame)
    assert after["cluster"].dtype == np.int64 and after["p"].tolist() == x[:, 1].tolist()


@pytest.mark.parametrize("ending", [*COLUMNAR, ".csv", ".npy", ".npz"])
def test_a_table_on_disk_is_written_as_one_in_memory(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.round(np.random.default_rng(0).normal(size=(400, 3)), 3)
    x[:, 1] = np.round(x[:, 1])
    columns = [Column("a", "real"), Column("b", "real", "int64"), Column("c", "real")]
    write_columns(tmp_path / f"here{ending}", columns, x)
    monkeypatch.setattr(on_disk, "IN_MEMORY", 100)
    monkeypatch.setattr("partita.tables.arrays.CHUNK", 100)
    monkeypatch.setattr("partita.tables.csv.FIELDS", 100)
    there = on_disk.gather_rows(iter(np.array_split(x, 7)), x.shape, np.float64)
    assert isinstance(there, OnDisk)
    write_columns(tmp_path / f"there{ending}", columns, there)
    monkeypatch.undo()
    if ending in (".csv", ".npy"):
        assert (tmp_path / f"here{ending}").read_bytes() == (
            tmp_path / f"there{ending}"
        ).read_bytes()
    one, other = (read(tmp_path / f"{name}{ending}") for name in ("here", "there"))
    np.testing.assert_array_equal(one.train, x)
    np.testing.assert_array_equal(other.train, x)
    assert one.columns == other.columns and (
        one.schema == other.schema or not isinstance(one.schema, Schema)
    )


def test_gaps_are_filled_in_the_types_of_the_file(tmp_path: Path) -> None:
    """Whole numbers stay whole where the run has others; a column of which nothing is there gets
    the type that the run has.
    """
    words = Column("w", "category", "string", (120.0, 121.0), {120.0: "x", 121.0: "y"})
    columns = (Column("x", "real"), words, Column("n", "count", "int16"))
    held = {"x": pa.array([3, None, 5]), "w": pa.nulls(3), "n": pa.array([None, 2.0, None])}
    filled = np.array([[3.0, 120.0, 1.0], [7.7, 121.0, 2.0], [5.0, 120.0, 4.0]])
    for word in (
        pa.nulls(3),
        pa.nulls(3, pa.float64()),
        pa.nulls(3, pa.dictionary(pa.int8(), pa.float64())),
    ):
        pq.write_table(pa.table({**held, "w": word}), tmp_path / "t.parquet")
        write_filled(tmp_path / "t.parquet", tmp_path / "out.parquet", Schema(columns), filled)
        found = pq.read_table(tmp_path / "out.parquet")
        assert found.to_pydict() == {"x": [3, 8, 5], "w": ["x", "y", "x"], "n": [1.0, 2.0, 4.0]}
        assert [str(kind) for kind in found.schema.types] == ["int64", "string", "double"]


def test_numbers_too_large_to_be_told_apart_are_no_categories(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [0.5, 1.5], "id": [2**60, 2**60 + 1]}), tmp_path / "t.parquet")
    with pytest.raises(
        DataError,
        match=r"whole numbers of column 'id' must lie below 2\^53 to be categories; got .*\. Turn "
        r"them into words, or leave it",
    ):
        read(tmp_path / "t.parquet", words=True, columns={"id": "category"})
