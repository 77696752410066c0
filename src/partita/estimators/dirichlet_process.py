"""The Dirichlet process mixture as a scikit-learn density estimator and clusterer."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from functools import cached_property
from typing import Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from partita.core.arguments import PositiveFloat, PositiveInt
from partita.core.quantity import Kind as ScoreKind
from partita.diagnostics.chains import ChainReport
from partita.diagnostics.partitions import (
    CredibleBall,
    cluster_count_probs,
    coclustering,
    credible_ball,
    point_estimate,
    summarize_partitions,
)
from partita.errors import RunError, invalid
from partita.estimators._density import Density, Features
from partita.estimators._parameters import FitParameters, parameters
from partita.experiment.clustering import consensus_membership
from partita.families import FAMILIES
from partita.runtime.files import JsonObject
from partita.tables import Rows
from partita.tables.encoding import Kind
from partita.tables.rows import Weight

MOST_PAIRED = 20_000  # rows of which all pairs are listed


class Summary:
    """What the kept partitions of the training rows say, each computed when first used."""

    def __init__(self, partitions: np.ndarray) -> None:
        self.partitions = partitions  # (S, C, n)

    @cached_property
    def labels(self) -> np.ndarray:
        return point_estimate(self.partitions)

    @cached_property
    def ball(self) -> CredibleBall:
        return credible_ball(self.partitions, self.labels)

    @cached_property
    def probs(self) -> np.ndarray:
        return cluster_count_probs(self.partitions)

    @cached_property
    def together(self) -> np.ndarray:
        return coclustering(self.partitions)

    @cached_property
    def report(self) -> ChainReport:
        return summarize_partitions(self.partitions)


@parameters
class DirichletProcessMixture(Features, FitParameters, Density):
    """Clusters whose number is not given, density, anomalies and new samples, all averaged over a
    sampled posterior.

    Arguments:
        kernel: ``"gaussian"`` (real columns), ``"bernoulli"`` (zeros and ones, or spins) or
            ``"multinomial"`` (counts, given each row's total; scores are masses given that total).
        weight_concentration_prior: The concentration alpha; None gives it a Gamma(1, 1) prior and
            draws it along.
        known_scale: Standard deviation within Gaussian clusters, of all or of each column, where it
            is known. None learns a covariance for each cluster under the default prior: of the
            data's shape and the share 1 / (1 + alpha) of their volume, worth D rows.
        prior_mean: Mean of the clusters' means; None takes the data's.
        prior_scale: Standard deviation of the clusters' means, with ``known_scale``; None takes the
            data's.
        sampler: ``"collapsed"``, ``"instantiated"``, or ``"auto"``: collapsed up to 20,000 rows.
        n_chains: Markov chains, each from a start of its own.
        n_moves: Split or merge proposals after each sweep.
        n_keep: Most sweeps whose draws are kept.
        sweeps: Over the rows; draws of the second half are kept.
        max_minutes: Time to spend, in place of sweeps.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        labels_: The partition of the training rows with the least expected variation of
            information; labels by falling size.
        credible_ball_: The ball of partitions about it that holds 95 % of the posterior, with its
            extreme members.
        expected_clusters_: Posterior mean of the number of clusters.
        cluster_count_probs_: Posterior probability of k clusters at index k.
        coclustering_: Posterior probability that two training rows are in one cluster.
        weight_concentration_: Posterior mean of the concentration.
        mixing_: R-hat and effective sample size of what no relabeling changes, and the verdict;
            ``fit`` warns where it is "not mixed", and no score is then trusted.
        model_, run_, encoding_: The fitted :class:`partita.models.DPMixture`, what the fit
            recorded, how columns become the model's.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X = np.concatenate(
    ...     [np.random.default_rng(0).normal(c, 1.0, (30, 2)) for c in (-9.0, 0.0, 9.0)]
    ... )
    >>> model = DirichletProcessMixture(random_state=0, sweeps=60).fit(X)
    >>> np.bincount(model.labels_).tolist(), model.score_kind_, model.predict([[9.0, 9.0]]).shape
    ([30, 30, 30], 'estimate', (1,))
    """

    family = "dpmm"

    kernel: Literal["gaussian", "bernoulli", "multinomial"] = "gaussian"
    weight_concentration_prior: PositiveFloat | None = None
    _: KW_ONLY
    known_scale: float | Sequence[float] | np.ndarray | None = None
    prior_mean: float | Sequence[float] | np.ndarray | None = None
    prior_scale: float | Sequence[float] | np.ndarray | None = None
    sampler: str = "auto"
    n_chains: int = 2
    n_moves: int = 10
    n_keep: int = 100
    sweeps: PositiveInt = 300

    def fit(  # type: ignore[override]  # without weights
        self, X: object, y: object = None, **weights: object
    ) -> Self:
        """Sample the posterior given the rows of X; they have no weights, for a partition is of
        whole rows: repeat them instead.
        """
        if weights:
            allowed = "have no weights, for a partition is of whole rows"
            owner, given = f"{type(self).__name__}.fit", ", ".join(weights)
            raise invalid(owner, "rows", allowed, given, "Repeat rows instead.")
        return super().fit(X)

    def fit_predict(self, X: object, y: object = None) -> np.ndarray:
        """``labels_`` of a fit to X."""
        return self.fit(X).labels_

    @property
    def labels_(self) -> np.ndarray:
        return self._posterior().labels

    @property
    def credible_ball_(self) -> CredibleBall:
        return self._posterior().ball

    @property
    def cluster_count_probs_(self) -> np.ndarray:
        return self._posterior().probs

    @property
    def expected_clusters_(self) -> float:
        return float(self.cluster_count_probs_ @ np.arange(len(self.cluster_count_probs_)))

    @property
    def coclustering_(self) -> np.ndarray:
        found = self._posterior()
        if (n := found.partitions.shape[-1]) > MOST_PAIRED:
            allowed = f"be of at most {MOST_PAIRED} rows"
            remedy = "Use labels_ and credible_ball_."
            raise invalid(type(self).__name__, "coclustering_", allowed, n, remedy)
        return found.together

    @property
    def weight_concentration_(self) -> float:
        check_is_fitted(self, "model_")
        return float(self.model_.alphas.mean())

    @property
    def mixing_(self) -> ChainReport:
        return self._posterior().report

    @property
    def score_kind_(self) -> ScoreKind:
        check_is_fitted(self, "model_")
        return "estimate"

    def predict(self, X: object) -> np.ndarray:
        """The cluster of ``labels_`` to which each row most probably belongs."""
        return self.predict_proba(X).argmax(1)

    def predict_proba(self, X: object) -> np.ndarray:
        """Probability of each cluster of ``labels_``, (N, K): where each draw would put a row, by
        the rows that are there (eq. 20.19).
        """
        z = self._encoded(X, "predict_proba")
        return consensus_membership(self.model_, z, self.labels_)

    def transform(self, X: object) -> np.ndarray:
        """Probability of each cluster of ``labels_``, (N, K)."""
        return self.predict_proba(X)

    @property
    def _n_features_out(self) -> int:
        return int(self.labels_.max()) + 1

    def _posterior(self) -> Summary:
        check_is_fitted(self, "model_")
        return self._summary

    def _forget(self) -> None:
        self._summary = Summary(self.model_.partitions.numpy())

    def _restore(self, kept: JsonObject) -> None:
        if not self.model_.draws:
            raise RunError(
                "load: a DirichletProcessMixture must hold draws of its posterior; got none. "
                "Restore the file."
            )

    def _kind(self, rows: Rows) -> Kind:
        return FAMILIES[self.family].encoding_kind(rows, self._settings())

    def _rows(self, X: np.ndarray, sample_weight: Weight | None) -> Rows:
        """Rows in their own order, so that labels are those of the rows of X."""
        return Rows(
            X, columns=getattr(self, "feature_names_in_", None), owner=f"{type(self).__name__}.fit"
        )

    def _options(self) -> JsonObject:
        return {
            "epochs": self.sweeps if self.max_minutes is None else None,
            "minutes": self.max_minutes,
        }
