"""The latent energy against sums over h written out, against quadrature over x, and against its own
derivations (theory/latent.md).
"""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import partita
from partita.errors import InputError, RunError, Unsupported
from partita.evaluators import Quadrature
from partita.integration.quadrature import Box, cells, log_integral
from partita.models import LatentEnergy
from partita.models.energy.latent_energy import energy_gradients
from partita.models.energy.units import GaussianReference, whitening_of
from partita.nets import MLP
from partita.objectives import ExactLikelihood
from partita.tables import as_rows

BOX = Box(torch.full((2,), -7.0, dtype=torch.float64), torch.full((2,), 7.0, dtype=torch.float64))
CELLS = 160


class Squares(nn.Module):
    """A sum of functions of single coordinates, as the additive case of Q3 asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([[0.7, -0.4, 0.9], [0.3, 0.8, -0.6]]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x[..., None] * self.a).sum(-2)


def conv() -> nn.Module:
    """A small convolutional network on two coordinates seen as a signal of length 2."""
    layers = (
        nn.Unflatten(1, (1, 2)),
        nn.Conv1d(1, 4, 2, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(12, 3),
    )
    return nn.Sequential(*layers)


def network(kind: str, g: torch.Generator, visible: int = 2) -> nn.Module:
    if kind == "mlp":
        return MLP(visible, 3, widths=(8,), generator=g)
    return {"conv": conv, "affine": lambda: nn.Linear(visible, 3), "additive": Squares}[kind]()


def latent(
    kind: str = "mlp", visible: int = 2, hidden: int = 4, scale: float = 1.0
) -> LatentEnergy:
    """A model in float64 whose every parameter is random."""
    g = torch.Generator().manual_seed(5)
    model = LatentEnergy(network(kind, g, visible), visible, hidden, 3, generator=g).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def rows(n: int, visible: int = 2) -> Tensor:
    return torch.randn(n, visible, generator=torch.Generator().manual_seed(6), dtype=torch.float64)


def joint(model: LatentEnergy, x: Tensor) -> tuple[Tensor, Tensor]:
    """All h, and E(x, h) of each by the formula as it stands, ``(2^H, H), (n, 2^H)``."""
    h = torch.tensor(list(product([0.0, 1.0], repeat=model.hidden)), dtype=torch.float64)
    f, W, b, c = model.f(x), model.W, model.b, model.c
    energy = torch.stack([(x * x).sum(-1) + (hk @ W * f).sum(-1) - c @ hk - x @ b for hk in h], -1)
    return h, energy


KINDS = pytest.mark.parametrize("kind", ["mlp", "conv", "affine", "additive"])


@KINDS
@torch.no_grad()
def test_q1_hidden_units_are_independent_given_x(kind: str) -> None:
    model, x = latent(kind), rows(7)
    h, energy = joint(model, x)
    truth = torch.softmax(-energy, -1)
    conditional = model.hidden_given_visible(x)
    product_form = torch.stack(
        [conditional.log_prob(hk.expand(7, -1)).sum(-1) for hk in h], -1
    ).exp()
    torch.testing.assert_close(product_form, truth, rtol=0, atol=1e-12)


@torch.no_grad()
def test_q2_each_unit_is_on_with_the_sigmoid_of_minus_alpha() -> None:
    model, x = latent(), rows(7)
    h, energy = joint(model, x)
    alpha = model.f(x) @ model.W.T - model.c
    torch.testing.assert_close(
        torch.softmax(-energy, -1) @ h, torch.sigmoid(-alpha), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(
        model.hidden_given_visible(x).probs, torch.sigmoid(-alpha), rtol=0, atol=1e-12
    )


@torch.no_grad()
def test_the_lemma_a_sum_of_products_is_a_product_of_sums() -> None:
    a = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    total = sum(
        math.prod(math.exp(-hk * ak) for hk, ak in zip(h, a.tolist(), strict=True))
        for h in product([0, 1], repeat=6)
    )
    torch.testing.assert_close(
        torch.tensor(total, dtype=torch.float64), (1 + torch.exp(-a)).prod(), rtol=1e-12, atol=0
    )


def x_given_h(model: LatentEnergy, h: Tensor) -> tuple[Tensor, Tensor]:
    """Points of a grid over x and p(x | h) at them."""
    x = torch.cat(list(cells(BOX, CELLS)))
    return x, torch.softmax(-model.energy(x, h.expand(len(x), -1)), 0)


def dependence(x: Tensor, p: Tensor) -> tuple[float, float]:
    """Correlation of the two coordinates, and the largest difference between p and the product of
    its margins, relative to the top.
    """
    mean = p @ x
    covariance = (x - mean).T @ ((x - mean) * p[:, None])
    table = p.view(CELLS, CELLS)
    difference = (
        table - table.sum(1, keepdim=True) * table.sum(0, keepdim=True)
    ).abs().max() / table.max()
    return float(covariance[0, 1] / (covariance[0, 0] * covariance[1, 1]).sqrt()), float(difference)


@torch.no_grad()
def test_q3_x_is_correlated_given_h_unless_f_is_affine_or_additive() -> None:
    h = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    correlation, difference = dependence(*x_given_h(latent("mlp", scale=1.5), h))
    assert abs(correlation) > 0.05 and difference > 0.05
    for kind in ("affine", "additive"):
        correlation, difference = dependence(*x_given_h(latent(kind), h))
        assert abs(correlation) < 1e-12 and difference < 1e-12


@torch.no_grad()
def test_q3_the_affine_conditional_is_a_normal_distribution() -> None:
    model = latent("affine")
    h = torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    x, p = x_given_h(model, h)
    normal = model.visible_given_hidden(h)
    assert isinstance(model.f, nn.Linear)
    A, W = model.f.weight, model.W
    torch.testing.assert_close(normal.mean, (model.b - A.T @ W.T @ h) / 2)
    torch.testing.assert_close(normal.stddev, torch.full((2,), 0.5, dtype=torch.float64).sqrt())
    density = normal.log_prob(x).sum(-1).exp()
    torch.testing.assert_close(density / density.sum(), p, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", ["mlp", "conv", "additive"])
def test_q3_visible_given_hidden_refuses_and_says_why(kind: str) -> None:
    words = (
        r"LatentEnergy\(2, 4\)\.visible_given_hidden: .*f couples the coordinates of x.*f is "
        r"affine.*a sum of functions of single coord"
    )
    with pytest.raises(Unsupported, match=words + r".*Alternating\(MALA\(\)\)"):
        latent(kind).visible_given_hidden(torch.zeros(4, dtype=torch.float64))


@KINDS
@torch.no_grad()
def test_q4_the_free_energy_sums_h_out(kind: str) -> None:
    model, x = latent(kind, scale=1.5), rows(9)
    h, energy = joint(model, x)
    torch.testing.assert_close(
        model.free_energy(x), -torch.logsumexp(-energy, -1), rtol=1e-12, atol=1e-12
    )
    for k, hk in enumerate(h):
        torch.testing.assert_close(
            model.energy(x, hk.expand(9, -1)), energy[:, k], rtol=1e-12, atol=1e-12
        )
    assert model(x.view(3, 3, 2)).shape == (3, 3)


@pytest.mark.parametrize("kind", ["mlp", "conv"])
def test_q5_the_gradient_is_autograd_of_the_normalized_likelihood(kind: str) -> None:
    """Model minus data, each averaged over h, against autograd through the quadrature-normalized
    log-likelihood.
    """
    model, x = latent(kind), rows(20)
    log_likelihood = -model(x).mean() - log_integral(model, BOX, CELLS)
    named = dict(model.named_parameters())
    truth = dict(zip(named, torch.autograd.grad(log_likelihood, list(named.values())), strict=True))
    points = torch.cat(list(cells(BOX, CELLS)))
    p = torch.softmax(-model.free_energy(points).detach(), 0)
    data, of_model = energy_gradients(model, x), energy_gradients(model, points, p)
    assert set(data) == set(named)
    for name in named:
        torch.testing.assert_close(of_model[name] - data[name], truth[name], rtol=0, atol=1e-6)
    # there was something to get wrong
    assert min(float(g.abs().max()) for g in truth.values()) > 1e-3


@torch.no_grad()
def test_the_path_anneals_the_joint() -> None:
    """At each beta the free energy is the sum over h of the annealed joint; at 0 it is the
    reference, whose log Z is known.
    """
    model, x = latent(), rows(6)
    mean = torch.tensor([0.3, -0.2], dtype=torch.float64)
    covariance = torch.tensor([[1.0, 0.4], [0.4, 0.7]], dtype=torch.float64)
    model.reference_mean.copy_(mean)
    model.reference_whitening.copy_(whitening_of(covariance))
    h = torch.tensor(list(product([0.0, 1.0], repeat=4)), dtype=torch.float64)
    normal = MultivariateNormal(mean, covariance)
    constant = normal.log_prob(mean)
    for beta in (0.0, 0.3, 1.0):
        view: Any = model.annealed(beta)
        by_hand = torch.stack(
            [
                -(1 - beta) * (normal.log_prob(x) - constant)
                + beta * model.energy(x, hk.expand(6, -1))
                for hk in h
            ],
            -1,
        )
        torch.testing.assert_close(view.free_energy(x), -torch.logsumexp(-by_hand, -1))
        torch.testing.assert_close(
            torch.stack([view.energy(x, hk.expand(6, -1)) for hk in h], -1), by_hand
        )
        torch.testing.assert_close(
            view.hidden_given_visible(x).probs, torch.softmax(-by_hand, -1) @ h
        )
    betas = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    torch.testing.assert_close(model.free_energies(x, betas)[1], model.annealed(0.3).free_energy(x))
    torch.testing.assert_close(
        model.annealed(0.5).annealed(0.6).free_energy(x), model.annealed(0.3).free_energy(x)
    )
    torch.testing.assert_close(model.reference().free_energy(x), model.annealed(0.0).free_energy(x))
    assert abs(float(model.reference().log_z) - Quadrature()(model.annealed(0.0)).value) < 1e-9


def test_the_normal_reference_has_the_right_draws_and_normalizer(
    generator: torch.Generator,
) -> None:
    """Sample moments of 40,000 draws within five standard errors: false-alarm rate about 3e-6 for
    five numbers.
    """
    mean = torch.tensor([1.0, -2.0], dtype=torch.float64)
    covariance = torch.tensor([[2.0, -0.9], [-0.9, 1.5]], dtype=torch.float64)
    reference = GaussianReference(mean, whitening_of(covariance), offset=0.7)
    x = rows(5)
    torch.testing.assert_close(
        -reference.free_energy(x) - reference.log_z,
        MultivariateNormal(mean, covariance).log_prob(x),
    )
    draws = reference.draw(40_000, generator=generator)
    assert ((draws.mean(0) - mean).abs() < 5 * (covariance.diagonal() / 40_000).sqrt()).all()
    variances = covariance.diagonal()[:, None] * covariance.diagonal() + covariance.square()
    assert ((draws.T.cov() - covariance).abs() < 5 * (variances / 40_000).sqrt()).all()


def test_initialize_fits_the_reference_to_training_data(generator: torch.Generator) -> None:
    data = rows(500) @ torch.tensor([[1.0, 0.8], [0.0, 0.5]], dtype=torch.float64) + 1.0
    full, diagonal = (
        LatentEnergy(
            MLP(2, 3, generator=generator), 2, 4, 3, covariance=kind, generator=generator
        ).double()
        for kind in ("full", "diagonal")
    )
    for model in (full, diagonal):
        model.initialize(as_rows(data), generator=generator)
        torch.testing.assert_close(model.reference_mean, data.mean(0), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(model.b.detach(), 2 * model.reference_mean)
        assert model.anchor_rows(3) is not None
    # drawn toward its diagonal by D / (N + D)
    R, own, share = full.reference_whitening, data.T.cov(correction=0), 2 / 502
    shrunk = (1 - share) * own + share * own.diagonal().diag()
    torch.testing.assert_close(
        R @ shrunk @ R.T, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-4
    )
    torch.testing.assert_close(
        diagonal.reference_whitening.diagonal(),
        data.var(0, correction=0).rsqrt(),
        rtol=1e-4,
        atol=0,
    )


def test_f_may_not_lower_the_energy_faster_than_the_quadratic_raises_it(
    generator: torch.Generator,
) -> None:
    class Power(nn.Module):
        def __init__(self, p: int) -> None:
            super().__init__()
            self.p = p

        def forward(self, x: Tensor) -> Tensor:
            return x**self.p

    words = (
        r"LatentEnergy: f must not lower the energy faster than x'x raises it, else Z is infinite; "
    )
    with pytest.raises(InputError, match=words + r"got an energy that falls like -\|x\|\^3"):
        LatentEnergy(Power(3), 2, 4, 2, generator=generator)
    # of small weights, so that x'x rises faster
    model = LatentEnergy(Power(2), 2, 4, 2, generator=generator)
    assert Quadrature()(model).verdict == "tight"


def test_f_must_have_the_declared_shape(generator: torch.Generator) -> None:
    with pytest.raises(
        InputError,
        match=r"LatentEnergy: f must map \(N, 2\) to \(N, 3\); got \(32, 2\) to \(32, 5\)\.",
    ):
        LatentEnergy(nn.Linear(2, 5), 2, 4, 3, generator=generator)
    model = LatentEnergy(nn.Linear(2, 3), 2, 4, 3, generator=generator)
    with pytest.raises(
        InputError,
        match=r"LatentEnergy: x must have shape \(\*, 2\) to match LatentEnergy\(2, 4\); got \(5, "
        r"3\)\.",
    ):
        model(torch.zeros(5, 3))


def test_columns_without_a_scale_are_refused_or_pointed_out(generator: torch.Generator) -> None:
    model = LatentEnergy(MLP(2, 3, generator=generator), 2, 4, 3, generator=generator)
    with pytest.raises(
        InputError,
        match=r"LatentEnergy: x must vary in every column; got the same value throughout column 1",
    ):
        model.initialize(as_rows(torch.tensor([[0.0, 3.0], [1.0, 3.0]])), generator=generator)
    far = as_rows(torch.tensor([[0.0, 300.0], [1.0, 500.0]]))
    (warning,) = model.data_warnings(far, generator=generator)
    assert warning.startswith("column 1 has mean 400 and deviation 100; standardize the columns")


def test_a_saved_run_rebuilds_its_network(tmp_path: Any, generator: torch.Generator) -> None:
    model = LatentEnergy(
        MLP(2, 3, widths=(5,), generator=generator),
        2,
        4,
        3,
        covariance="diagonal",
        generator=generator,
    )
    partita.fit(
        model,
        rows(60).float(),
        ExactLikelihood(),
        steps=2,
        out=tmp_path / "run",
        generator=generator,
    )
    loaded: Any = partita.load(tmp_path / "run").model
    assert loaded.settings() == model.settings()
    torch.testing.assert_close(loaded(rows(5).float()), model(rows(5).float()), rtol=0, atol=0)


def test_a_module_of_the_users_own_is_handed_over(
    tmp_path: Any, generator: torch.Generator
) -> None:
    model = LatentEnergy(conv(), 2, 4, 3, generator=generator)
    partita.fit(
        model,
        rows(60).float(),
        ExactLikelihood(),
        steps=2,
        out=tmp_path / "run",
        generator=generator,
    )
    with pytest.raises(
        RunError,
        match=r"load: the network of LatentEnergy must be one of MLP.*load\(path, model=\.\.\.\)",
    ):
        partita.load(tmp_path / "run")
    other = LatentEnergy(conv(), 2, 4, 3, generator=generator)
    assert partita.load(tmp_path / "run", model=other).model is other
    torch.testing.assert_close(other(rows(5).float()), model(rows(5).float()), rtol=0, atol=0)
