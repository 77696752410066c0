"""Gibbs against enumerated distributions: it must stay there, and come back from elsewhere."""

from itertools import permutations, product

import numpy as np
import pytest
import torch
from scipy.special import expit, logsumexp
from scipy.stats import chi2, kstest, norm
from torch import Tensor

from partita.core.support import Binary, Categorical, Spin
from partita.errors import InputError, Unsupported
from partita.models import RBM, MaxEnt
from partita.samplers import Gibbs
from partita.samplers.gibbs import block_sweep, site_sweep

# false-alarm rate of all chi-squared tests of one function together, at their fixed seeds
FAMILY = 1e-4
CHAINS = 6_000


def randomize(model: RBM | MaxEnt, scale: float, seed: int = 30) -> None:
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=torch.float64))


def rbm(scale: float, units: str = "bernoulli") -> RBM:
    model = RBM(4, 3, visible_units=units, generator=torch.Generator()).double()
    randomize(model, scale)
    with torch.no_grad():
        model.reference_natural[0] = torch.tensor([0.5, -0.5, 1.0, 0.0])
    return model


def rbm_truth(model: RBM, beta: float = 1.0) -> np.ndarray:
    """p(x) of all 16 states, hidden states summed one by one; the annealed joint has beta W, beta c
    and a mixture of biases.
    """
    W, b, c = (p.detach().numpy() for p in (model.W, model.b, model.c))
    x, h = (np.array(list(product([0.0, 1.0], repeat=n))) for n in (4, 3))
    bias = beta * b + (1 - beta) * model.reference_natural[0].numpy()
    log_phi = logsumexp((x @ bias)[:, None] + beta * (h @ c) + beta * (x @ W @ h.T), axis=1)
    return np.exp(log_phi - logsumexp(log_phi))


def lopsided(x: Tensor) -> Tensor:
    """Features without any symmetry between coordinates."""
    return torch.stack(
        [
            x[..., 0],
            2 * x[..., 0] * x[..., 1],
            (x[..., 1] == x[..., 2]).to(x.dtype),
            x[..., 2] ** 2,
        ],
        -1,
    )


def maxent(support: Binary | Spin | Categorical) -> tuple[MaxEnt, Tensor, np.ndarray]:
    """A model, all its states, and their probabilities written out."""
    model = MaxEnt(lopsided, support, generator=torch.Generator()).double()
    randomize(model, 0.4)
    values = {"Binary": (0, 1), "Spin": (-1, 1), "Categorical": (0, 1, 2)}[type(support).__name__]
    states = np.array(list(product(values, repeat=3)), dtype=float)
    theta = model.theta.detach().numpy()
    phi = np.array([[x[0], 2 * x[0] * x[1], float(x[1] == x[2]), x[2] ** 2] for x in states])
    p = np.exp(phi @ theta)
    return model, torch.tensor(states), p / p.sum()


def chi_squared(x: Tensor, states: Tensor, p: np.ndarray) -> float:
    """Distance of the chains from p."""
    where = (x[:, None] == states).all(-1)
    assert (where.sum(1) == 1).all()  # every chain is at a state of the support
    observed = where.sum(0).numpy()
    return float(((observed - len(x) * p) ** 2 / (len(x) * p)).sum())


def start(kind: str, states: Tensor, p: np.ndarray, generator: torch.Generator) -> Tensor:
    if kind == "target":
        return states[torch.multinomial(torch.tensor(p), CHAINS, True, generator=generator)]
    return states[int(np.argmin(p))].expand(CHAINS, -1).clone()  # the least likely state


STARTS = pytest.mark.parametrize("begin", ["target", "least likely"])
BINARY = torch.tensor(list(product([0.0, 1.0], repeat=4)), dtype=torch.float64)


