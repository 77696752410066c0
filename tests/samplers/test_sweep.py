"""Site Gibbs of pairwise models, in machine code and color by color, against enumerated
distributions without any symmetry.
"""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from partita.errors import InputError
from partita.models import Boltzmann, Ising, Potts, lattice, torus
from partita.models.energy.pairwise import PairwiseModel
from partita.samplers import Gibbs, Tempering
from partita.samplers.gibbs import site_sweep
from partita.samplers.sweep import color_sweeps, pair_sweeps

# false-alarm rate of all chi-squared tests of one function together, at their fixed seeds
FAMILY = 1e-4
CHAINS = 6_001  # not a multiple of the lanes
MAKERS = {
    "ising": lambda g: Ising(4, generator=g),
    "lattice": lambda g: Ising(6, edges=lattice(2, 3), generator=g),
    "boltzmann": lambda g: Boltzmann(4, generator=g),
    "hidden": lambda g: Boltzmann(4, 2, generator=g),
    "potts": lambda g: Potts(3, 3, generator=g),
    "potts chain": lambda g: Potts(4, 3, edges=[[0, 1], [1, 2], [2, 3]], generator=g),
}
EVERY = pytest.mark.parametrize("name", MAKERS)


def make(name: str, dtype: torch.dtype = torch.float32) -> PairwiseModel:
    g = torch.Generator().manual_seed(8)
    model = MAKERS[name](g).to(dtype)
    with torch.no_grad():
        for p in [*model.parameters(), model.reference_logits]:
            p.copy_(0.6 * torch.randn(p.shape, generator=g))
    return model


def target(model: PairwiseModel, beta: float = 1.0) -> tuple[Tensor, np.ndarray]:
    """All states, and their probabilities from the energies, which tests/models checks against sums
    by hand.
    """
    states = model.support.states(0, round(2**model.support.bits), model.J.detach())
    with torch.no_grad():
        return states, torch.softmax(-model.annealed(beta).free_energy(states).double(), 0).numpy()


def chi_squared(x: Tensor, states: Tensor, p: np.ndarray) -> float:
    where = (x[:, None] == states).all(-1)
    assert (where.sum(1) == 1).all()  # every chain is at a state of the support
    observed = where.sum(0).numpy()
    return float(((observed - len(x) * p) ** 2 / (len(x) * p)).sum())


def start(kind: str, states: Tensor, p: np.ndarray, generator: torch.Generator) -> Tensor:
    if kind == "target":
        return states[torch.multinomial(torch.tensor(p), CHAINS, True, generator=generator)]
    return states[int(np.argmin(p))].expand(CHAINS, -1).clone()


@EVERY
@pytest.mark.parametrize("order", ["random", "sequential", "colors"])
def test_the_target_is_kept_and_reached(name: str, order: str, generator: torch.Generator) -> None:
    model = make(name)
    states, p = target(model)
    for begin in ("target", "least likely"):
        x = start(begin, states, p, generator)
        sampler = Gibbs(1 if begin == "target" else 40, order)  # type: ignore[arg-type]
        state, info = sampler.step(
            model, sampler.init(model, x, generator=generator), generator=generator
        )
        assert chi_squared(state.x, states, p) < chi2.isf(FAMILY / 36, len(p) - 1)
        assert 0.1 < float(info.numbers()["moved"].mean()) < 0.9


@EVERY
def test_color_by_color_in_torch(name: str, generator: torch.Generator) -> None:
    model = make(name)
    if name == "hidden":
        # its hidden units are drawn, not its marginal's conditionals; the kernel test covers it
        return
    states, p = target(model)
    for begin, sweeps in (("target", 1), ("least likely", 40)):
        x = color_sweeps(model, start(begin, states, p, generator), sweeps, generator)
        assert chi_squared(x, states, p) < chi2.isf(FAMILY / 12, len(p) - 1)


@EVERY
def test_each_chain_may_have_its_own_temperature(name: str, generator: torch.Generator) -> None:
    model, betas = make(name, torch.float64), [0.0, 0.4, 1.0]
    truths = [target(model, beta) for beta in betas]
    ladder = torch.stack([start("target", states, p, generator) for states, p in truths])
    rungs = model.annealed(torch.tensor(betas, dtype=torch.float64)[:, None])
    x = pair_sweeps(rungs, ladder, 2, "random", generator)
    assert x.dtype == torch.float64 and x.shape == ladder.shape
    for t, (states, p) in enumerate(truths):
        assert chi_squared(x[t], states, p) < chi2.isf(FAMILY / 18, len(p) - 1)
    assert chi_squared(x[0], *truths[2]) > 300  # the ends are far from one another


