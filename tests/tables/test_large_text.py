"""Text tables too large to be held: the table, names and schema of one that is read at once."""

from pathlib import Path

import numpy as np
import pytest

from partita.errors import DataError, PartitaWarning
from partita.tables import csv, on_disk, read
from partita.tables.on_disk import OnDisk

g = np.random.default_rng(0)
NUMBERS = "\n".join(
    f"{a:.3f},{b},{'' if b == 2 else int(a > 0)}"
    for a, b in zip(g.normal(size=90), g.integers(0, 4, 90), strict=True)
)
CHOICES = (["red", "blue", "NA", "a much longer word"], ["True", "false", ""], ["1", "2", "x"])
COLORS, TRUTHS, CODES = (g.choice(words, 90) for words in CHOICES)
WORDS = "\n".join(f"{a}; {b} ;{len(a)};{c}" for a, b, c in zip(COLORS, TRUTHS, CODES, strict=True))
TABLES = {
    "numbers": NUMBERS,
    "numbers with names": "height,rooms,sold\n" + NUMBERS,
    "words": "color;new;visits;code\n" + WORDS,
    "words without names": WORDS + "\n" + WORDS,
    "a quoted line": 'a,b\n"x, y",1\n\n"z",2\n"z",3\n',
    "late words": "a\n" + "1\n" * 50 + "x\n" * 50,
}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_disk, "IN_MEMORY", 10)
    monkeypatch.setattr(csv, "FIELDS", 40)


@pytest.mark.parametrize("name", list(TABLES))
def test_a_large_table_is_read_as_a_small_one(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "t.csv").write_text(TABLES[name])
    small = read(tmp_path / "t.csv", words=True)
    request.getfixturevalue("large")
    found = read(tmp_path / "t.csv", words=True)
    assert isinstance(found.train, OnDisk)
    np.testing.assert_array_equal(found.train[:], small.train)
    assert (found.columns, found.schema, found.labels) == (
        small.columns,
        small.schema,
        small.labels,
    )
    again = read(tmp_path / "t.csv", words=True, columns=small.schema)
    np.testing.assert_array_equal(np.asarray(again.train), small.train)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a,b\n" + "1,2\n" * 40 + "3\n",
            r"must have 2 values in each row; got 1 in row 40\. Give all rows",
        ),
        ("a,city\n1,Rome\n2,Oslo\n", r"must be numeric; got text or other values in column 'city'"),
        ("\n\n\n\n\n\n\n\n\n\n\n\n", "must hold rows; got none"),
    ],
)
def test_what_is_wrong_with_a_large_table_is_named(
    text: str, message: str, tmp_path: Path, large: None
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "t.csv")


def test_columns_are_left_out_before_they_are_read(tmp_path: Path, large: None) -> None:
    (tmp_path / "t.csv").write_text(
        "id,day,x\n" + "".join(f"person {i},2020-01-{1 + i % 28:02},{2 * i}\n" for i in range(60))
    )
    found = read(tmp_path / "t.csv", words=True, columns={"id": "ignore", "day": "ignore"})
    assert found.columns == ("x",) and found.train[:, 0].tolist() == list(range(0, 120, 2))
    with pytest.warns(PartitaWarning, match=r"'id' \(60 different words in 60 rows"):
        assert (read(tmp_path / "t.csv", words=True).columns or ())[-1] == "x"
