"""What is too large for memory is refused before it is read, wherever its limit comes from."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import partita
from partita.datasets.open import open_dataset
from partita.errors import DataError, PartitaWarning, TooLarge
from partita.estimators import SigmoidBeliefDensity, VAEDensity
from partita.models import DPMixture
from partita.runtime import memory_limit
from partita.tables import csv, files, npy, on_disk
from partita.training import checkpoint


def room(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(memory_limit, "machine", lambda: size)


def test_the_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    physical = memory_limit.machine()
    monkeypatch.setattr(memory_limit, "CONTAINERS", (tmp_path / "none", tmp_path / "limit"))
    for text, found in (("max\n", physical), ("12345\n", 12345), (f"{1 << 62}\n", physical)):
        (tmp_path / "limit").write_text(text)
        memory_limit._container_limit.cache_clear()
        assert memory_limit.machine() == found


def test_a_limit_on_address_space_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (12345 if which == resource.RLIMIT_AS else 1, -1)
    )
    assert memory_limit.machine() == 12345


def vast(path: Path, size: int) -> None:
    """A checkpoint of one tensor of so many bytes, mostly a hole that costs no disk."""
    header = {
        "__metadata__": {"partita": '{"tensor": "x"}'},
        "x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
    }
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + size)


def test_a_checkpoint_of_holes_is_not_believed_and_the_one_before_is_used(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    for step in (1, 2):
        checkpoint.save_tree(path, {"step": step}, keep_previous=True)
    vast(path, 1 << 42)
    with pytest.raises(
        TooLarge,
        match=r"last\.safetensors must fit into the memory of this machine, .* GiB; got 4\.1e\+03 "
        r"GiB\.",
    ):
        checkpoint.load_tree(path)
    with pytest.warns(PartitaWarning, match="The save before it is used"):
        assert checkpoint.load_or_previous(path)[0] == {"step": 1}


def test_an_archive_that_swells_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of zeros deflates to a thousand bytes; what counts is what it becomes."""
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((1 << 17, 1)))
    np.savez_compressed(
        tmp_path / "parts.npz", train=np.zeros(1 << 20, "u1"), train_lengths=np.ones(1 << 20, "u1")
    )
    assert (tmp_path / "bomb.npz").stat().st_size < 5000
    room(monkeypatch, 1 << 19)
    with pytest.raises(
        TooLarge,
        match=r"what .*bomb\.npz holds must fit into the memory.*Save the array as \.npy, which "
        r"stays on disk",
    ):
        files.read(tmp_path / "bomb.npz")
    with pytest.raises(TooLarge, match=r"what .*parts\.npz holds must fit into the memory"):
        npy.read_arrays(tmp_path / "parts.npz", ["train", "train_lengths"])


@pytest.mark.parametrize("name", ["hole.txt", "hole.fasta"])
def test_text_beyond_memory_is_not_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 1 << 42)
    with pytest.raises(TooLarge, match="must fit into the memory of this machine"):
        open_dataset(str(tmp_path / name), words=name.endswith("fasta"))


@pytest.mark.parametrize("text", ["{line}\n1,2\n", "a,b\n1,2\n{line}", "a,b\n1,x\n{line}\n"])
def test_a_line_without_end_is_not_read(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "LONGEST", 1 << 20)
    (tmp_path / "a.csv").write_text(text.format(line="1," * (1 << 19)))
    for words in (False, True):
        with pytest.raises(
            DataError, match=r"a\.csv must have lines of less than 1 MiB; got a longer one"
        ):
            files.read(tmp_path / "a.csv", words=words)


def test_a_table_for_which_the_disk_has_no_room_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A column of one value is a few bytes of a .parquet file, however long it is."""
    monkeypatch.setattr(on_disk, "IN_MEMORY", 100)
    with pytest.raises(
        DataError,
        match=r"larger than memory must find room in .*; got less than it needs\. Set TMPDIR",
    ):
        on_disk.gather_rows(iter([]), (1 << 50, 1), np.dtype(float))


@pytest.mark.parametrize(
    "estimator",
    [VAEDensity(1, epochs=1, random_state=0), SigmoidBeliefDensity(2, epochs=1, random_state=0)],
)
def test_a_part_without_gaps_is_returned_as_it_came(estimator: Any) -> None:
    x = np.random.default_rng(0).integers(0, 2, (40, 3)).astype(float)
    assert np.array_equal(estimator.fit(x).impute(x), x)


def test_a_dirichlet_process_says_that_it_holds_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, 20_000)
    with pytest.raises(
        TooLarge,
        match=r"DPMixture: its 1000 rows must fit into the memory.*: fit some of them, or a "
        r"mixture",
    ):
        partita.fit(
            DPMixture(2, generator=torch.Generator()),
            torch.randn(1000, 2, generator=torch.Generator()),
            steps=1,
            generator=torch.Generator(),
        )
