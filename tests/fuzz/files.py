"""One good file of every sort that is read."""

import functools
import io
from typing import Any

import numpy as np

X = np.random.default_rng(0).normal(size=(12, 3)).round(3)
CODES = np.random.default_rng(1).integers(0, 3, (12, 3))
MIXED = "age,sex,score,id\n" + "".join(f"{20 + i},{'mf'[i % 2]},{i / 3:.2f},{i}\n" for i in range(12))


def _npy(x: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, x)
    return stream.getvalue()


def _npz(save: Any = np.savez, **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    save(stream, **arrays)
    return stream.getvalue()


def _table(ending: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    words, stream = pa.array(["a", "b", None, "a"] * 3).dictionary_encode(), io.BytesIO()
    table = pa.table({"real": X[:, 0], "whole": CODES[:, 0], "word": words, "truth": [True, False, None] * 4})
    if ending == ".parquet":
        pq.write_table(table, stream)
    else:
        with pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table)
    return stream.getvalue()


@functools.cache
def good() -> dict[str, bytes]:
    """Files by name; the ending says how they are read."""
    parts = {"train": CODES.reshape(-1), "train_lengths": np.full(6, 6), "test": CODES.reshape(-1), "test_lengths": np.full(9, 4)}
    return {
        "real.csv": "\n".join(",".join(map(str, row)) for row in X).encode(),
        "named.csv": b"a,b,c\n" + "\n".join(";".join(map(str, row)) for row in CODES).replace(";", ",").encode(),
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
        "one.npz": _npz(x=X, columns=np.array(["a", "b", "c"]), weights=np.ones(12)),
        "split.npz": _npz(np.savez_compressed, x_train=CODES, x_test=CODES[:3], y_test=np.arange(3)),
        "alphabet.npz": _npz(x=CODES, alphabet=np.array("ACG")),
        "sequences.npz": _npz(**parts),
        "bytes.npz": _npz(bytes=np.frombuffer(b"some text " * 20, dtype=np.uint8)),
        "table.parquet": _table(".parquet"),
        "table.arrow": _table(".arrow"),
        "aligned.fasta": b">one\nACGT\n>two\nAC-T\n>three\nGGGT\n",
        "aligned.a2m": b">one\nACGTaa\n>two\nAC-T\n>three\nGG..GT\n",
    }
