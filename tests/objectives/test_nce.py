"""Noise-contrastive estimation: its loss, its fixed point, its start, and what it refuses."""

import json
import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    HalfNormal,
    Independent,
    MultivariateNormal,
    Normal,
    StudentT,
    Uniform,
)

import partita
from partita.core import registry, rng
from partita.core.protocols import Batch, Capability, DirectedModel
from partita.core.support import Binary, Real
from partita.errors import InputError, RunError
from partita.models import RBM, MaxEnt
from partita.objectives import NCE
from partita.objectives.nce import LogNormalizer, Normalizer, free_likelihood, importance_log_z
from partita.tables import as_rows

STATES = torch.tensor(list(product([0.0, 1.0], repeat=4)), dtype=torch.float64)


def machine(seed: int = 3, scale: float = 1.0) -> RBM:
    g = torch.Generator().manual_seed(seed)
    model = RBM(4, 3, generator=g).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def log_z(model: Any) -> float:
    with torch.no_grad():
        return float(torch.logsumexp(-model(STATES), 0))


def exact_draws(model: RBM, n: int, seed: int = 5) -> Tensor:
    with torch.no_grad():
        return STATES[rng.categorical(-model(STATES), torch.Generator().manual_seed(seed), n)]


class Everything:
    """Noise whose draws are all states once, so that its average is the expectation itself."""

    def log_prob(self, x: Tensor) -> Tensor:
        return torch.full(x.shape[:-1], -math.log(len(STATES)), dtype=x.dtype)

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        return STATES.repeat(-(-n // len(STATES)), 1)[:n]


class Coins(DirectedModel):
    """A model of ours with exact log-probabilities and draws."""

    capabilities = frozenset({Capability.LOG_PROB})

    def __init__(self, p: Tensor) -> None:
        super().__init__()
        self.support = Binary(len(p))
        self.coins = Bernoulli(p)

    def log_prob(self, x: Tensor) -> Tensor:
        return self.coins.log_prob(x).sum(-1)

    def draw(self, n: int, *, generator: torch.Generator) -> Tensor:
        return rng.draw(self.coins, generator, (n,))

    def settings(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_the_loss_is_the_logistic_regression_written_out(ratio: float) -> None:
    """Data and noise labeled, the log-odds of the label by Bayes, its negative log-likelihood per
    row of data.
    """
    model, c, p = machine(), 1.3, torch.tensor([0.2, 0.6, 0.5, 0.7], dtype=torch.float64)
    x = exact_draws(model, 8)
    weight = torch.linspace(0.1, 1.9, 8, dtype=torch.float64)
    state = Normalizer(LogNormalizer(torch.tensor(c, dtype=torch.float64)))
    losses, after, info = NCE(Bernoulli(p), ratio).losses(
        model, Batch(x, weight), state, generator=torch.Generator().manual_seed(1)
    )
    y = rng.draw(Bernoulli(p), torch.Generator().manual_seed(1), (round(8 * ratio),)).numpy()

    def h(u: np.ndarray) -> np.ndarray:
        p_model = np.exp(-model(torch.tensor(u)).detach().numpy() - c)
        p_noise = np.prod(np.where(u == 1, p, 1 - p), axis=1)
        return p_model / (p_model + ratio * p_noise)

    want = -(weight.numpy() * np.log(h(x.numpy()))).sum() / 8 - np.log(1 - h(y)).sum() / 8
    assert losses["model"].item() == pytest.approx(want, abs=1e-12)
    assert after is state
    assert info["log_normalizer"].item() == pytest.approx(c)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_the_truth_is_a_stationary_point_with_c_at_log_z(ratio: float) -> None:
    """Expectations over data and noise by enumeration: no gradient at the truth, some at any other
    c.
    """
    model = machine()
    p = torch.softmax(-model(STATES).detach(), 0)
    for c, still in ((log_z(model), True), (0.0, False), (log_z(model) - 0.1, False)):
        model.zero_grad()
        state = Normalizer(LogNormalizer(torch.tensor(c, dtype=torch.float64)))
        batch = Batch(STATES, len(STATES) * p)
        NCE(Everything(), ratio).losses(model, batch, state, generator=torch.Generator())[0][
            "model"
        ].backward()
        slopes = [
            p.grad.abs().max().item()
            for p in (*model.parameters(), state.module.c)
            if p.grad is not None
        ]
        assert (max(slopes) < 1e-14) is still


@pytest.mark.parametrize(
    "noise",
    [None, Bernoulli(torch.full((4,), 0.5)), Coins(torch.full((4,), 0.3))],
    ids=["reference", "torch", "ours"],
)
def test_it_starts_at_an_importance_estimate_of_log_z(
    noise: Any, generator: torch.Generator
) -> None:
    """|z| < 4 with the weights' own variance by enumeration: false alarm 6e-5 each, at this
    seed.
    """
    model = machine(scale=0.5)
    x = exact_draws(model, 300)
    model.reference_natural.copy_(torch.logit(x.mean(0))[None])
    state = NCE(noise).init(model, as_rows(x), generator=generator)
    if noise is None:
        log_noise = -model.reference().free_energy(STATES) - model.reference().log_z
    else:
        log_noise = noise.log_prob(STATES)
        log_noise = log_noise.sum(-1) if log_noise.dim() == 2 else log_noise
    ratio = torch.exp(-model(STATES) - log_noise - log_z(model)).detach()  # weights with mean one
    error = math.sqrt(float((torch.exp(log_noise) * (ratio - 1) ** 2).sum()) / 8192)
    assert abs(state.module.c.item() - log_z(model)) < 4 * error
    assert error < 0.05


def test_from_zero_the_first_steps_lower_the_likelihood_and_from_the_estimate_they_raise_it() -> (
    None
):
    """Gradient descent on the expected contrast, without any noise in it."""
    data, model = machine(seed=9), machine(seed=4, scale=0.3)
    p = torch.softmax(-data(STATES).detach(), 0)
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def likelihood_after(c: float, steps: int = 20) -> float:
        model.load_state_dict(start)
        state = Normalizer(LogNormalizer(torch.tensor(c, dtype=torch.float64)))
        optimizer = torch.optim.SGD([*model.parameters(), *state.module.parameters()], lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            NCE(Everything(), 5).losses(
                model, Batch(STATES, len(STATES) * p), state, generator=torch.Generator()
            )[0]["model"].backward()
            optimizer.step()
        return float(-(p * model(STATES).detach()).sum()) - log_z(model)

    before = likelihood_after(0.0, 0)
    estimate = float(
        importance_log_z(model, None, 8192, generator=torch.Generator().manual_seed(0))
    )
    assert abs(estimate - log_z(model)) < 0.1
    assert likelihood_after(0.0) < before - 0.1
    assert likelihood_after(estimate) > before + 0.02


def test_plain_likelihood_with_a_free_normalizer_has_no_minimum() -> None:
    """Its slope in c is one everywhere, so descent lowers c and the loss without end, far past what
    any distribution can reach.
    """
    model = machine()
    x = exact_draws(model, 200)
    c = torch.tensor(log_z(model), dtype=torch.float64, requires_grad=True)
    values = []
    for _ in range(50):
        loss = free_likelihood(model, x, c)
        values.append(loss.item())
        (slope,) = torch.autograd.grad(loss, c)
        assert slope.item() == 1.0
        with torch.no_grad():
            c -= 1.0
    assert c.item() == pytest.approx(log_z(model) - 50)
    # a "log-likelihood" of more than 10 nats for a discrete table
    assert values[-1] < -10 < 0 < values[0]
    assert all(later < earlier for earlier, later in pairwise(values))


def test_a_fit_learns_log_z(generator: torch.Generator) -> None:
    """From random parameters: at the end c is log Z of the learned model to 0.05, and the
    likelihood is near the data's own.
    """
    data = machine(seed=9)
    x = exact_draws(data, 4000).float()
    model = MaxEnt("pairwise", Binary(4), generator=generator)
    run = partita.fit(model, x, NCE(ratio=10), epochs=20, learning_rate=0.03, generator=generator)
    c = run.series("log_normalizer")[-1][1]
    model.double()
    assert c == pytest.approx(log_z(model), abs=0.05)
    best = MaxEnt("pairwise", Binary(4), generator=generator)
    partita.fit(best, x, partita.objectives.ExactLikelihood(), generator=generator)
    reached, possible = (partita.evaluate(m, x, generator=generator).value for m in (model, best))
    assert reached > possible - 0.005


# refusals


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (
            Uniform(0.0, 1.0),
            r"NCE: noise must have a support that covers the data; got Uniform, whose "
            r"log-probability is -inf at row \d+",
        ),
        (
            HalfNormal(1.0),
            r"NCE: noise must have a support that covers the data; got HalfNormal, .* Choose wider "
            r"noise, or leave it out\.",
        ),
        (
            Uniform(torch.full((3,), -9.0), 9.0, validate_args=False),
            r"covers the data; got Uniform, whose .* at row 7\.",
        ),
        (
            Bernoulli(torch.full((3,), 0.5)),
            r"NCE: noise must have densities, as RBM\(3, 2\) has; got Bernoulli, which has "
            r"masses\.",
        ),
        (
            MultivariateNormal(torch.zeros(2), torch.eye(2)),
            r"of rows of 3 columns; got batch shape \(\) and event .*\(2,\)\.",
        ),
        (
            Normal(torch.zeros(5), 1.0),
            r"be a distribution of rows of 3 columns; got batch shape \(5,\) and event shape "
            r"\(\)\.",
        ),
        (machine(), r"NCE: noise must have log_prob and exact draws, .*; got RBM\(4, 3\)\."),
        (
            Coins(torch.full((3,), 0.5)),
            r"NCE: noise must have densities, as RBM\(3, 2\) has; got Coins, which has masses\.",
        ),
        (0.5, r"NCE: noise must have log_prob and exact draws, .*; got float\."),
    ],
)
def test_noise_that_cannot_serve_real_rows(
    noise: Any, words: str, generator: torch.Generator
) -> None:
    x = torch.randn(20, 3, generator=generator)
    x[7, 1] = 30.0
    with pytest.raises(InputError, match=words):
        partita.fit(
            RBM(3, 2, visible_units="gaussian", generator=generator),
            x,
            NCE(noise),
            steps=1,
            generator=generator,
        )


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (
            Normal(0.0, 1.0),
            r"NCE: noise must have masses, as RBM\(3, 2\) has; got Normal, which has densities\.",
        ),
        (
            Bernoulli(logits=torch.tensor([0.0, torch.inf, 0.0])),
            r"covers the data; got Bernoulli, whose .* is (-inf|nan) at row \d",
        ),
        (
            Categorical(torch.ones(3)),
            r"NCE: draws of noise must hold only 0 and 1; got 2 in column \d\. .* The noise was "
            r"Categorical\.",
        ),
        (
            Coins(torch.full((4,), 0.5)),
            r"NCE: draws of noise must have shape \(\*, 3\) to match RBM\(3, 2\); got \(64, 4\)\.",
        ),
    ],
)
def test_noise_that_cannot_serve_binary_rows(
    noise: Any, words: str, generator: torch.Generator
) -> None:
    x = (torch.rand(20, 3, generator=generator) < 0.5).float()
    with pytest.raises(InputError, match=words):
        partita.fit(RBM(3, 2, generator=generator), x, NCE(noise), steps=1, generator=generator)


