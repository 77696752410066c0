"""The likelihood gradient three ways: autograd of the enumerated log-likelihood, two phases, and
the closed form.
"""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import Tensor

from partita.core.protocols import Batch
from partita.core.support import Binary, Spin
from partita.errors import InputError, Unsupported
from partita.models import RBM, MaxEnt
from partita.objectives import ExactLikelihood, negative_phase, positive_phase
from partita.tables import as_rows

TOLERANCE = 1e-10


def binary(n: int) -> Tensor:
    return torch.tensor(list(product([0.0, 1.0], repeat=n)), dtype=torch.float64)


def randomize(model: torch.nn.Module, scale: float = 0.9, seed: int = 8) -> None:
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=torch.float64))


def joint_features(x: Tensor, h: Tensor) -> Tensor:
    return torch.cat(
        [x * h[..., :1], x[..., :1] * h, h.sum(-1, keepdim=True) * x.sum(-1, keepdim=True)], -1
    )


def pair_features(x: Tensor) -> Tensor:
    return torch.stack([x[..., 0] * x[..., 1], x[..., 1] * x[..., 2], x.sum(-1)], -1)


# Each case: a model, and its log phi(x) of rows written out from its parameters, with the list of
# all x (or the log Z itself).


def bernoulli_rbm(
    visible: int, hidden: int
) -> tuple[RBM, Callable[[Tensor], Tensor], Callable[[], Tensor]]:
    model = RBM(visible, hidden, generator=torch.Generator()).double()
    randomize(model)
    h = binary(hidden)

    def log_phi(x: Tensor) -> Tensor:
        pairs = (x @ model.b)[:, None] + h @ model.c + x @ model.W @ h.T
        return torch.log(torch.exp(pairs).sum(1))

    return model, log_phi, lambda: torch.log(torch.exp(log_phi(binary(visible))).sum())


def gaussian_rbm(
    visible: int, hidden: int
) -> tuple[RBM, Callable[[Tensor], Tensor], Callable[[], Tensor]]:
    model = RBM(visible, hidden, visible_units="gaussian", generator=torch.Generator()).double()
    randomize(model, 0.5)
    h = binary(hidden)

    def log_phi(x: Tensor) -> Tensor:
        s2 = torch.exp(2 * model.log_sigma)  # type: ignore[operator]
        own = (x * model.b / s2 - x**2 / (2 * s2)).sum(1)
        return own + torch.log(torch.exp(h @ model.c + x @ model.W @ h.T).sum(1))

    def log_z() -> Tensor:
        """For each h the integral over x is that of a normal density that lacks its constant."""
        s2 = torch.exp(2 * model.log_sigma)  # type: ignore[operator]
        mean = model.b + s2 * (h @ model.W.T)
        return torch.log(
            torch.exp(
                h @ model.c + (mean**2 / (2 * s2) + 0.5 * torch.log(2 * math.pi * s2)).sum(1)
            ).sum()
        )

    return model, log_phi, log_z


def maxent() -> tuple[MaxEnt, Callable[[Tensor], Tensor], Callable[[], Tensor]]:
    model = MaxEnt(pair_features, Spin(3), generator=torch.Generator()).double()
    randomize(model)
    spins = 2 * binary(3) - 1

    def log_phi(x: Tensor) -> Tensor:
        return (
            x[:, 0] * x[:, 1] * model.theta[0]
            + x[:, 1] * x[:, 2] * model.theta[1]
            + x.sum(1) * model.theta[2]
        )

    return model, log_phi, lambda: torch.log(torch.exp(log_phi(spins)).sum())


def hidden_maxent() -> tuple[MaxEnt, Callable[[Tensor], Tensor], Callable[[], Tensor]]:
    model = MaxEnt(
        joint_features, Binary(3), hidden=Binary(2), generator=torch.Generator()
    ).double()
    randomize(model)

    def log_phi(x: Tensor) -> Tensor:
        total = torch.zeros(len(x), dtype=torch.float64)
        for h in binary(2):
            exponent = sum(model.theta[i] * x[:, i] * h[0] for i in range(3)) + sum(
                model.theta[3 + j] * x[:, 0] * h[j] for j in range(2)
            )
            total = total + torch.exp(exponent + model.theta[5] * h.sum() * x.sum(1))
        return torch.log(total)

    return model, log_phi, lambda: torch.log(torch.exp(log_phi(binary(3))).sum())


