"""Random walks and ensembles: invariance from exact draws, arrival from elsewhere, modes far apart,
and targets that have no gradient.
"""

from typing import Any

import pytest
import torch
from scipy.stats import binom
from tests.samplers.plain import center, pair, root, slanted
from tests.samplers.targets import Bent, Truth
from torch import Tensor

import partita
from partita.core import capability
from partita.core.protocols import EnergyModel
from partita.errors import Unsupported
from partita.evaluators import AIS, SMC, Bridge, Sandwich
from partita.models.energy.guided import Guided, NormalMixture
from partita.objectives import ScoreMatching
from partita.samplers import HMC, MALA, NUTS, Ensemble, Langevin, RandomWalk, Tempering, ensemble

# false-alarm rate of all chi-squared tests of one function together, at their fixed seeds
RATE = 1e-4
CHAINS = 20_000
FIXED = {
    "RandomWalk": RandomWalk(warm_up=0, moves=2),
    "Ensemble": Ensemble(warm_up=0),
    "jumps": Ensemble(warm_up=0, jumps=0.9),
}


def moved(model: EnergyModel, sampler: Any, x: Tensor, steps: int, g: torch.Generator) -> Any:
    state = sampler.init(model, x, generator=g)
    for _ in range(steps):
        state, info = sampler.step(model, state, generator=g)
    return state, info


@pytest.mark.parametrize("name", FIXED)
def test_the_target_is_kept_and_reached(name: str, generator: torch.Generator) -> None:
    """From exact draws after 4 steps, and from one far point after 300: 2 tests."""
    model, kernel = Bent(), FIXED[name]
    truth = Truth(model)
    state, info = moved(model, kernel, truth.draw(CHAINS, generator), 4, generator)
    assert truth.distance(state.x) < truth.limit(RATE / 2, CHAINS)
    assert 0.1 < float(info.accepted.double().mean()) < 0.9
    far = torch.tensor([-1.5, 1.5], dtype=torch.float64).expand(4000, 2)
    once, _ = moved(model, kernel, far, 1, generator)
    assert truth.distance(once.x) > 2 * truth.limit(RATE / 2, 4000)
    state, _ = moved(model, kernel, far, 300, generator)
    assert truth.distance(state.x) < truth.limit(RATE / 2, 4000)


@pytest.mark.parametrize("name", ["RandomWalk", "Ensemble"])
def test_small_ensembles_keep_the_product_of_their_targets(
    name: str, generator: torch.Generator
) -> None:
    """Ensembles of 8 chains, 2,500 of them side by side as rungs, each begun at exact draws: all
    of their chains, and the first of each, which are independent; and chains with temperatures of
    their own. Rate 1e-4 in all.
    """
    model, kernel = Bent(), FIXED[name]
    truth = Truth(model)
    state, _ = moved(model, kernel, truth.draw(20_000, generator).view(2500, 8, 2), 5, generator)
    assert truth.distance(state.x[:, 0]) < truth.limit(RATE / 5, 2500)
    # correlated within an ensemble, if at all: a looser bound that a wrong rule exceeds by far
    assert truth.distance(state.x.flatten(0, 1)) < 1.5 * truth.limit(RATE / 5, 20_000)
    betas, n = torch.tensor([0.0, 0.4, 1.0]).double(), 4000
    truths = [Truth(model.annealed(float(beta))) for beta in betas]
    x = torch.cat([each.draw(n, generator) for each in truths])
    state, _ = moved(model.annealed(betas.repeat_interleave(n)), kernel, x, 3, generator)
    for each, rows in zip(truths, state.x.view(3, n, 2), strict=True):
        assert each.distance(rows) < each.limit(RATE / 5, n)


