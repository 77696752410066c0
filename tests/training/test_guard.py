"""The guard: it stops what is no longer a number, and names the term and the remedy; each thing it
looks for is provoked in a fit.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pressing import interrupted_after

import partita
from partita.core.support import Binary
from partita.errors import Diverged
from partita.models import RBM, VAE, Flow, MaxEnt
from partita.objectives import CD, ELBO, PCD
from partita.samplers import Gibbs
from partita.training import Run, Settings, checkpoint, guard, loop
from partita.training.session import Session

SETTINGS = Settings(steps=1, learning_rate=0.2)


def test_finite_losses_pass_as_numbers() -> None:
    losses = {"model": torch.tensor(1.5, requires_grad=True), "critic": torch.tensor(-0.25)}
    assert guard.check_losses(losses, 3, 4, SETTINGS) == {"model": 1.5, "critic": -0.25}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 81.0, -81.0])
def test_a_loss_that_runs_away_is_named_with_its_step_and_remedy(value: float) -> None:
    """Four columns allow 80 nats."""
    words = rf"^fit: the loss of 'critic' must stay finite and small; got {value:.4g} at step 7\."
    remedy = r" Lower learning_rate \(now 0\.2\), for example to 0\.02\.$"
    with pytest.raises(Diverged, match=words + remedy):
        guard.check_losses(
            {"model": torch.tensor(1.0), "critic": torch.tensor(value)}, 7, 4, SETTINGS
        )


@pytest.mark.parametrize("value", [79.0, -79.0])
def test_a_large_loss_of_many_columns_is_fine(value: float) -> None:
    assert guard.check_losses({"model": torch.tensor(value)}, 0, 4, SETTINGS) == {"model": value}


def test_a_loss_that_was_as_large_before_anything_was_learned_has_not_run_away() -> None:
    """Rows far out make it so; only a loss that is large is held against that of the first
    weights.
    """
    untrained = {"model": 100.0}
    large = {"model": torch.tensor(999.0)}
    assert guard.check_losses(large, 7, 4, SETTINGS, untrained=lambda: untrained) == {
        "model": 999.0
    }
    for value in (1001.0, -81.0, math.inf, math.nan):
        with pytest.raises(Diverged, match="must stay finite and small"):
            guard.check_losses(
                {"model": torch.tensor(value)}, 7, 4, SETTINGS, untrained=lambda: untrained
            )
    asked: list[None] = []
    guard.check_losses(
        {"model": torch.tensor(79.0)}, 7, 4, SETTINGS, untrained=lambda: asked.append(None) or {}
    )
    assert not asked


def test_no_learning_rate_is_advised_where_none_can_help() -> None:
    """Before the first update it has done nothing; after many halvings it may not be to blame."""
    lost = {"model": torch.tensor(math.nan)}
    columns = r"Look for huge or constant columns\.$"
    with pytest.raises(Diverged, match=rf"got nan at step 0\. {columns}"):
        guard.check_losses(lost, 0, 4, SETTINGS)
    now = r"Lower learning_rate \(now 0\.2, halved down to 0\.05 in vain\), for example to 0\.005\."
    with pytest.raises(Diverged, match=rf"got nan at step 3\. {now} {columns}"):
        guard.check_losses(lost, 3, 4, SETTINGS, scale=0.25)


def test_where_gradients_are_clipped_a_few_large_losses_are_forgiven_but_not_many_in_a_row() -> (
    None
):
    clipped, large = replace(SETTINGS, clip=1.0), {"model": torch.tensor(1e6)}
    assert guard.check_losses(large, 0, 4, clipped, far=guard.FORGIVEN - 1) == {"model": 1e6}
    with pytest.raises(Diverged, match=r"got 1e\+06 at step 9"):
        guard.check_losses(large, 9, 4, clipped, far=guard.FORGIVEN)
    with pytest.raises(Diverged, match="got nan"):
        guard.check_losses({"model": torch.tensor(math.nan)}, 0, 4, clipped)


def test_a_fit_whose_losses_stay_large_ends(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that are lost after three steps: forgiven 25 times, then named."""
    flow, advance = Flow(2, 2, widths=(4,), generator=generator), Session.advance

    def lost(self: Session) -> Any:
        if self.step >= 3:
            with torch.no_grad():
                for p in self.bare.parameters():
                    p.fill_(6.0)
        return advance(self)

    monkeypatch.setattr(Session, "advance", lost)
    x = torch.randn(200, 2, generator=generator)
    with pytest.raises(Diverged, match=f"at step {3 + guard.FORGIVEN}"):
        partita.fit(flow, x, steps=60, clip=1.0, generator=generator)


