"""Tempering on its extended target: every rung keeps its own tempered distribution, and exchanges
follow the Metropolis rule.
"""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import chi2, norm
from torch import Tensor

from partita.core.support import Binary
from partita.errors import InputError
from partita.models import RBM, MaxEnt
from partita.samplers import Gibbs, Tempering
from partita.samplers.tempering import LadderState, exchange

# false-alarm rate of all statistical tests of one function together, at their fixed seeds
FAMILY = 1e-4
CHAINS = 6_000
BETAS = (0.0, 0.3, 0.7, 1.0)
STATES = torch.tensor(list(product([0.0, 1.0], repeat=3)), dtype=torch.float64)


def rbm(strength: float = 3.0) -> RBM:
    """Two modes far apart, and a reference that leans to one side."""
    model = RBM(3, 2, generator=torch.Generator()).double()
    W = strength * torch.tensor([[1.0, -1.0], [1.0, -0.8], [-0.9, 1.0]], dtype=torch.float64)
    with torch.no_grad():
        model.W.copy_(W)
        model.b.copy_(-0.5 * W.sum(1) + torch.tensor([0.2, -0.3, 0.1]))
        model.c.copy_(-0.5 * W.sum(0) + torch.tensor([-0.1, 0.3]))
        model.reference_natural.copy_(torch.tensor([[0.6, -0.4, 0.2]]))
    return model


def rbm_log_phi(model: RBM, beta: float) -> np.ndarray:
    """log of the sum over h of the annealed joint at all 8 states."""
    W, b, c = (p.detach().numpy() for p in (model.W, model.b, model.c))
    x, h = STATES.numpy(), np.array(list(product([0.0, 1.0], repeat=2)))
    bias = beta * b + (1 - beta) * model.reference_natural[0].numpy()
    return logsumexp((x @ bias)[:, None] + beta * (h @ c) + beta * (x @ W @ h.T), axis=1)


def maxent() -> MaxEnt:
    model = MaxEnt("pairwise", Binary(3), generator=torch.Generator()).double()
    with torch.no_grad():
        model.theta.copy_(torch.tensor([0.5, -1.0, 0.3, 1.2, -0.7, 0.9]))
        model.reference_logits.copy_(torch.tensor([[0.0, 0.4], [0.2, 0.0], [0.0, -0.5]]))
    return model


def maxent_log_phi(model: MaxEnt, beta: float) -> np.ndarray:
    t, r = model.theta.detach().numpy(), model.reference_logits.numpy()
    own = [
        x @ t[:3] + x[0] * x[1] * t[3] + x[0] * x[2] * t[4] + x[1] * x[2] * t[5]
        for x in STATES.numpy()
    ]
    start = [sum(r[i, int(v)] for i, v in enumerate(x)) for x in STATES.numpy()]
    return beta * np.array(own) + (1 - beta) * np.array(start)


def truth(log_phi: np.ndarray) -> np.ndarray:
    return np.exp(log_phi - logsumexp(log_phi))


def index(x: Tensor) -> Tensor:
    return (x @ torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)).long()


def chi_squared(x: Tensor, p: np.ndarray) -> float:
    observed = index(x).bincount(minlength=8).numpy()
    return float(((observed - len(x) * p) ** 2 / (len(x) * p)).sum())


def draw(ps: list[np.ndarray], generator: torch.Generator) -> Tensor:
    return torch.stack(
        [STATES[torch.multinomial(torch.tensor(p), CHAINS, True, generator=generator)] for p in ps]
    )


CASES = pytest.mark.parametrize(
    ("make", "log_phi"), [(rbm, rbm_log_phi), (maxent, maxent_log_phi)], ids=["RBM", "MaxEnt"]
)


@CASES
@pytest.mark.parametrize("betas", [BETAS, (0.5, 1.0)], ids=str)
def test_every_rung_keeps_its_tempered_distribution(
    make, log_phi, betas: tuple[float, ...], generator: torch.Generator
) -> None:
    model = make()
    ps = [truth(log_phi(model, beta)) for beta in betas]
    sampler = Tempering(Gibbs(), betas=betas)
    state = LadderState(draw(ps, generator), torch.zeros((), dtype=torch.long))
    for _ in range(3):
        state, info = sampler.step(model, state, generator=generator)
    for t, p in enumerate(ps):
        assert chi_squared(state.ladder[t], p) < chi2.isf(FAMILY / 12, 7), betas[t]
    assert 0 < info.swapped.item() < 1
    assert torch.equal(state.x, state.ladder[-1])


