"""Files: what was written is read again, and what cannot be read says why in one sentence."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from partita.datasets import load
from partita.errors import DataError
from partita.tables import arrow, on_disk, read
from partita.tables.on_disk import OnDisk


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(4).normal(size=(20, 3))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_npy_is_memory_mapped(tmp_path: Path, x: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", x)
    table = read(tmp_path / "x.npy").train
    assert isinstance(table, np.memmap)
    np.testing.assert_array_equal(table, x)


@pytest.mark.parametrize("names", [("train", "valid", "test"), ("x_train", "x_valid", "x_test")])
def test_npz_with_a_split_is_read_as_one(
    tmp_path: Path, x: np.ndarray, names: tuple[str, str, str]
) -> None:
    np.savez_compressed(
        tmp_path / "x.npz", **dict(zip(names, (x, x[:5], x[:2]), strict=True)), y_train=np.zeros(20)
    )
    splits = read(tmp_path / "x.npz")
    assert splits.valid is not None
    assert splits.test is not None
    np.testing.assert_array_equal(splits.train, x)
    assert (len(splits.valid), len(splits.test)) == (5, 2)


def test_npz_with_x_brings_its_columns_and_weights(tmp_path: Path, x: np.ndarray) -> None:
    np.savez(
        tmp_path / "x.npz",
        x=x,
        y=np.zeros(20),
        columns=np.array(["a", "b", "c"]),
        weights=np.arange(20),
    )
    splits = read(tmp_path / "x.npz")
    assert splits.columns == ("a", "b", "c")
    np.testing.assert_array_equal(splits.weight, np.arange(20))


def test_a_single_array_needs_no_name_and_others_do(tmp_path: Path, x: np.ndarray) -> None:
    np.savez(tmp_path / "one.npz", numbers=x, alphabet=np.array("abc"))
    np.testing.assert_array_equal(read(tmp_path / "one.npz").train, x)
    np.savez(tmp_path / "two.npz", a=x, b=x[:4])
    assert len(read(tmp_path / "two.npz", "b").train) == 4
    with pytest.raises(
        DataError,
        match=r"two\.npz needs one of its arrays a, b; got no choice among them\. Choose one .* as "
        r"in two:a\.",
    ):
        read(tmp_path / "two.npz")
    with pytest.raises(DataError, match=r"needs one of its arrays a, b; got 'c'\."):
        load(f"{tmp_path / 'two.npz'}:c")


@pytest.mark.parametrize("ending", [".csv", ".txt"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimited_numbers_round_trip(
    tmp_path: Path, x: np.ndarray, ending: str, delimiter: str
) -> None:
    path = tmp_path / f"x{ending}"
    pd.DataFrame(x, columns=["a", "b, or c", "d"]).to_csv(path, index=False, sep=delimiter)
    splits = read(path)
    assert splits.columns == ("a", "b, or c", "d")
    np.testing.assert_array_equal(splits.train, x)


def test_numbers_without_names_are_all_rows(tmp_path: Path, x: np.ndarray) -> None:
    np.savetxt(tmp_path / "x.txt", x, fmt="%.17g")
    assert read(tmp_path / "x.txt").columns is None
    np.testing.assert_array_equal(read(tmp_path / "x.txt").train, x)


def test_a_commented_header_is_a_header(tmp_path: Path, x: np.ndarray) -> None:
    np.savetxt(tmp_path / "x.txt", x, fmt="%.17g", header="a b c")
    assert read(tmp_path / "x.txt").columns == ("a", "b", "c")
    np.testing.assert_array_equal(read(tmp_path / "x.txt").train, x)


def test_csv_may_have_a_mark_blank_lines_and_a_single_column(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("\ufeffbody mass\r\n1\r\n\r\n2\r\n".encode())
    assert read(path).columns == ("body mass",)
    assert read(path).train.tolist() == [[1], [2]]


def test_missing_values_arrive_as_nan_and_load_names_their_place(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "a,b\n1,2\n3,\nNA,4\n")
    np.testing.assert_array_equal(read(path).train, [[1, 2], [3, np.nan], [np.nan, 4]])
    with pytest.raises(
        DataError,
        match=r"x\.csv'\): x must be finite; got nan at row 1, column 'b'\. Remove or impute",
    ):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a,city\n1,Rome\n2,Oslo\n",
            r"x\.csv must be numeric; got text or other values in column 'city'\. Encode",
        ),
        (
            "1,Rome,x\n2,Oslo,y\n",
            r"x\.csv must be numeric; got text or other values in columns 'Rome', 'x'",
        ),
        ("a,b\n1,2\n3\n", r"x\.csv must have 2 values in each row; got 1 in row 1\. Give all rows"),
        ("a,b\n1,2,3\n4,5,6\n", r"x\.csv must have 2 values in each row; got 3 in row 0\."),
        (
            "# by hand\na,b\n1,2\n",
            r"got 2 in row 0\. Take out its first line, '# by hand', if that is no row\.",
        ),
        (
            "sep=;\na;b\n1;2\n",
            r"x\.csv must begin with names or numbers; got 'sep=;', which is for Excel alone\. "
            r"Take that line out\.",
        ),
        ("1,2\n3,4,5\n", r"x\.csv must have 2 values in each row; got 3 in row 1\."),
        ("a,b\n", r"x\.csv must hold rows; got only a line of names\. Write it again\."),
        ("\n\n", r"x\.csv must hold rows; got none\."),
        ("", r"x\.csv is empty\."),
    ],
)
def test_bad_csv_says_why(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / "x.csv", text))


@pytest.mark.parametrize(
    "raw", [b"\xff\xfe\x00\x81", "a,b\n1,Köln\n".encode("latin-1"), "a,b\n1,2\n".encode("utf-16")]
)
def test_csv_that_is_no_utf8_is_told_so(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "x.csv").write_bytes(raw)
    with pytest.raises(
        DataError,
        match=r"must be a whole \.csv file, in UTF-8; got bytes that are no such text\. Save it as "
        r"UTF-8",
    ):
        read(tmp_path / "x.csv", words=True)


@pytest.mark.parametrize("in_memory", [1 << 30, 0])
def test_parquet_round_trips_also_through_a_file_on_disk(
    tmp_path: Path, in_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_disk, "IN_MEMORY", in_memory)
    monkeypatch.setattr(arrow, "CHUNK", 7)
    frame = pd.DataFrame(
        {"a": 2 * np.arange(20), "b": np.arange(20) / 8, "c": np.arange(20) % 2 == 0}
    )
    frame.to_parquet(tmp_path / "x.parquet")
    splits = read(tmp_path / "x.parquet")
    assert splits.columns == ("a", "b", "c")
    assert isinstance(splits.train, OnDisk) == (in_memory == 0)
    np.testing.assert_array_equal(splits.train, frame.to_numpy(float))


def test_parquet_keeps_small_integers_and_reads_missing_ones_as_nan(tmp_path: Path) -> None:
    pd.DataFrame({"a": np.array([1, 2], dtype=np.uint8)}).to_parquet(tmp_path / "small.parquet")
    assert read(tmp_path / "small.parquet").train.dtype == np.uint8
    frame = pd.DataFrame(
        {"a": pd.array([1, None], dtype="Int64"), "b": pd.array([True, None], dtype="boolean")}
    )
    frame.to_parquet(tmp_path / "missing.parquet")
    np.testing.assert_array_equal(
        read(tmp_path / "missing.parquet").train, [[1, 1], [np.nan, np.nan]]
    )


def test_text_columns_of_parquet_are_named(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1], "city": ["Rome"], "day": pd.to_datetime(["2020-01-01"])}).to_parquet(
        tmp_path / "x.parquet"
    )
    with pytest.raises(
        DataError,
        match=r"x\.parquet must be numeric; got text or other values in columns 'city', 'day'\.",
    ):
        read(tmp_path / "x.parquet")


@pytest.mark.parametrize("keep", [0.02, 0.5, 0.95])
@pytest.mark.parametrize("ending", [".npz", ".npy", ".parquet"])
def test_files_cut_short_are_damaged(tmp_path: Path, ending: str, keep: float) -> None:
    path, x = tmp_path / f"x{ending}", np.random.default_rng(5).random((500, 3))
    if ending == ".npz":
        np.savez_compressed(path, train=x, test=x)
    elif ending == ".npy":
        np.save(path, x)
    else:
        pd.DataFrame(x, columns=["a", "b", "c"]).to_parquet(path)
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(
        DataError, match=rf"must be a whole {ending} file; got one that is cut short or damaged\."
    ):
        read(path)


def test_an_npz_with_flipped_bytes_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, train=np.random.default_rng(6).random((500, 3)))
    content = bytearray(path.read_bytes())
    content[2000:2010] = bytes(255 - byte for byte in content[2000:2010])
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"must be a whole \.npz file; got one that is cut short or damaged\."
    ):
        read(path)


@pytest.mark.parametrize("ending", [".npz", ".npy"])
def test_python_objects_are_never_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    (np.savez if ending == ".npz" else np.save)(path, np.array([{"a": 1}], dtype=object))
    with pytest.raises(
        DataError,
        match=r"must hold numbers; got Python objects, which could run code and are never read\.",
    ):
        read(path, "arr_0" if ending == ".npz" else None)


def test_paths_that_are_no_data_file_say_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a folder, not a file\. Name a file in it"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"^file not found: .*\. Check the spelling"):
        read(tmp_path / "none.csv")
    with pytest.raises(
        DataError, match=r"must end in one of \.npz \.npy \.csv .*; got \.xlsx\. Convert it"
    ):
        read(write(tmp_path / "x.xlsx", "1"))
    with pytest.raises(
        DataError, match=r"got \.tsv\. Rename it to \.csv, where tabs separate fields too"
    ):
        read(write(tmp_path / "x.tsv", "1"))
    with pytest.raises(DataError, match=r"got no ending\."):
        read(write(tmp_path / "numbers", "1"))
    with pytest.raises(
        DataError,
        match=r"only an \.npz file holds named arrays; got 'a' with .*x\.csv\. Leave out ':a'\.",
    ):
        read(write(tmp_path / "x.csv", "1"), "a")