def far_out(n: int = 200, width: int = 3) -> torch.Tensor:
    """Rows of a normal distribution, of which a few lie sixty deviations out."""
    x = torch.randn(n, width, generator=torch.Generator().manual_seed(0))
    x[::50] *= 60
    return x


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_rows_far_out_do_not_end_a_fit(clip: float, generator: torch.Generator) -> None:
    """Batches with such a row have losses beyond 20 nats a column from the first step on."""
    x, model = far_out(), VAE(3, 2, widths=(8,), likelihood="gaussian", generator=generator)
    run = partita.fit(model, x, steps=100, batch_size=16, clip=clip, generator=generator)
    worst = max(loss for _, loss in run.series("model"))
    assert run.stopped == "finished" and worst > 20 * 3
    assert guard.FAR_OUT not in run.warnings  # most batches have none


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_fit_on_another_scale_says_so(clip: float, generator: torch.Generator) -> None:
    """No learning rate would help, and none is advised."""
    x = 1e4 * torch.randn(200, 2, generator=generator)
    flow = Flow(2, 2, widths=(4,), generator=generator)
    run = partita.fit(flow, x, steps=60, clip=clip, initialize=False, generator=generator)
    assert run.warnings == [guard.FAR_OUT]


def test_the_first_weights_are_those_of_the_fit_that_is_resumed(tmp_path: Path) -> None:
    """Whatever weights the model has that is handed in then."""

    def fit(name: str, seed: int, **more: Any) -> Any:
        g = torch.Generator().manual_seed(seed)
        model = VAE(3, 2, widths=(8,), likelihood="gaussian", generator=g)
        return partita.fit(
            model, far_out(), steps=40, batch_size=16, out=tmp_path / name, generator=g, **more
        )

    fit("whole", 1)
    interrupted_after(7, lambda: fit("parted", 1))
    fit("parted", 2, resume=True)
    whole, parted = (
        checkpoint.load_tree(tmp_path / name / "checkpoints" / "last.safetensors")
        for name in ("whole", "parted")
    )
    for part in ("untrained", "model"):
        assert whole[part]
        exact = {"rtol": 0.0, "atol": 0.0, "equal_nan": True}  # what is not yet known is nan
        torch.testing.assert_close(whole[part], parted[part], **exact)


def test_a_healthy_model_has_no_ailments(generator: torch.Generator) -> None:
    model = RBM(4, 3, generator=generator)
    before, after = (torch.randint(0, 2, (20, 4), generator=generator).float() for _ in range(2))
    assert guard.fit_warnings(model, before, after) == []
    assert guard.fit_warnings(model, None, None) == []
    assert guard.fit_warnings(model, None, after) == []
    assert (
        guard.fit_warnings(MaxEnt("pairwise", Binary(4), generator=generator), before, after) == []
    )


def test_chains_that_stand_still_are_noticed(generator: torch.Generator) -> None:
    x = torch.randint(0, 2, (20, 4), generator=generator).float()
    (found,) = guard.fit_warnings(RBM(4, 3, generator=generator), x, x.clone())
    assert (
        found == "no chain has moved in 20 updates or more; lower learning_rate, or temper: "
        "PCD(Tempering(Gibbs()))."
    )
    one_moved = x.clone()
    one_moved[3, 1] = 1 - one_moved[3, 1]
    assert guard.fit_warnings(RBM(4, 3, generator=generator), x, one_moved) == []


