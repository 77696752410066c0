"""The restricted Boltzmann machine against sums over all states and quadrature, in float64.

The energy is written here a second time, with loops over units, and everything else follows from it by summing.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy import integrate
from scipy.special import expit, logsumexp
from scipy.stats import norm
from torch import Tensor

from partita.core.enumeration import log_partition
from partita.core.errors import InputError
from partita.data import as_rows
from partita.models import RBM
from partita.models.energy.rbm import centered_gradient, sufficient_statistics
from partita.objectives import positive_phase

BETAS = [0.0, 0.3, 0.5, 0.85, 1.0]
FAMILY = 1e-4  # false-alarm rate of the statistical test, at its fixed seed


def make(units: str, visible: int = 3, hidden: int = 2, seed: int = 1, scale: float = 0.8) -> RBM:
    """A model with every parameter, and the reference, away from zero."""
    g = torch.Generator().manual_seed(seed)
    model = RBM(visible, hidden, visible_units=units, generator=g).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=torch.float64))
        if model.log_sigma is not None:
            model.log_sigma.mul_(0.3)
        model.reference_natural[0] = torch.randn(visible, generator=g, dtype=torch.float64)
        if units == "gaussian":
            model.reference_natural[1] = -0.2 - torch.rand(visible, generator=g, dtype=torch.float64)
    return model


def energy(model: RBM, x: np.ndarray, h: np.ndarray, beta: float = 1.0) -> float:
    """E(x, h) unit by unit: W and c scaled by beta, the visible units' own terms interpolated from the reference."""
    W, b, c = (p.detach().numpy() for p in (model.W, model.b, model.c))
    start = model.reference_natural.numpy()
    total = 0.0
    for i in range(len(x)):
        if model.log_sigma is None:
            own = b[i] * x[i]
        else:
            s = math.exp(model.log_sigma[i].item())
            own = b[i] * x[i] / s**2 - x[i] ** 2 / (2 * s**2)
        own_start = sum(start[r, i] * x[i] ** (r + 1) for r in range(len(start)))
        total -= beta * own + (1 - beta) * own_start
        for j in range(len(h)):
            total -= beta * x[i] * W[i, j] * h[j]
    return total - beta * sum(c[j] * h[j] for j in range(len(h)))


def binary(n: int) -> np.ndarray:
    return np.array(list(product([0.0, 1.0], repeat=n)))


def some_rows(model: RBM) -> np.ndarray:
    return binary(model.visible) if model.log_sigma is None else np.random.default_rng(0).normal(size=(8, model.visible)) * 2


def free_energy(model: RBM, x: np.ndarray, beta: float = 1.0) -> float:
    return -logsumexp([-energy(model, x, h, beta) for h in binary(model.hidden)])


def log_z(model: RBM, beta: float = 1.0) -> float:
    """Over x and h together, or the integral over x of the sum over h."""
    if model.log_sigma is None:
        return logsumexp([-energy(model, x, h, beta) for x in binary(model.visible) for h in binary(model.hidden)])

    if model.visible == 1:
        return math.log(integrate.quad(lambda x: math.exp(-free_energy(model, np.array([x]), beta)), -25, 25, epsabs=0, epsrel=1e-12)[0])
    axis = np.linspace(-12, 12, 401)  # the trapezoidal rule, exact to rounding for a density as smooth as this
    grid = np.array(np.meshgrid(*[axis] * model.visible))
    masses = [np.exp(-energy(model, grid, h, beta)).sum() for h in binary(model.hidden)]
    return math.log(sum(masses) * (axis[1] - axis[0]) ** model.visible)


def tensor(x: np.ndarray) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


UNITS = ["bernoulli", "gaussian"]


