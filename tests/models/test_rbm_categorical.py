"""The RBM with categorical visible units against sums over both layers, in float64."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import chi2

from partita.core.enumeration import log_partition
from partita.errors import InputError
from partita.models import RBM
from partita.objectives import negative_phase, positive_phase
from partita.samplers import Gibbs
from partita.tables import as_rows

FAMILY = 1e-4  # false-alarm rate of the chi-squared tests together, at their fixed seeds
X = np.array(list(product(range(3), repeat=3)))
H = np.array(list(product([0.0, 1.0], repeat=2)))


def make(scale: float = 0.8) -> RBM:
    g = torch.Generator().manual_seed(3)
    model = RBM(3, 2, visible_units="categorical", states=3, generator=g).double()
    with torch.no_grad():
        for p in [*model.parameters(), model.reference_natural]:
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def joint(model: RBM, beta: float = 1.0) -> np.ndarray:
    """-E(x, h) of all states, unit by unit, (27, 4)."""
    W, b, c, start = (
        t.detach().numpy() for t in (model.W, model.b, model.c, model.reference_natural[0])
    )
    table = np.empty((27, 4))
    for (s, x), (r, h) in product(enumerate(X), enumerate(H)):
        rows = [3 * i + v for i, v in enumerate(x)]  # one row of W for every state of every unit
        table[s, r] = sum(beta * (b[q] + W[q] @ h) + (1 - beta) * start[q] for q in rows) + beta * (
            c @ h
        )
    return table


@torch.no_grad()
@pytest.mark.parametrize("beta", [None, 0.0, 0.4, 1.0])
def test_energies_conditionals_and_both_sides_of_log_z(beta: float | None) -> None:
    model = make()
    table = joint(model, 1.0 if beta is None else beta)
    at = model if beta is None else model.annealed(beta)
    x, h = torch.tensor(X).double(), torch.tensor(H)
    np.testing.assert_allclose(at.free_energy(x), -np.log(np.exp(table).sum(1)), atol=1e-12)
    p = np.exp(table - logsumexp(table))
    np.testing.assert_allclose(
        at.hidden_given_visible(x).probs, p @ H / p.sum(1, keepdims=True), atol=1e-12
    )  # type: ignore[operator]
    hits = (X[:, :, None] == np.arange(3)).astype(float)
    expected = np.einsum("sr,siv->riv", p, hits) / p.sum(0)[:, None, None]
    np.testing.assert_allclose(at.visible_given_hidden(h).probs, expected, atol=1e-12)  # type: ignore[operator]
    for side in at.sides():
        assert float(log_partition(side, model.W)) == pytest.approx(logsumexp(table), abs=1e-12)
    if beta is None:
        np.testing.assert_allclose(
            model.energy(x[:, None].expand(-1, 4, -1), h.expand(27, -1, -1)), -table, atol=1e-12
        )
    if beta == 0.0:
        assert float(model.reference().log_z) == pytest.approx(logsumexp(table), abs=1e-12)


def test_the_phases_agree_with_autograd_of_the_log_likelihood() -> None:
    model, x = make(), torch.tensor(X[[0, 5, 5, 20]]).double()
    mean = -model(x).mean() - log_partition(model.sides()[0], model.W.detach())
    gradients = torch.autograd.grad(mean, list(model.parameters()))
    positive, negative = positive_phase(model, x), negative_phase(model, exact=True)
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(positive[name] - negative[name], gradient, atol=1e-12, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("begin", ["target", "least likely"])
def test_block_gibbs_keeps_and_reaches_the_target(begin: str, generator: torch.Generator) -> None:
    model, n = make(), 6000
    p = np.exp(joint(model)).sum(1) / np.exp(joint(model)).sum()
    states = torch.tensor(X).double()
    at = (
        torch.multinomial(torch.tensor(p), n, True, generator=generator)
        if begin == "target"
        else torch.full((n,), int(p.argmin()))
    )
    sampler = Gibbs(1 if begin == "target" else 40)
    state, _ = sampler.step(
        model, sampler.init(model, states[at], generator=generator), generator=generator
    )
    observed = (state.x[:, None] == states).all(-1).sum(0).numpy()
    assert observed.sum() == n
    assert ((observed - n * p) ** 2 / (n * p)).sum() < chi2.isf(FAMILY / 2, 26)
    assert state.x.dtype == torch.float64


def test_initialize_and_center() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(3, (200, 4), generator=g).double()
    model = RBM(4, 2, visible_units="categorical", states=3, generator=g).double()
    model.initialize(as_rows(x), generator=g)
    rates = torch.stack([(x == v).double().sum(0) + 0.5 for v in range(3)], -1) / 201.5
    torch.testing.assert_close(model.reference_natural[0].exp().view(4, 3), rates)
    torch.testing.assert_close(model.b.detach().exp().view(4, 3), rates)
    model(x).mean().backward()
    assert model.W.grad is not None and model.W.grad.shape == (12, 2)
    model.center(x.mean(0))
    assert torch.isfinite(model.W.grad).all()


def test_settings_and_bad_input() -> None:
    g = torch.Generator()
    model = RBM(3, 2, visible_units="categorical", states=5, generator=g)
    assert model.settings() == {
        "visible": 3,
        "hidden": 2,
        "visible_units": "categorical",
        "states": 5,
    }
    assert model.visible == 3 and RBM.from_settings(model.settings(), generator=g).W.shape == (
        15,
        2,
    )
    with pytest.raises(
        InputError,
        match=r"RBM: states must be given for categorical visible units.*; got None for "
        r"categorical ones",
    ):
        RBM(3, 2, visible_units="categorical", generator=g)
    with pytest.raises(
        InputError, match=r"RBM: states must be given for categorical.*; got 3 for bernoulli ones"
    ):
        RBM(3, 2, states=3, generator=g)
    with pytest.raises(
        InputError, match=r"x must hold whole numbers from 0 to 4; got 5 in column 2"
    ):
        model.support.check(torch.tensor([[0.0, 1.0, 5.0]]), "test")