@pytest.mark.parametrize("mutant", ["always", "own half"])
def test_a_wrong_rule_would_be_seen(
    mutant: str, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    """A rule that takes most of what is worse; a difference that depends on the chain itself."""
    if mutant == "always":
        right = ensemble.judged
        monkeypatch.setattr(ensemble, "judged", lambda e, t, g: right(0.5 * e, 0.5 * t, g))
    else:
        right_difference = ensemble.difference

        def drawn(other: Tensor, shape: Any, g: torch.Generator) -> Any:
            step = right_difference(other, shape, g)
            return step._replace(between=step.between - 0.5 * other.mean(-2, keepdim=True) + 0.3)

        monkeypatch.setattr(ensemble, "difference", drawn)
    model = Bent()
    truth = Truth(model)
    state, _ = moved(model, Ensemble(warm_up=0), truth.draw(CHAINS, generator), 6, generator)
    assert truth.distance(state.x) > 2 * truth.limit(RATE, CHAINS)


def test_ensembles_jump_between_modes_that_walks_do_not_cross(generator: torch.Generator) -> None:
    """Two normals 12 of their deviations apart, 0.3 and 0.7 of the mass, chains begun in equal
    numbers in each: the share of one comes right, a false alarm of 1e-4 for 400 chains whose
    variance is at most twice that of independent ones.
    """
    model, right = pair(2, 3, apart=5.0)[0], center(2, 3, 5.0)
    x = torch.stack([-right, right])[torch.arange(400) % 2]
    shares = []
    for kernel in (Ensemble(), RandomWalk(0.2, warm_up=0)):
        state, _ = moved(model, kernel, x, 1500, generator)
        shares.append(float(((state.x @ right) > 0).double().mean()))
    low, high = binom.interval(1 - RATE, 200, 0.7)
    assert low / 200 <= shares[0] <= high / 200
    assert shares[1] == 0.5  # where they began


def test_the_warm_up_learns_the_covariance(generator: torch.Generator) -> None:
    """Of a normal in four dimensions, within 30 % of every deviation and of the wanted share."""
    model, _ = slanted(4, 5)
    x = model.reference().draw(40, generator=generator)
    state, _ = moved(model, RandomWalk(), x, 300, generator)
    wanted = (root(4, 5) @ root(4, 5).mT).diagonal().sqrt()
    found = (state.spread.root @ state.spread.root.mT).diagonal().sqrt()
    assert ((found / wanted - 1).abs() < 0.3).all()
    _, info = moved(model, RandomWalk(), x, 320, generator)
    assert abs(float(info.probability.mean()) - 0.3) < 0.1


def test_tuned_along_a_path_it_is_frozen(generator: torch.Generator) -> None:
    """At a temperature between, chains of a tuned walk keep their target: rate 1e-4."""
    model = Bent()
    kernel = RandomWalk().tuned(model, generator=generator)
    assert kernel.warm_up == 0 and kernel.schedule is not None and kernel.metric is not None
    assert kernel.tuned(model, generator=generator) is kernel
    suited = kernel.suited_to(model, Truth(model).draw(64, generator))
    for each in (kernel, suited):
        truth = Truth(model.annealed(0.35))
        x = truth.draw(6000, generator)
        state, info = moved(model.annealed(0.35), each, x, 2, generator)
        assert truth.distance(state.x) < truth.limit(RATE / 2, 6000)
        assert 0.1 < float(info.probability.mean()) < 0.7


def test_what_needs_a_gradient_says_so(generator: torch.Generator) -> None:
    model, _ = slanted(2, 1)
    mixture = NormalMixture(torch.zeros(1), torch.zeros(1, 2), torch.eye(2)[None])
    for view in (model, model.annealed(0.5), Guided(model, mixture)):
        assert not view.differentiable
        assert isinstance(capability.default("sampler", view), RandomWalk)
    x = torch.zeros(6, 2).double()
    for kernel in (MALA(), HMC(), NUTS(), Langevin()):
        name = type(kernel).__name__
        words = rf"{name} cannot run on Plain: its energy has no gradient\. Use RandomWalk instead"
        with pytest.raises(Unsupported, match=words):
            kernel.init(model, x, generator=generator)
    with pytest.raises(Unsupported, match=r"ScoreMatching cannot run on Plain: its energy has no"):
        partita.fit(model, x, ScoreMatching(), steps=1, generator=generator)


@pytest.mark.parametrize("evaluator", [AIS, SMC, Bridge, Sandwich])
def test_annealing_refuses_chains_that_see_one_another(
    evaluator: Any, generator: torch.Generator
) -> None:
    words = r"needs chains that never see one another, .* those of Ensemble do\. Use RandomWalk\(\)"
    with pytest.raises(Unsupported, match=words):
        evaluator(kernel=Ensemble())(slanted(2, 1)[0], generator=generator)
    partita.sample(slanted(2, 1)[0], 8, sampler=Ensemble(), burn_in=3, generator=generator)
    ladder = Tempering(Ensemble(), betas=(0.5, 1.0))
    partita.sample(slanted(2, 1)[0], 8, sampler=ladder, burn_in=3, generator=generator)