CASES = {
    "RBM over x": lambda: bernoulli_rbm(3, 5),
    "RBM over h": lambda: bernoulli_rbm(5, 3),
    "Gaussian RBM": lambda: gaussian_rbm(3, 4),
    "MaxEnt": maxent,
    "MaxEnt with hidden": hidden_maxent,
}
EVERY = pytest.mark.parametrize("case", list(CASES))


def rows(model: RBM | MaxEnt, n: int = 13) -> Tensor:
    g = torch.Generator().manual_seed(9)
    x = torch.randint(0, 2, (n, model.support.width), generator=g).double()
    if isinstance(model.support, Spin):
        return 2 * x - 1
    return (
        x if model.support.discrete else x + torch.randn(x.shape, generator=g, dtype=torch.float64)
    )


def gradient_of(model: RBM | MaxEnt, value: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(value, parameters), strict=True))


@EVERY
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_the_log_likelihood_is_positive_minus_negative_phase(
    case: str, weighted: bool
) -> None:
    model, log_phi, log_z = CASES[case]()
    x = rows(model)
    w = (
        torch.rand(len(x), generator=torch.Generator().manual_seed(10), dtype=torch.float64)
        if weighted
        else torch.ones(len(x)).double()
    )
    expected = gradient_of(model, (w * log_phi(x)).sum() / w.sum() - log_z())
    positive = positive_phase(model, x, w if weighted else None)
    negative = negative_phase(model, exact=True)
    assert positive.keys() == negative.keys() == expected.keys()
    for name, want in expected.items():
        torch.testing.assert_close(positive[name] - negative[name], want, atol=TOLERANCE, rtol=0)
        assert want.abs().max() > 1e-3  # a test that can fail


@EVERY
def test_each_phase_by_itself(case: str) -> None:
    model, log_phi, log_z = CASES[case]()
    x = rows(model)
    for phase, value in (
        (positive_phase(model, x), log_phi(x).mean()),
        (negative_phase(model, exact=True), log_z()),
    ):
        for name, want in gradient_of(model, value).items():
            torch.testing.assert_close(phase[name], want, atol=TOLERANCE, rtol=0)


@EVERY
def test_the_exact_objective_is_the_negative_log_likelihood(case: str) -> None:
    model, log_phi, log_z = CASES[case]()
    x, g = rows(model), torch.Generator()
    w = torch.rand(len(x), generator=torch.Generator().manual_seed(11), dtype=torch.float64)
    w = w / w.mean()
    expected = log_z() - (w * log_phi(x)).mean()
    objective = ExactLikelihood()
    state = objective.init(model, as_rows(x), generator=g)
    losses, _, info = objective.losses(model, Batch(x, w), state, generator=g)
    assert losses["model"].item() == pytest.approx(expected.item(), abs=TOLERANCE)
    assert info["log_likelihood"].item() == pytest.approx(-expected.item(), abs=TOLERANCE)
    got = gradient_of(model, losses["model"])
    for name, want in gradient_of(model, expected).items():
        torch.testing.assert_close(got[name], want, atol=TOLERANCE, rtol=0)


@EVERY
def test_averaged_over_draws_of_the_data_the_negative_phase_is_the_positive_one(case: str) -> None:
    model, _, _ = CASES[case]()
    x = rows(model)
    for name, value in negative_phase(model, x).items():
        assert torch.equal(value, positive_phase(model, x)[name])


