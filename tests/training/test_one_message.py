"""Processes of one fit send one message a step, with which they stay alike, stop together and save together."""

from typing import Any

import pytest
import torch
from tests.gloo import in_two
from tests.training import one_message as both

from partita.models.directed.latent import MEMORY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes that talk by gloo saw, each for itself."""
    return in_two(both.__file__, tmp_path_factory.mktemp("told"))


def assert_alike(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert [a[key] for key in ("stopped", "steps", "events")] == [b[key] for key in ("stopped", "steps", "events")]
    for name, value in a["weights"].items():
        assert torch.isfinite(value).all(), name
        assert torch.equal(value, b["weights"][name]), name


@pytest.mark.parametrize("name", both.NAMES)
def test_a_step_sends_one_message(name: str, seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        assert rank["messages"][name] == [1] * 11


def test_running_statistics_are_the_mean_over_processes_where_one_has_none(seen: list[dict[str, Any]]) -> None:
    """A process without a finite number stays where both were; what was never known by both is not known."""
    mine, theirs = (rank["statistics"] for rank in seen)
    running = torch.full_like(mine["own"][0], torch.nan)
    for step, (one, other) in enumerate(zip(mine["own"], theirs["own"], strict=True)):
        following = [torch.where(running.isnan(), kl, running.lerp(kl, MEMORY)) if kl.isfinite().all() else running for kl in (one, other)]
        running = (following[0] + following[1]) / 2
        assert bool(running.isnan().all()) == (step == 0)
        for rank in (mine, theirs):
            torch.testing.assert_close(rank["running"][step], running, rtol=0, atol=1e-15, equal_nan=True)
    assert not torch.equal(mine["own"][1], theirs["own"][1])


def test_all_stop_after_the_step_in_which_one_said_that_it_was_asked_to(seen: list[dict[str, Any]]) -> None:
    mine, theirs = (rank["interrupted"] for rank in seen)
    for when, steps in (("before", 5), ("after", 6)):
        assert (mine[when]["stopped"], mine[when]["steps"]) == ("interrupted", steps)
        assert_alike(mine[when], theirs[when])
        assert_alike(mine[f"{when}, resumed"], mine["whole"])
        assert_alike(theirs[f"{when}, resumed"], mine["whole"])


def test_a_process_that_diverges_takes_part_in_the_message_of_its_step(seen: list[dict[str, Any]]) -> None:
    mine, theirs = (rank["diverged"] for rank in seen)
    for name in mine:
        assert_alike(mine[name], theirs[name])
    scaled = "to go on with 0.5 of the learning rate"
    assert mine["second"]["events"] == [f"went back from step 1 to 0, {scaled}"]
    assert mine["sixth"]["events"] == mine["interrupted"]["events"] == [f"went back from step 5 to 4, {scaled}"]
    assert (mine["interrupted"]["stopped"], mine["interrupted"]["steps"]) == ("interrupted", 5)  # the first one after it


def test_all_save_when_one_thinks_that_it_is_time(seen: list[dict[str, Any]]) -> None:
    assert [rank["saved"] for rank in seen] == [[0, 1, 2, 3, 4, 4]] * 2  # before the first, after each, and at the end