@pytest.mark.parametrize("bias", [20.0, -20.0])
def test_hidden_units_that_always_agree_are_dead(bias: float, generator: torch.Generator) -> None:
    model = RBM(4, 5, generator=generator)
    x = torch.randint(0, 2, (20, 4), generator=generator).float()
    with torch.no_grad():
        model.c[:3] = bias
    assert guard.fit_warnings(model, None, x) == [
        "more than half of the hidden units are always on or always off; lower learning_rate or "
        "use fewer of them."
    ]
    with torch.no_grad():
        model.c[2] = 0.0
    assert guard.fit_warnings(model, None, x) == []  # two of five may be


# provoked in fits: in the records, early, and with --guard rollback mended

STEPS, LOOKS = 200, 20
EVERY = STEPS // LOOKS
# the warnings of these runs, looked at below
pytestmark = pytest.mark.filterwarnings("ignore::partita.errors.PartitaWarning")


def bits(n: int = 80, width: int = 4) -> torch.Tensor:
    return torch.randint(0, 2, (n, width), generator=torch.Generator().manual_seed(3)).float()


def fitted(model: Any, objective: Any, folder: Path, **options: Any) -> Run:
    options = {
        "steps": STEPS,
        "validations": LOOKS,
        "batch_size": 20,
        "optimizer": "sgd",
        "learning_rate": 1e-9,
        **options,
    }
    return partita.fit(
        model, bits(), objective, out=folder, generator=torch.Generator().manual_seed(4), **options
    )


def events(folder: Path) -> list[dict[str, Any]]:
    return [
        line
        for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        if "event" in line
    ]


def frozen(generator: torch.Generator) -> RBM:
    """Hidden units copy the visible ones, and these them: no chain ever moves."""
    model = RBM(4, 4, generator=generator)
    with torch.no_grad():
        model.W.copy_(60 * torch.eye(4))
        model.b.fill_(-30.0)
        model.c.fill_(-30.0)
    return model


def dead(generator: torch.Generator) -> RBM:
    model = RBM(4, 3, generator=generator)
    with torch.no_grad():
        model.c.fill_(-50.0)
    return model


def test_a_divergence_that_ends_a_fit_is_its_last_event(
    tmp_path: Path, generator: torch.Generator
) -> None:
    with pytest.raises(Diverged):
        fitted(
            RBM(4, 3, generator=generator),
            PCD(chains=8),
            tmp_path / "run",
            learning_rate=1e6,
            schedule="constant",
        )
    (event,) = [event for event in events(tmp_path / "run") if "must" in event["event"]]
    assert (
        event["done"] == "stopped, with the last good weights"
        and event["step"] < STEPS
        and "Lower learning_rate" in event["event"]
    )
    assert partita.load(tmp_path / "run", allow_diverged=True).history[-1] == event


def test_chains_that_never_move_are_found_at_the_first_look_that_can_tell(
    tmp_path: Path, generator: torch.Generator
) -> None:
    run = fitted(frozen(generator), PCD(chains=8), tmp_path / "run", initialize=False)
    (event,) = events(tmp_path / "run")
    assert event["event"].startswith("no chain has moved") and event["done"] == "went on"
    assert event["step"] == math.ceil(guard.LEAST_MOVES / EVERY) * EVERY
    assert run.warnings == [event["event"]]


@pytest.mark.parametrize(
    "objective", [PCD(chains=8), CD(Gibbs())], ids=["by its chains", "by the rows"]
)
def test_dead_units_are_found_at_the_first_look(
    objective: Any, tmp_path: Path, generator: torch.Generator
) -> None:
    run = fitted(dead(generator), objective, tmp_path / "run")
    (event,) = events(tmp_path / "run")
    assert (
        event["step"] == EVERY
        and "always on or always off" in event["event"]
        and run.warnings == [event["event"]]
    )


