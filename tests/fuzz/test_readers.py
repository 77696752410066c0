"""Readers of files: whatever the bytes are, rows come out, or an error of partita's; what a header
claims is never believed.
"""

import contextlib
import os
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import files, junk
from tests.fuzz.audit import scratch
from tests.fuzz.cases import bounded, cases, only_named_errors

import partita
from partita import estimators
from partita.datasets import load
from partita.datasets.open import open_dataset
from partita.errors import PartitaError
from partita.experiment.saved import open_run
from partita.tables import on_disk, read
from partita.tables.arrow import COLUMNAR
from partita.tables.files import ENDINGS

SHAPES = (
    "(1000000000, 1000000000)",
    "(99999999999999999999,)",
    "(12, -3)",
    "(-1, -1)",
    "(4611686018427387904, 4)",
    "(12, 3, 0)",
    "()",
    "(1000000000000000000, 0)",
    "(0, 1000000000000000000)",
    "(True, 3)",
    "'x'",
    "(1,)" * 9,
    "-" * 5000 + "1",
)
DTYPES = ("<f8", "|O", "<U999999999", "|V99999999999", "<M8[ns]", "<c16", "|S0", "bogus", "<f99")
# of columns
NAMES = st.sampled_from(["a", "b", "", "age", "é", "id", "Unnamed: 0"])
SORTS = st.sampled_from(sorted(files.columns()))
ARRAYS = (
    "x",
    "train",
    "train_lengths",
    "test",
    "test_lengths",
    "x_train",
    "x_valid",
    "columns",
    "weights",
    "alphabet",
    "bytes",
    "é",
)
KINDS = ("real", "binary", "count", "category", "ignore")


