"""Autoregressive models as a scikit-learn density estimator."""

from dataclasses import KW_ONLY

from partita.estimators._frames import MixedTables
from partita.estimators._parameters import GradientParameters, parameters
from partita.runtime.files import JsonObject


@parameters
class AutoregressiveDensity(GradientParameters, MixedTables):
    """Exact densities and exact draws from a product of conditionals, one column after the other in
    the order of the table.

    Arguments:
        backbone: ``"masked"`` (all conditionals from one pass of a masked network; so is
            ``"auto"``), or a sequence network over the columns: ``"hyena"``, ``"h3"``, ``"ssm"``,
            ``"attention"``, ``"conv"`` or ``"lstm"``.
        n_hidden: Hidden units of the masked network; ``"auto"`` takes five per column while there
            are as many rows, from 32 to 1000.
        n_layers: Hidden layers of the masked network, or blocks of a sequence network; ``"auto"``
            is 1 and 4.
        width: Channels of a sequence network.
        expand: Hidden units of each block's perceptron, as a multiple of ``width``.
        dropout: Share of the activations of a sequence network that are dropped in training.
        options: Of the mixer of a sequence network, such as ``{"order": 3}``.
        n_components: Normals in the mixture of a real column.
        support: ``"auto"`` looks at the data: zeros and ones, spins (relabeled), else real columns,
            standardized. ``"binary"``, ``"spin"`` and ``"real"`` are strict. ``"mixed"`` takes each
            column by what it holds, in a frame of numbers, counts, truth values and words
            (``"masked"``).
        columns: With ``"mixed"``, kinds by name in place of what values say: ``"real"``,
            ``"binary"``, ``"count"``, ``"overdispersed"``, ``"category"``, ``"date"`` or
            ``"ignore"``.
        optimizer: ``"sgd"``, ``"adam"``, ``"lbfgs"`` (exact objectives) or ``"natural"``, as in
            ``partita.fit``; None leaves the choice.
        learning_rate, epochs, batch_size: None leaves them to the recipe for this model and number
            of rows.
        l1, l2: Penalties on the weights.
        validation_fraction: Share of the rows held out to choose the best weights by, where it
            makes at least 10.
        max_minutes: Time to spend, in place of epochs.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.MaskedAutoregressive` or
            :class:`partita.models.Autoregressive`, on encoded columns. run_, encoding_,
            score_kind_, n_features_in_, feature_names_in_: As in every density estimator.

    >>> import numpy as np
    >>> X = (np.random.default_rng(0).random((80, 6)) < 0.3).astype(int)
    >>> model = AutoregressiveDensity(epochs=2, random_state=0).fit(X)
    >>> model.sample(3).shape, model.evaluate(X).kind
    ((3, 6), 'exact')
    """

    family = "autoregressive"
    supports = ("auto", "binary", "spin", "real", "mixed")

    backbone: str = "auto"
    _: KW_ONLY
    n_hidden: int | str = "auto"
    n_layers: int | str = "auto"
    width: int = 128
    expand: int = 4
    dropout: float = 0.0
    options: JsonObject | None = None
    n_components: int = 8
    columns: dict[str, str] | None = None
