"""NUTS: invariance from exact draws, arrival from elsewhere, turns by hand, what the warm-up
learns, and a wrong acceptance that the tests see.
"""

import math
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from tests.samplers.targets import Bent, Truth
from torch import Tensor

from partita.core.protocols import EnergyModel
from partita.core.support import Real
from partita.errors import InputError
from partita.models import NeuralEnergy
from partita.samplers import NUTS, nuts
from partita.samplers.moments import closed, gathered, start
from partita.samplers.windowed import windows

# false-alarm rate of all chi-squared tests of one function together, at their fixed seeds
RATE = 1e-4
CHAINS = 20_000
ROOT = torch.tensor([[1.0, 0.0], [2.7, 0.9]]).double()  # of a covariance with correlation 0.95


def moved(model: EnergyModel, sampler: Any, x: Tensor, steps: int, g: torch.Generator) -> Any:
    state = sampler.init(model, x, generator=g)
    for _ in range(steps):
        state, info = sampler.step(model, state, generator=g)
    return state, info


class Warped(Bent):
    """A standard normal seen through an invertible map, whose inverse whitens."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def whiten(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The normal coordinates, and the log of the map's Jacobian."""
        u, v = x[..., 0], x[..., 1]
        if self.how == "slanted":
            return x @ torch.linalg.inv(ROOT).mT, torch.zeros_like(u)
        if self.how == "banana":
            return torch.stack([u, (v - u.square()) / 0.6], -1), torch.zeros_like(u)
        return torch.stack([u, v * torch.exp(-0.5 * u)], -1), 0.5 * u  # a funnel

    def color(self, z: Tensor) -> Tensor:
        u, v = z[..., 0], z[..., 1]
        if self.how == "slanted":
            return z @ ROOT.mT
        if self.how == "banana":
            return torch.stack([u, 0.6 * v + u.square()], -1)
        return torch.stack([u, v * torch.exp(0.5 * u)], -1)

    def free_energy(self, x: Tensor) -> Tensor:
        z, log_volume = self.whiten(x)
        return 0.5 * z.square().sum(-1) + log_volume


def distance(z: Tensor) -> float:
    """Chi-squared of 36 equally likely cells of two independent normals: 35 degrees of freedom."""
    cell = (torch.special.ndtr(z) * 6).long().clamp(0, 5)
    counts = torch.bincount(cell[:, 0] * 6 + cell[:, 1], minlength=36).double()
    return float(((counts - len(z) / 36).square() / (len(z) / 36)).sum())


@pytest.mark.parametrize("how", ["slanted", "banana", "funnel"])
def test_exact_draws_stay_exact(how: str, generator: torch.Generator) -> None:
    """Two kernels a target, three steps, 20,000 chains, rate 1e-4 for each target."""
    model = Warped(how)
    for kernel in (NUTS(0.4, warm_up=0), NUTS(0.7, warm_up=0, max_depth=2)):
        z = torch.randn(CHAINS, 2, generator=generator).double()
        state, info = moved(model, kernel, model.color(z), 3, generator)
        assert distance(model.whiten(state.x)[0]) < chi2.isf(RATE / 2, 35)
        assert float((state.x != model.color(z)).any(-1).double().mean()) > 0.5
        assert 1 <= float(info.numbers()["depth"].mean()) <= kernel.max_depth
        assert float(info.leapfrogs.max()) <= 2**kernel.max_depth - 1


def test_an_asymmetric_target_is_kept_and_reached(generator: torch.Generator) -> None:
    """From exact draws after 3 steps and from one far point after 60, with and without scales."""
    model = Bent()
    truth, kernel = Truth(model), NUTS(0.6, warm_up=0)
    state, info = moved(model, kernel, truth.draw(CHAINS, generator), 3, generator)
    assert truth.distance(state.x) < truth.limit(RATE / 2, CHAINS)
    assert 0.3 < float(info.numbers()["acceptance"].mean()) < 0.99
    far = torch.tensor([-1.5, 1.5], dtype=torch.float64).expand(4000, 2)
    once, _ = moved(model, NUTS(0.05, warm_up=0, max_depth=2), far, 1, generator)
    assert truth.distance(once.x) > 2 * truth.limit(RATE / 2, 4000)
    state, _ = moved(model, kernel, far, 60, generator)
    assert truth.distance(state.x) < truth.limit(RATE / 2, 4000)


