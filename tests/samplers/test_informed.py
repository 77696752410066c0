"""Locally informed proposals: detailed balance of the exact transition matrix, and the sampler
against that matrix.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from partita.core.protocols import EnergyModel
from partita.core.support import Binary, Spin
from partita.errors import InputError, Unsupported
from partita.evaluators import AIS
from partita.models import RBM, Boltzmann, Ising, MaxEnt, Potts
from partita.samplers import Gibbs, Informed, Tempering

# false-alarm rate of all chi-squared tests of one function together, at their fixed seeds
FAMILY = 1e-4
CHAINS = 4_000
MAKERS = {
    "ising": (lambda g: Ising(3, generator=g), ("exact", "gradient")),
    "hidden": (lambda g: Boltzmann(3, 2, generator=g), ("exact", "gradient")),
    "potts": (lambda g: Potts(2, 3, generator=g), ("exact",)),
    "rbm": (lambda g: RBM(3, 2, generator=g), ("exact", "gradient")),
    "categorical rbm": (
        lambda g: RBM(2, 2, visible_units="categorical", states=3, generator=g),
        ("exact",),
    ),
    "maxent": (lambda g: MaxEnt("pairwise", Spin(3), generator=g), ("exact", "gradient")),
}
CELLS = [(name, how) for name, (_, hows) in MAKERS.items() for how in hows]


def make(name: str) -> EnergyModel:
    g = torch.Generator().manual_seed(12)
    model = MAKERS[name][0](g).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.9 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def energies(model: EnergyModel, beta: float) -> tuple[Tensor, np.ndarray]:
    states = model.support.states(0, round(2**model.support.bits), model.like.detach())
    with torch.no_grad():
        return states, model.annealed(beta).free_energy(states).numpy()


def slopes(model: EnergyModel, states: Tensor, beta: float) -> np.ndarray:
    """dF/dx by finite differences of the polynomial or smooth extension of F, (S, D)."""
    result = np.empty(states.shape)
    for s, i in product(range(len(states)), range(states.shape[1])):
        step = torch.zeros(states.shape[1], dtype=torch.float64)
        step[i] = 1e-5
        with torch.no_grad():
            ends = model.annealed(beta).free_energy(
                torch.stack([states[s] + step, states[s] - step])
            )
        result[s, i] = float(ends[0] - ends[1]) / 2e-5
    return result


def transition_matrix(
    model: EnergyModel, how: str, beta: float
) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """P of one move, written out with loops from the equations, and the target."""
    states, F = energies(model, beta)
    slope = slopes(model, states, beta) if how == "gradient" else None
    x, n = states.numpy(), len(states)
    q = np.zeros((n, n))
    for s, t in product(range(n), repeat=2):
        changed = np.flatnonzero(x[s] != x[t])
        if len(changed) == 1:
            i = changed[0]
            d = F[s] - F[t] if slope is None else -(x[t, i] - x[s, i]) * slope[s, i]
            q[s, t] = math.exp(d / 2)
    q /= q.sum(1, keepdims=True)
    P = np.zeros((n, n))
    for s, t in product(range(n), repeat=2):
        if q[s, t] > 0:
            P[s, t] = q[s, t] * min(1.0, math.exp(F[s] - F[t]) * q[t, s] / q[s, t])
    P += np.diag(1 - P.sum(1))
    p = np.exp(-F)
    return states, P, p / p.sum()


@pytest.mark.parametrize(("name", "how"), CELLS)
@pytest.mark.parametrize("beta", [0.4, 1.0])
def test_one_move_has_the_exact_transition_matrix_which_is_in_detailed_balance(
    name: str, how: str, beta: float, generator: torch.Generator
) -> None:
    model = make(name)
    states, P, p = transition_matrix(model, how, beta)
    flow = p[:, None] * P
    np.testing.assert_allclose(flow, flow.T, atol=1e-14)
    sampler, n = Informed(differences=how), 1000  # type: ignore[arg-type]
    x = states.repeat_interleave(n, 0)
    state, info = sampler.step(
        model.annealed(beta), sampler.init(model, x, generator=generator), generator=generator
    )
    where = (state.x[:, None] == states).all(-1).view(len(states), n, len(states)).sum(1).numpy()
    assert (where[P < 1e-12] == 0).all()
    possible = P >= 1e-12
    statistic = ((where - n * P) ** 2 / np.where(possible, n * P, 1))[possible].sum()
    assert statistic < chi2.isf(FAMILY / (2 * len(CELLS)), possible.sum() - len(states))
    stay = np.diag(P).mean()
    assert float(info.numbers()["accepted"].mean()) == pytest.approx(
        1 - stay, abs=5 * math.sqrt(stay * (1 - stay) / len(x)) + 1e-12
    )


@pytest.mark.parametrize(("name", "how"), CELLS)
def test_the_target_is_kept_and_reached(name: str, how: str, generator: torch.Generator) -> None:
    model = make(name)
    states, F = energies(model, 1.0)
    p = np.exp(-F) / np.exp(-F).sum()
    for begin, moves in (("target", 3), ("least likely", 60)):
        at = (
            torch.multinomial(torch.tensor(p), CHAINS, True, generator=generator)
            if begin == "target"
            else int(p.argmin())
        )
        x = states[at].expand(CHAINS, -1).clone()
        sampler = Informed(moves, how)  # type: ignore[arg-type]
        state, _ = sampler.step(
            model, sampler.init(model, x, generator=generator), generator=generator
        )
        observed = (state.x[:, None] == states).all(-1).sum(0).numpy()
        assert ((observed - CHAINS * p) ** 2 / (CHAINS * p)).sum() < chi2.isf(
            FAMILY / (2 * len(CELLS)), len(p) - 1
        )
        assert not state.x.requires_grad


def test_each_chain_may_have_its_own_temperature(generator: torch.Generator) -> None:
    model, betas = make("ising"), torch.tensor([[0.2], [1.0]], dtype=torch.float64)
    ladder = torch.ones(2, CHAINS, 3, dtype=torch.float64)
    state, _ = Informed(60).step(
        model.annealed(betas),
        Informed().init(model, ladder, generator=generator),
        generator=generator,
    )
    for t, beta in enumerate(betas.flatten().tolist()):
        states, F = energies(model, beta)
        p = np.exp(-F) / np.exp(-F).sum()
        observed = (state.x[t][:, None] == states).all(-1).sum(0).numpy()
        assert ((observed - CHAINS * p) ** 2 / (CHAINS * p)).sum() < chi2.isf(FAMILY / 2, 7)


def test_tempering_and_annealing_wrap_it(generator: torch.Generator) -> None:
    model = make("potts")
    _, F = energies(model, 1.0)
    q = AIS(temperatures=200, chains=200, kernel=Informed(2))(model, generator=generator)
    # false-alarm rate below 1e-5
    assert abs(q.value - math.log(np.exp(-F).sum())) < 5 * q.details["se"]
    ladder = Tempering(Informed(2), betas=(0.0, 0.5, 1.0))
    state = ladder.init(model, torch.zeros(50, 2, dtype=torch.float64), generator=generator)
    state, info = ladder.step(model, state, generator=generator)
    assert {"accepted", "moved", "swapped"} <= info.numbers().keys()


def test_it_follows_good_moves_where_a_blind_sweep_wastes_its_own(
    generator: torch.Generator,
) -> None:
    """Of 200 spins five should flip: five informed moves find nearly all of them, five blind site
    updates do not.
    """
    model = Ising(200, fields=4.0, generator=generator)
    x = torch.ones(50, 200)
    x[:, :5] = -1
    state, info = Informed(5).step(
        model, Informed().init(model, x, generator=generator), generator=generator
    )
    assert float((state.x == 1).float().mean()) > 0.995
    assert float(info.numbers()["accepted"].mean()) > 0.9


def test_refusals(generator: torch.Generator) -> None:
    with pytest.raises(
        Unsupported,
        match=r"Informed\(differences='gradient'\) cannot run on Categorical\(D=2, K=3\)",
    ):
        Informed(differences="gradient").init(make("potts"), torch.zeros(1, 2), generator=generator)
    with pytest.raises(
        Unsupported,
        match=r"Informed cannot run on RBM\(3, 2\): its coordinates do not have finitely many "
        r"values",
    ):
        Informed().init(
            RBM(3, 2, visible_units="gaussian", generator=generator),
            torch.zeros(1, 3),
            generator=generator,
        )
    with pytest.raises(
        InputError, match=r"Informed: moves must be a whole number of at least 1; got 0\."
    ):
        Informed(0)
    with pytest.raises(
        InputError, match=r"Informed: differences must be one of 'exact', 'gradient'; got 'taylor'"
    ):
        Informed(differences="taylor")  # type: ignore[arg-type]
    assert Gibbs().kernel_on == Informed.kernel_on == "x" and Binary(1).countable_sites