@CASES
def test_neighboring_rungs_stay_independent_of_one_another(
    make, log_phi, generator: torch.Generator
) -> None:
    """The extended target is a product, so pairs of rungs have the product of their distributions,
    after exchanges too.
    """
    model = make()
    ps = [truth(log_phi(model, beta)) for beta in (0.4, 1.0)]
    state = LadderState(draw(ps, generator), torch.zeros((), dtype=torch.long))
    state, _ = Tempering(Gibbs(), betas=(0.4, 1.0)).step(model, state, generator=generator)
    pair = 8 * index(state.ladder[0]) + index(state.ladder[1])
    expected = CHAINS * np.outer(*ps).ravel()
    observed = pair.bincount(minlength=64).numpy()
    common = expected >= 5  # cells with few are put together
    rare = (
        (observed[~common].sum() - expected[~common].sum()) ** 2
        / max(expected[~common].sum(), 1e-9)
        if (~common).any()
        else 0.0
    )
    distance = ((observed - expected)[common] ** 2 / expected[common]).sum() + rare
    assert distance < chi2.isf(FAMILY / 2, common.sum() + (~common).any() - 1)


def test_the_ladder_reaches_its_target_where_plain_gibbs_does_not(
    generator: torch.Generator,
) -> None:
    model = rbm(6.0)
    p = truth(rbm_log_phi(model, 1.0))
    x = STATES[6].expand(4000, -1)  # one of the two modes
    plain, tempered = Gibbs(), Tempering(Gibbs(), betas=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    states = {sampler: sampler.init(model, x, generator=generator) for sampler in (plain, tempered)}
    for sampler in states:
        for _ in range(120):
            states[sampler], _ = sampler.step(model, states[sampler], generator=generator)
    assert chi_squared(states[tempered].x, p) < chi2.isf(FAMILY, 7)
    assert chi_squared(states[plain].x, p) > 500


@CASES
@pytest.mark.parametrize("parity", [0, 1])
def test_exchanges_are_accepted_with_the_metropolis_probability(
    make, log_phi, parity: int, generator: torch.Generator
) -> None:
    """Every chain has the same four states, so the share of exchanges of each pair has a binomial
    error.
    """
    model = make()
    energy = [-log_phi(model, beta) for beta in BETAS]
    places = [6, 1, 3, 5]
    ladder = STATES[places][:, None].expand(-1, CHAINS, -1).clone()
    swapped, share, origin, _ = exchange(
        model, ladder, torch.tensor(BETAS, dtype=torch.float64), parity, generator
    )
    offered, accepted = range(parity, 3, 2), []
    for i in offered:
        x, y = places[i], places[i + 1]
        a = min(1.0, np.exp(energy[i][x] + energy[i + 1][y] - energy[i][y] - energy[i + 1][x]))
        did = index(swapped[i]) == y
        # both or neither: nothing is copied or lost
        assert torch.equal(index(swapped[i + 1]) == x, did)
        assert torch.equal(index(swapped[i]) == x, ~did)
        accepted.append(did.double().mean().item())
        assert abs(accepted[-1] - a) <= norm.isf(FAMILY / 6 / 2) * np.sqrt(a * (1 - a) / CHAINS)
    assert share.item() == pytest.approx(np.mean(accepted))
    assert torch.equal(index(swapped), torch.tensor(places)[origin])
    idle = set(range(4)) - {i for pair in offered for i in (pair, pair + 1)}
    assert all(torch.equal(swapped[i], ladder[i]) for i in idle)


def test_both_parities_take_turns(generator: torch.Generator) -> None:
    sampler = Tempering(Gibbs(), betas=BETAS)
    state = sampler.init(rbm(), STATES, generator=generator)
    seen = []
    for _ in range(4):
        seen.append(int(state.parity))
        state, _ = sampler.step(rbm(), state, generator=generator)
    assert seen == [0, 1, 0, 1]


def test_two_rungs_are_offered_an_exchange_at_every_step(generator: torch.Generator) -> None:
    model = rbm(0.1)
    state = LadderState(
        draw([truth(rbm_log_phi(model, b)) for b in (0.9, 1.0)], generator),
        torch.zeros((), dtype=torch.long),
    )
    for _ in range(2):
        state, info = Tempering(Gibbs(), betas=(0.9, 1.0)).step(model, state, generator=generator)
        assert info.numbers()["swapped"].item() > 0.9


def test_tempering_an_annealed_model_composes(generator: torch.Generator) -> None:
    """The ladder of annealed(0.5) is the lower half of the model's own."""
    model = rbm()
    half = model.annealed(0.5)
    ps = [truth(rbm_log_phi(model, 0.5 * beta)) for beta in BETAS]
    state = LadderState(draw(ps, generator), torch.zeros((), dtype=torch.long))
    for _ in range(3):
        state, _ = Tempering(Gibbs(), betas=BETAS).step(half, state, generator=generator)
    for t, p in enumerate(ps):
        assert chi_squared(state.ladder[t], p) < chi2.isf(FAMILY / 4, 7)
    assert chi_squared(state.x, truth(rbm_log_phi(model, 1.0))) > 1000


def test_the_same_generator_makes_the_same_ladder() -> None:
    def ladder(seed: int) -> Tensor:
        g, sampler = torch.Generator().manual_seed(seed), Tempering(Gibbs(), betas=BETAS)
        state = sampler.init(rbm(), STATES, generator=g)
        for _ in range(5):
            state, _ = sampler.step(rbm(), state, generator=g)
        return state.ladder

    assert torch.equal(ladder(1), ladder(1))
    assert not torch.equal(ladder(1), ladder(2))


def test_init_puts_every_rung_at_x(generator: torch.Generator) -> None:
    state = Tempering(Gibbs(), betas=BETAS).init(rbm(), STATES, generator=generator)
    assert state.ladder.shape == (4, 8, 3)
    assert (state.ladder == STATES).all()
    assert torch.equal(state.x, STATES)


@pytest.mark.parametrize(
    "betas",
    [
        (),
        (1.0,),
        (0.0, 0.5),
        (0.0, 1.0, 0.5),
        (0.0, 0.5, 0.5, 1.0),
        (-0.1, 1.0),
        (0.0, 2.0),
        (float("nan"), 1.0),
    ],
    ids=str,
)
def test_betas_rise_to_one(betas: tuple[float, ...]) -> None:
    with pytest.raises(
        InputError,
        match=r"Tempering: betas must (rise from 0 or more to exactly 1; got \[|be a finite "
        r"number; got nan)",
    ):
        Tempering(Gibbs(), betas=betas)


def test_betas_may_be_a_tensor_or_a_list_and_begin_above_zero() -> None:
    assert Tempering(Gibbs(), betas=torch.tensor([0.25, 1.0])).betas == (0.25, 1.0)  # type: ignore[arg-type]
    assert Tempering(Gibbs(), betas=[0.5, 1]) == Tempering(Gibbs(), betas=(0.5, 1.0))  # type: ignore[arg-type]
    default = Tempering(Gibbs()).betas
    assert len(default) == 11
    assert (default[0], default[-1]) == (0.0, 1.0)


def test_a_ladder_of_ladders_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"Tempering: kernel must move x, such as Gibbs\(\); got Tempering\(.*, which moves a "
        r"ladder\.",
    ):
        Tempering(Tempering(Gibbs()))


@pytest.mark.parametrize("make", [rbm, maxent])
@pytest.mark.parametrize("betas", [BETAS, (0.5, 1.0)], ids=str)
def test_a_field_that_is_handed_on_changes_nothing(make, betas: tuple[float, ...]) -> None:
    model, sampler = make(), Tempering(Gibbs(), betas=betas)
    ladders = []
    for handed_on in (False, True):
        g = torch.Generator().manual_seed(3)
        start = (torch.rand(16, 3, generator=g) < 0.5).double()
        state = sampler.init(model, start, generator=g)
        for _ in range(20):
            state, info = sampler.step(model, state, generator=g)
            state = state._replace(field=info.field) if handed_on else state
        ladders.append(state.ladder)
    assert torch.equal(*ladders)
    if info.field is not None and info.field.input is not None:
        torch.testing.assert_close(info.field.input, model.field(state.ladder).input)
