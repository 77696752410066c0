"""The guard: it stops what is no longer a number, and names the term and the remedy."""

import math

import pytest
import torch

from partita.core.errors import Diverged
from partita.core.support import Binary
from partita.models import RBM, MaxEnt
from partita.training import Settings, guard

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
        guard.check_losses({"model": torch.tensor(1.0), "critic": torch.tensor(value)}, 7, 4, SETTINGS)


@pytest.mark.parametrize("value", [79.0, -79.0])
def test_a_large_loss_of_many_columns_is_fine(value: float) -> None:
    assert guard.check_losses({"model": torch.tensor(value)}, 0, 4, SETTINGS) == {"model": value}


def test_a_healthy_model_has_no_ailments(generator: torch.Generator) -> None:
    model = RBM(4, 3, generator=generator)
    before, after = (torch.randint(0, 2, (20, 4), generator=generator).float() for _ in range(2))
    assert guard.ailments(model, before, after) == []
    assert guard.ailments(model, None, None) == []
    assert guard.ailments(model, None, after) == []
    assert guard.ailments(MaxEnt("pairwise", Binary(4), generator=generator), before, after) == []


def test_chains_that_stand_still_are_noticed(generator: torch.Generator) -> None:
    x = torch.randint(0, 2, (20, 4), generator=generator).float()
    (found,) = guard.ailments(RBM(4, 3, generator=generator), x, x.clone())
    assert found == "no chain has moved since the last look; lower learning_rate, or temper: PCD(Tempering(Gibbs()))."
    one_moved = x.clone()
    one_moved[3, 1] = 1 - one_moved[3, 1]
    assert guard.ailments(RBM(4, 3, generator=generator), x, one_moved) == []


@pytest.mark.parametrize("bias", [20.0, -20.0])
def test_hidden_units_that_always_agree_are_dead(bias: float, generator: torch.Generator) -> None:
    model = RBM(4, 5, generator=generator)
    x = torch.randint(0, 2, (20, 4), generator=generator).float()
    with torch.no_grad():
        model.c[:3] = bias
    assert guard.ailments(model, None, x) == [
        "more than half of the hidden units are always on or always off; lower learning_rate or use fewer of them."
    ]
    with torch.no_grad():
        model.c[2] = 0.0
    assert guard.ailments(model, None, x) == []  # two of five may be
