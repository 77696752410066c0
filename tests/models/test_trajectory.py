"""The path along the weights that a model had: its ends, what moves on it, and log Z along it."""

import math
import re

import pytest
import torch
from tests.models.test_guided import models, states
from torch import Tensor

import partita
from partita.core.protocols import EnergyModel
from partita.errors import RunError, Unsupported
from partita.evaluators import Enumeration, Sandwich
from partita.models import RBM, NeuralEnergy
from partita.models.energy.trajectory import Trajectory, reweighted
from partita.objectives import PCD
from partita.samplers import MALA, Gibbs, Tempering
from partita.training import checkpoint

WAYS = 3  # weights on the way


def trajectory(model: EnergyModel) -> Trajectory:
    """Weights of any kind, for a path may go through any."""
    g = torch.Generator().manual_seed(5)
    return Trajectory(
        model,
        [
            {name: torch.randn(p.shape, generator=g).half() for name, p in model.named_parameters()}
            for _ in range(WAYS)
        ],
    )


@pytest.mark.parametrize("name", models())
@torch.no_grad()
def test_the_path_goes_from_the_reference_through_all_weights_to_the_model(name: str) -> None:
    model = models()[name]
    path, x = trajectory(model), states(model)
    reference = path.reference().free_energy(x)
    for u, expected in [
        (0.0, reference),
        *(((k + 1) / (WAYS + 1), reweighted(model, path.knots[k])(x)) for k in range(WAYS)),
        (1.0, model(x)),
    ]:
        difference = path.at(u).free_energy(x) - expected
        # but for a constant, the log Z of the reference that an annealed model has too
        torch.testing.assert_close(difference, difference[:1].expand_as(difference))
    for u in (0.0, 1.0):
        log_z = torch.logsumexp(-path.at(u).free_energy(x), 0)
        truth = path.reference().log_z if u == 0 else torch.logsumexp(-model(x), 0)
        torch.testing.assert_close(log_z, truth.to(log_z))


@pytest.mark.parametrize("name", models())
@torch.no_grad()
def test_a_ladder_sees_its_neighbors_as_energies_along_the_path_say(name: str) -> None:
    model = models()[name]
    path, x = trajectory(model), states(model)
    betas = torch.tensor([0.0, 0.1, 0.5, 0.77, 1.0], dtype=torch.float64)
    order = torch.stack([torch.randperm(len(x)) for _ in betas])
    ladder = x[order]
    expected = EnergyModel.neighbors(path, ladder, betas)
    for found, other in zip(path.neighbors(ladder, betas)[:3], expected[:3], strict=True):
        torch.testing.assert_close(found, other)
    own = torch.stack([path.at(u)(rung) for u, rung in zip(betas.tolist(), ladder, strict=True)])
    torch.testing.assert_close(expected.own, own)
    assert [each.shape[0] for each in expected[:3]] == [5, 4, 4]


@pytest.mark.parametrize("name", models())
def test_log_z_of_ladders_along_any_weights_is_right(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ladders are always heard here, for no rows are known; four standard errors, and not much
    more.
    """
    model = models()[name]
    model.trajectory = tuple(trajectory(model).knots[:-1])
    truth = Enumeration()(model, generator=torch.Generator()).value
    q = Sandwich()(model, generator=torch.Generator().manual_seed(0))
    ladders = q.details["ladders"]
    assert abs(ladders.value - truth) < 4 * ladders.details["se"] < 0.4
    assert q.trusted and q.low <= truth <= q.high and q.width < 0.6


def clusters(n: int, generator: torch.Generator) -> Tensor:
    """Noisy copies of three patterns of 48 bits that have little in common."""
    patterns = (torch.rand(3, 48, generator=generator) < 0.5).float()
    chosen = patterns[torch.randint(3, (n,), generator=generator)]
    return (chosen + (torch.rand(n, 48, generator=generator) < 0.02).float()) % 2


def test_a_clustered_model_is_scored_by_the_path_it_came_by() -> None:
    g = torch.Generator().manual_seed(0)
    x = clusters(600, g)
    model = RBM(48, 12, generator=g)
    partita.fit(model, x, PCD(chains=100), steps=1500, trajectory=12, generator=g)
    assert len(model.trajectory) == 12
    truth = Enumeration()(model, generator=g).value
    model.anchored.fill_(False)  # without rows ladders are heard
    q = Sandwich()(model, generator=g)
    assert q.trusted and q.low <= truth <= q.high and q.width < 1
    traveled = q.details["ladders"].details["round_trips"]
    model.trajectory = ()
    alone = Sandwich()(model, generator=g)
    assert alone.low <= truth <= alone.high
    assert traveled > 0


def test_a_kernel_that_remembers_more_than_x_cannot_follow() -> None:
    g = torch.Generator().manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    model = NeuralEnergy(net, partita.core.Real(2))
    path = trajectory(model)
    ladder = Tempering(MALA(), betas=(0.0, 0.5, 1.0))
    with pytest.raises(Unsupported, match="needs a kernel that remembers x alone, and MALA"):
        ladder.init(path, torch.zeros(4, 2), generator=g)


def test_a_run_keeps_the_weights_and_refuses_those_of_another_model(tmp_path) -> None:
    g = torch.Generator().manual_seed(0)
    model, x = RBM(4, 3, generator=g), (torch.rand(40, 4, generator=g) < 0.5).float()
    partita.fit(
        model, x, PCD(Gibbs(), chains=8), steps=64, trajectory=6, out=tmp_path / "run", generator=g
    )
    again = partita.load(tmp_path / "run").model
    assert [sorted(weights) for weights in again.trajectory] == [["W", "b", "c"]] * 6
    for here, there in zip(model.trajectory, again.trajectory, strict=True):
        assert all(torch.equal(here[name], there[name]) for name in here)
    file = tmp_path / "run" / "checkpoints" / "model.safetensors"
    saved = checkpoint.load_tree(file)
    saved["trajectory"][2]["W"] = torch.zeros(5, 3).half()
    checkpoint.save_tree(file, saved)
    refusal = re.escape("model.safetensors: trajectory must hold weights of RBM(4, 3)")
    with pytest.raises(RunError, match=refusal):
        partita.load(tmp_path / "run")


def test_weights_too_large_for_half_precision_are_cut() -> None:
    from partita.training.session import in_half

    kept = in_half({"W": torch.tensor([1e6, -1e30, 0.5])})["W"]
    assert kept.dtype == torch.float16 and kept.isfinite().all() and kept[2] == 0.5
    assert math.isclose(float(kept[0]), -float(kept[1]))
