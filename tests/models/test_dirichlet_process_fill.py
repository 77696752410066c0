"""Imputation by a Dirichlet process mixture against quadrature over its own predictive density, and
the prior by default.
"""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_iris

import partita
from partita.errors import Unsupported
from partita.models import DPMixture
from partita.models.directed.dirichlet_process.priors import gaussian_prior
from partita.objectives import CollapsedGibbs

NAN = float("nan")


def fitted(kernel: str, x: torch.Tensor, **settings: object) -> DPMixture:
    """A posterior of 20 draws, so that all of them take part."""
    g = torch.Generator().manual_seed(0)
    model = DPMixture(x.shape[1], kernel, generator=g, **settings)  # type: ignore[arg-type]
    partita.fit(model, x, CollapsedGibbs(chains=1, keep=20), epochs=40, generator=g)
    return model


def density(model: DPMixture, x: torch.Tensor) -> torch.Tensor:
    """p(x | data), averaged over the draws."""
    return model.log_predictive(x).exp().mean(0)


@pytest.fixture
def clouds() -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    return torch.cat(
        [
            torch.randn(15, 2, generator=g),
            torch.tensor([4.0, 1.0]) + torch.randn(12, 2, generator=g) * 0.5,
        ]
    ).double()


@pytest.mark.parametrize("settings", [{}, {"known_scale": 0.8}])
@pytest.mark.parametrize("seen", [-0.5, 3.0, 20.0])
def test_the_mean_and_the_draws_are_those_of_the_predictive(
    settings: dict[str, float], seen: float, clouds: torch.Tensor
) -> None:
    """Mean by quadrature (the t's tails beyond the grid carry less than 1e-3); draws by
    Kolmogorov's test, a false alarm in 1e4.
    """
    model, g = fitted("gaussian", clouds, **settings), torch.Generator().manual_seed(2)
    line = torch.linspace(-100, 100, 20_001, dtype=torch.float64)
    p = density(model, torch.stack([torch.full_like(line, seen), line], 1))
    row = torch.tensor([[seen, NAN]], dtype=torch.float64)
    assert float(model.fill(row, generator=g)[0, 1]) == pytest.approx(
        float((p * line).sum() / p.sum()), abs=2e-3
    )
    drawn = model.fill(row.expand(1000, -1), "draw", generator=g)
    assert bool((drawn[:, 0] == seen).all())
    cdf = (p.cumsum(0) / p.sum()).numpy()
    assert (
        stats.kstest(drawn[:, 1].numpy(), lambda v: np.interp(v, line.numpy(), cdf)).pvalue > 1e-4
    )


def test_coins_are_those_of_the_predictive() -> None:
    """p(x_m | x_o) as a ratio of masses; frequencies of 4000 draws to five standard errors."""
    g = torch.Generator().manual_seed(0)
    x = (torch.rand(30, 3, generator=g) < torch.tensor([0.9, 0.8, 0.2])).double()
    x[:12] = 1 - x[:12]
    model = fitted("bernoulli", x)
    pairs = torch.tensor(
        [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64
    )
    mass = density(model, pairs)
    mass /= mass.sum()
    row = torch.tensor([[1.0, NAN, NAN]], dtype=torch.float64)
    truth = torch.stack([mass[2] + mass[3], mass[1] + mass[3]])
    torch.testing.assert_close(
        model.fill(row, "mean", generator=g)[0, 1:], truth, rtol=0, atol=1e-12
    )
    assert model.fill(row, "mode", generator=g)[0, 1:].tolist() == (truth > 0.5).double().tolist()
    drawn = model.fill(row.expand(4000, -1), "draw", generator=g)
    shares = torch.stack([(drawn == pair).all(1).double().mean() for pair in pairs])
    assert bool(((shares - mass).abs() < 5 * (mass * (1 - mass) / 4000).sqrt()).all())


def test_a_row_of_nothing_and_a_whole_row(clouds: torch.Tensor) -> None:
    model, g = fitted("gaussian", clouds), torch.Generator().manual_seed(3)
    filled = model.fill(torch.tensor([[NAN, NAN], [1.0, 2.0]]), generator=g)
    assert filled[1].tolist() == [1.0, 2.0]
    # the prior's pull on each cluster is worth 0.01 rows
    torch.testing.assert_close(filled[0], clouds.mean(0), rtol=0, atol=0.02)


def test_counts_and_models_without_draws_are_refused() -> None:
    g = torch.Generator().manual_seed(0)
    counts = torch.poisson(torch.full((10, 3), 4.0), generator=g).double()
    with pytest.raises(
        Unsupported,
        match=r"counts have no distribution until their total is known\. Use MixtureDensity",
    ):
        fitted("multinomial", counts).fill(torch.tensor([[1.0, NAN, 2.0]]), generator=g)
    with pytest.raises(Unsupported, match="fill cannot run: no posterior draw is kept yet"):
        DPMixture(2, generator=g).fill(torch.zeros(1, 2), generator=g)


def test_the_default_prior_follows_any_linear_map() -> None:
    """kappa = 0.01, nu = 2D + 1, and D rows of the data's covariance over (1 + alpha) to the power
    2/D.
    """
    x = torch.from_numpy(load_iris().data)
    A = torch.tensor(
        [[2.0, 1, 0, 0], [0, 1, 0, 3], [0, 0, 5, 1], [1, 0, 0, 1]], dtype=torch.float64
    )
    one, other = gaussian_prior(x, alpha=3.0), gaussian_prior(x @ A.T, alpha=3.0)
    assert one[:2].tolist() == [0.01, 9.0]
    torch.testing.assert_close(
        one[6:].view(4, 4), 4 * torch.cov(x.T, correction=0) / 2, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        other[6:].view(4, 4), A @ one[6:].view(4, 4) @ A.T, rtol=1e-4, atol=1e-4
    )


def test_chains_that_disagree_say_so(clouds: torch.Tensor) -> None:
    model = fitted("gaussian", clouds)
    apart = torch.stack([torch.zeros(27), torch.arange(27)]).int()[None].repeat(60, 1, 1)
    model.partitions, model.alphas = apart, torch.ones(60, 2, dtype=torch.float64)
    assert model.fit_warnings()[0].startswith(
        "the chains are not mixed, the chains disagree, and none of them moves: "
    )
    # Gibbs sampling that finds one partition again and again is an answer
    model.partitions = apart[:, :1].repeat(1, 2, 1)
    assert (
        model.fit_warnings() == []
        and model.mixing().finding == "nearly mixed, no chain moved, and all are alike"
    )
