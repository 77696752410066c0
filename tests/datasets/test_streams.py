"""Sequences: windows that leave nothing out, lengths, text in and out, and what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from partita.datasets import Sequences
from partita.datasets.open import Reading, load_sequences
from partita.datasets.text import Alphabet, read_tokens
from partita.errors import DataError, InputError
from partita.runtime.seeds import Spaced
from partita.tables import on_disk


@pytest.mark.parametrize(
    ("T", "L", "stride"),
    [(10, 4, None), (8, 4, None), (3, 4, None), (11, 4, 3), (1, 1, None), (9, 4, 1)],
)
def test_windows_cover_every_step_in_order(T: int, L: int, stride: int | None) -> None:
    rows = Sequences.windows(np.arange(T), L, stride=stride)
    x = rows.tensor()
    assert set(x[~x.isnan()].int().tolist()) == set(range(T))
    if stride is None:
        assert x[~x.isnan()].int().tolist() == list(range(T)) and rows.steps == T
    assert (x[:, 1:] - x[:, :-1]).nan_to_num(1.0).eq(1).all()


def test_batches_say_their_lengths_and_agree_with_the_table() -> None:
    parts = [np.arange(6).reshape(3, 2), 10 + np.arange(2).reshape(1, 2)]
    rows = Sequences.of(parts)
    assert (rows.width, rows.size, rows.longest, len(rows)) == (6, 2, 3, 2)
    batch = rows.batch(torch.tensor([1, 0]), generator=torch.Generator())
    assert batch.lengths is not None and batch.lengths.tolist() == [1, 3]
    assert batch.x.tolist() == [[10, 11, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]]
    assert rows.batch(torch.tensor([0]), generator=torch.Generator()).lengths is None
    torch.testing.assert_close(rows.tensor()[1].nan_to_num(0), batch.x[0])
    table = rows.tensor().numpy().astype(float)
    np.testing.assert_allclose(rows.mean(), np.nanmean(table, 0))
    np.testing.assert_allclose(rows.variance(), np.nanvar(table, 0))
    assert rows.take([1]).tensor().shape == (1, 6)


def test_a_memory_map_stays_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(bytes(range(97, 117)) * 100)
    tokens, alphabet = read_tokens(path, "bytes")
    assert isinstance(tokens, np.memmap) and alphabet.size == 256
    rows = Sequences.windows(tokens, 50)
    assert np.shares_memory(rows.stream, tokens)


@pytest.mark.parametrize(("T", "L", "stride"), [(103, 8, 3), (104, 8, 8), (99, 8, None)])
def test_very_many_windows_are_not_listed(
    T: int, L: int, stride: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Sequences.windows(np.arange(T), L, stride=stride)
    monkeypatch.setattr("partita.datasets.sequences.MOST_LISTED", 5)
    computed = Sequences.windows(np.arange(T), L, stride=stride)
    assert isinstance(computed.starts, Spaced) and (len(computed), computed.steps) == (
        len(listed),
        listed.steps,
    )
    torch.testing.assert_close(computed.tensor(), listed.tensor(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(
        computed.take([-1, 2]).tensor(),
        listed.take([-1, 2]).tensor(),
        rtol=0,
        atol=0,
        equal_nan=True,
    )
    np.testing.assert_array_equal(computed.mean(), listed.mean())


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".arrow"])
def test_a_series_on_disk_stays_there(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).normal(size=(1000, 1))
    path, frame = tmp_path / f"x{ending}", pd.DataFrame(x, columns=["level"])
    {
        ".npy": lambda: np.save(path, x),
        ".parquet": lambda: frame.to_parquet(path),
        ".arrow": lambda: frame.to_feather(path),
    }[ending]()
    here = load_sequences(str(path), Reading(length=16))
    monkeypatch.setattr(on_disk, "IN_MEMORY", 100)
    there = load_sequences(str(path), Reading(length=16))
    assert isinstance(there.train, Sequences) and isinstance(there.train.stream, on_disk.OnDisk)
    for a, b in ((here.train, there.train), (here.valid, there.valid), (here.test, there.test)):
        assert a is not None and b is not None
        torch.testing.assert_close(b.tensor(), a.tensor(), rtol=0, atol=0, equal_nan=True)


def test_text_goes_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "greek.txt"
    path.write_text("αβγ αβ\n" * 5, encoding="utf-8")
    for how in ("characters", "bytes"):
        tokens, alphabet = read_tokens(path, how)
        assert alphabet.decode(tokens) == "αβγ αβ\n" * 5
        assert Alphabet.from_json(alphabet.as_json()) == alphabet
    assert read_tokens(path)[1].size == 5


def test_a_stream_is_split_in_order_and_a_later_file_uses_the_same_letters(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(chr(97 + i % 26) for i in range(1000)))
    data = load_sequences(str(path), Reading(length=40))
    assert data.valid is not None and data.test is not None and data.reading is not None
    assert (data.train.width, data.train.starts[1], data.valid.starts[1]) == (40, 5, 40)  # type: ignore[attr-defined]
    first = data.test.tensor()[0, 0]
    assert int(first) == 900 % 26
    other = tmp_path / "b.txt"
    other.write_text("zyx" * 200)
    again = load_sequences(str(other), Reading(**data.reading))
    assert again.train.tensor()[0, :3].tolist() == [25, 24, 23]


@pytest.mark.parametrize("ending", [".npy", ".csv"])
def test_one_column_of_numbers_is_a_series(ending: str, tmp_path: Path) -> None:
    path, x = tmp_path / f"series{ending}", np.arange(100) / 4
    np.save(path, x) if ending == ".npy" else np.savetxt(path, x, header="level", comments="")
    data = load_sequences(str(path), Reading(length=8))
    assert isinstance(data.train, Sequences) and data.train.states is None and data.test is not None
    assert (
        data.train.tensor()[1].tolist() == (x[1:9]).tolist()
        and data.test.tensor()[0].tolist() == x[90:98].tolist()
    )
    assert data.reading is not None and Reading(**data.reading).length == 8
    np.save(path.with_suffix(".npy"), np.stack([x, x], 1))
    # a table
    assert not isinstance(
        load_sequences(str(path.with_suffix(".npy")), Reading(length=8)).train, Sequences
    )


@pytest.mark.parametrize(
    ("content", "reading", "message"),
    [
        (
            b"caf\xe9 " * 100,
            {},
            r"must be text in utf-8; got the byte 0xe9 at place 3. Name its encoding",
        ),
        (
            b"cafe " * 100,
            {"encoding": "klingon"},
            r"encoding must be one that Python knows.*got 'klingon'",
        ),
        (b"", {}, "is empty. Write it again"),
        (b"aaaa", {}, "must hold at least two different characters"),
        (b"abcdefgh", {"length": 100}, "must have at least 100 steps to learn from; got 6"),
        (
            b"abcdefgh" * 9,
            {"length": 8, "symbols": "abc"},
            r"hold the 3 characters the model was built from; got 'd' at place 3",
        ),
    ],
)
def test_bad_text_is_named(content: bytes, reading: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises((DataError, InputError), match=message):
        load_sequences(str(path), Reading(**reading))


def test_bad_sequences_are_named() -> None:
    with pytest.raises(
        InputError, match=r"lengths must be at least 1; got 0 in row 1. Leave empty sequences out"
    ):
        Sequences.parted(np.arange(3), [3, 0])
    with pytest.raises(
        InputError, match=r"lengths must add up to the 3 steps of the stream; got 4"
    ):
        Sequences.parted(np.arange(3), [4])
    with pytest.raises(
        InputError, match=r"lengths must be at most 2; got 3 in row 0.*nothing is cut in silence"
    ):
        Sequences.parted(np.arange(3), [3], longest=2)
    with pytest.raises(InputError, match=r"stream must be numbers of shape"):
        Sequences.windows(np.array(["a"]), 2)
    with pytest.raises(InputError, match=r"be finite"):
        Sequences.windows(np.array([1.0, np.nan]), 2)
