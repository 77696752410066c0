"""Score matching against closed forms and quadrature."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import partita
from partita.core.protocols import Batch
from partita.core.support import Binary
from partita.errors import InputError, Unsupported
from partita.models import RBM, MaxEnt
from partita.objectives import ScoreMatching
from partita.objectives.score_matching import denoising_loss, exact_loss, score_at, sliced_loss
from partita.tables import as_rows


def table(n: int = 40, d: int = 3, seed: int = 1) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, d, generator=g, dtype=torch.float64)
        @ torch.randn(d, d, generator=g, dtype=torch.float64)
        + 0.5
    )


def gaussian_rbm(seed: int = 2) -> RBM:
    g = torch.Generator().manual_seed(seed)
    model = RBM(3, 4, visible_units="gaussian", scale=0.8, generator=g).double()
    with torch.no_grad():
        for p in (model.b, model.c, model.log_sigma):
            p.copy_(0.4 * torch.randn(p.shape, generator=g, dtype=torch.float64))  # type: ignore[union-attr]
    return model


def test_a_gaussian_has_its_closed_form(gaussian: Any) -> None:
    x = table()
    A = torch.randn(3, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    mean, P = torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64), A @ A.T + torch.eye(3)
    closed = 0.5 * ((x - mean) @ P).square().sum(-1) - P.trace()
    torch.testing.assert_close(exact_loss(gaussian(mean, P), x), closed, atol=1e-12, rtol=1e-12)


def test_its_minimum_for_a_gaussian_is_maximum_likelihood(gaussian: Any) -> None:
    x = table()
    S = torch.cov(x.T, correction=0)
    model = gaussian(x.mean(0), torch.linalg.inv(S))
    loss = exact_loss(model, x).mean()
    loss.backward()
    assert max(float(p.grad.abs().max()) for p in model.parameters()) < 1e-10
    assert float(loss.detach()) == pytest.approx(-0.5 * float(torch.linalg.inv(S).trace()))


def test_score_and_divergence_of_an_rbm_by_finite_differences() -> None:
    model, x, step = gaussian_rbm(), table(5), 1e-4
    with torch.no_grad():
        shifts = step * torch.eye(3, dtype=torch.float64)
        up, down = (torch.stack([model(x + sign * e) for e in shifts], -1) for sign in (1, -1))
        slope, bend = -(up - down) / (2 * step), -(up + down - 2 * model(x)[:, None]) / step**2
    torch.testing.assert_close(score_at(model, x)[1].detach(), slope, atol=1e-6, rtol=0)
    torch.testing.assert_close(
        exact_loss(model, x).detach(),
        0.5 * slope.square().sum(-1) + bend.sum(-1),
        atol=1e-5,
        rtol=0,
    )


def test_it_is_the_distance_between_scores_up_to_a_constant(
    quartic: Any, density: Any, grid: np.ndarray
) -> None:
    """Half the mean squared distance to the data's score, whose square alone is left out
    (theory/objectives.md, eq. 6.9).
    """
    data, x = quartic([0.4, 0.8, -0.6]), torch.tensor(grid)[:, None]
    p = torch.tensor(density(data)[0])
    target = score_at(data, x)[1].detach()
    for theta in ([0.0, -0.5, 0.0], [0.4, 0.8, -0.6], [-1.0, 0.3, -0.2]):
        model = quartic(theta)
        distance = 0.5 * (p * (score_at(model, x)[1].detach() - target).square().sum(-1)).sum()
        value = (p * exact_loss(model, x).detach()).sum() + 0.5 * (
            p * target.square().sum(-1)
        ).sum()
        assert float(value) == pytest.approx(float(distance), abs=1e-9)


def test_the_average_over_all_signs_is_exact() -> None:
    """E[v v'] = 1 holds exactly over all 2^D sign vectors, for values and for gradients in the
    parameters.
    """
    x = table(6)
    signs = torch.tensor(list(product([-1.0, 1.0], repeat=3)), dtype=torch.float64)[
        :, None, :
    ].expand(-1, 6, -1)
    models = gaussian_rbm(), gaussian_rbm()
    losses = exact_loss(models[0], x), sliced_loss(models[1], x, signs)
    torch.testing.assert_close(*losses, atol=1e-12, rtol=1e-12)
    for loss in losses:
        loss.mean().backward()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("slices", [1, 3])
def test_random_signs_are_unbiased(slices: int, generator: torch.Generator) -> None:
    """One test of |z| < 4.5 for each number of slices: false alarm 7e-6 each, at this seed."""
    model, x, copies = gaussian_rbm(), table(6), 5000
    objective = ScoreMatching("sliced", slices=slices)
    state = objective.init(model, as_rows(x), generator=generator)
    losses = [
        objective.losses(model, Batch(x.repeat(100, 1)), state, generator=generator)[0][
            "model"
        ].item()
        for _ in range(copies // 100)
    ]
    z = (np.mean(losses) - exact_loss(model, x).mean().item()) / (
        np.std(losses, ddof=1) / len(losses) ** 0.5
    )
    assert abs(z) < 4.5
    assert np.std(losses) > 1e-3  # it is random


def test_denoising_is_score_matching_of_the_smoothed_density(
    quartic: Any, grid: np.ndarray
) -> None:
    """Gauss-Hermite over the noise on one side, the smoothed density on the grid on the other."""
    atoms, sigma = torch.tensor([[-0.9], [0.1], [0.8], [1.1]], dtype=torch.float64), 0.35
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    e, w = torch.tensor(nodes)[:, None], torch.tensor(weights / weights.sum())
    x = torch.tensor(grid)[:, None]
    smooth = torch.exp(-0.5 * ((x - atoms.T) / sigma).square()).mean(1)
    smooth /= smooth.sum()
    for theta in ([0.4, 0.8, -0.6], [0.0, -0.5, -0.1]):
        model = quartic(theta)
        left = torch.stack(
            [(w * denoising_loss(model, atom.expand_as(e), e, sigma)).sum() for atom in atoms]
        ).mean()
        right = (smooth * exact_loss(model, x)).sum()
        assert left.item() == pytest.approx(right.item(), abs=1e-10)
        plain = exact_loss(model, atoms).mean()
        assert abs((plain - right).item()) > 0.05  # smoothing matters here, and the test can tell
    gradients = [
        torch.autograd.grad(value, model.theta, retain_graph=True)[0] for value in (left, right)
    ]
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", ["exact", "sliced", "denoising"])
def test_weights_count_rows(kind: Any) -> None:
    """The loss is the weighted mean of what the rows give with the same randomness."""
    model, x = gaussian_rbm(), table(4)
    objective = ScoreMatching(kind)
    weight = torch.tensor([2.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    value = objective.losses(
        model,
        Batch(x, weight),
        objective.init(model, as_rows(x), generator=torch.Generator()),
        generator=torch.Generator().manual_seed(3),
    )[0]["model"]
    rows = objective._rows(model, x, torch.Generator().manual_seed(3))
    assert value.item() == pytest.approx((weight * rows).mean().item(), abs=1e-12)


def test_discrete_models_are_refused_with_the_nearest_that_works(
    generator: torch.Generator,
) -> None:
    model = MaxEnt("pairwise", Binary(3), generator=generator)
    words = (
        r"ScoreMatching cannot run on MaxEnt\(pairwise, 3\): its coordinates are not all "
        r"real, .*\. Use PseudoLikelihood instead\."
    )
    with pytest.raises(Unsupported, match=words):
        partita.fit(model, torch.eye(3), ScoreMatching(), steps=1, generator=generator)


def test_an_energy_without_a_slope_is_refused(quartic: Any, generator: torch.Generator) -> None:
    class Steps(type(quartic([0.0, 0.0, -1.0]))):  # type: ignore[misc]
        def free_energy(self, x: Tensor) -> Tensor:
            return super().free_energy(x.detach().round())

    with pytest.raises(
        Unsupported,
        match=r"ScoreMatching cannot run on Steps: its free energy has no gradient in x\. Use NCE "
        r"instead\.",
    ):
        partita.fit(
            Steps([0.0, 0.0, -1.0]), table(9, 1), ScoreMatching(), steps=1, generator=generator
        )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"kind": "fast"},
            r"ScoreMatching: kind must be one of 'exact', 'sliced', 'denoising'; got 'fast'\.",
        ),
        ({"sigma": 0.0}, r"ScoreMatching: sigma must be a finite number above 0; got 0\.0\."),
        ({"slices": 0}, r"ScoreMatching: slices must be a whole number of at least 1; got 0\."),
    ],
)
def test_bad_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ScoreMatching(**settings)
