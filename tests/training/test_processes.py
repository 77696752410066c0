"""Two processes against one: the same gradients and expectations, checkpoints that either can
resume, one log Z, one all-reduce a step.
"""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from tests.gloo import in_two
from tests.training import one_message, together
from tests.training import two_processes as both

from partita.errors import InputError, Unsupported
from partita.models.directed.latent import MEMORY
from partita.objectives import PCD, PseudoLikelihood
from partita.runtime.processes import Team
from partita.training import checkpoint

pytestmark = pytest.mark.slow
Seen = tuple[Path, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What two processes that talk by gloo saw, each for itself."""
    folder = tmp_path_factory.mktemp("together")
    return folder, in_two(together.__file__, folder)


def assert_equal(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert list(a) == list(b)
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize("name", list(both.EXACT))
def test_the_gradient_of_an_exact_objective_is_that_of_one_process(name: str, seen: Seen) -> None:
    make, x, objective = both.EXACT[name]
    alone = both.gradient(objective, make(), x())
    together, other = (ranks["exact"][name] for ranks in seen[1])
    assert_equal(together, other)
    for parameter, value in alone.items():
        torch.testing.assert_close(together[parameter], value, rtol=0, atol=1e-12)


def test_batches_that_do_not_divide_evenly_weigh_every_row_alike(seen: Seen) -> None:
    alone = both.gradient(PseudoLikelihood(), both.machine(), both.binary(), batch_size=11)
    for parameter, value in alone.items():
        torch.testing.assert_close(seen[1][0]["batch"][parameter], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", list(both.FITS))
def test_every_gradient_fit_leaves_both_processes_with_the_same_model_and_records(
    name: str, seen: Seen
) -> None:
    (weights, records), (others, other_records) = (ranks["fits"][name] for ranks in seen[1])
    assert_equal(weights, others)
    # as text, where an audit not yet made is not a number
    assert str(records) == str(other_records)
    assert all(torch.isfinite(value).all() for value in weights.values())


@pytest.mark.parametrize("name", list(both.SAMPLED))
def test_a_sampled_gradient_has_the_expectation_of_one_process(name: str, seen: Seen) -> None:
    """Welch's test for each weight at a false-alarm rate of 1e-3 in all; those that no draw moves
    must be equal.
    """
    alone, together = both.sampled(name, seed=1000), seen[1][0]["sampled"][name]
    moves = alone.std(0) > 1e-12
    torch.testing.assert_close(together[0, ~moves], alone[0, ~moves], rtol=0, atol=1e-12)
    p = stats.ttest_ind(alone[:, moves], together[:, moves], equal_var=False).pvalue
    assert p.min() > 1e-3 / int(moves.sum())
    # as many chains in all
    assert 0.75 < float(alone.std(0).mean() / together.std(0).mean()) < 1.33


def test_the_chains_are_shared_out_and_differ(seen: Seen) -> None:
    parts = checkpoint.load_tree(seen[0] / "whole" / "checkpoints" / "last.safetensors")[
        "processes"
    ]
    (mine, theirs) = (part["objective"][0] for part in parts)
    assert mine[0].shape == theirs[0].shape and 4 in mine[0].shape  # 8 chains
    assert not torch.equal(mine[0], theirs[0])
    assert not torch.equal(parts[0]["generator"], parts[1]["generator"])


def test_a_run_of_two_is_resumed_by_two_bit_for_bit(seen: Seen) -> None:
    whole = checkpoint.load_tree(seen[0] / "whole" / "checkpoints" / "model.safetensors")[
        "weights"
    ]["last"]
    assert_equal(whole, seen[1][0]["resumed"])
    assert_equal(seen[1][0]["resumed"], seen[1][1]["resumed"])


def test_a_run_of_two_is_resumed_by_one_with_all_its_chains(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(seen[0] / "whole", tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "last.safetensors"
    saved, restored = checkpoint.load_tree(path), []
    restore = both.partita.training.session.Session.restore

    def spied(self: Any, tree: Any) -> None:
        restore(self, tree)
        restored.append(copy.deepcopy((dict(self.bare.state_dict()), self.state.chains)))

    monkeypatch.setattr(both.partita.training.session.Session, "restore", spied)
    checkpoint.save_tree(path, {**saved, "total": 14})
    both.fitted(
        "tempered", None, out=tmp_path / "run", resume=True, schedule="constant", average=0.0
    )
    weights, chains = restored[-1]
    assert_equal(weights, saved["model"])
    ladders = [part["objective"][0] for part in saved["processes"]]
    axis = next(i for i, n in enumerate(ladders[0][0].shape) if n == 4)
    torch.testing.assert_close(
        chains[0], torch.cat([ladder[0] for ladder in ladders], axis), rtol=0, atol=0
    )


def test_a_run_of_one_is_resumed_by_two_which_share_its_chains(seen: Seen) -> None:
    saved = checkpoint.load_tree(seen[0] / "alone" / "checkpoints" / "last.safetensors")
    ((ladder, *_),) = (part["objective"] for part in saved["processes"])
    mine, theirs = (ranks["of one"] for ranks in seen[1])
    for part in (mine, theirs):
        assert_equal(part["model"], saved["model"])
    axis = next(i for i, n in enumerate(mine["chains"].shape) if n == 4)
    assert torch.equal(torch.cat([mine["chains"], theirs["chains"]], axis), ladder[0])
    assert not torch.equal(mine["generator"], theirs["generator"])


def test_an_objective_inside_another_shares_out_its_chains() -> None:
    assert both.FITS["prior"][2].shared(2).likelihood.chains == 4


def test_what_diverges_in_one_process_diverges_in_all_of_them(seen: Seen) -> None:
    """They stop with an event in the records, or all go back to the last look."""
    first, other = (ranks["diverged"] for ranks in seen[1])
    assert "must stay finite and small; got nan at step 5" in first["stop"]
    assert other["stop"] == "Langevin: chains must stay finite; got nan."
    (event,), (theirs,) = first["rollback"], other["rollback"]
    assert (
        event["done"]
        == theirs["done"]
        == "went back from step 5 to 4, to go on with 0.5 of the learning rate"
    )
    lines = [
        json.loads(line) for line in (seen[0] / "stop" / "metrics.jsonl").read_text().splitlines()
    ]
    assert lines[-1]["done"] == "stopped, with the last good weights"
    assert [ranks["annealed"] for ranks in seen[1]] == ["a log weight is not finite."] * 2


@pytest.mark.parametrize("name", ["AIS", "Sandwich", "Bridge"])
def test_log_z_from_shared_chains_is_one_number_that_covers_the_truth(
    name: str, seen: Seen
) -> None:
    """At level 0.95 on one fixed seed each; the truth is enumerated."""
    q, other = (ranks["log_z"][name] for ranks in seen[1])
    truth, log_z = both.enumerated_log_z(both.machine()), q.details["log_z"]
    assert (q.value, q.low, q.high) == (other.value, other.low, other.high)
    assert log_z.low <= truth <= log_z.high and q.details["chains"] == 64


@pytest.mark.parametrize("n", [0, 1, 5, 8, 64])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shares_cover_everything_once_and_differ_by_one_at_most(n: int, size: int) -> None:
    parts = [list(range(n))[Team(rank, size).share(n)] for rank in range(size)]
    assert [item for part in parts for item in part] == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_chains_that_cannot_be_shared_out_are_named() -> None:
    with pytest.raises(
        InputError, match=r"PCD: chains must be a multiple of the 3 processes; got 256\."
    ):
        PCD().shared(3)


def test_what_one_process_must_do_alone_is_refused() -> None:
    from partita.objectives import EM
    from partita.training import Settings
    from partita.training.distributed import shared

    for objective, settings in (
        (EM(), Settings(steps=1)),
        (PCD(), Settings(steps=1, optimizer="natural")),
    ):
        with pytest.raises(Unsupported, match="Leave out devices"):
            shared(objective, settings, 10, Team(0, 2))


@pytest.mark.parametrize(("rows", "batch_size"), [(10, 2), (2, 0), (2, 5)])
def test_a_batch_that_leaves_a_process_without_rows_is_refused(rows: int, batch_size: int) -> None:
    from partita.training import Settings
    from partita.training.distributed import shared

    with pytest.raises(
        InputError,
        match=r"^fit: a batch must have at least one row for each of the 3 processes; got 2\. "
        r"Raise",
    ):
        shared(PseudoLikelihood(), Settings(steps=1, batch_size=batch_size), rows, Team(0, 3))


@pytest.fixture(scope="module")
def reduced(seen: Seen) -> list[dict[str, Any]]:
    """What each saw of the one message of a step, with which they stay alike, stop together and
    save together.
    """
    return [rank["one message"] for rank in seen[1]]


def assert_alike(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert [a[key] for key in ("stopped", "steps", "events")] == [
        b[key] for key in ("stopped", "steps", "events")
    ]
    for name, value in a["weights"].items():
        assert torch.isfinite(value).all(), name
        assert torch.equal(value, b["weights"][name]), name


@pytest.mark.parametrize("name", one_message.NAMES)
def test_a_step_has_one_all_reduce(name: str, reduced: list[dict[str, Any]]) -> None:
    for rank in reduced:
        assert rank["messages"][name] == [1] * 11


def test_running_statistics_are_the_mean_over_processes_where_one_has_none(
    reduced: list[dict[str, Any]],
) -> None:
    """A process without a finite number stays where both were; what was never known by both is not
    known.
    """
    mine, theirs = (rank["statistics"] for rank in reduced)
    running = torch.full_like(mine["own"][0], torch.nan)
    for step, (one, other) in enumerate(zip(mine["own"], theirs["own"], strict=True)):
        following = [
            torch.where(running.isnan(), kl, running.lerp(kl, MEMORY))
            if kl.isfinite().all()
            else running
            for kl in (one, other)
        ]
        running = (following[0] + following[1]) / 2
        assert bool(running.isnan().all()) == (step == 0)
        for rank in (mine, theirs):
            torch.testing.assert_close(
                rank["running"][step], running, rtol=0, atol=1e-15, equal_nan=True
            )
    assert not torch.equal(mine["own"][1], theirs["own"][1])


def test_all_stop_after_the_step_in_which_one_was_interrupted(
    reduced: list[dict[str, Any]],
) -> None:
    mine, theirs = (rank["interrupted"] for rank in reduced)
    for when, steps in (("before", 5), ("after", 6)):
        assert (mine[when]["stopped"], mine[when]["steps"]) == ("interrupted", steps)
        assert_alike(mine[when], theirs[when])
        assert_alike(mine[f"{when}, resumed"], mine["whole"])
        assert_alike(theirs[f"{when}, resumed"], mine["whole"])


def test_a_process_that_diverges_takes_part_in_the_all_reduce_of_its_step(
    reduced: list[dict[str, Any]],
) -> None:
    mine, theirs = (rank["diverged"] for rank in reduced)
    for name in mine:
        assert_alike(mine[name], theirs[name])
    scaled = "to go on with 0.5 of the learning rate"
    assert mine["second"]["events"] == [f"went back from step 1 to 0, {scaled}"]
    assert (
        mine["sixth"]["events"]
        == mine["interrupted"]["events"]
        == [f"went back from step 5 to 4, {scaled}"]
    )
    # the first one after it
    assert (mine["interrupted"]["stopped"], mine["interrupted"]["steps"]) == ("interrupted", 5)


def test_all_save_when_one_thinks_that_it_is_time(reduced: list[dict[str, Any]]) -> None:
    # before the first, after each, and at the end
    assert [rank["saved"] for rank in reduced] == [[0, 1, 2, 3, 4, 4]] * 2
