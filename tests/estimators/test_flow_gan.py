"""FlowDensity and GANSampler: scikit-learn's contract, exact scores in the table's units, and what
a GAN does not have.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from partita.errors import InputError, PartitaWarning
from partita.estimators import FlowDensity, GANSampler, load
from partita.families import FAMILIES
from partita.tables import Rows

QUICK = [
    FlowDensity(2, n_hidden=4, epochs=1, batch_size=50),
    GANSampler(n_hidden=4, epochs=1, batch_size=50),
]


@pytest.mark.filterwarnings("ignore:fit. column")  # scikit-learn's data repeat values and columns
@parametrize_with_checks(QUICK)
def test_scikit_learn_contract(
    estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return np.random.default_rng(0).multivariate_normal(
        [10.0, -3.0], [[4.0, 1.5], [1.5, 1.0]], size=1500
    )


@pytest.fixture(scope="module")
def flow(table: np.ndarray) -> FlowDensity:
    return FlowDensity(2, n_hidden=16, epochs=20, random_state=0).fit(table)


def test_scores_are_densities_in_the_units_of_the_table(
    table: np.ndarray, flow: FlowDensity
) -> None:
    """Within 0.02 nats of the normal distribution fitted to the same rows."""
    best = multivariate_normal(table.mean(0), np.cov(table.T)).logpdf(table).mean()
    assert flow.score(table) == pytest.approx(best, abs=0.02) and flow.score_kind_ == "exact"
    assert flow.evaluate(table).kind == "exact"
    np.testing.assert_allclose(flow.anomaly_score(table), -flow.score_samples(table))


def test_normal_scores_and_back(table: np.ndarray, flow: FlowDensity) -> None:
    z = flow.transform(table)
    np.testing.assert_allclose(flow.inverse_transform(z), table, atol=1e-8)
    np.testing.assert_allclose(z.mean(0), 0, atol=0.15)
    assert list(flow.get_feature_names_out()) == ["flowdensity0", "flowdensity1"]
    with pytest.raises(InputError, match=r"X must have shape \(\*, 2\); got \(3, 1\)"):
        flow.inverse_transform(np.zeros((3, 1)))


def test_draws_look_like_the_table(table: np.ndarray, flow: FlowDensity) -> None:
    """Means of 4,000 draws, five standard errors."""
    x = flow.sample(4000, random_state=1)
    np.testing.assert_allclose(x.mean(0), table.mean(0), atol=5 * 2 / np.sqrt(4000) + 0.15)


def test_saved_and_loaded(table: np.ndarray, flow: FlowDensity, tmp_path: Any) -> None:
    again = load(flow.save(tmp_path / "flow"))
    np.testing.assert_array_equal(again.score_samples(table), flow.score_samples(table))
    sampler = GANSampler(n_hidden=8, epochs=1, random_state=0).fit(table[:100])
    np.testing.assert_array_equal(load(sampler.save(tmp_path / "gan")).sample(5), sampler.sample(5))


def test_a_gan_has_no_score_and_says_what_it_has(table: np.ndarray) -> None:
    sampler = GANSampler(n_hidden=8, epochs=1, random_state=0).fit(table[:200])
    for name in ("score", "score_samples", "anomaly_score"):
        assert not hasattr(sampler, name)
        with pytest.raises(
            AttributeError,
            match=rf"GANSampler has no {name}: a GAN has no likelihood; evaluate\(X\) compares X "
            r"with",
        ):
            getattr(sampler, name)
    q = sampler.evaluate(table[:200])
    assert (q.kind, q.unit, sampler.score_kind_) == ("none", "MMD^2", "none")
    assert sampler.sample(7).shape == (7, 2)
    assert "wasserstein" in sampler.run_.history[0]


def test_constant_and_repeated_columns(table: np.ndarray) -> None:
    with pytest.raises(
        InputError, match=r"FlowDensity: X must vary in every column to have a density"
    ):
        clone(QUICK[0]).fit(np.column_stack([table[:50], np.ones(50)]))
    with pytest.warns(
        PartitaWarning, match=r"column 2 is a copy of column 0, so the density is degenerate"
    ):
        clone(QUICK[0]).fit(np.column_stack([table[:100], table[:100, 0]]))


@pytest.mark.parametrize(
    ("name", "settings", "title", "objective"),
    [
        (
            "flow",
            {"n_layers": 3, "coupling": "spline"},
            "Flow(3, 3 spline couplings)",
            "ExactLikelihood",
        ),
        ("gan", {"n_latent": 4, "loss": "wasserstein"}, "GAN(3, 4 latent)", "Adversarial"),
    ],
)
def test_families(
    name: str, settings: dict[str, Any], title: str, objective: str, generator: Any
) -> None:
    rows = Rows(np.random.default_rng(0).normal(size=(50, 3)))
    model, built = FAMILIES[name].build(rows, settings, generator=generator)
    assert (model.title(), type(built).__name__, FAMILIES[name].encoding_kind(rows, settings)) == (
        title,
        objective,
        "real",
    )
