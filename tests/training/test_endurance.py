"""Faults on the way: damaged saves, a full disk, signals, and a fit that diverges and goes back by itself."""

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import partita
from partita.core.errors import Diverged, InputError, PartitaWarning, RunError
from partita.models import RBM
from partita.objectives import PCD
from partita.training import checkpoint, loop
from partita.training.session import Session


def rows() -> torch.Tensor:
    return (torch.rand(60, 4, generator=torch.Generator().manual_seed(1)) < 0.4).float()


def fitted(out: Path | None = None, **options: Any) -> partita.training.Run:
    g = torch.Generator().manual_seed(2)
    options = {"steps": 60, "batch_size": 20, "learning_rate": 0.1, "optimizer": "sgd", **options}
    return partita.fit(RBM(4, 3, generator=g), rows(), PCD(chains=8), out=out, generator=g, **options)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_one_wrong_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {"x": torch.zeros(50), "empty": torch.zeros(0, 3), "half": torch.ones(3, dtype=torch.bfloat16), "n": 3})
    checkpoint.load(path)
    flip(path, -20)
    with pytest.raises(RunError, match="its checksum differs"):
        checkpoint.load(path)


def test_the_save_before_the_last_is_kept_and_used_where_the_last_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    for step in (1, 2, 3):
        checkpoint.save(path, {"step": step}, keep_previous=True)
    assert checkpoint.load_or_previous(path) == {"step": 3}
    path.write_bytes(path.read_bytes()[:30])
    with pytest.warns(PartitaWarning, match="damaged or foreign file.*The save before it is used"):
        assert checkpoint.load_or_previous(path) == {"step": 2}
    path.unlink()  # killed between the two moves of a save
    with pytest.warns(PartitaWarning, match="The save before it is used"):
        assert checkpoint.load_or_previous(path) == {"step": 2}
    checkpoint.previous(path).unlink()
    with pytest.raises(RunError, match="found none"):
        checkpoint.load_or_previous(path)


def test_a_run_whose_last_save_is_damaged_goes_on_from_the_one_before_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted(tmp_path / "whole")
    advance = Session.advance

    def stops_at_31(self: Session) -> Any:
        if self.step == 31:
            raise KeyboardInterrupt
        return advance(self)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "SAVE_SECONDS", -1.0)
        patch.setattr(Session, "advance", stops_at_31)
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last.safetensors"
    assert checkpoint.load(last)["step"] == 31
    flip(last, -5)
    with pytest.warns(PartitaWarning, match="its checksum differs.*The save before it is used"):
        again = fitted(tmp_path / "run", resume=True)
    whole = partita.load(tmp_path / "whole")
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
    assert [{**r, "seconds": 0} for r in whole.history] == [{**r, "seconds": 0} for r in again.history]


def test_a_full_disk_leaves_no_half_file_and_the_last_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last.safetensors"
    checkpoint.save(path, {"x": torch.ones(3)}, keep_previous=True)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(path, {"x": torch.zeros(3)}, keep_previous=True)
    assert [p.name for p in tmp_path.iterdir()] == ["last.safetensors"]
    assert torch.equal(checkpoint.load(path)["x"], torch.ones(3))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_between_two_steps(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advance, before = Session.advance, signal.getsignal(number)

    def signalled(self: Session) -> Any:
        if self.step == 17:
            signal.raise_signal(number)
        return advance(self)

    monkeypatch.setattr(Session, "advance", signalled)
    run = fitted(tmp_path / "run")
    assert (run.stopped, run.steps) == ("interrupted", 18)
    assert signal.getsignal(number) == before


# going back


def test_a_fit_that_diverges_goes_back_with_half_the_rate_and_says_so(tmp_path: Path) -> None:
    options = {"learning_rate": 1e6, "schedule": "constant", "validations": 10}
    with pytest.raises(Diverged, match="Lower learning_rate"):
        fitted(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartitaWarning)  # they are the run's cautions, looked at below
        run = fitted(tmp_path / "run", guard="rollback", **{**options, "learning_rate": 300.0})
    assert run.stopped == "finished" and run.steps == 60
    assert any("went back from step" in caution and "of the learning rate" in caution for caution in run.cautions)
    assert all(torch.isfinite(p).all() for p in run.model.parameters())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    events = [line["event"] for line in lines if "event" in line]
    assert any("went back" in event for event in events) and [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    saved = checkpoint.load(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert saved["rate_scale"] == 0.5 ** sum("went back" in event for event in events) < 1


def test_going_back_ends_where_it_does_not_help() -> None:
    with pytest.warns(PartitaWarning, match="went back"), pytest.raises(Diverged, match=r"must .*finite"):
        fitted(guard="rollback", learning_rate=1e12, schedule="constant")


def test_another_guard_is_named() -> None:
    with pytest.raises(InputError, match=r"fit: guard must be one of .*'rollback'.*; got 'hope'"):
        fitted(guard="hope")


def test_what_the_guard_finds_is_recorded_once(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(0)
    model = RBM(4, 3, generator=g)
    with torch.no_grad():
        model.c.fill_(-50.0)  # hidden units that are never on
    with pytest.warns(PartitaWarning, match="always on or always off"):
        run = partita.fit(model, rows(), PCD(chains=8), steps=40, validations=8, learning_rate=1e-6, out=tmp_path / "run", generator=g)
    assert sum("always off" in record.get("event", "") for record in run.history) == 1
