"""The Ising model as a scikit-learn density estimator."""

from collections.abc import Sequence
from dataclasses import KW_ONLY

import numpy as np

from partita.estimators._energy import EnergyDensity
from partita.estimators._parameters import ChainParameters, parameters


@parameters
class IsingDensity(ChainParameters, EnergyDensity):
    """Spins, or zeros and ones, with a field for each column and a coupling for each pair.

    Under ``support="auto"`` real columns are cut at their training median, with a warning: scores
    are then masses of that binary table, and ``sample`` returns its zeros and ones.

    Arguments:
        edges: Pairs of columns that are coupled; None couples all.
        objective: ``"auto"`` (exact up to 2^16 states, else pcd), ``"exact"``, ``"pcd"``, ``"cd"``,
            ``"tempered"``, ``"pseudo-likelihood"``, ``"ratio-matching"`` or ``"nce"``.
        support: ``"auto"`` as above; ``"binary"`` and ``"spin"`` are strict.
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
        model_: The fitted :class:`partita.models.Ising`: ``model_.h``, ``model_.couplings()``.
        run_: What the fit recorded.
        encoding_: How columns become spins.
        binarized_: Whether columns were cut at their median.
        log_z_: log Z as a Quantity, computed when first used.
        score_kind_: ``exact`` or ``estimate``: what ``score`` returns.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X = [[0, 0], [0, 1], [1, 1], [1, 1], [1, 0], [0, 0]]
    >>> model = IsingDensity(random_state=0).fit(X)
    >>> model.evaluate(X).kind, bool(model.model_.J[0] > 0)
    ('exact', True)
    """

    family = "ising"

    edges: Sequence[tuple[int, int]] | np.ndarray | None = None
    objective: str = "auto"
    _: KW_ONLY
    validation_fraction: float = 0.0

    @property
    def binarized_(self) -> bool:
        """Whether real columns were cut at their training median."""
        return self.encoding_.kind == "median-signs"