@torch.no_grad()
@pytest.mark.parametrize("order", ["random", "sequential", "colors"])
def test_a_checkerboard_sweep_has_the_law_of_a_sequential_one_by_colors(
    order: str, generator: torch.Generator
) -> None:
    """From one state: the exact transition probabilities, site after site, averaged over the orders
    that are drawn.
    """
    model, at = make("lattice"), 37
    states, p = target(model)
    table, colors = p.reshape([2] * 6), [c.tolist() for c in model.graph.colors]
    assert len(colors) == 2
    by_color = [[*first, *second] for first, second in permutations(colors)]
    orders = {
        "random": list(permutations(range(6))),
        "sequential": [tuple(range(6))],
        "colors": by_color,
    }
    expected = np.zeros(64)
    for sites in orders[order]:
        row = np.eye(64)[at].reshape([2] * 6)
        for i in sites:
            row = row.sum(i, keepdims=True) * table / table.sum(i, keepdims=True)
        expected += row.ravel() / len(orders[order])
    # chains of one call share their order
    many, calls = (4000, 1) if order == "sequential" else (1, 1000)
    x = torch.cat(
        [pair_sweeps(model, states[at].expand(many, -1), 1, order, generator) for _ in range(calls)]
    )
    assert chi_squared(x, states, expected) < chi2.isf(FAMILY / 3, 63)
    if order == "colors":
        together = torch.cat(
            [color_sweeps(model, states[at].expand(many, -1), 1, generator) for _ in range(calls)]
        )
        assert chi_squared(together, states, expected) < chi2.isf(FAMILY / 3, 63)


def test_the_kernels_agree_with_the_plain_sweep_on_a_larger_model(
    generator: torch.Generator,
) -> None:
    """Means of spins and of bonds from 4000 chains of each; 56 comparisons, false-alarm rate below
    1e-4 together.
    """
    model = Ising(16, edges=torus(4, 4), generator=generator)
    torch.nn.init.normal_(model.J, 0.1, 0.3, generator=generator)
    torch.nn.init.normal_(model.h, 0.2, 0.3, generator=generator)
    x = torch.ones(4000, 16)
    fast = pair_sweeps(model, x, 30, "colors", generator)
    with torch.no_grad():
        slow = x
        for _ in range(30):
            slow = site_sweep(model, slow, generator)
    i, j = model.graph.edges.unbind(1)
    a, b = (torch.cat([v, v[:, i] * v[:, j]], 1) for v in (fast, slow))
    z = (a.mean(0) - b.mean(0)) / ((a.var(0) + b.var(0)) / 4000).sqrt()
    assert z.abs().max() < 4.9


def test_seeds_alone_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same generator, the same chains, whatever the number of threads; the state handed in is
    left alone.
    """
    model = make("lattice")
    x = torch.ones(200, 6)  # four blocks of lanes
    monkeypatch.setattr("partita.samplers.sweep.WORTH_THREADS", 0)
    results = []
    for seed, count in ((1, 1), (1, 2), (2, 1)):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=count: count)
        results.append(pair_sweeps(model, x, 3, "random", torch.Generator().manual_seed(seed)))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert (x == 1).all()


def test_extreme_odds_are_certain(generator: torch.Generator) -> None:
    for h, expected in ((60.0, 1.0), (-60.0, -1.0), (1e6, 1.0)):
        model = Ising(5, fields=h, generator=generator)
        assert (
            pair_sweeps(model, -expected * torch.ones(200, 5), 1, "random", generator) == expected
        ).all()


def test_tempering_wraps_it(generator: torch.Generator) -> None:
    model = make("potts")
    states, p = target(model)
    sampler = Tempering(Gibbs(), betas=(0.0, 0.5, 1.0))
    state = sampler.init(model, start("least likely", states, p, generator), generator=generator)
    for _ in range(30):
        state, info = sampler.step(model, state, generator=generator)
    assert chi_squared(state.x, states, p) < chi2.isf(FAMILY, 26)
    assert 0 < float(info.numbers()["swapped"]) < 1


def test_bad_order() -> None:
    with pytest.raises(
        InputError,
        match=r"Gibbs: order must be one of 'random', 'sequential', 'colors'; got 'chequered'",
    ):
        Gibbs(order="chequered")  # type: ignore[arg-type]
