"""The restricted Boltzmann machine against sums over all states and quadrature, in float64."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate
from scipy.special import expit, logsumexp
from tests.models.rbms import UNITS, binary, energy, log_z, make, some_rows, tensor

from partita.core.enumeration import log_partition
from partita.errors import InputError
from partita.models import RBM
from partita.models.energy.rbm import sufficient_statistics
from partita.objectives import positive_phase


@pytest.mark.parametrize("units", UNITS)
def test_energy_and_free_energy(units: str) -> None:
    model = make(units)
    for x in some_rows(model):
        expected = [energy(model, x, h) for h in binary(2)]
        got = model.energy(tensor(x).expand(4, -1), tensor(binary(2)))
        np.testing.assert_allclose(got.detach().numpy(), expected, atol=1e-12)
        assert model.free_energy(tensor(x)).item() == pytest.approx(
            -logsumexp(-np.array(expected)), abs=1e-12
        )


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("beta", [None, 0.0, 0.4, 1.0])
def test_hidden_given_visible(units: str, beta: float | None) -> None:
    model = make(units)
    at = model if beta is None else model.annealed(beta)
    for x in some_rows(model):
        weights = np.exp([-energy(model, x, h, 1.0 if beta is None else beta) for h in binary(2)])
        expected = weights @ binary(2) / weights.sum()
        np.testing.assert_allclose(
            at.hidden_given_visible(tensor(x)).probs.detach().numpy(), expected, atol=1e-12
        )  # type: ignore[operator]


@pytest.mark.parametrize("beta", [None, 0.0, 0.4, 1.0])
def test_bernoulli_visible_given_hidden(beta: float | None) -> None:
    model = make("bernoulli")
    at = model if beta is None else model.annealed(beta)
    for h in binary(2):
        weights = np.exp([-energy(model, x, h, 1.0 if beta is None else beta) for x in binary(3)])
        expected = weights @ binary(3) / weights.sum()
        np.testing.assert_allclose(
            at.visible_given_hidden(tensor(h)).probs.detach().numpy(), expected, atol=1e-12
        )  # type: ignore[operator]


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
        # the whole density, not only two moments
        at_one = math.exp(given.log_prob(tensor(np.array([1.0]))).item())
        assert at_one == pytest.approx(mass(1.0) / z, abs=1e-10)


def test_the_conditionals_are_the_formulas_of_the_notes() -> None:
    model = make("gaussian")
    x, h = tensor(np.array([0.3, -1.0, 2.0])), tensor(np.array([1.0, 0.0]))
    W, b, c, s = (p.detach().numpy() for p in (model.W, model.b, model.c, model.log_sigma.exp()))  # type: ignore[union-attr]
    np.testing.assert_allclose(
        model.hidden_given_visible(x).probs.detach().numpy(), expit(c + W.T @ x.numpy()), atol=1e-12
    )
    given = model.visible_given_hidden(h)
    np.testing.assert_allclose(given.mean.detach().numpy(), b + s**2 * (W @ h.numpy()), atol=1e-12)
    np.testing.assert_allclose(given.stddev.detach().numpy(), s, atol=1e-12)


@pytest.mark.parametrize("visible", [1, 2])
def test_gaussian_log_partition_over_h_is_the_integral_over_x(visible: int) -> None:
    model = make("gaussian", visible=visible, hidden=3, scale=0.5)
    over_h = logsumexp([-model.hidden_free_energy(tensor(h)).item() for h in binary(model.hidden)])
    assert over_h == pytest.approx(log_z(model), abs=1e-10)


def test_gaussian_hidden_free_energy_in_closed_form() -> None:
    """The integral of exp(m x / s^2 - x^2 / (2 s^2)) is sqrt(2 pi) s exp(m^2 / (2 s^2)), with m = b
    + s^2 W h.
    """
    model = make("gaussian", visible=4, hidden=3)
    W, b, c, s = (p.detach().numpy() for p in (model.W, model.b, model.c, model.log_sigma.exp()))  # type: ignore[union-attr]
    for h in binary(3):
        m = b + s**2 * (W @ h)
        expected = -(c @ h + np.sum(0.5 * np.log(2 * np.pi) + np.log(s) + m**2 / (2 * s**2)))
        assert model.hidden_free_energy(tensor(h)).item() == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(("visible", "hidden"), [(5, 2), (2, 6), (4, 4)])
@pytest.mark.parametrize("beta", [None, 0.0, 0.6])
def test_bernoulli_log_partition_over_x_is_that_over_h(
    visible: int, hidden: int, beta: float | None
) -> None:
    model = make("bernoulli", visible, hidden, scale=1.5)
    at = model if beta is None else model.annealed(beta)
    sums = {side.name: log_partition(side, model.W).item() for side in at.sides()}
    expected = log_z(model, 1.0 if beta is None else beta)
    assert sums == {
        "visible": pytest.approx(expected, abs=1e-10),
        "hidden": pytest.approx(expected, abs=1e-10),
    }


def test_a_gaussian_model_is_summed_over_its_hidden_side_at_every_temperature() -> None:
    model = make("gaussian", visible=1, hidden=3, scale=0.5)
    for beta in (0.0, 0.5, 1.0):
        (side,) = model.annealed(beta).sides()
        assert side.name == "hidden"
        assert log_partition(side, model.W).item() == pytest.approx(log_z(model, beta), abs=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_in_matrix_form_are_the_sum_over_rows_and_the_positive_phase(
    weighted: bool,
) -> None:
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


def test_leading_dimensions_are_batch() -> None:
    model = make("bernoulli")
    x = tensor(binary(3))
    assert model(x.view(2, 4, 3)).shape == (2, 4)
    torch.testing.assert_close(model(x.view(2, 4, 3)).flatten(), model(x))
    assert model(x[0]).shape == ()
    assert model.free_energies(
        x.view(2, 4, 3), torch.linspace(0, 1, 5, dtype=torch.float64)
    ).shape == (5, 2, 4)


def test_settings_rebuild_the_same_model_without_its_weights(generator: torch.Generator) -> None:
    model = RBM(4, 3, visible_units="gaussian", generator=generator)
    again = RBM.from_settings(model.settings(), generator=generator)
    assert {k: v.shape for k, v in again.state_dict().items()} == {
        k: v.shape for k, v in model.state_dict().items()
    }
    again.load_state_dict(model.state_dict())
    x = torch.randn(5, 4, generator=generator)
    assert torch.equal(again(x), model(x))


@pytest.mark.parametrize("units", UNITS)
def test_another_width_is_refused(units: str) -> None:
    with pytest.raises(
        InputError,
        match=r"RBM\.free_energy: x must have shape \(\*, 3\) to match RBM\(3, 2\); got \(5, 4\)\.",
    ):
        make(units)(torch.zeros(5, 4, dtype=torch.float64))
