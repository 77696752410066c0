"""From the reference to the restricted Boltzmann machine: every temperature against sums over all
states, in float64.
"""

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import norm
from tests.models.rbms import UNITS, binary, free_energy, log_z, make, some_rows, tensor

BETAS = [0.0, 0.3, 0.5, 0.85, 1.0]
FAMILY = 1e-4  # false-alarm rate of the statistical test, at its fixed seed


@pytest.mark.parametrize("units", UNITS)
def test_free_energies_at_all_temperatures(units: str) -> None:
    model = make(units)
    x = tensor(some_rows(model))
    together = model.free_energies(x, tensor(np.array(BETAS)))
    assert together.shape == (len(BETAS), len(x))
    for t, beta in enumerate(BETAS):
        expected = [free_energy(model, row, beta) for row in x.numpy()]
        np.testing.assert_allclose(together[t].detach().numpy(), expected, atol=1e-11)
        np.testing.assert_allclose(
            model.annealed(beta).free_energy(x).detach().numpy(), expected, atol=1e-11
        )
    torch.testing.assert_close(together[-1], model.free_energy(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("units", UNITS)
def test_a_field_serves_in_place_of_x(units: str) -> None:
    model = make(units)
    x = tensor(some_rows(model))
    field, beta = model.field(x), torch.tensor(0.4, dtype=torch.float64)
    blank = field._replace(x=field.x)
    torch.testing.assert_close(
        model.free_energies(x, beta[None], blank)[0],
        model.annealed(0.4).free_energy(x),
        atol=1e-12,
        rtol=0,
    )
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
    np.testing.assert_allclose(
        model.annealed(0.0).free_energy(x).detach().numpy(), expected, atol=1e-12
    )
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
    np.testing.assert_allclose(
        twice.free_energy(x).detach().numpy(),
        [free_energy(model, row, a * b) for row in x.numpy()],
        atol=1e-11,
    )
    for name, argument in (("hidden_given_visible", x), ("visible_given_hidden", h)):
        torch.testing.assert_close(
            getattr(twice, name)(argument).mean,
            getattr(once, name)(argument).mean,
            atol=1e-12,
            rtol=0,
        )
    torch.testing.assert_close(
        model.annealed(a).free_energies(x, tensor(np.array([b])))[0],
        once.free_energy(x),
        atol=1e-12,
        rtol=0,
    )


@pytest.mark.parametrize("units", UNITS)
def test_one_beta_for_each_chain(units: str) -> None:
    model = make(units)
    x = tensor(some_rows(model))
    betas = torch.linspace(0, 1, len(x), dtype=torch.float64)
    rows = model.annealed(betas)
    for i, beta in enumerate(betas.tolist()):
        one = model.annealed(beta)
        assert rows.free_energy(x)[i].item() == pytest.approx(
            free_energy(model, x[i].numpy(), beta), abs=1e-11
        )
        torch.testing.assert_close(
            rows.hidden_given_visible(x).probs[i],
            one.hidden_given_visible(x[i]).probs,
            atol=1e-12,
            rtol=0,
        )  # type: ignore[operator]
        h = torch.ones(len(x), 2, dtype=torch.float64)
        torch.testing.assert_close(
            rows.visible_given_hidden(h).mean[i],
            one.visible_given_hidden(h[0]).mean,
            atol=1e-12,
            rtol=0,
        )  # type: ignore[operator]
