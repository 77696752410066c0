"""Fits are the same from the same seed, bit for bit, through saves, Ctrl-C, kills and resumes; a
run is never written over.
"""

import os
import random
import shutil
import signal
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from tests.pressing import interrupted_after
from tests.training.small_fits import (
    OBJECTIVES,
    OPTIONS,
    STEPS,
    assert_identical,
    die_at,
    machine,
    rows,
    same,
    scenario,
    timeless,
)

import partita
from partita.errors import RunError
from partita.training import checkpoint, loop

EVERY = pytest.mark.parametrize("name", list(OBJECTIVES))


Whole = Callable[[str], Path]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The folder of a run that nothing stopped, made once for each name."""

    @cache
    def folder(name: str) -> Path:
        scenario(name, path := tmp_path_factory.mktemp("whole") / name)
        return path

    return folder


@EVERY
def test_a_seed_makes_a_run_bit_for_bit(name: str, tmp_path: Path, whole: Whole) -> None:
    again = scenario(name, tmp_path / "again")
    assert_identical(tmp_path / "again", whole(name))
    assert same(dict(partita.load(whole(name)).model.state_dict()), dict(again.model.state_dict()))
    other = partita.fit(
        machine(),
        rows(),
        OBJECTIVES[name],
        generator=torch.Generator().manual_seed(8),
        **OPTIONS[name],
    )
    if name != "exact":
        assert not torch.equal(again.model.W, other.model.W)


@EVERY
def test_saving_and_torchs_own_randomness_change_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = scenario(name)
    monkeypatch.setattr(loop, "SAVE_SECONDS", -1.0)  # save after every step
    with torch.random.fork_rng():
        torch.manual_seed(99)
        noisy = scenario(name, tmp_path / "run")
    assert same(dict(quiet.model.state_dict()), dict(noisy.model.state_dict()))
    assert timeless(quiet.history) == timeless(noisy.history)


@EVERY
@pytest.mark.parametrize("share", [0.0, 0.4, 0.97])
def test_ctrl_c_saves_and_a_resumed_run_ends_the_same(
    name: str, share: float, tmp_path: Path, whole: Whole
) -> None:
    total = checkpoint.load_tree(whole(name) / "checkpoints" / "last.safetensors")["step"]
    stop = max(1, int(share * total))
    partial = interrupted_after(stop, lambda: scenario(name, tmp_path / "run"))
    assert (partial.stopped, partial.steps) == ("interrupted", stop)
    assert partita.load(tmp_path / "run").stopped == "interrupted"  # it can be used as it is
    resumed = scenario(name, tmp_path / "run", resume=True)
    assert_identical(tmp_path / "run", whole(name))
    assert resumed.steps == total
    assert timeless(resumed.history) == timeless(partita.load(whole(name)).history)


def killed(name: str, folder: Path, step: int, save_seconds: float, when: str) -> int:
    """How a copy of this process ended that fits and, after so many updates, kills itself."""
    with warnings.catch_warnings():
        # newer Pythons warn of threads, which the copy lacks and needs none of
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        torch.set_num_threads(1)
        loop.SAVE_SECONDS = save_seconds
        die_at(step, while_saving=when == "saving")
        scenario(name, folder)
    finally:
        os._exit(1)


@pytest.mark.parametrize(
    ("name", "save_seconds", "when"),
    [("tempered", 0.02, "stepping"), ("pcd", 0.02, "saving"), ("pcd", 1000.0, "stepping")],
)
def test_a_run_killed_at_a_random_step_and_resumed_ends_bit_identical(
    name: str, save_seconds: float, when: str, tmp_path: Path, whole: Whole
) -> None:
    step = random.Random(f"{name} {when} {save_seconds}").randrange(20, STEPS - 10)
    folder = tmp_path / "killed"
    assert killed(name, folder, step, save_seconds, when) == -signal.SIGKILL
    assert not (folder / "checkpoints" / "model.safetensors").exists()
    reached = checkpoint.load_tree(folder / "checkpoints" / "last.safetensors")["step"]
    assert reached == 0 if save_seconds > 1 else reached <= step
    scenario(name, folder, resume=True)
    assert_identical(folder, whole(name))


def test_a_finished_run_can_be_resumed_to_no_effect(tmp_path: Path, whole: Whole) -> None:
    shutil.copytree(whole("pcd"), tmp_path / "run")
    scenario("pcd", tmp_path / "run", resume=True)
    assert_identical(tmp_path / "run", whole("pcd"))


def test_a_folder_that_holds_a_run_is_never_written_over(tmp_path: Path, whole: Whole) -> None:
    shutil.copytree(whole("exact"), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(
        RunError,
        match=r"fit: out must be a new folder; .* already holds a run\. Choose another name, or "
        r"resume it\.",
    ):
        scenario("pcd", tmp_path / "run")
    assert {
        path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()
    } == before


def test_there_must_be_something_to_resume(tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=r"load: RUN must be a folder with a config\.json.*; found none in"
    ):
        scenario("pcd", tmp_path / "nothing", resume=True)


def test_another_objective_is_refused_when_resumed(tmp_path: Path, whole: Whole) -> None:
    shutil.copytree(whole("pcd"), tmp_path / "run")
    for name in ("exact", "cd", "tempered"):
        with pytest.raises(
            RunError,
            match=r"fit: objective must be that of the run in .*'chains': 10.*, to resume it; got "
            r"\{'part': '",
        ):
            scenario(
                name, tmp_path / "run", resume=True, optimizer="sgd", batch_size=16, steps=STEPS
            )
    with pytest.raises(
        RunError,
        match=r"fit: optimizer must be that of the run in .*, sgd, to resume it; got adam\.",
    ):
        scenario("pcd", tmp_path / "run", resume=True, optimizer="adam")
    assert_identical(tmp_path / "run", whole("pcd"))  # nothing was touched
