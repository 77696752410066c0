"""Faults on the way: damaged saves, a full disk, signals, and a fit that diverges and goes back by
itself.
"""

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.small_fits import Killed, killed_at
from typer.testing import CliRunner

import partita
from partita.cli.app import app
from partita.errors import Diverged, InputError, PartitaWarning, RunError
from partita.models import RBM, Mixture
from partita.objectives import EM, PCD, ExactLikelihood
from partita.training import Interrupted, checkpoint, loop
from partita.training.history import History
from partita.training.session import Session


def rows() -> torch.Tensor:
    return (torch.rand(60, 4, generator=torch.Generator().manual_seed(1)) < 0.4).float()


def fitted(out: Path | None = None, **options: Any) -> partita.training.Run:
    g = torch.Generator().manual_seed(2)
    options = {"steps": 60, "batch_size": 20, "learning_rate": 0.1, "optimizer": "sgd", **options}
    return partita.fit(
        RBM(4, 3, generator=g), rows(), PCD(chains=8), out=out, generator=g, **options
    )


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_one_wrong_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    checkpoint.save_tree(
        path,
        {
            "x": torch.zeros(50),
            "empty": torch.zeros(0, 3),
            "half": torch.ones(3, dtype=torch.bfloat16),
            "n": 3,
        },
    )
    checkpoint.load_tree(path)
    flip(path, -20)
    with pytest.raises(RunError, match="its checksum differs"):
        checkpoint.load_tree(path)


def test_the_save_before_the_last_is_kept_and_used_where_the_last_is_damaged(
    tmp_path: Path,
) -> None:
    path = tmp_path / "last.safetensors"
    for step in (1, 2, 3):
        checkpoint.save_tree(path, {"step": step}, keep_previous=True)
    assert checkpoint.load_or_previous(path) == ({"step": 3}, "")
    path.write_bytes(path.read_bytes()[:30])
    with pytest.warns(PartitaWarning, match="damaged or foreign file.*The save before it is used"):
        tree, remark = checkpoint.load_or_previous(path)
    assert tree == {"step": 2} and remark.endswith("The save before it is used.")
    path.unlink()
    with pytest.warns(PartitaWarning, match="The save before it is used"):
        assert checkpoint.load_or_previous(path)[0] == {"step": 2}
    checkpoint.previous(path).unlink()
    with pytest.raises(RunError, match="found none"):
        checkpoint.load_or_previous(path)


