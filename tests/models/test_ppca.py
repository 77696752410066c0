"""Probabilistic PCA and factor analysis against closed forms, scikit-learn, and Gaussians
marginalized by hand.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA, FactorAnalysis
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import partita
from partita.errors import InputError, Unsupported
from partita.models import PPCA, MixturePPCA
from partita.objectives import EM, ClosedForm
from partita.tables import Rows
from partita.training.checkpoint import load_weights

IRIS = torch.from_numpy(load_iris().data)


def with_gaps(x: Tensor, share: float = 0.25) -> Tensor:
    gaps = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < share
    gaps[gaps.all(1), 0] = False
    return torch.where(gaps, torch.nan, x)


def fitted(model: Any, x: Tensor, updates: int = 300, tolerance: float = 1e-12) -> Any:
    partita.fit(
        model,
        x,
        EM(),
        epochs=updates,
        tolerance=tolerance,
        generator=torch.Generator().manual_seed(3),
    )
    return model.requires_grad_(False)


def covariances(model: Any) -> Tensor:
    part = model.component
    return part.loadings @ part.loadings.mT + torch.diag_embed(part.noise())


@pytest.mark.parametrize("latent", [1, 2, 3])
def test_em_reaches_the_closed_form(latent: int, generator: torch.Generator) -> None:
    by_em = fitted(PPCA(4, latent, generator=generator), IRIS, 3000)
    solved = PPCA(4, latent, generator=generator)
    partita.fit(solved, IRIS, ClosedForm(), generator=generator)
    solved.requires_grad_(False)
    assert float(by_em.log_prob(IRIS).sum()) == pytest.approx(
        float(solved.log_prob(IRIS).sum()), abs=1e-6
    )
    torch.testing.assert_close(covariances(by_em), covariances(solved), atol=1e-5, rtol=1e-4)
    gap = torch.linalg.svdvals(
        torch.linalg.qr(by_em.component.loadings[0])[0].mT
        @ torch.linalg.qr(solved.component.loadings[0])[0]
    )
    # the same principal subspace
    torch.testing.assert_close(gap, torch.ones_like(gap), atol=1e-6, rtol=0)


def test_the_closed_form_spans_the_leading_eigenvectors(generator: torch.Generator) -> None:
    model = PPCA(4, 2, generator=generator)
    model.solve(Rows(IRIS), generator=generator)
    values, vectors = np.linalg.eigh(np.cov(IRIS.numpy().T, bias=True))
    V = model.component.loadings[0].detach().numpy()
    assert float(model.component.noise()[0, 0].detach()) == pytest.approx(values[:2].mean())
    np.testing.assert_allclose(
        V @ V.T, vectors[:, 2:] * (values[2:] - values[:2].mean()) @ vectors[:, 2:].T, atol=1e-12
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_of_fewer_rows_than_columns_the_closed_form_is_that_of_the_covariance(
    weighted: bool, generator: torch.Generator
) -> None:
    """The eigenvectors of the products of rows against those of the D x D covariance, and
    scikit-learn's axes and noise.
    """
    x = torch.randn(12, 3, generator=generator) @ torch.randn(
        3, 40, generator=generator
    ) + torch.randn(12, 40, generator=generator)
    weight = torch.rand(12, generator=generator).double() + 0.5 if weighted else None
    rows, model = Rows(x.double(), weight), PPCA(40, 5, generator=generator)
    model.solve(rows, generator=generator)
    mean = rows.mean().double()
    off = (
        (x.double() - mean)
        if weight is None
        else (x.double() - mean) * (weight / weight.mean()).sqrt()[:, None]
    )
    values, vectors = np.linalg.eigh((off.mT @ off / 12).numpy())
    noise = values[:35].mean()
    expected = (vectors[:, 35:] * (values[35:] - noise)) @ vectors[:, 35:].T + noise * np.eye(40)
    np.testing.assert_allclose(covariances(model)[0].detach().numpy(), expected, atol=1e-10)
    if not weighted:
        theirs = PCA(5, svd_solver="full").fit(x.double().numpy())
        axes = model.component.loadings[0].detach().numpy()
        np.testing.assert_allclose(
            abs(theirs.components_ @ (axes / np.linalg.norm(axes, axis=0))), np.eye(5), atol=1e-8
        )


def test_more_dimensions_than_a_wide_table_has_rows_are_empty(generator: torch.Generator) -> None:
    """Six rows about their mean span five directions: the others have no loadings, and no noise is
    left.
    """
    model = PPCA(30, 8, generator=generator)
    model.solve(Rows(torch.randn(6, 30, generator=generator).double()), generator=generator)
    assert (model.component.loadings[0].norm(dim=0) > 1e-3).tolist() == [True] * 5 + [False] * 3
    assert model.component.loadings.isfinite().all() and bool(model.component.held.all())


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_what_columns_share_is_held_once(noise: str, generator: torch.Generator) -> None:
    """The uncertainty of loadings is one matrix until columns differ; with a gap in one far row all
    have their own, and nearly the same.
    """
    x = (
        torch.randn(60, 2, generator=generator).double()
        @ torch.randn(2, 5, generator=generator).double()
    )
    x += 0.4 * torch.randn(60, 5, generator=generator).double()
    gap = torch.cat([x, torch.tensor([[0.0, 0, 0, 0, torch.nan]], dtype=torch.float64)])
    models = [
        fitted(
            PPCA(5, 3, noise=noise, prior="ard", generator=torch.Generator().manual_seed(0)),
            part,
            40,
        )
        for part in (x, gap)
    ]
    assert [m.component.uncertainty.shape[1] for m in models] == [
        5 if noise == "diagonal" else 1,
        5,
    ]
    spread = [m.component.uncertainty.expand(-1, 5, -1, -1) for m in models]
    torch.testing.assert_close(spread[0], spread[1], rtol=0.2, atol=2e-3)
    fresh = PPCA(5, 3, noise=noise, prior="ard", generator=generator)
    load_weights(fresh, models[1].state_dict())
    torch.testing.assert_close(fresh.log_prob(x), models[1].log_prob(x), rtol=0, atol=0)


def test_factor_analysis_is_scikit_learns(generator: torch.Generator) -> None:
    x = load_wine().data
    x = torch.from_numpy((x - x.mean(0)) / x.std(0))
    theirs = FactorAnalysis(3, tol=1e-8, max_iter=3000, svd_method="lapack").fit(x.numpy())
    ours = fitted(PPCA(13, 3, noise="diagonal", generator=generator), x, 600, 1e-9)
    assert float(ours.log_prob(x).mean()) == pytest.approx(theirs.score(x.numpy()), abs=1e-5)
    part = ours.component
    part.loadings.copy_(torch.from_numpy(theirs.components_.T)[None])
    part.log_noise.copy_(torch.from_numpy(theirs.noise_variance_).log()[None])
    part.location.copy_(torch.from_numpy(theirs.mean_)[None])
    torch.testing.assert_close(
        ours.log_prob(x), torch.from_numpy(theirs.score_samples(x.numpy())), atol=1e-9, rtol=0
    )
    torch.testing.assert_close(
        ours.encode(x), torch.from_numpy(theirs.transform(x.numpy())), atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
@pytest.mark.parametrize("prior", [None, "ard"])
def test_with_values_missing_the_density_is_the_marginal_by_hand(
    noise: str, prior: str | None, generator: torch.Generator
) -> None:
    x = with_gaps(IRIS)
    model = fitted(MixturePPCA(2, 4, 2, noise=noise, prior=prior, generator=generator), x, 10)
    weights = model.log_weights().exp().numpy()
    means = model.component.location.numpy()
    covariance = covariances(model).numpy()
    for row, found in zip(x.numpy(), model.log_prob(x).tolist(), strict=True):
        o = ~np.isnan(row)
        parts = [
            w * multivariate_normal(m[o], c[np.ix_(o, o)]).pdf(row[o])
            for w, m, c in zip(weights, means, covariance, strict=True)
        ]
        assert found == pytest.approx(np.log(sum(parts)), abs=1e-9)


@pytest.mark.parametrize("gaps", [0.0, 0.25])
@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
@pytest.mark.parametrize("prior", [None, "ard"])
@pytest.mark.parametrize("components", [1, 3])
def test_em_never_lowers_the_likelihood_or_the_bound(
    components: int, prior: str | None, noise: str, gaps: float, generator: torch.Generator
) -> None:
    x = with_gaps(IRIS, gaps) if gaps else IRIS
    model = MixturePPCA(components, 4, 2, noise=noise, prior=prior, generator=generator)
    run = partita.fit(model, x, EM(), epochs=60, tolerance=0.0, generator=generator)
    losses = [loss for _, loss in run.series("loss")]
    assert max(np.diff(losses)) <= 1e-10


def test_filling_uses_the_conditional_mean(generator: torch.Generator) -> None:
    x = with_gaps(IRIS)
    model = fitted(PPCA(4, 2, generator=generator), x, 30)
    m, c = model.component.location[0].numpy(), covariances(model)[0].numpy()
    filled = model.fill(x, "mean", generator=generator).numpy()
    for row, got in zip(x.numpy(), filled, strict=True):
        o = ~np.isnan(row)
        np.testing.assert_allclose(
            got[~o],
            m[~o] + c[np.ix_(~o, o)] @ np.linalg.solve(c[np.ix_(o, o)], row[o] - m[o]),
            atol=1e-9,
        )


def test_posterior_draws_have_the_conditional_moments(generator: torch.Generator) -> None:
    """Means and variances of 20,000 draws within five standard errors: a false alarm in 1e-6 for
    each of 4 numbers.
    """
    model = fitted(PPCA(4, 2, generator=generator), IRIS, 30)
    row = IRIS[:1].clone()
    row[0, 1:3] = torch.nan
    draws = model.fill(row.expand(20_000, -1), "draw", generator=generator)[:, 1:3].numpy()
    m, c, o = model.component.location[0].numpy(), covariances(model)[0].numpy(), [0, 3]
    mean = m[1:3] + c[np.ix_([1, 2], o)] @ np.linalg.solve(
        c[np.ix_(o, o)], row[0, o].numpy() - m[o]
    )
    spread = np.diag(
        c[1:3, 1:3] - c[np.ix_([1, 2], o)] @ np.linalg.solve(c[np.ix_(o, o)], c[np.ix_(o, [1, 2])])
    )
    assert (np.abs(draws.mean(0) - mean) < 5 * np.sqrt(spread / 20_000)).all()
    assert (np.abs(draws.var(0) / spread - 1) < 5 * np.sqrt(2 / 20_000)).all()


def test_the_prior_keeps_as_many_dimensions_as_there_are(generator: torch.Generator) -> None:
    z = torch.randn(400, 3, generator=generator, dtype=torch.float64)
    x = z @ torch.randn(3, 10, generator=generator, dtype=torch.float64)
    x += 0.3 * torch.randn(400, 10, generator=generator, dtype=torch.float64)
    model = fitted(PPCA(10, 8, prior="ard", generator=generator), with_gaps(x, 0.1), 200, 1e-7)
    assert model.component.relevant().sum(1).tolist() == [3]
    assert float(model.component.noise()[0, 0]) == pytest.approx(0.09, rel=0.1)


def test_one_component_of_a_mixture_is_ppca(generator: torch.Generator) -> None:
    alone, mixed = (
        fitted(m, IRIS, 200)
        for m in (PPCA(4, 2, generator=generator), MixturePPCA(1, 4, 2, generator=generator))
    )
    torch.testing.assert_close(alone.log_prob(IRIS), mixed.log_prob(IRIS), atol=1e-6, rtol=0)


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that was made."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        sizes = [
            part.numel()
            for part in (out if isinstance(out, tuple | list) else [out])
            if isinstance(part, Tensor)
        ]
        self.numel = max([self.numel, *sizes])
        return out


def test_no_matrix_of_columns_by_columns_is_made(generator: torch.Generator) -> None:
    D, d, n = 3000, 2, 40
    x = torch.randn(n, d, generator=generator) @ torch.randn(
        d, D, generator=generator
    ) + torch.randn(n, D, generator=generator)
    model = PPCA(D, d, generator=generator)
    with Largest() as seen:
        statistics = model.e_step(x)
        model.m_step(statistics)
        model.log_prob(x)
    assert seen.numel <= 4 * n * D


def test_what_has_no_closed_form_says_so(generator: torch.Generator) -> None:
    with pytest.raises(
        Unsupported,
        match=r"ClosedForm cannot run on FactorAnalysis\(4, 2\): .* no closed form. Use EM instead",
    ):
        PPCA(4, 2, noise="diagonal", generator=generator).solve(Rows(IRIS), generator=generator)
    with pytest.raises(InputError, match="be complete to be solved in closed form"):
        PPCA(4, 2, generator=generator).solve(
            Rows(with_gaps(IRIS), missing=True), generator=generator
        )
    with pytest.raises(InputError, match="latent must be below the number of columns, 4; got 4"):
        PPCA(4, 4, generator=generator)


def test_with_every_latent_value_observed_the_m_step_is_regression(
    generator: torch.Generator,
) -> None:
    z = torch.randn(80, 2, generator=generator, dtype=torch.float64)
    x = (
        z @ torch.randn(2, 4, generator=generator, dtype=torch.float64)
        + 1
        + 0.5 * torch.randn(80, 4, generator=generator)
    )
    model = PPCA(4, 2, generator=generator).requires_grad_(False)
    model.m_step(model.e_step_given(x, z))
    design = torch.cat([z, torch.ones(80, 1, dtype=torch.float64)], 1)
    solution = torch.linalg.lstsq(design, x).solution
    torch.testing.assert_close(model.component.loadings[0], solution[:2].mT, atol=1e-10, rtol=0)
    torch.testing.assert_close(model.component.location[0], solution[2], atol=1e-10, rtol=0)
    assert float(model.component.noise()[0, 0]) == pytest.approx(
        float((x - design @ solution).square().mean())
    )


def test_observed_latent_values_enter_the_likelihood_as_in_the_joint_gaussian(
    generator: torch.Generator,
) -> None:
    model = fitted(PPCA(4, 2, generator=generator), IRIS, 5)
    x, z = with_gaps(IRIS[:20]), torch.randn(20, 2, generator=generator, dtype=torch.float64)
    z[::2, 0], z[::3, 1] = torch.nan, torch.nan
    V, m = model.component.loadings[0].numpy(), model.component.location[0].numpy()
    C = np.block([[V @ V.T + np.diag(model.component.noise()[0].numpy()), V], [V.T, np.eye(2)]])
    both, mean = np.concatenate([x.numpy(), z.numpy()], 1), np.concatenate([m, np.zeros(2)])
    seen = ~np.isnan(both)
    by_hand = sum(
        multivariate_normal(mean[o], C[np.ix_(o, o)]).logpdf(row[o])
        for row, o in zip(both, seen, strict=True)
    )
    assert float(model.e_step_given(x, z)["log_likelihood"]) == pytest.approx(by_hand, abs=1e-8)
    assert float(
        model.e_step_given(x, torch.full_like(z, torch.nan))["log_likelihood"]
    ) == pytest.approx(float(model.log_prob(x).sum()))
    losses = []
    for _ in range(20):
        statistics = model.e_step_given(x, z)
        losses.append(-float(statistics["log_likelihood"]))
        model.m_step(statistics)
    assert max(np.diff(losses)) <= 1e-10


def test_noise_that_vanishes_is_held_back_and_said(generator: torch.Generator) -> None:
    x = torch.randn(30, 1, generator=generator, dtype=torch.float64) @ torch.ones(
        1, 3, dtype=torch.float64
    )
    with pytest.warns(
        partita.training.PartitaWarning,
        match=r"a noise variance of component 0 fell below 1e-06 and is held there",
    ):
        partita.fit(PPCA(3, 1, generator=generator), x, EM(), generator=generator)