def use(name: str, raw: bytes, how: dict[str, Any]) -> None:
    """Read a file in all the ways that files are read; also as one that is too large to be held."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(on_disk, "IN_MEMORY", 0 if how["large"] else on_disk.IN_MEMORY),
    ):
        path = Path(folder) / name
        path.write_bytes(raw)
        with only_named_errors():
            read(path, how["array"], words=how["words"], columns=how["asked"])
        with only_named_errors():
            data = load(str(path), words=how["words"], missing=how["missing"], columns=how["asked"])
            data.train.tensor()
        with only_named_errors():
            reading = {"length": how["length"], "tokens": how["tokens"]}
            open_dataset(
                str(path), reading=reading, words=how["words"], columns=how["asked"]
            ).train.tensor()


ways = st.fixed_dictionaries(
    {
        "array": st.sampled_from([None, None, None, "x", "nope", ""]),
        "large": st.booleans(),
        "words": st.booleans(),
        "missing": st.booleans(),
        "asked": st.one_of(
            st.none(),
            st.none(),
            st.dictionaries(
                st.sampled_from(["a", "age", "*", "x1"]), st.sampled_from(KINDS), max_size=2
            ),
        ),
        "length": st.sampled_from([4, 1, None, 100]),
        "tokens": st.sampled_from(["characters", "bytes"]),
    }
)


@cases(0.02)
@given(st.sampled_from(ENDINGS), st.binary(max_size=200), ways)
def test_random_bytes(ending: str, raw: bytes, how: dict[str, Any]) -> None:
    use(f"table{ending}", raw, how)


@cases(0.05)
@given(
    st.sampled_from(sorted(files.good())).flatmap(
        lambda n: st.tuples(st.just(n), junk.changed_bytes(files.good()[n]))
    ),
    ways,
)
def test_damaged_files(case: tuple[str, bytes], how: dict[str, Any]) -> None:
    use(*case, how)


@cases(0.02)
@given(
    st.text(alphabet="0123456789.,;\t \n\r\"'ab-+eEnN\x00\ufeff#é", max_size=120),
    st.sampled_from([".csv", ".txt", ".fasta"]),
    ways,
)
def test_text_that_is_nearly_a_table(text: str, ending: str, how: dict[str, Any]) -> None:
    use(f"table{ending}", text.encode(), how)


@cases(0.03)
@given(
    st.sampled_from(COLUMNAR),
    st.lists(st.tuples(NAMES, SORTS), max_size=4),
    st.sampled_from([0, 1, 12]),
    ways,
)
def test_columns_of_any_type(
    ending: str, chosen: list[tuple[str, str]], rows: int, how: dict[str, Any]
) -> None:
    use(f"table{ending}", files.columnar(ending, chosen, rows), how)


@cases(0.02)
@given(
    st.dictionaries(
        st.sampled_from(ARRAYS), st.sampled_from(sorted(files.arrays())), min_size=1, max_size=4
    ),
    ways,
)
def test_archives_of_any_arrays(chosen: dict[str, str], how: dict[str, Any]) -> None:
    use(
        "table.npz", files.npz(**{name: files.arrays()[sort] for name, sort in chosen.items()}), how
    )


@cases(0.02)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.sampled_from([".npy", ".npz"]),
    ways,
)
def test_headers_that_claim_much(
    shape: str, dtype: str, by_columns: bool, ending: str, how: dict[str, Any]
) -> None:
    array = claiming(shape, dtype, by_columns)
    if ending == ".npz":
        with tempfile.TemporaryFile() as stream:
            with zipfile.ZipFile(stream, "w") as archive:
                archive.writestr("x.npy", array)
            stream.seek(0)
            array = stream.read()
    use(f"claims{ending}", array, how)


def claiming(shape: str, dtype: str, by_columns: bool = False) -> bytes:
    """An .npy file of 64 bytes that says what it likes of itself."""
    header = f"{{'descr': '{dtype}', 'fortran_order': {by_columns}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + bytes(64)


OPENERS = {
    "read": read,
    "load": load,
    "sequences": lambda name: open_dataset(name, reading={"length": 4}),
    "run": partita.load,
    "estimator": estimators.load,
    "opened": open_run,
}


@cases(0.02)
@given(st.sampled_from(sorted(OPENERS)), junk.values(), st.booleans())
def test_what_is_no_path(opener: str, value: Any, as_path: bool) -> None:
    with scratch() as place, contextlib.chdir(place), only_named_errors():
        OPENERS[opener](Path(value) if as_path and isinstance(value, str) else value)


def test_elements_without_bytes_are_none(tmp_path: Path) -> None:
    """As many of them as a header likes would fit into no room at all."""
    (tmp_path / "claims.npy").write_bytes(claiming("(1000000000, 1000000000)", "|S0"))
    with bounded(), pytest.raises(PartitaError, match=r"must be a whole \.npy file"):
        read(tmp_path / "claims.npy")


def test_rows_of_nothing_are_not_counted(tmp_path: Path) -> None:
    """A header may say any number of them, by rows or by columns, and in a file that is too large
    to be held.
    """
    (tmp_path / "claims.npy").write_bytes(
        claiming("(1000000000000000000, 0)", "<f8", by_columns=True)
    )
    with (
        bounded(),
        patch.object(on_disk, "IN_MEMORY", 0),
        pytest.raises(PartitaError, match="must have at least one column"),
    ):
        load(str(tmp_path / "claims.npy"))


def test_an_archive_that_claims_more_than_it_can_hold(tmp_path: Path) -> None:
    """Both the entry of the archive and the header in it say a terabyte; neither is believed."""
    path = tmp_path / "claims.npz"
    np.savez(path, x=np.zeros((4, 2)))
    raw = path.read_bytes().replace(b"(4, 2), }" + b" " * 20, b"(9999999999, 2), }" + b" " * 11)
    size = (4 * 2 * 8 + 128).to_bytes(4, "little")
    assert raw.count(size) >= 2
    path.write_bytes(raw.replace(size, (2**31).to_bytes(4, "little")))
    with bounded(), pytest.raises(PartitaError, match=r"must be a whole \.npz file"):
        read(path)


@pytest.mark.parametrize(
    "name", ["table.csv", "table.npz", "table.txt", "table.npy", "table.parquet"]
)
def test_a_pipe_is_no_file(name: str, tmp_path: Path) -> None:
    """Nobody writes to it: whoever opened it would wait for ever."""
    os.mkfifo(path := tmp_path / name)
    for opener in (read, load, lambda path: open_dataset(str(path), reading={"length": 4})):
        with (
            bounded(),
            pytest.raises(PartitaError, match=r"is a pipe|must be a whole|file not found"),
        ):
            opener(path)


@pytest.mark.parametrize(
    "held",
    [np.array("ACG"), np.zeros((2, 2), np.uint8), np.array([300, 1]), np.array(["a", "b"])],
    ids=repr,
)
def test_bytes_are_bytes_in_a_row(held: np.ndarray, tmp_path: Path) -> None:
    """Other arrays of that name are read as tables are, or refused."""
    np.savez(path := tmp_path / "text.npz", bytes=held)
    with only_named_errors():
        assert open_dataset(str(path), reading={"length": 4}).reading is None
