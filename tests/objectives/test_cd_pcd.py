"""Contrastive divergence against its own expectation, computed without noise from the transition
matrix of block Gibbs.
"""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from scipy.special import expit, logsumexp
from scipy.stats import norm
from torch import Tensor

import partita
from partita.core.protocols import Batch, Chains
from partita.core.support import Binary
from partita.datasets.toys import bars_and_stripes, bars_and_stripes_entropy
from partita.errors import InputError
from partita.models import RBM, MaxEnt
from partita.models.energy.rbm import centered_gradient
from partita.objectives import CD, PCD, ExactLikelihood
from partita.samplers import Gibbs, Tempering
from partita.samplers.tempering import LadderState
from partita.tables import as_rows

# false-alarm rate of each statistical test, at its fixed seed; divided among the coordinates of the
# gradient
FAMILY = 1e-4
D, H = 3, 2
XS, HS = (np.array(list(product([0.0, 1.0], repeat=n))) for n in (D, H))
DATA = np.array([0, 0, 7, 5, 5, 5, 1])  # numbers of states


def machine() -> RBM:
    """Two modes, 110 and 001, that block Gibbs seldom leaves."""
    model = RBM(D, H, generator=torch.Generator()).double()
    W = 3.0 * torch.tensor([[1.0, -1.0], [1.0, -0.8], [-0.9, 1.0]], dtype=torch.float64)
    with torch.no_grad():
        model.W.copy_(W)
        model.b.copy_(-0.5 * W.sum(1) + torch.tensor([0.2, -0.3, 0.1]))
        model.c.copy_(-0.5 * W.sum(0) + torch.tensor([-0.1, 0.3]))
        model.reference_natural.copy_(torch.tensor([[0.3, -0.2, 0.1]]))
    return model


def letters(model: RBM) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    W, b, c = (p.detach().numpy() for p in (model.W, model.b, model.c))
    return W, b, c


def slopes(model: RBM) -> np.ndarray:
    """Gradient of log phi at every state, (2^D, D H + D + H)."""
    W, _, c = letters(model)
    h = expit(c + XS @ W)
    return np.concatenate([(XS[:, :, None] * h[:, None, :]).reshape(len(XS), -1), XS, h], 1)


def transition(model: RBM) -> np.ndarray:
    """T[x, y]: the chance that block Gibbs goes from x to y, summed over the hidden states
    between.
    """
    W, b, c = letters(model)
    on_h, on_x = expit(c + XS @ W), expit(b + HS @ W.T)
    h_given_x = np.array([[np.prod(np.where(h == 1, p, 1 - p)) for h in HS] for p in on_h])
    x_given_h = np.array([[np.prod(np.where(x == 1, p, 1 - p)) for x in XS] for p in on_x])
    return h_given_x @ x_given_h


def target(model: RBM) -> np.ndarray:
    W, b, c = letters(model)
    log_phi = logsumexp((XS @ b)[:, None] + HS @ c + XS @ W @ HS.T, axis=1)
    return np.exp(log_phi - logsumexp(log_phi))


def empirical() -> np.ndarray:
    return np.bincount(DATA, minlength=len(XS)) / len(DATA)


def expected_gradient(model: RBM, k: float) -> np.ndarray:
    """Of the log-likelihood as CD-k sees it; exact for k infinite."""
    end = (
        target(model)
        if math.isinf(k)
        else empirical() @ np.linalg.matrix_power(transition(model), int(k))
    )
    return (empirical() - end) @ slopes(model)


def flat(model: RBM) -> np.ndarray:
    return np.concatenate([p.grad.numpy().ravel() for p in (model.W, model.b, model.c)])  # type: ignore[union-attr]


