"""Tables that stay on disk: the same rows as in memory, in bounded memory and address space."""

import subprocess
import sys
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from partita.datasets import load
from partita.errors import DataError
from partita.runtime import memory_limit
from partita.tables import Rows, arrow, files, on_disk
from partita.tables.on_disk import OnDisk


@pytest.fixture
def table(tmp_path: Path) -> tuple[np.ndarray, OnDisk]:
    x = np.random.default_rng(0).normal(size=(200, 3))
    np.save(tmp_path / "x.npy", x)
    opened = OnDisk.npy(tmp_path / "x.npy")
    assert opened is not None
    return x, opened


@pytest.mark.parametrize(
    "key",
    [
        slice(None),
        slice(5, 9),
        slice(9, 5),
        slice(-4, None),
        slice(0, 200, 7),
        np.array([3, 3, 199, 0]),
        np.array([-1]),
        np.array([], int),
        np.arange(200) % 3 == 0,
        np.array([[1, 2], [150, 4]]),
        (slice(2, 6), 1),
        (np.array([4, 1]), slice(0, 2)),
    ],
    ids=str,
)
def test_every_way_to_ask_gives_what_an_array_gives(
    key: object, table: tuple[np.ndarray, OnDisk]
) -> None:
    x, opened = table
    np.testing.assert_array_equal(opened[key], x[key])


def test_rows_on_disk_are_rows_in_memory(table: tuple[np.ndarray, OnDisk]) -> None:
    x, opened = table
    here, there, index = Rows(x), Rows(opened), torch.tensor([7, 180, 7])
    g = torch.Generator()
    assert torch.equal(here.batch(index, generator=g).x, there.batch(index, generator=g).x)
    assert torch.equal(here.tensor(), there.tensor()) and torch.equal(
        here.variance(), there.variance()
    )
    some = [
        rows.take([5, 2]).rescaled(np.ones(3), np.full(3, 2.0)).tensor() for rows in (here, there)
    ]
    assert torch.equal(*some)


@pytest.mark.parametrize(
    "array",
    [np.zeros(5), np.asfortranarray(np.ones((2, 2, 2)))],
    ids=["one axis", "three axes by columns"],
)
def test_other_layouts_are_left_to_a_memory_map(
    array: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_disk, "IN_MEMORY", 10)
    np.save(tmp_path / "x.npy", array)
    np.testing.assert_array_equal(files.read(tmp_path / "x.npy").train, array)
    assert isinstance(files.read(tmp_path / "x.npy").train, np.memmap)


def test_a_table_that_goes_by_columns_is_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As frames are mostly saved."""
    x = np.random.default_rng(0).integers(0, 99, (50, 3)).astype(np.int16)
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    monkeypatch.setattr(on_disk, "IN_MEMORY", 10)
    monkeypatch.setattr(on_disk, "TURNED", 3 * 7)
    table = files.read(tmp_path / "x.npy").train
    assert isinstance(table, OnDisk) and table.dtype == x.dtype
    np.testing.assert_array_equal(table[:], x)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_no_room_for_a_temporary_file_is_said(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is read is not the one at fault."""
    path, x = tmp_path / f"x{ending}", np.asfortranarray(np.ones((50, 3)))
    np.save(path, x) if ending == ".npy" else pd.DataFrame(x, columns=list("abc")).to_parquet(path)
    monkeypatch.setattr(on_disk, "IN_MEMORY", 10)
    full = partial(open, "/dev/full", "wb")
    monkeypatch.setattr(on_disk.tempfile, "TemporaryFile", full)
    with pytest.raises(
        DataError, match=r"must find room in .*; got none \(No space left on device\)\. Set TMPDIR"
    ):
        files.read(path)


def test_images_are_rows_that_know_their_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).integers(0, 255, (40, 3, 4)).astype(np.uint8)
    np.save(tmp_path / "x.npy", x)
    here = load(tmp_path / "x.npy")
    monkeypatch.setattr(on_disk, "IN_MEMORY", 10)
    there = load(tmp_path / "x.npy")
    assert isinstance(there.train.array, OnDisk) and here.shape == there.shape == (3, 4)
    assert torch.equal(here.train.tensor(), there.train.tensor())


