"""Finite mixtures as a scikit-learn density estimator."""

from dataclasses import KW_ONLY
from typing import Annotated

import numpy as np

from partita.core.arguments import PositiveInt, one_of
from partita.datasets import Dataset
from partita.estimators._density import Features
from partita.estimators._em import MixingDensity
from partita.estimators._frames import MixedTables
from partita.estimators._parameters import AutoOrCount, EMParameters, parameters
from partita.families.base import settings_by_table, table_kind
from partita.families.mixture import component_kind
from partita.models.directed.mixture import COMPONENTS, COVARIANCES
from partita.runtime.files import JsonObject
from partita.tables import Rows
from partita.tables.encoding import Kind
from partita.tables.rows import Weight

# components of columns so encoded
OF_KIND = {"binary": "bernoulli", "spin": "bernoulli", "category": "categorical"}


class ClusteringDensity(Features, MixingDensity):
    """A mixture's components as clusters."""

    def predict(self, X: object) -> np.ndarray:
        """The most probable component of each row, (N,)."""
        return self.predict_proba(X).argmax(1)

    def predict_proba(self, X: object) -> np.ndarray:
        """The probability of each component given each row, (N, K)."""
        z = self._encoded(X, "predict_proba")
        return self.model_.responsibilities(z).detach().numpy()

    def transform(self, X: object) -> np.ndarray:
        """The probability of each component given each row, (N, K)."""
        return self.predict_proba(X)

    def fit_predict(
        self, X: object, y: object = None, sample_weight: Weight | None = None
    ) -> np.ndarray:
        """Fit, and return the most probable component of each row."""
        return self.fit(X, y, sample_weight).predict(X)

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return self.model_.components

    @property
    def weights_(self) -> np.ndarray:
        """Weights of the components, (K,)."""
        return self.model_.log_weights().exp().detach().numpy()

    @property
    def _n_features_out(self) -> int:
        return self.model_.components


@parameters
class MixtureDensity(EMParameters, MixedTables, ClusteringDensity):
    """Density, clusters, anomalies, imputation and new samples from a finite mixture; missing
    values (NaN) are allowed.

    Arguments:
        n_components: Number of components; ``"auto"`` compares fits by their BIC.
        component: ``"gaussian"``, ``"bernoulli"``, ``"categorical"``, ``"poisson"``; ``"auto"``, as
            the command line chooses: by whether all numbers are 0 and 1 (or -1 and 1), few whole
            ones, or any; or ``"mixed"``: each column by what it holds, in a frame of numbers,
            counts, truth values and words.
        covariance_type: Of Gaussian components: ``"full"``, ``"tied"``, ``"diagonal"`` or
            ``"spherical"``.
        columns: With ``"mixed"``, kinds by name in place of what values say: ``"real"``,
            ``"binary"``, ``"count"``, ``"overdispersed"``, ``"category"``, ``"date"`` or
            ``"ignore"``.
        n_states: Of categorical columns; ``"auto"`` looks at the data.
        max_components: The largest number that ``"auto"`` tries.
        n_init: k-means++ starts, of which the best after some updates goes on.
        max_iter, tol: Updates at most, and the change of the mean log-likelihood per row below
            which the fit has converged.
        reg_covar: Smallest eigenvalue of a covariance, where a column's variance is one; a
            covariance held there is reported.
        validation_fraction: Share of the rows held out to choose the best weights by, where it
            makes at least 10.
        max_minutes: Time to spend, in place of ``max_iter``.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.Mixture`, on encoded columns.
        run_: What the fit recorded.
        encoding_: How columns become the model's: kind, shift and scale.
        schema_: With ``"mixed"``, what each column holds.
        n_components_, weights_: Number and weights of the components.
        score_kind_: ``exact``.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> g = np.random.default_rng(0)
    >>> X = np.concatenate([g.normal(0, 1, (50, 2)), g.normal(8, 1, (50, 2))])
    >>> X[0, 0] = np.nan
    >>> model = MixtureDensity(2, random_state=0).fit(X)
    >>> (
    ...     sorted(np.bincount(model.predict(X)).tolist()),
    ...     model.score_kind_,
    ...     bool(np.isnan(model.impute(X)).any()),
    ... )
    ([50, 50], 'exact', False)
    """

    family = "mixture"

    n_components: AutoOrCount = "auto"
    component: Annotated[str, one_of("auto", *COMPONENTS)] = "gaussian"
    covariance_type: Annotated[str, one_of(*COVARIANCES)] = "full"
    _: KW_ONLY
    columns: dict[str, str] | None = None
    n_states: int | str = "auto"
    max_components: PositiveInt = 20
    n_init: PositiveInt = 4

    def _mixes(self) -> bool:
        return self.component == "mixed"

    def _kind(self, rows: Rows) -> Kind:
        component = self.component
        if component == "auto":
            by_table = settings_by_table(self.family, table_kind(Dataset("X", rows)), rows)
            component = by_table.get("component", "gaussian")
        return component_kind(component, self.covariance_type, rows)

    def _settings(self) -> JsonObject:
        component = self.component
        if component == "auto":
            component = OF_KIND.get(self.encoding_.kind, "gaussian")
        return {**super()._settings(), "component": component}