@torch.no_grad()
@STARTS
@pytest.mark.parametrize("scale", [0.3, 1.0])
@pytest.mark.parametrize("sweep", ["block", "site"])
def test_the_target_of_an_rbm_is_kept_and_reached(
    begin: str, scale: float, sweep: str, generator: torch.Generator
) -> None:
    model = rbm(scale)
    p = rbm_truth(model)
    x = start(begin, BINARY, p, generator)
    for _ in range(1 if begin == "target" else 40):
        x = (block_sweep if sweep == "block" else site_sweep)(model, x, None, generator)
    assert chi_squared(x, BINARY, p) < chi2.isf(FAMILY / 8, 15)


@STARTS
@pytest.mark.parametrize("support", [Binary(3), Spin(3), Categorical(3, 3)], ids=str)
def test_the_target_of_a_maxent_is_kept_and_reached(
    begin: str, support: Binary, generator: torch.Generator
) -> None:
    model, states, p = maxent(support)
    x = start(begin, states, p, generator)
    sampler = Gibbs(sweeps=1 if begin == "target" else 40)
    state, _ = sampler.step(model, sampler.init(model, x, generator=generator), generator=generator)
    assert chi_squared(state.x, states, p) < chi2.isf(FAMILY / 6, len(p) - 1)


def test_a_kernel_that_does_nothing_would_not_pass(generator: torch.Generator) -> None:
    """One step from the target moves most chains; from the least likely state one step is not
    enough.
    """
    model = rbm(1.0)
    p = rbm_truth(model)
    x = start("target", BINARY, p, generator)
    moved, info = Gibbs().step(
        model, Gibbs().init(model, x, generator=generator), generator=generator
    )
    assert (moved.x != x).any(1).double().mean() > 0.2
    torch.testing.assert_close(info.numbers()["moved"], (moved.x != x).float().mean(1))
    far = start("least likely", BINARY, p, generator)
    once, _ = Gibbs().step(
        model, Gibbs().init(model, far, generator=generator), generator=generator
    )
    assert chi_squared(once.x, BINARY, p) > chi2.isf(FAMILY / 8, 15)


@torch.no_grad()
def test_a_block_sweep_has_the_transition_probabilities_of_its_conditionals(
    generator: torch.Generator,
) -> None:
    """From one state, over every h between."""
    model, at = rbm(0.7), 5
    W, b, c = (p.detach().numpy() for p in (model.W, model.b, model.c))
    states, on_h, expected = BINARY.numpy(), expit(c + BINARY[at].numpy() @ W), np.zeros(16)
    for h in np.array(list(product([0.0, 1.0], repeat=3))):
        on_x = expit(b + W @ h)
        expected += np.prod(np.where(h == 1, on_h, 1 - on_h)) * np.prod(
            np.where(states == 1, on_x, 1 - on_x), axis=1
        )
    x = block_sweep(model, BINARY[at].expand(CHAINS, -1), None, generator)
    assert chi_squared(x, BINARY, expected) < chi2.isf(FAMILY, 15)


@torch.no_grad()
def test_a_site_sweep_has_the_transition_probabilities_of_its_conditionals(
    generator: torch.Generator,
) -> None:
    """From one state, one coordinate after the other in an order that is any of the 24, all equally
    likely.
    """
    model, at, expected = rbm(1.0), 7, np.zeros(16)
    table = rbm_truth(model).reshape(2, 2, 2, 2)
    for order in permutations(range(4)):
        row = np.eye(16)[at].reshape(2, 2, 2, 2)
        for i in order:
            row = row.sum(i, keepdims=True) * table / table.sum(i, keepdims=True)
        expected += row.ravel() / 24
        fixed = row.ravel()
    # one order for each call
    x = torch.cat([site_sweep(model, BINARY[at : at + 1], generator) for _ in range(3000)])
    assert chi_squared(x, BINARY, expected) < chi2.isf(FAMILY, 15)
    assert np.abs(fixed - expected).sum() > 0.2  # always the same order would be far from it


