"""Probabilistic PCA, factor analysis and mixtures of them as scikit-learn density estimators."""

from dataclasses import KW_ONLY

import numpy as np

from partita.core.arguments import NonNegativeFloat, PositiveInt
from partita.estimators._density import Features
from partita.estimators._em import MixingDensity
from partita.estimators._parameters import AutoOrCount, EMParameters, parameters
from partita.estimators.mixture import ClusteringDensity
from partita.families import FAMILIES
from partita.families.ppca import factor_kind
from partita.tables import Rows
from partita.tables.encoding import Kind


@parameters
class PPCADensity(Features, EMParameters, MixingDensity):
    """Density, coordinates, anomalies, imputation and new samples from probabilistic PCA or factor
    analysis; NaN is allowed.

    Arguments:
        n_components: Latent dimensions; ``"auto"`` starts with up to 30 and lets a prior switch off
            those that are not needed.
        noise: ``"isotropic"`` (probabilistic PCA) or ``"diagonal"`` (factor analysis).
        scale: In which units isotropic noise is the same for all columns: those of the table
            (``"common"``, for columns in one unit, such as pixels), each column's own
            (``"columns"``), or ``"auto"``: which of the two has the smaller BIC. Scores are
            densities in the units of the table in any case.
        max_iter, tol: Updates at most, and the change of the mean log-likelihood per row below
            which the fit has converged.
        reg_covar: Smallest noise variance, where the mean variance of the columns is one.
        validation_fraction: Share of the rows held out to choose the best weights by, where it
            makes at least 10.
        max_minutes: Time to spend, in place of ``max_iter``.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.PPCA`, on encoded columns.
        run_: What the fit recorded.
        encoding_: How columns become the model's: kind, shift and scale.
        n_components_: Dimensions that count.
        score_kind_: ``exact``.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> g = np.random.default_rng(0)
    >>> X = g.normal(size=(200, 2)) @ g.normal(size=(2, 6)) + 0.1 * g.normal(size=(200, 6))
    >>> model = PPCADensity(random_state=0).fit(X)
    >>> model.n_components_, model.transform(X).shape
    (2, (200, 2))
    """

    family = "ppca"
    least_features = 2

    n_components: AutoOrCount = "auto"
    noise: str = "isotropic"
    _: KW_ONLY
    scale: str = "auto"
    tol: NonNegativeFloat = 3e-4

    def transform(self, X: object) -> np.ndarray:
        """Expected coordinates of each row along the dimensions that count, given its observed
        values, (N, d).
        """
        z = self._encoded(X, "transform")
        return self.model_.encode(z).detach().numpy()[:, self._counts()]

    @property
    def n_components_(self) -> int:
        """Dimensions that count."""
        return int(self._counts().sum())

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _counts(self) -> np.ndarray:
        component = self.model_.component
        if not component.ard:
            return np.ones(component.latent, dtype=bool)
        return component.relevant()[0].detach().numpy()

    def _kind(self, rows: Rows) -> Kind:
        settings = FAMILIES[self.family].resolve(self._settings(), type(self).__name__)
        return factor_kind(rows, settings, type(self).__name__, "n_components")


@parameters
class MixturePPCADensity(EMParameters, ClusteringDensity):
    """Density, clusters, anomalies, imputation and new samples from a mixture of probabilistic
    PCAs; NaN is allowed.

    Arguments:
        n_components: Number of components; ``"auto"`` compares fits by their BIC.
        n_latent: Dimensions of each; ``"auto"`` starts with up to 12 and lets a prior switch off
            those that are not needed.
        noise: ``"isotropic"``, or ``"diagonal"`` for a mixture of factor analyzers.
        scale: As of :class:`PPCADensity`; ``"auto"`` asks one component for all rows.
        max_components: The largest number that ``"auto"`` tries.
        n_init: k-means++ starts, of which the best after some updates goes on.

    The other arguments are those of :class:`PPCADensity`, the attributes those of
    :class:`MixtureDensity`.

    >>> g = np.random.default_rng(0)
    >>> X = np.concatenate(
    ...     [g.normal(size=(60, 1)) * [1, 2, 3], 5 + g.normal(size=(60, 1)) * [3, 2, -1]]
    ... ) + 0.1 * g.normal(size=(120, 3))
    >>> model = MixturePPCADensity(2, 1, random_state=0).fit(X)
    >>> model.predict_proba(X).shape, model.sample(3).shape
    ((120, 2), (3, 3))
    """

    family = "mixture-ppca"
    least_features = 2

    n_components: AutoOrCount = 10
    n_latent: AutoOrCount = "auto"
    noise: str = "isotropic"
    _: KW_ONLY
    scale: str = "auto"
    max_components: PositiveInt = 20
    n_init: PositiveInt = 1
    tol: NonNegativeFloat = 1e-3

    def _kind(self, rows: Rows) -> Kind:
        settings = FAMILIES[self.family].resolve(self._settings(), type(self).__name__)
        return factor_kind(rows, settings, type(self).__name__, "n_latent")
