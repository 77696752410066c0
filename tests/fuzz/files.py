"""One good file of every sort that is read, and columns and arrays of every sort to make
others of.
"""

import functools
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

X = np.random.default_rng(0).normal(size=(12, 3)).round(3)
CODES = np.random.default_rng(1).integers(0, 3, (12, 3))
TABLE = [(sort, sort) for sort in ("real", "whole", "word", "truth")]
MIXED = "age,sex,score,id\n" + "".join(
    f"{20 + i},{'mf'[i % 2]},{i / 3:.2f},{i}\n" for i in range(12)
)


def _npy(x: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, x)
    return stream.getvalue()


def npz(save: Any = np.savez, **held: np.ndarray) -> bytes:
    """An archive of arrays."""
    stream = io.BytesIO()
    save(stream, **held)
    return stream.getvalue()


def columnar(ending: str, chosen: Sequence[tuple[str, str]], rows: int = 12) -> bytes:
    """A file of columns, (name, sort) each; in Arrow's stream format where Parquet has no such
    type.
    """
    arrays = [columns()[sort].slice(0, rows) for _, sort in chosen]
    table, stream = pa.Table.from_arrays(arrays, [name for name, _ in chosen]), io.BytesIO()
    try:
        if ending == ".parquet":
            pq.write_table(table, stream)
        else:
            with pa.ipc.new_file(stream, table.schema) as writer:
                writer.write_table(table)
    except pa.ArrowException:
        stream = io.BytesIO()
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
    return stream.getvalue()


@functools.cache
def columns() -> dict[str, pa.Array]:
    """Columns of twelve values by their sort."""
    words, either = pa.array(["a", "b", None, "a"] * 3), pa.array([0, 1] * 6, pa.int8())
    both = (
        pa.array(np.repeat(range(6), 2), pa.int32()),
        [pa.array(range(6)), pa.array(list("abcdef"))],
    )
    return {
        "real": pa.array(X[:, 0]),
        "whole": pa.array(CODES[:, 0]),
        "word": words.dictionary_encode(),
        "truth": pa.array([True, False, None] * 4),
        "text": words,
        "view": words.cast(pa.string_view()),
        "null": pa.nulls(12),
        "half": pa.array([0.5, None] * 6, pa.float16()),
        "largest": pa.array([2**64 - 1, 0] * 6, pa.uint64()),
        "nan": pa.array([np.nan, np.inf, -np.inf, 1e308] * 3),
        "decimal": pa.array([Decimal("1.5")] * 12),
        "vast": pa.array([Decimal(10**70)] * 12, pa.decimal256(76)),
        "bytes": pa.array([b"\xff"] * 12),
        "date": pa.array([0, None] * 6, pa.date32()),
        "time": pa.array([1] * 12, pa.time64("ns")),
        "span": pa.array([1] * 12, pa.duration("s")),
        "moment": pa.array([2**62, None] * 6, pa.timestamp("ns", "UTC")),
        "lists": pa.array([[1], None, []] * 4),
        "record": pa.array([{"a": 1}, None] * 6),
        "map": pa.array([[("a", 1)]] * 12, pa.map_(pa.string(), pa.int8())),
        "codes": pa.array([5.5, 1.5] * 6).dictionary_encode(),
        "dates": pa.array([0, 1] * 6, pa.date32()).dictionary_encode(),
        "union": pa.UnionArray.from_dense(either, *both),
        "runs": pa.RunEndEncodedArray.from_arrays([6, 12], [1.5, 2.5]),
    }


@functools.cache
def arrays() -> dict[str, np.ndarray]:
    """Arrays of an archive by their sort."""
    return {
        "rows": X,
        "codes": CODES,
        "row": CODES.reshape(-1),
        "cube": CODES.reshape(4, 3, 3),
        "number": np.array(3.0),
        "truth": CODES > 0,
        "empty": np.zeros((0, 3)),
        "none": np.zeros((3, 0)),
        "nan": np.full((12, 3), np.nan),
        "huge": 1e308 * np.sign(X),
        "complex": 1j * X,
        "longer": X.astype("g"),
        "swapped": X.astype(">f8"),
        "date": CODES.astype("M8[D]"),
        "S": CODES.astype("S3"),
        "record": np.zeros(12, "i4,f8"),
        "bytes": np.arange(99, dtype="u1"),
        "ones": np.ones(12),
        "minus": -np.ones(12),
        "lengths": np.full(6, 6),
        "long": np.array([2**62, 2**62]),
        "below": np.array([-6, 42]),
        "letters": np.array("ACG"),
        "names": np.array(["a", "b", "c"]),
        "half": np.array(["\ud800", "b", "c"]),
        "same": np.array(["a"] * 3),
    }


@functools.cache
def odd() -> dict[str, bytes]:
    """Whole files that are no tables of numbers, or nearly none."""
    x = arrays()
    sorts = (
        "number",
        "empty",
        "none",
        "names",
        "complex",
        "date",
        "record",
        "S",
        "nan",
        "huge",
        "longer",
        "swapped",
    )
    made = {f"{sort}.npy": _npy(x[sort]) for sort in sorts}
    return {
        **made,
        "twice.npz": npz(x=CODES, columns=x["same"]),
        "half.npz": npz(x=CODES, columns=x["half"]),
        "cut.npz": npz(x=X)[:100],
    }


@functools.cache
def good() -> dict[str, bytes]:
    """Files by name; the ending says how they are read."""
    parts = {
        "train": CODES.reshape(-1),
        "train_lengths": np.full(6, 6),
        "test": CODES.reshape(-1),
        "test_lengths": np.full(9, 4),
    }
    return {
        "real.csv": "\n".join(",".join(map(str, row)) for row in X).encode(),
        "named.csv": b"a,b,c\n"
        + "\n".join(";".join(map(str, row)) for row in CODES).replace(";", ",").encode(),
        "mixed.csv": MIXED.encode(),
        "quoted.csv": b'"a, b","c ""d"""\n"1","x"\n"2","y, z"\n,"x"\n',
        "spaced.txt": "\n".join(" ".join(map(str, row)) for row in X).encode(),
        "words.txt": b"the quick brown fox\njumps over the lazy dog\n" * 3,
        "letters.txt": b"ACGT\nAC-T\nGGGT\n",
        "real.npy": _npy(X),
        "whole.npy": _npy(CODES.astype(np.uint8)),
        "columns.npy": _npy(np.asfortranarray(X)),
        "series.npy": _npy(np.arange(40.0)),
        "images.npy": _npy(CODES.reshape(4, 3, 3)),
        "one.npz": npz(x=X, columns=np.array(["a", "b", "c"]), weights=np.ones(12)),
        "split.npz": npz(np.savez_compressed, x_train=CODES, x_test=CODES[:3], y_test=np.arange(3)),
        "alphabet.npz": npz(x=CODES, alphabet=np.array("ACG")),
        "sequences.npz": npz(**parts),
        "bytes.npz": npz(bytes=np.frombuffer(b"some text " * 20, dtype=np.uint8)),
        "table.parquet": columnar(".parquet", TABLE),
        "table.arrow": columnar(".arrow", TABLE),
        "aligned.fasta": b">one\nACGT\n>two\nAC-T\n>three\nGGGT\n",
        "aligned.a2m": b">one\nACGTaa\n>two\nAC-T\n>three\nGG..GT\n",
    }
