"""Mixtures against scikit-learn, scipy and enumeration: densities, marginals of what was observed,
EM's law, draws.
"""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, poisson
from sklearn.datasets import load_iris
from sklearn.mixture import GaussianMixture
from torch import Tensor

import partita
from partita.errors import InputError
from partita.models import Mixture
from partita.models.directed import mixture as mixing
from partita.models.directed.components import gaussian
from partita.models.directed.components.gaussian import floored_cholesky
from partita.objectives import EM
from partita.objectives.em import expected_statistics
from partita.tables import Rows

IRIS = torch.from_numpy(load_iris().data)
COVARIANCES = {"full": "full", "tied": "tied", "diagonal": "diag", "spherical": "spherical"}
KINDS: dict[str, dict[str, Any]] = {
    "full": {"covariance": "full"},
    "tied": {"covariance": "tied"},
    "diagonal": {"covariance": "diagonal"},
    "spherical": {"covariance": "spherical"},
    "bernoulli": {"component": "bernoulli"},
    "categorical": {"component": "categorical", "states": 3},
    "poisson": {"component": "poisson"},
}


def rows(kind: str, n: int = 120, width: int = 3, seed: int = 0) -> Tensor:
    """Two clusters in the support of a kind."""
    g = torch.Generator().manual_seed(seed)
    high = (torch.rand(n, 1, generator=g) < 0.4).double()
    u = torch.rand(n, width, generator=g, dtype=torch.float64)
    if kind == "bernoulli":
        return (u < 0.2 + 0.6 * high).double()
    if kind == "categorical":
        return (u * 2 + high).floor()
    if kind == "poisson":
        return torch.poisson(2 + 6 * high.expand(n, width), generator=g)
    return torch.randn(n, width, generator=g, dtype=torch.float64) * (1 + high) + 4 * high


def with_gaps(x: Tensor, share: float = 0.3, seed: int = 1) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    gaps = torch.rand(x.shape, generator=g) < share
    gaps[gaps.all(1), 0] = False
    return torch.where(gaps, torch.nan, x)


def fitted(kind: str, x: Tensor, components: int = 2, updates: int = 8) -> Mixture:
    g = torch.Generator().manual_seed(5)
    model = Mixture(components, x.shape[1], **KINDS[kind], generator=g)
    partita.fit(model, x, EM(), epochs=updates, tolerance=0.0, generator=g)
    return model.requires_grad_(False)


