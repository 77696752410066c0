"""Readers of files: whatever the bytes are, rows come out, or an error of partita's; what a header claims is never believed."""

import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import files, junk
from tests.fuzz.cases import bounded, cases, only_named_errors

from partita.core.errors import PartitaError
from partita.data import load, read
from partita.data.corpus import open_dataset
from partita.data.files import ENDINGS

SHAPES = ("(1000000000, 1000000000)", "(99999999999999999999,)", "(12, -3)", "(-1, -1)", "(4611686018427387904, 4)", "(12, 3, 0)", "()",
          "(True, 3)", "'x'", "(1,)" * 9, "-" * 5000 + "1")  # fmt: skip
DTYPES = ("<f8", "|O", "<U999999999", "|V99999999999", "<M8[ns]", "<c16", "|S0", "bogus", "<f99")
KINDS = ("real", "binary", "count", "category", "ignore")


def use(name: str, raw: bytes, how: dict[str, Any]) -> None:
    """Read a file in all the ways that files are read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(raw)
        with only_named_errors():
            read(path, how["array"], words=how["words"], asked=how["asked"])
        with only_named_errors():
            data = load(str(path), words=how["words"], missing=how["missing"], asked=how["asked"])
            data.train.tensor()
        with only_named_errors():
            reading = {"length": how["length"], "tokens": how["tokens"]}
            open_dataset(str(path), reading=reading, words=how["words"], asked=how["asked"]).train.tensor()


ways = st.fixed_dictionaries({
    "array": st.sampled_from([None, None, None, "x", "nope", ""]),
    "words": st.booleans(),
    "missing": st.booleans(),
    "asked": st.one_of(st.none(), st.none(), st.dictionaries(st.sampled_from(["a", "age", "*", "x1"]), st.sampled_from(KINDS), max_size=2)),
    "length": st.sampled_from([4, 1, None, 100]),
    "tokens": st.sampled_from(["characters", "bytes"]),
})  # fmt: skip


@cases(0.03)
@given(st.sampled_from(ENDINGS), st.binary(max_size=200), ways)
def test_random_bytes(ending: str, raw: bytes, how: dict[str, Any]) -> None:
    use(f"table{ending}", raw, how)


@cases(0.13)
@given(st.sampled_from(sorted(files.good())).flatmap(lambda n: st.tuples(st.just(n), junk.changed_bytes(files.good()[n]))), ways)
def test_damaged_files(case: tuple[str, bytes], how: dict[str, Any]) -> None:
    use(*case, how)


@cases(0.04)
@given(st.text(alphabet="0123456789.,;\t \n\r\"'ab-+eEnN\x00\ufeff#é", max_size=120), st.sampled_from([".csv", ".txt", ".fasta"]), ways)
def test_text_that_is_nearly_a_table(text: str, ending: str, how: dict[str, Any]) -> None:
    use(f"table{ending}", text.encode(), how)


@cases(0.04)
@given(st.sampled_from(SHAPES), st.sampled_from(DTYPES), st.booleans(), st.sampled_from([".npy", ".npz"]), ways)
def test_headers_that_claim_much(shape: str, dtype: str, by_columns: bool, ending: str, how: dict[str, Any]) -> None:
    header = f"{{'descr': '{dtype}', 'fortran_order': {by_columns}, 'shape': {shape}, }}".encode()
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + bytes(64)
    if ending == ".npz":
        with tempfile.TemporaryFile() as stream:
            with zipfile.ZipFile(stream, "w") as archive:
                archive.writestr("x.npy", array)
            stream.seek(0)
            array = stream.read()
    use(f"claims{ending}", array, how)


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


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "table.csv")
    with bounded(), pytest.raises(PartitaError, match="got a pipe or a device"):
        read(tmp_path / "table.csv")