def test_each_rung_and_each_chain_may_have_its_own_temperature(generator: torch.Generator) -> None:
    """Six tests, rate 1e-4 together."""
    model, betas, n = Bent(), [0.0, 0.4, 1.0], 6000
    truths = [Truth(model.annealed(beta)) for beta in betas]
    ladder = torch.stack([truth.draw(n, generator) for truth in truths])
    levels, kernel = torch.tensor(betas, dtype=torch.float64), NUTS(0.6, warm_up=0)
    rungs, _ = moved(model.annealed(levels[:, None]), kernel, ladder, 2, generator)
    every = model.annealed(levels.repeat_interleave(n))
    chains, _ = moved(every, kernel, ladder.flatten(0, 1), 2, generator)
    for t, truth in enumerate(truths):
        assert truth.distance(rungs.x[t]) < truth.limit(RATE / 6, n)
        assert truth.distance(chains.x.view(3, n, 2)[t]) < truth.limit(RATE / 6, n)


def test_a_wrong_acceptance_would_be_seen(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    """Mutants: a doubling that is always taken, and one that is taken by the root of its weight."""
    model = Warped("banana")
    z = torch.randn(CHAINS, 2, generator=generator).double()
    right, kernel = nuts.joined, NUTS(0.9, warm_up=0)

    def always(tree: Any, new: Any, forward: Tensor, g: torch.Generator) -> Any:
        heavy = new._replace(log_weight=new.log_weight + 100.0)
        return right(tree, heavy, forward, g)._replace(log_weight=tree.log_weight)

    def by_root(tree: Any, new: Any, forward: Tensor, g: torch.Generator) -> Any:
        return right(tree, new._replace(log_weight=0.5 * new.log_weight), forward, g)

    for mutant in (always, by_root):
        monkeypatch.setattr(nuts, "joined", mutant)
        state, _ = moved(model, kernel, model.color(z), 3, generator)
        assert distance(model.whiten(state.x)[0]) > 1.5 * chi2.isf(RATE / 2, 35)


def test_subtrees_are_tested_for_turns_as_a_recursion_would() -> None:
    """Momenta at random: every aligned subtree of 2, 4, 8, 16 leaves, and no other stretch."""
    g, turns = torch.Generator().manual_seed(5), []
    p = torch.randn(16, 400, 3, generator=g) + 0.6
    rho, kept = torch.zeros(400, 3), {}
    for leaf in range(16):
        rho = rho + p[leaf]
        turns.append(nuts.turned_within(leaf, kept, p[leaf], rho))
    seen = torch.stack(turns)
    for last in range(16):
        wanted = torch.zeros(400, dtype=torch.bool)
        for width in (2, 4, 8, 16):
            if (last + 1) % width == 0:
                part = p[last + 1 - width : last + 1]
                wanted |= nuts.turned(part[0], part[-1], part.sum(0))
        assert torch.equal(seen[last], wanted)
    assert 0.05 < float(seen.any(0).float().mean()) < 0.999


def test_the_warm_up_finds_acceptance_and_scales(generator: torch.Generator) -> None:
    """A normal with deviations 0.1, 1 and 3: within 15 % of each, and within 0.06 of the wanted
    acceptance; afterwards nothing changes.
    """
    deviations = torch.tensor([0.1, 1.0, 3.0]).double()

    class Wide(Bent):
        def __init__(self) -> None:
            super().__init__()
            self.support = Real(3)

        def free_energy(self, x: Tensor) -> Tensor:
            return 0.5 * (x / deviations).square().sum(-1)

    for kernel in (NUTS(warm_up=150), NUTS(warm_up=150, mass="dense")):
        x = torch.randn(40, 3, generator=generator).double() * deviations
        state, _ = moved(Wide(), kernel, x, kernel.warm_up, generator)
        root = state.spread.root
        found = root[0] if kernel.mass == "diagonal" else (root @ root.mT).diagonal().sqrt()
        assert ((found / deviations - 1).abs() < 0.15).all()
        seen = []
        for _ in range(60):
            before, (state, info) = state, kernel.step(Wide(), state, generator=generator)
            seen.append(info.numbers()["acceptance"].mean())
            assert torch.equal(before.size.average, state.size.average)
            assert torch.equal(before.spread.root, state.spread.root)
        assert abs(float(torch.stack(seen).mean()) - kernel.acceptance) < 0.06
        assert float(info.leapfrogs.mean()) < 16  # in coordinates of one scale
        again = kernel.refresh(Wide(), state, generator=generator)
        assert int(again.spread.before + again.size.steps) == kernel.warm_up // 2


def test_windows_are_stans_and_moments_those_of_all_draws() -> None:
    assert windows(1000) == (75, (100, 150, 250, 450, 950))
    assert windows(20) == (3, (18,))
    assert windows(0) == (0, ())
    g = torch.Generator().manual_seed(3)
    x = torch.randn(7, 2, 5, 3, generator=g).double() * 4 + 100  # steps, rungs, chains
    for dense in (False, True):
        found = start(x[0], dense=dense)
        for part in x:
            found = gathered(found, part)
        for rung, rows in enumerate(x.transpose(0, 1).flatten(1, 2)):
            square = torch.cov(rows.mT) * 34
            wanted = square if dense else square.diagonal()
            torch.testing.assert_close(found.square[rung], wanted)
            torch.testing.assert_close(found.mean[rung], rows.mean(0))
        root = closed(found, 7).root
        near = root @ root.mT if dense else torch.diag_embed(root[:, 0].square())
        for rung, rows in enumerate(x.transpose(0, 1).flatten(1, 2)):
            whole, single = torch.cov(rows.mT), rows.var(0).diag()
            wanted = whole * 35 / 40 + single * 5 / 40 if dense else single
            torch.testing.assert_close(near[rung], wanted)


def test_divergences_are_counted_and_settings_checked(generator: torch.Generator) -> None:
    """A wall that an energy of 1e6 makes: long steps run into it."""

    class Wall(Bent):
        def free_energy(self, x: Tensor) -> Tensor:
            return 0.5 * x.square().sum(-1) + 1e6 * (x[..., 0] - 1).clamp_min(0).square()

    x = torch.zeros(200, 2, dtype=torch.float64)
    _, info = moved(Wall(), NUTS(0.5, warm_up=0), x, 3, generator)
    assert 0.05 < float(info.numbers()["diverged"].mean()) < 1
    words = r"NUTS: max_depth must be a whole number of at least 1; got 0"
    with pytest.raises(InputError, match=words):
        NUTS(max_depth=0)
    with pytest.raises(InputError, match=r"NUTS: mass must be one of 'diagonal', 'dense', 'unit'"):
        NUTS(mass="heavy")  # type: ignore[arg-type]


def test_tuned_along_a_path_it_is_frozen(generator: torch.Generator) -> None:
    """Step sizes follow the path, and in a metric too exact draws stay exact, rate 1e-4."""
    model = NeuralEnergy(Uneven(), Real(2)).double()
    kernel = NUTS(max_depth=4).tuned(model, generator=generator)
    assert kernel.warm_up == 0 and kernel.schedule is not None
    assert kernel.tuned(model, generator=generator) is kernel
    z = torch.randn(6000, 2, generator=generator).double()
    suited = kernel.suited_to(model, z[:128] * Uneven.deviations)
    assert suited.metric is not None
    for each in (kernel, suited):
        state, _ = moved(model, each, z * Uneven.deviations, 2, generator)
        assert distance(state.x / Uneven.deviations) < chi2.isf(RATE / 2, 35)


class Uneven(torch.nn.Module):
    """What a reference lacks to a normal of deviations 0.05 and 1."""

    deviations = torch.tensor([0.05, 1.0]).double()

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        bends = self.deviations.to(x).pow(-2) - 1
        return self.scale * (0.5 * x.square() * bends).sum(-1, keepdim=True)


def test_lengths_of_trajectories_follow_the_target(generator: torch.Generator) -> None:
    """On a standard normal a trajectory turns after about half a period: between a quarter of pi
    and two pi of time, whatever the step.
    """

    class Standard(Bent):
        def free_energy(self, x: Tensor) -> Tensor:
            return 0.5 * x.square().sum(-1)

    x = torch.randn(500, 2, generator=generator).double()
    for size in (0.4, 0.1, 0.025):
        _, info = moved(Standard(), NUTS(size, warm_up=0), x, 1, generator)
        assert 0.25 * math.pi < float(info.leapfrogs.mean()) * size < 2 * math.pi