@pytest.mark.parametrize("units", UNITS)
def test_energy_and_free_energy(units: str) -> None:
    model = make(units)
    for x in some_rows(model):
        expected = [energy(model, x, h) for h in binary(2)]
        got = model.energy(tensor(x).expand(4, -1), tensor(binary(2)))
        np.testing.assert_allclose(got.detach().numpy(), expected, atol=1e-12)
        assert model.free_energy(tensor(x)).item() == pytest.approx(-logsumexp(-np.array(expected)), abs=1e-12)


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("beta", [None, 0.0, 0.4, 1.0])
def test_hidden_given_visible(units: str, beta: float | None) -> None:
    model = make(units)
    at = model if beta is None else model.annealed(beta)
    for x in some_rows(model):
        weights = np.exp([-energy(model, x, h, 1.0 if beta is None else beta) for h in binary(2)])
        expected = weights @ binary(2) / weights.sum()
        np.testing.assert_allclose(at.hidden_given_visible(tensor(x)).probs.detach().numpy(), expected, atol=1e-12)  # type: ignore[operator]


@pytest.mark.parametrize("beta", [None, 0.0, 0.4, 1.0])
def test_bernoulli_visible_given_hidden(beta: float | None) -> None:
    model = make("bernoulli")
    at = model if beta is None else model.annealed(beta)
    for h in binary(2):
        weights = np.exp([-energy(model, x, h, 1.0 if beta is None else beta) for x in binary(3)])
        expected = weights @ binary(3) / weights.sum()
        np.testing.assert_allclose(at.visible_given_hidden(tensor(h)).probs.detach().numpy(), expected, atol=1e-12)  # type: ignore[operator]


@pytest.mark.parametrize("beta", [None, 0.0, 0.4, 1.0])
def test_gaussian_visible_given_hidden(beta: float | None) -> None:
    model = make("gaussian", visible=1)
    at = model if beta is None else model.annealed(beta)
    for h in binary(2):

        def mass(x: float, h: np.ndarray = h) -> float:
            return math.exp(-energy(model, np.array([x]), h, 1.0 if beta is None else beta))

        z = integrate.quad(mass, -30, 30, epsabs=1e-13)[0]
        mean = integrate.quad(lambda x: x * mass(x), -30, 30, epsabs=1e-13)[0] / z
        variance = integrate.quad(lambda x: x**2 * mass(x), -30, 30, epsabs=1e-13)[0] / z - mean**2
        given = at.visible_given_hidden(tensor(h))  # type: ignore[operator]
        assert given.mean.item() == pytest.approx(mean, abs=1e-9)
        assert given.variance.item() == pytest.approx(variance, abs=1e-9)
        at_one = math.exp(given.log_prob(tensor(np.array([1.0]))).item())  # the whole density, not only two moments
        assert at_one == pytest.approx(mass(1.0) / z, abs=1e-10)


def test_the_conditionals_are_the_formulas_of_the_notes() -> None:
    model = make("gaussian")
    x, h = tensor(np.array([0.3, -1.0, 2.0])), tensor(np.array([1.0, 0.0]))
    W, b, c, s = (p.detach().numpy() for p in (model.W, model.b, model.c, model.log_sigma.exp()))  # type: ignore[union-attr]
    np.testing.assert_allclose(model.hidden_given_visible(x).probs.detach().numpy(), expit(c + W.T @ x.numpy()), atol=1e-12)
    given = model.visible_given_hidden(h)
    np.testing.assert_allclose(given.mean.detach().numpy(), b + s**2 * (W @ h.numpy()), atol=1e-12)
    np.testing.assert_allclose(given.stddev.detach().numpy(), s, atol=1e-12)


@pytest.mark.parametrize("visible", [1, 2])
def test_gaussian_log_partition_over_h_is_the_integral_over_x(visible: int) -> None:
    model = make("gaussian", visible=visible, hidden=3, scale=0.5)
    over_h = logsumexp([-model.hidden_free_energy(tensor(h)).item() for h in binary(model.hidden)])
    assert over_h == pytest.approx(log_z(model), abs=1e-10)