def test_the_ratio_is_checked() -> None:
    with pytest.raises(InputError, match=r"NCE: ratio must be a finite number above 0; got 0\."):
        NCE(ratio=0)


NORMAL = MultivariateNormal(torch.zeros(2), 4 * torch.eye(2))


@pytest.mark.parametrize(
    "noise", [None, Normal(0.0, 2.0), Normal(torch.zeros(2), 2.0), StudentT(3.0), NORMAL], ids=str
)
def test_noise_that_serves(noise: Any, generator: torch.Generator) -> None:
    model = RBM(2, 3, visible_units="gaussian", generator=generator)
    partita.fit(
        model, torch.randn(50, 2, generator=generator), NCE(noise, 2), steps=3, generator=generator
    )
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert model.support == Real(2)


def test_noise_of_the_caller_is_described_and_never_built() -> None:
    description = json.loads(
        json.dumps(registry.describe_part(NCE(Independent(Normal(torch.zeros(2), 2.0), 1), 3)))
    )
    assert description["noise"]["not saved"].startswith("Independent(Normal(")
    with pytest.raises(
        RunError,
        match=r"load: Independent\(Normal.* is an object of the caller's, .* resume=True\)\.",
    ):
        registry.build_part(description)


def test_noise_that_is_a_plain_law_comes_back() -> None:
    again = registry.build_part(
        json.loads(json.dumps(registry.describe_part(NCE(Normal(0.0, 2.0), 3))))
    )
    assert (again.noise.loc, again.noise.scale, again.ratio) == (0.0, 2.0, 3)
    assert registry.build_part(json.loads(json.dumps(registry.describe_part(NCE(ratio=3))))) == NCE(
        ratio=3
    )


def test_the_contrast_of_sure_data_stays_finite() -> None:
    """Log-odds of several hundred nats: the logistic loss is linear there, not infinite."""
    model = machine()
    state = Normalizer(LogNormalizer(torch.tensor(900.0, dtype=torch.float64)))
    loss = NCE(Everything(), 1).losses(model, Batch(STATES), state, generator=torch.Generator())[0][
        "model"
    ]
    want = 900 + float((model(STATES).detach() - math.log(len(STATES))).mean())
    assert loss.item() == pytest.approx(want)
    assert expit(-900) == 0.0