def test_a_collapsed_posterior_is_found_after_a_quarter_of_the_fit(
    tmp_path: Path, generator: torch.Generator
) -> None:
    """A posterior that is the prior whatever x is carries nothing."""
    model = VAE(4, 2, generator=generator)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    run = fitted(model, ELBO(), tmp_path / "run")
    (event,) = events(tmp_path / "run")
    assert (
        event["event"].startswith("the posterior has collapsed: 0 of 2")
        and event["step"] == guard.EARLY * STEPS
    )
    assert any("the posterior has collapsed" in warning for warning in run.warnings)


@pytest.mark.parametrize("mode", ["stop", "rollback"])
def test_units_that_die_on_the_way_are_brought_back_by_a_rollback(
    mode: str, tmp_path: Path, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Session.advance

    def dies(self: Session) -> Any:
        if self.step == 57 and self.rate_scale == 1:  # a step that is too large
            with torch.no_grad():
                self.bare.c.fill_(-50.0)
        return advance(self)

    monkeypatch.setattr(Session, "advance", dies)
    run = fitted(RBM(4, 3, generator=generator), PCD(chains=8), tmp_path / "run", guard=mode)
    (event,) = events(tmp_path / "run")
    assert "always on or always off" in event["event"] and len(run.warnings) == 1
    done = {
        "stop": "went on",
        "rollback": "went back from step 60 to 50, to go on with 0.5 of the learning rate",
    }[mode]
    assert (event["step"], event["done"]) == (60 if mode == "stop" else 50, done)
    assert bool((run.model.c > -10).all()) == (mode == "rollback")


def test_a_divergence_that_a_validation_finds_is_gone_back_from(
    tmp_path: Path, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, raised = loop.quick_score, []

    def diverges(model: Any, x: torch.Tensor, key: int, step: int) -> Any:
        if step == 60 and not raised:
            raised.append(step)
            raise Diverged("annealing RBM(4, 3): a log weight is not finite.")
        return score(model, x, key, step)

    monkeypatch.setattr(loop, "quick_score", diverges)
    run = fitted(
        RBM(4, 3, generator=generator),
        PCD(chains=8),
        tmp_path / "run",
        guard="rollback",
        validation=bits(20),
    )
    (event,) = events(tmp_path / "run")
    assert (
        event["done"] == "went back from step 60 to 50, to go on with 0.5 of the learning rate"
        and run.steps == STEPS
    )
    assert [step for step, _ in run.series("validation")] == [
        max(1, i * i // 2) for i in range(1, LOOKS + 1)
    ]


def test_going_back_is_not_tried_where_the_fit_was_never_well(
    tmp_path: Path, generator: torch.Generator
) -> None:
    fitted(dead(generator), PCD(chains=8), tmp_path / "run", guard="rollback")
    (event,) = events(tmp_path / "run")
    assert event["done"] == "went on"


def test_all_returns_are_told_in_one_sentence(
    tmp_path: Path, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Session.advance

    def diverges(self: Session) -> Any:
        if self.step == 57 and self.rate_scale > 0.1:
            raise Diverged("fit: the loss must stay finite; got nan. Lower learning_rate.")
        return advance(self)

    monkeypatch.setattr(Session, "advance", diverges)
    run = fitted(RBM(4, 3, generator=generator), PCD(chains=8), tmp_path / "run", guard="rollback")
    assert len(events(tmp_path / "run")) == 4
    assert run.warnings == [
        "went back from step 57 to 50, to go on with 0.0625 of the learning rate: the loss must "
        "stay finite; got nan."
    ]


def test_what_comes_back_each_time_is_let_be(
    tmp_path: Path, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Session.advance

    def dies(self: Session) -> Any:
        if self.step == 57:
            with torch.no_grad():
                self.bare.c.fill_(-50.0)
        return advance(self)

    monkeypatch.setattr(Session, "advance", dies)
    run = fitted(RBM(4, 3, generator=generator), PCD(chains=8), tmp_path / "run", guard="rollback")
    done = [event["done"].split(" from ")[0] for event in events(tmp_path / "run")]
    assert done == ["went back"] * guard.MOST_MENDS + ["went on"] and run.steps == STEPS