def test_a_run_whose_last_save_is_damaged_goes_on_from_the_one_before_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SAVE_SECONDS", -1.0)
        patch.setattr(Session, "advance", killed_at(31))
        with pytest.raises(Killed):
            fitted(tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last.safetensors"
    assert checkpoint.load_tree(last)["step"] == 31
    flip(last, -5)
    with pytest.warns(PartitaWarning, match="its checksum differs.*The save before it is used"):
        again = fitted(tmp_path / "run", resume=True)
    # shown by the command line too, though no part of the run
    assert "its checksum differs" in again.warnings[0]
    whole = partita.load(tmp_path / "whole")
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
    assert [{**r, "seconds": 0} for r in whole.history] == [
        {**r, "seconds": 0} for r in again.history
    ]
    assert partita.load(tmp_path / "run").warnings == whole.warnings


@pytest.mark.parametrize("objective", [ExactLikelihood(), EM()], ids=["lbfgs", "em"])
def test_a_fit_killed_between_its_last_two_files_takes_no_further_step(
    objective: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def converged(folder: Path, **how: Any) -> partita.training.Run:
        g = torch.Generator().manual_seed(5)
        by_em = isinstance(objective, EM)
        model = Mixture(2, 4, "bernoulli", generator=g) if by_em else RBM(4, 2, generator=g)
        options = {} if by_em else {"optimizer": "lbfgs", "batch_size": 0, "l2": 0.01}
        return partita.fit(
            model,
            rows(),
            objective,
            steps=500,
            tolerance=1e-4,
            out=folder,
            generator=g,
            **options,
            **how,
        )

    whole, save = converged(tmp_path / "whole"), checkpoint.save_tree

    def killed(path: Path, *more: Any, **how: Any) -> None:
        if path.name == "model.safetensors":
            raise Killed
        save(path, *more, **how)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_tree", killed)
        with pytest.raises(Killed):
            converged(tmp_path / "run")
    again = converged(tmp_path / "run", resume=True)
    assert (again.stopped, again.steps) == (whole.stopped, whole.steps) == (
        "converged",
        whole.steps,
    ) and whole.steps < 500
    assert [{**r, "seconds": 0} for r in again.history] == [
        {**r, "seconds": 0} for r in whole.history
    ]


def test_a_damaged_save_never_takes_the_place_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = tmp_path / "run" / "checkpoints" / "last.safetensors"
    fitted(tmp_path / "run")
    flip(last, -5)
    before = checkpoint.load_tree(checkpoint.previous(last))["step"]
    monkeypatch.setattr(Session, "advance", killed_at(before))
    with pytest.warns(PartitaWarning, match="The save before it is used"), pytest.raises(Killed):
        fitted(tmp_path / "run", resume=True)
    assert checkpoint.load_tree(checkpoint.previous(last))["step"] == before


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_save_that_is_killed_between_its_moves_leaves_a_last_one(
    moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace, made = tmp_path / "checkpoints" / "last.safetensors", os.replace, []
    for step in (1, 2):
        checkpoint.save_tree(path, {"step": step}, keep_previous=True)

    def killed(source: Path, target: Path) -> None:
        if len(made) == moves:
            raise Killed
        made.append(target)
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        if moves < 2:
            with pytest.raises(Killed):
                checkpoint.save_tree(path, {"step": 3}, keep_previous=True)
        else:
            checkpoint.save_tree(path, {"step": 3}, keep_previous=True)
    assert checkpoint.load_tree(path)["step"] == (2 if moves < 2 else 3)
    assert checkpoint.load_tree(checkpoint.previous(path))["step"] == (1 if moves == 0 else 2)
    checkpoint.save_tree(path, {"step": 4}, keep_previous=True)
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "last.previous.safetensors",
        "last.safetensors",
    ]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_run_of_any_size_is_resumed_where_its_saves_account_for_it(
    damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes in a config are believed as far as the saved numbers go, of the save before the last
    where that is cut.
    """
    fit = [
        "fit",
        "rbm",
        "bars-and-stripes",
        "--set",
        "steps=6",
        "--no-report",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    assert CliRunner().invoke(app, fit).exit_code == 0
    last = tmp_path / "run" / "checkpoints" / "last.safetensors"
    last.with_name("model.safetensors").unlink()
    if damaged:
        last.write_bytes(last.read_bytes()[:30])
    monkeypatch.setattr("partita.training.run.SMALL", 0)
    again = CliRunner().invoke(
        app, ["fit", "--resume", str(tmp_path / "run"), "--no-report", "--quiet"]
    )
    assert again.exit_code == 0, again.output
    for path in (last, checkpoint.previous(last)):
        path.unlink(missing_ok=True)
    last.with_name("model.safetensors").unlink()
    again = CliRunner().invoke(
        app, ["fit", "--resume", str(tmp_path / "run"), "--no-report", "--quiet"]
    )
    assert again.exit_code == 1 and "must hold the sizes of the RBM that was saved" in again.output


def test_a_full_disk_leaves_no_half_file_and_the_last_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.safetensors"
    checkpoint.save_tree(path, {"x": torch.ones(3)}, keep_previous=True)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save_tree(path, {"x": torch.zeros(3)}, keep_previous=True)
    assert [p.name for p in tmp_path.iterdir()] == ["last.safetensors"]
    assert torch.equal(checkpoint.load_tree(path)["x"], torch.ones(3))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_between_two_steps(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, before = Session.advance, signal.getsignal(number)

    def signaled(self: Session) -> Any:
        if self.step == 17:
            signal.raise_signal(number)
        return advance(self)

    monkeypatch.setattr(Session, "advance", signaled)
    with pytest.raises(Interrupted) as stopped:
        fitted(tmp_path / "run")
    run = stopped.value.run
    assert (run.stopped, run.steps) == ("interrupted", 18)
    words = f"fit: interrupted after 18 steps; it is saved in {tmp_path / 'run'}. Go on with "
    assert str(stopped.value) == f"{words}resume=True."
    assert signal.getsignal(number) == before


# going back


def test_a_fit_that_diverges_goes_back_with_half_the_rate_and_says_so(tmp_path: Path) -> None:
    options = {"learning_rate": 1e6, "schedule": "constant", "validations": 10}
    with pytest.raises(Diverged, match="Lower learning_rate"):
        fitted(**options)
    with warnings.catch_warnings():
        # they are the run's warnings, looked at below
        warnings.simplefilter("ignore", PartitaWarning)
        run = fitted(tmp_path / "run", guard="rollback", **{**options, "learning_rate": 300.0})
    assert run.stopped == "finished" and run.steps == 60
    assert any(
        "went back from step" in warning and "of the learning rate" in warning
        for warning in run.warnings
    )
    assert all(torch.isfinite(p).all() for p in run.model.parameters())
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    events = [line for line in lines if "event" in line]
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    assert (
        "must stay finite and small; got" in events[0]["event"]
        and "went back from step" in events[0]["done"]
    )
    saved = checkpoint.load_tree(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert saved["rate_scale"] == 0.5 ** sum("went back" in event["done"] for event in events) < 1


def diverging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that diverges at step 47 unless its learning rate was halved."""
    advance = Session.advance

    def diverges(self: Session) -> Any:
        if self.step == 47 and self.rate_scale == 1:
            raise Diverged(
                "fit: the loss of 'model' must stay finite and small; got nan at step 47. Lower "
                "learning_rate."
            )
        return advance(self)

    monkeypatch.setattr(Session, "advance", diverges)


@pytest.mark.parametrize("place", ["before", "saved", "rewound", "after"])
@pytest.mark.filterwarnings("ignore::partita.errors.PartitaWarning")  # the run's warnings
def test_a_fit_killed_while_it_goes_back_ends_like_one_that_was_not(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the kill falls before the save that makes it so, between that and the two changes of
    the records, or after them.
    """
    monkeypatch.setattr(loop, "SAVE_SECONDS", -1.0)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of saves: a kill needs none
    diverging(monkeypatch)
    whole = fitted(tmp_path / "whole", guard="rollback", validations=6)
    with monkeypatch.context() as patch:
        if place == "after":
            patch.setattr(Session, "advance", killed_at(42, scale=0.5))
        else:
            owner, name = {
                "before": (loop.RunFolder, "save"),
                "saved": (History, "rewind"),
                "rewound": (History, "add"),
            }[place]
            own = getattr(owner, name)

            def killed(self: Any, first: Any) -> None:
                if (
                    (first.rate_scale < 1)
                    if place == "before"
                    else place == "saved" or "went back" in first.get("done", "")
                ):
                    raise Killed
                own(self, first)

            patch.setattr(owner, name, killed)
        with pytest.raises(Killed):
            fitted(tmp_path / "run", guard="rollback", validations=6)
    run = fitted(tmp_path / "run", guard="rollback", validations=6, resume=True)
    assert [{**r, "seconds": 0} for r in run.history] == [
        {**r, "seconds": 0} for r in whole.history
    ]
    (event,) = [record for record in run.history if "event" in record]
    assert event["done"] == "went back from step 47 to 40, to go on with 0.5 of the learning rate"
    assert run.warnings == whole.warnings
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, run.model.state_dict()[name])


def test_going_back_ends_where_it_does_not_help() -> None:
    with (
        pytest.warns(PartitaWarning, match="went back"),
        pytest.raises(Diverged, match=r"must .*finite"),
    ):
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
        run = partita.fit(
            model,
            rows(),
            PCD(chains=8),
            steps=40,
            validations=8,
            learning_rate=1e-6,
            out=tmp_path / "run",
            generator=g,
        )
    assert sum("always off" in record.get("event", "") for record in run.history) == 1