@pytest.mark.parametrize(("visible", "hidden"), [(3, 5), (5, 3)])
def test_the_closed_form_of_the_bernoulli_machine(visible: int, hidden: int) -> None:
    """V'H of the data minus the same average over all (x, h), unit by unit."""
    model, _, _ = bernoulli_rbm(visible, hidden)
    W, b, c = (p.detach().numpy() for p in (model.W, model.b, model.c))
    V = rows(model).numpy()
    H = expit(c + V @ W)
    xs, hs = binary(visible).numpy(), binary(hidden).numpy()
    joint = np.exp((xs @ b)[:, None] + hs @ c + xs @ W @ hs.T)
    joint /= joint.sum()
    expected = {
        "W": V.T @ H / len(V) - xs.T @ joint @ hs,
        "b": V.mean(0) - joint.sum(1) @ xs,
        "c": H.mean(0) - joint.sum(0) @ hs,
    }
    positive, negative = positive_phase(model, rows(model)), negative_phase(model, exact=True)
    for name, want in expected.items():
        np.testing.assert_allclose((positive[name] - negative[name]).numpy(), want, atol=TOLERANCE)


def test_the_closed_form_of_the_gaussian_machine() -> None:
    model, _, _ = gaussian_rbm(2, 3)
    W, b, c, s2 = (
        p.detach().numpy() for p in (model.W, model.b, model.c, torch.exp(2 * model.log_sigma))
    )  # type: ignore[operator]
    V, hs = rows(model).numpy(), binary(3).numpy()
    mean = b + s2 * (hs @ W.T)  # of x given each h
    p = np.exp(hs @ c + (mean**2 / (2 * s2) + 0.5 * np.log(s2)).sum(1))
    p /= p.sum()
    H = expit(c + V @ W)
    second = s2 + mean**2
    log_sigma = ((V**2 - 2 * V * b) / s2).mean(0) - p @ ((second - 2 * mean * b) / s2)
    expected = {
        "W": V.T @ H / len(V) - (mean * p[:, None]).T @ hs,
        "b": (V.mean(0) - p @ mean) / s2,
        "c": H.mean(0) - p @ hs,
        "log_sigma": log_sigma,
    }
    positive, negative = positive_phase(model, rows(model)), negative_phase(model, exact=True)
    for name, want in expected.items():
        np.testing.assert_allclose((positive[name] - negative[name]).numpy(), want, atol=TOLERANCE)


def test_at_the_data_of_the_model_itself_the_phases_agree() -> None:
    """With every state weighed by its own probability there is nothing left to learn."""
    for model, log_phi, states in (
        (*bernoulli_rbm(4, 3)[:2], binary(4)),
        (*hidden_maxent()[:2], binary(3)),
    ):
        positive = positive_phase(model, states, torch.softmax(log_phi(states), 0).detach())
        negative = negative_phase(model, exact=True)
        for name in positive:
            torch.testing.assert_close(positive[name], negative[name], atol=TOLERANCE, rtol=0)


def test_frozen_parameters_are_left_out() -> None:
    model, _, _ = bernoulli_rbm(3, 2)
    model.b.requires_grad_(False)
    assert (
        set(positive_phase(model, rows(model)))
        == set(negative_phase(model, exact=True))
        == {"W", "c"}
    )


@pytest.mark.parametrize(
    "arguments", [{}, {"draws": torch.zeros(1, 3).double(), "exact": True}], ids=["neither", "both"]
)
def test_draws_or_exact_and_not_both(arguments: dict) -> None:
    with pytest.raises(
        InputError,
        match=r"negative_phase: draws must be given, or exact=True, and not both; got draws=",
    ):
        negative_phase(bernoulli_rbm(3, 2)[0], **arguments)


def test_no_exact_phase_where_there_are_too_many_states() -> None:
    with pytest.raises(
        Unsupported,
        match=r"negative_phase\(exact=True\) cannot run on RBM\(30, 25\): neither side has at most",
    ):
        negative_phase(RBM(30, 25, generator=torch.Generator()), exact=True)


def test_rows_that_are_no_tensor_are_named(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"x must be a tensor of rows; got ndarray\. Call torch"):
        positive_phase(RBM(2, 1, generator=generator), np.zeros((3, 2)))  # type: ignore[arg-type]
