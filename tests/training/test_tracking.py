"""log Z carried along a fit, beside the sum over all states."""

import math

import pytest
import torch
from tests.training.small_fits import machine, rows

import partita
from partita.core import Real
from partita.errors import InputError
from partita.evaluators import Enumeration
from partita.models import RBM, NeuralEnergy
from partita.models.energy.trajectory import reweighted
from partita.objectives import PCD, PseudoLikelihood
from partita.training.tracking import followed, started


def log_z(model: RBM) -> float:
    return Enumeration()(model, generator=torch.Generator()).value


def test_the_mean_weight_is_unbiased_whatever_the_way() -> None:
    """Two chains at a time, whose weights vary much, and 4,000 pairs; four standard errors of the
    mean: a false alarm in 16,000.
    """
    g = torch.Generator().manual_seed(0)
    end = machine(hidden=3)
    with torch.no_grad():
        for p in end.parameters():
            p.normal_(generator=g)
    way = [
        reweighted(end, {name: s * p.detach() for name, p in end.named_parameters()})
        for s in (0.3, 0.7, 1.0)
    ]
    ratios = []
    for _ in range(4000):
        chains = started(machine(hidden=3), 2, g)
        for model in way:
            chains = followed(model, chains, g)
        ratios.append(math.exp(chains.numbers()["log_z"] - log_z(end)))
    found = torch.tensor(ratios)
    error = float(found.std()) / math.sqrt(len(found))
    assert abs(float(found.mean()) - 1) < 4 * error < 0.1
    assert float(found.std()) > 0.1  # the weights do vary


@pytest.mark.parametrize("objective", [PCD(chains=32), PseudoLikelihood()])
def test_log_z_is_recorded_all_along_a_fit(objective: object) -> None:
    g = torch.Generator().manual_seed(1)
    model = machine(hidden=6)
    run = partita.fit(model, rows(), objective, steps=400, average=0.0, track=256, generator=g)
    recorded = run.series("log_z")
    assert len(recorded) == len(run.series("log_z_ess")) >= 200
    assert recorded[-1][0] == 400
    assert abs(recorded[-1][1] - log_z(model)) < 0.1


def test_following_a_fit_changes_nothing_of_it() -> None:
    runs = []
    for track in (0, 16):
        model, g = machine(), torch.Generator().manual_seed(2)
        partita.fit(model, rows(), PCD(chains=8), steps=60, track=track, generator=g)
        runs.append((dict(model.state_dict()), torch.rand(1, generator=g)))
    (one, a), (other, b) = runs
    assert all(torch.equal(one[name], other[name]) for name in one) and a == b


def test_a_model_whose_chains_cannot_follow_is_refused() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    model, g = NeuralEnergy(net, Real(2)), torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=g)
    with pytest.raises(InputError, match=r"track must be 0 for a model that Gibbs\(\) cannot move"):
        partita.fit(model, x, steps=2, track=16, generator=g)
    with pytest.raises(InputError, match="track must be 0, or at least 2 chains; got 1"):
        partita.fit(machine(), rows(), steps=2, track=1, generator=g)