@torch.no_grad()
def test_each_chain_may_have_its_own_temperature(generator: torch.Generator) -> None:
    model, betas = rbm(1.0), [0.0, 0.4, 1.0]
    truths = [rbm_truth(model, beta) for beta in betas]
    ladder = torch.stack([start("target", BINARY, p, generator) for p in truths])  # (T, C, D)
    for name, sweep in (("block", block_sweep), ("site", site_sweep)):
        rungs = model.annealed(torch.tensor(betas, dtype=torch.float64)[:, None])
        x = ladder
        for _ in range(2):
            x = sweep(rungs, x, None, generator)
        for t, p in enumerate(truths):
            assert chi_squared(x[t], BINARY, p) < chi2.isf(FAMILY / 6, 15), (name, betas[t])
    assert chi_squared(x[0], BINARY, truths[2]) > 500  # the three are far from one another


def test_gaussian_visible_units_keep_their_mixture(generator: torch.Generator) -> None:
    """x of a Gaussian machine is a mixture over h; its first coordinate's distribution function is
    known.
    """
    model = rbm(0.5, "gaussian")
    W, b, c, s = (
        p.detach().numpy() for p in (model.W, model.b, model.c, torch.exp(model.log_sigma))
    )  # type: ignore[arg-type]
    h = np.array(list(product([0.0, 1.0], repeat=3)))
    mean = b + s**2 * (h @ W.T)
    weight = np.exp(h @ c + (mean**2 / (2 * s**2)).sum(1))
    weight /= weight.sum()
    which = torch.multinomial(torch.tensor(weight), CHAINS, True, generator=generator)
    x = torch.tensor(mean)[which] + torch.tensor(s) * torch.randn(
        CHAINS, 4, generator=generator, dtype=torch.float64
    )
    far = torch.full((CHAINS, 4), 5.0, dtype=torch.float64)
    for begin, steps in ((x, 1), (far, 60)):
        state = Gibbs(steps).init(model, begin, generator=generator)
        state, _ = Gibbs(steps).step(model, state, generator=generator)
        for i in range(4):
            result = kstest(
                state.x[:, i].numpy(),
                lambda t, i=i: (
                    weight * norm.cdf((np.asarray(t)[..., None] - mean[:, i]) / s[i])
                ).sum(-1),
            )
            assert result.pvalue > FAMILY / 8


def test_the_same_generator_makes_the_same_chains() -> None:
    for model in (rbm(1.0), maxent(Categorical(3, 3))[0]):
        x = torch.zeros(50, model.support.width, dtype=torch.float64)
        first, again, other = (
            Gibbs(3).step(model, Gibbs().init(model, x, generator=g), generator=g)[0].x
            for g in (torch.Generator().manual_seed(seed) for seed in (1, 1, 2))
        )
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert (x == 0).all()  # the state handed in is a value, not a workplace


def test_a_known_field_saves_a_product_and_changes_nothing() -> None:
    model = rbm(1.0)
    x = BINARY.repeat(3, 1)
    plain, known = (
        block_sweep(model, x, field, torch.Generator().manual_seed(4))
        for field in (None, model.field(x))
    )
    assert torch.equal(plain, known)


def test_no_gradients_are_recorded(generator: torch.Generator) -> None:
    state, _ = Gibbs().step(
        rbm(1.0), Gibbs().init(rbm(1.0), BINARY, generator=generator), generator=generator
    )
    assert not state.x.requires_grad


def test_sweeps_must_be_positive() -> None:
    with pytest.raises(
        InputError, match=r"Gibbs: sweeps must be a whole number of at least 1; got 0\."
    ):
        Gibbs(0)


def test_it_refuses_what_has_no_conditionals(generator: torch.Generator) -> None:
    with pytest.raises(
        Unsupported,
        match=r"Gibbs cannot run on Linear: its coordinates cannot be drawn one after the other",
    ):
        Gibbs().init(torch.nn.Linear(2, 2), BINARY, generator=generator)  # type: ignore[arg-type]
