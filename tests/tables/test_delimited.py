"""Text as people write it: names over two lines, marks, blank lines, codes that look like numbers;
read once, whoever reads.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partita.errors import DataError
from partita.tables import Schema, csv, on_disk, read
from partita.tables.copies import convert, names_in, write_filled

ODD = {
    "names over two lines": ('"a\nb",c\n1.5,2\n3,\n', ("a\nb", "c")),
    "names over two lines, and tabs": ('"a\nb"\tc\n1.5\t2\n3\t\n', ("a\nb", "c")),
    "a comment's mark": ("# a,b\n1.5,2\n3,\n", ("a", "b")),
    "a name that is a mark": ("#,b\n1.5,2\n3,\n", ("#", "b")),
    "a mark in quotes": ('"a;b",c\n1.5,2\n3,\n', ("a;b", "c")),
    "lines of space": ("a,b\n   \n1.5,2\n  \n3,\n \n", ("a", "b")),
    "lines of space and no names": ("1.5,2\n3,\n   \n", None),
    "bars": ("a|b\n1.5|2\n3|\n", ("a", "b")),
    "tabs that part nothing": ("a\tb\n1.5\t2\n3\t\n\t\n", ("a", "b")),
}


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "large":
        monkeypatch.setattr(on_disk, "IN_MEMORY", 3)
        monkeypatch.setattr(csv, "FIELDS", 4)
    return request.param


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ODD)
def test_gaps_of_odd_files_are_filled_where_they_are(name: str, size: str, tmp_path: Path) -> None:
    """All readers agree on names and rows, and a copy differs from its file in what was missing
    alone.
    """
    text, columns = ODD[name]
    path = written(tmp_path / "t.csv", text)
    found = read(path)
    rows = [[1.5, 2.0], [3.0, np.nan]] + [[np.nan, np.nan]] * (name == "tabs that part nothing")
    assert (
        found.columns == columns
        and names_in(path) == (columns or ("x1", "x2"))
        and found.schema is not None
    )
    np.testing.assert_array_equal(np.asarray(found.train[:]), rows)
    write_filled(path, tmp_path / "out.csv", found.schema, np.where(np.isnan(rows), 7.0, rows))
    again = read(tmp_path / "out.csv")
    assert again.columns == columns
    np.testing.assert_array_equal(np.asarray(again.train[:]), np.where(np.isnan(rows), 7.0, rows))
    assert (
        text[text.index("1.5") :].splitlines()[0] in (tmp_path / "out.csv").read_text().splitlines()
    )


def test_a_mark_that_python_reads_over_is_no_part_of_a_number(tmp_path: Path) -> None:
    found = read(
        written(tmp_path / "t.csv", "a,b\n" + "1.5,2020_01\n2.5,2020_02\n" * 2), words=True
    )
    assert sorted((found.labels or {}).values()) == ["2020_01", "2020_02"]


@pytest.mark.parametrize("codes", [("01234", "1234"), ("100000000000000001", "100000000000000002")])
def test_codes_that_are_asked_for_as_categories_keep_their_digits(
    codes: tuple[str, str], size: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "t.csv", "a,zip\n" + f"1.5,{codes[0]}\n2.5,{codes[1]}\n3.5,\n" * 9)
    found = read(path, words=True, columns={"z*": "category"})
    assert found.schema is not None and [column.kind for column in found.schema.columns] == [
        "real",
        "category",
    ]
    assert (
        sorted((found.labels or {}).values()) == sorted(codes)
        and found.schema.columns[1].dtype == "string"
    )
    filled = np.where(
        np.isnan(x := np.asarray(found.train[:])), found.schema.columns[1].levels[0], x
    )
    write_filled(path, tmp_path / "out.parquet", found.schema, filled)
    again = read(tmp_path / "out.parquet", words=True, columns=found.schema)
    np.testing.assert_array_equal(np.asarray(again.train[:]), filled)


def test_plain_numbers_that_are_asked_for_as_categories_are_numbers(
    size: str, tmp_path: Path
) -> None:
    found = read(
        written(tmp_path / "t.csv", "a,n\n" + "1.5,3\n2.5,7\n" * 9),
        words=True,
        columns={"n": "category"},
    )
    assert (
        found.schema is not None
        and found.schema.columns[1].levels == (3.0, 7.0)
        and not found.labels
    )


@pytest.mark.parametrize("rest", ["1,7", "2,", "1,True", "2,2020-01-01", "1, z "])
def test_words_of_a_run_are_words_in_files_where_they_look_like_others(
    rest: str, size: str, tmp_path: Path
) -> None:
    word = rest.partition(",")[2].strip()
    first = read(
        written(tmp_path / "t.csv", f"a,w\n3,x\n4,y\n5,{word}\n" + "0,x\n0,y\n" * 5), words=True
    )
    assert isinstance(first.schema, Schema) and first.schema.columns[1].labels
    found = read(
        written(tmp_path / "new.csv", f"a,w\n{rest}\n{rest}\n"), words=True, columns=first.schema
    )
    labels = [
        first.schema.columns[1].labels.get(value)
        for value in np.asarray(found.train[:])[:, 1].tolist()
    ]
    assert labels == [word or None] * 2
    convert(tmp_path / "new.csv", tmp_path / "new.parquet", first.schema.used)
    again = read(tmp_path / "new.parquet", words=True, columns=first.schema)
    np.testing.assert_array_equal(np.asarray(again.train[:]), np.asarray(found.train[:]))


def test_one_column_of_words_of_one_length_is_sequences_unless_its_kind_is_said(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "t.csv", "town\n" + "Rome\nOslo\n" * 9)
    assert read(path, words=True).train.shape == (19, 4)
    found: Any = read(path, words=True, columns={"town": "category"})
    assert found.train.shape == (18, 1) and sorted(found.labels.values()) == ["Oslo", "Rome"]
    assert read(path, words=True, columns=found.schema).train.shape == (18, 1)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            ["1,234.5", "950"],
            "must hold plain numbers or words; got numbers with marks in them, such as '1,234.5'. "
            "Write them like 1234.5",
        ),
        (["0,5", "1,25"], "got numbers with marks in them, such as '0,5'"),
        (["12%", "7 %"], "got numbers with marks in them, such as '12%'"),
        (["$3", "€1.234"], "got numbers with marks in them, such as '$3'"),
        (["\u22120.5", "1e-3"], "got numbers with marks in them, such as '\u22120.5'"),
        (["1\u00a0200", "950"], "got numbers with marks in them, such as '1\\xa0200'"),
        (
            [*(f"{i}.25" for i in range(20)), "-"],
            "got numbers with words among them, such as '-'. Leave fields empty where a number",
        ),
    ],
)
def test_words_that_are_no_categories_are_refused(
    cells: list[str], words: str, size: str, tmp_path: Path
) -> None:
    rows = "".join(
        f'{i}.5,"{cell}"\n' for i, cell in enumerate(cells * (1 if len(cells) > 2 else 9))
    )
    path = written(tmp_path / "t.csv", "a,m\n" + rows)
    with pytest.raises(DataError) as caught:
        read(path, words=True)
    assert words in str(caught.value)
    asked = read(path, words=True, columns={"m": "category"})
    assert (
        sorted((asked.labels or {}).values()) == sorted(cells)
        and asked.schema is not None
        and asked.schema.columns[1].dtype == "string"
    )


def test_what_is_no_number_is_named_where_numbers_are_asked_for(size: str, tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "a,m\n" + "".join(f"{i}.5,{i if i != 7 else 'off'}\n" for i in range(20)),
    )
    with pytest.raises(DataError, match="column 'm' must hold numbers to be real; got 'off'"):
        read(path, words=True, columns={"m": "real"})


@pytest.mark.parametrize(
    "cells",
    [["3.1.2", "10.0"], ["1,2,3", "1"], ["18-25", "26-40"], [f"{i % 9}a" for i in range(12)]],
)
def test_words_with_digits_are_words(cells: list[str], tmp_path: Path) -> None:
    found = read(
        written(
            tmp_path / "t.csv",
            "a,m\n" + "".join(f'{i}.5,"{cell}"\n' for i, cell in enumerate(cells * 4)),
        ),
        words=True,
    )
    assert set((found.labels or {}).values()) == set(cells)


def test_lines_of_space_far_into_a_file_are_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow has read some blocks by then, whose rows are not read again."""
    monkeypatch.setattr(csv, "LONGEST", 256)
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "".join(f"{i},{i}.5\n" for i in range(300)) + "   \n7,8\n  \n9,10\n")
    x = np.asarray(read(path).train[:])
    assert x.shape == (302, 2) and x[:300, 0].tolist() == list(range(300))
    assert x[300:].tolist() == [[7.0, 8.0], [9.0, 10.0]]


def test_a_process_that_met_an_uneven_row_ends_as_others_do(tmp_path: Path) -> None:
    """It was aborted while it ended, more often than not."""
    (tmp_path / "uneven.csv").write_text("a,b\n1,2\n3\n4,5,6\n")
    code = "import sys, partita.datasets as d\ntry: d.load(sys.argv[1])\nexcept Exception: pass"
    words = [sys.executable, "-c", code, str(tmp_path / "uneven.csv")]
    assert [subprocess.run(words, check=False).returncode for _ in range(2)] == [0, 0]
