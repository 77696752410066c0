"""The path from a mixture to a model: its two ends, its hidden component, and the kernels that move
along it.
"""

import math

import pytest
import torch
from torch import Tensor

from partita.core import Binary
from partita.core.protocols import EnergyModel
from partita.evaluators import AIS, Enumeration
from partita.models import RBM, Boltzmann, Ising, MaxEnt, Potts
from partita.models.energy.guided import Guided, NormalMixture, ProductMixture
from partita.samplers import Gibbs

DRAWS = 40_000


def models() -> dict[str, EnergyModel]:
    g = torch.Generator().manual_seed(3)
    made = {
        "RBM": RBM(4, 3, scale=1.0, generator=g),
        "categorical RBM": RBM(3, 2, visible_units="categorical", states=3, scale=1.0, generator=g),
        "Ising": Ising(4, generator=g),
        "Potts": Potts(3, 3, generator=g),
        "Boltzmann": Boltzmann(4, 2, scale=1.0, generator=g),
        "MaxEnt": MaxEnt("pairwise", Binary(4), generator=g),
        "MaxEnt of a function": MaxEnt(lambda x: x[..., :-1] * x[..., 1:], Binary(4), generator=g),
    }
    for model in made.values():
        with torch.no_grad():
            for p in model.parameters():
                p.normal_(generator=g)
            for name in ("reference_natural", "reference_logits"):
                if name in dict(model.named_buffers()):
                    getattr(model, name).normal_(generator=g)
    return {name: model.double() for name, model in made.items()}


def mixture(model: EnergyModel, components: int = 3) -> ProductMixture:
    g, values = torch.Generator().manual_seed(4), model.support.values().double()
    logits = torch.randn(
        components, model.support.width, len(values), generator=g, dtype=torch.float64
    )
    weights = torch.randn(components, generator=g, dtype=torch.float64)
    return ProductMixture(
        torch.log_softmax(weights, 0), values, torch.log_softmax(1.5 * logits, -1)
    )


def states(model: EnergyModel) -> Tensor:
    return model.support.states(
        0, round(2**model.support.bits), torch.zeros((), dtype=torch.float64)
    )


@pytest.mark.parametrize("name", models())
@torch.no_grad()
def test_the_path_goes_from_the_mixture_to_the_model(name: str) -> None:
    model = models()[name]
    guided, x = Guided(model, mixture(model)), states(model)
    field = guided.field(x)
    first, last = (
        guided.energy_along(field, torch.tensor(beta, dtype=torch.float64)) for beta in (0.0, 1.0)
    )
    assert float(torch.logsumexp(-first, 0)) == pytest.approx(0, abs=1e-9)
    torch.testing.assert_close(first, guided.mixture.free_energy(x))
    torch.testing.assert_close(last, model.free_energy(x))


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("beta", [0.2, 0.7])
@torch.no_grad()
def test_gibbs_steps_leave_every_place_on_the_path_invariant(name: str, beta: float) -> None:
    """Draws by enumeration stay draws: frequencies of all states within 4.5 deviations, a false
    alarm in 1e-3 of all runs.
    """
    model, g = models()[name], torch.Generator().manual_seed(5)
    target, x = Guided(model, mixture(model)).annealed(beta), states(model)
    p = torch.softmax(-target.free_energy(x), 0)
    start = x[torch.multinomial(p, DRAWS, replacement=True, generator=g)]
    state, _ = Gibbs().step(target, Gibbs().init(target, start, generator=g), generator=g)
    index = (state.x[:, None] == x).all(-1).double().argmax(-1)
    seen = torch.bincount(index, minlength=len(x)).double() / DRAWS
    assert float(((seen - p) / (p * (1 - p) / DRAWS).sqrt()).abs().max()) < 4.5
    assert (state.x != start).any()


@pytest.mark.parametrize("name", models())
def test_annealing_from_a_mixture_gives_log_z(name: str) -> None:
    """Within 4.5 standard errors, and those within 0.02: a false alarm in 1e-4 of all runs."""
    model = models()[name]
    q = AIS(100, 2000, adaptive=False, witnesses=False)(
        Guided(model, mixture(model)), generator=torch.Generator().manual_seed(6)
    )
    assert q.details["se"] < 0.02
    assert abs(q.value - Enumeration()(model).value) < 4.5 * max(q.details["se"], 1e-4)


def test_normals_are_normalized_and_drawn_as_they_say() -> None:
    g = torch.Generator().manual_seed(7)
    whitening = torch.tensor([[[2.0, 0.0], [0.5, 1.0]], [[1.0, 0.0], [-0.3, 0.5]]])
    normals = NormalMixture(
        torch.tensor([0.3, 0.7]).log(), torch.tensor([[0.0, 1.0], [3.0, -2.0]]), whitening
    )
    x = normals.draw(DRAWS, generator=g)
    mean = 0.3 * normals.mean[0] + 0.7 * normals.mean[1]
    assert float((x.mean(0) - mean).abs().max()) < 5 * float(x.std(0).max()) / math.sqrt(DRAWS)
    side = torch.linspace(-15, 15, 600)
    grid = torch.cartesian_prod(side, side)
    total = torch.exp(-normals.free_energy(grid).double()).sum() * float(side[1] - side[0]) ** 2
    assert float(total) == pytest.approx(1, abs=1e-3)


def test_gaussian_machines_anneal_from_normals(generator: torch.Generator) -> None:
    model = RBM(3, 4, visible_units="gaussian", scale=0.7, generator=generator).double()
    mean = torch.tensor([[0.0, 0.0, 0.0], [1.0, -1.0, 0.5]], dtype=torch.float64)
    whitening = 0.8 * torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    normals = NormalMixture(torch.tensor([0.5, 0.5], dtype=torch.float64).log(), mean, whitening)
    q = AIS(100, 2000, adaptive=False, witnesses=False)(Guided(model, normals), generator=generator)
    assert abs(q.value - Enumeration()(model).value) < 4.5 * q.details["se"] < 0.2
