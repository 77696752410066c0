"""Models of columns of different sorts against SciPy's laws, enumeration and quadrature."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp

import partita
from partita.core.support import Categorical, Count, Real
from partita.errors import InputError
from partita.evaluators import IWAE
from partita.models import VAE, MixedAutoregressive, Mixture
from partita.objectives import EM, ExactLikelihood
from partita.tables import Rows
from partita.tables.schema import check_laws, places, support_of

LAWS = ("real", "count", 3, "binary", "real")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def mixture() -> Mixture:
    """Three components with parameters that differ in every column."""
    model = Mixture(3, 5, "mixed", laws=LAWS, generator=seeded())
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            # Cholesky factors
            if parameter.dim() == 3 and parameter.shape[-1] == parameter.shape[-2] == 2:
                parameter.add_(
                    0.5
                    * torch.randn(parameter.shape, generator=g, dtype=torch.float64).tril().abs()
                )
            else:
                parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64))
    return model


def by_hand(model: Mixture, x: np.ndarray) -> np.ndarray:
    """log p of complete rows from SciPy's laws."""
    gaussian, poisson, categorical, bernoulli = model.component.blocks
    total = np.zeros((3, len(x)))
    for k in range(3):
        covariance = gaussian.covariance()[k].detach().numpy()
        total[k] = stats.multivariate_normal.logpdf(
            x[:, [0, 4]], gaussian.location[k].detach().numpy(), covariance
        )
        total[k] += stats.poisson.logpmf(x[:, 1], poisson.mean()[k, 0].item())
        total[k] += np.log(torch.softmax(categorical.logits[k, 0], -1).detach().numpy())[
            x[:, 2].astype(int)
        ]
        total[k] += stats.bernoulli.logpmf(x[:, 3], torch.sigmoid(bernoulli.logits[k, 0]).item())
    return logsumexp(total + model.log_weights().detach().numpy()[:, None], axis=0)


def test_laws_and_their_support() -> None:
    assert places(LAWS) == {"real": [0, 4], "count": [1], 3: [2], "binary": [3]}
    assert (
        support_of(LAWS).parts[:3] == (Real(1), Count(1), Categorical(1, 3))
        and support_of(LAWS).width == 5
    )
    for wrong in (["string"], [0], [True], []):
        with pytest.raises(InputError, match="must be"):
            check_laws("Mixture", "laws", wrong)
    with pytest.raises(
        InputError,
        match="laws must be given for component='mixed', and only for it, one for each of 2 "
        "columns; got None",
    ):
        Mixture(2, 2, "mixed", generator=seeded())


def test_log_prob_is_that_of_the_laws_by_hand(mixture: Mixture) -> None:
    x = mixture.draw(200, generator=seeded(2))
    np.testing.assert_allclose(
        mixture.log_prob(x).detach().numpy(), by_hand(mixture, x.numpy()), rtol=0, atol=1e-10
    )


def test_missing_values_are_summed_and_integrated_out(mixture: Mixture) -> None:
    """The density without a count, a category and a bit is the sum over all their values; rows may
    miss all that is real.
    """
    x = mixture.draw(1, generator=seeded(3))
    rows = x.repeat(400 * 3 * 2, 1)
    values = torch.cartesian_prod(
        torch.arange(400.0), torch.arange(3.0), torch.arange(2.0)
    ).double()
    rows[:, 1:4] = values
    gap = x.clone()
    gap[:, 1:4] = torch.nan
    torch.testing.assert_close(
        mixture.log_prob(gap)[0], mixture.log_prob(rows).logsumexp(0), rtol=0, atol=1e-9
    )
    gap = torch.full((1, 5), torch.nan, dtype=torch.float64)
    assert mixture.log_prob(gap).item() == pytest.approx(0.0, abs=1e-12)


def test_em_with_gaps_climbs_to_where_the_slope_of_what_was_observed_is_zero(
    mixture: Mixture,
) -> None:
    x = mixture.draw(600, generator=seeded(4))
    x[torch.rand(x.shape, generator=seeded(5)) < 0.15] = torch.nan
    x = x[~x.isnan().all(1)]
    model = Mixture(2, 5, "mixed", laws=LAWS, generator=seeded())
    run = partita.fit(
        model,
        Rows(x.numpy(), missing=True),
        EM(),
        epochs=2000,
        tolerance=1e-13,
        generator=seeded(6),
    )
    losses = np.array([value for _, value in run.series("loss")])
    assert (np.diff(losses) <= 1e-10).all() and losses[0] - losses[-1] > 0.01
    model.log_prob(x).mean().backward()
    for name, parameter in model.named_parameters():
        slope = parameter.grad.tril() if parameter.shape[-2:] == (2, 2) else parameter.grad
        assert slope.abs().max() < 2e-5, name


def test_what_is_missing_is_drawn_and_filled_as_enumeration_says() -> None:
    """Chi-square of 4000 draws over six joint values of a bit and a category; it raises a false
    alarm once in a thousand seeds.
    """
    model = Mixture(2, 3, "mixed", laws=("binary", 3, "binary"), generator=seeded())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                2
                * torch.randn(
                    parameter.shape, generator=seeded(parameter.numel()), dtype=torch.float64
                )
            )
    states = model.support.states(0, 12, torch.zeros((), dtype=torch.float64))
    given = states[states[:, 2] == 1]
    truth = torch.softmax(model.log_prob(given), 0).detach()
    gap = torch.tensor([[torch.nan, torch.nan, 1.0]], dtype=torch.float64)
    drawn = model.fill(gap.repeat(4000, 1), "draw", generator=seeded(7))
    counts = torch.bincount((drawn[:, 0] * 3 + drawn[:, 1]).long(), minlength=6).numpy()
    assert stats.chisquare(counts, 4000 * truth.numpy()).pvalue > 1e-3
    likely = model.fill(gap, "likely", generator=seeded())[0]
    joint = truth.view(2, 3)
    assert likely.tolist() == [float(joint.sum(1).argmax()), float(joint.sum(0).argmax()), 1.0]


