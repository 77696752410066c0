"""MAP through the one loop, against roots found by scipy, closed forms, and the penalty it
generalizes.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from scipy import optimize
from scipy.special import expit
from torch.distributions import Gamma, Laplace, Normal

import partita
from partita.core import Binary, registry
from partita.errors import InputError, RunError
from partita.models import RBM, MaxEnt
from partita.objectives import PCD, ExactLikelihood
from partita.objectives.map import MAP, log_prior_density
from partita.training import loop
from partita.training.session import Session


def independent(width: int, generator: torch.Generator) -> MaxEnt:
    return MaxEnt("independent", Binary(width), generator=generator).double()


def coins(generator: torch.Generator, n: int = 40) -> torch.Tensor:
    return (torch.rand(n, 3, generator=generator) < torch.tensor([0.1, 0.5, 0.9])).double()


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_the_mode_solves_its_equation(scale: float, generator: torch.Generator) -> None:
    """sum_i (x_i - sigmoid(theta)) - theta / scale^2 = 0 in every column."""
    x, model = coins(generator), independent(3, generator)
    prior = Normal(torch.tensor(0.0).double(), torch.tensor(scale).double())
    run = partita.fit(model, x, MAP(ExactLikelihood(), {"theta": prior}), generator=generator)
    assert run.stopped in ("converged", "stalled")
    for total, theta in zip(x.sum(0).tolist(), model.theta.tolist(), strict=True):
        root = optimize.brentq(
            lambda t, total=total: total - 40 * expit(t) - t / scale**2, -30, 30, xtol=1e-14
        )
        assert theta == pytest.approx(root, abs=1e-6)


def test_a_normal_prior_is_the_l2_penalty(generator: torch.Generator) -> None:
    x = coins(generator)
    models = [independent(3, generator) for _ in range(2)]
    partita.fit(
        models[0],
        x,
        MAP(ExactLikelihood(), {"theta": Normal(0.0, (40 * 0.05) ** -0.5)}),
        generator=generator,
    )
    partita.fit(models[1], x, ExactLikelihood(), l2=0.05, generator=generator)
    torch.testing.assert_close(models[0].theta, models[1].theta, rtol=0, atol=1e-6)


def test_stochastic_objectives_take_priors_too(generator: torch.Generator) -> None:
    """A narrow prior pulls the weights to zero from where they start, while the likelihood alone
    pulls them away from it.
    """
    # three copies of one coin: the likelihood wants large weights
    x = coins(generator).float()[:, [1, 1, 1]]
    free, held = (RBM(3, 2, scale=0.3, generator=generator) for _ in range(2))
    options = {"steps": 600, "batch_size": 20, "learning_rate": 0.1, "generator": generator}
    partita.fit(free, x, PCD(chains=32), **options)
    run = partita.fit(held, x, MAP(PCD(chains=32), {"W": Normal(0.0, 0.05)}), **options)
    assert held.W.detach().abs().max() < 0.25 < free.W.detach().abs().max()  # five prior deviations
    assert run.series("log_prior")


def test_the_density_has_its_constants(generator: torch.Generator) -> None:
    model = independent(2, generator)
    with torch.no_grad():
        model.theta.copy_(torch.tensor([0.5, -1.0]))
    expected = -2 * math.log(4.0) - 1.5 / 2  # of exp(-|theta| / 2) / 4, twice
    prior = Laplace(torch.zeros(()).double(), torch.tensor(2.0).double())
    assert log_prior_density(model, {"theta": prior}).item() == pytest.approx(expected, abs=1e-12)


def test_a_run_is_resumed_with_its_priors(tmp_path: Path, generator: torch.Generator) -> None:
    x = coins(generator).float()
    objective = MAP(PCD(chains=16), {"W": Normal(0.0, 0.5)})

    def train(folder: str, resume: bool = False) -> RBM:
        g = torch.Generator().manual_seed(1)
        model = RBM(3, 2, generator=g)
        partita.fit(
            model,
            x,
            objective,
            steps=30,
            batch_size=10,
            learning_rate=0.05,
            out=tmp_path / folder,
            resume=resume,
            generator=g,
        )
        return model

    whole = train("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "advance", stop_at(15, Session.advance))
        patch.setattr(loop, "SAVE_SECONDS", 0.0)
        with pytest.raises(RuntimeError, match="halfway"):
            train("broken")
    resumed = train("broken", resume=True)
    torch.testing.assert_close(resumed.W, whole.W, rtol=0, atol=0)


def stop_at(
    step: int, advance: Callable[[Session], dict[str, float]]
) -> Callable[[Session], dict[str, float]]:
    """An ``advance`` that breaks off at a step."""

    def advance_or_stop(session: Session) -> dict[str, float]:
        if session.step == step:
            raise RuntimeError("halfway")
        return advance(session)

    return advance_or_stop


def test_priors_are_saved_and_built_again() -> None:
    objective = MAP(
        PCD(chains=16), {"W": Normal(torch.zeros(2).double(), 0.1), "b": Laplace(0.5, 2.0)}
    )
    again = registry.build(json.loads(json.dumps(registry.describe(objective))))
    assert again.likelihood == objective.likelihood and again.prior.keys() == objective.prior.keys()
    for name, prior in objective.prior.items():
        value = torch.tensor([0.3, -0.7], dtype=prior.mean.dtype)
        torch.testing.assert_close(
            again.prior[name].log_prob(value), prior.log_prob(value), rtol=0, atol=0
        )
    with pytest.raises(RunError, match=r"a prior must be one of Normal, .*; got 'Sneaky'"):
        registry.build({"law": "Sneaky", "by": {}})


def test_one_prior_stands_for_all_parameters(generator: torch.Generator) -> None:
    x = coins(generator)
    models = [independent(3, generator) for _ in range(2)]
    partita.fit(models[0], x, MAP(), generator=generator)
    partita.fit(
        models[1], x, MAP(ExactLikelihood(), {"theta": Normal(0.0, 1.0)}), generator=generator
    )
    torch.testing.assert_close(models[0].theta, models[1].theta, rtol=0, atol=0)


def test_wrong_priors_are_named(generator: torch.Generator) -> None:
    x, model = coins(generator), independent(3, generator)
    with pytest.raises(
        InputError,
        match=r"MAP: prior must give torch.distributions objects for some of theta; got \{'W'",
    ):
        partita.fit(model, x, MAP(ExactLikelihood(), {"W": Normal(0.0, 1.0)}), generator=generator)
    with torch.no_grad():
        model.theta.fill_(-1.0)
    with pytest.raises(
        InputError, match="MAP: parameter 'theta' must start in the support of its prior"
    ):
        partita.fit(
            model,
            x,
            MAP(ExactLikelihood(), {"theta": Gamma(2.0, 1.0)}),
            initialize=False,
            generator=generator,
        )