def test_gaussian_hidden_free_energy_in_closed_form() -> None:
    """The integral of exp(m x / s^2 - x^2 / (2 s^2)) is sqrt(2 pi) s exp(m^2 / (2 s^2)), with m = b + s^2 W h."""
    model = make("gaussian", visible=4, hidden=3)
    W, b, c, s = (p.detach().numpy() for p in (model.W, model.b, model.c, model.log_sigma.exp()))  # type: ignore[union-attr]
    for h in binary(3):
        m = b + s**2 * (W @ h)
        expected = -(c @ h + np.sum(0.5 * np.log(2 * np.pi) + np.log(s) + m**2 / (2 * s**2)))
        assert model.hidden_free_energy(tensor(h)).item() == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(("visible", "hidden"), [(5, 2), (2, 6), (4, 4)])
@pytest.mark.parametrize("beta", [None, 0.0, 0.6])
def test_bernoulli_log_partition_over_x_is_that_over_h(visible: int, hidden: int, beta: float | None) -> None:
    model = make("bernoulli", visible, hidden, scale=1.5)
    at = model if beta is None else model.annealed(beta)
    sums = {side.name: log_partition(side, model.W).item() for side in at.sides()}
    expected = log_z(model, 1.0 if beta is None else beta)
    assert sums == {"visible": pytest.approx(expected, abs=1e-10), "hidden": pytest.approx(expected, abs=1e-10)}


def test_a_gaussian_model_is_summed_over_its_hidden_side_at_every_temperature() -> None:
    model = make("gaussian", visible=1, hidden=3, scale=0.5)
    for beta in (0.0, 0.5, 1.0):
        (side,) = model.annealed(beta).sides()
        assert side.name == "hidden"
        assert log_partition(side, model.W).item() == pytest.approx(log_z(model, beta), abs=1e-8)


