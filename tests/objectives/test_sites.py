"""Pseudo-likelihood and ratio matching against sums written out state by state."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import partita
from partita.core.protocols import Batch, EnergyModel
from partita.core.support import Binary, Categorical, Spin
from partita.errors import Unsupported
from partita.models import RBM, MaxEnt
from partita.models.energy import flips
from partita.objectives import PseudoLikelihood, RatioMatching
from partita.objectives.sites import pseudo_log_likelihood, ratio_loss
from partita.tables import as_rows

Make = Callable[[torch.Generator], EnergyModel]


def cubic(x: Tensor) -> Tensor:
    return torch.stack(
        [x[..., 0] * x[..., 1] * x[..., 2], x.sum(-1), x[..., 0] * x[..., 2] ** 2], -1
    )


def joint(x: Tensor, h: Tensor) -> Tensor:
    return torch.stack(
        [x[..., 0] * h[..., 0], x[..., 1] * x[..., 2] * h[..., 1], x[..., 2] - h[..., 0]], -1
    )


MODELS: dict[str, Make] = {
    "rbm": lambda g: RBM(3, 4, generator=g),
    "pairwise": lambda g: MaxEnt("pairwise", Binary(3), generator=g),
    "pairwise spins": lambda g: MaxEnt("pairwise", Spin(3), generator=g),
    "pairwise levels": lambda g: MaxEnt("pairwise", Categorical(3, 3), generator=g),
    "k-pairwise": lambda g: MaxEnt("k-pairwise", Binary(3), generator=g),
    "independent": lambda g: MaxEnt("independent", Categorical(3, 4), generator=g),
    "functions": lambda g: MaxEnt(cubic, Categorical(3, 3), generator=g),
    "hidden variables": lambda g: MaxEnt(joint, Spin(3), hidden=Binary(2), generator=g),
}
EVERY = pytest.mark.parametrize("name", list(MODELS))


def made(name: str) -> EnergyModel:
    g = torch.Generator().manual_seed(11)
    model = MODELS[name](g).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.7 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def probabilities(
    model: EnergyModel,
) -> tuple[list[tuple[float, ...]], dict[tuple[float, ...], float]]:
    """All states, and exp(-F) of each."""
    states = list(product(model.support.values().tolist(), repeat=3))
    with torch.no_grad():
        phi = torch.exp(-model(torch.tensor(states, dtype=torch.float64))).tolist()
    return states, dict(zip(states, phi, strict=True))


def conditionals(model: EnergyModel, x: tuple[float, ...]) -> np.ndarray:
    """p(x_i = v | the others), site by site and value by value, from the table of all states."""
    _, phi = probabilities(model)
    values = model.support.values().tolist()
    trial = np.array([[phi[(*x[:i], v, *x[i + 1 :])] for v in values] for i in range(3)])
    return trial / trial.sum(1, keepdims=True)


@EVERY
def test_conditionals_of_all_sites(name: str) -> None:
    """The fast way where there is one, the general way everywhere, and the table of all states
    agree.
    """
    model = made(name)
    states, _ = probabilities(model)
    x = torch.tensor(states, dtype=torch.float64)
    want = torch.tensor(np.array([conditionals(model, state) for state in states]))
    for logits in (model.conditional_logits(x), EnergyModel.conditional_logits(model, x)):
        torch.testing.assert_close(torch.softmax(logits, -1).detach(), want, atol=1e-12, rtol=0)


@EVERY
def test_losses_are_the_sums_written_out(name: str) -> None:
    model = made(name)
    states, phi = probabilities(model)
    values = model.support.values().tolist()
    x = torch.tensor(states, dtype=torch.float64)
    pseudo, ratio = [], []
    for state in states:
        p = conditionals(model, state)
        pseudo.append(sum(math.log(p[i, values.index(state[i])]) for i in range(3)))
        ratio.append(
            0.5
            * sum(
                (p[i, k] - (values[k] == state[i])) ** 2
                for i in range(3)
                for k in range(len(values))
            )
        )
    np.testing.assert_allclose(pseudo_log_likelihood(model, x).detach(), pseudo, atol=1e-12)
    np.testing.assert_allclose(ratio_loss(model, x).detach(), ratio, atol=1e-12)
    if len(values) == 2:  # Hyvärinen's own form, from ratios of whole states
        flip = {a: b for a, b in zip(values, values[::-1], strict=True)}
        own = [
            sum((1 / (1 + phi[s] / phi[(*s[:i], flip[s[i]], *s[i + 1 :])])) ** 2 for i in range(3))
            for s in states
        ]
        np.testing.assert_allclose(ratio, own, atol=1e-12)


@pytest.mark.parametrize("cells", [1, 40, 10**6])
def test_sites_in_blocks_give_the_same_sums_and_gradients(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(5, 7, generator=g).round().double()
    W = torch.randn(7, 4, generator=g).double()
    c = torch.randn(4, generator=g).double()
    W.requires_grad_()
    monkeypatch.setattr(flips, "CELLS", cells)
    total = flips.flip_sums(x, W, c)
    on, off = (
        torch.stack(
            [
                torch.nn.functional.softplus(c + x.index_fill(1, torch.tensor([i]), v) @ W).sum(-1)
                for i in range(7)
            ],
            1,
        )
        for v in (1.0, 0.0)
    )
    torch.testing.assert_close(total, on - off, atol=1e-12, rtol=0)
    for got, want in zip(
        torch.autograd.grad(total.square().sum(), W),
        torch.autograd.grad((on - off).square().sum(), W),
        strict=True,
    ):
        torch.testing.assert_close(got, want, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("objective", [PseudoLikelihood(), RatioMatching()], ids=str)
def test_weights_count_rows(objective: Any, generator: torch.Generator) -> None:
    model = made("rbm")
    x = torch.tensor(probabilities(model)[0], dtype=torch.float64)
    counts = torch.tensor([3, 0, 1, 2, 0, 1, 4, 5])
    state = objective.init(model, as_rows(x), generator=generator)
    repeated = objective.losses(
        model, Batch(x.repeat_interleave(counts, 0)), state, generator=generator
    )[0]["model"]
    weighted = objective.losses(
        model, Batch(x, counts / counts.double().mean()), state, generator=generator
    )[0]["model"]
    assert weighted.item() == pytest.approx(repeated.item(), abs=1e-12)


@pytest.mark.parametrize("objective", [PseudoLikelihood(), RatioMatching()], ids=str)
def test_real_models_are_refused_with_the_nearest_that_works(
    objective: Any, generator: torch.Generator
) -> None:
    model, name = RBM(2, 3, visible_units="gaussian", generator=generator), type(objective).__name__
    words = (
        rf"{name} cannot run on RBM\(2, 3\): its coordinates do not have finitely many "
        r"values .*\. Use ScoreMatching instead\."
    )
    with pytest.raises(Unsupported, match=words):
        partita.fit(
            model, torch.randn(9, 2, generator=generator), objective, steps=1, generator=generator
        )


@pytest.mark.parametrize("objective", [PseudoLikelihood(), RatioMatching()], ids=str)
def test_a_deterministic_loss_may_be_minimized_by_lbfgs(
    objective: Any, generator: torch.Generator
) -> None:
    x = (torch.rand(300, 4, generator=generator) < torch.tensor([0.2, 0.5, 0.6, 0.4])).double()
    model = MaxEnt("independent", Binary(4), generator=generator).double()
    run = partita.fit(model, x, objective, optimizer="lbfgs", epochs=30, generator=generator)
    assert run.stopped in ("converged", "stalled")
    np.testing.assert_allclose(torch.sigmoid(model.theta.detach()), x.mean(0), atol=1e-6)
