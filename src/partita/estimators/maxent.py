"""The maximum-entropy model as a scikit-learn density estimator."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY

from torch import Tensor

from partita.estimators._energy import EnergyDensity
from partita.estimators._parameters import ChainParameters, parameters


@parameters
class MaxEntDensity(ChainParameters, EnergyDensity):
    """The distribution of largest entropy whose feature averages are those of the data.

    A maximum-entropy model needs finitely many states. Under ``support="auto"`` real columns are
    therefore cut at their training median: ``binarized_`` is then True, scores are masses of that
    binary table, and ``sample`` returns its zeros and ones.

    Arguments:
        features: ``"pairwise"`` (means and correlations), ``"independent"``, ``"k-pairwise"``, or
            functions as in :class:`partita.models.MaxEnt` (which cannot be saved).
        objective: ``"auto"`` (exact up to 16 columns, else pcd), ``"exact"``, ``"pcd"``, ``"cd"``,
            ``"tempered"``, ``"replay"``, ``"nce"``, ``"pseudo-likelihood"`` or
            ``"ratio-matching"``.
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
        l1, l2: Penalties on the parameters; needed where a feature is constant in the data, for
            then no finite optimum exists.
        validation_fraction: Share of the rows held out to choose the best weights by; 0 matches the
            averages of all rows.
        max_minutes: Time to spend, in place of epochs.
        evaluator: How log Z is computed, as in :class:`RBMDensity`.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.MaxEnt`.
        run_: What the fit recorded.
        encoding_: How columns become the model's: kind, shift and scale.
        binarized_: Whether columns were cut at their median.
        log_z_: log Z as a Quantity, computed when first used.
        score_kind_: ``exact`` or ``estimate``: what ``score`` returns.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X = [[0, 0], [0, 1], [1, 1], [1, 1], [1, 0], [0, 0]]
    >>> model = MaxEntDensity(random_state=0).fit(X)
    >>> model.evaluate(X).kind, model.binarized_
    ('exact', False)
    """

    family = "maxent"

    features: str | Sequence[Callable[[Tensor], Tensor]] = "pairwise"
    objective: str = "auto"
    _: KW_ONLY
    validation_fraction: float = 0.0

    @property
    def binarized_(self) -> bool:
        """Whether real columns were cut at their training median."""
        return self.encoding_.kind == "median"