@pytest.mark.parametrize("units", UNITS)
def test_free_energies_at_all_temperatures(units: str) -> None:
    model = make(units)
    x = tensor(some_rows(model))
    together = model.free_energies(x, tensor(np.array(BETAS)))
    assert together.shape == (len(BETAS), len(x))
    for t, beta in enumerate(BETAS):
        expected = [free_energy(model, row, beta) for row in x.numpy()]
        np.testing.assert_allclose(together[t].detach().numpy(), expected, atol=1e-11)
        np.testing.assert_allclose(model.annealed(beta).free_energy(x).detach().numpy(), expected, atol=1e-11)
    torch.testing.assert_close(together[-1], model.free_energy(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("units", UNITS)
def test_a_field_serves_in_place_of_x(units: str) -> None:
    model = make(units)
    x = tensor(some_rows(model))
    field, beta = model.field(x), torch.tensor(0.4, dtype=torch.float64)
    blank = field._replace(x=field.x)
    torch.testing.assert_close(model.free_energies(x, beta[None], blank)[0], model.annealed(0.4).free_energy(x), atol=1e-12, rtol=0)
    torch.testing.assert_close(
        model.hidden_given_visible(x, beta, field).probs,
        model.annealed(0.4).hidden_given_visible(x).probs,
        atol=1e-12,
        rtol=0,  # type: ignore[operator]
    )


@pytest.mark.parametrize("units", UNITS)
def test_the_path_starts_at_the_reference_with_its_exact_log_partition(units: str) -> None:
    model = make(units, visible=2 if units == "bernoulli" else 1)
    x = tensor(some_rows(model))
    reference = model.reference()
    expected = [free_energy(model, row, 0.0) for row in x.numpy()]
    np.testing.assert_allclose(reference.free_energy(x).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(model.annealed(0.0).free_energy(x).detach().numpy(), expected, atol=1e-12)
    assert float(reference.log_z) == pytest.approx(log_z(model, 0.0), abs=1e-9)


@pytest.mark.parametrize("units", UNITS)
def test_the_reference_draws_from_itself(units: str, generator: torch.Generator) -> None:
    model, n = make(units), 40_000
    x = model.reference().draw(n, generator=generator).numpy()
    eta = model.reference_natural.numpy()
    mean = expit(eta[0]) if units == "bernoulli" else -eta[0] / (2 * eta[1])
    variance = mean * (1 - mean) if units == "bernoulli" else -0.5 / eta[1]
    bound = norm.isf(FAMILY / 9 / 2)  # nine two-sided tests over both kinds
    assert x.shape == (n, 3)
    assert (np.abs(x.mean(0) - mean) < bound * np.sqrt(variance / n)).all()
    if units == "gaussian":
        assert (np.abs(x.var(0) / variance - 1) < bound * np.sqrt(2 / n)).all()


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.4), (1.0, 0.7), (0.7, 1.0), (0.3, 0.0)])
def test_annealing_composes(units: str, a: float, b: float) -> None:
    model = make(units)
    x, h = tensor(some_rows(model)), tensor(binary(2))
    twice, once = model.annealed(a).annealed(b), model.annealed(a * b)
    np.testing.assert_allclose(twice.free_energy(x).detach().numpy(), [free_energy(model, row, a * b) for row in x.numpy()], atol=1e-11)
    for name, argument in (("hidden_given_visible", x), ("visible_given_hidden", h)):
        torch.testing.assert_close(getattr(twice, name)(argument).mean, getattr(once, name)(argument).mean, atol=1e-12, rtol=0)
    torch.testing.assert_close(model.annealed(a).free_energies(x, tensor(np.array([b])))[0], once.free_energy(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("units", UNITS)
def test_one_beta_for_each_chain(units: str) -> None:
    model = make(units)
    x = tensor(some_rows(model))
    betas = torch.linspace(0, 1, len(x), dtype=torch.float64)
    rows = model.annealed(betas)
    for i, beta in enumerate(betas.tolist()):
        one = model.annealed(beta)
        assert rows.free_energy(x)[i].item() == pytest.approx(free_energy(model, x[i].numpy(), beta), abs=1e-11)
        torch.testing.assert_close(rows.hidden_given_visible(x).probs[i], one.hidden_given_visible(x[i]).probs, atol=1e-12, rtol=0)  # type: ignore[operator]
        h = torch.ones(len(x), 2, dtype=torch.float64)
        torch.testing.assert_close(rows.visible_given_hidden(h).mean[i], one.visible_given_hidden(h[0]).mean, atol=1e-12, rtol=0)  # type: ignore[operator]


@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_in_matrix_form_are_the_sum_over_rows_and_the_positive_phase(weighted: bool) -> None:
    model, random = make("bernoulli", 4, 3), np.random.default_rng(2)
    x = random.integers(0, 2, (7, 4)).astype(float)
    w = random.random(7) if weighted else np.ones(7)
    h = expit(model.c.detach().numpy() + x @ model.W.detach().numpy())
    got = sufficient_statistics(tensor(x), tensor(h), tensor(w) if weighted else None)
    expected = {
        "W": sum(w[n] * np.outer(x[n], h[n]) for n in range(7)) / w.sum(),
        "b": sum(w[n] * x[n] for n in range(7)) / w.sum(),
        "c": sum(w[n] * h[n] for n in range(7)) / w.sum(),
    }
    phase = positive_phase(model, tensor(x), tensor(w) if weighted else None)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name].numpy(), value, atol=1e-13)
        np.testing.assert_allclose(phase[name].numpy(), value, atol=1e-13)