def moments(model: Mixture) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Weight, mean and covariance of each Gaussian component."""
    part: Any = model.component
    D = model.support.width
    if hasattr(part, "scale_tril"):
        covariance = part.covariance().expand(model.components, D, D)
    else:
        covariance = torch.diag_embed(torch.exp(2 * part.log_scale).expand(model.components, D))
    return [
        (float(w), m.numpy(), c.numpy())
        for w, m, c in zip(model.log_weights().exp(), part.location, covariance, strict=True)
    ]


def load_scikit_learn(theirs: GaussianMixture, kind: str) -> Mixture:
    model = Mixture(3, 4, covariance=kind, generator=torch.Generator()).requires_grad_(False)
    part: Any = model.component
    model.logits.copy_(torch.from_numpy(theirs.weights_).log())
    part.location.copy_(torch.from_numpy(theirs.means_))
    covariances = torch.from_numpy(np.asarray(theirs.covariances_))
    if kind in ("full", "tied"):
        part.scale_tril.copy_(torch.linalg.cholesky(covariances))
    else:
        part.log_scale.copy_(0.5 * covariances.log().view_as(part.log_scale))
    return model


@pytest.mark.parametrize("kind", COVARIANCES)
def test_densities_and_responsibilities_are_those_of_scikit_learn(kind: str) -> None:
    theirs = GaussianMixture(3, covariance_type=COVARIANCES[kind], random_state=0).fit(IRIS.numpy())
    model = load_scikit_learn(theirs, kind)
    torch.testing.assert_close(
        model.log_prob(IRIS),
        torch.from_numpy(theirs.score_samples(IRIS.numpy())),
        atol=1e-9,
        rtol=0,
    )
    torch.testing.assert_close(
        model.responsibilities(IRIS),
        torch.from_numpy(theirs.predict_proba(IRIS.numpy())),
        atol=1e-9,
        rtol=0,
    )


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_monomials_and_triangular_factors_give_the_same_fit(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = fitted(kind, IRIS, 3)
    monkeypatch.setattr(gaussian, "MONOMIAL_WIDTH", 0)
    other = fitted(kind, IRIS, 3)
    torch.testing.assert_close(one.log_prob(IRIS), other.log_prob(IRIS), atol=1e-8, rtol=0)


def test_narrow_components_far_from_the_origin_keep_their_digits() -> None:
    g = torch.Generator().manual_seed(0)
    model = Mixture(2, 2, generator=g).requires_grad_(False)
    model.component.location.copy_(torch.tensor([[0.0, 0.0], [1e4, 1e4]]))  # type: ignore[union-attr]
    model.component.scale_tril.copy_(1e-3 * torch.eye(2, dtype=torch.float64).expand(2, 2, 2))  # type: ignore[union-attr]
    x = torch.tensor([[1e4 + 1e-3, 1e4]], dtype=torch.float64)
    exact = multivariate_normal([1e4, 1e4], 1e-6 * np.eye(2)).logpdf(x[0].numpy()) - np.log(2)
    assert float(model.log_prob(x)) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_with_values_missing_the_density_is_the_marginal_by_hand(kind: str) -> None:
    x = with_gaps(rows(kind, 60))
    model = fitted(kind, x)
    for row, found in zip(x.numpy(), model.log_prob(x).tolist(), strict=True):
        o = ~np.isnan(row)
        by_hand = sum(
            w * multivariate_normal(m[o], c[np.ix_(o, o)]).pdf(row[o]) for w, m, c in moments(model)
        )
        assert found == pytest.approx(np.log(by_hand), abs=1e-10)


@pytest.mark.parametrize(
    ("kind", "values"), [("bernoulli", 2), ("categorical", 3), ("poisson", 60)]
)
def test_masses_sum_to_one_and_missing_values_are_summed_out(kind: str, values: int) -> None:
    x = with_gaps(rows(kind, 60, 2))
    model = fitted(kind, x)
    every = torch.tensor(list(itertools.product(range(values), repeat=2)), dtype=torch.float64)
    mass = model.log_prob(every).exp().view(values, values)
    assert float(mass.sum()) == pytest.approx(1.0, abs=1e-9)
    first = torch.stack(
        [
            torch.arange(values, dtype=torch.float64),
            torch.full((values,), torch.nan, dtype=torch.float64),
        ],
        1,
    )
    torch.testing.assert_close(model.log_prob(first).exp(), mass.sum(1), atol=1e-10, rtol=1e-8)


def test_poisson_components_have_scipys_masses() -> None:
    model = fitted("poisson", rows("poisson"))
    rates, weights = model.component.log_rate.exp().numpy(), model.log_weights().exp().numpy()  # type: ignore[operator]
    x = rows("poisson", 5, seed=4)
    by_hand = np.log(
        sum(
            w * poisson(rate).pmf(x.numpy()).prod(1) for w, rate in zip(weights, rates, strict=True)
        )
    )
    np.testing.assert_allclose(model.log_prob(x).numpy(), by_hand, atol=1e-10)


@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_em_never_lowers_the_likelihood(kind: str, gaps: float) -> None:
    x, g = with_gaps(rows(kind), gaps), torch.Generator().manual_seed(2)
    weight = torch.rand(len(x), generator=g) + 0.1
    model = Mixture(3, 3, **KINDS[kind], generator=g)
    run = partita.fit(model, x, EM(), sample_weight=weight, epochs=40, tolerance=0.0, generator=g)
    losses = [loss for _, loss in run.series("loss")]
    # where no bit moves any more, which may be sooner on some processors
    assert len(losses) == 40 or losses[-1] == losses[-2]
    assert max(np.diff(losses)) <= 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_add_up_over_chunks_and_weights_count_rows(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = with_gaps(rows(kind, 50))
    model = fitted(kind, x)
    whole = model.e_step(x)
    parts = [model.e_step(part) for part in x.split(17)]
    monkeypatch.setattr(mixing, "CELLS", 100)
    weight = torch.randint(0, 3, (50,), generator=torch.Generator().manual_seed(0))
    weighted = model.e_step(x, weight.double())
    repeated = model.e_step(x.repeat_interleave(weight, 0))
    for name, value in whole.items():
        torch.testing.assert_close(sum(part[name] for part in parts), value)
        torch.testing.assert_close(weighted[name], repeated[name])


def best_of_two_starts(x: Tensor, components: int, covariance: str) -> float:
    best = -np.inf
    for seed in range(2):
        g = torch.Generator().manual_seed(seed)
        model = Mixture(components, x.shape[1], covariance=covariance, generator=g)
        partita.fit(model, x, EM(restarts=6), tolerance=1e-9, generator=g)
        best = max(best, float(model.log_prob(x).detach().sum()))
    return best


def test_iris_reaches_its_known_maximum() -> None:
    assert best_of_two_starts(IRIS, 3, "full") == pytest.approx(-180.185, abs=2e-3)


@pytest.mark.parametrize(
    ("components", "covariance", "known"), [(3, "tied", -1126.32), (2, "full", -1130.26)]
)
def test_old_faithful_reaches_its_known_maximum(
    components: int, covariance: str, known: float
) -> None:
    path = Path(os.environ.get("PARTITA_DATA", "")) / "mixtures" / "mixtures.npz"
    if not path.is_file():
        pytest.skip("PARTITA_DATA has no mixtures/mixtures.npz")
    x = torch.from_numpy(np.load(path)["faithful"])
    assert best_of_two_starts(x, components, covariance) == pytest.approx(known, abs=6e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_moments_of_the_model(kind: str) -> None:
    """Means of 20,000 draws within five standard errors: a false alarm in 2e-6 for each of 21
    columns.
    """
    model = fitted(kind, rows(kind))
    draws = model.draw(20_000, generator=torch.Generator().manual_seed(3))
    model.support.check(draws, "draw")
    weights, part = model.log_weights().exp(), model.component
    mean = weights @ (part.location if hasattr(part, "location") else part.mean())  # type: ignore[operator]
    assert ((draws.mean(0) - mean).abs() < 5 * draws.std(0) / 20_000**0.5).all()


def test_missing_values_are_filled_by_the_conditional_mean() -> None:
    x = with_gaps(rows("full", 40), 0.4)
    model = fitted("full", x)
    filled = model.fill(x, "mean", generator=torch.Generator()).numpy()
    for row, got in zip(x.numpy(), filled, strict=True):
        o = ~np.isnan(row)
        densities = [
            w * multivariate_normal(m[o], c[np.ix_(o, o)]).pdf(row[o]) for w, m, c in moments(model)
        ]
        means = [
            m[~o] + c[np.ix_(~o, o)] @ np.linalg.solve(c[np.ix_(o, o)], row[o] - m[o])
            for _, m, c in moments(model)
        ]
        by_hand = sum(d * m for d, m in zip(densities, means, strict=True)) / sum(densities)
        np.testing.assert_allclose(got[o], row[o])
        np.testing.assert_allclose(got[~o], by_hand, atol=1e-9)


@pytest.mark.parametrize("kind", ["full", "tied", "diagonal", "bernoulli", "poisson"])
def test_drawn_values_average_to_the_posterior_mean(kind: str) -> None:
    """Means of 4,000 draws within five standard errors: a false alarm in 2e-6 for each of 10
    values.
    """
    model, row = fitted(kind, rows(kind)), rows(kind, 1, seed=9)
    row[0, :2] = torch.nan
    g = torch.Generator().manual_seed(1)
    draws = model.fill(row.expand(4000, -1), "draw", generator=g)[:, :2]
    mean = model.fill(row, "mean", generator=g)[0, :2]
    assert ((draws.mean(0) - mean).abs() < 5 * draws.std(0) / 4000**0.5 + 1e-12).all()


@pytest.mark.parametrize(
    ("kind", "values"), [("bernoulli", 2), ("categorical", 3), ("poisson", 40)]
)
def test_the_mode_is_the_most_probable_value(kind: str, values: int) -> None:
    model, row = fitted(kind, rows(kind)), rows(kind, 1, seed=9)
    row[0, 1] = torch.nan
    trials = row.expand(values, -1).clone()
    trials[:, 1] = torch.arange(values)
    assert (
        model.fill(row, "mode", generator=torch.Generator())[0, 1]
        == model.log_prob(trials).argmax()
    )


def test_where_em_ends_the_gradient_vanishes() -> None:
    x = rows("full", 80, 2)
    model = fitted("full", x, updates=200).requires_grad_(True)
    model.log_prob(x).mean().backward()
    assert max(float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None) < 1e-3


def test_a_raised_covariance_is_the_best_one_above_the_floor() -> None:
    """No small change within the constraint has a larger likelihood."""
    S = torch.diag(torch.tensor([2.0, 1e-9, 0.5], dtype=torch.float64))
    factor, held = floored_cholesky(S, 0.1)

    def likelihood(covariance: Tensor) -> float:
        return float(-torch.logdet(covariance) - torch.trace(torch.linalg.solve(covariance, S)))

    best, g = factor @ factor.mT, torch.Generator().manual_seed(0)
    assert bool(held)
    for _ in range(200):
        change = 0.05 * torch.randn(3, 3, generator=g, dtype=torch.float64)
        nearby, _ = floored_cholesky(best + change + change.mT, 0.1)
        assert likelihood(nearby @ nearby.mT) <= likelihood(best) + 1e-9


@pytest.mark.parametrize("kind", COVARIANCES)
def test_one_point_per_component_is_held_back_and_said(kind: str) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.tensor([[0.0, 0.0], [5.0, 1.0], [9.0, 7.0]])
    with pytest.warns(partita.training.PartitaWarning, match="is held there|are held at"):
        run = partita.fit(Mixture(3, 2, covariance=kind, generator=g), x, EM(), generator=g)
    assert any("component" in warning for warning in run.warnings)
    assert torch.isfinite(run.model.log_prob(x)).all()  # type: ignore[operator]


def test_wrong_arguments_are_named() -> None:
    g = torch.Generator()
    with pytest.raises(InputError, match="components must be at most the number of rows, 3; got 4"):
        Mixture(4, 2, generator=g).initialize(Rows(torch.zeros(3, 2)), generator=g)
    with pytest.raises(InputError, match="states must be given for categorical components"):
        Mixture(2, 2, "categorical", generator=g)
    with pytest.raises(InputError, match=r"covariance must be one of 'full', 'tied'"):
        Mixture(2, 2, covariance="diag", generator=g)
    with pytest.raises(
        InputError, match=r"have shape \(\*, 2\) to match Mixture\(2, 2, gaussian full\)"
    ):
        Mixture(2, 2, generator=g).log_prob(torch.zeros(3, 5))
    with pytest.raises(InputError, match="counts 0, 1, 2"):
        partita.fit(
            Mixture(2, 2, "poisson", generator=g),
            torch.tensor([[0.5, 1.0], [1.0, 2.0]]),
            generator=g,
        )


def test_rows_without_values_have_probability_one_but_teach_nothing() -> None:
    x = rows("full", 30)
    model = fitted("full", x)
    nothing = torch.full((1, 3), torch.nan)
    assert float(model.log_prob(nothing)) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(InputError, match="an observed value in every row; got none in row 30"):
        partita.fit(model, torch.cat([x, nothing]), EM(), generator=torch.Generator())
    x[:, 1] = torch.nan
    with pytest.raises(InputError, match="an observed value in every column; got none in column 1"):
        partita.fit(model, x, EM(), generator=torch.Generator())


def test_expectation_reads_a_table_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows("full", 50)
    model = fitted("full", x)
    whole = expected_statistics(model, Rows(x), generator=torch.Generator())
    monkeypatch.setattr("partita.tables.arrays.CHUNK", 21)
    for name, value in expected_statistics(model, Rows(x), generator=torch.Generator()).items():
        torch.testing.assert_close(value, whole[name])
