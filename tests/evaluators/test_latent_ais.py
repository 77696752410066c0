"""Annealing of latent variables against a grid over one latent dimension; both sides of rows that
the model draws.
"""

import math
from typing import Any

import pytest
import torch

import partita
from partita.errors import InputError, Unsupported
from partita.evaluators import IWAE, LatentAIS
from partita.models import VAE, VRNN
from partita.samplers import HMC

FIXED: dict[str, Any] = {"kernel": HMC(step_size=0.5, leapfrogs=4, warm_up=0), "adaptive": False}


@pytest.fixture
def model(generator: torch.Generator) -> VAE:
    """A decoder that bends far from linear, and an encoder that was never fitted."""
    made = VAE(4, 1, widths=(5,), generator=generator).double()
    with torch.no_grad():
        for p in made.decoder.parameters():
            p.mul_(3)
    return made


def exact(model: VAE, x: torch.Tensor) -> torch.Tensor:
    z = torch.linspace(-9, 9, 2001, dtype=torch.float64)[:, None, None]
    return (torch.logsumexp(model.log_joint(x, z), 0) + math.log(18 / 2000)).detach()


@pytest.mark.parametrize("reference", ["both", "posterior", "prior"])
def test_annealing_finds_the_likelihood_of_every_row(
    model: VAE, reference: str, generator: torch.Generator
) -> None:
    """Each row's error is below 0.04 with 48 chains; 0.15 is more than four of them."""
    states = model.support.states(0, 16, torch.zeros((), dtype=torch.float64))
    q = partita.evaluate(
        model,
        states,
        evaluator=LatentAIS(40, 48, reference=reference, **FIXED),
        generator=generator,
    )
    torch.testing.assert_close(q.details["rows"], exact(model, states), atol=0.15, rtol=0)
    assert q.kind == "lower" and q.direction == "low" and q.verdict == "tight"


def test_both_sides_of_rows_that_the_model_draws_meet(
    model: VAE, generator: torch.Generator
) -> None:
    states = model.support.states(0, 2, torch.zeros((), dtype=torch.float64))
    q = partita.evaluate(
        model, states, evaluator=LatentAIS(30, 8, simulated=200, **FIXED), generator=generator
    )
    assert -0.1 < q.details["gap"] < 0.3  # errors of the gap are about 0.02


def test_what_cannot_be_annealed_says_so(generator: torch.Generator) -> None:
    model = VRNN(3, latent=1, hidden=4, features=4, generator=generator)
    with pytest.raises(Unsupported, match=r"LatentAIS cannot run on VRNN.*Use IWAE instead"):
        partita.evaluate(model, torch.zeros(2, 3), evaluator=LatentAIS(), generator=generator)
    with pytest.raises(InputError, match="reference must be one of 'both', 'posterior', 'prior'"):
        LatentAIS(reference="q")


def test_the_gap_of_iwae_is_among_its_details(model: VAE, generator: torch.Generator) -> None:
    states = model.support.states(0, 16, torch.zeros((), dtype=torch.float64))
    q = partita.evaluate(model, states, evaluator=IWAE(50, simulated=300), generator=generator)
    assert -0.1 < q.details["gap"] < 1.0