def log_likelihood(model: RBM, x: Tensor, W: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Mean log-likelihood of rows from given parameters, log Z summed over h (and x integrated or summed in closed form)."""
    h = tensor(binary(W.shape[1]))
    if model.log_sigma is None:
        log_z_h = torch.log1p(torch.exp(b + h @ W.T)).sum(1)
        own = x @ b
    else:
        s2 = torch.exp(2 * model.log_sigma.detach())
        m = b + s2 * (h @ W.T)
        log_z_h = (0.5 * torch.log(2 * math.pi * s2) + m**2 / (2 * s2)).sum(1)
        own = (x * b / s2 - x**2 / (2 * s2)).sum(1)
    unnormalised = own + torch.log1p(torch.exp(c + x @ W)).sum(1)
    return unnormalised.mean() - torch.logsumexp(h @ c + log_z_h, 0)


@pytest.mark.parametrize("units", UNITS)
def test_the_centred_gradient_is_autograd_in_centred_coordinates(units: str) -> None:
    """W, b' = b + s W lambda and c' = c + W' mu are what centring ascends in; the step is then brought back to W, b, c."""
    model = make(units, 4, 3)
    x = tensor(np.random.default_rng(3).integers(0, 2, (9, 4)).astype(float))
    s = torch.ones(4, dtype=torch.float64) if model.log_sigma is None else torch.exp(2 * model.log_sigma.detach())
    mu, lam = x.mean(0), tensor(np.array([0.2, 0.6, 0.9]))
    W0, b0, c0 = (p.detach().clone().requires_grad_() for p in (model.W, model.b, model.c))
    plain = torch.autograd.grad(log_likelihood(model, x, W0, b0, c0), (W0, b0, c0))

    W, b, c = (t.detach().clone().requires_grad_() for t in (W0, b0 + s * (W0 @ lam), c0 + W0.T @ mu))
    step = torch.autograd.grad(log_likelihood(model, x, W, b - s * (W @ lam), c - W.T @ mu), (W, b, c))

    def back(W: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return W, b - s * (W @ lam), c - W.T @ mu

    _, expected = torch.autograd.functional.jvp(back, (W.detach(), b.detach(), c.detach()), step)
    for got, want in zip(centered_gradient(*(g.clone() for g in plain), mu, lam, s), expected, strict=True):
        torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
    assert not torch.allclose(expected[0], plain[0])


@pytest.mark.parametrize("units", UNITS)
def test_center_takes_the_hidden_response_to_the_mean(units: str) -> None:
    model = make(units, 4, 3)
    x = tensor(np.random.default_rng(3).integers(0, 2, (9, 4)).astype(float))
    model.free_energy(x).mean().backward()
    plain = [p.grad.clone() for p in (model.W, model.b, model.c)]  # type: ignore[union-attr]
    s = 1.0 if model.log_sigma is None else torch.exp(2 * model.log_sigma.detach())
    mu = x.mean(0)
    lam = tensor(expit(model.c.detach().numpy() + mu.numpy() @ model.W.detach().numpy()))
    model.center(mu)
    for p, want in zip((model.W, model.b, model.c), centered_gradient(*plain, mu, lam, s), strict=True):
        torch.testing.assert_close(p.grad, want, atol=1e-13, rtol=0)


def test_centring_is_a_positive_definite_map() -> None:
    """So a step along it always climbs, and it is zero only where the plain gradient is."""
    mu, lam, sizes = tensor(np.array([0.3, 0.8])), tensor(np.array([0.5, 0.1, 0.9])), [6, 2, 3]

    def flat(v: Tensor) -> Tensor:
        W, b, c = v.split(sizes)
        return torch.cat([part.flatten() for part in centered_gradient(W.clone().view(2, 3), b, c, mu, lam)])

    matrix = torch.autograd.functional.jacobian(flat, torch.zeros(11, dtype=torch.float64))
    torch.testing.assert_close(matrix, matrix.T, atol=1e-14, rtol=0)
    assert torch.linalg.eigvalsh(matrix).min() > 0.01


def test_bernoulli_units_start_at_the_smoothed_base_rates(generator: torch.Generator) -> None:
    model = RBM(3, 2, generator=generator).double()
    x = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 1], [1, 0, 0]], dtype=float)
    model.initialise(as_rows(x), generator=generator)
    rates = (x.sum(0) + 0.5) / 5
    np.testing.assert_allclose(model.b.detach().numpy(), np.log(rates / (1 - rates)), atol=1e-12)
    np.testing.assert_allclose(model.reference_natural[0].numpy(), np.log(rates / (1 - rates)), atol=1e-12)
    assert (model.c == 0).all()