def test_the_written_out_kernel_keeps_the_written_out_target() -> None:
    T, p = transition(machine()), target(machine())
    np.testing.assert_allclose(T.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(p @ T, p, atol=1e-12)


def test_the_bias_of_cd_is_there_and_falls_with_k() -> None:
    model = machine()
    exact = expected_gradient(model, math.inf)
    bias = [np.linalg.norm(expected_gradient(model, k) - exact) for k in (1, 2, 5, 10, 25, 100)]
    assert bias[0] > 0.3 * np.linalg.norm(exact)  # not small
    assert all(later < 0.97 * earlier for earlier, later in pairwise(bias))
    assert bias[-1] < 0.02 * bias[0]


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_cd_has_the_expected_gradient(k: int, weighted: bool, generator: torch.Generator) -> None:
    """One batch that holds every row 4,000 times; its noise is known from the transition matrix."""
    model, copies = machine(), 4000
    once, weight = (DATA, None)
    if weighted:  # each state once, weighed by how often it occurs
        once, counts = np.unique(DATA, return_counts=True)
        weight = np.tile(counts / counts.mean(), copies)
    x = torch.tensor(np.tile(XS[once], (copies, 1)))
    objective = CD(Gibbs(), steps=k, centered=False)
    state = objective.init(model, as_rows(x), generator=generator)
    losses, _, _ = objective.losses(
        model,
        Batch(x, None if weight is None else torch.tensor(weight)),
        state,
        generator=generator,
    )
    losses["model"].backward()
    end = np.linalg.matrix_power(transition(model), k)[once]
    s = slopes(model)
    spread = end @ s**2 - (end @ s) ** 2  # variance of one row's negative phase, by where it began
    share = np.ones(len(once)) if weight is None else weight[: len(once)]
    error = np.sqrt((share[:, None] ** 2 * spread).sum(0) / len(once) ** 2 / copies)
    z = (-flat(model) - expected_gradient(model, k)) / error
    assert np.abs(z).max() < norm.isf(FAMILY / 4 / len(z) / 2)  # four tests of a vector, two-sided
    exact = np.abs(-flat(model) - expected_gradient(model, math.inf)) / error
    assert exact.max() > 20  # and it is far from the exact one: the test can tell


@pytest.mark.parametrize("tempered", [False, True])
def test_pcd_at_equilibrium_has_the_exact_gradient(
    tempered: bool, generator: torch.Generator
) -> None:
    model, chains = machine(), 30_000
    betas = (0.0, 0.5, 1.0)
    objective = PCD(
        Tempering(Gibbs(), betas=betas) if tempered else Gibbs(),
        chains=chains,
        steps=2,
        centered=False,
    )
    x = torch.tensor(XS[DATA])
    state = objective.init(model, as_rows(x), generator=generator)
    assert state.chains.x.shape == (chains, D)
    states = torch.tensor(XS)
    rungs = [torch.softmax(-model.annealed(beta).free_energy(states), 0).detach() for beta in betas]
    at_target = torch.stack(
        [states[torch.multinomial(p, chains, True, generator=generator)] for p in rungs]
    )
    begun = (
        LadderState(at_target, torch.zeros((), dtype=torch.long))
        if tempered
        else Chains(at_target[-1])
    )
    losses, after, _ = objective.losses(
        model, Batch(x), state._replace(chains=begun), generator=generator
    )
    losses["model"].backward()
    s, p = slopes(model), target(model)
    error = np.sqrt((p @ s**2 - (p @ s) ** 2) / chains)
    z = (-flat(model) - expected_gradient(model, math.inf)) / error
    assert np.abs(z).max() < norm.isf(FAMILY / 2 / len(z) / 2)
    # the chains moved, and the next update goes on from there
    assert not torch.equal(after.chains.x, begun.x)


def test_pcd_goes_on_from_the_chains_it_left(generator: torch.Generator) -> None:
    """Where a chain cannot leave its state, persistent chains stay for ever."""
    model = machine()
    objective, x = PCD(chains=10), torch.tensor(XS[DATA])
    state = objective.init(model, as_rows(x), generator=generator)
    with torch.no_grad():
        model.W.zero_()
        model.b.fill_(50.0)
    for _ in range(3):
        _, state, info = objective.losses(model, Batch(x), state, generator=generator)
    assert (state.chains.x == 1).all()
    assert set(info) == {"energy_gap"}


@pytest.mark.parametrize(
    "objective", [CD(centered=True), PCD(chains=8, centered=True), CD(), PCD(chains=8)], ids=str
)
def test_centering_acts_after_the_backward_pass_and_is_the_default(
    objective: CD | PCD, generator: torch.Generator
) -> None:
    model, x = machine(), torch.tensor(XS[DATA])
    state = objective.init(model, as_rows(x), generator=generator)
    losses, state, _ = objective.losses(model, Batch(x), state, generator=generator)
    losses["model"].backward()
    W, _, c = letters(model)
    plain = [p.grad.clone() for p in (model.W, model.b, model.c)]  # type: ignore[union-attr]
    mu = XS[DATA].mean(0)
    lam = expit(c + mu @ W)
    objective.precondition(model, state)
    want = centered_gradient(*plain, torch.tensor(mu), torch.tensor(lam))
    for p, expected in zip((model.W, model.b, model.c), want, strict=True):
        torch.testing.assert_close(p.grad, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("objective", [CD(centered=False), PCD(chains=8, centered=False)], ids=str)
def test_without_centering_gradients_stay(objective: CD | PCD, generator: torch.Generator) -> None:
    model, x = machine(), torch.tensor(XS[DATA])
    state = objective.init(model, as_rows(x), generator=generator)
    losses, state, _ = objective.losses(model, Batch(x), state, generator=generator)
    losses["model"].backward()
    before = flat(model).copy()
    objective.precondition(model, state)
    np.testing.assert_array_equal(flat(model), before)


def test_centered_and_plain_gradients_vanish_together() -> None:
    """Both are zero at the optimum; elsewhere the centered one climbs wherever the plain one
    does.
    """
    model, states = machine(), torch.tensor(XS)
    for p, optimal in ((target(model), True), (empirical(), False)):
        model.zero_grad()
        loss = (torch.tensor(p) * model(states)).sum() + torch.logsumexp(-model(states), 0)
        loss.backward()
        plain = flat(model).copy()
        model.center(torch.tensor(p @ XS))
        if optimal:
            np.testing.assert_allclose(np.concatenate([plain, flat(model)]), 0, atol=1e-13)
        else:
            assert plain @ flat(model) > 0.01


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CD(steps=0), r"CD: steps must be a whole number of at least 1; got 0\."),
        (lambda: PCD(chains=0), r"PCD: chains must be a whole number of at least 1; got 0\."),
        (lambda: PCD(steps=0), r"PCD: steps must be a whole number of at least 1; got 0\."),
    ],
)
def test_bad_settings(make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


# fits


def exact_log_likelihood(model: RBM, x: Tensor) -> float:
    """By summing over all visible states, here and not in the library."""
    W, b, c = letters(model.double())
    every = np.array(list(product([0.0, 1.0], repeat=x.shape[1])))

    def log_phi(v: np.ndarray) -> np.ndarray:
        return v @ b + np.logaddexp(0, c + v @ W).sum(1)

    return log_phi(x.double().numpy()).mean() - logsumexp(log_phi(every))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "learning_rate", "steps"),
    [
        (PCD(Gibbs(), chains=200, steps=5), 0.6, 2000),
        (PCD(Tempering(Gibbs(), betas=(0.0, 0.4, 0.7, 1.0)), chains=64), 0.8, 1500),
    ],
    ids=["PCD-5", "tempered PCD"],
)
def test_bars_and_stripes_are_learned_to_a_twentieth_of_a_nat(
    objective: PCD, learning_rate: float, steps: int
) -> None:
    """The best log-likelihood is the negative entropy, at infinite weights; at seeds 0 to 2 both
    ended 0.025 to 0.041 nats below it.
    """
    x, g = bars_and_stripes(3), torch.Generator().manual_seed(0)
    model = RBM(9, 16, scale=0.1, generator=g)
    partita.fit(
        model,
        x,
        objective,
        learning_rate=learning_rate,
        steps=steps,
        batch_size=0,
        average=0.2,
        generator=g,
    )
    gap = -bars_and_stripes_entropy(3) - exact_log_likelihood(model, x)
    assert 0 < gap < 0.05


def spins_features(x: Tensor) -> Tensor:
    return torch.stack([x[..., 0], x[..., 1] * x[..., 2], x.prod(-1), x.sum(-1)], -1)


@pytest.mark.parametrize(
    "features",
    ["independent", "pairwise", spins_features],
    ids=["independent", "pairwise", "functions"],
)
def test_moments_match_at_the_optimum(features, generator: torch.Generator) -> None:
    """On data where every state occurs, so that the optimum is finite."""
    every = np.array(list(product([0.0, 1.0], repeat=4)))
    x = torch.tensor(np.concatenate([every, every[[3, 3, 7, 7, 7, 12, 15, 15, 1, 0]]]))
    model = MaxEnt(features, Binary(4), generator=generator).double()
    run = partita.fit(model, x, ExactLikelihood(), generator=generator)
    assert run.stopped == "converged"
    with torch.no_grad():
        states = torch.tensor(every)
        phi = model.features(states)
        weight = torch.exp(phi @ model.theta)
        expected = (weight[:, None] * phi).sum(0) / weight.sum()
        torch.testing.assert_close(model.features(x).mean(0), expected, atol=1e-6, rtol=0)
