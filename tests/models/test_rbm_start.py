"""Where a restricted Boltzmann machine starts: the seed's weights, the data's base rates, means and
variances; what is refused.
"""

import numpy as np
import pytest
import torch
from tests.models.rbms import tensor

from partita.errors import InputError
from partita.models import RBM
from partita.tables import as_rows


def test_bernoulli_units_start_at_the_smoothed_base_rates(generator: torch.Generator) -> None:
    model = RBM(3, 2, generator=generator).double()
    x = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 1], [1, 0, 0]], dtype=float)
    model.initialize(as_rows(x), generator=generator)
    rates = (x.sum(0) + 0.5) / 5
    np.testing.assert_allclose(model.b.detach().numpy(), np.log(rates / (1 - rates)), atol=1e-12)
    np.testing.assert_allclose(
        model.reference_natural[0].numpy(), np.log(rates / (1 - rates)), atol=1e-12
    )
    assert (model.c == 0).all()


def test_weights_count_in_the_base_rates(generator: torch.Generator) -> None:
    model = RBM(1, 1, generator=generator).double()
    model.initialize(as_rows(np.array([[1.0], [0.0]]), [3.0, 1.0]), generator=generator)
    assert torch.sigmoid(model.b).item() == pytest.approx((0.75 * 2 + 0.5) / 3, abs=1e-12)


def test_gaussian_units_start_at_mean_and_variance(generator: torch.Generator) -> None:
    model = RBM(2, 2, visible_units="gaussian", generator=generator).double()
    x = np.random.default_rng(4).normal([1.0, -3.0], [0.5, 2.0], (50, 2))
    model.initialize(as_rows(x), generator=generator)
    np.testing.assert_allclose(model.b.detach().numpy(), x.mean(0), atol=1e-12)
    np.testing.assert_allclose(model.log_sigma.exp().detach().numpy(), x.std(0), atol=1e-12)  # type: ignore[union-attr]
    log_density = -model.reference().free_energy(tensor(x)) - model.reference().log_z
    z = (x - x.mean(0)) / x.std(0)
    np.testing.assert_allclose(
        log_density.numpy(), -0.5 * (z**2).sum(1) - np.log(2 * np.pi * x.std(0).prod()), atol=1e-10
    )


@pytest.mark.parametrize("value", [0.0, 0.1, -1e5])
def test_a_constant_column_has_no_density(value: float, generator: torch.Generator) -> None:
    x = np.stack([np.linspace(0, 1, 7), np.full(7, value)], 1)
    with pytest.raises(
        InputError,
        match=r"RBM: x must vary in every column when visible_units='gaussian'; got the same value "
        r"throughout column 1\.",
    ):
        RBM(2, 2, visible_units="gaussian", generator=generator).initialize(
            as_rows(x), generator=generator
        )


def test_the_seed_makes_the_weights() -> None:
    first, again, other = (
        RBM(4, 3, scale=0.1, generator=torch.Generator().manual_seed(seed)).W for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"visible": 0}, r"RBM: visible must be a whole number of at least 1; got 0\."),
        ({"hidden": 0}, r"RBM: hidden must be a whole number of at least 1; got 0\."),
        ({"hidden": 2.0}, r"RBM: hidden must be a whole number of at least 1; got 2\.0\."),
        (
            {"visible_units": "poisson"},
            r"RBM: visible_units must be one of 'bernoulli', 'gaussian', 'categorical'; got "
            r"'poisson'\.",
        ),
        ({"scale": -1.0}, r"RBM: scale must be a finite number of at least 0; got -1\.0\."),
    ],
)
def test_bad_settings(settings: dict, words: str, generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=words):
        RBM(**{"visible": 3, "hidden": 2, **settings}, generator=generator)