def test_intervals_of_imputation_draws_cover_at_their_level(mixture: Mixture) -> None:
    """Rows of the model itself: the hidden value's rank among 99 draws is uniform, so that the 6th
    to the 95th of 100 places, a 90 % interval, hold about 90 % of 1000 hidden values; 85 to 95 % is
    five standard errors to either side, past one alarm in a million.
    """
    x = mixture.draw(1000, generator=seeded(8))
    gap = x.clone()
    gap[:500, 0], gap[500:, 4], gap[:, 2] = torch.nan, torch.nan, torch.nan
    draws = torch.stack([mixture.fill(gap, "draw", generator=seeded(100 + i)) for i in range(99)])
    hidden = torch.cat(
        [(draws[:, :500, 0] < x[:500, 0]).sum(0), (draws[:, 500:, 4] < x[500:, 4]).sum(0)]
    )
    covered = ((hidden >= 5) & (hidden < 95)).double().mean().item()
    assert 0.85 <= covered <= 0.95
    assert (draws[:, ~gap.isnan()] == x[~gap.isnan()]).all()


def test_the_mixed_likelihood_of_a_vae_is_that_of_its_columns() -> None:
    model = VAE(5, 1, likelihood="mixed", laws=LAWS, widths=(6,), generator=seeded()).double()
    x, z = model.draw_joint(50, generator=seeded(1))
    x = x.double()
    given = model.output.distribution(model.decoder(z.double()))
    gaussian, poisson, categorical, bernoulli = given.parts
    by_part = gaussian.log_prob(x[:, [0, 4]]).sum(-1) + poisson.log_prob(x[:, [1]]).sum(-1)
    by_part = (
        by_part + categorical.log_prob(x[:, [2]]).sum(-1) + bernoulli.log_prob(x[:, [3]]).sum(-1)
    )
    torch.testing.assert_close(model.log_likelihood(x, z.double()), by_part)


def test_a_vae_with_gaps_bounds_the_likelihood_of_what_was_observed() -> None:
    """Against quadrature over its one latent dimension: IWAE with many draws is within 0.02 nats of
    it and, on average, not above it by more than 4 standard errors (one alarm in 30,000). Gradients
    stay finite.
    """
    model = VAE(5, 1, likelihood="mixed", laws=LAWS, widths=(6,), generator=seeded()).double()
    x = model.draw(40, generator=seeded(2)).double()
    x[torch.rand(x.shape, generator=seeded(3)) < 0.3] = torch.nan
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        joint = model.log_joint(x[:, None], z)
    truth = joint.logsumexp(1) + np.log(18 / 4000)
    q = IWAE(4000)(model, x, generator=seeded(4))
    assert abs(q.value - truth.mean().item()) < 0.02
    model.log_weights(x, 5, generator=seeded(5)).logsumexp(0).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_an_autoregressive_model_of_mixed_columns_is_normalized_and_looks_back_alone() -> None:
    model = MixedAutoregressive(
        ("count", "real", 3), components=2, widths=(12,), generator=seeded()
    ).double()
    grid, counts = torch.linspace(-30, 30, 3001, dtype=torch.float64), torch.arange(30.0).double()
    with torch.no_grad():
        rows = torch.cartesian_prod(counts, grid, torch.arange(3.0).double())
        assert model.log_prob(rows).exp().sum().item() * 0.02 == pytest.approx(1.0, abs=1e-6)
        x = model.draw(5, generator=seeded(1)).double()
        for later in range(3):
            changed = x.clone()
            changed[:, later:] = model.draw(5, generator=seeded(9)).double()[:, later:]
            for before in range(later + 1):
                torch.testing.assert_close(
                    model.net(model.seen(x))[before], model.net(model.seen(changed))[before]
                )


def test_an_autoregressive_model_learns_a_table_drawn_from_a_mixture(mixture: Mixture) -> None:
    """It closes at least three quarters of the gap between separate columns and the truth on new
    rows, and is not above the truth by more than 4 standard errors.
    """
    x, new = (mixture.draw(n, generator=seeded(n)) for n in (2000, 1000))
    model = MixedAutoregressive(LAWS, components=4, widths=(32,), generator=seeded()).double()
    apart = Mixture(1, 5, "mixed", "diagonal", laws=LAWS, generator=seeded())
    partita.fit(
        model,
        Rows(x.numpy()),
        ExactLikelihood(),
        epochs=15,
        learning_rate=0.01,
        generator=seeded(1),
    )
    partita.fit(apart, Rows(x.numpy()), EM(), generator=seeded(1))
    with torch.no_grad():
        behind, far = (mixture.log_prob(new) - other.log_prob(new) for other in (model, apart))
    assert -4 * behind.std().item() / 1000**0.5 < behind.mean().item() < 0.25 * far.mean().item()
