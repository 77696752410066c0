"""In which units columns share one noise variance: the rule against fits, scikit-learn's PCA, and
tables whose columns differ in units.
"""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA

from partita.errors import InputError
from partita.estimators import MixturePPCADensity, PPCADensity
from partita.families.scales import asks_for_own_scales, least_bic
from partita.tables import Rows

WINE, IRIS = load_wine().data, load_iris().data


def with_gaps(x: np.ndarray, share: float = 0.2) -> np.ndarray:
    gaps = np.random.default_rng(0).random(x.shape) < share
    gaps[gaps.all(1), 0] = False
    return np.where(gaps, np.nan, x)


def relative_error(guess: np.ndarray, gappy: np.ndarray, x: np.ndarray) -> float:
    """Mean squared error of what was missing, each column in its own units; 1 for column means."""
    off = (guess - x) / np.nanstd(gappy, 0)
    means = (np.nanmean(gappy, 0) - x) / np.nanstd(gappy, 0)
    return float(np.square(off[np.isnan(gappy)]).mean() / np.square(means[np.isnan(gappy)]).mean())


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_criterion_is_that_of_the_fits(d: int) -> None:
    """Equation 10.15 against closed-form fits, whose BIC lacks the D - 1 deviations that
    standardizing takes from the data.
    """
    deviation, n = IRIS.std(0), len(IRIS)
    common = least_bic(np.linalg.eigvalsh(np.cov(IRIS.T, bias=True)), n, [d], 1e-6)
    own = (
        least_bic(np.linalg.eigvalsh(np.corrcoef(IRIS.T)), n, [d], 1e-6)
        + 2 * n * np.log(deviation).sum()
    )
    assert common == pytest.approx(PPCADensity(d, scale="common").fit(IRIS).bic(IRIS), rel=1e-6)
    assert own == pytest.approx(PPCADensity(d, scale="columns").fit(IRIS).bic(IRIS), rel=1e-6)


def test_common_units_are_those_of_pca() -> None:
    assert PPCADensity(2, scale="common").fit(IRIS).score(IRIS) == pytest.approx(
        _pca_score(IRIS, 2), abs=1e-9
    )


def _pca_score(x: np.ndarray, d: int) -> float:
    """scikit-learn divides variances by N - 1; with N they are those of the maximum."""
    pca = PCA(d).fit(x)
    off, values = x - x.mean(0), np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    noise = values[d:].mean()
    covariance = (pca.components_.T * (values[:d] - noise)) @ pca.components_ + noise * np.eye(
        x.shape[1]
    )
    quadratic = np.einsum("ni,ij,nj->n", off, np.linalg.inv(covariance), off)
    return float(-0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * covariance)[1]).mean())


@pytest.mark.parametrize(
    "make",
    [PPCADensity, lambda **more: MixturePPCADensity(2, **more)],
    ids=["ppca", "mixture of ppca"],
)
# noise held at its floor is what common units come to
@pytest.mark.filterwarnings("ignore::partita.training.PartitaWarning")
def test_columns_in_different_units_are_filled_better_than_by_their_means(make: type) -> None:
    """Thirteen measurements of wine, from 0.1 to 300 in size. In common units the small ones are
    noise, which is why the rule is there.
    """
    gappy = with_gaps(WINE)
    model = make(random_state=0).fit(gappy)
    assert model.encoding_.kind == "real"
    assert relative_error(model.impute(gappy), gappy, WINE) < 0.75
    rescaled = make(random_state=0).fit(gappy * np.logspace(-3, 3, 13))
    np.testing.assert_allclose(
        rescaled.impute(gappy * np.logspace(-3, 3, 13)) / np.logspace(-3, 3, 13),
        model.impute(gappy),
        rtol=1e-3,
    )


def test_columns_in_one_unit_stay_in_it() -> None:
    """Pixels, some of which never vary; and data whose noise is the same in all columns, with gaps
    or without.
    """
    assert PPCADensity(5, random_state=0).fit(load_digits().data[:300]).encoding_.kind == "scaled"
    g = np.random.default_rng(0)
    x = g.normal(size=(300, 2)) @ (g.normal(size=(2, 8)) * np.linspace(0.2, 3, 8)) + 0.3 * g.normal(
        size=(300, 8)
    )
    assert not asks_for_own_scales(Rows(x), range(8), 1e-6) and not asks_for_own_scales(
        Rows(with_gaps(x), missing=True), range(8), 1e-6
    )
    assert asks_for_own_scales(Rows(x * np.logspace(0, 3, 8)), range(8), 1e-6)


def test_scales_are_checked_by_name() -> None:
    with pytest.raises(
        InputError,
        match="PPCADensity: scale must be one of 'auto', 'common', 'columns'; got 'each'",
    ):
        PPCADensity(1, scale="each").fit(IRIS)
    with pytest.raises(InputError, match="vary in every column to have a density"):
        PPCADensity(1, scale="columns").fit(np.column_stack([IRIS, np.ones(150)]))
