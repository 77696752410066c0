"""The Potts model as a scikit-learn density estimator."""

from collections.abc import Sequence
from dataclasses import KW_ONLY

import numpy as np

from partita.estimators._energy import EnergyDensity
from partita.estimators._parameters import ChainParameters, parameters


@parameters
class PottsDensity(ChainParameters, EnergyDensity):
    """Categories with a field for each value of each column and a coupling for each pair of values
    of each pair of columns.

    Values are numbered from 0, column by column; columns that draw on one alphabet, such as those
    of aligned sequences, share their numbers. Under ``support="auto"`` real columns are cut at
    their training quartiles, with a warning: scores are then masses of that table of parts, and
    ``sample`` returns their numbers.

    Arguments:
        edges: Pairs of columns that are coupled; None couples all.
        objective: ``"auto"`` (exact up to 2^16 states, else pcd), ``"exact"``, ``"pcd"``, ``"cd"``,
            ``"tempered"``, ``"pseudo-likelihood"``, ``"ratio-matching"`` or ``"nce"``.
        support: ``"auto"`` as above; ``"categorical"`` is strict: every column may hold any list of
            values.
        n_chains: Markov chains of the negative phase.
        n_steps: Sampler steps between two updates, as in CD-k and PCD-k.
        noise_ratio: Rows of noise for each row of data (``"nce"``).
        sigma: Deviation of the noise added to standardized columns
            (``"denoising-score-matching"``).
        optimizer: ``"sgd"``, ``"adam"``, ``"lbfgs"`` (exact objectives) or ``"natural"``, as in
            ``partita.fit``; None leaves the choice.
        learning_rate, epochs, batch_size: None leaves them to the recipe for this model and number
            of rows.
        l1, l2: Penalties on the couplings; needed where a pair of values never occurs, for then no
            finite optimum exists.
        validation_fraction: Share of the rows held out to choose the best weights by; 0 learns from
            all rows.
        max_minutes: Time to spend, in place of epochs.
        evaluator: How log Z is computed, as in :class:`RBMDensity`.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.Potts`, on numbered categories.
        run_: What the fit recorded.
        encoding_: How columns become categories: ``encoding_.lists`` has the values of each.
        binned_: Whether columns were cut at their quartiles.
        log_z_: log Z as a Quantity, computed when first used.
        score_kind_: ``exact`` or ``estimate``: what ``score`` returns.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X = [[1, 7], [1, 7], [2, 9], [3, 8], [3, 8], [2, 9]]
    >>> model = PottsDensity(l2=1e-2, random_state=0).fit(X)
    >>> model.evaluate(X).kind, model.impute([[3, float("nan")]]).tolist()
    ('exact', [[3.0, 8.0]])
    """

    family = "potts"

    edges: Sequence[tuple[int, int]] | np.ndarray | None = None
    objective: str = "auto"
    _: KW_ONLY
    validation_fraction: float = 0.0

    @property
    def binned_(self) -> bool:
        """Whether real columns were cut at their training quartiles."""
        return self.encoding_.kind == "quantile"