def test_weights_count_in_the_base_rates(generator: torch.Generator) -> None:
    model = RBM(1, 1, generator=generator).double()
    model.initialise(as_rows(np.array([[1.0], [0.0]]), [3.0, 1.0]), generator=generator)
    assert torch.sigmoid(model.b).item() == pytest.approx((0.75 * 2 + 0.5) / 3, abs=1e-12)


def test_gaussian_units_start_at_mean_and_variance(generator: torch.Generator) -> None:
    model = RBM(2, 2, visible_units="gaussian", generator=generator).double()
    x = np.random.default_rng(4).normal([1.0, -3.0], [0.5, 2.0], (50, 2))
    model.initialise(as_rows(x), generator=generator)
    np.testing.assert_allclose(model.b.detach().numpy(), x.mean(0), atol=1e-12)
    np.testing.assert_allclose(model.log_sigma.exp().detach().numpy(), x.std(0), atol=1e-12)  # type: ignore[union-attr]
    log_density = -model.reference().free_energy(tensor(x)) - model.reference().log_z
    z = (x - x.mean(0)) / x.std(0)
    np.testing.assert_allclose(log_density.numpy(), -0.5 * (z**2).sum(1) - np.log(2 * np.pi * x.std(0).prod()), atol=1e-10)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e5])
def test_a_constant_column_has_no_density(value: float, generator: torch.Generator) -> None:
    x = np.stack([np.linspace(0, 1, 7), np.full(7, value)], 1)
    with pytest.raises(
        InputError, match=r"RBM: x must vary in every column when visible_units='gaussian'; got the same value throughout column 1\."
    ):
        RBM(2, 2, visible_units="gaussian", generator=generator).initialise(as_rows(x), generator=generator)


def test_leading_dimensions_are_batch() -> None:
    model = make("bernoulli")
    x = tensor(binary(3))
    assert model(x.view(2, 4, 3)).shape == (2, 4)
    torch.testing.assert_close(model(x.view(2, 4, 3)).flatten(), model(x))
    assert model(x[0]).shape == ()
    assert model.free_energies(x.view(2, 4, 3), torch.linspace(0, 1, 5, dtype=torch.float64)).shape == (5, 2, 4)


def test_settings_rebuild_the_same_model_without_its_weights(generator: torch.Generator) -> None:
    model = RBM(4, 3, visible_units="gaussian", generator=generator)
    again = RBM.from_settings(model.settings(), generator=generator)
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in model.state_dict().items()}
    again.load_state_dict(model.state_dict())
    x = torch.randn(5, 4, generator=generator)
    assert torch.equal(again(x), model(x))


def test_the_seed_makes_the_weights() -> None:
    first, again, other = (RBM(4, 3, scale=0.1, generator=torch.Generator().manual_seed(seed)).W for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"visible": 0}, r"RBM: visible must be a whole number of at least 1; got 0\."),
        ({"hidden": 0}, r"RBM: hidden must be a whole number of at least 1; got 0\."),
        ({"hidden": 2.0}, r"RBM: hidden must be a whole number of at least 1; got 2\.0\."),
        ({"visible_units": "poisson"}, r"RBM: visible_units must be one of 'bernoulli', 'gaussian', 'categorical'; got 'poisson'\."),
        ({"scale": -1.0}, r"RBM: scale must be a finite number of at least 0; got -1\.0\."),
    ],
)
def test_bad_settings(settings: dict, words: str, generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=words):
        RBM(**{"visible": 3, "hidden": 2, **settings}, generator=generator)


@pytest.mark.parametrize("units", UNITS)
def test_another_width_is_refused(units: str) -> None:
    with pytest.raises(InputError, match=r"RBM\.free_energy: x must have shape \(\*, 3\) to match RBM\(3, 2\); got \(5, 4\)\."):
        make(units)(torch.zeros(5, 4, dtype=torch.float64))