def test_large_files_stay_on_disk_and_a_short_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_disk, "IN_MEMORY", 1000)
    np.save(tmp_path / "x.npy", np.ones((100, 4)))
    assert isinstance(files.read(tmp_path / "x.npy").train, OnDisk)
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    with pytest.raises(DataError, match=r"must be a whole \.npy file; got one that is cut short"):
        files.read(tmp_path / "x.npy")


def test_a_small_container_holds_small_tables_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", x := np.ones((100, 4)))
    for there, kind in ((on_disk.SHARE * 4000, np.ndarray), (on_disk.SHARE * 3000, OnDisk)):
        monkeypatch.setattr(memory_limit, "machine", lambda there=there: there)
        assert isinstance(files.read(tmp_path / "x.npy").train, kind)
        assert isinstance(on_disk.gather_rows(iter([x]), x.shape, float), kind)


def test_pieces_are_never_all_there_beside_the_whole() -> None:
    there: list[weakref.ref[np.ndarray]] = []

    def pieces() -> Iterator[np.ndarray]:
        for i in range(5):
            assert sum(piece() is not None for piece in there) <= 1
            piece = np.full((2, 3), i)
            there.append(weakref.ref(piece))
            yield piece
            del piece

    assert on_disk.gather_rows(pieces(), (10, 3), np.uint8)[:, 0].tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]
    # where a file says that there are fewer
    assert len(on_disk.gather_rows(pieces(), (9, 3), np.uint8)) == 9


def test_rows_that_lie_apart_are_read_some_after_the_others(
    table: tuple[np.ndarray, OnDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row of five, as is held out for testing, is not read as all rows."""
    x, opened = table
    row, spans, between = x[0].nbytes, [], OnDisk._between
    monkeypatch.setattr(on_disk, "SPAN", 4 * on_disk.CLOSE * row)
    monkeypatch.setattr(
        OnDisk,
        "_between",
        lambda self, start, stop: spans.append(stop - start) or between(self, start, stop),
    )
    np.testing.assert_array_equal(opened[::5], x[::5])
    assert len(spans) == 10 and max(spans) == 16  # four rows at a time, and those between them


def test_a_large_parquet_file_goes_to_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"a": 2 * np.arange(1000), "b": np.r_[np.nan, np.linspace(0, 1, 999)]})
    frame.to_parquet(tmp_path / "x.parquet")
    small = files.read(tmp_path / "x.parquet").train
    monkeypatch.setattr(on_disk, "IN_MEMORY", 1000)
    monkeypatch.setattr(arrow, "CHUNK", 300)
    large = files.read(tmp_path / "x.parquet").train
    assert isinstance(large, OnDisk)
    np.testing.assert_array_equal(large[:], small)


LIMITED = """
import resource, sys
import torch
torch.set_num_threads(1)
import partita
from partita.tables import Rows, files, on_disk
from partita.evaluators import likelihood
from partita.models import {model}
from partita.training.distributed import (one_process)
one_process()  # imports all there is to import before the limit
on_disk.IN_MEMORY, likelihood.CELLS_AT_ONCE = 1 << 20, 1 << 20
status = open("/proc/self/status").read()
used = int(status.split("VmSize:")[1].split()[0]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + {room}, used + {room}))
try:
    bytearray({size})
except MemoryError:
    pass
else:
    raise SystemExit("the limit does not hold")
rows, g = Rows(files.read(sys.argv[1]).train), torch.Generator().manual_seed(0)
model = partita.fit({made}, rows, generator=g, {options}).model
q = partita.evaluate(model, rows, generator=g)
assert q.n == len(rows) and q.details["parts"] > 1, q
"""
MIB = 1 << 20


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads the size of a process from /proc"
)
@pytest.mark.parametrize(
    ("model", "made", "options"),
    [
        ("RBM", "RBM(256, 8, generator=g)", "steps=20, batch_size=100, optimizer='sgd'"),
        ("PPCA", "PPCA(256, 2, generator=g)", "steps=1"),
    ],
)
def test_a_table_larger_than_the_address_space_that_is_left_is_fitted_and_scored(
    model: str, made: str, options: str, tmp_path: Path
) -> None:
    """160 MiB, most of them a hole in the file, where 140 are left to a process."""
    path, size = tmp_path / "table.npy", 160 * MIB
    table = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.float64, shape=(size // (8 * 256), 256)
    )
    table[::500] = np.random.default_rng(0).integers(0, 2, (len(table[::500]), 256))
    del table
    script = LIMITED.format(model=model, made=made, options=options, room=140 * MIB, size=size)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
